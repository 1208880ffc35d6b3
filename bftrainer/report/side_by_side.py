"""Several runs side by side on a page: what differs, and means of runs alike but for seed or window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bftrainer.report.comparison import RunComparison, alike, compare_runs, figures_of, unit_of
from bftrainer.report.finished_run import FinishedRun
from bftrainer.report.glossary import GLOSSARY, HEADLINES, MARK, WORK_SHARES, Unit, format_value
from bftrainer.report.intervals import estimate

_LEAST_SHARE = 0.01
"""Differences to smaller shares are told in points alone."""
_SAME_WINDOW = 0.01
"""Share by which windows of one start may differ in length: runs of so many events end when tasks do."""


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Tables of a page about several runs; a row has a label, what it means, and a cell a run.

    Parameters
    ----------
    apart : tuple of str
        Why runs cannot be compared with the first, in sentences.
    settings, rows : list of dict
        Settings that differ; figures with their differences to the first run, headlines first.
    groups : list of dict
        Means with intervals of runs that are alike but for seed or window.
    """

    apart: tuple[str, ...]
    settings: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    groups: list[dict[str, Any]]


def side_by_side(runs: Sequence[FinishedRun]) -> SideBySide:
    """Set runs side by side; the others are compared with the first."""
    found = compare_runs([run.name for run in runs], [run.summary for run in runs])
    reasons = [_unlike(runs[0].summary, run.summary) for run in runs]
    unlike: dict[str, list[FinishedRun]] = {}
    for run, reason in zip(runs, reasons, strict=True):
        if reason:
            unlike.setdefault(", ".join(reason), []).append(run)
    return SideBySide(
        tuple(f"{names_of(some)} cannot be compared with {runs[0].name}: {reason}." for reason, some in unlike.items()),
        [
            {"label": key, "cells": ["-" if each is None else str(each) for each in row]}
            for key, row in found.settings.items()
        ],
        _rows(found, [not reason for reason in reasons]),
        _groups(runs),
    )


def _unlike(base: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
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


def _rows(found: RunComparison, comparable: Sequence[bool]) -> list[dict[str, Any]]:
    """Figures of the glossary, headlines first, with their differences to the first run's where there are such."""
    rows = []
    order = dict.fromkeys((*HEADLINES, *GLOSSARY))
    for key in order:
        if key not in found.figures or key in WORK_SHARES:
            continue
        term, cells = GLOSSARY[key], []
        for place, value in enumerate(found.figures[key]):
            mark = f"{MARK} " if value is not None and found.is_assumed(key, place) else ""
            cell = {"value": mark + format_value(value, term.unit), "change": "", "share": "", "tone": ""}
            base, change = found.figures[key][0], found.differences[key][place]
            if place and comparable[place] and value is not None and base is not None:
                cell["change"] = _signed(value - base, term.unit).replace("%", "points")
                tiny = term.unit == "share" and abs(base) < _LEAST_SHARE
                cell["share"] = "" if change is None or (tiny and change) else _signed(change, "share")
                is_gain = (value - base) * term.better
                plain = cell["share"] == _signed(0.0, "share") or not is_gain
                cell["tone"] = "" if plain else "better" if is_gain > 0 else "worse"
            cells.append(cell)
        rows.append({"label": term.label, "meaning": term.meaning, "headline": key in HEADLINES, "cells": cells})
    return rows


def _signed(difference: float, unit: Unit) -> str:
    """A difference with its sign."""
    text = format_value(abs(difference), unit)
    sign = "-" if difference < 0 and text != format_value(0.0, unit) else "+"
    return f"{sign}{text}"


def _groups(runs: Sequence[FinishedRun]) -> list[dict[str, Any]]:
    """Means and 95 % intervals of the headlines of runs that differ by seed or window alone, two at least."""
    groups = []
    for group in alike([run.name for run in runs], [run.summary for run in runs], over_windows=True):
        members = [runs[place] for place in group.places]
        if len(members) < 2:
            continue
        figures, rows = [figures_of(run.summary) for run in members], []
        for key in HEADLINES:
            sample = [value for each in figures if (value := each.get(key)) is not None]
            if len(sample) < 2:
                continue
            mean = estimate(sample)
            unit = GLOSSARY[key].unit
            spread = format_value(mean.half_width, unit).replace(" %", " points")
            rows.append((GLOSSARY[key].label, f"{format_value(mean.mean, unit)} ± {spread}", len(sample)))
        groups.append({"names": ", ".join(run.name for run in members), "number": len(members), "rows": rows})
    return groups


def names_of(runs: Sequence[FinishedRun]) -> str:
    """The names of all runs, in a list."""
    *most, last = [run.name for run in runs]
    return f"{', '.join(most)} and {last}" if most else last
