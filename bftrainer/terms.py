"""Metrics of a summary by their keys, as `metrics.csv` declares them: meaning, unit, and whether more is better."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

Unit = Literal["share", "s", "wall_s", "node_s", "nodes", "work", "count", "J", "W", "g", "rate"]


@dataclass(frozen=True, slots=True)
class Term:
    """Metric of a summary, with its meaning for a newcomer.

    `better` is 1 if more of it is better, -1 if less is, 0 if neither; `scaling` says whether it depends on how tasks
    scale, and not on the log alone; `over` is the key of the metric that counts its tasks, if it is not of all tasks;
    `limit` says that a run was limited by this part of its ledger, with a place for the share.
    """

    label: str
    unit: Unit
    meaning: str
    better: int = 0
    scaling: bool = True
    over: str = ""
    limit: str = ""


def _read_terms() -> dict[str, Term]:
    """Rows of the table by key."""
    text = Path(__file__).with_name("metrics.csv").read_text(encoding="utf-8")
    terms = {}
    for key, label, unit, better, rests_on, over, meaning, limit in csv.reader(text.splitlines()[1:]):
        sign = {"+": 1, "-": -1, "": 0}[better]
        terms[key] = Term(label, cast(Unit, unit), meaning, sign, rests_on == "scaling", over, limit)
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


def term_of(key: str) -> Term:
    """Term of a metric by its full name; ``below_large_idle.occupancy`` is like ``occupancy``."""
    group, _, name = key.rpartition(".")
    if group == "below_large_idle" and key in GLOSSARY:
        return GLOSSARY[key]
    term = GLOSSARY.get(key) or GLOSSARY.get(name) or Term(name, "node_s" if name.endswith("node_s") else "rate", "")
    scope = {"": "", "below_large_idle": " (few nodes idle)"}.get(group, f" ({group})")
    return replace(term, label=f"{term.label}{scope}")
