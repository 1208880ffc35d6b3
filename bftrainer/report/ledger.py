"""Ledger of node-time: where the time went that nodes were idle, in parts of one whole, and what limited a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.model.columns import Table
from bftrainer.model.records import EventRecord, Recording, TaskRecord
from bftrainer.model.task import TaskSpec
from bftrainer.report.finished_run import FinishedRun
from bftrainer.report.glossary import format_value

HELD = ("useful", "rescaling", "preemption", "saving", "given_back", "below_best")
"""Parts of the node-time that tasks held."""
FREE = ("not_offered", "capped", "declined", "admission", "demand")
"""Parts of the node-time that nobody held, in the order in which they are attributed."""
PARTS = HELD + FREE
LIMITING = 0.01
"""Share of the idle node-time from which on what cost it is said to have limited the run."""
_LIMITS = {
    "rescaling": "growing and shrinking cost {} of the idle node-time; a larger -Tfwd changes less often",
    "preemption": "work lost as nodes were taken back cost {} of the idle node-time; --offer-after leaves out nodes "
    "that are idle only briefly",
    "saving": "checkpoints took {} of the idle node-time; tasks may save less often",
    "below_best": "{} of the idle node-time was held at counts at which a node does less than it could; a larger -maxJ "
    "spreads nodes over more tasks",
    "not_offered": "{} of the idle node-time was withheld; a smaller --offer-after offers more",
    "capped": "the power cap forbade {} of the idle node-time",
    "declined": "decisions left {} of the idle node-time free, for costs or minima; a larger -Tfwd, or tasks with a "
    "smaller minimum, use more",
    "admission": "too few tasks were admitted at once: {} of the idle node-time would have suited waiting ones; a "
    "larger -maxJ admits more",
    "demand": "there were too few tasks: {} of the idle node-time was wanted by none",
    "pool": "the idle nodes themselves",
}

Floats = NDArray[np.float64]


def best_rate(spec: TaskSpec) -> float:
    """Largest throughput per node that a task can have: r, in work per node-second."""
    counts = np.arange(spec.min_nodes, spec.max_nodes + 1)
    return float((spec.rates[spec.min_nodes :] / counts).max())


def held_parts(task: TaskRecord) -> dict[str, float]:
    """Parts of the node-seconds that a task held, which add up to them.

    Work is converted to node-seconds by the task's `best_rate`. Useful is negative where costs exceed the work.
    What a tuned task did in earlier tries is converted by the rate of its last one.
    """
    rate = best_rate(task.spec)
    works = (task.work_done, task.rescale_cost, task.preemption_cost, task.saving_cost, task.give_back_cost)
    parts = [work / rate if rate else 0.0 for work in works]
    return dict(zip(HELD, (*parts, task.node_s - math.fsum(parts)), strict=True))


def ledger_of(recording: Recording, not_offered_node_s: float = 0.0) -> dict[str, float | None]:
    """Ledger of a replay: the idle node-seconds of its window, and each of `PARTS` as a share of them.

    Parameters
    ----------
    recording : Recording
    not_offered_node_s : float
        Idle node-seconds that were withheld from the replay, and are not in its pool.

    Returns
    -------
    dict
        `idle_node_s`, then shares that add up to 1; None without idle nodes. *Given back* is left out where nodes that
        leave are not chosen.

    Notes
    -----
    At each instant free nodes are attributed in the order of `FREE`, each part at most what is left. *Capped* is what
    active tasks still lack while the power that is left under a cap does not feed one more node like those that they
    hold; *declined*, what active tasks lack of their most nodes, which decisions left free for costs or minima;
    *admission*, the sum of the most nodes of tasks that wait; *demand*, all else. Declined comes first: where a start
    does not pay for active tasks, admitting more of them would change nothing.
    """
    timeline, tasks = recording.timeline, recording.tasks
    begun, length_s = timeline.rows(0, len(timeline) - 1), timeline["elapsed_s"][1:]
    most = np.array([task.spec.max_nodes for task in tasks], dtype=np.float64)
    active, waiting = _count_wanted(begun, tasks, most)
    used, rest = begun["used"].astype(np.float64), (begun["idle"] - begun["used"]).astype(np.float64)
    lacking = np.maximum(active - used, 0.0)
    free = [not_offered_node_s]
    for wanted in (np.where(_is_capped(recording, begun["time_s"], used), lacking, 0.0), lacking, waiting, np.inf):
        part = np.minimum(rest, wanted)
        rest = rest - part
        free.append(math.fsum(part * length_s))
    held = [held_parts(task) for task in tasks if task.node_s or task.started_s is not None or task.work_done]
    node_s = {name: math.fsum(parts[name] for parts in held) for name in HELD} | dict(zip(FREE, free, strict=True))
    if all(task.give_backs is None for task in tasks):
        del node_s["given_back"]
    total = math.fsum(begun["idle"] * length_s) + not_offered_node_s
    return {"idle_node_s": total, **{name: part_s / total if total else None for name, part_s in node_s.items()}}


def _count_wanted(begun: Table[EventRecord], tasks: tuple[TaskRecord, ...], most: Floats) -> tuple[Floats, Floats]:
    """Most nodes of all active tasks, and of all that wait although they were submitted, from each event on."""
    running, admitted = np.zeros(len(begun)), np.zeros(len(begun))
    is_known, place = np.zeros(most.size, dtype=np.bool_), 0
    for part in begun.parts():
        active = part["tasks"]
        sums = np.append(0.0, np.cumsum(most[active.values]))
        running[place : place + len(part)] = sums[active.offsets[1:]] - sums[active.offsets[:-1]]
        numbers, first = np.unique(active.values, return_index=True)
        is_new = ~is_known[numbers]
        is_known[numbers] = True
        rows = np.searchsorted(active.offsets, first[is_new], side="right") - 1
        np.add.at(admitted, place + rows, most[numbers[is_new]])
        place += len(part)
    order = np.argsort([task.submitted_s for task in tasks], kind="stable")
    submitted_s = np.array([task.submitted_s for task in tasks])[order]
    submitted = np.append(0.0, np.cumsum(most[order]))[np.searchsorted(submitted_s, begun["time_s"], side="right")]
    return running, np.maximum(submitted - np.cumsum(admitted), 0.0)


def _is_capped(recording: Recording, time_s: Floats, used: Floats) -> NDArray[np.bool_]:
    """Whether, from each time on, a cap leaves less power than one more node would draw on average."""
    decisions = recording.decisions
    cap_w = decisions["cap_w"]
    if not np.isfinite(cap_w).any():
        return np.zeros(time_s.size, dtype=np.bool_)
    last = np.searchsorted(decisions["time_s"], time_s, side="right") - 1
    drawn_w, cap_w = (np.where(last < 0, np.nan, column[last]) for column in (decisions["drawn_w"], cap_w))
    return np.asarray(np.isfinite(cap_w) & ((used == 0) | (cap_w - drawn_w < drawn_w / np.maximum(used, 1.0))))


def limited_by(ledger: Mapping[str, float | None]) -> str | None:
    """What limited a run most: the largest of `PARTS` but the useful one, or the ``pool``; None without idle nodes."""
    if not ledger.get("idle_node_s"):
        return None
    shares = {name: ledger.get(name) or 0.0 for name in PARTS[1:]}
    largest = max(shares, key=lambda name: shares[name])
    return largest if shares[largest] >= LIMITING else "pool"


def is_short_of_tasks(summary: Mapping[str, Any]) -> bool:
    """Whether idle nodes were wanted by no task at times, as then by as many dedicated ones: U says little."""
    return ((summary.get("ledger") or {}).get("demand") or 0.0) >= LIMITING


def ledger_share(run: FinishedRun, part: str) -> float | None:
    """Share of a part of a run's ledger; None if there were no idle nodes, or an earlier version made the run."""
    return (run.summary.get("ledger") or {}).get(part)


