"""What is on offer to each active task: its options, their values under the objective, and the objective's rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

import solvers
from bftrainer.errors import ObjectiveError
from bftrainer.model import Objective, TaskSpec, TaskState, is_static
from bftrainer.plugins import answering
from bftrainer.replay.allocator_settings import Settings
from bftrainer.replay.cluster import Cluster, ClusterTask
from bftrainer.replay.power_draw import spare_w, training_power_w
from solvers import AllocationProblem, Floor, LinearRow, TaskOptions


class ValueTables:
    """Values ``v_j(n) = Tfwd O_j(n) - r_j (Tcup [n > C_j] + Tcdw [n < C_j])`` of active tasks (arXiv:2106.12091, 3.3).

    For a task that saves, both costs are `checkpoint_s` and `restart_s` on C_j nodes. That saves take time is left out.

    Parameters
    ----------
    settings : Settings
        Objective, forward-looking time and start-up costs.
    start_ns : int
        The instant that times count from.
    """

    def __init__(self, settings: Settings, start_ns: int) -> None:
        self.settings, self._start_ns = settings, start_ns
        self._is_static = is_static(settings.objective)

    def problem(self, cluster: Cluster, cap_w: float) -> AllocationProblem:
        """Problem of allocating the pool to the active tasks under a cap; options with modes are labelled by them."""
        metered, now_s = math.isfinite(cap_w), cluster.time_s
        # Nearly all options are known, as they depend on the count held alone.
        options = [
            task.offers.get(len(task.nodes)) or self._options(task, now_s, metered=metered) for task in cluster.active
        ]
        capacities = (max(0.0, spare_w(cluster, cap_w)),) if metered else ()
        nodes = cluster.order.count_offered(cluster.pool, cluster.free, now_s)
        problem = AllocationProblem(tuple(options), nodes, capacities=capacities)
        return self._constrained(problem, cluster)

    def _options(self, task: ClusterTask, now_s: float, *, metered: bool) -> TaskOptions:
        """Options of a task, which are known already if the objective is static and it was in this situation before."""
        several = metered or len(task.modes) > 1
        situation = self._situation(task, metered=metered) if several else len(task.nodes)
        options: TaskOptions | None = task.offers.get(situation)
        if options is None:
            options = self._metered(task, now_s) if metered else self._best_modes(task, now_s)
            if self._is_static:
                task.offers[situation] = options
        return options

    def _situation(self, task: ClusterTask, *, metered: bool) -> tuple[int, int, tuple[bool, ...]]:
        """Count, running mode, and modes yet to be profiled: what options depend on under a static objective."""
        modes, current = task.modes or (task.spec,), task.spec
        running = next((place for place, spec in enumerate(modes) if spec is current), -1)
        runs = (spec.run for spec in modes) if metered else ()
        profiling = [run is not None and task.progress < run.profiling_work for run in runs]
        return len(task.nodes), running, tuple(profiling)

    def _best_modes(self, task: ClusterTask, now_s: float) -> TaskOptions:
        """Each count at its most valuable mode, the earlier of equals."""
        modes, held = task.modes or (task.seen_as,), len(task.nodes)
        table, spec = self._values(task, now_s, modes), modes[0]
        counts = solvers.counts_on_offer(spec.min_nodes, spec.max_nodes)
        if len(modes) == 1:
            return TaskOptions(counts, table[0], held, spec.min_nodes, spec.max_nodes)
        best = table.argmax(axis=0)
        values = table[best, np.arange(counts.size)]
        return TaskOptions(counts, values, held, spec.min_nodes, spec.max_nodes, labels=best)

    def _metered(self, task: ClusterTask, now_s: float) -> TaskOptions:
        """0 nodes, then each mode at each count, with the power above idle in watts."""
        modes, held = task.modes or (task.seen_as,), len(task.nodes)
        first = modes[0]
        counts = solvers.counts_on_offer(first.min_nodes, first.max_nodes)
        some = counts[1:]
        table = self._values(task, now_s, modes)
        idle_w = some * self.settings.idle_node_w
        drawn = [training_power_w(spec, task.progress)[some] - idle_w for spec in modes]
        # By count, then by mode; transposed tables read that way.
        values = np.concatenate((table[:1, 0], table[:, 1:].T.ravel()))
        watts = np.concatenate(([0.0], np.maximum(np.stack(drawn), 0.0).T.ravel()))
        places = np.concatenate(([0], np.tile(np.arange(len(modes)), some.size)))
        every = np.concatenate((counts[:1], np.repeat(some, len(modes))))
        bounds = first.min_nodes, first.max_nodes
        return TaskOptions(every, values, held, *bounds, uses=watts[None], labels=places)

    def _values(self, task: ClusterTask, now_s: float, modes: Sequence[TaskSpec]) -> NDArray[np.float64]:
        """Values at the task's counts, one row for each of its modes."""
        current, held, settings = task.seen_as, len(task.nodes), self.settings
        rows = [self._credit_as(task, spec, now_s) for spec in modes]
        table = settings.forward_time_s * (rows[0][None] if len(rows) == 1 else np.stack(rows))
        if held >= current.min_nodes:
            at_stake = self._credit_as(task, current, now_s, rows, modes).item(held)
            for spec, values in zip(modes, table, strict=True):
                grow_s, shrink_s = spec.change_s(held)
                values[:held] -= at_stake * shrink_s
                values[held + 1 :] -= at_stake * grow_s
        elif settings.startup_cost == "full":
            for spec, credit, values in zip(modes, rows, table, strict=True):
                values[held + 1 :] -= credit[held + 1 :] * spec.start_s(slice(held + 1, None))
        # Minima are those of the task, whatever its mode.
        first = modes[0]
        return table[:, solvers.counts_on_offer(first.min_nodes, first.max_nodes)] if first.min_nodes > 1 else table

    def _credit_as(
        self,
        task: ClusterTask,
        spec: TaskSpec,
        now_s: float,
        rows: Sequence[NDArray[np.float64]] = (),
        modes: Sequence[TaskSpec] = (),
    ) -> NDArray[np.float64]:
        """Credit of a task if it runs as `spec`, which under a static objective depends on that alone."""
        for mode, row in zip(modes, rows, strict=True):
            if mode is spec:
                return row
        known = task.offers.get(id(spec)) if self._is_static else None
        if known is None:
            known = self.credit(self.state_of(task, spec), now_s)
            if self._is_static:
                task.offers[id(spec)] = known
        return known

    def state_of(self, task: ClusterTask, spec: TaskSpec) -> TaskState:
        """An active task as its objective sees it, running as `spec`."""
        return TaskState(spec, len(task.nodes), task.progress, task.submitted_s, self._start_ns, task.modes)

    def _constrained(self, problem: AllocationProblem, cluster: Cluster) -> AllocationProblem:
        """The problem with the constraints that the objective adds, if it does."""
        constraints = getattr(self.settings.objective, "constraints", None)
        if constraints is None:
            return problem
        behind = tuple(self.state_of(task, task.seen_as) for task in cluster.active)
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
