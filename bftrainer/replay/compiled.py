"""Replays in the compiled core, where it can run them, and otherwise in the general loop: the same records.

The core replays plain tasks under a static objective without power caps. It decides itself what the solver `dp` would
and what exact pruning decides; whatever else there is to decide it asks the allocator's solver.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from types import ModuleType
from typing import Any, Literal

import numpy as np

import solvers
from bftrainer._core import core
from bftrainer.errors import BftrainerError
from bftrainer.model import Decision, RowTable, TaskState, is_static
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
# The clock is not read and Python's signals are not handled within a step, so any number of steps will do.
STEPS_AT_ONCE = 2**40
# Sums of values up to this one are finite in any order.
LARGEST_SUM = 1e300


def recorded(
    rows: RowTable,
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
    ends = {"end_s": end_s, "until_s": until_s, "max_events": -1 if max_events is None else max_events}
    state = _core_replay(core, rows, allocator, table, by_rows_only=decide_on == "nodes", **ends)
    results = []
    while (progress := state.run(STEPS_AT_ONCE, interrupted)) != 2:
        if progress == 1:
            results.append(_answered(state, allocator))
    columns = {name: np.asarray(values) for name, values in state.columns().items()}
    books = {name: np.frombuffer(values, dtype=_book_type(name)) for name, values in state.books().items()}
    return _Records(allocator, columns, results).recording(books, state.reason), "compiled"


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


def _core_replay(core: ModuleType, rows: RowTable, allocator: Allocator, credit: list[Floats], **others: Any) -> Any:
    """Make the core's replay of an allocator's tasks; `others` are the ends, and whether rows alone are events."""
    settings, specs, submit_s = allocator.settings, allocator.state.specs, allocator.state.submit_s
    limits = settings.limits
    return core.Replay(
        row_s=rows.time_s,
        row_from=rows.first,
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
        max_tasks=settings.max_tasks,
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


def _slices(sizes: list[int]) -> Iterator[slice]:
    """Slices of these sizes, one after the other."""
    return (slice(begin, end) for begin, end in pairwise(accumulate(sizes, initial=0)))


class _Records:
    """Records of a replay, made of the core's columns, and of the results of what it asked."""

    def __init__(self, allocator: Allocator, columns: Columns, results: Sequence[solvers.SolveResult]) -> None:
        self.names, self.specs = allocator.node_names, allocator.state.specs
        self.submit_s, self.solver = allocator.state.submit_s, allocator.solver.name
        self.columns, self.results = columns, results

    def recording(self, books: Columns, reason: str) -> Recording:
        """Everything that happened."""
        tasks = self.columns["event.tasks"].tolist()
        active = [tuple(tasks[some]) for some in _slices(self.columns["event.active"].tolist())]
        nodes, sizes = self.columns["change.nodes"], self.columns["change.size"].tolist()
        moved = [nodes[some] for some in _slices(sizes)]
        changes = zip(self.columns["change.time_s"].tolist(), self.columns["change.task"].tolist(), moved, strict=True)
        return Recording(
            tuple(self._timeline(active)),
            tuple(self._decisions(active, moved)),
            tuple([AllocationChange(*change) for change in changes]),
            tuple(self._tasks(books)),
            reason,
        )

    def _listed(self, kind: str, *names: str) -> list[list[Any]]:
        return [self.columns[f"{kind}.{name}"].tolist() for name in names]

    def _timeline(self, active: list[tuple[int, ...]]) -> Iterator[EventRecord]:
        late: defaultdict[int, list[Overrun]] = defaultdict(list)
        overruns = self._listed("overrun", "record", "task", "rate", "reached_s", "idle_from_s")
        for record, *overrun in zip(*overruns, strict=True):
            late[record].append(Overrun(*overrun))
        before = ("number", "time_s", "elapsed_s", "gross", "rescale_booked", "preemption_cost", "rate", "rescale_cost")
        columns = self._listed("event", *before, "left", "joined", "preempted")
        after = self._listed("event", "idle", "running", "used")
        if columns[1] and columns[1][0] > 0.0:
            yield WINDOW_START
        noticed = [tuple(late.get(record, ())) for record in range(len(active))]
        for fields in zip(*columns, active, *after, noticed, strict=True):
            yield EventRecord(*fields)

    def _decisions(self, active: list[tuple[int, ...]], moved: list[Any]) -> Iterator[DecisionRecord]:
        moves = self._moves(moved)
        records, events = self._listed("decision", "record", "event")
        before, after, times, nodes = self._listed("decision", "before", "after", "time_s", "nodes")
        parts = _slices([len(active[record]) for record in records])
        results = self._results(records, active)
        names = [spec.name for spec in self.specs]
        for number, (record, part) in enumerate(zip(records, parts, strict=True)):
            added, removed = moves.get(number, ({}, {}))
            decision = Decision(
                time_s=times[number],
                nodes=nodes[number],
                tasks=tuple([names[task] for task in active[record]]),
                before=tuple(before[part]),
                after=tuple(after[part]),
                added=added,
                removed=removed,
                result=next(results),
            )
            yield DecisionRecord(events[number], decision)

    def _moves(self, moved: list[Any]) -> dict[int, tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]]:
        """Names of the nodes that each decision adds to and removes from tasks."""
        found: dict[int, tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]] = {}
        columns = self._listed("change", "decision", "task", "origin")
        for decision, to, origin, nodes in zip(*columns, moved, strict=True):
            if decision >= 0:
                sides = found.setdefault(decision, ({}, {}))
                task = self.specs[max(to, origin)].name
                sides[to < 0][task] = tuple([self.names[node] for node in nodes.tolist()])
        return found

    def _results(self, records: list[int], active: list[tuple[int, ...]]) -> Iterator[solvers.SolveResult]:
        """What each decision's solver answered, or would have, where the core decided."""
        names = ("asked", "value", "bound", "solve_s", "stop_reason", "held", "decided_by")
        after = self.columns["decision.after"].tolist()
        parts = _slices([len(active[record]) for record in records])
        asked = iter(self.results)
        for record, part, row in zip(records, parts, zip(*self._listed("decision", *names), strict=True), strict=True):
            was_asked, value, bound, solve_s, reason, held, step = row
            if was_asked:
                yield next(asked)
                continue
            counts = choices = None
            if HELD[held] is not solvers.Held.NOTHING:
                counts = tuple(after[part])
                pairs = zip(counts, active[record], strict=True)
                choices = tuple([count and count - self.specs[task].min_nodes + 1 for count, task in pairs])
            yield solvers.SolveResult(
                counts=counts,
                objective=value,
                bound=bound,
                stop_reason=REASONS[reason],
                held=HELD[held],
                solver=self.solver,
                solve_s=solve_s,
                choices=choices,
                decided_by=STEPS[step],
                backend_s=solve_s if STEPS[step] is solvers.DecidedBy.BACKEND else None,
            )

    def _tasks(self, books: Columns) -> Iterator[TaskRecord]:
        lists = {name: values.tolist() for name, values in books.items()}
        work, started_s, completed_s = lists.pop("work"), lists.pop("started_s"), lists.pop("completed_s")
        for number, spec in enumerate(self.specs):
            yield TaskRecord(
                spec=spec,
                submitted_s=float(self.submit_s[number]),
                started_s=known_time(started_s[number]),
                completed_s=known_time(completed_s[number]),
                work_done=work[number],
                work_total=spec.work,
                **{name: values[number] for name, values in lists.items()},
            )
