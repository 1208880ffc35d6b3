"""What is on offer to each active task: its options, their values under the objective, and the objective's rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

import solvers
from bftrainer.errors import SettingsError
from bftrainer.model import TaskSpec, TaskState, is_static
from bftrainer.plugins import answering
from bftrainer.replay.allocator_settings import Settings
from bftrainer.replay.cluster import Cluster
from bftrainer.replay.cluster_task import ClusterTask
from bftrainer.replay.power_draw import compute_spare_w, training_power_w
from solvers import AllocationProblem, Floor, LinearRow, TaskOptions

Floats = NDArray[np.float64]
_FLOAT = np.dtype(np.float64)


class Offers(dict[object, TaskOptions]):
    """Options of a task by its situation, all of one credit; tasks of equal credit, bounds and costs share them."""

    def __init__(self, tables: list[Floats]) -> None:
        super().__init__()
        # Credit at 0 to the maximum of nodes: in each mode of a tuned task, then as decisions saw the task at first.
        self.tables = tables
        self.content = [credit.tobytes() for credit in tables]  # an objective may change its array later


class ValueTables:
    """Values ``v_j(n) = Tfwd O_j(n) - r_j (Tcup [n > C_j] + Tcdw [n < C_j])`` of active tasks (arXiv:2106.12091, 3.3).

    For a task that saves, both costs are `checkpoint_s` and `restart_s` on C_j nodes. That saves take time is left out.
    """

    def __init__(self, settings: Settings, start_ns: int) -> None:
        self.settings, self._start_ns, self._objective = settings, start_ns, settings.objective
        self._is_static = is_static(self._objective)
        self._constraints = getattr(self._objective, "constraints", None)
        self._where = f"objective {getattr(self._objective, '__name__', type(self._objective).__name__)}"
        self._offers_by_kind = WeakValueDictionary[object, Offers]()

    def make_problem(self, cluster: Cluster, cap_w: float) -> AllocationProblem:
        """Problem of allocating the pool to the active tasks under a cap; options with modes are labelled by them."""
        is_metered, now_s = math.isfinite(cap_w), cluster.time_s
        if self._is_static and not is_metered:  # then nearly all options are known, by the count alone
            options = [task.options or self._options(task, now_s, is_metered) for task in cluster.active]
        else:
            options = [self._options(task, now_s, is_metered) for task in cluster.active]
        capacities = (max(0.0, compute_spare_w(cluster, cap_w)),) if is_metered else ()
        nodes = cluster.pool - cluster.order.count_declined(cluster)
        problem = AllocationProblem(tuple(options), nodes, capacities=capacities)
        if self._constraints is None:
            return problem
        with answering(self._where, SettingsError):
            states = tuple([self._state(task, task.decision_spec) for task in cluster.active])
            return with_constraints(problem, list(self._constraints(problem, states)), self._where)

    def _options(self, task: ClusterTask, now_s: float, is_metered: bool) -> TaskOptions:
        """Options of a task, computed again only if its credit has changed, or it was not in this situation before."""
        modes = task.modes
        if not (self._is_static and task.offers):
            self._update_offers(task, (*modes, task.believed or task.spec), now_s)
        situation: object = len(task.nodes)
        if is_metered or len(modes) > 1:  # then it also depends on the running mode, and on modes yet to be profiled
            runs = [spec.run for spec in modes or (task.decision_spec,)] if is_metered else []
            profiling = [run is not None and task.progress < run.profiling_work for run in runs]
            situation = len(task.nodes), task.spec.run, *profiling
        options: TaskOptions | None = task.offers.get(situation)
        if options is None:
            options = task.offers[situation] = self._value(task, modes or (task.decision_spec,), is_metered)
        task.options = task.offers.get(len(task.nodes))
        return options

    def _update_offers(self, task: ClusterTask, specs: Sequence[TaskSpec], now_s: float) -> None:
        """Ask for a task's credit; options that it, or one like it, had before at the same credit still hold."""
        objective = self._objective
        answers: list[Any] = []
        content: list[bytes | None] = []
        for spec in specs:
            try:
                answer: Any = objective(self._state(task, spec), solvers.counts_on_offer(1, spec.max_nodes), now_s)
            except (Exception, SystemExit):
                with answering(f"{self._where}, task {spec.name}", SettingsError):
                    raise
            answers.append(answer)
            is_plain = isinstance(answer, np.ndarray) and answer.dtype == _FLOAT
            content.append(answer.tobytes() if is_plain else None)
        if task.offers and content == task.offers.content:
            return
        first, offers, kind = specs[0], None, None
        if self._is_static and None not in content and len(task.modes) < 2 and not first.saves:
            costs = first.grow_cost_s, first.shrink_cost_s
            kind = (*content, np.shape(answers[0]), first.min_nodes, first.max_nodes, *costs)
            offers = self._offers_by_kind.get(kind)
        if offers is None:
            offers = Offers([self._check(spec, answer) for spec, answer in zip(specs, answers, strict=True)])
            if kind is not None:
                self._offers_by_kind[kind] = offers
        task.offers = offers

    def _value(self, task: ClusterTask, modes: Sequence[TaskSpec], is_metered: bool) -> TaskOptions:
        """Options at the task's counts: each at its most valuable mode, or under a cap all modes with their power."""
        before, settings, current, tables = len(task.nodes), self.settings, task.decision_spec, task.offers.tables
        least, most = modes[0].min_nodes, modes[0].max_nodes  # a task's minimum, whatever its mode
        counts = solvers.counts_on_offer(least, most)
        rows = [settings.forward_time_s * credit for credit in tables[: len(modes)]]
        of_mode = list(zip(modes, tables, rows, strict=False))
        if before >= current.min_nodes:
            at_stake = next((credit for spec, credit, _ in of_mode if spec is current), tables[-1]).item(before)
            for spec, _, values in of_mode:
                grow_s, shrink_s = spec.change_s(before)
                values[:before] -= at_stake * shrink_s
                values[before + 1 :] -= at_stake * grow_s
        elif settings.startup_cost == "full":
            for spec, credit, values in of_mode:
                values[before + 1 :] -= credit[before + 1 :] * spec.start_s(slice(before + 1, None))
        rows = [values[counts] for values in rows] if least > 1 else rows
        if len(rows) == 1 and not is_metered:
            return solvers.RangeOptions(counts, rows[0], before, least, most)
        table = np.stack(rows)
        if not is_metered:
            best = table.argmax(axis=0)  # the earlier of equals
            return solvers.RangeOptions(counts, table[best, np.arange(counts.size)], before, least, most, labels=best)
        # 0 nodes, then each mode at each count: by count, then by mode; transposed tables read that way.
        some, idle_w = counts[1:], settings.idle_node_w
        above_w = [training_power_w(spec, task.progress)[some] - idle_w * some for spec in modes]
        return TaskOptions(
            np.append(0, np.repeat(some, len(modes))),
            np.append(table[0, 0], table[:, 1:].T.ravel()),
            before,
            least,
            most,
            uses=np.append(0.0, np.maximum(np.stack(above_w), 0.0).T.ravel())[None],
            labels=np.append(0, np.tile(np.arange(len(modes)), some.size)),
        )

    def _state(self, task: ClusterTask, spec: TaskSpec) -> TaskState:
        """An active task as its objective sees it, running as `spec`."""
        return TaskState(spec, len(task.nodes), task.progress, task.submitted_s, self._start_ns, task.modes)

    def _check(self, spec: TaskSpec, answer: object) -> Floats:
        """Credit that an objective answers at 0 to the maximum of nodes: finite, and first 0, or `SettingsError`."""
        where = f"{self._where}, task {spec.name}"
        with answering(where, SettingsError):
            array = np.asarray(answer)
            if array.dtype.kind == "c":
                raise SettingsError(f"{where}: Expected real credit, got complex numbers.")
            credit = array.astype(np.float64, copy=False)
        if credit.shape != (spec.max_nodes + 1,):
            raise SettingsError(f"{where}: Expected credit of shape {(spec.max_nodes + 1,)}, got {credit.shape}.")
        largest = float(np.abs(credit).max())
        if not math.isfinite(largest):
            at = int(np.argmin(np.isfinite(credit)))
            raise SettingsError(f"{where}: Expected finite credit, got {credit[at]} for {at} nodes.")
        if credit[0] != 0.0:
            raise SettingsError(f"{where}: Expected a credit of 0 for 0 nodes, got {credit[0]:g}.")
        saves, span_s = spec.saves, self.settings.forward_time_s + spec.grow_cost_s + spec.shrink_cost_s
        span_s += 0.0 if saves is None else float((saves.checkpoint_s + saves.restart_s).max())
        if not math.isfinite(largest * span_s * credit.size):
            raise SettingsError(f"{where}: Expected credit and times whose product is finite, got too large ones.")
        return credit


def with_constraints(problem: AllocationProblem, added: Sequence[object], where: str) -> AllocationProblem:
    """The problem with rows, and at most one floor, that an objective adds; `SettingsError` for anything else."""
    rows = tuple(constraint for constraint in added if isinstance(constraint, LinearRow))
    floors = [constraint for constraint in added if isinstance(constraint, Floor)]
    for constraint in added:
        if not isinstance(constraint, LinearRow | Floor):
            kind = type(constraint).__name__
            raise SettingsError(f"{where}: Expected constraints to be LinearRows or a Floor, got {kind}.")
    for place, row in enumerate(rows):
        if not np.isfinite(row.coefficients).all() or math.isnan(row.lower) or math.isnan(row.upper):
            raise SettingsError(
                f"{where}: Expected finite coefficients and bounds without NaN, got others in row {place}."
            )
    if len(floors) > 1:
        raise SettingsError(f"{where}: Expected at most one Floor, got {len(floors)}.")
    return replace(problem, rows=rows, floor=floors[0] if floors else None) if added else problem
