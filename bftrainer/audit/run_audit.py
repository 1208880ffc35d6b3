"""Audit one run: read its inputs and results, recompute, compare."""

from __future__ import annotations

import csv
import lzma
import pickle
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bftrainer.audit.audited_objectives import AuditedObjective
from bftrainer.audit.books import Books
from bftrainer.audit.decisions import Judge, Rules
from bftrainer.audit.group_tuning import Tables, TuningGroup, recorded_tries
from bftrainer.audit.input_files import (
    LEARNED,
    NS,
    Log,
    Offer,
    Series,
    Task,
    moment_ns,
    read_log,
    read_steps,
    read_tasks,
)
from bftrainer.audit.parts import Part, UnusableError, printable
from bftrainer.audit.recorded_run import RecordedRun, check_files, found_inputs, read_record
from bftrainer.audit.recorded_tables import check_attempts, check_cap, check_power, check_steps, check_tasks
from bftrainer.audit.summary_figures import check_figures

# Errors of reading and recomputing on damaged files, which fail in many ways.
_DAMAGE = (
    *(
        OSError,
        MemoryError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        EOFError,
        RecursionError,
    ),
    *(pa.ArrowException, csv.Error, lzma.LZMAError, zlib.error, tarfile.TarError, pickle.PickleError),
)
NOTHING = "this run has nothing of the kind"


@dataclass(frozen=True)
class Audit:
    """Result of auditing a run: its directory, and what was checked."""

    run: Path
    parts: list[Part]

    @property
    def failed(self) -> list[Part]:
        """Parts with problems."""
        return [part for part in self.parts if part.status == "failed"]

    @property
    def unchecked(self) -> list[Part]:
        """Parts that could not be checked, or not in all their items."""
        return [part for part in self.parts if part.left_out]

    def to_dict(self) -> dict[str, Any]:
        """All of it, JSON-ready."""
        return {
            "run": str(self.run),
            "parts": [part.to_dict() for part in self.parts],
            "checked": sum(part.status == "checked" for part in self.parts),
            "failed": len(self.failed),
            "not_checkable": sum(part.status == "not checkable" for part in self.parts),
        }


def audit(run: Path, own: Callable[..., Any] | None = None) -> Audit:
    """Audit a run.

    Parameters
    ----------
    run : Path
        Its result directory.
    own : callable, optional
        The user's objective, if the audit does not know it; it is called as decisions call it.

    Raises
    ------
    UnusableError
        If it is no finished run, or its files or inputs are damaged or missing.
    """
    try:
        found = _audit(run, own)
    except UnusableError:
        raise
    except _DAMAGE as fault:
        said = printable(" ".join(str(fault).split()))
        raise UnusableError(f"cannot be audited, {type(fault).__name__}: {said}") from fault
    for part in found:
        if not part.looked and not part.left_out:
            part.leave_out(NOTHING)
    return Audit(run, found)


@np.errstate(over="ignore", invalid="ignore")  # what is beyond all numbers agrees with nothing
def _audit(run: Path, own: Callable[..., Any] | None) -> list[Part]:
    record, inputs = read_record(run), Part("inputs are those of the run, by checksum and window")
    paths = found_inputs(record, run, inputs)
    log, tasks = _read(record, paths)
    for name, mine in (("window_start", log.start_ns), ("nodes_total", len(log.nodes))):
        recorded = record.summary[name]
        inputs.same(name, moment_ns(recorded) if name == "window_start" else recorded, mine)
    for name in ("power_cap", "carbon"):
        if name in paths:
            inputs.same(f"settings.{name}", record.settings.get(name), record.summary["inputs"][name]["path"])
    settings = _settings(record, paths, log)
    tuned = any(task.tuned is not None for task in tasks)
    _need(record, tuned, settings)
    judge = Judge(AuditedObjective(record.settings["objective"], own), settings, tuned)
    groups = _groups(tasks, record, paths, inputs) if tuned else []
    books = Books(log, tasks, settings, record, judge, groups)
    books.run()
    carbon = _series(record.settings.get("carbon"), paths.get("carbon"), "gco2_per_kwh", log.start_ns)
    files = check_files(run)
    parts = [
        *([files] if files.looked else []),
        inputs,
        *books.parts,
        *judge.parts,
        check_tasks(record, books),
        check_steps(books),
    ]
    if tuned:
        parts.append(check_attempts(record, books))
    if record.power is not None:
        parts.append(check_power(record, books))
    if settings.cap is not None:
        parts.append(check_cap(books))
    figures, rest = check_figures(record, books, carbon)
    if not files.looked:
        rest.leave_out("files: no manifest (.bftrainer) with checksums tells whether they are as they were written")
    return [*parts, figures, rest]


