"""The count-level allocation problem, its result, and the interface of solvers.

Nodes of an idle pool are interchangeable and rescale costs depend on counts alone, so choosing *how many*
nodes each task gets has the same optimum as choosing *which* ones (arXiv:2106.12091, section 3). A task may offer
several options of one count that take different amounts of further resources, such as watts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class OutOfTime(Exception):  # noqa: N818 - a signal between modules of this package, not an error
    """A deadline has passed, or a search has taken all the effort or memory that it may."""


class StopReason(StrEnum):
    """Why a solve ended; `Held` says what it then has."""

    OPTIMAL = "optimal"
    TIME_LIMIT = "time_limit"
    EFFORT_LIMIT = "effort_limit"
    HEURISTIC = "heuristic"


class Held(StrEnum):
    """What a finished solve has in hand; ``CLAIMED`` is optimal by the word of a solver of another package."""

    OPTIMAL = "optimal"
    CLAIMED = "claimed"
    INCUMBENT = "incumbent"
    NOTHING = "nothing"


class DecidedBy(StrEnum):
    """The step that found the allocation: the backend, or one of the steps before it.

    ``TRIVIAL``: each task had one option, or there was enough for the best of each. ``PRUNING``: exact pruning left one
    allocation. ``SEARCH``: this package's own search proved it, or had one as good when the backend ran out of time.
    ``BACKEND``: the solver itself. ``REMEMBERED``: the same question was answered with a proof before. ``KEPT``:
    nothing was found, so the present allocation stays.
    """

    TRIVIAL = "trivial"
    PRUNING = "pruning"
    SEARCH = "search"
    BACKEND = "backend"
    REMEMBERED = "remembered"
    KEPT = "kept"


# As the compiled core numbers them.
STEPS = tuple(DecidedBy)
# Longer rows of values at all counts are built for each pool, no longer than that.
LONGEST_ROW = 2**16
Counts = tuple[int, ...]
"""Nodes of each task, in the problem's order."""
Choices = tuple[int, ...]
"""Index of each task's option."""


@dataclass(slots=True, eq=False)
class TaskOptions:
    """Options of one task: node counts, their values, and their use of further resources.

    Parameters
    ----------
    counts : ndarray of int64, shape (K,)
        Node counts on offer, first 0: strictly increasing, or, with `uses`, not decreasing.
    values : ndarray of float64, shape (K,)
        What each option adds to the objective; finite.
    current : int
        Nodes the task holds before the decision; need not be among `counts`.
    minimum, maximum : int
        Bounds on a non-zero count, for heuristics that work on bounds instead of values.
    uses : ndarray of float64, shape (R, K), or None
        How much of each further resource an option takes: finite, >= 0, and 0 where the count is 0. None takes nothing.
    labels : ndarray of int64, shape (K,), or None
        The caller's own number of each option.

    Raises
    ------
    ValueError
        If shapes differ, counts do not increase from 0, a value is not finite, or a use is not as above.
    """

    counts: NDArray[np.int64]
    values: NDArray[np.float64]
    current: int = 0
    minimum: int = 1
    maximum: int = 0
    uses: NDArray[np.float64] | None = None
    labels: NDArray[np.int64] | None = None
    # Whether counts above 0 have no gaps, and there are no `uses`.
    is_range: bool = field(init=False, repr=False, default=False)
    # The result of `dense_row` that suits all pools.
    row: bytes | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self.counts = counts = np.ascontiguousarray(self.counts, dtype=np.int64)
        self.values = values = np.ascontiguousarray(self.values, dtype=np.float64)
        if counts.ndim != 1 or counts.shape != values.shape or not counts.size:
            raise ValueError(f"Expected counts and values of one shape (K,), got {counts.shape} and {values.shape}.")
        steps = counts[1:] - counts[:-1]
        if counts[0] != 0 or (steps < (self.uses is None)).any():
            order = "to increase strictly" if self.uses is None else "not to decrease,"
            raise ValueError(f"Expected counts {order} from 0, got {counts.tolist()}.")
        if not math.isfinite(sum(map(abs, values.tolist()))):  # sums of finite values that overflow are of no use
            raise ValueError("Expected finite values, got one that is NaN or infinite.")
        if self.uses is None:
            self.is_range = bool((steps[1:] == 1).all())
            return
        uses = self.uses
        if uses.ndim != 2 or not len(uses) or uses.shape[1] != counts.size:
            raise ValueError(f"Expected uses of shape (R, {counts.size}) with R >= 1, got {uses.shape}.")
        wrong = uses[~((uses >= 0.0) & np.isfinite(uses)) | ((uses > 0.0) & (counts == 0))]
        if wrong.size:
            raise ValueError(f"Expected finite uses >= 0, and 0 on 0 nodes, got {wrong[0]}.")

    def dense_row(self, nodes: int) -> bytes:
        """Values at 0, 1, 2, ... nodes as float64, -inf where a count is not on offer: what the compiled core reads.

        Where counts have gaps it ends at a pool of `nodes`.
        """
        counts, last = self.counts, self.counts.item(-1)
        suits_all_pools = self.is_range and last < LONGEST_ROW
        if counts.size == last + 1:
            row = self.values.tobytes()
        else:
            dense = np.full((last if suits_all_pools else min(nodes, last)) + 1, -math.inf)
            fits = int(counts.searchsorted(dense.size))
            dense[counts[:fits]] = self.values[:fits]
            row = dense.tobytes()
        if suits_all_pools:
            self.row = row
        return row


