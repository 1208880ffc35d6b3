"""Objectives on their own: callables ``credit(task_state, counts, now_s)``, and the task's best that they refer to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import is_
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError
from bftrainer.model import Objective, TaskSpec, TaskState, TunedRun, TuningSpec, static

_Credit = TypeVar("_Credit", bound=Objective)
_Section = TypeVar("_Section", TunedRun, TuningSpec)


class _Modes(tuple[TaskSpec, ...]):
    """Specs that a task may run with, compared by identity, as comparing their contents would take longer."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(tuple(map(id, self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Modes) and len(self) == len(other) and all(map(is_, self, other))


def best_of_modes(task: TaskState, measure: Callable[..., NDArray[np.float64]], *more: float) -> float:
    """The largest ``measure(spec, counts, *more)`` at any power limit and count above 0 that `task` may get."""
    # Cached for the task's next decision, and for its other power limits in this one.
    return _best(_Modes(task.modes), measure, *more)


@lru_cache(maxsize=1024)
def _best(modes: _Modes, measure: Callable[..., NDArray[np.float64]], *more: float) -> float:
    return max(float(measure(mode, np.arange(mode.min_nodes, mode.max_nodes + 1), *more).max()) for mode in modes)


def _share_of_best(
    task: TaskState, counts: NDArray[np.int64], measure: Callable[..., NDArray[np.float64]], *more: float
) -> NDArray[np.float64]:
    """``measure(spec, counts, *more)`` relative to `best_of_modes`; 0 on 0 nodes, or where the best is 0."""
    best, share, some = best_of_modes(task, measure, *more), np.zeros(counts.shape), counts > 0
    if best > 0.0:
        share[some] = measure(task.spec, counts[some], *more) / best
    return share


def node_rate(task: TaskState) -> float:
    """Most work per second and node, at any power limit and count that `task` may get."""
    return best_of_modes(task, _work_per_node)


