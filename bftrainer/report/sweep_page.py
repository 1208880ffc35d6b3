"""The page of a sweep: which settings are best, by how much, and at what price; made of the rows of its table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer.errors import SettingsError
from bftrainer.report.campaign_pages import MOST_ROWS, scaling_notes, short_label
from bftrainer.report.drawing import below_axes, palette, plain
from bftrainer.report.glossary import GLOSSARY, Term, check_metric, format_value, scaled_label
from bftrainer.report.intervals import Estimate, estimate
from bftrainer.report.page import Card, Page, PageTable, Picture, page_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_REPEATED = {"window": "windows", "seed": "seeds"}
"""What varies by chance and not by choice: columns, and what their values are called."""
_FIRST = ("efficiency", "ledger.useful", "work_done", "tasks_completed", "occupancy")
_OF_DONE = ("turnaround_mean_s", "makespan_s", "wait_mean_s")
_SECOND = (*_OF_DONE, "preemptions", "rescales", "energy_j")
_MOST_CELLS, _MOST_LEVELS = 4000, 300
"""Larger maps and effects are left out: nobody could read them."""
_MOST_LABELS, _MOST_SIGNS, _MOST_NUMBERS = 12, 14, 14


def check_metrics(names: Sequence[str]) -> None:
    """Refuse figures that cannot be better or worse, or that depend on the clock.

    Raises
    ------
    SettingsError
        Naming the first one.
    """
    for name in names:
        check_metric(name)
    if len(names) > 2 or len({*names}) < len(names):
        raise SettingsError(f"Expected one metric or two different ones, got {', '.join(names)}.")


@dataclass(frozen=True, slots=True)
class _Setting:
    """Values of the factors, and what came of them: points that differ in seeds or windows alone."""

    values: tuple[Any, ...]
    rows: tuple[Mapping[str, Any], ...]
    sums: Mapping[str, Estimate]

    @property
    def error(self) -> str | None:
        """Why a point failed."""
        return next((row["error"] for row in self.rows if row["error"] is not None), None)

    def of(self, metric: str) -> float | None:
        """Mean of a figure."""
        found = self.sums.get(metric)
        return None if found is None else found.mean

    def text(self, metric: str, ending: str = "") -> str:
        """Mean of a figure, and in brackets its interval."""
        found, unit = self.sums.get(metric), GLOSSARY[metric].unit
        if found is None or found.half_width is None:
            return format_value(None if found is None else found.mean, unit)
        low, high = (format_value(found.mean + sign * found.half_width, unit) for sign in (-1, 1))
        return f"{format_value(found.mean, unit)} ({low} to {high}{ending.format(found.number)})"


def _term(metric: str) -> Term:
    """What a figure is; parts of the ledger are shares by name."""
    term = GLOSSARY[metric]
    return replace(term, label=f"{term.label} share") if metric.startswith("ledger.") else term


class _Sweep:
    """Settings of a sweep's rows, ordered and judged by two figures."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], varied: Sequence[str], metrics: Sequence[str]) -> None:
        self.rows = rows
        differing = [name for name in varied if len({str(row.get(name)) for row in rows}) > 1]
        self.factors = [name for name in differing if name not in _REPEATED]
        self.over = " and ".join(text for name, text in _REPEATED.items() if name in differing) or "seeds"
        self.first = self._chosen(metrics[:1], _FIRST)
        self.second = self._chosen(metrics[1:], [name for name in _SECOND if name != self.first])
        grouped: dict[tuple[Any, ...], dict[str, Mapping[str, Any]]] = {}
        for row in rows:  # equal points have one run
            grouped.setdefault(tuple(row.get(name) for name in self.factors), {}).setdefault(row["run"], row)
        self.settings = [self._setting(values, tuple(each.values())) for values, each in grouped.items()]
        done = [each for each in self.settings if each.of(self.first) is not None]
        self.done = sorted(done, key=lambda each: (self.rank(each), self._price(each)))
        self.front = self._front()

    def _chosen(self, given: Sequence[str], usual: Sequence[str]) -> str:
        """The given figure, else the first of the usual ones that differs between points, of those that all have."""
        values = {name: {row.get(name) for row in self.rows} - {None} for name in usual}
        cut = any((row.get("tasks_completed") or 0) < (row.get("tasks_total") or 0) for row in self.rows)

        def order(name: str) -> tuple[int, int]:
            """Times of the few tasks that are done say little of the others, as means without points that have none."""
            unknown = len(self.rows) if cut and name in _OF_DONE else sum(row.get(name) is None for row in self.rows)
            return -min(len(values[name]), 2), unknown

        return [*given, *sorted(usual, key=order)][0]

    def _setting(self, values: tuple[Any, ...], rows: tuple[Mapping[str, Any], ...]) -> _Setting:
        sums = {}
        for name in (self.first, self.second):
            known = [float(row[name]) for row in rows if row.get(name) is not None]
            if len(known) == len(rows):  # a mean without a point that failed would be of other seeds
                sums[name] = estimate(known)
        return _Setting(values, rows, sums)

    def rank(self, each: _Setting) -> float:
        """Order of settings, the best first."""
        return -_term(self.first).better * (each.of(self.first) or 0.0)

    def _front(self) -> list[_Setting]:
        """Settings that no other one beats in both figures, by the first one."""
        front: list[_Setting] = []
        for each in self.done:
            if math.isfinite(self._price(each)) and (not front or self._price(each) < self._price(front[-1])):
                front.append(each)
        return front

    def _price(self, each: _Setting) -> float:
        value = each.of(self.second)
        return math.inf if value is None else -_term(self.second).better * value

    def is_repeated(self) -> bool:
        """Whether figures of some setting are means over seeds or windows."""
        return any(each.sums[self.first].number > 1 for each in self.done)

    def text(self, each: _Setting, metric: str) -> str:
        """Mean of a figure, and in brackets its interval and what it is over."""
        number = "{} runs of different" if " and " in self.over else "{}"
        return each.text(metric, f", 95 % over {number} {self.over}")

    def has_own_windows(self) -> bool:
        """Whether some settings were not run on the same windows as others."""
        windows = {frozenset(str(row.get("window")) for row in each.rows) for each in self.settings}
        return "windows" in self.over and len(windows) > 1

    def place(self, each: _Setting) -> str:
        """Number of a setting on the front, as text; empty if it is not there."""
        return next((str(number) for number, one in enumerate(self.front, start=1) if one is each), "")

    def levels(self, factor: int) -> list[Any]:
        """Values of a factor: numbers in their order, all else as it comes; none given comes last."""
        found = list(dict.fromkeys(each.values[factor] for each in self.settings if each.values[factor] is not None))
        if all(isinstance(value, int | float) for value in found):
            found.sort()
        return found + [None] * any(each.values[factor] is None for each in self.settings)

    def named(self, each: _Setting) -> str:
        """The settings in words; what a point leaves to the sweep's base is not among them."""
        known = [pair for pair in zip(self.factors, each.values, strict=True) if pair[1] is not None]
        return ", ".join(f"{name} {short_label(value)}" for name, value in known) or "what [base] says"

    def headline(self) -> str:
        """The best settings and their figure, or why there are none."""
        term, failed = _term(self.first), sum(row["error"] is not None for row in self.rows)
        said = f" {failed:,} of {len(self.rows):,} points failed." if failed else ""
        if not self.done:
            return f"No point has a value of {term.label}.{said}"
        best = self.done[0]
        chosen = f", with {self.named(best)}." if self.factors else "."
        text = f"Best {term.label}: {self.text(best, self.first)}{chosen}"
        half = best.sums[self.first].half_width
        away = [abs((each.of(self.first) or 0.0) - best.sums[self.first].mean) for each in self.done[1:]]
        near, where = sum(each <= (half or 0.0) for each in away), "within that interval" if half else "as good"
        return text + (f" Other settings {where}: {near:,}." if near else "") + said


