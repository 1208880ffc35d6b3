"""Pages of sweeps, forecasts, advice and bounds, made of their rows or JSON alone, without scripts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer.errors import escape_text
from bftrainer.report.drawing import date_of, label_dates, palette, put_legend
from bftrainer.report.glossary import assumption_notes, format_value
from bftrainer.report.metrics import Estimate, estimate, proportion
from bftrainer.report.page import MOST_ROWS, Card, Page, PageTable, Picture, page_bytes
from bftrainer.terms import GLOSSARY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]
FOR_INTERVAL = 9
"""Minimum number of stretches for an 80 % interval within the observed range."""
_MOST_STEPS = 500
_SEARCHED = {"forward_time_s": "-Tfwd (s)", "max_tasks": "-maxJ", "objective": "objective"}
_FAN = "The line: in how many of them all tasks are done by then, with its 95 % interval. Dashed: the date asked for."
REPEATED = {"window": "windows", "seed": "seeds"}
"""Columns that vary by chance and not by choice, and names of their values."""
_FIRST = ("efficiency", "ledger.useful", "work_done", "tasks_completed", "occupancy")
_SECOND = ("tasks_completed", "turnaround_mean_s", "preemptions", "rescales", "energy_j")


def short_label(value: Any, most: int = 24) -> str:
    """Text of a setting's value of at most so many characters: the end of a path, the beginning of all else."""
    text = "-" if value is None else f"{value:g}" if isinstance(value, float) else escape_text(str(value))
    if len(text) <= most:
        return text
    return f"…{text[1 - most :]}" if "/" in text else f"{text[: most - 1]}…"


_cell = partial(short_label, most=10**6)


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """Values of the factors, their points, which differ in seeds or windows alone, and means of metrics of these."""

    values: tuple[Any, ...]
    rows: tuple[Row, ...]
    estimates: Mapping[str, Estimate]

    def mean(self, key: str) -> str:
        """Mean of a metric without its interval."""
        return format_value(self.estimates[key].mean if key in self.estimates else None, GLOSSARY[key].unit)

    def interval(self, key: str) -> str:
        """The 95 % interval of a metric; empty where one point says nothing about it."""
        result, unit = self.estimates.get(key), GLOSSARY[key].unit
        if result is None or result.half_width is None:
            return ""
        return " to ".join(format_value(result.mean + sign * result.half_width, unit) for sign in (-1, 1))

    def text(self, key: str, ending: str = "") -> str:
        """Mean of a metric, and in brackets its interval."""
        interval = self.interval(key)
        return f"{self.mean(key)} ({interval}{ending})" if interval else self.mean(key)


class Sweep:
    """Settings of a sweep's rows, ranked by the first metric, the best first; those without it are left out.

    `varied` names the columns of options that vary; `metrics` are one to rank by and one to show beside it, by default
    those that differ between points.
    """

    def __init__(self, rows: Sequence[Row], varied: Sequence[str], metrics: Sequence[str]) -> None:
        self.rows = rows
        differing = [name for name in varied if len({str(row.get(name)) for row in rows}) > 1]
        self.factors = [name for name in differing if name not in REPEATED]
        self.over = " and ".join(text for name, text in REPEATED.items() if name in differing) or "seeds"
        self.first = self._choose(metrics[:1], _FIRST)
        self.second = self._choose(metrics[1:], [name for name in _SECOND if name != self.first])
        groups: dict[tuple[Any, ...], dict[str, Row]] = {}
        for row in rows:  # equal points have one run
            groups.setdefault(tuple(row.get(name) for name in self.factors), {}).setdefault(row["run"], row)
        self.settings = []
        for values, runs in groups.items():  # a mean without a point that failed would be of other seeds
            samples: dict[str, list[Any]] = {
                key: [row.get(key) for row in runs.values()] for key in (self.first, self.second)
            }
            estimates = {key: estimate(sample) for key, sample in samples.items() if None not in sample}
            self.settings.append(Setting(values, tuple(runs.values()), estimates))
        ranked = [one for one in self.settings if self.first in one.estimates]
        self.ranked = sorted(ranked, key=lambda one: -GLOSSARY[self.first].better * one.estimates[self.first].mean)
        self.is_repeated = any(len(one.rows) > 1 for one in self.ranked)

    def _choose(self, chosen: Sequence[str], usual: Sequence[str]) -> str:
        """The chosen metric, else the first usual one that differs between points, of those that all have."""
        values = {name: [row.get(name) for row in self.rows] for name in usual}
        order = sorted(usual, key=lambda name: (len({*values[name]} - {None}) < 2, values[name].count(None)))
        return [*chosen, *order][0]

    def headline(self) -> str:
        """The best settings and their metric, or why there are none."""
        failed = sum(row["error"] is not None for row in self.rows)
        ending = f" {failed:,} of {len(self.rows):,} points failed." if failed else ""
        if not self.ranked:
            return f"No point has a value of {_label_of(self.first)}.{ending}"
        best = self.ranked[0]
        number = "{} runs of different" if " and " in self.over else "{}"
        over = f", 95 % over {number.format(len(best.rows))} {self.over}"
        pairs = [pair for pair in zip(self.factors, best.values, strict=True) if pair[1] is not None]
        chosen = ", ".join(f"{name} {short_label(value)}" for name, value in pairs) or "what [base] says"
        text = f"Best {_label_of(self.first)}: {best.text(self.first, over)}{f', with {chosen}' * bool(self.factors)}."
        middle = best.estimates[self.first]
        half = middle.half_width or 0.0
        near = sum(abs(one.estimates[self.first].mean - middle.mean) <= half for one in self.ranked[1:])
        where = "within that interval" if half else "as good"
        return text + (f" Other settings {where}: {near:,}." if near else "") + ending