def _work_per_node(spec: TaskSpec, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    return spec.rates[counts] / counts


def power_w(spec: TaskSpec, counts: NDArray[np.int64], objective: str) -> NDArray[np.float64]:
    """Power of a tuned task while it trains on `counts` nodes, same shape; refused if it draws none on one above 0."""
    power: NDArray[np.float64] = _require_tuned(spec.run, spec, objective).power_w[counts]
    missing = (counts > 0) & ~(power > 0.0)
    if missing.any():
        at = int(np.argmax(missing))
        raise SettingsError(
            f"objective {objective}, task {spec.name}: Expected power > 0 W on {counts[at]} nodes, got {power[at]}."
        )
    return power


def _require_tuned(section: _Section | None, spec: TaskSpec, objective: str) -> _Section:
    """The current run or the tuning of a tuned task; tasks that are not tuned are refused."""
    if section is None:
        raise SettingsError(
            f"objective {objective}, task {spec.name}: Expected a tuned task, whose power is known, got one without a "
            "zeus section."
        )
    return section


def _limit_to_tuned(credit: _Credit) -> _Credit:
    """Limit an objective to tuned tasks: a task set with others is refused before it is replayed."""

    def check(tasks: Sequence[TaskSpec]) -> None:
        for task in tasks:
            _require_tuned(task.tuning, task, credit.__name__.replace("_", "-"))  # type: ignore[attr-defined]

    credit.check = check  # type: ignore[attr-defined]
    return credit


@static
def as_given(task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:  # noqa: ARG001
    """Credit given in the task set, the throughput where none is: ``O_j(n)`` (arXiv:2106.12091, section 3.3)."""
    return task.spec.credits[counts]


@static
def throughput(task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:  # noqa: ARG001
    """Credit of `counts` nodes: work per second, ``P_j(n)`` (arXiv:2106.12091, section 3.3)."""
    return task.spec.rates[counts]


@static
def scaling_efficiency(task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:  # noqa: ARG001
    """Credit of `counts` nodes: speed-up over one node, ``P_j(n) / P_j(1)`` (arXiv:2106.12091, section 3.3)."""
    rates = task.spec.rates
    if not rates[1] > 0:
        raise SettingsError(
            f"objective scaling-efficiency, task {task.spec.name}: Expected throughput > 0 on one node, got {rates[1]}."
        )
    speedup: NDArray[np.float64] = rates[counts] / rates[1]
    return speedup


LATE = 0.1
"""Weight of work that no deadline needs, relative to work that one does."""

# Progress is booked in floats: a task that runs just fast enough must not fall behind by rounding.
TOLERANCE = 1e-9


def deadline(task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:
    """Credit of `counts` nodes: a tenth of the work rate, plus all of the rate that the deadline needs if it is met.

    ``O_j(n) = (a P_j(n) + (1 - a) q_j [P_j(n) L_j >= R_j + c_j(n)]) / p_j`` with ``a = 0.1``; ``R_j`` is the work that
    is left, ``L_j`` the time until the deadline, ``q_j = R_j / L_j`` the rate needed, ``c_j(n)`` the work that
    rescaling to n nodes loses, and ``p_j`` the most work per second and node. The bracket is 1 if the task, kept on n
    nodes from now on, finishes in time. A task that cannot do so on any count, or has no deadline, has the first term
    only: it gets nodes that no deadline needs.
    """
    spec, per_node = task.spec, node_rate(task)
    if not per_node > 0.0:
        return np.zeros(counts.shape)
    credit = LATE / per_node * spec.rates[counts]
    left_s = task.deadline_s - now_s
    if 0.0 < left_s < math.inf:
        remaining, before = max(0.0, spec.work - task.progress), task.nodes
        # A start from nothing is free.
        grow_s, shrink_s = spec.change_s(before) if before >= spec.min_nodes else (0.0, 0.0)
        needed = remaining + spec.rates[before] * (grow_s * (counts > before) + shrink_s * (counts < before))
        in_time = (counts > 0) & (spec.rates[counts] * left_s * (1.0 + TOLERANCE) >= needed)
        credit[in_time] += (1.0 - LATE) * remaining / left_s / per_node
    return credit


ENERGY = "energy"


@static
@_limit_to_tuned
def energy(task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:  # noqa: ARG001
    """Credit of `counts` nodes: work rate, weighed by work per joule relative to the task's best.

    ``O_j(n) = P_j(n) / p_j * e_j(n) / e_j``, where ``e_j(n) = P_j(n) / W_j(n)`` is the work that a joule does while the
    task trains, ``e_j`` the most at any count and power limit on offer, and ``p_j`` the most work per second and node.
    So the work rate is counted in nodes at their best, times the share of the energy that was needed. The share is
    relative to the task's own best, as the work has to be done some time anyway: a decision can only save what another
    setting of the same task would waste.

    Raises
    ------
    SettingsError
        If the task is not tuned, or draws no power on some count.
    """
    share = _share_of_best(task, counts, _work_per_joule)
    return task.spec.rates[counts] / node_rate(task) * share if share.any() else share


def _work_per_joule(spec: TaskSpec, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Work per joule on `counts` nodes, all above 0."""
    return spec.rates[counts] / power_w(spec, counts, ENERGY)


ENERGY_DELAY = "energy-delay"


@static
@_limit_to_tuned
def energy_delay(task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:  # noqa: ARG001
    """Credit of `counts` nodes: the task's least cost of a unit of work, relative to its cost there.

    ``O_j(n) = k_j / k_j(n)`` with ``k_j(n) = (eta_j W_j(n) + (1 - eta_j) W_max_j) / P_j(n)``, Zeus's cost of a unit of
    work, and ``k_j`` the least at any count and power limit that it may get. ``W_max_j``, which turns time into energy,
    is what all nodes that the task may get would draw at the highest limit on offer: Zeus's maximum power, for a job
    whose size is not fixed. It is the same for all counts, so that a run that takes less time costs less. With eta = 0
    the credit is the share of the task's full speed, with eta = 1 the share of its most work per joule.

    Raises
    ------
    SettingsError
        If the task is not tuned, or draws no power on some count.

    References
    ----------
    You et al., "Zeus", NSDI '23, equation 2.
    """
    limit_w = float(max(_require_tuned(mode.run, mode, ENERGY_DELAY).power_limit_w for mode in task.modes))
    return _share_of_best(task, counts, _work_per_cost, limit_w)


def _work_per_cost(spec: TaskSpec, counts: NDArray[np.int64], limit_w: float) -> NDArray[np.float64]:
    """``1 / k(n)`` on `counts` nodes, all above 0, of which a GPU draws at most `limit_w`."""
    eta = _require_tuned(spec.tuning, spec, ENERGY_DELAY).eta
    full_w = limit_w * spec.gpus_per_node * spec.max_nodes
    return spec.rates[counts] / (eta * power_w(spec, counts, ENERGY_DELAY) + (1.0 - eta) * full_w)
