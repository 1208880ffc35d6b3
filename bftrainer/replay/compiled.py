"""Replays in the compiled core, where it can run them, and otherwise in the general loop: the same records.

The core replays plain tasks, which do not save, under a static objective without power caps. It decides itself what the
solver `dp` would and what exact pruning decides; whatever else there is to decide it asks the allocator's solver.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import solvers
from bftrainer._core import core
from bftrainer.errors import BftrainerError, ResumeError
from bftrainer.files import mapped
from bftrainer.files.mapped import GrowingColumns, release_mapped
from bftrainer.model import RowArrays, TaskState, is_static
from bftrainer.model.records import Recording
from bftrainer.replay.allocator import Allocator
from bftrainer.replay.allocator_settings import INITIAL_EMPTY, INITIAL_RANDOM, Floats
from bftrainer.replay.checkpoints import Checkpoints, Snapshots
from bftrainer.replay.core_records import HELD, REASONS, CoreRecords
from bftrainer.replay.engine import DecideOn, replay
from bftrainer.replay.observers import Observer, PowerMeter, Recorder
from bftrainer.replay.option_tables import OptionTables
from solvers.problem import STEPS

Engine = Literal["compiled", "general", "live"]

# Who decides in the core: its programme, its pruning where that leaves one allocation, or nobody.
DECIDERS = {"programme": 0, "pruning": 1}
ASKING = 2
# Records are taken from the core after so many instants.
STEPS_AT_ONCE = 1 << 16
# Where a checkpoint may be due, it is asked for so often.
STEPS_TO_CHECKPOINT = 1 << 6
# What it is told of each task.
_WHOLE, _REAL = ("min_nodes", "max_nodes"), ("work", "grow_cost_s", "shrink_cost_s")
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
    checkpoints: Checkpoints | None = None,
) -> tuple[Recording, Engine]:
    """Replay `rows` as `bftrainer.replay.replay` does; return the record, and which engine made it.

    The core takes new allocators alone, and leaves them as they are. With `checkpoints` the replay goes on from the
    last one, if there is one; of the observers, meters of power alone are brought to it.
    """
    table = None if observers or power_caps_w else _credits_for_core(allocator)
    if core is None or table is None:
        recorder = Recorder()
        replay(
            rows.rows,
            end_s,
            allocator,
            decide_on=decide_on,
            until_s=until_s,
            max_events=max_events,
            power_caps_w=power_caps_w,
            observers=[recorder, *observers],
            interrupted=interrupted,
            snapshots=None if checkpoints is None else _snapshots(checkpoints, allocator, [recorder, *observers]),
        )
        return recorder.recording, "general"
    ends = {"end_s": end_s, "until_s": until_s, "max_events": -1 if max_events is None else min(max_events, NO_END)}
    state = _core_replay(core, rows, allocator, table, by_rows_only=decide_on == "nodes", **ends)
    results: list[solvers.SolveResult] = []
    columns = GrowingColumns(mapped.MOST_BYTES)
    reason = _run_core(state, allocator, columns, results, interrupted, checkpoints)
    books = {name: np.frombuffer(values, dtype=_book_type(name)) for name, values in state.books().items()}
    return CoreRecords(allocator, columns.joined(), results).recording(books, reason), "compiled"


def _snapshots(checkpoints: Checkpoints, allocator: Allocator, observers: Sequence[Observer]) -> Snapshots:
    """Snapshots of an allocator, its tuner, and what records its replay."""
    kept: list[Recorder | PowerMeter] = [each for each in observers if isinstance(each, Recorder | PowerMeter)]
    tables = [table for each in kept for table in each.tables]
    # A replay gets no nodes or tasks that are not known from its start.
    given = allocator.given | {"nodes": allocator.node_names, "tasks": allocator.state.specs}
    given |= {"submit_s": allocator.state.submit_s}
    return Snapshots(checkpoints, [allocator, *allocator.tuners, *kept], tables, given)


def _run_core(
    state: Any,
    allocator: Allocator,
    columns: GrowingColumns,
    results: list[solvers.SolveResult],
    interrupted: Callable[[], bool],
    checkpoints: Checkpoints | None,
) -> str:
    """Run the core's replay to its end, from the last checkpoint on; return why it ended."""
    reason = None if checkpoints is None else _restored(state, columns, results, checkpoints)
    if reason is not None:
        return reason
    known, steps = len(results), 0
    while (progress := _some_steps(state, interrupted, checkpoints)) != 2:
        steps += STEPS_TO_CHECKPOINT if checkpoints else STEPS_AT_ONCE
        if progress == 1:
            results.append(_answered(state, allocator))
        stops = checkpoints is not None and interrupted()
        if checkpoints is not None and (stops or checkpoints.is_due):
            columns.add(_recorded(state))
            _save(checkpoints, columns, results[known:], state.saved())
            known = len(results)
            if stops:
                state.run(1, interrupted)
                break
        elif steps >= STEPS_AT_ONCE:
            columns.add(_recorded(state))
            release_mapped()
            steps = 0
    columns.add(_recorded(state))
    if checkpoints is not None and checkpoints.is_due and state.reason != "interrupted":
        _save(checkpoints, columns, results[known:], state.saved(), state.reason)
    return str(state.reason)


def _some_steps(state: Any, interrupted: Callable[[], bool], checkpoints: Checkpoints | None) -> int:
    """Go on for a while; an interrupt is left to who saves the state before it."""
    if checkpoints is None:
        return int(state.run(STEPS_AT_ONCE, interrupted))
    return int(state.run(STEPS_TO_CHECKPOINT, None))


def _save(
    checkpoints: Checkpoints,
    columns: GrowingColumns,
    results: list[solvers.SolveResult],
    state: bytes,
    reason: str | None = None,
) -> None:
    """Save what is new, and the state."""
    for part in columns.taken():
        checkpoints.save((part, []), None)
    checkpoints.save(({}, results), (state,), reason)


def _restored(
    state: Any, columns: GrowingColumns, results: list[solvers.SolveResult], checkpoints: Checkpoints
) -> str | None:
    """Bring the core's replay to its last checkpoint; return why it had ended, or None if it goes on.

    Raises
    ------
    ResumeError
        If the run was begun without the core.
    """
    saved, reason = None, None
    for records, saved, reason in checkpoints.begun():  # noqa: B007 - the last one counts
        if not isinstance(saved, tuple):
            raise ResumeError("The run was begun without the compiled core; resume it without: BFTRAINER_CORE=0.")
        for part, answered in records:
            columns.add(part)
            results += answered
    if saved is not None:
        state.restore(saved[0])
        for _ in columns.taken():
            pass
    return reason


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
    plain = all(spec.tuning is None and spec.run is None and spec.saves is None for spec in state.specs)
    fresh = state.time_s == 0.0 and state.pool == 0 and not state.active.size
    capped = math.isfinite(allocator.power_cap_w)
    guided = allocator.tuners or allocator.departures or allocator.learning or settings.initial == INITIAL_RANDOM
    if not (plain and fresh) or capped or guided or settings.compat != "none":
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
        **{name: np.array([getattr(spec, name) for spec in specs], dtype=np.int64) for name in _WHOLE},
        **{name: np.array([getattr(spec, name) for spec in specs], dtype=np.float64) for name in _REAL},
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