def _label_of(key: str) -> str:
    """Name of a metric; parts of the ledger are shares."""
    return GLOSSARY[key].label + " share" * key.startswith("ledger.")


def sweep_page(
    name: str, rows: Sequence[Row], varied: Sequence[str], command: str, metrics: Sequence[str] = (),
    changes: PageTable | None = None,
) -> bytes:  # fmt: skip
    """Make the page of a sweep, whose file is `command`, with changes; the other parameters are those of `Sweep`."""
    sweep = Sweep(rows, varied, metrics)
    failed = [row for row in rows if row["error"] is not None][:MOST_ROWS]
    failures = [[str(row["point"]), *(_cell(row.get(name)) for name in varied), row["error"]] for row in failed]
    keys = (sweep.first, sweep.second)
    cards, ranked = [], [[*map(_cell, one.values), *map(one.text, keys)] for one in sweep.ranked[:MOST_ROWS]]
    for best in sweep.ranked[:1]:
        for key in keys:
            interval = f"{best.interval(key)}, 95 % over {sweep.over}. " if best.interval(key) else ""
            cards.append(Card(_label_of(key), best.mean(key), interval + GLOSSARY[key].meaning))
        for factor, value in list(zip(sweep.factors, best.values, strict=True))[:4]:
            cards.append(Card(factor, short_label(value), "Of the best settings."))
    note = f"In brackets: 95 % intervals over {sweep.over}. " * sweep.is_repeated
    if len(sweep.ranked) > MOST_ROWS:
        note += f"The best {MOST_ROWS} of {len(sweep.ranked):,}; all are in sweep.parquet."
    headings = (*sweep.factors, *map(_label_of, keys))
    page = Page(
        title=f"Sweep {name}",
        subtitle=f"{len(rows):,} points, {len(sweep.settings):,} settings of {', '.join(sweep.factors) or 'one kind'}",
        verdict=sweep.headline(),
        cards=tuple(cards),
        tables=(
            PageTable("Settings, the best first", headings, ranked, note),
            *([changes] if changes else []),
            PageTable("Points that failed", ("point", *varied, "why"), failures),
        ),
        notes=tuple(_sweep_notes(sweep)),
        command=command,
    )
    return page_bytes(page)


def _sweep_notes(sweep: Sweep) -> Iterator[str]:
    for note in dict.fromkeys(row.get("assumed_scaling") for row in sweep.rows):
        yield from assumption_notes(note)
    windows = {frozenset(str(row.get("window")) for row in one.rows) for one in sweep.settings}
    if not sweep.is_repeated:
        yield "One seed of each setting: nothing tells by how much figures would differ by chance."
    elif "windows" in sweep.over and len(windows) > 1:
        yield "Not all settings have the same windows: what differs between windows differs between means too."
    elif "windows" in sweep.over:
        yield "How windows differ is part of the intervals; --paired compares settings window by window."


