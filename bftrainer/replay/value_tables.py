"""What is on offer to each active task: its options, their values under the objective, and the objective's rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

import solvers
from bftrainer.errors import ObjectiveError
from bftrainer.model import TaskSpec, TaskState, is_static
from bftrainer.plugins import answering
from bftrainer.replay.allocator_settings import Settings
from bftrainer.replay.cluster import Cluster, ClusterTask
from bftrainer.replay.power_draw import spare_w, training_power_w
from solvers import AllocationProblem, Floor, LinearRow, TaskOptions

Floats = NDArray[np.float64]


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
        self._is_static, objective = is_static(settings.objective), settings.objective
        self._where = f"objective {getattr(objective, '__name__', type(objective).__name__)}"
        self._kinds = WeakValueDictionary[tuple[Any, ...], Offers]()

    def problem(self, cluster: Cluster, cap_w: float) -> AllocationProblem:
        """Problem of allocating the pool to the active tasks under a cap; options with modes are labelled by them."""
        metered, now_s = math.isfinite(cap_w), cluster.time_s
        known: list[TaskOptions | None] = [None] * len(cluster.active)
        if self._is_static and not metered:  # then nearly all options are known, as they depend on the count alone
            known = [task.offers.get(len(task.nodes)) for task in cluster.active]
        pairs = zip(cluster.active, known, strict=True)
        options = [found or self._options(task, now_s, metered=metered) for task, found in pairs]
        capacities = (max(0.0, spare_w(cluster, cap_w)),) if metered else ()
        nodes = cluster.order.count_offered(cluster.pool, cluster.free, now_s)
        problem = AllocationProblem(tuple(options), nodes, capacities=capacities)
        return self._constrained(problem, cluster)

    def _options(self, task: ClusterTask, now_s: float, *, metered: bool) -> TaskOptions:
        """Options of a task, computed again only if its credit has changed, or it was not in this situation before."""
        current, is_plain = task.seen_as, not (metered or task.modes)
        modes = task.modes or (current,)
        if self._is_static and is_plain and not task.offers and _has_credit_only(current):
            return self._options_of_kind(task, current, now_s)
        situation: Any = len(task.nodes)
        if metered or len(modes) > 1:  # then it also depends on the running mode, and on modes yet to be profiled
            runs = [spec.run for spec in modes] if metered else []
            profiling = [run is not None and task.progress < run.profiling_work for run in runs]
            situation = len(task.nodes), id(task.spec), *profiling
        options: TaskOptions | None = task.offers.get(situation) if self._is_static else None
        if options is None:
            for spec in modes if is_plain or any(spec is current for spec in modes) else (*modes, current):
                self._note_credit(task, spec, now_s)
            options = task.offers.get(situation)
        if options is None:
            values = self._values(task, modes)
            options = self._metered(task, modes, values) if metered else self._best_modes(task, modes, values)
            task.offers[situation] = options
        return options

    def _note_credit(self, task: ClusterTask, spec: TaskSpec, now_s: float) -> None:
        """Know a task's credit as `spec`; options hold where the objective answers as before, or is static."""
        known: Credit | None = task.offers.get(id(spec))
        if known is not None and self._is_static:
            return
        answer = self._ask(self.state_of(task, spec), now_s)
        if known is not None:
            if isinstance(answer, np.ndarray) and answer.dtype == np.float64 and answer.tobytes() == known.content:
                return
            task.offers = {key: each for key, each in task.offers.items() if isinstance(each, Credit)}
        values = self._checked(spec, answer)
        task.offers[id(spec)] = Credit(spec, values, values.tobytes())

    def _options_of_kind(self, task: ClusterTask, spec: TaskSpec, now_s: float) -> TaskOptions:
        """Options of a new task, which shares what is known with others of equal credit, bounds and costs."""
        answer = self._ask(self.state_of(task, spec), now_s)
        is_plain = isinstance(answer, np.ndarray) and answer.dtype == np.float64 and answer.ndim == 1
        content = answer.tobytes() if is_plain else None  # type: ignore[attr-defined]
        kind = (content, spec.min_nodes, spec.max_nodes, spec.grow_cost_s, spec.shrink_cost_s)
        offers = self._kinds.get(kind)
        if offers is None:
            values = self._checked(spec, answer)
            offers = Offers({id(spec): Credit(spec, values, values.tobytes())})
            if is_plain:
                self._kinds[kind] = offers
        task.offers = offers
        return offers.get(len(task.nodes)) or self._options(task, now_s, metered=False)

    def _best_modes(self, task: ClusterTask, modes: Sequence[TaskSpec], values: list[Floats]) -> TaskOptions:
        """Each count at its most valuable mode, the earlier of equals."""
        least, most = modes[0].min_nodes, modes[0].max_nodes
        counts, best = solvers.counts_on_offer(least, most), None
        if len(modes) > 1:
            table = np.stack(values)
            best = table.argmax(axis=0)
            values = [table[best, np.arange(counts.size)]]
        return TaskOptions(counts, values[0], len(task.nodes), least, most, labels=best)

    def _metered(self, task: ClusterTask, modes: Sequence[TaskSpec], values: list[Floats]) -> TaskOptions:
        """0 nodes, then each mode at each count, with the power above idle in watts."""
        held, first, table = len(task.nodes), modes[0], np.stack(values)
        counts = solvers.counts_on_offer(first.min_nodes, first.max_nodes)
        some = counts[1:]
        idle_w = some * self.settings.idle_node_w
        drawn = [training_power_w(spec, task.progress)[some] - idle_w for spec in modes]
        # By count, then by mode; transposed tables read that way.
        worth = np.concatenate((table[:1, 0], table[:, 1:].T.ravel()))
        watts = np.concatenate(([0.0], np.maximum(np.stack(drawn), 0.0).T.ravel()))
        places = np.concatenate(([0], np.tile(np.arange(len(modes)), some.size)))
        every = np.concatenate((counts[:1], np.repeat(some, len(modes))))
        bounds = first.min_nodes, first.max_nodes
        return TaskOptions(every, worth, held, *bounds, uses=watts[None], labels=places)

    def _values(self, task: ClusterTask, modes: Sequence[TaskSpec]) -> list[Floats]:
        """Values at the task's counts, in each of its modes."""
        current, held, settings, offers = task.seen_as, len(task.nodes), self.settings, task.offers
        rows = [settings.forward_time_s * offers[id(spec)].values for spec in modes]
        if held >= current.min_nodes:
            at_stake = offers[id(current)].values.item(held)
            for spec, values in zip(modes, rows, strict=True):
                grow_s, shrink_s = spec.change_s(held)
                values[:held] -= at_stake * shrink_s
                values[held + 1 :] -= at_stake * grow_s
        elif settings.startup_cost == "full":
            for spec, values in zip(modes, rows, strict=True):
                values[held + 1 :] -= offers[id(spec)].values[held + 1 :] * spec.start_s(slice(held + 1, None))
        # Minima are those of the task, whatever its mode.
        least, most = modes[0].min_nodes, modes[0].max_nodes
        return [values[solvers.counts_on_offer(least, most)] for values in rows] if least > 1 else rows

    def state_of(self, task: ClusterTask, spec: TaskSpec) -> TaskState:
        """An active task as its objective sees it, running as `spec`."""
        return TaskState(spec, len(task.nodes), task.progress, task.submitted_s, self._start_ns, task.modes)

    def _constrained(self, problem: AllocationProblem, cluster: Cluster) -> AllocationProblem:
        """The problem with the rows, and the floor, that the objective's `constraints` adds, if it has that method."""
        constraints, where = getattr(self.settings.objective, "constraints", None), self._where
        if constraints is None:
            return problem
        with answering(where, ObjectiveError):
            added = list(constraints(problem, tuple(self.state_of(task, task.seen_as) for task in cluster.active)))
            rows = tuple(each for each in added if isinstance(each, LinearRow))
            floors = [each for each in added if isinstance(each, Floor)]
            for each in added:
                if not isinstance(each, LinearRow | Floor):
                    what = type(each).__name__
                    raise ObjectiveError(f"{where}: Expected constraints to be LinearRows or a Floor, got {what}.")
            for place, row in enumerate(rows):
                if not np.isfinite(row.coefficients).all() or math.isnan(row.lower) or math.isnan(row.upper):
                    what = f"others in row {place}"
                    raise ObjectiveError(f"{where}: Expected finite coefficients and bounds without NaN, got {what}.")
            if len(floors) > 1:
                raise ObjectiveError(f"{where}: Expected at most one Floor, got {len(floors)}.")
            return replace(problem, rows=rows, floor=floors[0] if floors else None) if added else problem

    def _ask(self, task: TaskState, now_s: float) -> object:
        """Ask the objective for the credit of a task at 0 to its maximum of nodes."""
        objective, spec = self.settings.objective, task.spec
        try:
            return objective(task, solvers.counts_on_offer(1, spec.max_nodes), now_s)
        except (Exception, SystemExit):
            with answering(f"{self._where}, task {spec.name}", ObjectiveError):
                raise

    def _checked(self, spec: TaskSpec, answer: object) -> Floats:
        """Credit that an objective has answered with, at 0 to the maximum of nodes: finite, or `ObjectiveError`."""
        where = f"{self._where}, task {spec.name}"
        with answering(where, ObjectiveError):
            array = np.asarray(answer)
            if array.dtype.kind == "c":
                raise ObjectiveError(f"{where}: Expected real credit, got complex numbers.")
            credit = array.astype(np.float64, copy=False)
        if credit.shape != (spec.max_nodes + 1,):
            raise ObjectiveError(f"{where}: Expected credit of shape {(spec.max_nodes + 1,)}, got {credit.shape}.")
        largest = float(np.abs(credit).max())
        if not math.isfinite(largest):
            at = int(np.argmin(np.isfinite(credit)))
            raise ObjectiveError(f"{where}: Expected finite credit, got {credit[at]} for {at} nodes.")
        saves, span_s = spec.saves, self.settings.forward_time_s + spec.grow_cost_s + spec.shrink_cost_s
        span_s += 0.0 if saves is None else float((saves.checkpoint_s + saves.restart_s).max())
        if not math.isfinite(largest * span_s * credit.size):
            raise ObjectiveError(f"{where}: Expected credit and times whose product is finite, got too large ones.")
        return credit


def _has_credit_only(spec: TaskSpec) -> bool:
    """Whether credit, bounds and costs say all that decisions ask of a task."""
    return spec.saves is None and spec.tuning is None and spec.run is None


class Offers(dict[Any, Any]):
    """What is known of tasks of one kind, as long as there are any."""


@dataclass(frozen=True, slots=True, eq=False)
class Credit:
    """Credit of a task in a mode, and its bytes: an objective may change its array later."""

    spec: TaskSpec
    values: Floats
    content: bytes
