"""The page of a sweep: the best settings, and by how much; made of the rows of its table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from bftrainer.errors import SettingsError, escaped
from bftrainer.report.drawing import palette, plain
from bftrainer.report.glossary import GLOSSARY, assumption_notes, check_metric, format_value, scale_axis
from bftrainer.report.intervals import Estimate, estimate
from bftrainer.report.page import MOST_ROWS, Card, Page, PageTable, Picture, page_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]
_REPEATED = {"window": "windows", "seed": "seeds"}
"""Columns that vary by chance and not by choice, and names of their values."""
_FIRST = ("efficiency", "ledger.useful", "work_done", "tasks_completed", "occupancy")
_OF_DONE = ("turnaround_mean_s", "makespan_s", "wait_mean_s")
_SECOND = (*_OF_DONE, "preemptions", "rescales", "energy_j")
_MOST_CELLS = 4000
"""Larger maps are left out: nobody could read them."""
_MOST_NUMBERS, _MOST_SHOWN = 14, 24


def check_metrics(names: Sequence[str]) -> None:
    """Refuse more than two metrics, and those that have no better or worse or depend on the clock: `SettingsError`."""
    for name in names:
        check_metric(name)
    if len(names) > 2 or len({*names}) < len(names):
        raise SettingsError(f"Expected one metric or two different ones, got {', '.join(names)}.")


def short_label(value: Any, most: int = _MOST_SHOWN) -> str:
    """Text of a setting's value with room beside a picture: the end of a path, the beginning of all else."""
    text = "-" if value is None else f"{value:g}" if isinstance(value, float) else escaped(str(value))
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

    def mean(self, key: str) -> float | None:
        """Mean of a metric without its interval."""
        return self.estimates[key].mean if key in self.estimates else None

    def interval(self, key: str) -> str:
        """The 95 % interval of a metric; empty where one point says nothing about it."""
        result, unit = self.estimates.get(key), GLOSSARY[key].unit
        if result is None or result.half_width is None:
            return ""
        return " to ".join(format_value(result.mean + sign * result.half_width, unit) for sign in (-1, 1))

    def text(self, key: str, ending: str = "") -> str:
        """Mean of a metric, and in brackets its interval."""
        mean, interval = format_value(self.mean(key), GLOSSARY[key].unit), self.interval(key)
        return f"{mean} ({interval}{ending})" if interval else mean


