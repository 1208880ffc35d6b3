"""The decision maker: one object for live use and for the replay, which drives it event by event."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

import solvers
from bftrainer.errors import BftrainerError, InputError, ObjectiveError, SettingsError, SolverError
from bftrainer.model import Decision, Event, EventKind, Objective, TaskSpec, TaskState, is_static
from bftrainer.replay.effects import Effects, Moves, Rules
from bftrainer.replay.settings import INITIAL_EMPTY, INITIAL_RANDOM, Settings
from bftrainer.replay.state import BUSY, ReplayState, Status
from solvers.registry import get_solver, solve

__all__ = ["Allocator"]


class Allocator:
    """Decides, each time nodes or tasks come or go, which task runs on which nodes.

    Parameters
    ----------
    tasks : sequence of TaskSpec
        The roster; each is queued from its submission time on. More may come by events.
    settings : Settings
    nodes : sequence of str
        Node names known ahead; others are learnt when they join.
    start_ns : int
        The instant that times count from, for tasks with absolute submission times.

    Raises
    ------
    UnknownSolverError
        If nobody registered the solver or the fallback.
    SolverUnavailableError
        If the fallback is not installed, or the solver is not and there is none.

    Examples
    --------
    >>> from bftrainer.model import ScalingCurve
    >>> from bftrainer.objectives import as_given
    >>> task = TaskSpec("J0", min_nodes=1, max_nodes=2, work=1e6, scaling=ScalingCurve.linear(100.0, 2))
    >>> allocator = Allocator([task], Settings(objective=as_given, solver="dp"))
    >>> allocator.on_event(Event.join(0.0, "n1", "n2", "n3")).added
    {'J0': ('n1', 'n2')}
    >>> allocator.on_event(Event.leave(60.0, "n1")).added
    {'J0': ('n3',)}
    """

    def __init__(
        self, tasks: Sequence[TaskSpec], settings: Settings, nodes: Sequence[str] = (), start_ns: int = 0
    ) -> None:
        self.settings = settings
        self.node_names = list(nodes)
        self._node_number = {name: number for number, name in enumerate(nodes)}
        self._task_number = {task.name: number for number, task in enumerate(tasks)}
        if len(self._task_number) != len(tasks):
            raise SettingsError("Expected unique task names.")
        self._start_ns = start_ns
        self._rng = np.random.default_rng(settings.seed)
        self._fallback = None if settings.fallback is None else get_solver(settings.fallback)
        self._solver = self._first_usable()
        self._known_options: dict[tuple[int, int], solvers.TaskOptions] = {}
        self._is_static = is_static(settings.objective)
        self._is_first = True
        rules = Rules(
            max_tasks=settings.max_tasks,
            full_startup_cost=settings.startup_cost == "full",
            completions_noticed=settings.completions == "noticed",
        )
        submit_s = np.array([task.submitted_after_s(start_ns) for task in tasks], dtype=np.float64)
        self.state = ReplayState.initial(rules, tasks, submit_s, len(self.node_names))

    def _first_usable(self) -> solvers.Solver:
        if not isinstance(self.settings.solver, str):
            return self.settings.solver
        try:
            return get_solver(self.settings.solver)
        except SolverError:
            if self._fallback is None:
                raise
            return self._fallback

    def on_event(self, *events: Event) -> Decision:
        """Take in events of one instant and decide.

        Parameters
        ----------
        *events : Event
            All of one time, in any order.

        Returns
        -------
        Decision
            Its `added` and `removed` say which nodes to add to and remove from which task. Nodes that left, or whose
            task completed, are known to the caller and not listed.

        Raises
        ------
        InputError
            If the times differ or run backwards, an unknown task completes, a node joins twice or leaves without
            being idle.
        SolverError
            If the solver fails and no fallback is set.
        """
        self.apply(events)
        return self.decide()[0]

    def apply(self, events: Iterable[Event], time_s: float | None = None) -> Effects:
        """Take in events of one instant without deciding; `time_s` is needed if there are none."""
        ordered = sorted(events)
        times = {event.time_s for event in ordered} | (set() if time_s is None else {time_s})
        if len(times) != 1:
            raise InputError(f"Expected events of one time, got {sorted(times)}.")
        now_s = times.pop()
        if not (math.isfinite(now_s) and now_s >= self.state.time_s):
            raise InputError(f"Expected an event at or after {self.state.time_s} s, got one at {now_s} s.")
        by_kind: dict[EventKind, list[Event]] = {kind: [] for kind in EventKind}
        for event in ordered:
            by_kind[event.kind].append(event)
        completed = [self._number_of_active(name) for event in by_kind[EventKind.COMPLETION] for name in event.tasks]
        leaving = [name for event in by_kind[EventKind.LEAVE] for name in event.nodes]
        joining = [name for event in by_kind[EventKind.JOIN] for name in event.nodes]
        submitted = [event.spec for event in by_kind[EventKind.SUBMISSION] if event.spec is not None]
        self._check_nodes(leaving, joining)
        self._check_names(submitted)
        # All is well: from here on things change.
        self._enrol(submitted)
        self._learn(joining)
        left, joined = ([self._node_number[name] for name in names] for names in (leaving, joining))
        self.state, effects = self.state.apply(
            now_s, np.array(joined, dtype=np.int32), np.array(left, dtype=np.int32), completed
        )
        for number in effects.completed:
            for count in range(self.state.specs[number].max_nodes + 1):
                self._known_options.pop((number, count), None)
        return effects

    def _number_of_active(self, name: str) -> int:
        number = self._task_number.get(name, -1)
        if number < 0 or self.state.status[number] != Status.ACTIVE:
            raise InputError(f"Expected an active task to complete, got {name!r}.")
        return number

    def _check_nodes(self, leaving: Sequence[str], joining: Sequence[str]) -> None:
        """Refuse nodes that leave without being idle, or join while they are; one may leave and join again."""
        for names in (leaving, joining):
            if len(set(names)) != len(names):
                raise InputError(f"Expected each node once, got {sorted(names)}.")
        for name in leaving:
            if not self._is_idle(name):
                raise InputError(f"Expected an idle node to leave, got {name!r}.")
        for name in joining:
            if self._is_idle(name) and name not in leaving:
                raise InputError(f"Expected a node that is not idle to join, got {name!r}.")

    def _is_idle(self, name: str) -> bool:
        number = self._node_number.get(name)
        return number is not None and bool(self.state.owner[number] != BUSY)

    def _learn(self, names: Sequence[str]) -> None:
        """Number nodes that were never seen before."""
        fresh = [name for name in names if name not in self._node_number]
        if fresh:
            self._node_number |= {name: len(self.node_names) + place for place, name in enumerate(fresh)}
            self.node_names += fresh
            owner = np.append(self.state.owner, np.full(len(fresh), BUSY, dtype=np.int32))
            self.state = replace(self.state, owner=owner)

    def _check_names(self, specs: Sequence[TaskSpec]) -> None:
        """Refuse new tasks of which one has the name of another."""
        names = [spec.name for spec in specs]
        for name in names:
            if name in self._task_number or names.count(name) > 1:
                raise InputError(f"Expected a new task name, got {name!r} again.")

    def _enrol(self, specs: Sequence[TaskSpec]) -> None:
        """Append new tasks to the roster."""
        for spec in specs:
            self._task_number[spec.name] = len(self._task_number)
            state = self.state
            self.state = replace(
                state,
                specs=(*state.specs, spec),
                submit_s=np.append(state.submit_s, spec.submitted_after_s(self._start_ns)),
                status=np.append(state.status, np.int8(Status.WAITING)),
            )

    def decide(self) -> tuple[Decision, Moves | None]:
        """Allocate the pool to the active tasks; without either, nothing moves and the moves are None."""
        state = self.state
        if not state.needs_decision:
            return self._decision(state, None, None), None
        is_first, self._is_first = self._is_first, False
        if is_first and self.settings.initial == INITIAL_EMPTY:
            return self._decision(state, None, None), None
        if is_first and self.settings.initial == INITIAL_RANDOM:
            self.state, moves = state.adopt_random(self._rng)
            return self._decision(state, moves, None), moves
        result = self._solve(self._problem(state))
        self.state, moves = state.adopt(_kept(state) if result.counts is None else result.counts)
        return self._decision(state, moves, result), moves

    def _solve(self, problem: solvers.AllocationProblem) -> solvers.SolveResult:
        try:
            return solve(self._solver, problem, self.settings.limits)
        except SolverError:
            if self._fallback is None:
                raise
            return solve(self._fallback, problem, self.settings.limits)

    def _problem(self, state: ReplayState) -> solvers.AllocationProblem:
        """Form the value tables ``v_j(n) = Tfwd O_j(n) - r_j (Tcup [n > C_j] + Tcdw [n < C_j])``."""
        held = zip(state.active.tolist(), state.counts.tolist(), strict=True)
        tasks = tuple(self._task_options(slot, number, count) for slot, (number, count) in enumerate(held))
        problem = solvers.AllocationProblem(tasks, state.pool)
        constraints = getattr(self.settings.objective, "constraints", None)
        if constraints is None:
            return problem
        with _answering(f"objective {_name(self.settings.objective)}"):
            return replace(problem, rows=tuple(constraints(problem)))

    def _task_options(self, slot: int, number: int, held: int) -> solvers.TaskOptions:
        """Options of the active task in `slot`; computed once per count held if the objective is static."""
        known = self._known_options.get((number, held))
        if known is not None:
            return known
        state, settings = self.state, self.settings
        spec = state.specs[number]
        all_counts = solvers.counts_on_offer(1, spec.max_nodes)
        on_offer = solvers.counts_on_offer(spec.min_nodes, spec.max_nodes)
        task = TaskState(spec, held, float(state.progress[slot]), float(state.submit_s[number]))
        credit = self._credit(task, all_counts, state.time_s)
        values = settings.forward_time_s * credit
        if held >= spec.min_nodes:
            values[:held] -= credit[held] * spec.shrink_cost_s
            values[held + 1 :] -= credit[held] * spec.grow_cost_s
        elif settings.startup_cost == "full":
            values[held + 1 :] -= credit[held + 1 :] * spec.grow_cost_s
        if spec.min_nodes > 1:
            values = values[on_offer]
        options = solvers.TaskOptions(on_offer, values, held, spec.min_nodes, spec.max_nodes)
        if self._is_static:
            self._known_options[number, held] = options
        return options

    def _credit(self, task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:
        objective, spec = self.settings.objective, task.spec
        where = f"objective {_name(objective)}, task {spec.name}"
        with _answering(where):
            credit = np.asarray(objective(task, counts, now_s), dtype=np.float64)
        if credit.shape != counts.shape:
            raise ObjectiveError(f"{where}: Expected credit of shape {counts.shape}, got {credit.shape}.")
        finite = np.isfinite(credit)
        if not finite.all():
            at = int(np.argmin(finite))
            raise ObjectiveError(f"{where}: Expected finite credit, got {credit[at]} for {at} nodes.")
        span_s = self.settings.forward_time_s + spec.grow_cost_s + spec.shrink_cost_s
        if not math.isfinite(float(np.abs(credit).max()) * span_s * credit.size):
            raise ObjectiveError(f"{where}: Expected credit and times whose product is finite, got too large ones.")
        return credit

    def _decision(self, before: ReplayState, moves: Moves | None, result: solvers.SolveResult | None) -> Decision:
        names = self.node_names
        specs = before.specs

        def named(pairs: Sequence[tuple[int, NDArray[np.int32]]]) -> dict[str, tuple[str, ...]]:
            """Moves by the names of tasks and nodes."""
            return {specs[task].name: tuple(names[node] for node in nodes) for task, nodes in pairs}

        return Decision(
            time_s=before.time_s,
            nodes=before.pool,
            tasks=tuple(specs[task].name for task in before.active.tolist()),
            before=tuple(before.counts.tolist()),
            after=tuple(self.state.counts.tolist()),
            added=named(moves.added) if moves else {},
            removed=named(moves.removed) if moves else {},
            result=result,
        )


def _kept(state: ReplayState) -> list[int]:
    """The current allocation; a task below its minimum cannot run on what it holds and gives it back."""
    return [
        count if count >= state.specs[task].min_nodes else 0
        for task, count in zip(state.active.tolist(), state.counts.tolist(), strict=True)
    ]


@contextmanager
def _answering(where: str) -> Iterator[None]:
    """Say whose fault it is if an objective, which anybody may write, raises anything.

    Raises
    ------
    ObjectiveError
    """
    try:
        yield
    except BftrainerError:
        raise
    except Exception as error:  # an objective is anybody's code
        raise ObjectiveError(f"{where}: Expected an answer, got {type(error).__name__}: {error}.") from error


def _name(objective: Objective) -> str:
    return getattr(objective, "__name__", type(objective).__name__)
