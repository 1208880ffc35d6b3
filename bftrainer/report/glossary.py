"""Metrics of runs: words, unit and direction of each from `metrics.csv`; values as text; figures on assumptions."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import resources
from typing import Any, Literal, cast

from bftrainer.errors import SettingsError

Unit = Literal["share", "s", "wall_s", "node_s", "nodes", "work", "count", "J", "W", "g", "rate"]


@dataclass(frozen=True, slots=True)
class Term:
    """Metric of a summary, with its meaning for a newcomer.

    `better` is 1 if more of it is better, -1 if less is, 0 if neither; `scaling` says whether it depends on how tasks
    scale, and not on the log alone; `over` is the key of the metric that counts its tasks, if it is not of all tasks.
    """

    label: str
    unit: Unit
    meaning: str
    better: int = 0
    scaling: bool = True
    over: str = ""


def _read_terms() -> dict[str, Term]:
    """Rows of the table by key."""
    text = resources.files("bftrainer.report").joinpath("metrics.csv").read_text(encoding="utf-8")
    terms = {}
    for row in csv.DictReader(text.splitlines()):
        better, is_scaling = {"+": 1, "-": -1, "": 0}[row["better"]], row["rests_on"] == "scaling"
        terms[row["key"]] = Term(row["label"], cast(Unit, row["unit"]), row["meaning"], better, is_scaling, row["over"])
    return terms


GLOSSARY = _read_terms()
"""Metrics by their key in `summary.json`, in the order of pages and tables."""
JUDGED = tuple(key for key, term in GLOSSARY.items() if term.better and term.unit != "wall_s")
"""Metrics that can be better or worse, except wall-clock times, which differ between equal runs."""
COMPARED = (
    *("efficiency", "ledger.useful", "eq_nodes", "occupancy", "work_done", "tasks_completed", "makespan_s"),
    *("turnaround_mean_s", "wait_mean_s", "preemptions", "rescales", "energy_j", "emissions_gco2"),
    *("decisions_optimal", "solve_s_median"),
)
"""Metrics that say most: pages show them first, and comparisons alone by default."""
WORK_SHARES = tuple(key for key in GLOSSARY if "loss" in key and key.endswith("_share"))
"""Shares of another whole than the ledger's; tables and pages that show the ledger leave them out."""
ON_SCALING = tuple(key for key, term in GLOSSARY.items() if term.scaling)
"""Metrics that depend on how tasks scale."""

# Least value, size and name of each unit.
_SCALES: dict[Unit, tuple[tuple[float, float, str], ...]] = {
    "s": ((172800.0, 86400.0, "d"), (3600.0, 3600.0, "h"), (60.0, 60.0, "min"), (0.0, 1.0, "s")),
    "wall_s": ((60.0, 60.0, "min"), (1.0, 1.0, "s"), (1e-3, 1e-3, "ms"), (0.0, 1e-6, "µs")),
    "J": ((3.6e9, 3.6e9, "MWh"), (3.6e6, 3.6e6, "kWh"), (3600.0, 3600.0, "Wh"), (0.0, 1.0, "J")),
    "W": ((1e6, 1e6, "MW"), (1e3, 1e3, "kW"), (0.0, 1.0, "W")),
    "g": ((1e6, 1e6, "t"), (1e3, 1e3, "kg"), (0.0, 1.0, "g")),
}


def term_of(key: str) -> Term:
    """Term of a metric by its full name; ``below_large_idle.occupancy`` is like ``occupancy``."""
    group, _, name = key.rpartition(".")
    if group == "below_large_idle" and key in GLOSSARY:
        return GLOSSARY[key]
    term = GLOSSARY.get(key) or GLOSSARY.get(name) or Term(name, "node_s" if name.endswith("node_s") else "rate", "")
    scope = {"": "", "below_large_idle": " (few nodes idle)"}.get(group, f" ({group})")
    return replace(term, label=f"{term.label}{scope}")


def key_of(name: str) -> str:
    """Key of a metric, from its key or label; unknown names stay as they are."""
    labels = {term.label.casefold(): key for key, term in GLOSSARY.items()}
    return name if name in GLOSSARY else labels.get(name.casefold(), name)