def sweep_page(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    varied: Sequence[str],
    made: str,
    metrics: Sequence[str] = (),
) -> bytes:
    """Make the page of a sweep.

    Parameters
    ----------
    name : str
    rows : sequence of mapping
        Rows of its table.
    varied : sequence of str
        Columns of the options that vary.
    made : str
        The sweep's file.
    metrics : sequence of str
        Figure to judge settings by, and one that they are weighed against; by default ones that differ.
    """
    found = _Sweep(rows, varied, metrics)
    pictures = tuple(_pictures(found)) if found.done else ()
    page = Page(
        title=f"Sweep {name}",
        subtitle=f"{len(rows):,} points, {len(found.settings):,} settings of {', '.join(found.factors) or 'one kind'}",
        verdict=found.headline(),
        cards=tuple(_cards(found)),
        figures=pictures,
        tables=(_ranking(found), _failures(rows, varied)),
        notes=tuple(_notes(found, has_map=not pictures or pictures[0].key == "map")),
        command=made,
    )
    return page_bytes(page)


def _cards(found: _Sweep) -> list[Card]:
    """Figures and settings of the best point."""
    if not found.done:
        return []
    best, cards = found.done[0], []
    for key, term in _both(found):
        text, *interval = found.text(best, key).rstrip(")").split(" (", 1)
        cards.append(Card(term.label, text, ". ".join([*interval, term.meaning])))
    pairs = list(zip(found.factors, best.values, strict=True))[:4]
    return cards + [Card(factor, short_label(value), "Of the best settings.") for factor, value in pairs]


