"""Audit one run: read its inputs and results, recompute, compare; its tables with the books."""

from __future__ import annotations

import csv
import lzma
import pickle
import tarfile
import zlib
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bftrainer.audit.accounts import Account
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
from bftrainer.audit.parts import ROUNDING, Part, UnusableError, close, printable
from bftrainer.audit.recorded_run import SAVE_COLUMN, STEP_COLUMNS, RecordedRun, check_files, found_inputs, read_record
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


# Seconds from the window's start, as floats, tell years to some nanoseconds.
ROUNDED_NS = 1_000
_SUMS = ("work_done", "rescale_cost", "preemption_cost", "saving_cost")
_WORK_COLUMNS = ("Thr", "Rate", "ReScost", "PreCost", SAVE_COLUMN)
# Of a group whose policies the audit does not know.
_UNKNOWN = "group {}: what {} chose among what was measured, and which paths were drawn: the audit does not know it"


def check_tasks(record: RecordedRun, books: Books) -> Part:
    """Every task's row."""
    part = Part("tasks.parquet holds the figures that the audit computes")
    names = [row["task"] for row in record.tasks]
    part.expect(names == list(books.accounts), "{} tasks recorded, {} in the task set", len(names), len(books.accounts))
    for row in record.tasks:
        account = books.accounts.get(row["task"])
        if account is None:
            continue
        found = _task(account, tuned=record.attempts is not None)
        found |= {"saving_cost": account.saving_cost} if books.saves else {}
        for name, figure in found.items():
            # Sums of what is done and lost carry rounding of the size of all that was booked.
            slack = ROUNDING * account.gross if name in _SUMS else 0.0
            slack = ROUNDED_NS if name == "submitted" else slack
            measured = books.settings.live and name in _SUMS
            part.same_unless(measured, f"{row['task']} {name}", row.get(name), figure, slack)
        if "group" in row:
            part.same(f"{row['task']} group", row["group"], account.task.group)
    return part


def _task(account: Account, *, tuned: bool) -> dict[str, Any]:
    """A row of tasks.parquet as it should be."""
    found: dict[str, Any] = {
        "started": account.started_ns,
        "completed": account.completed_ns,
        "submitted": account.task.submit_ns,
        "work_done": account.work_done,
        "work_total": account.work_total,
        "node_s": account.node_s,
        "rescales": account.rescales,
        "preemptions": account.preemptions,
        "rescale_cost": account.rescale_cost,
        "preemption_cost": account.preemption_cost,
    }
    if not tuned:
        return found
    run, is_tuned = account.mode.run, account.task.tuned is not None
    return found | {
        "energy_j": account.energy_j if is_tuned else None,
        "train_s": account.train_s if is_tuned else None,
        "attempts": account.attempts if is_tuned else None,
        "batch_size": run.batch_size if run else None,
        "power_limit_w": account.mode.limit_w if run else None,
        "reached": account.completed_ns is not None if is_tuned else None,
    }


def check_steps(books: Books) -> Part:
    """Check every row of the step log; missing and extra rows are reported by the books."""
    part = Part("step-logs.csv holds the figures that the audit computes, event by event")
    number = int(books.settings.published)  # the published replayer counts from 1
    for step, interval in zip(books.time.steps, books.time.intervals, strict=True):
        if step.recorded is None:
            continue
        where = f"event {step.recorded['evt']}"
        part.same(f"{where} evt", step.recorded["evt"], number)
        number += 1
        slack = ROUNDING * max(abs(interval.gross), abs(step.found["Rate"]))
        for name in (*STEP_COLUMNS[1:], *([SAVE_COLUMN] if books.saves else [])):
            if name != "evt":
                rounding = slack if name in ("Thr", SAVE_COLUMN) else 0.0
                measured = books.settings.live and name in _WORK_COLUMNS
                part.same_unless(measured, f"{where} {name}", step.recorded.get(name), step.found[name], rounding)
    return part


