"""The count-level allocation problem: what is asked, what is answered, and how an answer is checked.

Nodes of an idle pool are interchangeable and rescale costs depend on counts alone, so choosing *how many*
nodes each task gets has the same optimum as choosing *which* ones (arXiv:2106.12091, section 3, without its
one binary per task and node). Every solver takes an `AllocationProblem` and returns a `SolveResult`;
`objective()` and `check()` are the reference that all of them are held against.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "PROVEN_GAP",
    "AllocationProblem",
    "Held",
    "Limits",
    "LinearRow",
    "SolveResult",
    "Solver",
    "StopReason",
    "TaskOptions",
    "check",
    "counts_on_offer",
    "objective",
    "proves",
]

FEASIBILITY_TOLERANCE = 1e-6
# An allocation within this relative distance of the bound is optimal.
PROVEN_GAP = 1e-9
# Sums of values that cancel are known no better than to this share of the values' size.
ROUNDING = 2.0**-44


class StopReason(StrEnum):
    """Why a solve ended; what it then holds is `Held`."""

    OPTIMAL = "optimal"
    TIME_LIMIT = "time_limit"
    HEURISTIC = "heuristic"


class Held(StrEnum):
    """What a finished solve holds."""

    OPTIMAL = "optimal"
    INCUMBENT = "incumbent"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, eq=False)
class TaskOptions:
    """The node counts one task may get, and what each is worth.

    Parameters
    ----------
    counts : ndarray of int64, shape (K,)
        Node counts on offer, strictly increasing, first 0.
    values : ndarray of float64, shape (K,)
        What the objective gains at those counts; finite.
    current : int
        Nodes the task holds before the decision; it need not be on offer.
    minimum, maximum : int
        Bounds on a non-zero count, for heuristics that work on bounds instead of values.

    Raises
    ------
    ValueError
        If shapes differ, counts do not increase strictly from 0, or a value is not finite.
    """

    counts: NDArray[np.int64]
    values: NDArray[np.float64]
    current: int = 0
    minimum: int = 1
    maximum: int = 0

    def __post_init__(self) -> None:
        counts, values = self.counts, self.values
        if counts.ndim != 1 or counts.shape != values.shape or not counts.size:
            raise ValueError(f"Expected counts and values of one shape (K,), got {counts.shape} and {values.shape}.")
        if counts[0] != 0 or (counts[1:] <= counts[:-1]).any():
            raise ValueError(f"Expected counts to increase strictly from 0, got {counts.tolist()}.")
        # A sum is finite only if every addend is; overflow of finite values is refused as well.
        if not math.isfinite(values.sum()):
            raise ValueError("Expected finite values, got one that is NaN or infinite.")


@dataclass(frozen=True, slots=True, eq=False)
class LinearRow:
    """`lower <= sum_j coefficients[j] * n_j <= upper`, one more row for solvers with `extra_rows`.

    Parameters
    ----------
    coefficients : ndarray of float64, shape (J,)
        One coefficient per task, in the problem's order.
    lower, upper : float
        Bounds; either may be infinite.
    """

    coefficients: NDArray[np.float64]
    lower: float = -math.inf
    upper: float = math.inf


@dataclass(frozen=True, slots=True, eq=False)
class AllocationProblem:
    """Choose one option a task so that the counts fit the pool and the values add up to the most.

    Parameters
    ----------
    tasks : tuple of TaskOptions, length J
        In order of admission.
    nodes : int
        Idle nodes N: those that tasks hold and those that are free.
    rows : tuple of LinearRow
        Further linear constraints on the counts.

    Raises
    ------
    ValueError
        If `nodes` is negative or a row's length is not J.

    References
    ----------
    Liu et al., arXiv:2106.12091, section 3.
    """

    tasks: tuple[TaskOptions, ...]
    nodes: int
    rows: tuple[LinearRow, ...] = ()

    def __post_init__(self) -> None:
        if self.nodes < 0:
            raise ValueError(f"Expected nodes >= 0, got {self.nodes}.")
        for row in self.rows:
            if row.coefficients.shape != (len(self.tasks),):
                raise ValueError(f"Expected {len(self.tasks)} coefficients, got {row.coefficients.shape}.")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a solve may use.

    Parameters
    ----------
    time_s : float
        Wall-clock seconds of one solve.
    gap : float
        Relative gap between bound and incumbent at which an exact solver may stop.
    threads : int
        Threads of solvers that have them.
    prune : bool
        Whether options that provably belong to no optimum are dropped before a model is built.
    """

    time_s: float = 10.0
    gap: float = 1e-9
    threads: int = 1
    prune: bool = True


