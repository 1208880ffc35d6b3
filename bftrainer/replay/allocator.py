"""The allocator, which makes the decisions: one object for live use and for the replay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import solvers
from bftrainer.errors import InputError, SettingsError, SolverError
from bftrainer.model import Decision, Event, EventKind, ScalingCurve, TaskSpec, Tuner
from bftrainer.model.type_checks import checked_names, instances, whole_number
from bftrainer.replay.allocator_settings import BUSY, INITIAL_EMPTY, INITIAL_RANDOM, Effects, Indices, Settings, Status
from bftrainer.replay.checkpoints import KeptState
from bftrainer.replay.learned_curves import LearnedCurves
from bftrainer.replay.moves import KnownDepartures, Moves
from bftrainer.replay.option_tables import OptionTables
from bftrainer.replay.state import NO_NODES, ReplayState
from bftrainer.replay.tuned import TunedTasks, power_held, spare_w, within_cap
from solvers.registry import get_solver, solve


class Allocator:
    """Decide, each time nodes or tasks come or go, which task runs on which nodes.

    Parameters
    ----------
    tasks : sequence of TaskSpec
        All tasks known at first, each queued from its submission time on. More may come by events.
    settings : Settings
    nodes : sequence of str
        Node names known in advance; others are added when they join.
    start_ns : int
        The instant that times count from, for tasks with absolute submission times.
    tuner : Tuner, optional
        Chooses batch size and power limit of tasks that ask for it; its state changes.
    departures : KnownDepartures, optional
        When nodes leave, if decisions are to know that.
    learning : LearnedCurves, optional
        Learns the curves of tasks, which decisions then do not know; its state changes.

    Raises
    ------
    SettingsError
        If an argument is of another type, or a task or node is named twice.
    UnknownSolverError
        If the solver or the fallback is not registered.
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
        self,
        tasks: Sequence[TaskSpec],
        settings: Settings,
        nodes: Sequence[str] = (),
        start_ns: int = 0,
        tuner: Tuner | None = None,
        departures: KnownDepartures | None = None,
        learning: LearnedCurves | None = None,
    ) -> None:
        if not isinstance(settings, Settings):
            raise SettingsError(f"Expected settings to be Settings, got {settings!r}.")
        tasks = instances("tasks", tasks, TaskSpec, SettingsError)
        self.settings = settings
        self.node_names = list(checked_names("nodes", nodes, SettingsError))
        self._number(tasks)
        if len(self._node_number) != len(self.node_names) or len(self._task_number) != len(tasks):
            raise SettingsError("Expected unique task names and unique node names.")
        self._first_tasks: dict[str, object] = {f"task {number}": task for number, task in enumerate(tasks)}
        self.start_ns = start_ns = whole_number("start_ns", start_ns, SettingsError)
        given = settings.fallback
        self._fallback = get_solver(given) if isinstance(given, str) else given
        self.solver = self._first_usable()
        self.power_cap_w = settings.power_cap_w
        self._is_first = True
        self._tuned = None if tuner is None else TunedTasks(tuner)
        self.departures, self.learning = departures, learning
        self._tables = OptionTables(settings, start_ns, {} if self._tuned is None else self._tuned.modes)
        submit_s = np.array([task.submitted_after_s(start_ns) for task in tasks], dtype=np.float64)
        self.state = ReplayState.initial(settings, tasks, submit_s, len(self.node_names))

    @property
    def tuners(self) -> tuple[Tuner, ...]:
        """What sets batch sizes and power limits, if anything does."""
        return () if self._tuned is None else (self._tuned.tuner,)

    @property
    def given(self) -> dict[str, object]:
        """By name, what the allocator was made from and does not change: what is saved leaves that out."""
        parts = {"settings": self.settings, "solver": self.solver, "fallback": self._fallback}
        parts |= {"departures": self.departures} | self._first_tasks
        for tuner in self.tuners:
            parts |= getattr(tuner, "given", {})
        return {name: part for name, part in parts.items() if part is not None}

    def save(self, path: str | Path) -> None:
        """Save the state for `load`: nodes, tasks and their progress, and what a tuner has learnt.

        Raises
        ------
        OutputError
            If it cannot be written; an earlier file stays as it was.
        """
        self._kept().write(Path(path))

    def load(self, path: str | Path) -> None:
        """Go on from what an allocator of the same settings, first tasks and tuner has saved.

        Raises
        ------
        ResumeError
            If there is no such file, another user wrote it, it is damaged, or it is of other settings or tasks.
        """
        self._kept().read(Path(path))
        self._tables.clear()

    def _kept(self) -> KeptState:
        return KeptState((self, *self.tuners), self.given, (self.settings, *self._first_tasks.values(), self.start_ns))

    def _first_usable(self) -> solvers.Solver:
        given = self.settings.solver
        try:
            return get_solver(given) if isinstance(given, str) else given
        except SolverError:
            if self._fallback is None:
                raise
            return self._fallback

    def on_event(self, *events: Event) -> Decision:
        """Apply events of one instant and decide; after a failure the state is as before, and a retry is possible.

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
            being idle, or a power cap is negative or NaN.
        SolverError
            If the solver fails and no fallback is set.
        """
        state, cap_w, is_first = self.state, self.power_cap_w, self._is_first
        undo = [each.checkpoint() for each in (self._tuned, self.learning) if each is not None]
        try:
            self._taken_in(instances("events", events, Event, InputError))
            return self.decide()[0]
        except BaseException:  # including an interrupt during a solve
            self.state, self.power_cap_w, self._is_first = state, cap_w, is_first
            del self.node_names[state.owner.size :]
            self._number(state.specs)
            for back in undo:
                back()
            self._tables.clear()  # cached options may be of tasks, or runs of tasks, that no longer exist
            raise

    def _number(self, tasks: Sequence[TaskSpec]) -> None:
        self._node_number = {name: number for number, name in enumerate(self.node_names)}
        self._task_number = {task.name: number for number, task in enumerate(tasks)}

    def _taken_in(self, events: Sequence[Event]) -> Effects:
        """Apply events of one instant without deciding, after checking them and replacing names by numbers."""
        times = {event.time_s for event in events}
        if len(times) != 1:
            raise InputError(f"Expected events of one time, got {sorted(times)}.")
        time_s = times.pop()
        self._check_time(time_s)
        of = {kind: [event for event in events if event.kind is kind] for kind in EventKind}
        completed = [self._number_of_active(name) for event in of[EventKind.COMPLETION] for name in event.tasks]
        leaving, joining = (
            [name for each in of[kind] for name in each.nodes] for kind in (EventKind.LEAVE, EventKind.JOIN)
        )
        submitted = [event.spec for event in of[EventKind.SUBMISSION] if event.spec is not None]
        caps_w = [event.power_cap_w for event in of[EventKind.POWER_CAP]]
        self._check_nodes(leaving, joining)
        self._check_names(submitted)
        for cap_w in caps_w:
            if cap_w is not None and not cap_w >= 0:
                raise InputError(f"Expected a power cap of 0 W or more, got {cap_w}.")
        # All checks passed: from here on the state changes.
        self._enrol(submitted)
        self._learn(joining)
        joined, left = (
            np.array([self._node_number[name] for name in names], dtype=np.int32) for names in (joining, leaving)
        )
        if caps_w:
            self.power_cap_w = math.inf if caps_w[-1] is None else caps_w[-1]
        return self.apply(time_s, joined, left, completed)

    def _check_time(self, time_s: float) -> None:
        if not self.state.time_s <= time_s < 1e18:  # products with rates stay numbers
            raise InputError(f"Expected an event at or after {self.state.time_s} s, got one at {time_s} s.")

    def apply(
        self, time_s: float, joined: Indices = NO_NODES, left: Indices = NO_NODES, completed: Sequence[int] = ()
    ) -> Effects:
        """Apply what happens at an instant, without deciding: `ReplayState.apply`, then tuned tasks.

        Nodes are numbered as in `node_names`. They are not checked, as a node log has done that: nodes that join must
        not be idle, nodes that leave must be.
        """
        self._check_time(time_s)
        before = self.state
        self.state, effects = before.apply(time_s, joined, left, completed)
        if self.learning is not None:
            self.learning.applied(before, effects)
        if self._tuned is not None:
            self.state, effects = self._tuned.after(before, self.state, effects)
        for number in (*effects.completed, *effects.retrying, *effects.failed):
            self._tables.forget(number)
        return effects

    def _number_of_active(self, name: str) -> int:
        number = self._task_number.get(name, -1)
        if number < 0 or self.state.status[number] != Status.ACTIVE:
            raise InputError(f"Expected an active task to complete, got {name!r}.")
        return number

    def _check_nodes(self, leaving: Sequence[str], joining: Sequence[str]) -> None:
        """Refuse nodes that leave without being idle, or join while idle; a node may leave and join again."""
        for names in (leaving, joining):
            if len(set(names)) != len(names):
                raise InputError(f"Expected each node once, got {sorted(names)}.")
        known, owner = self._node_number, self.state.owner
        for name in leaving:
            if name not in known or owner[known[name]] == BUSY:
                raise InputError(f"Expected an idle node to leave, got {name!r}.")
        for name in joining:
            if name in known and owner[known[name]] != BUSY and name not in leaving:
                raise InputError(f"Expected a node that is not idle to join, got {name!r}.")

    def _learn(self, names: Sequence[str]) -> None:
        """Number new nodes."""
        fresh = [name for name in names if name not in self._node_number]
        if fresh:
            self._node_number |= {name: len(self.node_names) + place for place, name in enumerate(fresh)}
            self.node_names += fresh
            owner = np.append(self.state.owner, np.full(len(fresh), BUSY, dtype=np.int32))
            self.state = replace(self.state, owner=owner)

    def _check_names(self, specs: Sequence[TaskSpec]) -> None:
        """Refuse new tasks with a name that is taken."""
        names = [spec.name for spec in specs]
        for name in names:
            if name in self._task_number or names.count(name) > 1:
                raise InputError(f"Expected a new task name, got {name!r} again.")

    def _enrol(self, specs: Sequence[TaskSpec]) -> None:
        """Append new tasks to the list of tasks."""
        for spec in specs:
            self._task_number[spec.name] = len(self._task_number)
            state = self.state
            self.state = replace(
                state,
                specs=(*state.specs, spec),
                submit_s=np.append(state.submit_s, spec.submitted_after_s(self.start_ns)),
                status=np.append(state.status, np.int8(Status.WAITING)),
            )

    def decide(self) -> tuple[Decision, Moves | None]:
        """Allocate the pool to the active tasks; without nodes or tasks, nothing moves and the moves are None."""
        state = self.state
        if not state.needs_decision:
            return self._decision(state, None, None), None
        is_first, self._is_first = self._is_first, False
        if is_first and self.settings.initial == INITIAL_EMPTY:
            return self._decision(state, None, None), None
        if is_first and self.settings.initial == INITIAL_RANDOM:
            rng = np.random.default_rng(self.settings.seed)  # seeded here, so that a second try draws the same
            self.state, moves = state.adopt_random(rng, partial(within_cap, state, self.power_cap_w))
            return self._decision(state, moves, None), moves
        believed, beliefs = (state, None) if self.learning is None else self.learning.believed(state)
        for number in beliefs or ():
            self._tables.forget(number)
        problem, limits = self._problem(believed)
        result = self.solve(problem)
        self.state, moves = self._adopt(state, result, limits)
        return self._decision(state, moves, result, beliefs), moves

    def solve(self, problem: solvers.AllocationProblem) -> solvers.SolveResult:
        """Ask the solver, and the fallback if it fails."""
        try:
            return solve(self.solver, problem, self.settings.limits)
        except SolverError:
            if self._fallback is None:
                raise
            return solve(self._fallback, problem, self.settings.limits)

    def _problem(self, state: ReplayState) -> tuple[solvers.AllocationProblem, dict[int, NDArray[np.int64]]]:
        """Build the problem: pool and options of each active task; also the power limit that each option stands for."""
        capped = math.isfinite(self.power_cap_w)
        offers = self._tables.offers(state, metered=capped)
        limits = {slot: modes for slot, (_, modes) in enumerate(offers) if modes.size}
        capacities = (max(0.0, spare_w(state, self.power_cap_w)),) if capped else ()
        tasks = tuple([options for options, _ in offers])
        nodes = state.pool if self.departures is None else self.departures.offered(state.time_s, state.owner)
        problem = solvers.AllocationProblem(tasks, nodes, capacities=capacities)
        return self._tables.constrained(problem, state), limits

    def _adopt(
        self, state: ReplayState, result: solvers.SolveResult, limits: dict[int, NDArray[np.int64]]
    ) -> tuple[ReplayState, Moves]:
        """Adopt the allocation of a result (the present one if it has none) and its power limits."""
        departures = self.departures
        remaining_s = None if departures is None else departures.remaining_s(state.time_s, state.owner)
        if result.counts is None:
            return state.adopt(within_cap(state, self.power_cap_w, state.kept), remaining_s)
        changed = self._changed(state, result, limits)
        if changed and self.settings.startup_cost == "full":
            # A task that starts pays at the limit that it starts with; one that rescales, at the limit that it leaves.
            held = dict(zip(state.active.tolist(), state.counts.tolist(), strict=True))
            starting = [number for number, mode in changed.items() if held[number] < mode.min_nodes]
            state = state.respecified({number: changed.pop(number) for number in starting})
        after, moves = state.adopt(result.counts, remaining_s)
        return (after.respecified(changed) if changed else after), moves

    def _changed(
        self, state: ReplayState, result: solvers.SolveResult, limits: dict[int, NDArray[np.int64]]
    ) -> dict[int, TaskSpec]:
        """Active tasks that a result gives another power limit, with their specs at that limit."""
        changed: dict[int, TaskSpec] = {}
        if self._tuned is None or result.choices is None:
            return changed
        for slot, of_option in limits.items():
            number = int(state.active[slot])
            modes = self._tuned.modes.get(number)
            if modes is not None:
                mode = modes[int(of_option[result.choices[slot]])]
                if mode is not state.specs[number]:
                    changed[number] = mode
        return changed

    def _decision(
        self,
        before: ReplayState,
        moves: Moves | None,
        result: solvers.SolveResult | None,
        beliefs: dict[int, ScalingCurve] | None = None,
    ) -> Decision:
        names, specs = self.node_names, before.specs

        def named(pairs: Sequence[tuple[int, NDArray[np.int32]]]) -> dict[str, tuple[str, ...]]:
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
            beliefs=None if beliefs is None else {specs[task].name: curve for task, curve in beliefs.items()},
            **power_held(self._tuned, self.state, self.power_cap_w),
        )
