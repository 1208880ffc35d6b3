"""Several runs side by side on a page: what differs, and means of runs alike but for seed or window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bftrainer.report.comparison import RunComparison, Unlike, alike, compare_runs, figures_of, join_names, say_unlike
from bftrainer.report.finished_run import FinishedRun
from bftrainer.report.glossary import GLOSSARY, HEADLINES, MARK, WORK_SHARES, Unit, format_value
from bftrainer.report.intervals import estimate
from bftrainer.report.page import Cell, PageTable

_LEAST_SHARE = 0.01
"""Differences to smaller shares are told in points alone."""
_BELOW = (
    "Below a value is its difference to that of {}: absolute, of shares in percentage points, and in brackets "
    "relative; runs that cannot be compared have none. * rests on assumed scaling."
)


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Why runs cannot be compared with the first, in sentences, and the tables of a page about several runs."""

    apart: tuple[str, ...]
    tables: tuple[PageTable, ...]


def side_by_side(runs: Sequence[FinishedRun]) -> SideBySide:
    """Set runs side by side; the others are compared with the first."""
    found = compare_runs([run.name for run in runs], [run.summary for run in runs])
    unlike = [Unlike.of(runs[0].summary, run.summary) for run in runs]
    names, keys = tuple(run.name for run in runs), [key for key in found.figures if key in GLOSSARY]
    figures = {key: _row(found, key, [each.allows(key) for each in unlike]) for key in keys if key not in WORK_SHARES}
    settings = [[key, *("-" if each is None else str(each) for each in row)] for key, row in found.settings.items()]
    note, headings = _BELOW.format(runs[0].name), ("figure", *names)
    tables = [
        PageTable("Headlines", headings, [figures[key] for key in HEADLINES if key in figures], note),
        PageTable("Settings that differ", ("setting", *names), settings),
        *_groups(runs),
        PageTable("All other figures", headings, [figures[key] for key in figures if key not in HEADLINES], note),
    ]
    return SideBySide(tuple(say_unlike(names, unlike)), tuple(table for table in tables if table.rows))


def _row(found: RunComparison, key: str, comparable: Sequence[bool]) -> list[str | Cell]:
    """A figure of each run, with its difference to the first run's where there is such."""
    term, cells = GLOSSARY[key], []
    base = found.figures[key][0]
    for place, value in enumerate(found.figures[key]):
        mark = f"{MARK} " if value is not None and found.is_assumed(key, place) else ""
        below, tone, change = "", "", found.differences[key][place]
        if place and comparable[place] and value is not None and base is not None:
            below = _format_change(value - base, term.unit).replace("%", "points")
            is_tiny = term.unit == "share" and abs(base) < _LEAST_SHARE
            share = "" if change is None or (is_tiny and change) else _format_change(change, "share")
            is_gain = (value - base) * term.better
            tone = "" if share == _format_change(0.0, "share") or not is_gain else "better" if is_gain > 0 else "worse"
            below += f" ({share})" * bool(share) + f" {tone}" * bool(tone)
        cells.append(Cell(mark + format_value(value, term.unit), below, tone))
    return [term.label, *cells]


def _format_change(difference: float, unit: Unit) -> str:
    """A difference with its sign."""
    text = format_value(abs(difference), unit)
    sign = "-" if difference < 0 and text != format_value(0.0, unit) else "+"
    return f"{sign}{text}"


def _groups(runs: Sequence[FinishedRun]) -> Iterator[PageTable]:
    """Means and 95 % intervals of the headlines of runs that differ by seed or window alone, two at least."""
    for group in alike([run.name for run in runs], [run.summary for run in runs], over_windows=True):
        members = [runs[place] for place in group.places]
        if len(members) < 2:
            continue
        figures: list[Mapping[str, float | None]] = [figures_of(run.summary) for run in members]
        rows = []
        for key in HEADLINES:
            sample = [value for each in figures if (value := each.get(key)) is not None]
            if len(sample) < 2:
                continue
            mean, unit = estimate(sample), GLOSSARY[key].unit
            spread = format_value(mean.half_width, unit).replace(" %", " points")
            rows.append((GLOSSARY[key].label, f"{format_value(mean.mean, unit)} ± {spread}", f"{len(sample)}"))
        note = f"Mean and 95 % interval of {names_of(members)}, which differ by seed or window alone."
        yield PageTable(f"{len(members)} runs that are alike", ("figure", "mean", "runs"), rows, note)


def names_of(runs: Sequence[FinishedRun]) -> str:
    """The names of all runs, in a list."""
    return join_names([run.name for run in runs])
