"""Tables of a replay in the compiled core, made of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import solvers
from bftrainer.model.columns import Coded, Lists, Table, list_offsets
from bftrainer.model.records import (
    AllocationChange,
    Columns,
    DecisionRecord,
    EventRecord,
    Overrun,
    Recording,
    TaskRecord,
)
from bftrainer.replay.allocator import Allocator
from bftrainer.replay.allocator_settings import Floats
from bftrainer.replay.observers import WINDOW_START, known_time
from solvers.problem import STEPS

HELD, REASONS = tuple(solvers.Held), tuple(solvers.StopReason)


@dataclass(frozen=True, slots=True, eq=False)
class CoreRecords:
    """Tables of a replay, made of the core's columns and of the results of what it asked."""

    allocator: Allocator
    columns: Columns
    results: Sequence[solvers.SolveResult]

    def recording(self, books: Columns, reason: str) -> Recording:
        """Everything that happened."""
        changes = Table(
            AllocationChange,
            {
                "time_s": self.columns["change.time_s"],
                "task": self.columns["change.task"],
                "nodes": Lists(self.columns["change.nodes"], list_offsets(self.columns["change.size"])),
            },
        )
        return Recording(self._timeline(), self._decisions(), changes, tuple(self._tasks(books)), reason)

    def _of(self, kind: str, *names: str) -> dict[str, Any]:
        return {name: self.columns[f"{kind}.{name}"] for name in names}

    def _timeline(self) -> Table[EventRecord]:
        late = Table(Overrun, self._of("overrun", "task", "rate", "reached_s", "idle_from_s"))
        sizes = self.columns["event.active"]
        figures = ("number", "time_s", "elapsed_s", "gross", "rescale_booked", "preemption_cost", "rate")
        events = Table(
            EventRecord,
            {
                **self._of("event", *figures, "rescale_cost"),
                "saving_cost": np.zeros(sizes.size),
                **self._of("event", "left", "joined", "preempted", "idle", "running", "used"),
                "tasks": Lists(self.columns["event.tasks"], list_offsets(sizes)),
                "overruns": Lists(
                    late, list_offsets(np.bincount(self.columns["overrun.record"], minlength=sizes.size))
                ),
            },
        )
        if not len(events) or events["time_s"][0] <= 0.0:
            return events
        return Table.joined(EventRecord, [Table.of(EventRecord, [WINDOW_START]), events])

    def _decisions(self) -> Table[DecisionRecord]:
        sizes, records = self.columns["event.active"], self.columns["decision.record"]
        offsets = list_offsets(sizes[records])
        held, by = self.columns["decision.held"], self.columns["decision.decided_by"]
        found = self._of("decision", "event", "time_s", "solve_s", "bound")
        value = self.columns["decision.value"]
        asked = np.flatnonzero(self.columns["decision.asked"])
        solver = np.zeros(records.size, dtype=np.int32)
        names = tuple(dict.fromkeys((self.allocator.solver.name, *(result.solver for result in self.results))))
        solver[asked] = [names.index(result.solver) for result in self.results]
        backend_s = np.where(by == STEPS.index(solvers.DecidedBy.BACKEND), found["solve_s"], np.nan)
        make = np.full if self.results else _constant
        size = {name: make(records.size, -1, dtype=np.int64) for name in ("model_rows", "model_columns")}
        for place, result in zip(asked.tolist(), self.results, strict=True):
            backend_s[place] = np.nan if result.backend_s is None else result.backend_s
            for name, column in size.items():
                given = getattr(result, name)
                column[place] = -1 if given is None else given
        return Table(
            DecisionRecord,
            {
                **found,
                **size,
                "nodes": self.columns["decision.nodes"],
                "tasks": Lists(self._decided_tasks(records), offsets),
                "before": Lists(self.columns["decision.before"], offsets),
                "after": Lists(self.columns["decision.after"], offsets),
                "objective": value,
                "gap": _gaps(held, value, found["bound"]),
                "stop_reason": Coded(self.columns["decision.stop_reason"], REASONS),
                "held": Coded(held, HELD),
                "solver": Coded(solver, names),
                "decided_by": Coded(by, STEPS),
                "backend_s": backend_s,
            },
        )

    def _decided_tasks(self, records: NDArray[np.int64]) -> NDArray[np.int32]:
        """Active tasks of the events that have decisions, one event after the other."""
        sizes, tasks = self.columns["event.active"], self.columns["event.tasks"]
        first, last = (int(records[0]), int(records[-1]) + 1) if records.size else (0, 0)
        begin = int(sizes[:first].sum(dtype=np.int64))
        part = tasks[begin : begin + int(sizes[first:last].sum(dtype=np.int64))]
        if records.size == last - first:
            return part
        decided = np.zeros(last - first, dtype=np.bool_)
        decided[records - first] = True
        return part[np.repeat(decided, sizes[first:last])]

    def _tasks(self, books: Columns) -> Iterator[TaskRecord]:
        lists = {name: values.tolist() for name, values in books.items()}
        work, started_s, completed_s = lists.pop("work"), lists.pop("started_s"), lists.pop("completed_s")
        submit_s = self.allocator.state.submit_s.tolist()
        for number, spec in enumerate(self.allocator.state.specs):
            yield TaskRecord(
                spec=spec,
                submitted_s=submit_s[number],
                started_s=known_time(started_s[number]),
                completed_s=known_time(completed_s[number]),
                work_done=work[number],
                work_total=spec.work,
                **{name: values[number] for name, values in lists.items()},
            )


def _constant(size: int, value: int, dtype: type[np.generic]) -> NDArray[Any]:
    """The same value everywhere, in the memory of one."""
    return np.broadcast_to(np.array(value, dtype=dtype), size)


def _gaps(held: NDArray[Any], value: Floats, bound: Floats) -> Floats:
    """`solvers.SolveResult.gap` of each decision."""
    excess = bound - value
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.where(excess <= 0.0, 0.0, np.where(value == 0.0, np.inf, excess / np.abs(value)))
    gap[held == HELD.index(solvers.Held.OPTIMAL)] = 0.0
    gap[held == HELD.index(solvers.Held.NOTHING)] = np.nan
    return gap