def note_of_few(stretches: int) -> str | None:
    """Why a forecast has no 80 % interval; None if there are enough stretches for one."""
    if stretches >= FOR_INTERVAL:
        return None
    return (
        f"{stretches} stretches are too few for the 80 %, which take {FOR_INTERVAL} or more: shown are the earliest "
        "completion and the latest."
    )


def when_text(start: str | None, time_s: float | None) -> str:
    """A date with its weekday, or a time after the start; None lies beyond the horizon."""
    if time_s is None:
        return "beyond the horizon"
    if start is None:
        return f"{format_value(time_s, 's')} after the start"
    return f"{datetime.fromisoformat(start[:19]) + timedelta(seconds=round(time_s)):%a %Y-%m-%d %H:%M} UTC"


def forecast_page(forecast: Row, command: str) -> bytes:
    """Make the page of a forecast, from the JSON of `bftrainer.campaigns.studies.Forecast.to_dict`."""
    start, times_s = forecast["start"], [math.inf if time is None else time for time in forecast["completion_s"]]
    number, quantiles = len(times_s), forecast["completion_quantiles_s"]
    low, high = (100 * end for end in forecast["probability_ci95"])
    deadline, share = when_text(start, forecast["deadline_s"]), f"{100 * forecast['probability']:.0f} %"
    verdict = (
        f"By {deadline}: {share} ({low:.0f} to {high:.0f} %) of {number} stretches of the log have all tasks done."
    )
    if all(map(math.isinf, times_s)):
        verdict += f" None of them has within {format_value(forecast['horizon_s'], 's')}."
    earliest, latest = (when_text(start, time_s) for time_s in forecast["interval80_s"])
    least = 100 / (number + 1)  # quantiles between the earliest completion and the latest
    levels = [
        [f"{level[1:]} %", when_text(start, time_s)]
        for level, time_s in quantiles.items()
        if least <= float(level[1:]) <= 100 - least
    ]
    notes = [*assumption_notes(forecast["assumed_scaling"]), *filter(None, [note_of_few(number)])]
    if forecast["overlap"] > 1.5:
        notes.append(
            f"Stretches overlap, {forecast['overlap']:.1f} cover each moment: they tell less than as many independent "
            "ones, and the intervals are too narrow."
        )
    if start is None:
        notes.append("Times count from the start of the tasks: no date of it was given.")
    if never := sum(map(math.isinf, times_s)):
        notes.append(f"{never} of {number} are not done by the horizon, {when_text(start, forecast['horizon_s'])}.")
    page = Page(
        title="When will all tasks be done?",
        subtitle=f"{number} stretches of the log, each {format_value(forecast['horizon_s'], 's')} long",
        verdict=verdict,
        cards=(
            Card("all done by then", share, f"{low:.0f} to {high:.0f} % (95 %): {deadline}."),
            Card("median", when_text(start, quantiles["p50"]), "As probably done before as after."),
            Card(
                "80 % of completions" if number >= FOR_INTERVAL else "earliest to latest", earliest, f"until {latest}."
            ),
            Card("tasks done by then", f"{100 * forecast['tasks_done_share_mean']:.0f} %", "Mean over all of them."),
        ),
        figures=(Picture("fan", "When all tasks are done", _FAN, partial(_draw_fan, forecast, times_s), 3.2),),
        tables=(PageTable("How sure", ("probability", "all done by"), levels),),
        notes=tuple(notes),
        command=command,
    )
    return page_bytes(page)


