"""The recorder of a replay: everything that happened, as columns."""

from __future__ import annotations

import math
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.model.columns import RowStore
from bftrainer.model.decision import BeliefRecord
from bftrainer.model.records import AllocationChange, DecisionRecord, EventRecord, Recording, TaskRecord
from bftrainer.replay.cluster import Adoption, Cluster, ClusterChange, Observer

# The record begins at the window's start, even if the first event is later.
WINDOW_START = [-1, *(0.0,) * 7, 0, 0, 0, (), 0, 0, 0, (), 0.0, 0.0, 0.0, 0]
_DECIDED = ("rate", "rescale_cost", "running", "used", "give_back_cost", "gave_back")
RATE, RESCALE, RUNNING, USED, GIVE_BACK, GAVE_BACK = map(list(EventRecord.__annotations__).index, _DECIDED)

# Fields of a decision's record, from the sixth on: those of the solver's result, and those of the decision.
OF_RESULT = attrgetter(
    *("objective", "bound", "gap", "stop_reason", "held", "solver", "solve_s", "decided_by"),
    *("model_rows", "model_columns", "backend_s"),
)
OF_TUNED = attrgetter("batch_sizes", "power_limits_w", "drawn_w", "cap_w")


class Recorder(Observer):
    """Keeps everything that happened, as a `Recording`; what becomes too much for memory, in files of a directory.

    Without `details` that is what figures of the whole run are made of: no nodes change hands, and decisions lack tasks
    and counts.
    """

    def __init__(self, folder: Path | None = None, *, details: bool = True) -> None:
        self._events, self._decisions = RowStore(EventRecord, folder), RowStore(DecisionRecord, folder)
        self._moves, self._beliefs = RowStore(AllocationChange, folder), RowStore(BeliefRecord, folder)
        self._number: int | None = None
        self._event, self._row, self._active = 0, list[Any](), np.empty(0, np.int32)
        self._has_details = details
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
            self._number = cluster.first_event
            if change.time_s > 0.0:
                self._events.append(WINDOW_START)
        for nodes in change.list_released_nodes() if self._has_details else ():
            self._moves.append((change.time_s, -1, nodes), len(nodes))
        if change.admitted or change.completed or change.failed:
            self._active = np.array([task.number for task in cluster.active], np.int32)
        tasks = change.tasks
        row = [
            self._number if change.is_event else -1,
            change.time_s,
            change.elapsed_s,
            math.fsum([task.gross for task in tasks]),
            math.fsum([task.rescale_booked for task in change.charged]),
            math.fsum([cluster.tasks[number].preemption_loss for number in change.lost]),
            0.0,
            0.0,
            change.left,
            change.joined,
            cluster.count_preempted(change),
            self._active,
            cluster.pool,
            0,
            cluster.pool - len(cluster.free),
            change.overruns,
            math.fsum([task.saving_loss for task in change.charged]),
            math.fsum([task.give_back_booked for task in change.charged]),
            0.0,
            0,
        ]
        self._events.append(row, len(self._active))
        self._row, self._event = row, self._number - (not change.is_event)
        self._number += change.is_event

    def on_decision(self, cluster: Cluster, adopted: Adoption) -> None:
        """Record a decision, and what it moved."""
        row, rates = self._row, [task.rate for task in adopted.tasks]
        row[RATE], row[RUNNING] = math.fsum(rates), len(rates) - rates.count(0.0)
        if adopted.added or adopted.removed:
            changed = {*adopted.added, *adopted.removed} if adopted.removed else adopted.added
            row[RESCALE] = math.fsum([task.pending for task in changed if not task.is_giving_back])
            gave_back = [task.pending for task in changed if task.is_giving_back]
            row[GIVE_BACK], row[GAVE_BACK] = math.fsum(gave_back), len(gave_back)
        row[USED] = cluster.pool - len(cluster.free)
        if self._has_details:
            for nodes in adopted.removed.values():
                self._moves.append((adopted.time_s, -1, nodes), len(nodes))
            for task, nodes in adopted.added.items():
                self._moves.append((adopted.time_s, task.number, nodes), len(nodes))
        for believed, curve in (adopted.beliefs or {}).items():
            for point in zip(curve.nodes, curve.throughput, strict=True):
                self._beliefs.append((self._event, believed.spec.name, *point))
        result = adopted.result
        if result is not None:
            lists = (self._active, adopted.before, adopted.after) if self._has_details else ((), (), ())
            place = (self._event, adopted.time_s, adopted.nodes, *lists)
            self._decisions.append((*place, *OF_RESULT(result), *OF_TUNED(adopted)), 3 * len(lists[0]))

    def on_end(self, cluster: Cluster, reason: str) -> None:
        """Close the books."""
        if cluster.is_last_rate_repeated and cluster.is_finished:
            self._row[RATE] = math.fsum([task.span_rate for task in cluster.change.tasks])
        is_chosen = cluster.settings.give_way == "chosen"
        tasks = tuple(
            TaskRecord(
                task.spec,
                task.submitted_s,
                task.started_s,
                task.completed_s,
                work_done=task.earlier_work + task.progress,
                work_total=task.earlier_work + (0.0 if task.is_stopped else task.spec.work),
                node_s=task.node_s,
                rescales=task.rescales,
                preemptions=task.preemptions,
                rescale_cost=task.rescale_cost,
                preemption_cost=task.preemption_cost,
                saving_cost=task.saving_cost,
                give_back_cost=task.give_back_cost,
                give_backs=task.give_backs if is_chosen else None,
            )
            for task in cluster.tasks
        )
        events, decisions, moves = self._events.table(), self._decisions.table(), self._moves.table()
        self._recording = Recording(events, decisions, moves, tasks, reason, self._beliefs.table())
