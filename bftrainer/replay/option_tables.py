"""Options of each active task: their values under the objective, and the objective's constraints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

import solvers
from bftrainer.errors import ObjectiveError
from bftrainer.model import Objective, TaskSpec, TaskState, is_static
from bftrainer.plugins import answering
from bftrainer.replay.allocator_settings import Settings
from bftrainer.replay.state import ReplayState
from bftrainer.replay.tuned import training_power_w
from solvers import AllocationProblem, Floor, LinearRow

Modes = NDArray[np.int64]
# Options, and the task's mode that each stands for.
Offer = tuple[solvers.TaskOptions, Modes]
# Key of the options under a static objective: the count held, the running mode, and the modes yet to be profiled.
Situation = tuple[int, int, tuple[bool, ...]]
NO_MODES = np.zeros(0, dtype=np.int64)


class OptionTables:
    """Value tables ``v_j(n) = Tfwd O_j(n) - r_j (Tcup [n > C_j] + Tcdw [n < C_j])`` of active tasks.

    For a task that saves, both costs are `checkpoint_s` and `restart_s` on C_j nodes. That saves take time is left out.

    Parameters
    ----------
    settings : Settings
        Objective, forward-looking time and start-up costs.
    start_ns : int
        The instant that times count from.
    modes : mapping of int to tuple of TaskSpec
        Modes of each active tuned task, always up to date.
    """

    def __init__(self, settings: Settings, start_ns: int, modes: Mapping[int, tuple[TaskSpec, ...]]) -> None:
        self.settings, self._start_ns, self._modes = settings, start_ns, modes
        self._is_static = is_static(settings.objective)
        self._known: dict[int, dict[Situation, Offer]] = {}

    def __getstate__(self) -> dict[str, object]:
        """Snapshots leave out what can be made again."""
        return vars(self) | {"_known": {}}

    def forget(self, task: int) -> None:
        """Drop the cached options of a task that ended."""
        self._known.pop(task, None)

    def clear(self) -> None:
        """Drop all cached options."""
        self._known.clear()

    def state_of(self, state: ReplayState, slot: int, spec: TaskSpec | None = None) -> TaskState:
        """The active task in `slot`, as its objective sees it; running as `spec` if given."""
        number = int(state.active[slot])
        return TaskState(
            spec=state.specs[number] if spec is None else spec,
            nodes=int(state.counts[slot]),
            progress=float(state.progress[slot]),
            submitted_s=float(state.submit_s[number]),
            start_ns=self._start_ns,
            modes=self._modes.get(number, ()),
        )

    def _modes_of(self, state: ReplayState, slot: int) -> tuple[TaskSpec, ...]:
        number = int(state.active[slot])
        return self._modes.get(number) or (state.specs[number],)

    def offers(self, state: ReplayState, *, metered: bool) -> list[Offer]:
        """Options of all active tasks; cached if the objective is static.

        Parameters
        ----------
        state : ReplayState
        metered : bool
            Whether power matters: if so, options are 0 nodes, then each limit at each count, with the power above idle
            in watts; if not, each count at its most valuable limit (the earlier of equals).

        Returns
        -------
        list of (TaskOptions, ndarray of int64, shape (K,)), length A
            Each task's options, and its mode that each of them stands for; empty if it has one power limit or none
            and is not metered.
        """
        modes, found = self._modes, []
        several = metered or any(len(limits) > 1 for limits in modes.values())
        # Nearly all are known, and this loop is then the cost of making a problem.
        for slot, (number, held) in enumerate(zip(state.active.tolist(), state.counts.tolist(), strict=True)):
            situation = self._situation(state, slot, metered=metered) if several else (held, 0, ())
            known = self._known.get(number)
            if known is None:
                known = self._known[number] = {}
            offer = known.get(situation)
            if offer is None:
                offer = self._metered(state, slot) if metered else self._best_limits(state, slot)
                if self._is_static:
                    known[situation] = offer
            found.append(offer)
        return found

    def _situation(self, state: ReplayState, slot: int, *, metered: bool) -> Situation:
        """What the options of a task depend on under a static objective."""
        held, modes = int(state.counts[slot]), self._modes_of(state, slot)
        if len(modes) < 2 and not metered:
            return held, 0, ()
        current, progress = state.specs[int(state.active[slot])], float(state.progress[slot])
        running = next((place for place, spec in enumerate(modes) if spec is current), -1)
        runs = (spec.run for spec in modes) if metered else ()
        return held, running, tuple([run is not None and progress < run.profiling_work for run in runs])

    def _best_limits(self, state: ReplayState, slot: int) -> Offer:
        modes, held = self._modes_of(state, slot), int(state.counts[slot])
        table = self._values(state, slot, modes)
        limits, spec = table.argmax(axis=0), modes[0]
        counts = solvers.counts_on_offer(spec.min_nodes, spec.max_nodes)
        values = table[limits, np.arange(counts.size)]
        options = solvers.TaskOptions(counts, values, held, spec.min_nodes, spec.max_nodes)
        return options, limits if len(modes) > 1 else NO_MODES

    def _metered(self, state: ReplayState, slot: int) -> Offer:
        modes = self._modes_of(state, slot)
        first = modes[0]
        counts = solvers.counts_on_offer(first.min_nodes, first.max_nodes)
        some = counts[1:]
        table = self._values(state, slot, modes)
        idle_w = some * self.settings.idle_node_w
        drawn = [training_power_w(spec, float(state.progress[slot]))[some] - idle_w for spec in modes]
        # By count, then by limit; transposed tables read that way.
        values = np.concatenate((table[:1, 0], table[:, 1:].T.ravel()))
        watts = np.concatenate(([0.0], np.maximum(np.stack(drawn), 0.0).T.ravel()))
        limits = np.concatenate(([0], np.tile(np.arange(len(modes)), some.size)))
        held = int(state.counts[slot])
        every = np.concatenate((counts[:1], np.repeat(some, len(modes))))
        options = solvers.TaskOptions(every, values, held, first.min_nodes, first.max_nodes, uses=watts[None])
        return options, limits

    def _values(self, state: ReplayState, slot: int, modes: Sequence[TaskSpec]) -> NDArray[np.float64]:
        """Values at the task's counts, one row for each of its `modes`."""
        settings = self.settings
        number, held = int(state.active[slot]), int(state.counts[slot])
        current = state.specs[number]
        rows = [self.credit(self.state_of(state, slot, spec), state.time_s) for spec in modes]
        table = settings.forward_time_s * np.stack(rows)
        if held >= current.min_nodes or (held and settings.compat == "published"):
            known = [credit for spec, credit in zip(modes, rows, strict=True) if spec is current]
            if not known:
                known = [self.credit(self.state_of(state, slot), state.time_s)]
            at_stake = known[0][held]
            for spec, values in zip(modes, table, strict=True):
                grow_s, shrink_s = spec.change_s(held)
                values[:held] -= at_stake * shrink_s
                values[held + 1 :] -= at_stake * grow_s
        elif settings.startup_cost == "full":
            for spec, credit, values in zip(modes, rows, table, strict=True):
                values[held + 1 :] -= credit[held + 1 :] * spec.start_s(slice(held + 1, None))
        # Minima are those of the task, whatever its power limit.
        first = modes[0]
        on_offer = solvers.counts_on_offer(first.min_nodes, first.max_nodes)
        return table[:, on_offer] if first.min_nodes > 1 else table

    def constrained(self, problem: AllocationProblem, state: ReplayState) -> AllocationProblem:
        """The problem with the constraints that the objective adds, if it does."""
        constraints = getattr(self.settings.objective, "constraints", None)
        if constraints is None:
            return problem
        behind = tuple(self.state_of(state, slot) for slot in range(state.active.size))
        where = f"objective {objective_name(self.settings.objective)}"
        with answering(where, ObjectiveError):
            return constrained(problem, constraints(problem, behind), where)

    def credit(self, task: TaskState, now_s: float) -> NDArray[np.float64]:
        """Credit of a task at 0 to its maximum of nodes, checked.

        Raises
        ------
        ObjectiveError
            If the objective fails, or answers with anything but finite credit.
        """
        objective, spec = self.settings.objective, task.spec
        counts = solvers.counts_on_offer(1, spec.max_nodes)
        where = f"objective {objective_name(objective)}, task {spec.name}"
        with answering(where, ObjectiveError):
            answer = np.asarray(objective(task, counts, now_s))
            if answer.dtype.kind == "c":
                raise ObjectiveError(f"{where}: Expected real credit, got complex numbers.")
            credit = answer.astype(np.float64, copy=False)
        if credit.shape != counts.shape:
            raise ObjectiveError(f"{where}: Expected credit of shape {counts.shape}, got {credit.shape}.")
        finite = np.isfinite(credit)
        if not finite.all():
            at = int(np.argmin(finite))
            raise ObjectiveError(f"{where}: Expected finite credit, got {credit[at]} for {at} nodes.")
        saves, span_s = spec.saves, self.settings.forward_time_s + spec.grow_cost_s + spec.shrink_cost_s
        span_s += 0.0 if saves is None else float((saves.checkpoint_s + saves.restart_s).max())
        if not math.isfinite(float(np.abs(credit).max()) * span_s * credit.size):
            raise ObjectiveError(f"{where}: Expected credit and times whose product is finite, got too large ones.")
        return credit


