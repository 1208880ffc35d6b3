"""Pages that set simulations beside what a paper reports: claims, figures with intervals, and their numbers."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
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


def read_papers() -> dict[str, dict[str, Any]]:
    """Read what papers publish, by their names."""
    text = resources.files("bftrainer.campaigns").joinpath("published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def mean_of(sample: Sequence[float | None]) -> Estimate:
    """Mean and interval of the values that there are; not a number, of none, if there are none."""
    values = [value for value in sample if value is not None]
    return estimate(values) if values else Estimate(math.nan, None, 0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure: means with 95 % intervals over the levels of an axis."""

    key: str
    lines: Mapping[str, Levels]
    """Name of a line -> level -> estimate."""
    reading: str
    """What the figure shows; `label` and `axis` say what values and levels are."""
    label: str
    axis: str
    unit: Literal["share", "number"] = "share"
    within: Sequence[float] = (-math.inf, math.inf)
    """Least and most that values can be; intervals end there."""
    even: float | None = None
    """The value of no gain and no loss, which is drawn."""

    @property
    def title(self) -> str:
        """Heading of the figure."""
        return f"{self.label[0].upper()}{self.label[1:]}, by {self.axis}"

    @property
    def levels(self) -> list[float | str]:
        """Levels of all lines, in their order."""
        return list(dict.fromkeys(level for line in self.lines.values() for level in line))

    def text(self, value: Estimate | None) -> str:
        """An estimate in words, with its interval."""
        if value is None or not value.number:
            return "-"
        size, form, end = (100.0, ".2f", " %") if self.unit == "share" else (1.0, ".3f", "")
        low, high = (format(size * bound, form) for bound in self._interval(value))
        return f"{size * value.mean:{form}}{end}" + ("" if value.half_width is None else f" ({low} to {high})")

    def _interval(self, value: Estimate) -> tuple[float, float]:
        """Ends of an interval, or twice the mean."""
        half = value.half_width or 0.0
        return max(value.mean - half, self.within[0]), min(value.mean + half, self.within[1])

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """A row for each cell, with values of `COLUMNS`."""
        for name, line in self.lines.items():
            for level, value in line.items():
                mean = value.mean if value.number else None
                yield self.key, name, self.axis, level, self.label, mean, value.half_width, value.number

    def table(self) -> PageTable:
        """The numbers: a row for each level, a column for each line."""
        rows = [[_label_level(at), *(self.text(line.get(at)) for line in self.lines.values())] for at in self.levels]
        sizes = sorted({value.number for line in self.lines.values() for value in line.values()})
        ends = "" if tuple(self.within) == (-math.inf, math.inf) else ", which end where values can"
        note = f"{self.label}: means and, in brackets, 95 % intervals{ends}; n = {', '.join(map(str, sizes))}."
        return PageTable(self.title, (self.axis, *self.lines), rows, note)

    def draw(self, ax: Axes) -> None:
        """Draw lines with error bars; levels stand at equal distances, and points of levels with names side by side."""
        levels, size = self.levels, 100.0 if self.unit == "share" else 1.0
        has_names = isinstance(levels[0], str)
        if self.even is not None:
            ax.axhline(size * self.even, color=palette()["gray"], linewidth=0.8)
        for number, (name, line) in enumerate(self.lines.items()):
            aside = 0.06 * (number - (len(self.lines) - 1) / 2) if has_names else 0.0
            places = [levels.index(level) + aside for level in line]
            means = np.array([size * value.mean for value in line.values()])
            ends = size * np.array([self._interval(value) for value in line.values()]).T
            look = {"marker": "os^Dvp"[number % 6], "ms": 4, "capsize": 3} | line_look(number)
            look |= {"linestyle": "none"} if has_names else {}
            ax.errorbar(places, means, np.abs(ends - means), label=plain(name, 40), **look)
        ax.set_xticks(range(len(levels)), [plain(_label_level(level), 32) for level in levels])
        label = plain(self.label, 32) + " (%)" * (size > 1)
        ax.set(xlabel=plain(self.axis, 60), ylabel=label, xlim=(-0.4, len(levels) - 0.6))
        below_axes(ax, 0.5)


def _label_level(level: float | str) -> str:
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
    """An evaluation made again: where it was published, what was simulated, claims beside figures, and caveats."""

    paper: str
    source: str
    settings: str
    reported: tuple[Reported, ...]
    comparisons: tuple[Comparison, ...]
    caveats: tuple[str, ...]

    def rows(self) -> list[tuple[Any, ...]]:
        """All cells of all figures."""
        return [row for comparison in self.comparisons for row in comparison.rows()]

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        cells = [dict(zip(COLUMNS, row, strict=True)) for row in self.rows()]
        about = {name: getattr(self, name) for name in ("paper", "source", "settings", "caveats")}
        return about | {"reported": [asdict(claim) for claim in self.reported], "cells": cells}

    def page(self, command: str) -> bytes:
        """Content of the page; `made` is the command."""
        claims = [[claim.what, claim.paper, claim.here, claim.comparable] for claim in self.reported]
        headings = ("figure", "the paper reports", "here", "comparable?")
        headline = "; ".join(
            f"{what}: {here} here, {paper} in the paper ({why[:1].lower()}{why[1:].partition(':')[0]})"
            for what, paper, here, why in claims
        )
        page = Page(
            title=f"{self.paper}: its evaluation, made again",
            subtitle=self.settings,
            verdict=f"{headline}.",
            cards=tuple(Card(what, here, f"The paper: {paper}. {why}") for what, paper, here, why in claims),
            figures=tuple(
                Picture(
                    comparison.key,
                    comparison.title,
                    f"{comparison.reading} Bars: 95 % intervals.",
                    comparison.draw,
                    2.6,
                )
                for comparison in self.comparisons
            ),
            tables=(
                PageTable("Beside the paper", headings, claims, self.source),
                *(comparison.table() for comparison in self.comparisons),
            ),
            notes=self.caveats,
            command=command,
        )
        return page_bytes(page)
