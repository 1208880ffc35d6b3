"""Pages of forecasts and advice, made of their JSON alone, without scripts; and what all pages of many runs share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer.errors import escaped
from bftrainer.report.drawing import below_axes, palette, plain
from bftrainer.report.glossary import ASSUMED, GLOSSARY, format_value, scaled_label
from bftrainer.report.intervals import proportion
from bftrainer.report.page import Card, Page, PageTable, Picture, page_bytes
from bftrainer.report.pictures import date_of, with_dates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 500
FOR_INTERVAL = 9
"""Minimum number of stretches for an 80 % interval within the observed range."""
_HOUR_S, _DAY_S = 3600.0, 86_400.0
_MOST_SHOWN, _MOST_STEPS, _STEPS = 24, 500, 12
_STEPS_S = (60.0, 300.0, 900.0, 3600.0, 3 * 3600.0, 6 * 3600.0, 12 * 3600.0, _DAY_S, 2 * _DAY_S, 7 * _DAY_S)
_MARKS = (("blue", "o"), ("purple", "s"), ("sky", "^"), ("red", "v"), ("gray", "P"))
_SEARCHED = ("forward_time_s", "max_tasks", "objective")
_NAMES = ("-Tfwd (s)", "-maxJ", "objective")
_MOST_TICKS = 14
_FAN = (
    "The line: in how many of them all tasks are done by then, with its 95 % interval around it. Shaded from the left: "
    "{}, the middle 50 %, and their median. Dashed: the date asked for."
)


def short_label(value: Any, most: int = _MOST_SHOWN) -> str:
    """Text of a setting's value with room beside a picture: the end of a path, the beginning of all else."""
    text = "-" if value is None else f"{value:g}" if isinstance(value, float) else escaped(str(value))
    if len(text) <= most:
        return text
    return f"…{text[1 - most :]}" if "/" in text else f"{text[: most - 1]}…"


def scaling_notes(note: str | None) -> tuple[str, ...]:
    """Caveat of an assumption about how tasks scale, if there is one."""
    return () if note is None else (f"Rests on {ASSUMED}: {note}.",)


def note_of_few(stretches: int) -> str | None:
    """Why a forecast has no 80 % interval; None if there are stretches enough for one."""
    if stretches >= FOR_INTERVAL:
        return None
    return (
        f"{stretches} stretches are too few for the 80 %, which take {FOR_INTERVAL} or more: shown are the earliest "
        "completion and the latest."
    )


def forecast_page(found: Mapping[str, Any], command: str) -> bytes:
    """Make the page of a forecast, which `bftrainer.campaigns.forecast.Forecast.to_dict` told."""
    start, times_s = found["start"], [math.inf if each is None else each for each in found["completion_s"]]
    number, quantiles = len(times_s), found["completion_quantiles_s"]
    source = "generated logs like the given one" if found["generated"] else "stretches of the log"
    low, high = (100 * each for each in found["probability_ci95"])
    deadline, share = when_text(start, found["deadline_s"]), f"{100 * found['probability']:.0f} %"
    verdict = f"By {deadline}: {share} ({low:.0f} to {high:.0f} %) of {number} {source} have all tasks done."
    if sum(map(math.isinf, times_s)) == number:
        verdict += f" None of them has within {format_value(found['horizon_s'], 's')}."
    spread = [when_text(start, each) for each in found["interval80_s"]]
    known = _quantiles_within(quantiles, number)
    levels = [[f"{level[1:]} %", when_text(start, time_s)] for level, time_s in known.items()]
    label = _label_spread(number)
    page = Page(
        title="When will all tasks be done?",
        subtitle=f"{number} {source}, each {format_value(found['horizon_s'], 's')} long",
        verdict=verdict,
        cards=(
            Card("all done by then", share, f"{low:.0f} to {high:.0f} % (95 %): {deadline}."),
            Card("median", when_text(start, quantiles["p50"]), "As probably done before as after."),
            Card(label, spread[0], f"until {spread[1]}."),
            Card("tasks done by then", f"{100 * found['tasks_done_share_mean']:.0f} %", "Mean over all of them."),
        ),
        figures=(
            Picture("fan", "When all tasks are done", _FAN.format(label), partial(_draw_fan, found, times_s), 3.2),
        ),
        tables=(
            PageTable("By when", ("by", "probability", "95 %"), _deadline_rows(found, times_s)),
            PageTable("How sure", ("probability", "done by"), levels),
        ),
        notes=_forecast_notes(found, times_s),
        command=command,
    )
    return page_bytes(page)


def _label_spread(number: int) -> str:
    """What the widest span of completions is called."""
    return "80 % of completions" if number >= FOR_INTERVAL else "earliest to latest"


