"""What a task's credit is measured against, so that tasks of different models compare; and its power."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import is_
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import ObjectiveError
from bftrainer.model import Objective, TaskSpec, TaskState, TunedRun, TuningSpec

__all__ = ["best_on_offer", "node_rate", "power_w", "tuned_only", "tuned_run", "tuning"]

_Credit = TypeVar("_Credit", bound=Objective)


class _Offer(tuple[TaskSpec, ...]):
    """What a task may run as, the same if each spec is: comparing what stands in them would take longer."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(tuple(map(id, self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Offer) and len(self) == len(other) and all(map(is_, self, other))


def best_on_offer(task: TaskState, measure: Callable[..., NDArray[np.float64]], *more: float) -> float:
    """The largest ``measure(spec, counts, *more)`` at any power limit and count above 0 that `task` may get.

    It is kept for the task's next decision, and for the next of its power limits in this one.
    """
    return _best(_Offer(task.modes), measure, *more)


@lru_cache(maxsize=1024)
def _best(offer: _Offer, measure: Callable[..., NDArray[np.float64]], *more: float) -> float:
    return max(float(measure(mode, np.arange(mode.min_nodes, mode.max_nodes + 1), *more).max()) for mode in offer)


def node_rate(task: TaskState) -> float:
    """Most work per second and node, at any power limit and count that `task` may get: what a node of it is worth."""
    return best_on_offer(task, _work_per_node)


def _work_per_node(spec: TaskSpec, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    return spec.rates[counts] / counts


def power_w(spec: TaskSpec, counts: NDArray[np.int64], objective: str) -> NDArray[np.float64]:
    """Power of a tuned task while it trains on `counts` nodes, same shape.

    Raises
    ------
    ObjectiveError
        If the task is not tuned, so that nobody knows its power, or draws none on a count above 0.
    """
    power: NDArray[np.float64] = tuned_run(spec, objective).power_w[counts]
    missing = (counts > 0) & ~(power > 0.0)
    if missing.any():
        at = int(np.argmax(missing))
        raise ObjectiveError(
            f"objective {objective}, task {spec.name}: Expected power > 0 W on {counts[at]} nodes, got {power[at]}."
        )
    return power


def tuned_run(spec: TaskSpec, objective: str) -> TunedRun:
    """The run that a tuned task is in.

    Raises
    ------
    ObjectiveError
        If it is in none.
    """
    if spec.run is None:
        raise _untuned(spec, objective)
    return spec.run


def tuning(spec: TaskSpec, objective: str) -> TuningSpec:
    """How a tuned task is tuned.

    Raises
    ------
    ObjectiveError
        If it is not.
    """
    if spec.tuning is None:
        raise _untuned(spec, objective)
    return spec.tuning


def tuned_only(objective: str) -> Callable[[_Credit], _Credit]:
    """Declare that credit is known of tuned tasks alone: a task set with others is refused before it is replayed."""

    def check(tasks: Sequence[TaskSpec]) -> None:
        """Refuse the first task that is not tuned."""
        for task in tasks:
            tuning(task, objective)

    def declared(credit: _Credit) -> _Credit:
        """Give the objective its check."""
        credit.check = check  # type: ignore[attr-defined]
        return credit

    return declared


def _untuned(spec: TaskSpec, objective: str) -> ObjectiveError:
    return ObjectiveError(
        f"objective {objective}, task {spec.name}: Expected a tuned task, whose power is known, got one without a "
        "zeus section."
    )