@dataclass(frozen=True, slots=True)
class SolveResult:
    """The outcome of one solve: why it stopped, and what it holds.

    Parameters
    ----------
    counts : tuple of int, length J, or None
        Nodes per task in the problem's order; None if nothing was found.
    objective : float
        `objective(problem, counts)`; NaN if nothing was found.
    bound : float
        No allocation is worth more; infinity if unknown.
    stop_reason : StopReason
    held : Held
    solver : str
        Name of the solver that answered.
    solve_s : float
        Wall-clock seconds; the registry's wrapper fills it in.
    """

    counts: tuple[int, ...] | None
    objective: float
    bound: float
    stop_reason: StopReason
    held: Held
    solver: str
    solve_s: float = 0.0

    @property
    def gap(self) -> float:
        """Relative distance of bound and objective: 0 if proven optimal, NaN if nothing is held, infinite above 0."""
        if self.held is Held.OPTIMAL:
            return 0.0
        if self.counts is None:
            return math.nan
        excess = self.bound - self.objective
        if excess <= 0.0:
            return 0.0
        return excess / abs(self.objective) if self.objective else math.inf


class Solver(Protocol):
    """What a solver offers; capabilities are class data, so that asking costs nothing.

    Attributes
    ----------
    name : str
        As given to ``--solver``.
    exact : bool
        Whether an untimed solve proves its optimum.
    extra_rows : bool
        Whether `AllocationProblem.rows` are honoured.
    requires : tuple of str
        Import names without which it cannot run.
    """

    name: str
    exact: bool
    extra_rows: bool
    requires: tuple[str, ...]

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:
        """Answer `problem` within `limits`."""
        ...


@lru_cache(maxsize=1024)
def counts_on_offer(minimum: int, maximum: int) -> NDArray[np.int64]:
    """Counts that a task of those bounds may get: 0 and ``minimum..maximum``.

    Returns
    -------
    ndarray of int64, shape (maximum - minimum + 2,)
        Read-only: tasks of the same bounds share it.
    """
    counts = np.arange(minimum - 1, maximum + 1)
    counts[0] = 0
    counts.flags.writeable = False
    return counts


def objective(problem: AllocationProblem, counts: Sequence[int]) -> float:
    """Value of an allocation: the sum of the chosen options' values, correctly rounded.

    Raises
    ------
    ValueError
        If a count is not on offer.
    """
    if len(counts) != len(problem.tasks):
        raise ValueError(f"Expected {len(problem.tasks)} counts, got {len(counts)}.")
    total = []
    for number, (task, count) in enumerate(zip(problem.tasks, counts, strict=True)):
        offered = task.counts
        # Nearly all options end in a range without gaps, or the count is 0; a search takes ten times as long.
        index = count - offered.item(-1) + offered.size - 1 if count else 0
        if not (0 <= index < offered.size and offered.item(index) == count):
            index = int(offered.searchsorted(count))
            if index == offered.size or offered.item(index) != count:
                raise ValueError(f"task {number}: Expected one of the counts on offer, got {count}.")
        total.append(task.values.item(index))
    return math.fsum(total)


def check(problem: AllocationProblem, counts: Sequence[int]) -> float:
    """Value of the allocation, if it is feasible.

    Raises
    ------
    ValueError
        If a count is not on offer, the pool is too small, or a row is violated.
    """
    value = objective(problem, counts)
    if sum(counts) > problem.nodes:
        raise ValueError(f"Expected at most {problem.nodes} nodes, got {sum(counts)}.")
    for number, row in enumerate(problem.rows):
        total = float(row.coefficients @ np.asarray(counts, dtype=np.float64))
        if not row.lower - FEASIBILITY_TOLERANCE <= total <= row.upper + FEASIBILITY_TOLERANCE:
            raise ValueError(f"row {number}: Expected {row.lower} <= sum <= {row.upper}, got {total}.")
    return value


def proves(problem: AllocationProblem, bound: float, value: float) -> bool:
    """Whether an allocation worth `value` is optimal if none is worth more than `bound`; never if that is NaN."""
    excess = bound - value
    if excess <= PROVEN_GAP * abs(value):
        return True
    if not math.isfinite(excess):
        return False
    return excess <= ROUNDING * sum(float(np.abs(task.values).max()) for task in problem.tasks)
