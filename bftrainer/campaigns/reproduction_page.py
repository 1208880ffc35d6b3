"""Pages that set simulations beside what a paper reports: claims, figures with intervals, and their numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bftrainer.report.drawing import below_axes, line_look, palette, plain
from bftrainer.report.intervals import Estimate, estimate
from bftrainer.report.page import Card, Page, PageTable, Picture, page_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Levels = Mapping[Any, Estimate]
COLUMNS = ("figure", "line", "axis", "level", "what", "mean", "ci95", "n")
"""Columns of a reproduction's data; `ci95` is half the width of the interval."""


def mean_of(sample: Sequence[float | None]) -> Estimate:
    """Mean and interval of the values that are known; not a number, of none, if there are none."""
    known = [value for value in sample if value is not None]
    return estimate(known) if known else Estimate(math.nan, None, 0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure: means with 95 % intervals over the levels of an axis.

    Parameters
    ----------
    key, reading : str
        Name of the figure, and what it shows.
    label, axis : str
        What the values are, and the levels.
    lines : mapping
        Name of a line -> level -> estimate.
    unit : {"share", "number"}
    within : (float, float)
        Least and most that values can be; drawn and told intervals end there.
    even : float, optional
        The value of no gain and no loss, which is drawn.
    """

    key: str
    reading: str
    label: str
    axis: str
    lines: Mapping[str, Levels]
    unit: Literal["share", "number"] = "share"
    within: tuple[float, float] = (-math.inf, math.inf)
    even: float | None = None

    @property
    def title(self) -> str:
        """What stands above it."""
        return f"{self.label[0].upper()}{self.label[1:]}, by {self.axis}"

    @property
    def levels(self) -> list[float | str]:
        """Levels of all lines, in their order."""
        return list(dict.fromkeys(level for line in self.lines.values() for level in line))

    def text(self, found: Estimate | None) -> str:
        """An estimate in words, with its interval."""
        if found is None or not found.number:
            return "-"
        size, form, end = (100.0, ".2f", " %") if self.unit == "share" else (1.0, ".3f", "")
        low, high = (format(size * value, form) for value in self._ends(found))
        return f"{size * found.mean:{form}}{end}" + ("" if found.half_width is None else f" ({low} to {high})")

    def _ends(self, found: Estimate) -> tuple[float, float]:
        """Ends of an interval, or twice the mean."""
        half = found.half_width or 0.0
        return max(found.mean - half, self.within[0]), min(found.mean + half, self.within[1])

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """A row for each cell, with values of `COLUMNS`."""
        for name, line in self.lines.items():
            for level, found in line.items():
                mean = found.mean if found.number else None
                yield self.key, name, self.axis, level, self.label, mean, found.half_width, found.number

    def table(self) -> PageTable:
        """The numbers: a row for each level, a column for each line."""
        rows = [[_named(at), *(self.text(line.get(at)) for line in self.lines.values())] for at in self.levels]
        sizes = sorted({found.number for line in self.lines.values() for found in line.values()})
        ends = "" if self.within == (-math.inf, math.inf) else ", which end where values can"
        note = f"{self.label}: means and, in brackets, 95 % intervals{ends}; n = {', '.join(map(str, sizes))}."
        return PageTable(self.title, (self.axis, *self.lines), rows, note)

    def draw(self, ax: Axes) -> None:
        """Draw lines with error bars, names side by side; levels stand at equal distances, as somebody chose them."""
        levels, size = self.levels, 100.0 if self.unit == "share" else 1.0
        named = isinstance(levels[0], str)
        if self.even is not None:
            ax.axhline(size * self.even, color=palette()["gray"], linewidth=0.8)
        for number, (name, line) in enumerate(self.lines.items()):
            aside = 0.06 * (number - (len(self.lines) - 1) / 2) if named else 0.0
            means = np.array([size * found.mean for found in line.values()])
            ends = size * np.array([self._ends(found) for found in line.values()]).T
            look = line_look(number) | ({"linestyle": "none"} if named else {})
            ax.errorbar(
                [levels.index(level) + aside for level in line],
                means,
                np.abs(ends - means),
                marker="os^Dvp"[number % 6],
                ms=4,
                capsize=3,
                label=plain(name, 40),
                **look,
            )
        ax.set_xticks(range(len(levels)), [plain(_named(level), 32) for level in levels])
        ax.set(
            xlabel=plain(self.axis, 60),
            ylabel=plain(self.label, 32) + " (%)" * (size > 1),
            xlim=(-0.4, len(levels) - 0.6),
        )
        below_axes(ax, 0.5)


def _named(level: float | str) -> str:
    return level if isinstance(level, str) else f"{level:g}"


@dataclass(frozen=True, slots=True)
class Reported:
    """What a paper reports, what came out here, and why the two are comparable or not."""

    what: str
    paper: str
    here: str
    comparable: str


@dataclass(frozen=True, slots=True)
class Reproduction:
    """An evaluation made again.

    Parameters
    ----------
    paper, source : str
        Its short name, and where it was published.
    settings : str
        What was simulated.
    reported : tuple of Reported
    comparisons : tuple of Comparison
    caveats : tuple of str
    """

    paper: str
    source: str
    settings: str
    reported: tuple[Reported, ...]
    comparisons: tuple[Comparison, ...]
    caveats: tuple[str, ...]

    def rows(self) -> list[tuple[Any, ...]]:
        """All cells of all figures."""
        return [row for each in self.comparisons for row in each.rows()]

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        cells = [dict(zip(COLUMNS, row, strict=True)) for row in self.rows()]
        about = {name: getattr(self, name) for name in ("paper", "source", "settings", "caveats")}
        return about | {"reported": [asdict(each) for each in self.reported], "cells": cells}

    def page(self, made: str) -> bytes:
        """Content of the page; `made` says how it was made."""
        told = [[each.what, each.paper, each.here, each.comparable] for each in self.reported]
        beside = PageTable(
            "Beside the paper", ("figure", "the paper reports", "here", "comparable?"), told, self.source
        )
        cards = tuple(Card(what, here, f"The paper: {paper}. {why}") for what, paper, here, why in told)
        headline = "; ".join(
            f"{what}: {here} here, {paper} in the paper ({why[:1].lower()}{why[1:].partition(':')[0]})"
            for what, paper, here, why in told
        )
        pictures = tuple(
            Picture(each.key, each.title, f"{each.reading} Bars: 95 % intervals.", each.draw, 2.6)
            for each in self.comparisons
        )
        title = f"{self.paper}: its evaluation, made again"
        page = Page(
            title=title,
            subtitle=self.settings,
            verdict=f"{headline}.",
            cards=cards,
            figures=pictures,
            tables=(beside, *(each.table() for each in self.comparisons)),
            notes=self.caveats,
            command=made,
        )
        return page_bytes(page)
