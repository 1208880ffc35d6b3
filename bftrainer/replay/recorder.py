"""The recorder of a replay: everything that happened, as columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from bftrainer.model.columns import Coded, Lists, Table, list_offsets
from bftrainer.model.decision import BeliefRecord
from bftrainer.model.records import AllocationChange, DecisionRecord, EventRecord, Overrun, Recording, TaskRecord
from bftrainer.replay.allocator import Adoption
from bftrainer.replay.cluster import Cluster, ClusterChange, ClusterTask
from bftrainer.replay.loop import Observer
from bftrainer.replay.row_store import RowStore
from solvers.problem import STEPS, Held, SolveResult, StopReason

# The record begins at the window's start, even if the first event is later.
WINDOW_START = [-1, *(0.0,) * 7, 0, 0, 0, 0, 0, 0, 0.0, ()]
EVENT_FIELDS = (
    *("number", "time_s", "elapsed_s", "gross", "rescale_booked", "preemption_cost", "rate", "rescale_cost"),
    *("left", "joined", "preempted", "idle", "running", "used", "saving_cost"),
)
RATE, RESCALE, RUNNING, USED = (EVENT_FIELDS.index(name) for name in ("rate", "rescale_cost", "running", "used"))
DECISION_FIELDS = (
    *("event", "time_s", "nodes", "objective", "bound", "gap", "stop_reason", "held", "solver", "solve_s"),
    *("decided_by", "model_rows", "model_columns", "backend_s", "drawn_w", "cap_w"),
)
DECISION_LISTS: dict[str, DTypeLike]
DECISION_LISTS = {"tasks": np.int32, "before": np.int32, "after": np.int32}
DECISION_LISTS |= {"batch_sizes": np.int64, "power_limits_w": np.int64}
CODES = {"stop_reason": tuple(StopReason), "held": tuple(Held), "decided_by": STEPS}
WHOLE = {
    *("number", "left", "joined", "preempted", "idle", "running", "used"),
    *("event", "nodes", "model_rows", "model_columns", "solver", "task", *CODES),
}
NO_NUMBER = float("nan")


def _types(names: Sequence[str]) -> dict[str, DTypeLike]:
    return {name: np.int64 if name in WHOLE else np.float64 for name in names}


class Recorder(Observer):
    """Keeps everything that happened, as a `Recording`.

    Parameters
    ----------
    place : Path, optional
        Directory for what becomes too much for memory; the system's for temporary files by default.
    """

    def __init__(self, place: Path | None = None) -> None:
        self._events = RowStore(_types(EVENT_FIELDS), {"tasks": np.int32}, place)
        self._decisions = RowStore(_types(DECISION_FIELDS), DECISION_LISTS, place)
        self._moves = RowStore(_types(("time_s", "task")), {"nodes": np.int32}, place)
        self._overruns, self._overrun_rows = list[Overrun](), list[int]()
        self._solvers: dict[str, int] = {}
        self._beliefs: list[BeliefRecord] = []
        self._number: int | None = None
        self._event, self._row, self._active = 0, list[Any](), list[int]()
        self._recording: Recording | None = None

    @property
    def recording(self) -> Recording:
        """The finished record; an error before the replay has ended."""
        if self._recording is None:
            raise RuntimeError("The replay has not ended yet.")
        return self._recording

    def on_event(self, cluster: Cluster, change: ClusterChange) -> None:
        """Record what an instant has changed; rates and costs of a decision come with it, if there is one."""
        if self._number is None:
            self._number = int(cluster.is_published)
            if change.time_s > 0.0:
                self._events.append(WINDOW_START)
        for _, nodes in change.released():
            self._moves.append((change.time_s, -1, nodes), len(nodes))
        if change.admitted or change.completed or change.failed:
            self._active = [task.number for task in cluster.active]
        if change.overruns:
            self._overruns += change.overruns
            self._overrun_rows += [self._events.size] * len(change.overruns)
        tasks = change.tasks
        row = [
            self._number if change.is_event else -1,
            change.time_s,
            change.elapsed_s,
            math.fsum([task.gross for task in tasks]),
            math.fsum([task.rescale_booked for task in tasks]),
            math.fsum([task.preemption_loss for task in tasks]) if change.lost else 0.0,
            0.0,
            0.0,
            change.left,
            change.joined,
            cluster.preempted(change) if change.lost else 0,
            cluster.pool,
            0,
            cluster.pool - len(cluster.free),
            math.fsum([task.saving_loss for task in tasks]),
            self._active,
        ]
        self._events.append(row, len(self._active))
        self._row, self._event = row, self._number - (not change.is_event)
        self._number += change.is_event

    def on_decision(self, cluster: Cluster, adopted: Adoption) -> None:
        """Record a decision, and what it moved."""
        row, rates = self._row, [task.rate for task in adopted.tasks]
        row[RATE], row[RUNNING] = math.fsum(rates), len(rates) - rates.count(0.0)
        if adopted.moves.added or adopted.moves.removed:
            row[RESCALE] = math.fsum([task.pending for task in adopted.tasks])
        row[USED] = cluster.pool - len(cluster.free)
        for _, nodes in adopted.moves.removed:
            self._moves.append((adopted.time_s, -1, nodes), len(nodes))
        for task, nodes in adopted.moves.added:
            self._moves.append((adopted.time_s, task.number, nodes), len(nodes))
        for number, curve in (adopted.beliefs or {}).items():
            for point in zip(curve.nodes, curve.throughput, strict=True):
                self._beliefs.append(BeliefRecord(self._event, cluster.tasks[number].spec.name, *point))
        if adopted.result is not None:
            self._record_result(adopted, adopted.result)

    def _record_result(self, adopted: Adoption, result: SolveResult) -> None:
        rows, columns = result.model_rows, result.model_columns
        self._decisions.append(
            (
                self._event,
                adopted.time_s,
                adopted.nodes,
                result.objective,
                result.bound,
                result.gap,
                _CODE["stop_reason"][result.stop_reason],
                _CODE["held"][result.held],
                self._solvers.setdefault(result.solver, len(self._solvers)),
                result.solve_s,
                _CODE["decided_by"][result.decided_by],
                -1 if rows is None else rows,
                -1 if columns is None else columns,
                NO_NUMBER if result.backend_s is None else result.backend_s,
                NO_NUMBER if adopted.drawn_w is None else adopted.drawn_w,
                NO_NUMBER if adopted.cap_w is None else adopted.cap_w,
                self._active,
                adopted.before,
                adopted.after,
                [-1 if size is None else size for size in adopted.batch_sizes or ()],
                [-1 if limit_w is None else limit_w for limit_w in adopted.power_limits_w or ()],
            ),
            3 * len(self._active),
        )

    def on_end(self, cluster: Cluster, reason: str) -> None:
        """Close the books."""
        if cluster.is_published and cluster.is_finished:
            self._row[RATE] = math.fsum([task.ran for task in cluster.change.tasks])
        codes = CODES | {"solver": tuple(self._solvers)}
        beside = {}
        if self._overruns:
            sizes = np.bincount(np.array(self._overrun_rows, dtype=np.int64), minlength=self._events.size)
            beside["overruns"] = Lists(Table.of(Overrun, self._overruns), list_offsets(sizes))
        self._recording = Recording(
            self._events.table(EventRecord, beside=beside),
            self._decisions.table(DecisionRecord, {name: partial(Coded, names=names) for name, names in codes.items()}),
            self._moves.table(AllocationChange),
            tuple(task_record(task) for task in cluster.tasks),
            reason,
            Table.of(BeliefRecord, self._beliefs),
        )


_CODE = {name: {member: code for code, member in enumerate(members)} for name, members in CODES.items()}


def task_record(task: ClusterTask) -> TaskRecord:
    """Record of a task at the end of a replay."""
    return TaskRecord(
        spec=task.spec,
        submitted_s=task.submitted_s,
        started_s=task.started_s,
        completed_s=task.completed_s,
        work_done=task.earlier_work + task.progress,
        work_total=task.earlier_work + (0.0 if task.stopped else task.spec.work),
        node_s=task.node_s,
        rescales=task.rescales,
        preemptions=task.preemptions,
        rescale_cost=task.rescale_cost,
        preemption_cost=task.preemption_cost,
        saving_cost=task.saving_cost,
    )
