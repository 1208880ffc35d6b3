"""Pages of forecasts and advice, made of their JSON alone, without scripts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer.report.drawing import below_axes, date_of, label_dates, palette
from bftrainer.report.glossary import GLOSSARY, assumption_notes, format_value
from bftrainer.report.intervals import proportion
from bftrainer.report.page import MOST_ROWS, Card, Page, PageTable, Picture, page_bytes
from bftrainer.report.sweep_page import short_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FOR_INTERVAL = 9
"""Minimum number of stretches for an 80 % interval within the observed range."""
_HOUR_S = 3600.0
_MOST_STEPS = 500
_SEARCHED = {"forward_time_s": "-Tfwd (s)", "max_tasks": "-maxJ", "objective": "objective"}
_FAN = (
    "The line: in how many of them all tasks are done by then, with its 95 % interval around it. Blue: {}, and their "
    "median. Dashed: the date asked for."
)


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


def forecast_page(forecast: Mapping[str, Any], command: str) -> bytes:
    """Make the page of a forecast, from the JSON of `bftrainer.campaigns.forecast.Forecast.to_dict`."""
    start, times_s = forecast["start"], [math.inf if time is None else time for time in forecast["completion_s"]]
    number, quantiles = len(times_s), forecast["completion_quantiles_s"]
    low, high = (100 * end for end in forecast["probability_ci95"])
    deadline, share = when_text(start, forecast["deadline_s"]), f"{100 * forecast['probability']:.0f} %"
    verdict = (
        f"By {deadline}: {share} ({low:.0f} to {high:.0f} %) of {number} stretches of the log have all tasks done."
    )
    if sum(map(math.isinf, times_s)) == number:
        verdict += f" None of them has within {format_value(forecast['horizon_s'], 's')}."
    earliest, latest = (when_text(start, time_s) for time_s in forecast["interval80_s"])
    least, label = 100 / (number + 1), _label_spread(number)  # quantiles between the earliest completion and the latest
    levels = [
        [f"{level[1:]} %", when_text(start, time_s)]
        for level, time_s in quantiles.items()
        if least <= float(level[1:]) <= 100 - least
    ]
    page = Page(
        title="When will all tasks be done?",
        subtitle=f"{number} stretches of the log, each {format_value(forecast['horizon_s'], 's')} long",
        verdict=verdict,
        cards=(
            Card("all done by then", share, f"{low:.0f} to {high:.0f} % (95 %): {deadline}."),
            Card("median", when_text(start, quantiles["p50"]), "As probably done before as after."),
            Card(label, earliest, f"until {latest}."),
            Card("tasks done by then", f"{100 * forecast['tasks_done_share_mean']:.0f} %", "Mean over all of them."),
        ),
        figures=(
            Picture("fan", "When all tasks are done", _FAN.format(label), partial(_draw_fan, forecast, times_s), 3.2),
        ),
        tables=(PageTable("How sure", ("probability", "all done by"), levels),),
        notes=tuple(_forecast_notes(forecast, times_s)),
        command=command,
    )
    return page_bytes(page)


def _label_spread(number: int) -> str:
    """Name of the widest span of completions."""
    return "80 % of completions" if number >= FOR_INTERVAL else "earliest to latest"


def _forecast_notes(forecast: Mapping[str, Any], times_s: Sequence[float]) -> Iterator[str]:
    yield from assumption_notes(forecast["assumed_scaling"])
    if few := note_of_few(len(times_s)):
        yield few
    if forecast["overlap"] > 1.5:
        yield (
            f"Stretches overlap, {forecast['overlap']:.1f} cover each moment: they tell less than as many independent "
            "ones, and the intervals are too narrow."
        )
    if forecast["start"] is None:
        yield "Times count from the start of the tasks: no date of it was given."
    if never := sum(map(math.isinf, times_s)):
        horizon = when_text(forecast["start"], forecast["horizon_s"])
        yield f"{never} of {len(times_s)} are not done by the horizon, {horizon}."


def _draw_fan(forecast: Mapping[str, Any], times_s: Sequence[float], ax: Axes) -> None:
    """Share of the stretches in which all is done, over time, and in which span most are."""
    ink, start, horizon_s = palette(), forecast["start"], forecast["horizon_s"]

    def along(time_s: Any) -> Any:
        """Dates where the start is known, else hours."""
        return np.asarray(time_s) / _HOUR_S if start is None else date_of(start, time_s)

    ordered = np.sort(times_s)
    ends_s = np.unique(ordered[ordered < horizon_s])
    steps_s = np.concatenate(([0.0], ends_s[:: 1 + ends_s.size // _MOST_STEPS], [horizon_s]))
    shares = [proportion(int(done), len(times_s)) for done in np.searchsorted(ordered, steps_s, side="right")]
    early_s, middle_s, late_s = (
        horizon_s if (time_s := forecast["completion_quantiles_s"][level]) is None else time_s
        for level in ("p10", "p50", "p90")
    )
    if early_s < horizon_s:
        spread = _label_spread(len(times_s))
        ax.axvspan(*along([early_s, late_s]), facecolor=ink["sky"], alpha=0.2, linewidth=0, label=spread)
    if middle_s < horizon_s:
        ax.axvline(along(middle_s), color=ink["blue"], linewidth=1.6, linestyle=":", label="median")
    x, band = along(steps_s), [[100 * share.low for share in shares], [100 * share.high for share in shares]]
    ax.fill_between(x, *band, step="post", facecolor=ink["green"], alpha=0.25, linewidth=0)
    ax.step(x, [100 * share.share for share in shares], where="post", color=ink["green"], label="all done")
    deadline = f"by {when_text(start, forecast['deadline_s'])}: {100 * forecast['probability']:.0f} %"
    ax.axvline(float(along(forecast["deadline_s"])), color=ink["ink"], linewidth=1, linestyle="--", label=deadline)
    last_s = max(forecast["deadline_s"], *(min(done_s, horizon_s) for done_s in times_s))
    ax.set(ylabel="all done (%)", ylim=(0, 105), xlim=along([0.0, 1.05 * last_s]), yticks=range(0, 101, 25))
    if start is not None:
        label_dates(ax)
        return
    ax.set(xlabel="hours after the start")
    below_axes(ax, 0.42)


def advice_page(advice: Mapping[str, Any], command: str) -> bytes:
    """Make the page of advice, from the JSON of `bftrainer.campaigns.advice.Advice.to_dict`."""
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
    headings = ("which", *_SEARCHED.values(), f"{label} on the training part", "on the rest")
    note = "Only the given settings and the best ones are replayed on the rest, so that it stays unseen."
    page = Page(
        title="Which settings suit this machine?",
        subtitle=f"searched on the first {format_value(advice['split_s'], 's')}, proven on the rest",
        verdict=advice["sentence"],
        cards=tuple(cards),
        tables=(PageTable("All that was tried", headings, list(_trial_rows(advice)), note),),
        notes=tuple(assumption_notes(advice["assumed_scaling"])),
        command=command,
    )
    return page_bytes(page)


def bounds_page(bounds: Mapping[str, Any], command: str) -> bytes:
    """Make the page of bounds, from the JSON of `bftrainer.campaigns.bound.WorkBounds.to_dict`."""
    rows = bounds["bounds"]
    names = {row["name"]: None if row["against_named"] is None else 100 * row["against_named"] for row in rows}
    gains = {name: "-" if gain is None else f"{gain:+.1f} %" for name, gain in names.items()}
    after = format_value(bounds["time_s"], "s")
    headings = ("granted", "work done", "against named", "lost to departures", "lost to changes")
    lines = [
        [
            row["name"],
            f"{row['work']:,.4g}",
            gains[row["name"]],
            format_value(row["departure_share"], "share"),
            format_value(row["rescale_share"], "share"),
        ]
        for row in rows
    ]

    def draw(ax: Axes) -> None:
        """Bars of the change against named nodes."""
        known = [(name, gain) for name, gain in names.items() if gain is not None]
        ax.barh([name for name, _ in known], [gain for _, gain in known], color=palette()["blue"])
        ax.invert_yaxis()
        ax.set(xlabel="change of work (%)")

    reading = "Work done against that with nodes that the log names, without notice."
    page = Page(
        title="What would a grant bring?",
        subtitle=f"Work done after {after}, when the first of them is done or the log ends",
        verdict=f"Chosen nodes: {gains['chosen']}. Only changes free is a bound: {gains['changes free']}.",
        cards=tuple(Card(name, gains[name], "Work against named nodes.") for name in list(gains)[1:]),
        figures=(Picture("gains", "Change by grant", reading, draw, 2.2),),
        tables=(PageTable("By grant", headings, lines),),
        notes=tuple(bounds["notes"]),
        command=command,
    )
    return page_bytes(page)


def _trial_rows(advice: Mapping[str, Any]) -> Iterator[list[str]]:
    """A row for each setting, the best first, those without a value last."""
    term = GLOSSARY[advice["metric"]]

    def order(trial: Mapping[str, Any]) -> float:
        """The best first."""
        return math.inf if trial["training"] is None else -term.better * float(trial["training"])

    for trial in sorted(advice["tried"], key=order)[:MOST_ROWS]:
        which = [name for name in ("given", "best") if all(trial[key] == advice[name][key] for key in _SEARCHED)]
        settings = (f"{trial['forward_time_s']:g}", str(trial["max_tasks"]), trial["objective"])
        values = (trial["training"], advice[which[0]]["held_out"] if which else None)
        yield [", ".join(which), *settings, *(format_value(value, term.unit) for value in values)]
