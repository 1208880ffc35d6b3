"""Pages of forecasts and advice, made of their JSON alone, without scripts; and what all pages of many runs share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer._version import __version__
from bftrainer.errors import escaped
from bftrainer.report.brief import Brief, Card
from bftrainer.report.drawing import below_axes, palette, plain
from bftrainer.report.glossary import ASSUMED, GLOSSARY, format_value, scaled_label
from bftrainer.report.intervals import proportion
from bftrainer.report.page import rendered_page
from bftrainer.report.pictures import Picture, date_of, plainly, with_dates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 500
_HOUR_S, _DAY_S = 3600.0, 86_400.0
_MOST_SHOWN, _MOST_STEPS, _MOST_MARKS = 24, 500, 1500
_STEPS_S = (60.0, 300.0, 900.0, 3600.0, 3 * 3600.0, 6 * 3600.0, 12 * 3600.0, _DAY_S, 2 * _DAY_S, 7 * _DAY_S)
_MARKS = (("blue", "o"), ("purple", "s"), ("sky", "^"), ("red", "v"), ("gray", "P"))


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table of a page: title, headings, rows of cells, and a note below it."""

    title: str
    headings: tuple[str, ...]
    rows: list[list[str]]
    note: str = ""


def campaign_page(
    brief: Brief, tables: Sequence[PageTable], made: str, running: tuple[int, int] | None = None
) -> bytes:
    """Make a page of many runs: a brief, tables, and what it was made of.

    Parameters
    ----------
    brief : Brief
    tables : sequence of PageTable
    made : str
        A command, or a file of several lines.
    running : tuple of int, optional
        Points that are done, and all; the page loads itself anew then.
    """
    lines = "\n".join(escape(escaped(line)) for line in made.split("\n"))
    text = rendered_page("campaign.html", brief=brief, tables=tables, made=lines, running=running, version=__version__)
    return text.encode(errors="backslashreplace")


def short_label(value: Any, most: int = _MOST_SHOWN) -> str:
    """Text of a setting's value with room beside a picture: the end of a path, the beginning of all else."""
    text = "-" if value is None else f"{value:g}" if isinstance(value, float) else escaped(str(value))
    if len(text) <= most:
        return text
    return f"…{text[1 - most :]}" if "/" in text else f"{text[: most - 1]}…"


def assumed_scaling(note: str | None) -> tuple[str, ...]:
    """Caveat of an assumption about how tasks scale, if there is one."""
    return () if note is None else (f"Rests on {ASSUMED}: {note}.",)


def forecast_page(found: Mapping[str, Any], command: str) -> bytes:
    """Make the page of a forecast, which `bftrainer.campaigns.forecast.Forecast.to_dict` told."""
    start, times_s = found["start"], [math.inf if each is None else each for each in found["completion_s"]]
    number = len(times_s)
    low, high = (100 * each for each in found["probability_ci95"])
    deadline = when_text(start, found["deadline_s"])
    source = "generated logs like the given one" if found["generated"] else "stretches of the log"
    never = sum(map(math.isinf, times_s))
    headline = f"By {deadline}: {100 * found['probability']:.0f} % ({low:.0f} to {high:.0f} %)"
    headline += f" of {number} {source} have all tasks done."
    if never == number:
        headline += f" None of them has within {format_value(found['horizon_s'], 's')}."
    caveats = [*assumed_scaling(found["assumed_scaling"])]
    if found["overlap"] > 1.5:
        caveats.append(
            f"Stretches overlap, {found['overlap']:.1f} cover each moment: they tell less than as many independent "
            "ones, and the intervals are too narrow."
        )
    if start is None:
        caveats.append("Times count from the start of the tasks: no date of it was given.")
    if never:
        caveats.append(f"{never} of {number} are not done by the horizon, {when_text(start, found['horizon_s'])}.")
    quantiles = found["completion_quantiles_s"]
    spread = [when_text(start, each) for each in found["interval80_s"]]
    cards = (
        Card(
            "all done by then", f"{100 * found['probability']:.0f} %", f"{low:.0f} to {high:.0f} % (95 %): {deadline}."
        ),
        Card("median", when_text(start, quantiles["p50"]), "As probably done before as after."),
        Card("80 % of completions", spread[0], f"until {spread[1]}."),
        Card("tasks done by then", f"{100 * found['tasks_done_share_mean']:.0f} %", "Mean over all of them."),
    )
    pictures = (
        Picture("fan", "When all tasks are done", _FAN, partial(_draw_fan, found, times_s), 3.2),
        Picture(
            "stretches",
            "Each of them",
            _EACH + _SOME * (number >= _MOST_MARKS),
            partial(_draw_stretches, found, times_s),
            2.2,
        ),
    )
    step_s = next((step for step in _STEPS_S if found["horizon_s"] / step <= 12), 30 * _DAY_S)
    first = -math.ceil(found["deadline_s"] / step_s) + 1
    asked_s = [found["deadline_s"] + place * step_s for place in range(first, 13)]
    rows = [_by(start, each, times_s) for each in asked_s if 0 < each <= found["horizon_s"]]
    tables = [
        PageTable("By when", ("by", "probability", "95 %"), rows),
        PageTable(
            "How sure",
            ("probability", "done by"),
            [[f"{level[1:]} %", when_text(start, time_s)] for level, time_s in quantiles.items()],
        ),
    ]
    title = "When will all tasks be done?"
    subtitle = f"{number} {source}, each {format_value(found['horizon_s'], 's')} long"
    brief = Brief("forecast", title, subtitle, headline, cards, tuple(caveats), {}, pictures, command)
    return campaign_page(brief, tables, command)