def _quantiles_within(quantiles: Mapping[str, float | None], number: int) -> dict[str, float | None]:
    """Quantiles that lie between the earliest of so many completions and the latest."""
    least = 100 / (number + 1)
    return {level: time_s for level, time_s in quantiles.items() if least <= float(level[1:]) <= 100 - least}


def _forecast_notes(found: Mapping[str, Any], times_s: Sequence[float]) -> tuple[str, ...]:
    notes = [*scaling_notes(found["assumed_scaling"]), *filter(None, [note_of_few(len(times_s))])]
    if found["overlap"] > 1.5:
        notes.append(
            f"Stretches overlap, {found['overlap']:.1f} cover each moment: they tell less than as many independent "
            "ones, and the intervals are too narrow."
        )
    if found["start"] is None:
        notes.append("Times count from the start of the tasks: no date of it was given.")
    if never := sum(map(math.isinf, times_s)):
        horizon = when_text(found["start"], found["horizon_s"])
        notes.append(f"{never} of {len(times_s)} are not done by the horizon, {horizon}.")
    return tuple(notes)


def when_text(start: str | None, time_s: float | None) -> str:
    """A date with its weekday, or a time after the start; None lies beyond the horizon."""
    if time_s is None:
        return "beyond the horizon"
    if start is None:
        return f"{format_value(time_s, 's')} after the start"
    return f"{datetime.fromisoformat(start[:19]) + timedelta(seconds=round(time_s)):%a %Y-%m-%d %H:%M} UTC"


def _deadline_rows(found: Mapping[str, Any], times_s: Sequence[float]) -> list[list[str]]:
    """Rows of times before and after the one asked for: the probability that all is done, and its interval."""
    step_s = next((step for step in _STEPS_S if found["horizon_s"] / step <= _STEPS), 30 * _DAY_S)
    first, rows = 1 - math.ceil(found["deadline_s"] / step_s), []
    for place in range(first, _STEPS + 1):
        time_s = found["deadline_s"] + place * step_s
        if 0 < time_s <= found["horizon_s"]:
            share = proportion(sum(each <= time_s for each in times_s), len(times_s))
            ends = f"{100 * share.low:.0f} to {100 * share.high:.0f} %"
            rows.append([when_text(found["start"], time_s), f"{100 * share.share:.0f} %", ends])
    return rows


