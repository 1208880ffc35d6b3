"""Replays in the compiled core, where it can run them, and otherwise in the general loop: the same records.

The core replays plain tasks under a static objective without power caps. It decides itself what the solver `dp` would
and what exact pruning decides; whatever else there is to decide it asks the allocator's solver.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import solvers
from bftrainer._core import core
from bftrainer.errors import BftrainerError
from bftrainer.files import mapped
from bftrainer.files.mapped import GrowingColumns, release_mapped
from bftrainer.model import RowArrays, TaskState, is_static
from bftrainer.model.columns import Coded, Lists, Table
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
from bftrainer.replay.allocator_settings import INITIAL_EMPTY, INITIAL_RANDOM, Floats
from bftrainer.replay.engine import DecideOn, replay
from bftrainer.replay.observers import WINDOW_START, Observer, Recorder, known_time
from bftrainer.replay.option_tables import OptionTables
from solvers.problem import STEPS

Engine = Literal["compiled", "general"]

# Who decides in the core: its programme, its pruning where that leaves one allocation, or nobody.
DECIDERS = {"programme": 0, "pruning": 1}
ASKING = 2
HELD, REASONS = tuple(solvers.Held), tuple(solvers.StopReason)
# Records are taken from the core after so many instants.
STEPS_AT_ONCE = 1 << 16
COUNTS = ("decision.nodes", *(f"event.{name}" for name in ("left", "joined", "preempted", "idle", "running", "used")))
# No replay has as many events; larger numbers of them are as good as none.
NO_END = 2**62
# Sums of values up to this one are finite in any order.
LARGEST_SUM = 1e300


def recorded(
    rows: RowArrays,
    end_s: float,
    allocator: Allocator,
    *,
    decide_on: DecideOn = "all",
    until_s: float = math.inf,
    max_events: int | None = None,
    power_caps_w: Sequence[tuple[float, float]] = (),
    observers: Sequence[Observer] = (),
    interrupted: Callable[[], bool] = lambda: False,
) -> tuple[Recording, Engine]:
    """Replay `rows` as `bftrainer.replay.replay` does; return the record, and which engine made it.

    The core takes new allocators alone, and leaves them as they are.
    """
    table = None if observers or power_caps_w else _credits_for_core(allocator)
    if core is None or table is None:
        recorder = Recorder()
        replay(
            rows.rows(),
            end_s,
            allocator,
            decide_on=decide_on,
            until_s=until_s,
            max_events=max_events,
            power_caps_w=power_caps_w,
            observers=[recorder, *observers],
            interrupted=interrupted,
        )
        return recorder.recording, "general"
    ends = {"end_s": end_s, "until_s": until_s, "max_events": -1 if max_events is None else min(max_events, NO_END)}
    state = _core_replay(core, rows, allocator, table, by_rows_only=decide_on == "nodes", **ends)
    results, columns = [], GrowingColumns(mapped.MOST_BYTES)
    while (progress := state.run(STEPS_AT_ONCE, interrupted)) != 2:
        if progress == 1:
            results.append(_answered(state, allocator))
        else:
            columns.add(_recorded(state))
            release_mapped()
    columns.add(_recorded(state))
    books = {name: np.frombuffer(values, dtype=_book_type(name)) for name, values in state.books().items()}
    return _Records(allocator, columns.joined(), results).recording(books, state.reason), "compiled"


def _recorded(state: Any) -> dict[str, NDArray[Any]]:
    """What was recorded since the last call, counts as they are wanted."""
    columns = {name: np.asarray(values) for name, values in state.columns().items()}
    return columns | {name: columns[name].astype(np.int64) for name in COUNTS}


def _credits_for_core(allocator: Allocator) -> list[Floats] | None:
    """Credit of each task at 0 to its maximum of nodes; None if the core cannot replay this."""
    settings, state = allocator.settings, allocator.state
    objective = settings.objective
    if core is None or not is_static(objective) or getattr(objective, "constraints", None) is not None:
        return None
    plain = all(spec.tuning is None and spec.run is None for spec in state.specs)
    fresh = state.time_s == 0.0 and state.pool == 0 and not state.active.size
    capped = math.isfinite(allocator.power_cap_w)
    if not (plain and fresh) or capped or allocator.is_tuned or settings.initial == INITIAL_RANDOM:
        return None
    tables = OptionTables(settings, allocator.start_ns, {})
    found, largest = [], 0.0
    try:
        for spec, submit_s in zip(state.specs, state.submit_s.tolist(), strict=True):
            credit = tables.credit(TaskState(spec, 0, 0.0, submit_s, allocator.start_ns), 0.0)
            span_s = settings.forward_time_s + spec.grow_cost_s + spec.shrink_cost_s
            largest += float(np.abs(credit).max()) * span_s
            found.append(np.ascontiguousarray(credit))
    except BftrainerError:
        # The general loop raises it when the task is admitted, which it may never be.
        return None
    return found if largest < LARGEST_SUM else None


def _core_replay(core: ModuleType, rows: RowArrays, allocator: Allocator, credit: list[Floats], **others: Any) -> Any:
    """Make the core's replay of an allocator's tasks; `others` are the ends, and whether rows alone are events."""
    settings, specs, submit_s = allocator.settings, allocator.state.specs, allocator.state.submit_s
    limits = settings.limits
    return core.Replay(
        row_s=rows.time_s,
        row_from=rows.start,
        node=rows.node,
        idle=rows.idle,
        nodes=len(allocator.node_names),
        submit_s=submit_s,
        order=submit_s.argsort(kind="stable"),
        min_nodes=np.array([spec.min_nodes for spec in specs], dtype=np.int64),
        max_nodes=np.array([spec.max_nodes for spec in specs], dtype=np.int64),
        work=np.array([spec.work for spec in specs], dtype=np.float64),
        grow_cost_s=np.array([spec.grow_cost_s for spec in specs], dtype=np.float64),
        shrink_cost_s=np.array([spec.shrink_cost_s for spec in specs], dtype=np.float64),
        credits=credit,
        rates=[spec.rates for spec in specs],
        max_tasks=min(settings.max_tasks, max(1, len(specs))),
        forward_s=settings.forward_time_s,
        time_limit_s=limits.time_s,
        gap=limits.gap,
        prune=limits.prune,
        noticed=settings.completions == "noticed",
        full_startup=settings.startup_cost == "full",
        first_empty=settings.initial == INITIAL_EMPTY,
        decider=_decider(allocator.solver, limits),
        **others,
    )


def _decider(solver: solvers.Solver, limits: solvers.Limits) -> int:
    """Who decides: for this package's own solvers the core as far as it can, for others nobody but they."""
    step = getattr(solver, "core_step", "") if type(solver).__module__.partition(".")[0] == "solvers" else ""
    return DECIDERS.get(step, ASKING) if step != "pruning" or limits.prune else ASKING