_FAN = (
    "The line: in how many of them all tasks are done by then, with its 95 % interval around it. Shaded from the left: "
    "80 % of completions, the middle 50 %, and their median. Dashed: the date asked for."
)
_EACH = (
    "When all tasks are done in each, in the order of their place in the log, or of their seed; triangles: not done."
)
_SOME = " Some of them: all would hide each other."


def when_text(start: str | None, time_s: float | None) -> str:
    """A date with its weekday, or a time after the start; None lies beyond the horizon."""
    if time_s is None:
        return "beyond the horizon"
    if start is None:
        return f"{format_value(time_s, 's')} after the start"
    return f"{datetime.fromisoformat(start[:19]) + timedelta(seconds=round(time_s)):%a %Y-%m-%d %H:%M} UTC"


def _by(start: str | None, time_s: float, times_s: Sequence[float]) -> list[str]:
    """Row: a time, the probability that all is done by then, and its interval."""
    share = proportion(sum(each <= time_s for each in times_s), len(times_s))
    return [
        when_text(start, time_s),
        f"{100 * share.share:.0f} %",
        f"{100 * share.low:.0f} to {100 * share.high:.0f} %",
    ]


def _along(start: str | None, time_s: Any) -> Any:
    """Places along an axis: dates where the start is known, else hours."""
    return np.asarray(time_s) / _HOUR_S if start is None else date_of(start, time_s)


def _shown(found: Mapping[str, Any], times_s: Sequence[float]) -> tuple[float, float]:
    """Ends of an axis of times: until the date asked for and the last completion, or the horizon."""
    last_s = max(found["deadline_s"], *(min(each, found["horizon_s"]) for each in times_s))
    return tuple(_along(found["start"], [0.0, 1.05 * last_s]).tolist())


