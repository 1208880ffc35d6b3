"""Comparison of runs as a table for LaTeX: one unit a row, digits that mean something, runs of several seeds as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bftrainer.report.comparison import GENERATED, Summary, alike, compare_runs, figures_of, setting_label
from bftrainer.report.glossary import ASSUMED, HEADLINES, assumption, scale, term_of
from bftrainer.report.intervals import Estimate, estimate

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
