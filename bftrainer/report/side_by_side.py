"""Several runs side by side on a page: what differs, and means of runs alike but for seed or window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bftrainer.report.comparison import RunComparison, Summary, alike, compare_runs, figures_of, unit_of
from bftrainer.report.finished_run import FinishedRun
from bftrainer.report.glossary import GLOSSARY, HEADLINES, MARK, WORK_SHARES, Unit, format_value
from bftrainer.report.intervals import estimate
from bftrainer.report.page import Cell, PageTable

_LEAST_SHARE = 0.01
"""Differences to smaller shares are told in points alone."""
_SAME_WINDOW = 0.01
"""Share by which windows of one start may differ in length: runs of so many events end when tasks do."""
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
    reasons = [_unlike(runs[0].summary, run.summary) for run in runs]
    unlike: dict[str, list[FinishedRun]] = {}
    for run, reason in zip(runs, reasons, strict=True):
        if reason:
            unlike.setdefault(", ".join(reason), []).append(run)
    names, keys = tuple(run.name for run in runs), [key for key in found.figures if key in GLOSSARY]
    figures = {key: _row(found, key, [not reason for reason in reasons]) for key in keys if key not in WORK_SHARES}
    settings = [[key, *("-" if each is None else str(each) for each in row)] for key, row in found.settings.items()]
    note, headings = _BELOW.format(runs[0].name), ("figure", *names)
    tables = [
        PageTable("Headlines", headings, [figures[key] for key in HEADLINES if key in figures], note),
        PageTable("Settings that differ", ("setting", *names), settings),
        *_groups(runs),
        PageTable("All other figures", headings, [figures[key] for key in figures if key not in HEADLINES], note),
    ]
    apart = (f"{names_of(some)} cannot be compared with {runs[0].name}: {reason}." for reason, some in unlike.items())
    return SideBySide(tuple(apart), tuple(table for table in tables if table.rows))


def _unlike(base: Summary, other: Summary) -> list[str]:
    """What makes figures of two runs ones of different things: machine, unit or window."""
    found = []
    if base["nodes_total"] != other["nodes_total"]:
        found.append(f"another machine ({other['nodes_total']:,} nodes, not {base['nodes_total']:,})")
    if unit_of(base) != unit_of(other):
        found.append(f"another unit ({unit_of(other)}, not {unit_of(base)})")
    is_long = abs(base["window_s"] - other["window_s"]) <= _SAME_WINDOW * base["window_s"]
    is_long = is_long or base.get("engine") == "live"  # a harvest, whose replay ends when its tasks do
    if base["window_start"] != other["window_start"] or not is_long:
        ours, theirs = (f"{each['window_start'][:19]} to {each['window_end'][:19]}" for each in (other, base))
        found.append(f"another window ({ours}, not {theirs})")
    return found


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
    *most, last = [run.name for run in runs]
    return f"{', '.join(most)} and {last}" if most else last