def _notes(found: _Sweep, *, has_map: bool) -> list[str]:
    notes: list[str] = []
    for note in dict.fromkeys(row.get("assumed_scaling") for row in found.rows):
        notes += scaling_notes(note)
    if not found.is_repeated():
        notes.append("One seed of each setting: nothing tells by how much figures would differ by chance.")
    elif found.has_own_windows():
        notes.append("Not all settings have the same windows: what differs between windows differs between means too.")
    elif "windows" in found.over:
        notes.append("How windows differ is part of the intervals; --paired compares settings window by window.")
    if len(found.factors) > 1 and not has_map:
        notes.append("There is no map of the settings: they have too many combinations.")
    return notes


def _ranking(found: _Sweep) -> PageTable:
    """Settings, the best first."""
    rows = [
        [*map(_cell, each.values), *(each.text(key) for key, _ in _both(found)), found.place(each)]
        for each in found.done[:MOST_ROWS]
    ]
    note = f"In brackets: 95 % intervals over {found.over}. " * found.is_repeated()
    note += f"The best {MOST_ROWS} of {len(found.done):,}; all are in sweep.parquet." * (len(found.done) > MOST_ROWS)
    headings = (*found.factors, *(term.label for _, term in _both(found)), "on the front")
    return PageTable("Settings, the best first", headings, rows, note if rows else "")


def _failures(rows: Sequence[Mapping[str, Any]], varied: Sequence[str]) -> PageTable:
    """Points that failed, and why."""
    failed = [row for row in rows if row["error"] is not None][:MOST_ROWS]
    cells = [[str(row["point"]), *(_cell(row.get(each)) for each in varied), row["error"]] for row in failed]
    return PageTable("Points that failed", ("point", *varied, "why"), cells)


def _both(found: _Sweep) -> list[tuple[str, Term]]:
    return [(key, _term(key)) for key in (found.first, found.second)]


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _pictures(found: _Sweep) -> list[Picture]:
    """A map of the first figure where two factors or more vary, what each factor does, and the front."""
    (_, first), (_, second) = _both(found)
    pictures = []
    levels = [len(found.levels(place)) for place in _axes_of(found)]
    if len(levels) > 1 and levels[0] * levels[1] <= _MOST_CELLS:
        across, down, *others = (found.factors[place] for place in _axes_of(found))
        reading = f"Mean {_axis_unit(found, found.first)[1]} with each {across} (across) and {down} (down); "
        reading += "darker is better; hatched: a point failed."
        reading += f" Means over {', '.join(others)}." if others else ""
        height_in = min(10.0, 1.1 + 0.3 * levels[1])
        pictures.append(Picture("map", f"Where {first.label} is best", reading, partial(_draw_map, found), height_in))
    if 0 < sum(levels) <= _MOST_LEVELS:
        reading = _AVERAGED if len(found.factors) > 1 else "Dots: the figure of each."
        if len(found.factors) == 1 and found.is_repeated():
            reading += f" Bars: 95 % intervals over {found.over}."
        title, effects = f"What each factor does to {first.label}", partial(_draw_effects, found)
        pictures.append(Picture("effects", title, reading, effects, 2.3))
    if found.front:
        reading = f"Each mark is a setting. On the front (diamonds, with numbers as in the table) {first.label} gets "
        reading += f"better only as {second.label} gets worse; the star is the best of these settings."
        reading += f" Others have no {second.label}." * any(each.of(found.second) is None for each in found.done)
        title = f"{first.label} against {second.label}"
        pictures.append(Picture("front", title, reading, partial(_draw_front, found), 2.5))
    return pictures


_AVERAGED = "Dots: mean over all other factors. Bars: from the worst to the best setting."


def _axis_unit(found: _Sweep, key: str) -> tuple[float, str]:
    """The unit in which a figure is drawn, as a number, and the figure's label with its name."""
    return scaled_label([each.of(key) for each in found.done], _term(key))


def _axes_of(found: _Sweep) -> list[int]:
    """Factors, the two with most values first: across, and down."""
    return sorted(range(len(found.factors)), key=lambda place: -len(found.levels(place)))