def _answered(state: Any, allocator: Allocator) -> solvers.SolveResult:
    """Have the allocator's solver answer what the core asks."""
    nodes, tasks, held, values = state.asked()
    specs = allocator.state.specs
    options = []
    for number, count, worth in zip(tasks, held, values, strict=True):
        least, most = specs[number].min_nodes, specs[number].max_nodes
        counts = solvers.counts_on_offer(least, most)
        options.append(solvers.TaskOptions(counts, np.frombuffer(worth), count, least, most))
    result = allocator.solve(solvers.AllocationProblem(tuple(options), nodes))
    codes = HELD.index(result.held), REASONS.index(result.stop_reason), STEPS.index(result.decided_by)
    state.answer(result.counts, result.objective, result.bound, *codes, result.solve_s)
    return result


def _book_type(name: str) -> type[np.generic]:
    return np.int64 if name in ("rescales", "preemptions") else np.float64


@dataclass(frozen=True, slots=True, eq=False)
class _Records:
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
                "nodes": Lists(self.columns["change.nodes"], _offsets(self.columns["change.size"])),
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
                **self._of("event", "left", "joined", "preempted", "idle", "running", "used"),
                "tasks": Lists(self.columns["event.tasks"], _offsets(sizes)),
                "overruns": Lists(late, _offsets(np.bincount(self.columns["overrun.record"], minlength=sizes.size))),
            },
        )
        if not len(events) or events["time_s"][0] <= 0.0:
            return events
        return Table.joined(EventRecord, [Table.of(EventRecord, [WINDOW_START]), events])

    def _decisions(self) -> Table[DecisionRecord]:
        sizes, records = self.columns["event.active"], self.columns["decision.record"]
        offsets = _offsets(sizes[records])
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


def _offsets(sizes: NDArray[Any]) -> NDArray[np.int64]:
    """Where lists of these lengths begin, and the last one ends."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def _gaps(held: NDArray[Any], value: Floats, bound: Floats) -> Floats:
    """`solvers.SolveResult.gap` of each decision."""
    excess = bound - value
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.where(excess <= 0.0, 0.0, np.where(value == 0.0, np.inf, excess / np.abs(value)))
    gap[held == HELD.index(solvers.Held.OPTIMAL)] = 0.0
    gap[held == HELD.index(solvers.Held.NOTHING)] = np.nan
    return gap