def _read(record: RecordedRun, paths: dict[str, Any]) -> tuple[Log, list[Task]]:
    settings = record.settings
    selection = (settings["skip_events"] or 0, settings["first_node"] or 0, settings["node_count"])
    after_s, lead_s = (float(settings.get(name) or 0.0) for name in ("offer_after_s", "forward_time_s"))
    departures = paths.get("planned_departures")
    offer = Offer(round(after_s * NS), round(lead_s * NS), departures) if after_s or departures else None
    log = read_log(paths["node_log"], *selection, settings.get("since"), offer)
    tasks = read_tasks(
        paths["tasks"],
        paths.get("scalability"),
        None if settings.get("scaling") == LEARNED else settings.get("scaling"),
        log.start_ns,
    )
    return log, tasks


def _settings(record: RecordedRun, paths: dict[str, Any], log: Log) -> Rules:
    asked, summary = record.settings, record.summary
    for name, choices in _CHOICES.items():
        if asked.get(name, choices[0]) not in choices:
            raise UnusableError(
                printable(f"settings.{name}: Expected one of {', '.join(choices)}, got {asked[name]!r}")
            )
    return Rules(
        max_tasks=asked["max_tasks"],
        forward_s=float(asked["forward_time_s"]),
        solvers=tuple(name for name in (asked.get("solver"), asked.get("fallback")) if name is not None),
        decide_on=asked["decide_on"],
        initial=asked["initial"],
        full_start=asked["startup_cost"] == "full",
        strict=bool(asked.get("strict_published") or asked.get("compat") == "published"),
        published=asked.get("compat") == "published",
        gap=float(asked.get("mip_gap") or 0.0),
        seed=asked.get("seed", 0),
        start_ns=log.start_ns,
        end_ns=moment_ns(summary["window_end"]),
        stopped=summary["end_reason"] in ("max_events", "interrupted"),
        live=summary.get("engine") == "live",
        idle_w=asked.get("idle_power_w") or 0.0,
        pue=asked.get("pue") or 1.0,
        foreseen=asked.get("foresight", "none") != "none"
        and any(u in asked["foresight_use"] for u in ("order", "cohort")),
        cap=_series(asked.get("power_cap"), paths.get("power_cap"), "power_w", log.start_ns),
    )


_CHOICES = {
    "decide_on": ("all", "nodes"),
    "initial": ("solve", "empty", "random"),
    "startup_cost": ("none", "full"),
    "compat": ("none", "published"),
    "power_options": ("chosen", "pareto", "all"),
}


def _need(record: RecordedRun, tuned: bool, settings: Rules) -> None:
    """Refuse a run that lacks a table that its tasks give, or has one that they do not give."""
    has_power = tuned or settings.idle_w > 0
    for name, table, needed in (("attempts", record.attempts, tuned), ("power", record.power, has_power)):
        if needed is not (table is not None):
            raise UnusableError(f"{name}.parquet: {'missing from' if needed else 'unexpected in'} a run of these tasks")


def _series(given: Any, path: Any, column: str, start_ns: int) -> Series | None:
    """A cap or an intensity, from its file or constant."""
    if path is not None:
        return read_steps(path, column, start_ns)
    return None if given is None else Series((0.0,), (float(given),))


def _groups(tasks: list[Task], record: RecordedRun, paths: dict[str, Any], inputs: Part) -> list[TuningGroup]:
    """The groups of tuned tasks, from the traces that the run read."""
    asked, attempts = record.settings, record.attempts or []
    tries = {row["task"]: recorded_tries(attempts, row) for row in record.tasks}
    known = {path.resolve() for path in paths.get("traces", [])}
    tables: dict[tuple[Path, Path], Tables] = {}
    groups: dict[str, TuningGroup] = {}
    for task in tasks:
        name = task.name if task.group is None else task.group
        if task.tuned is None or name in groups:
            continue
        files = (task.tuned["train_trace"], task.tuned["power_trace"])
        for file in files:
            inputs.expect(file.resolve() in known, "{}: not among the traces that the run read", file)
        if files not in tables:
            tables[files] = Tables(*files)
        policies = task.tuned["policy"], task.tuned["power_policy"]
        usual = asked.get("policy", "zeus"), asked.get("power_policy", "jit")
        chosen = policies[0] or usual[0], policies[1] or usual[1]
        settings = asked["seed"], asked["power_options"], chosen
        groups[name] = group = TuningGroup(name, task.tuned, tables[files].of(task.tuned), *settings, tries)
        if group.unknown and group.options != "chosen":
            raise UnusableError(
                printable(f"group {name}: cannot follow {', '.join(group.unknown)} with power_options {group.options}")
            )
    return list(groups.values())