def _draw_fan(found: Mapping[str, Any], times_s: Sequence[float], ax: Axes) -> None:
    """Share of the stretches in which all is done, over time, and in which span most are."""
    ink, start, horizon_s = palette(), found["start"], found["horizon_s"]

    def along(time_s: Any) -> Any:
        """Dates where the start is known, else hours."""
        return np.asarray(time_s) / _HOUR_S if start is None else date_of(start, time_s)

    ordered = np.sort(times_s)
    ends_s = np.unique(ordered[ordered < horizon_s])
    steps_s = np.concatenate(([0.0], ends_s[:: 1 + ends_s.size // _MOST_STEPS], [horizon_s]))
    known = [proportion(int(done), len(times_s)) for done in np.searchsorted(ordered, steps_s, side="right")]
    quantiles = found["completion_quantiles_s"]
    spans = ((("p10", "p90"), 0.15, _label_spread(len(times_s))), (("p25", "p75"), 0.3, "50 %"))
    for (low, high), alpha, label in spans:
        if quantiles[low] is not None:
            ends = [horizon_s if quantiles[name] is None else quantiles[name] for name in (low, high)]
            ax.axvspan(*along(ends), facecolor=ink["sky"], alpha=alpha, linewidth=0, label=label)
    if quantiles["p50"] is not None:
        ax.axvline(along(quantiles["p50"]), color=ink["blue"], linewidth=1.6, linestyle=":", label="median")
    x, band = along(steps_s), [[100 * each.low for each in known], [100 * each.high for each in known]]
    ax.fill_between(x, *band, step="post", facecolor=ink["green"], alpha=0.25, linewidth=0)
    ax.step(x, [100 * each.share for each in known], where="post", color=ink["green"], linewidth=1.6, label="all done")
    asked = f"by {when_text(start, found['deadline_s'])}: {100 * found['probability']:.0f} %"
    ax.axvline(float(along(found["deadline_s"])), color=ink["ink"], linewidth=1, linestyle="--", label=asked)
    last_s = max(found["deadline_s"], *(min(each, horizon_s) for each in times_s))
    ax.set(ylabel="all done (%)", ylim=(0, 105), xlim=along([0.0, 1.05 * last_s]), yticks=range(0, 101, 25))
    if start is not None:
        with_dates(ax)
        return
    ax.set(xlabel="hours after the start")
    below_axes(ax, 0.42)


def advice_page(found: Mapping[str, Any], command: str) -> bytes:
    """Make the page of advice, which `bftrainer.campaigns.advice.Advice.to_dict` told."""
    term, advised, given = GLOSSARY[found["metric"]], found["advised"], found["given"]
    gains = {part: "from 0" if gain is None else f"{100 * gain:+.2f} %" for part, gain in found["gain"].items()}
    cards = []
    for key, name in zip(_SEARCHED, _NAMES, strict=True):
        is_same = advised[key] == given[key]
        text = "Advised, as given." if is_same else f"Advised; given: {short_label(given[key])}."
        cards.append(Card(name, short_label(advised[key]), text))
    cards.append(Card("gain on the training part", gains["training"], f"Of {term.label}, best against given settings."))
    cards.append(Card("gain on the rest", gains["held_out"], "Of the same settings, which the search has not seen."))
    cards.append(Card("settings tried", f"{len(found['tried']):,}", f"In {found['trials']:,} trials."))
    reading = (
        f"{term.label} on the training part against -Tfwd; larger marks: more tasks at once (-maxJ); other marks: "
    )
    reading += "other objectives."
    headings = ("which", *_NAMES, f"{term.label} on the training part", "on the rest")
    note = "Only the given settings and the best ones are replayed on the rest, so that it stays unseen."
    page = Page(
        title="Which settings suit this machine?",
        subtitle=f"searched on the first {format_value(found['split_s'], 's')}, proven on the rest",
        verdict=found["sentence"],
        cards=tuple(cards),
        figures=(Picture("tried", "What was tried", reading, partial(_draw_tried, found), 3.0),),
        tables=(PageTable("All that was tried", headings, _list_tried(found), note),),
        notes=scaling_notes(found["assumed_scaling"]),
        command=command,
    )
    return page_bytes(page)


def _list_tried(found: Mapping[str, Any]) -> list[list[str]]:
    """A row for each setting, the best first, those without a value last."""
    term, rows = GLOSSARY[found["metric"]], []

    def rank(each: Mapping[str, Any]) -> float:
        """Order of a setting."""
        return math.inf if each["training"] is None else -term.better * float(each["training"])

    for each in sorted(found["tried"], key=rank)[:MOST_ROWS]:
        which = [name for name in ("given", "best") if all(each[key] == found[name][key] for key in _SEARCHED)]
        settings = (f"{each['forward_time_s']:g}", str(each["max_tasks"]), each["objective"])
        values = (each["training"], found[which[0]]["held_out"] if which else None)
        rows.append([", ".join(which), *settings, *(format_value(value, term.unit) for value in values)])
    return rows


def _draw_tried(found: Mapping[str, Any], ax: Axes) -> None:
    """The metric on the training part, of all settings that were tried."""
    ink, term = palette(), GLOSSARY[found["metric"]]
    known = [each for each in found["tried"] if each["training"] is not None]
    size, label = scaled_label([each["training"] for each in known], term)
    for number, name in enumerate(dict.fromkeys(each["objective"] for each in known)):
        own = [each for each in known if each["objective"] == name]
        color, mark = _MARKS[number % len(_MARKS)]
        sizes = [12 + 24 * math.log2(each["max_tasks"]) for each in own]
        places = [each["forward_time_s"] for each in own], [each["training"] / size for each in own]
        look = {"marker": mark, "facecolors": "none", "edgecolors": ink[color]}
        ax.scatter(*places, s=sizes, label=plain(short_label(name)), **look)
    for name, (color, mark) in {"given": ("orange", "D"), "best": ("green", "*")}.items():
        at = found[name]["forward_time_s"], found[name]["training"] / size
        ax.scatter(*at, s=70 if name == "best" else 26, marker=mark, color=ink[color], label=name, zorder=3)
    ax.set(xscale="log", xlabel=_NAMES[0], ylabel=label)
    ax.minorticks_off()
    wanted = [found[name]["forward_time_s"] for name in ("best", "given")]
    ticks = _spaced([*wanted, *sorted(each["forward_time_s"] for each in known)])
    ax.set_xticks(ticks, [f"{value:g}" for value in ticks])
    below_axes(ax, 0.42)


def _spaced(values: Sequence[float]) -> list[float]:
    """Of positive values, those that have room on a logarithmic axis; the first ones go before the others."""
    least, kept = (max(values) / min(values)) ** (1 / _MOST_TICKS), list[float]()
    for value in values:
        if all(value >= each * least or value <= each / least for each in kept if value != each) and value not in kept:
            kept.append(value)
    return sorted(kept)