def suggest_metrics(name: str, keys: Iterable[str]) -> str:
    """Ending of a message about an unknown metric: the closest ones, by the words of pages, or where all are listed."""
    labels = {key: GLOSSARY[key].label if key in GLOSSARY else key for key in keys}
    words = labels | {label.casefold(): label for label in labels.values()}
    near = dict.fromkeys(words[word] for word in get_close_matches(name.casefold(), words))
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else " `bftrainer plot --list` names all."


def check_metrics(names: Sequence[str]) -> None:
    """Refuse more than two metrics, and those that have no better or worse or depend on the clock: `SettingsError`."""
    for name in names:
        if name not in JUDGED:
            raise SettingsError(f"Expected a metric to improve, got {name!r}.{suggest_metrics(name, JUDGED)}")
    if len(names) > 2 or len({*names}) < len(names):
        raise SettingsError(f"Expected one metric or two different ones, got {', '.join(names)}.")


def format_value(value: float | None, unit: Unit) -> str:
    """Format a value with its unit.

    Examples
    --------
    >>> format_value(-1e-16, "share"), format_value(224292.8, "s"), format_value(1.2e-4, "wall_s")
    ('0.00 %', '2.6 d', '120 µs')
    >>> format_value(None, "W"), format_value(17308566170.0, "work"), format_value(9598018.9, "node_s")
    ('-', '1.731e+10', '2,666 node-hours')
    >>> format_value(90000.0, "work"), format_value(1.2, "node_s")
    ('90,000', '0.00033 node-hours')
    """
    if value is None:
        return "-"
    if unit == "share":
        return f"{round(100 * value, 2) + 0.0:.2f} %"  # rounding noise below 0 is no loss and no gain
    if unit == "count":
        return f"{value:,.0f}"
    if unit == "nodes":
        return f"{value:,.1f}"
    if unit == "node_s":
        hours = round(value / 3600, 6)
        return f"{hours:,.0f} node-hours" if abs(hours) >= 10 or not hours else f"{hours:.2g} node-hours"
    if unit in _SCALES:
        size, name = scale(value, unit)
        amount = value / size
        return f"{amount:,.0f} {name}" if abs(amount) >= 1000 else f"{amount:.3g} {name}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e6 else f"{value:.4g}"


def scale(value: float, unit: Unit) -> tuple[float, str]:
    """Size and name of the unit for values up to this one; the name is empty for plain numbers."""
    if unit in _SCALES:
        return next((size, name) for least, size, name in _SCALES[unit] if abs(value) >= least)
    return {"share": (0.01, "%"), "node_s": (3600.0, "node-hours"), "nodes": (1.0, "nodes")}.get(unit, (1.0, ""))


def scale_axis(values: Iterable[float | None], term: Term) -> tuple[float, str]:
    """Size of the unit for drawing such values, and the axis label with that unit."""
    size, unit = scale(max((abs(value) for value in values if value is not None), default=0.0), term.unit)
    return size, f"{term.label} ({unit})" if unit else term.label


ASSUMED = "assumed scaling"
MARK = "*"
"""Stand beside a figure that rests on an assumption, where there is room for words and where there is none."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """Assumption of a run: a note with the options that replace it, without a full stop, and keys of figures on it."""

    note: str
    figures: frozenset[str]

    def bears(self, key: str) -> bool:
        """Whether a figure rests on it; ``below_large_idle.occupancy`` does if ``occupancy`` does."""
        return key.rpartition(".")[2] in self.figures


def assumption(summary: Mapping[str, Any]) -> Assumption | None:
    """The assumed scaling in a run's summary; None if the user gave the scaling of all tasks."""
    recorded = summary.get("assumed_scaling")
    return None if recorded is None else Assumption(recorded["note"], frozenset(recorded["figures"]))


def mark_assumed(summary: Mapping[str, Any], key: str) -> str:
    """Mark for a figure in a sentence that rests on an assumption; empty if it does not."""
    assumed = assumption(summary)
    return f" ({ASSUMED})" if assumed is not None and assumed.bears(key) else ""


def assumption_notes(assumed: Assumption | str | None) -> list[str]:
    """Caveat of an assumption about how tasks scale, or of its note, if there is one."""
    note = assumed.note if isinstance(assumed, Assumption) else assumed
    return [] if note is None else [f"Rests on {ASSUMED}: {note}."]