def _draw_map(found: _Sweep, ax: Axes) -> None:
    """Cells of the two factors with most values: means as strength of colour and, where there is room, in figures."""
    from matplotlib.patches import Rectangle

    ink, (x, y, *_) = palette(), _axes_of(found)
    columns, rows = found.levels(x), found.levels(y)
    size, _ = _axis_unit(found, found.first)
    most, least = (each.of(found.first) or 0.0 for each in (found.done[0], found.done[-1]))
    cells: dict[tuple[int, int], list[_Setting]] = {}
    for each in found.settings:
        cells.setdefault((columns.index(each.values[x]), rows.index(each.values[y])), []).append(each)
    for corner, own in cells.items():
        look: dict[str, Any] = {"facecolor": "none", "edgecolor": ink["orange"], "hatch": "////", "lw": 0.6}
        if any(each.error for each in own):
            ax.add_patch(Rectangle(corner, 0.96, 0.94, **look))
        known = [value for each in own if (value := each.of(found.first)) is not None]
        if not known:
            continue
        mean = math.fsum(known) / len(known)
        share = 0.5 if most == least else (mean - least) / (most - least)
        ax.add_patch(Rectangle(corner, 0.96, 0.94, facecolor=ink["blue"], alpha=0.06 + 0.54 * share, linewidth=0))
        if len(columns) <= _MOST_NUMBERS:
            text = f"{mean / size:{'.1f' if size == 0.01 else '.4g'}}"
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
            ax.text(corner[0] + 0.48, corner[1] + 0.47, plain(text), **style)
    steps = [np.arange(0, len(each), -(-len(each) // _MOST_LABELS)) for each in (columns, rows)]
    ax.set_xticks(steps[0] + 0.5, [plain(short_label(columns[place], _MOST_SIGNS)) for place in steps[0]])
    ax.set_yticks(steps[1] + 0.5, [plain(short_label(rows[place])) for place in steps[1]])
    labels = {"xlabel": plain(found.factors[x]), "ylabel": plain(found.factors[y])}
    ax.set(xlim=(0, len(columns)), ylim=(len(rows), 0), **labels)


def _draw_effects(found: _Sweep, ax: Axes) -> None:
    """Mean of the first figure at each value of each factor, factors side by side."""
    ink, begin, ticks, labels = palette(), 0, [], []
    size, label = _axis_unit(found, found.first)
    for number, factor in enumerate(found.factors):
        levels = found.levels(number)
        step = -(-len(levels) * len(found.factors) // (2 * _MOST_LABELS))
        means = []
        for place, level in enumerate(levels, start=begin):
            own = [each for each in found.done if each.values[number] == level]
            values = [(each.of(found.first) or 0.0) / size for each in own] or [math.nan]
            means.append(math.fsum(values) / len(values))
            half = own[0].sums[found.first].half_width if len(found.factors) == 1 and own else None
            ends = (min(values), max(values)) if half is None else (means[-1] - half / size, means[-1] + half / size)
            ax.plot([place, place], ends, color=ink["sky"], linewidth=4, alpha=0.5, solid_capstyle="butt")
            if (place - begin) % step == 0:
                ticks.append(place)
                labels.append(plain(short_label(level, _MOST_SIGNS)))
        line = "-" if all(isinstance(level, int | float | None) for level in levels) else "none"
        look: dict[str, Any] = {"color": ink["blue"], "linestyle": line, "marker": "o", "markersize": 4}
        ax.plot(range(begin, begin + len(levels)), means, **look)
        ax.text(begin, 1.03, plain(factor), transform=ax.get_xaxis_transform())
        begin += len(levels) + 1
    is_long = max(map(len, labels)) > 6
    ax.set_xticks(ticks, labels, rotation=25 if is_long else 0, ha="right" if is_long else "center")
    ax.set(ylabel=label)


def _draw_front(found: _Sweep, ax: Axes) -> None:
    """Settings by both figures, with the front as a line."""
    ink = palette()
    (up, first), (across, second) = (_axis_unit(found, key) for key in (found.first, found.second))

    def at(each: _Setting) -> tuple[float, float]:
        """Place of a setting."""
        return (each.of(found.second) or 0.0) / across, (each.of(found.first) or 0.0) / up

    front = set(map(id, found.front))
    others = [at(each) for each in found.done if id(each) not in front and each.of(found.second) is not None]
    if others:
        look: dict[str, Any] = {"facecolors": "none", "edgecolors": ink["gray"], "label": "beaten in both"}
        ax.scatter(*zip(*others, strict=True), s=16, **look)
    line: dict[str, Any] = {"color": ink["blue"], "linewidth": 1, "marker": "D", "label": "on the front"}
    ax.plot(*zip(*map(at, found.front), strict=True), markersize=5, **line)
    best = found.front[0]
    ax.plot(*at(best), marker="*", markersize=12, color=ink["green"], linestyle="none", label="the best")
    half = best.sums[found.first].half_width
    if half is not None:
        ax.errorbar(*at(best), yerr=half / up, color=ink["green"], capsize=4, linewidth=1.2)
    for number, each in enumerate(found.front[:_MOST_LABELS], start=1):
        ax.annotate(str(number), at(each), xytext=(6, -10), textcoords="offset points")
    ax.set(xlabel=second, ylabel=first)
    ax.margins(x=0.08, y=0.15)
    below_axes(ax, 0.42)