def objective_name(objective: Objective) -> str:
    """Name of an objective in messages."""
    return getattr(objective, "__name__", type(objective).__name__)


def constrained(problem: AllocationProblem, added: Iterable[object], where: str) -> AllocationProblem:
    """Add what an objective's ``constraints(problem, tasks)`` returns to the problem; `where` begins a message.

    Raises
    ------
    ObjectiveError
        If it returns anything but `solvers.LinearRow`s and at most one `solvers.Floor`, or a row has NaN.
    ValueError
        If a row or the floor does not fit the tasks.
    """
    rows: list[LinearRow] = []
    floors: list[Floor] = []
    for each in added:
        if isinstance(each, LinearRow):
            if not np.isfinite(each.coefficients).all() or math.isnan(each.lower) or math.isnan(each.upper):
                raise ObjectiveError(
                    f"{where}: Expected finite coefficients and bounds without NaN, got others in row {len(rows)}."
                )
            rows.append(each)
        elif isinstance(each, Floor):
            floors.append(each)
        else:
            raise ObjectiveError(
                f"{where}: Expected constraints to be LinearRows or a Floor, got {type(each).__name__}."
            )
    if len(floors) > 1:
        raise ObjectiveError(f"{where}: Expected at most one Floor, got {len(floors)}.")
    if not (rows or floors):
        return problem
    return replace(problem, rows=tuple(rows), floor=floors[0] if floors else None)