class Sweep:
    """Settings of a sweep's rows, ordered and judged by two metrics.

    Parameters
    ----------
    rows : sequence of mapping
        Rows of its table.
    varied : sequence of str
        Columns of the options that vary.
    metrics : sequence of str
        Metric to judge settings by, and one to show beside it; by default ones that differ between points.

    Attributes
    ----------
    done : list of Setting
        Settings that have the first metric, the best first.
    """

    def __init__(self, rows: Sequence[Row], varied: Sequence[str], metrics: Sequence[str]) -> None:
        self.rows = rows
        differing = [name for name in varied if len({str(row.get(name)) for row in rows}) > 1]
        self.factors = [name for name in differing if name not in _REPEATED]
        self.over = " and ".join(text for name, text in _REPEATED.items() if name in differing) or "seeds"
        self.first = self._choose(metrics[:1], _FIRST)
        self.second = self._choose(metrics[1:], [name for name in _SECOND if name != self.first])
        groups: dict[tuple[Any, ...], dict[str, Row]] = {}
        for row in rows:  # equal points have one run
            groups.setdefault(tuple(row.get(name) for name in self.factors), {}).setdefault(row["run"], row)
        self.settings = [self._make_setting(values, tuple(runs.values())) for values, runs in groups.items()]
        done = [one for one in self.settings if self.first in one.estimates]
        self.done = sorted(done, key=lambda one: -GLOSSARY[self.first].better * one.estimates[self.first].mean)
        self.is_repeated = any(len(one.rows) > 1 for one in self.done)

    def _choose(self, asked: Sequence[str], usual: Sequence[str]) -> str:
        """The metric asked for, else the first usual one that differs between points, of those that all have."""
        is_cut = any((row.get("tasks_completed") or 0) < (row.get("tasks_total") or 0) for row in self.rows)

        def order(name: str) -> tuple[int, int]:
            """Times of the few completed tasks say little of the others, as do means without some points."""
            values = [row.get(name) for row in self.rows]
            lacking = len(values) if is_cut and name in _OF_DONE else values.count(None)
            return -min(len({*values} - {None}), 2), lacking

        return [*asked, *sorted(usual, key=order)][0]

    def _make_setting(self, values: tuple[Any, ...], rows: tuple[Row, ...]) -> Setting:
        """A setting; a mean without a point that failed would be of other seeds."""
        keys = (self.first, self.second)
        samples = {key: [row[key] for row in rows if row.get(key) is not None] for key in keys}
        estimates = {key: estimate(sample) for key, sample in samples.items() if len(sample) == len(rows)}
        return Setting(values, rows, estimates)

    def levels(self, factor: int) -> list[Any]:
        """Values of a factor: numbers in their order, all else as it comes; those left to the sweep's base last."""
        values = list(dict.fromkeys(one.values[factor] for one in self.settings))
        levels = [value for value in values if value is not None]
        if all(isinstance(value, int | float) for value in levels):
            levels.sort()
        return levels + [None] * (None in values)

    def headline(self) -> str:
        """The best settings and their metric, or why there are none."""
        failed = sum(row["error"] is not None for row in self.rows)
        ending = f" {failed:,} of {len(self.rows):,} points failed." if failed else ""
        if not self.done:
            return f"No point has a value of {label_of(self.first)}.{ending}"
        best = self.done[0]
        number = "{} runs of different" if " and " in self.over else "{}"
        over = f", 95 % over {number.format(len(best.rows))} {self.over}"
        pairs = [pair for pair in zip(self.factors, best.values, strict=True) if pair[1] is not None]
        chosen = ", ".join(f"{name} {short_label(value)}" for name, value in pairs) or "what [base] says"
        text = f"Best {label_of(self.first)}: {best.text(self.first, over)}{f', with {chosen}' * bool(self.factors)}."
        middle = best.estimates[self.first]
        half = middle.half_width or 0.0
        near = sum(abs(one.estimates[self.first].mean - middle.mean) <= half for one in self.done[1:])
        where = "within that interval" if half else "as good"
        return text + (f" Other settings {where}: {near:,}." if near else "") + ending


def label_of(key: str) -> str:
    """Name of a metric; parts of the ledger are shares."""
    return GLOSSARY[key].label + " share" * key.startswith("ledger.")


def sweep_page(
    name: str, rows: Sequence[Row], varied: Sequence[str], command: str, metrics: Sequence[str] = ()
) -> bytes:
    """Make the page of a sweep, whose file is `command`; the other parameters are those of `Sweep`."""
    sweep = Sweep(rows, varied, metrics)
    picture = sweep_map(sweep)
    failed = [row for row in rows if row["error"] is not None][:MOST_ROWS]
    failures = [[str(row["point"]), *(_cell(row.get(name)) for name in varied), row["error"]] for row in failed]
    page = Page(
        title=f"Sweep {name}",
        subtitle=f"{len(rows):,} points, {len(sweep.settings):,} settings of {', '.join(sweep.factors) or 'one kind'}",
        verdict=sweep.headline(),
        cards=tuple(_cards(sweep)),
        figures=() if picture is None else (picture,),
        tables=(_ranking(sweep), PageTable("Points that failed", ("point", *varied, "why"), failures)),
        notes=tuple(_notes(sweep, has_map=picture is not None or not sweep.done)),
        command=command,
    )
    return page_bytes(page)


def _cards(sweep: Sweep) -> Iterator[Card]:
    """Metrics and settings of the best point."""
    for best in sweep.done[:1]:
        for key in (sweep.first, sweep.second):
            interval = f"{best.interval(key)}, 95 % over {sweep.over}. " if best.interval(key) else ""
            value = format_value(best.mean(key), GLOSSARY[key].unit)
            yield Card(label_of(key), value, interval + GLOSSARY[key].meaning)
        for factor, value in list(zip(sweep.factors, best.values, strict=True))[:4]:
            yield Card(factor, short_label(value), "Of the best settings.")


