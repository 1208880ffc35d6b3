"""The allocator, which makes the decisions: one object for live use and for the replay."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, cast

import numpy as np

import solvers
from bftrainer.errors import InputError, SettingsError, SolverError
from bftrainer.model import Decision, Event, EventKind, TaskSpec, Tuner
from bftrainer.model.type_checks import instances, whole_number
from bftrainer.replay.allocator_settings import BUSY, Settings, Status
from bftrainer.replay.cluster import Adoption, Cluster, ClusterChange, PublishedCluster
from bftrainer.replay.cluster_task import ClusterTask
from bftrainer.replay.decision_journal import DecisionJournal
from bftrainer.replay.departure_order import DepartureOrder, shrink_greedily
from bftrainer.replay.learned_curves import LearnedCurves
from bftrainer.replay.power_draw import reduce_to_cap, sum_power_w
from bftrainer.replay.value_tables import ValueTables
from solvers.evaluation import choices_of
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
    departures : DepartureOrder, optional
        When nodes leave, if decisions are to know that.
    learning : LearnedCurves, optional
        Learns the curves of tasks, which decisions then do not know; its state changes.

    Attributes
    ----------
    cluster : Cluster
    power_cap_w : float
        Cap in force.
    journal : DecisionJournal or None
        Results of decisions that were made before, which come first.

    Raises
    ------
    SettingsError
        If an argument is of another type, a task or node is named twice, or the solver or the fallback is not
        registered.
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
        departures: DepartureOrder | None = None,
        learning: LearnedCurves | None = None,
    ) -> None:
        if not isinstance(settings, Settings):
            raise SettingsError(f"Expected settings to be Settings, got {settings!r}.")
        tasks = instances("tasks", tasks, TaskSpec, SettingsError)
        self.settings = settings
        self.node_names = list(instances("nodes", nodes, str, SettingsError))
        self._task_number = {task.name: number for number, task in enumerate(tasks)}
        self._node_number = {name: number for number, name in enumerate(self.node_names)}
        for noun, names in (("task", [task.name for task in tasks]), ("node", self.node_names)):
            if len({*names}) != len(names):
                twice = next(name for name, times in Counter(names).items() if times > 1)
                raise SettingsError(f"Expected unique {noun} names, got {twice!r} twice.")
        self.start_ns = whole_number("start_ns", start_ns, SettingsError)
        self._fallback = get_solver(settings.fallback) if isinstance(settings.fallback, str) else settings.fallback
        try:
            self.solver = get_solver(settings.solver) if isinstance(settings.solver, str) else settings.solver
        except SolverError:
            if self._fallback is None:
                raise
            self.solver = self._fallback
        if hasattr(self.solver, "remembering"):
            self.solver = self.solver.remembering()  # what one run has asked changes nothing in another
        self.power_cap_w = settings.power_cap_w
        self.learning, self._tuned = learning, None if tuner is None else TunedTasks(tuner)
        self._extensions = [extension for extension in (learning, self._tuned) if extension is not None]
        self._values = ValueTables(settings, self.start_ns)
        kind = PublishedCluster if settings.compat == "published" else Cluster
        self.cluster = kind(settings, tasks, len(self.node_names), self.start_ns)
        self.cluster.order = departures or self.cluster.order
        self.journal: DecisionJournal | None = None
        self._is_first = True

    def on_event(self, *events: Event) -> Decision[str, str]:
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
        cap_w, is_first, nodes = self.power_cap_w, self._is_first, len(self.node_names)
        undo = [self.cluster.checkpoint(), *(extension.checkpoint() for extension in self._extensions)]
        try:
            self._apply_events(instances("events", events, Event, InputError))
            return self._name(self.decide() or self._describe(self.cluster.hold()))
        except BaseException:  # including an interrupt during a solve
            self.power_cap_w, self._is_first = cap_w, is_first
            for restore in undo:
                restore()
            for name in self.node_names[nodes:]:
                del self._node_number[name]
            del self.node_names[nodes:]
            self._task_number = {task.spec.name: task.number for task in self.cluster.tasks}
            for task in self.cluster.active:
                task.forget_offers()  # they may be of runs or beliefs that no longer exist
            raise

    def _apply_events(self, events: Sequence[Event]) -> ClusterChange:
        """Apply events of one instant without deciding, after checking them and replacing names by numbers."""
        cluster, now_s = self.cluster, self.cluster.time_s
        numbers, node_numbers = self._task_number, self._node_number
        of_kind = {kind: [event for event in events if event.kind is kind] for kind in EventKind}
        ending = [name for event in of_kind[EventKind.COMPLETION] for name in event.tasks]
        leaving = [name for event in of_kind[EventKind.LEAVE] for name in event.nodes]
        joining = [name for event in of_kind[EventKind.JOIN] for name in event.nodes]
        submitted = [event.spec for event in of_kind[EventKind.SUBMISSION] if event.spec is not None]
        caps_w = [event.power_cap_w for event in of_kind[EventKind.POWER_CAP]]
        times_s, names = sorted({event.time_s for event in events}), [spec.name for spec in submitted]
        active = {task.spec.name for task in cluster.active}
        mentioned = [name for name in (*leaving, *joining) if name in node_numbers]
        idle = {name for name in mentioned if cluster.owner[node_numbers[name]] != BUSY}
        wrong = [
            *([f"events of one time, got {times_s}"] if len(times_s) != 1 else ()),
            # Up to where products with rates stay numbers.
            *(f"an event at or after {now_s} s, got one at {at} s" for at in times_s if not now_s <= at < 1e18),
            *(f"an active task to complete, got {name!r}" for name in ending if name not in active),
            *(f"each node once, got {sorted(some)}" for some in (leaving, joining) if len(set(some)) != len(some)),
            *(f"an idle node to leave, got {name!r}" for name in leaving if name not in idle),
            *(f"a node that is not idle to join, got {name!r}" for name in joining if name in idle - set(leaving)),
            *(f"a new task name, got {name!r} again" for name in names if name in numbers or names.count(name) > 1),
            *(f"a power cap of 0 W or more, got {cap_w}" for cap_w in caps_w if cap_w is not None and not cap_w >= 0),
        ]
        if wrong:
            raise InputError(f"Expected {wrong[0]}.")
        # All checks passed: from here on the state changes.
        cluster.submit(submitted)
        numbers |= {task.spec.name: task.number for task in cluster.tasks[len(numbers) :]}
        for name in joining:
            if name not in node_numbers:
                node_numbers[name] = len(node_numbers)
                self.node_names.append(name)
                cluster.owner.append(BUSY)
        for cap_w in caps_w:
            self.power_cap_w = math.inf if cap_w is None else cap_w
        if self.settings.give_way == "chosen":  # a node that leaves and comes back need not leave
            leaving, joining = (
                [name for name in one if name not in two] for one, two in ((leaving, joining), (joining, leaving))
            )
        joined, left = sorted(node_numbers[name] for name in joining), [node_numbers[name] for name in leaving]
        return self.apply(times_s[0], joined, left, [task for task in cluster.active if task.spec.name in ending])

    def apply(
        self,
        time_s: float,
        joined: Sequence[int] = (),
        left: Sequence[int] = (),
        completed: Collection[ClusterTask] = (),
    ) -> ClusterChange:
        """Apply what happens at an instant, without deciding.

        Nodes are numbered as in `node_names`. They are not checked, as a node log has done that: nodes that join must
        not be idle, nodes that leave must be.
        """
        cluster = self.cluster
        can_choose = cluster.can_choose(len(joined), len(left))
        cluster.advance(time_s)
        cluster.complete(completed)  # first, as a task that is done loses nothing any more
        cluster.remove_nodes(() if can_choose else left)
        cluster.complete_due()
        cluster.add_nodes(joined)
        cluster.admit()
        for extension in self._extensions:
            extension.update(cluster, cluster.change)
        if can_choose:
            cluster.claim_nodes(left)
        return cluster.change

    def decide(self) -> Adoption | None:
        """Allocate the pool to the active tasks; None if there is nothing to decide."""
        cluster = self.cluster
        if not cluster.needs_decision:
            return None
        is_first, self._is_first = self._is_first, False
        if is_first and self.settings.initial == "empty":
            return None
        if is_first and self.settings.initial == "random":
            rng = np.random.default_rng(self.settings.seed)  # seeded here, so that a second try draws the same
            return self._describe(cluster.adopt_random(rng, partial(reduce_to_cap, cluster, self.power_cap_w)))
        beliefs = None if self.learning is None else self.learning.believe(cluster)
        problem = self._values.make_problem(cluster, self.power_cap_w)
        result = self.solve(problem)
        adopted = self._adopt(problem, result)
        adopted.result, adopted.beliefs = result, beliefs
        return self._describe(adopted)

    def solve(self, problem: solvers.AllocationProblem) -> solvers.SolveResult:
        """Ask the journal, if there is one, for what was decided before; else the solver, or a fallback if it fails."""
        return self._ask(problem) if self.journal is None else self.journal.answer(problem, self._ask, self._remember)

    def _remember(self, problem: solvers.AllocationProblem, result: solvers.SolveResult) -> None:
        """Let the solver know what it answered before the run was cut off."""
        if hasattr(self.solver, "remember") and result.solver == self.solver.name:
            self.solver.remember(problem, self.settings.limits, result)

    def _ask(self, problem: solvers.AllocationProblem) -> solvers.SolveResult:
        began_s = perf_counter()
        try:
            return solve(self.solver, problem, self.settings.limits)
        except SolverError:
            if self._fallback is None:
                raise
            result = solve(self._fallback, problem, self.settings.limits)
            result.solve_s = perf_counter() - began_s  # the decision took both
            return result

    def _adopt(self, problem: solvers.AllocationProblem, result: solvers.SolveResult) -> Adoption:
        """Adopt the allocation of a result (the present one if it has none) and its power limits."""
        cluster = self.cluster
        if result.counts is None:
            counts = shrink_greedily(problem, cluster.runnable_counts)
            return cluster.adopt(reduce_to_cap(cluster, self.power_cap_w, counts))
        if self._tuned is None or all(options.labels is None for options in problem.tasks):
            return cluster.adopt(result.counts)
        choices = result.choices or choices_of(problem, result.counts)
        modes = [
            (task, task.modes[options.labels.item(choice)])
            for task, options, choice in zip(cluster.active, problem.tasks, choices, strict=True)
            if options.labels is not None and task.modes
        ]
        # A task whose start is paid for pays at the limit that it starts with; others, at the limit that they leave.
        for task, mode in modes:
            if mode is not task.spec and self.settings.startup_cost == "full" and len(task.nodes) < mode.min_nodes:
                cluster.respecify(task, mode)
        adopted = cluster.adopt(result.counts)
        for task, mode in modes:
            if mode is not task.spec:
                cluster.respecify(task, mode)
        return adopted

    def _describe(self, adopted: Adoption) -> Adoption:
        """Note the power, and the settings of tuned tasks, after a decision."""
        if not math.isinf(self.power_cap_w):
            adopted.cap_w = self.power_cap_w / self.settings.pue
        if self._tuned is not None:
            adopted.drawn_w, runs = sum_power_w(self.cluster), [task.spec.run for task in adopted.tasks]
            adopted.batch_sizes = [None if run is None else run.batch_size for run in runs]
            adopted.power_limits_w = [None if run is None else run.power_limit_w for run in runs]
        return adopted

    def _name(self, adopted: Adoption) -> Decision[str, str]:
        """The decision by names of tasks and nodes."""

        def name_nodes(moves: Mapping[ClusterTask, Sequence[int]]) -> dict[str, tuple[str, ...]]:
            return {task.spec.name: tuple(self.node_names[node] for node in nodes) for task, nodes in moves.items()}

        fields, beliefs = ("before", "after", "batch_sizes", "power_limits_w"), adopted.beliefs
        lists = {name: value if (value := getattr(adopted, name)) is None else tuple(value) for name in fields}
        decision: Decision[str, str] = replace(
            cast(Any, adopted),
            tasks=tuple(task.spec.name for task in adopted.tasks),
            added=name_nodes(adopted.added),
            removed=name_nodes(adopted.removed),
            beliefs=None if beliefs is None else {task.spec.name: curve for task, curve in beliefs.items()},
            **lists,
        )
        return decision


class TunedTasks:
    """Keep a tuner and a cluster in step: give each run that starts its settings, learn from each that ends."""

    def __init__(self, tuner: Tuner) -> None:
        for method in ("start", "ended", "checkpoint"):
            if not callable(getattr(tuner, method, None)):
                raise SettingsError(f"Expected a tuner with a method {method!r}, got {tuner!r}.")
        self.tuner = tuner
        self._described: dict[int, TaskSpec] = {}
        self._work_at: dict[int, dict[int, float]] = {}
        self._undo: dict[str, Callable[[], None]] | None = None

    def checkpoint(self) -> Callable[[], None]:
        """Snapshot to return to: of the tuner, only the groups that change from now on."""
        described, work_at = dict(self._described), {task: dict(at) for task, at in self._work_at.items()}
        undo = self._undo = {}

        def restore() -> None:
            self._described, self._work_at = described, work_at
            for restore_group in reversed(undo.values()):
                restore_group()

        return restore

    def _save_group(self, spec: TaskSpec) -> None:
        """Save the state of a task's group before it changes, if a snapshot was taken."""
        if self._undo is not None and spec.tuning_group not in self._undo:
            self._undo[spec.tuning_group] = self.tuner.checkpoint(spec.tuning_group)

    def update(self, cluster: Cluster, change: ClusterChange) -> None:
        """Learn from runs that ended, and start runs of tasks that were admitted or are tried again.

        Tasks of groups that cannot go on are given up, so that others may be admitted.
        """
        for task in change.tasks:
            run = task.span_spec.run if len(task.modes) > 1 else None
            if run is not None:  # net work counts for the power limit that it was done at
                at = self._work_at.setdefault(task.number, {})
                at[run.power_limit_w] = at.get(run.power_limit_w, 0.0) + task.net
        ended = [*change.completed, *change.retrying]
        for task in sorted(ended, key=change.tasks.index) if len(ended) > 1 else ended:
            if task.span_spec.run is not None:
                self._save_group(task.span_spec)
                self.tuner.ended(task.span_spec, self._work_at.pop(task.number, {}))
                task.modes = ()
        self._start(cluster, (*change.retrying, *change.admitted))
        while lost := self.tuner.failures and [
            task
            for task in cluster.tasks
            if task.status < Status.DONE and task.spec.tuning and task.spec.tuning_group in self.tuner.failures
        ]:
            for task in lost:
                task.modes = ()
                self._work_at.pop(task.number, None)
            self._start(cluster, cluster.fail(lost))

    def _start(self, cluster: Cluster, tasks: Iterable[ClusterTask]) -> None:
        for task in tasks:
            spec = self._described.setdefault(task.number, task.spec)
            if spec.tuning is None:
                continue
            self._save_group(spec)
            task.modes = self.tuner.start(spec)
            if task.modes:
                cluster.respecify(task, task.modes[0])