def check_attempts(record: RecordedRun, books: Books) -> Part:
    """Every run of a tuned task that ended, in that order: settings, path and cost, as tuning gives them."""
    part = Part("attempts.parquet holds the runs that tuning leads to: batch sizes, limits, energy, time, targets")
    theirs = record.attempts or []
    for group in books.groups.values():
        if group.unknown:
            part.leave_out(_UNKNOWN.format(group.name, " and ".join(group.unknown)))
    part.expect(len(theirs) == len(books.attempts), "{} recorded, {} found", len(theirs), len(books.attempts))
    for number, (row, mine) in enumerate(zip(theirs, books.attempts, strict=False)):
        for name, figure in asdict(mine).items():
            part.same(f"attempt {number} of {row['task']} {name}", row[name], figure)
    return part


def check_power(record: RecordedRun, books: Books) -> Part:
    """Check every piece of constant power: its times, the power of tasks and idle nodes, and the cap."""
    part = Part("power.parquet holds the power drawn at each moment")
    start, end, cap, rows = books.settings.start_ns, books.settings.end_ns, books.settings.cap, record.power or []
    # Before the first event no nodes are idle, and nothing is recorded.
    lasting = [each for at, each in enumerate(books.time.intervals) if each.length_s > 0 and (each.idle or at)]
    begins = [each.begin_s for each in lasting]
    events = [step.time_ns for step in books.time.steps if step.recorded is not None]
    wanted = ((events[0] - start) / NS, (end - start) / NS) if events and events[0] < end else None
    part.expect(bool(rows) == bool(wanted), "{} pieces", len(rows))
    if rows and wanted:
        part.same("begin of the first piece", rows[0]["begin_s"], wanted[0])
        part.same("end of the last piece", rows[-1]["end_s"], wanted[1])
    for number, row in enumerate(rows):
        where, middle_s = f"piece {number}", (row["begin_s"] + row["end_s"]) / 2.0
        part.same(f"{where} begin", row["begin"], start + round(row["begin_s"] * NS))
        part.same(f"{where} end", row["end"], start + round(row["end_s"] * NS))
        part.expect(row["end_s"] > row["begin_s"], "{}: ends before it begins", where)
        part.same(f"{where} cap_w", row["cap_w"], None if cap is None else cap.at(row["begin_s"]))
        if number:
            part.same(f"{where} begins where the last one ends", row["begin_s"], rows[number - 1]["end_s"])
        place = bisect_right(begins, middle_s) - 1
        if not part.expect(0 <= place < len(lasting) and middle_s <= lasting[place].end_s, "{}: too late", where):
            continue
        interval = lasting[place]
        part.expect(row["begin_s"] > interval.begin_s - 1e-5, "{}: begins before {:.9g} s", where, interval.begin_s)
        for name, figure in (("tasks_w", interval.tasks_w(middle_s)), ("idle_w", interval.idle_w)):
            part.same(f"{where} {name}", row[name], figure)
        edges = interval.edges()
        inside = [edge for edge in edges if row["begin_s"] + 1e-5 < edge < row["end_s"] - 1e-5]
        drawn = {interval.tasks_w((one + two) / 2) for one, two in pairwise([row["begin_s"], *inside, row["end_s"]])}
        same = all(close(each, next(iter(drawn))) for each in drawn)
        part.expect(same, "{}: power changes within it, at {}", where, inside)
    return part


def check_cap(books: Books) -> Part:
    """Check the recomputed power against the given cap, at every instant."""
    part, cap = Part("power never exceeds the cap, at any instant"), books.settings.cap
    assert cap is not None
    for interval in books.time.intervals:
        for begin, end, tasks_w in interval.pieces():
            drawn = books.settings.pue * (tasks_w + interval.idle_w)
            for one, _, most in cap.pieces(begin, end):
                within = drawn <= most or close(drawn, most)
                part.expect(within, "{:.6g} s after the start: {:.6g} W of {:.6g} W", one, drawn, most)
    return part
