"""Ledger of node-time: where the time went that nodes were idle, in parts of one whole, and what limited a run."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bftrainer.model.columns import Table
from bftrainer.model.records import EventRecord, Recording, TaskRecord
from bftrainer.model.task import TaskSpec
from bftrainer.report.glossary import LIMITING

HELD = ("useful", "rescaling", "preemption", "saving", "given_back", "below_best")
"""Parts of the node-time that tasks held."""
FREE = ("not_offered", "capped", "declined", "admission", "demand")
"""Parts of the node-time that nobody held, in the order in which they are attributed."""
PARTS = HELD + FREE
Floats = NDArray[np.float64]


def best_rate(spec: TaskSpec) -> float:
    """Largest throughput per node that a task can have: r, in work per node-second."""
    counts = np.arange(spec.min_nodes, spec.max_nodes + 1)
    return float((spec.rates[spec.min_nodes :] / counts).max())


def split_held(task: TaskRecord) -> dict[str, float]:
    """Parts of the node-seconds that a task held, which add up to them.

    Work is converted to node-seconds by the task's `best_rate`. Useful is negative where costs exceed the work.
    What a tuned task did in earlier tries is converted by the rate of its last one.
    """
    rate = best_rate(task.spec)
    works = (task.work_done, task.rescale_cost, task.preemption_cost, task.saving_cost, task.give_back_cost)
    node_s = [work / rate if rate else 0.0 for work in works]
    return dict(zip(HELD, (*node_s, task.node_s - math.fsum(node_s)), strict=True))


def ledger_of(recording: Recording, not_offered_node_s: float = 0.0) -> dict[str, float | None]:
    """Ledger of a replay: the idle node-seconds of its window, and each of `PARTS` as a share of them.

    `not_offered_node_s` were withheld from the replay, and are not in its pool. Shares add up to 1, and are None
    without idle nodes; *given back* is left out where nodes that leave are not chosen.

    At each instant free nodes are attributed in the order of `FREE`, each part at most what is left. *Capped* is what
    active tasks still lack while the power that is left under a cap does not feed one more node like those that they
    hold; *declined*, what active tasks lack of their most nodes, which decisions left free for costs or minima;
    *admission*, the sum of the most nodes of tasks that wait; *demand*, all else. Declined comes first: where a start
    does not pay for active tasks, admitting more of them would change nothing.
    """
    timeline, tasks = recording.timeline, recording.tasks
    begins, length_s = timeline.rows(0, len(timeline) - 1), timeline["elapsed_s"][1:]
    most = np.array([task.spec.max_nodes for task in tasks], dtype=np.float64)
    active, waiting = _count_wanted(begins, tasks, most)
    used, unused = begins["used"].astype(np.float64), (begins["idle"] - begins["used"]).astype(np.float64)
    lacking = np.maximum(active - used, 0.0)
    free = [not_offered_node_s]
    for most_nodes in (np.where(_is_capped(recording, begins["time_s"], used), lacking, 0.0), lacking, waiting, np.inf):
        nodes = np.minimum(unused, most_nodes)
        unused = unused - nodes
        free.append(math.fsum(nodes * length_s))
    shares = [split_held(task) for task in tasks if task.node_s or task.started_s is not None or task.work_done]
    node_s = {name: math.fsum(row[name] for row in shares) for name in HELD} | dict(zip(FREE, free, strict=True))
    if all(task.give_backs is None for task in tasks):
        del node_s["given_back"]
    total = math.fsum(begins["idle"] * length_s) + not_offered_node_s
    return {"idle_node_s": total, **{name: share_s / total if total else None for name, share_s in node_s.items()}}


def _count_wanted(begins: Table[EventRecord], tasks: tuple[TaskRecord, ...], most: Floats) -> tuple[Floats, Floats]:
    """Most nodes of all active tasks, and of all that wait although they were submitted, from each event on."""
    running, admitted = np.zeros(len(begins)), np.zeros(len(begins))
    is_known, place = np.zeros(most.size, dtype=np.bool_), 0
    for part in begins.parts():
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
    submitted = np.append(0.0, np.cumsum(most[order]))[np.searchsorted(submitted_s, begins["time_s"], side="right")]
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


def find_limit(ledger: Mapping[str, float | None]) -> str | None:
    """What limited a run most: the largest of `PARTS` but the useful one, or the ``pool``; None without idle nodes."""
    if not ledger.get("idle_node_s"):
        return None
    shares = {name: ledger.get(name) or 0.0 for name in PARTS[1:]}
    largest = max(shares, key=lambda name: shares[name])
    return largest if shares[largest] >= LIMITING else "pool"