def _draw_fan(found: Mapping[str, Any], times_s: Sequence[float], ax: Axes) -> None:
    """Share of the stretches in which all is done, over time, and in which span most are."""
    ink, start, horizon_s = palette(), found["start"], found["horizon_s"]
    ordered = np.sort(times_s)
    ends_s = np.unique(ordered[ordered < horizon_s])
    steps_s = np.concatenate(([0.0], ends_s[:: 1 + ends_s.size // _MOST_STEPS], [horizon_s]))
    known = [proportion(int(done), len(times_s)) for done in np.searchsorted(ordered, steps_s, side="right")]
    x = _along(start, steps_s)
    quantiles = found["completion_quantiles_s"]
    for (low, high), alpha, label in ((("p10", "p90"), 0.15, "80 % of completions"), (("p25", "p75"), 0.3, "50 %")):
        if quantiles[low] is not None:
            ends = [horizon_s if quantiles[name] is None else quantiles[name] for name in (low, high)]
            ax.axvspan(*_along(start, ends), facecolor=ink["sky"], alpha=alpha, linewidth=0, label=label)
    if quantiles["p50"] is not None:
        ax.axvline(_along(start, quantiles["p50"]), color=ink["blue"], linewidth=1.6, linestyle=":", label="median")
    band = [[100 * each.low for each in known], [100 * each.high for each in known]]
    ax.fill_between(x, *band, step="post", facecolor=ink["green"], alpha=0.25, linewidth=0)
    ax.step(x, [100 * each.share for each in known], where="post", color=ink["green"], linewidth=1.6, label="all done")
    at = float(_along(start, found["deadline_s"]))
    ax.axvline(at, color=ink["ink"], linewidth=1, linestyle="--")
    late = at > sum(_shown(found, times_s)) / 2
    ax.annotate(
        f"by {when_text(start, found['deadline_s'])}: {100 * found['probability']:.0f} %",
        (at, 100),
        xytext=(-4 if late else 4, 4),
        textcoords="offset points",
        ha="right" if late else "left",
        fontsize=8,
        color=ink["ink"],
    )
    ax.set(ylabel="all done (%)", ylim=(0, 114), xlim=_shown(found, times_s), yticks=range(0, 101, 25))
    _label_times(start, ax)


def _draw_stretches(found: Mapping[str, Any], times_s: Sequence[float], ax: Axes) -> None:
    """Completion in each stretch, from the first on."""
    ink, start = palette(), found["start"]
    places = np.arange(1, len(times_s) + 1, 1 + len(times_s) // _MOST_MARKS)
    shown_s = np.asarray(times_s)[places - 1]
    done = np.isfinite(shown_s)
    x = _along(start, np.where(done, shown_s, found["horizon_s"]))
    size = max(4.0, min(18.0, 1500 / places.size))
    if done.any():
        ax.scatter(x[done], places[done], s=size, color=ink["blue"], label="all done")
    if not done.all():
        open_ = {"facecolors": "none", "edgecolors": ink["orange"]}
        ax.scatter(x[~done], places[~done], s=size + 8, marker=">", label="not by the horizon", **open_)
    ax.axvline(_along(start, found["deadline_s"]), color=ink["ink"], linewidth=1, linestyle="--", label="asked for")
    ax.set(ylabel="number", ylim=(0, len(times_s) + 1), xlim=_shown(found, times_s))
    _label_times(start, ax)


def _label_times(start: str | None, ax: Axes) -> None:
    """Write dates along axes, or hours after a start that is not known."""
    if start is not None:
        with_dates(ax)
        return
    ax.set(xlabel="hours after the start")
    plainly(ax)
    below_axes(ax, 0.42)


def advice_page(found: Mapping[str, Any], command: str) -> bytes:
    """Make the page of advice, which `bftrainer.campaigns.advice.Advice.to_dict` told."""
    term, advised = GLOSSARY[found["metric"]], found["advised"]
    gains = {part: "from 0" if gain is None else f"{100 * gain:+.2f} %" for part, gain in found["gain"].items()}
    cards = [
        Card(
            name,
            short_label(advised[key]),
            "Advised, as given."
            if advised[key] == found["given"][key]
            else f"Advised; given: {short_label(found['given'][key])}.",
        )
        for key, name in (("forward_time_s", "-Tfwd"), ("max_tasks", "-maxJ"), ("objective", "objective"))
    ]
    cards.append(Card("gain on the training part", gains["training"], f"Of {term.label}, best against given settings."))
    cards.append(Card("gain on the rest", gains["held_out"], "Of the same settings, which the search has not seen."))
    cards.append(Card("settings tried", f"{len(found['tried']):,}", f"In {found['trials']:,} trials."))
    tried = sorted(found["tried"], key=lambda each: _rank(each["training"], term.better))
    rows = []
    for each in tried[:MOST_ROWS]:
        said = [name for name in ("given", "best") if all(each[key] == found[name][key] for key in _SEARCHED)]
        settings = (f"{each['forward_time_s']:g}", str(each["max_tasks"]), each["objective"])
        values = (each["training"], found[said[0]]["held_out"] if said else None)
        rows.append([", ".join(said), *settings, *(format_value(value, term.unit) for value in values)])
    headings = ("which", "-Tfwd", "-maxJ", "objective", f"{term.label} on the training part", "on the rest")
    note = "Only the given settings and the best ones are replayed on the rest, so that it stays unseen."
    pictures = (
        Picture(
            "tried",
            "What was tried",
            f"{term.label} on the training part against -Tfwd; larger marks: more tasks at once (-maxJ); other marks: "
            "other objectives.",
            partial(_draw_tried, found),
            3.0,
        ),
        Picture(
            "parts",
            "What changed, and what it gains",
            "From the given settings (hollow) to the best ones (star), on the part that was searched and on the rest.",
            partial(_draw_parts, found),
            1.7,
        ),
    )
    title = "Which settings suit this machine?"
    subtitle = f"searched on the first {format_value(found['split_s'], 's')}, proven on the rest"
    caveats = assumed_scaling(found["assumed_scaling"])
    brief = Brief("advice", title, subtitle, found["sentence"], tuple(cards), caveats, {}, pictures, command)
    return campaign_page(brief, [PageTable("All that was tried", headings, rows, note)], command)


_SEARCHED = ("forward_time_s", "max_tasks", "objective")


def _rank(value: float | None, sign: int) -> float:
    """Order of a figure, the best first; without a value last."""
    return math.inf if value is None else -sign * value


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
    ax.set(xscale="log", xlabel="-Tfwd (s)", ylabel=label)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.minorticks_off()
    plainly(ax)
    below_axes(ax, 0.42)


def _draw_parts(found: Mapping[str, Any], ax: Axes) -> None:
    """The metric of the given and the best settings on both parts, as shares of the given ones' where that can be."""
    ink, unit = palette(), GLOSSARY[found["metric"]].unit
    is_share = all(found["given"][part] for part in ("training", "held_out"))
    for place, part in enumerate(("training", "held_out")):
        given, best = found["given"][part], found["best"][part]
        ends = [100 * each / abs(given) if is_share else each for each in (given, best)]
        ax.plot(ends, [place, place], color=ink["gray"], linewidth=1.5, zorder=1)
        ax.scatter(ends[:1], [place], s=60, facecolors=ink["page"], edgecolors=ink["orange"], marker="D", zorder=2)
        ax.scatter(ends[1:], [place], s=90, color=ink["green"], marker="*", zorder=3)
        text = f"{format_value(given, unit)} to {format_value(best, unit)}"
        ax.text(1.01, place, text, transform=ax.get_yaxis_transform(), va="center", fontsize=8, color=ink["ink"])
    ax.set_yticks((0, 1), ("training part", "the rest"))
    ax.set(ylim=(1.6, -0.6), xlabel=f"% of the given settings' {GLOSSARY[found['metric']].label}" if is_share else "")
    ax.margins(x=0.1)
    plainly(ax)