def _notes(sweep: Sweep, *, has_map: bool) -> Iterator[str]:
    for note in dict.fromkeys(row.get("assumed_scaling") for row in sweep.rows):
        yield from assumption_notes(note)
    windows = {frozenset(str(row.get("window")) for row in one.rows) for one in sweep.settings}
    if not sweep.is_repeated:
        yield "One seed of each setting: nothing tells by how much figures would differ by chance."
    elif "windows" in sweep.over and len(windows) > 1:
        yield "Not all settings have the same windows: what differs between windows differs between means too."
    elif "windows" in sweep.over:
        yield "How windows differ is part of the intervals; --paired compares settings window by window."
    if len(sweep.factors) > 1 and not has_map:
        yield "There is no map of the settings: they have too many combinations."


def _ranking(sweep: Sweep) -> PageTable:
    """Settings, the best first."""
    rows = [[*map(_cell, one.values), one.text(sweep.first), one.text(sweep.second)] for one in sweep.done[:MOST_ROWS]]
    note = f"In brackets: 95 % intervals over {sweep.over}. " * sweep.is_repeated
    note += f"The best {MOST_ROWS} of {len(sweep.done):,}; all are in sweep.parquet." * (len(sweep.done) > MOST_ROWS)
    headings = (*sweep.factors, label_of(sweep.first), label_of(sweep.second))
    return PageTable("Settings, the best first", headings, rows, note)


def sweep_map(sweep: Sweep) -> Picture | None:
    """A map of the first metric over the two factors with most values; None for fewer, or for more than can be read."""
    factors = sorted(range(len(sweep.factors)), key=lambda number: -len(sweep.levels(number)))
    sizes = [len(sweep.levels(number)) for number in factors]
    if not sweep.done or len(sizes) < 2 or sizes[0] * sizes[1] > _MOST_CELLS:
        return None
    size, label = scale_axis([one.mean(sweep.first) for one in sweep.done], GLOSSARY[sweep.first])
    across, down, *others = (sweep.factors[number] for number in factors)
    reading = f"Mean {label} with each {across} (across) and {down} (down); darker is better; hatched: a point failed."
    reading += f" Means over {', '.join(others)}." if others else ""
    draw = partial(_draw_map, sweep, factors, size)
    return Picture("map", f"Where {label_of(sweep.first)} is best", reading, draw, min(10.0, 1.1 + 0.3 * sizes[1]))


def _draw_map(sweep: Sweep, factors: Sequence[int], size: float, ax: Axes) -> None:
    """Cells of two factors: means as strength of colour and, where there is room, as numbers."""
    from matplotlib.patches import Rectangle

    ink, (x, y, *_) = palette(), factors
    columns, rows = sweep.levels(x), sweep.levels(y)
    best, worst = (one.estimates[sweep.first].mean for one in (sweep.done[0], sweep.done[-1]))
    cells: dict[tuple[int, int], list[Setting]] = {}
    for one in sweep.settings:
        cells.setdefault((columns.index(one.values[x]), rows.index(one.values[y])), []).append(one)
    look: dict[str, Any] = {"facecolor": "none", "edgecolor": ink["orange"], "hatch": "////", "lw": 0.6}
    for corner, settings in cells.items():
        if any(row["error"] is not None for one in settings for row in one.rows):
            ax.add_patch(Rectangle(corner, 0.96, 0.94, **look))
        values = [value for one in settings if (value := one.mean(sweep.first)) is not None]
        if not values:
            continue
        mean = math.fsum(values) / len(values)
        share = 0.5 if best == worst else (mean - worst) / (best - worst)
        ax.add_patch(Rectangle(corner, 0.96, 0.94, facecolor=ink["blue"], alpha=0.06 + 0.54 * share, linewidth=0))
        if len(columns) <= _MOST_NUMBERS:
            text = f"{mean / size:{'.1f' if size == 0.01 else '.4g'}}"
            ax.text(corner[0] + 0.48, corner[1] + 0.47, text, ha="center", va="center", fontsize=7)
    for axis, levels, most in ((ax.xaxis, columns, 14), (ax.yaxis, rows, _MOST_SHOWN)):
        places = range(0, len(levels), 1 + len(levels) // 13)
        axis.set_ticks([place + 0.5 for place in places], [plain(short_label(levels[place], most)) for place in places])
    names = {"xlabel": plain(sweep.factors[x]), "ylabel": plain(sweep.factors[y])}
    ax.set(xlim=(0, len(columns)), ylim=(len(rows), 0), **names)