def _draw_fan(forecast: Row, times_s: Sequence[float], ax: Axes) -> None:
    """Share of the stretches in which all is done, over time."""
    ink, start, horizon_s = palette(), forecast["start"], forecast["horizon_s"]

    def along(time_s: Any) -> Any:
        """Dates where the start is known, else hours."""
        return np.asarray(time_s) / 3600.0 if start is None else date_of(start, time_s)

    ordered = np.sort(times_s)
    ends_s = np.unique(ordered[ordered < horizon_s])
    steps_s = np.concatenate(([0.0], ends_s[:: 1 + ends_s.size // _MOST_STEPS], [horizon_s]))
    shares = [proportion(int(count), len(times_s)) for count in np.searchsorted(ordered, steps_s, side="right")]
    x, band = along(steps_s), [[100 * share.low for share in shares], [100 * share.high for share in shares]]
    ax.fill_between(x, *band, step="post", facecolor=ink["green"], alpha=0.25, linewidth=0)
    ax.step(x, [100 * share.share for share in shares], where="post", color=ink["green"], label="all done")
    deadline = f"by {when_text(start, forecast['deadline_s'])}: {100 * forecast['probability']:.0f} %"
    ax.axvline(float(along(forecast["deadline_s"])), color=ink["ink"], linewidth=1, linestyle="--", label=deadline)
    last_s = max(forecast["deadline_s"], *(min(time_s, horizon_s) for time_s in times_s))
    ax.set(ylabel="all done (%)", ylim=(0, 105), xlim=along([0.0, 1.05 * last_s]), yticks=range(0, 101, 25))
    if start is None:
        ax.set(xlabel="hours after the start")
        put_legend(ax)
    else:
        label_dates(ax)


def advice_page(advice: Row, command: str) -> bytes:
    """Make the page of advice, from the JSON of `bftrainer.campaigns.studies.Advice.to_dict`."""
    label, advised, former = GLOSSARY[advice["metric"]].label, advice["advised"], advice["given"]
    gains = {part: "from 0" if gain is None else f"{100 * gain:+.2f} %" for part, gain in advice["gain"].items()}
    cards = []
    for key, name in _SEARCHED.items():
        is_same = advised[key] == former[key]
        text = "Advised, as given." if is_same else f"Advised; given: {short_label(former[key])}."
        cards.append(Card(name, short_label(advised[key]), text))
    cards.append(Card("gain on the training part", gains["training"], f"Of {label}, best against given settings."))
    cards.append(Card("gain on the rest", gains["held_out"], "Of the same settings, which the search has not seen."))
    cards.append(Card("settings tried", f"{len(advice['tried']):,}", f"In {advice['trials']:,} trials."))
    term, rows = GLOSSARY[advice["metric"]], []

    def order(trial: Row) -> float:
        """The best first, those without a value last."""
        return math.inf if trial["training"] is None else -term.better * float(trial["training"])

    for trial in sorted(advice["tried"], key=order)[:MOST_ROWS]:
        which = [name for name in ("given", "best") if all(trial[key] == advice[name][key] for key in _SEARCHED)]
        settings = (f"{trial['forward_time_s']:g}", str(trial["max_tasks"]), trial["objective"])
        values = (trial["training"], advice[which[0]]["held_out"] if which else None)
        rows.append([", ".join(which), *settings, *(format_value(value, term.unit) for value in values)])
    headings = ("which", *_SEARCHED.values(), f"{label} on the training part", "on the rest")
    note = "Only the given settings and the best ones are replayed on the rest, so that it stays unseen."
    page = Page(
        title="Which settings suit this machine?",
        subtitle=f"searched on the first {format_value(advice['split_s'], 's')}, proven on the rest",
        verdict=advice["sentence"],
        cards=tuple(cards),
        tables=(PageTable("All that was tried", headings, rows, note),),
        notes=tuple(assumption_notes(advice["assumed_scaling"])),
        command=command,
    )
    return page_bytes(page)


def bounds_page(bounds: Row, command: str) -> bytes:
    """Make the page of bounds, from the JSON of `bftrainer.campaigns.studies.bound_work`."""
    gains = {row["name"]: row["against_named"] for row in bounds["bounds"]}
    texts = {name: "-" if gain is None else f"{100 * gain:+.1f} %" for name, gain in gains.items()}

    def draw(ax: Axes) -> None:
        """Bars of the change against named nodes."""
        percents = {name: 100 * gain for name, gain in gains.items() if gain is not None}
        ax.barh(list(percents), list(percents.values()), color=palette()["blue"])
        ax.invert_yaxis()
        ax.set(xlabel="change of work (%)")

    headings = ("granted", "work done", "against named", "lost to departures", "lost to changes")
    rows = []
    for row in bounds["bounds"]:
        losses = (format_value(row[f"{cause}_share"], "share") for cause in ("departure", "rescale"))
        rows.append([row["name"], f"{row['work']:,.4g}", texts[row["name"]], *losses])
    reading = "Work done against that with nodes that the log names, without notice."
    page = Page(
        title="What would a grant bring?",
        subtitle=f"Work done after {format_value(bounds['time_s'], 's')}, when the first is done or the log ends",
        verdict=f"Chosen nodes: {texts['chosen']}. Only changes free is a bound: {texts['changes free']}.",
        figures=(Picture("gains", "Change by grant", reading, draw, 2.2),),
        tables=(PageTable("By grant", headings, rows),),
        notes=tuple(bounds["notes"]),
        command=command,
    )
    return page_bytes(page)
