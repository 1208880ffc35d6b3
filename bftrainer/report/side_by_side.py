"""Several runs side by side, on a page and for LaTeX: what differs, and means of runs alike but for seed or window."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bftrainer.model.records import FinishedRun
from bftrainer.report.comparison import (
    GENERATED,
    RunComparison,
    Summary,
    alike,
    compare_runs,
    figures_of,
    setting_label,
    unit_of,
)
from bftrainer.report.glossary import (
    ASSUMED,
    GLOSSARY,
    HEADLINES,
    MARK,
    WORK_SHARES,
    Unit,
    assumption,
    format_value,
    scale,
    term_of,
)
from bftrainer.report.intervals import Estimate, estimate

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


DIGITS = 4
"""Significant digits of the largest figure of a row; an interval has two, and its mean as many places."""
_PLAIN = 1e6
_MARK = "$^{*}$"
_SPECIAL = {each: f"\\{each}" for each in "&%$#_{}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def latex_table(names: Sequence[str], summaries: Sequence[Summary], chosen: Sequence[str] = ()) -> str:
    """Make a table of runs: settings in which they differ, then figures; it takes the package booktabs.

    Parameters
    ----------
    names : sequence of str
    summaries : sequence of mapping
    chosen : sequence of str
        Figures by their names in the summary; by default the headline figures but for those of wall-clock time.
    """
    groups = alike(names, summaries)
    firsts = [summaries[group.places[0]] for group in groups]
    heads = [group.label if len(group.places) == 1 else f"{len(group.places)} seeds" for group in groups]
    lines = [
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{l{'r' * len(groups)}}}",
        r"\toprule",
        _row("", map(_text, heads)),
        r"\midrule",
    ]
    settings = {key: values for key, values in compare_runs(heads, firsts).settings.items() if key != "seed"}
    many = [len(group.places) > 1 for group in groups]
    settings = (
        {} if len(groups) == 1 else {key: row for key, row in settings.items() if key != "node_log" or not all(many)}
    )
    for key, values in settings.items():
        logs = [GENERATED.match(str(value)) if several else None for value, several in zip(values, many, strict=True)]
        named = [f"generated {log['origin']}" if log else value for log, value in zip(logs, values, strict=True)]
        lines.append(_row(_text(setting_label(key)), ["--" if each is None else _text(str(each)) for each in named]))
    lines += [r"\midrule"] if settings else []
    each = [figures_of(summary) for summary in summaries]
    headlines = [key for key in HEADLINES if term_of(key).unit != "wall_s"]
    notes: dict[str, None] = {}
    for key in chosen or [key for key in headlines if any(figures.get(key) is not None for figures in each)]:
        samples = [[each[place].get(key) for place in group.places] for group in groups]
        marks = [(found := assumption(first)) is not None and found.bears(key) for first in firsts]
        notes |= {found.note: None for first in firsts if (found := assumption(first)) is not None and found.bears(key)}
        lines.append(_figure_row(key, samples, marks))
    lines += [r"\bottomrule", r"\end{tabular}"]
    if any(many):
        lines.append(
            r"{\par\footnotesize Mean and 95~\% confidence interval of the mean over seeds (Student's $t$).\par}"
        )
    lines += [rf"{{\par\footnotesize {_MARK} {_text(f'{ASSUMED}: {note}.')}\par}}" for note in notes]
    return "\n".join(lines)


def _row(label: str, cells: Any) -> str:
    return rf"{' & '.join([label, *cells])} \\"


def _figure_row(key: str, samples: Sequence[Sequence[float | None]], marks: Sequence[bool]) -> str:
    term = term_of(key)
    known = [value for sample in samples for value in sample if value is not None]
    size, unit = scale(max(map(abs, known), default=0.0), term.unit)
    largest = max(map(abs, known), default=0.0) / size
    if not unit and largest >= _PLAIN and term.unit != "count":
        power = 3 * (math.floor(math.log10(largest)) // 3)
        size, unit, largest = size * 10.0**power, f"$10^{{{power}}}$", largest / 10.0**power
    name = f"{_text(term.label)} ({unit if unit.startswith('$') else _text(unit)})" if unit else _text(term.label)
    is_whole = term.unit == "count" and all(value == round(value) for value in known)
    places = 0 if is_whole else _places(largest, DIGITS)
    cells = []
    for sample, marked in zip(samples, marks, strict=True):
        values = [value / size for value in sample if value is not None]
        cell = _value(estimate(values), places) if values else "--"
        cells.append(f"{cell}{_MARK}" if marked and values else cell)
    return _row(name, cells)


def _value(found: Estimate, places: int) -> str:
    """A figure in digits that its interval leaves meaning to."""
    if not found.half_width:
        if found.mean and not round(found.mean, places):  # far below the others of its row
            power = math.floor(math.log10(abs(found.mean)))
            return rf"${_digits(found.mean / 10.0**power, 2)} \times 10^{{{power}}}$"
        return f"${_digits(found.mean, places)}$"
    places = _places(found.half_width, 2)
    return rf"${_digits(found.mean, places)} \pm {_digits(found.half_width, places)}$"


def _places(value: float, digits: int) -> int:
    """Decimal places with which a number has so many significant digits."""
    return max(0, digits - 1 - math.floor(math.log10(value))) if value else 0


def _digits(value: float, places: int) -> str:
    return f"{round(value, places) + 0.0:,.{places}f}".replace(",", "{,}")


def _text(text: str) -> str:
    """Text in which nothing is a command of LaTeX."""
    return "".join(_SPECIAL.get(each, each) for each in text)
