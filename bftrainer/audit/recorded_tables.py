"""Compare the run's tables with the books: tasks, step log, attempts, power."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from bftrainer.audit.accounts import Account
from bftrainer.audit.books import Books
from bftrainer.audit.input_files import NS
from bftrainer.audit.parts import ROUNDING, Part, close
from bftrainer.audit.recorded_run import SAVE_COLUMN, STEP_COLUMNS, RecordedRun

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