def limit_in_words(summary: Mapping[str, Any]) -> str | None:
    """What limited a run, from its summary; None where that is unknown."""
    ledger, limit = summary.get("ledger") or {}, summary.get("limited_by")
    return None if limit not in _LIMITS else _LIMITS[limit].format(format_value(ledger.get(limit), "share"))


def more_tasks_in_words(summary: Mapping[str, Any]) -> str | None:
    """What more tasks at once would have done; None where few of them did not limit the run.

    Examples
    --------
    >>> level = {"work_done": 110.0, "window_s": 60.0, "tasks_completed": 2}
    >>> run = {"tasks_total": 9, "tasks_completed": 1, "work_done": 100.0, "window_s": 60.0, "max_tasks": 10}
    >>> more_tasks_in_words(run | {"more_tasks": {"levels": {"30": level}}})
    '30 would have done 10.00 % more work'
    """
    if (levels := (summary.get("more_tasks") or {}).get("levels")) is None:
        return None
    if not levels:
        return "more may do more: try a larger -maxJ, as 30 or 70 (not tried here, as the run is too large)"
    texts = []
    for level, other in levels.items():
        if summary["tasks_completed"] == summary["tasks_total"] == other["tasks_completed"]:
            sooner = 1.0 - other["window_s"] / summary["window_s"]
            text = f"been done {format_value(abs(sooner), 'share')} {'sooner' if sooner >= 0 else 'later'}"
        else:
            more = other["work_done"] / summary["work_done"] - 1.0 if summary["work_done"] else 0.0
            text = f"done {format_value(abs(more), 'share')} {'more' if more >= 0 else 'less'} work"
        texts.append(f"{level} would have {text}")
    return ", ".join(texts)


def learned_in_words(summary: Mapping[str, Any]) -> str | None:
    """What decisions learned of how tasks scale; None if they knew it."""
    if (tasks := summary.get("learned_tasks")) is None:
        return None
    errors = [summary.get("learned_error"), summary.get("learned_error_used")]
    used, mean = (format_value(each, "share") for each in reversed(errors))
    text = f"curves of {tasks:,} of {summary['tasks_total']:,} tasks, in {summary['learned_probes']:,} probes"
    is_known = errors != [None, None]  # what curves truly are, which nobody knows of real tasks
    return f"{text}; error at the end {used} where tasks ran, {mean} over all counts" if is_known else text