class RangeOptions(TaskOptions):
    """Options of 0 and ``minimum..maximum`` nodes that this package builds itself: nothing is checked or converted.

    `counts` is ``counts_on_offer(minimum, maximum)``, `values` is contiguous and finite, and there are no `uses`.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        self.is_range = True


@dataclass(frozen=True, slots=True, eq=False)
class LinearRow:
    """Extra row `lower <= sum_j coefficients[j] * n_j <= upper`, for solvers with `extra_rows`.

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
class Floor:
    """Extra objective term ``weight * min_g sum_{j in g} credit_j``: max-min fairness, doi:10.1287/opre.1100.0865.

    Parameters
    ----------
    groups : tuple of tuple of int
        Indices of the tasks of each group; groups may share tasks and need not cover all.
    credits : tuple of ndarray of float64, length J
        Credit that each option of each task gives its groups, of the shape of the task's `values`; finite.
    weight : float
        Finite, >= 0.

    Raises
    ------
    ValueError
        If there is no group, a group is empty or names a task twice or an unknown one, or a number is not as above.
    """

    groups: tuple[tuple[int, ...], ...]
    credits: tuple[NDArray[np.float64], ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        tasks = len(self.credits)
        if not self.groups:
            raise ValueError("Expected at least one group, got none.")
        for number, group in enumerate(self.groups):
            if not group or len(set(group)) != len(group) or not all(0 <= task < tasks for task in group):
                raise ValueError(f"group {number}: Expected tasks of 0..{tasks - 1}, each once, got {group}.")
        if not 0.0 <= self.weight < math.inf:
            raise ValueError(f"Expected a finite weight >= 0, got {self.weight}.")
        for number, credit in enumerate(self.credits):
            # In Python's floats too large a product is infinite without a warning.
            if not math.isfinite(float(np.abs(credit).max(initial=0.0)) * max(self.weight, 1.0) * tasks):
                raise ValueError(f"task {number}: Expected finite credits that add up, got {credit.tolist()}.")

    def worth(self, earned: Sequence[float]) -> float:
        """The value of the term, given what each task has earned."""
        return self.weight * min(math.fsum([earned[task] for task in group]) for group in self.groups)

    @property
    def extremes(self) -> tuple[float, float]:
        """The least and the most that the term can be worth."""
        least, most = ([float(end(credit)) for credit in self.credits] for end in (np.min, np.max))
        return self.worth(least), self.worth(most)


@dataclass(slots=True, eq=False)
class AllocationProblem:
    """Choose one option per task that keeps all limits and maximises the sum of values.

    Parameters
    ----------
    tasks : tuple of TaskOptions, length J
        In order of admission.
    nodes : int
        Idle nodes N, held by tasks or free.
    rows : tuple of LinearRow
    capacities : tuple of float, length R
        Upper limit on the total use of each further resource: >= 0, may be infinite.
    floor : Floor or None

    Raises
    ------
    ValueError
        If `nodes` or a capacity is negative, or the lengths of rows, uses or credits are not those of the problem.
    """

    tasks: tuple[TaskOptions, ...]
    nodes: int
    rows: tuple[LinearRow, ...] = ()
    capacities: tuple[float, ...] = ()
    floor: Floor | None = None

    def __post_init__(self) -> None:
        if self.nodes < 0:
            raise ValueError(f"Expected nodes >= 0, got {self.nodes}.")
        for row in self.rows:
            if row.coefficients.shape != (len(self.tasks),):
                raise ValueError(f"Expected {len(self.tasks)} coefficients, got {row.coefficients.shape}.")
        for task in self.tasks:
            if task.uses is not None and len(task.uses) != len(self.capacities):
                number, resources = self.tasks.index(task), len(self.capacities)
                raise ValueError(f"task {number}: Expected uses of {resources} resources, got {len(task.uses)}.")
        for number, capacity in enumerate(self.capacities):
            if not capacity >= 0.0:
                raise ValueError(f"capacity {number}: Expected a number >= 0, got {capacity}.")
        if self.floor is not None:
            shapes, offered = [one.shape for one in self.floor.credits], [task.values.shape for task in self.tasks]
            if shapes != offered:
                raise ValueError(f"Expected credits of the values' shapes {offered}, got {shapes}.")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a solve may use.

    Parameters
    ----------
    time_s : float
        Wall-clock seconds of one solve, which ends by then or at most half a second later.
    gap : float
        Relative gap between bound and incumbent at which an exact solver may stop.
    threads : int
        Number of threads, for solvers that use several.
    prune : bool
        Whether to drop options that provably belong to no optimum before a model is built.
    effort : float
        Nodes of each branch-and-bound tree, and thousands of labels of `dp` under capacities: a limit that, unlike
        time, ends a solve alike on any machine.
    """

    time_s: float = 10.0
    gap: float = 1e-9
    threads: int = 1
    prune: bool = True
    effort: float = math.inf


@dataclass(slots=True)  # not frozen, nor is the problem, as making them would take two to three times as long
class SolveResult:
    """Result of one solve: why it stopped, and the allocation that it holds.

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
        Wall-clock seconds; the registry's wrapper fills it in, and whoever asked another solver before adds its time.
    choices : tuple of int, length J, or None
        Index of each task's option. A solver that takes capacities returns these, others may; the registry's wrapper
        fills in choices from counts and counts from choices.
    decided_by : DecidedBy
    model_rows, model_columns : int or None
        Size of the largest of the backend's models; None if it solved none.
    backend_s : float or None
        Seconds of `solve_s` spent in the backend; None where it did not run.
    """

    counts: Counts | None
    objective: float
    bound: float
    stop_reason: StopReason
    held: Held
    solver: str
    solve_s: float = 0.0
    choices: Choices | None = None
    decided_by: DecidedBy = DecidedBy.BACKEND
    model_rows: int | None = None
    model_columns: int | None = None
    backend_s: float | None = None

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
    """Interface of a solver; capabilities are class data, so that reading them costs nothing.

    Attributes
    ----------
    name : str
        As given to ``--solver``.
    exact : bool
        Whether an untimed solve proves its optimum.
    requires : tuple of str
        Import names of the modules that it needs.
    extra_rows, capacities, floor : bool, the last two optional
        Whether these of an `AllocationProblem` are honoured, and with `capacities` several options of one count.
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
    """Counts that a task with these bounds may get, 0 and ``minimum..maximum``: read-only, shared by such tasks."""
    counts = np.arange(minimum - 1, maximum + 1)
    counts[0] = 0
    counts.flags.writeable = False
    return counts
