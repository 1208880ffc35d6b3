"""Problems whose optimum is known by hand, to run every exact solver against."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from solvers import AllocationProblem, Floor, LinearRow, TaskOptions


@dataclass(frozen=True)
class KnownOptimum:
    """A problem, its optimum, and its counts: the only ones, or those of the tie rule; None if any may be chosen."""

    name: str
    problem: AllocationProblem
    objective: float
    counts: tuple[int, ...] | None = None


def task(values: dict[int, float], *, current: int = 0, minimum: int = 1) -> TaskOptions:
    """A task from a table of values by count."""
    return TaskOptions(
        np.array(list(values), dtype=np.int64),
        np.array(list(values.values()), dtype=np.float64),
        current,
        minimum,
        max(values),
    )


def linear(slope: float, most: int, *, current: int = 0) -> TaskOptions:
    """A task worth `slope` on each of up to `most` nodes."""
    return task({count: slope * count for count in range(most + 1)}, current=current)


def options(*offered: tuple[float, ...], current: int = 0) -> TaskOptions:
    """A task from rows of count, value and uses; doing nothing comes first by itself."""
    width = max(map(len, offered), default=3)
    table = np.array([(0.0,) * width, *offered])
    counts = table[:, 0].astype(np.int64)
    return TaskOptions(counts, table[:, 1], current, 1, int(counts.max()), table[:, 2:].T)


def problem(*tasks: TaskOptions, nodes: int, rows: tuple[LinearRow, ...] = (), **more: Any) -> AllocationProblem:
    """An allocation problem; `more` are capacities and a floor."""
    return AllocationProblem(tasks, nodes, rows, **more)


# Per node: 10 at 100 W, 6 at 50 W.
TWO_LIMITS = options((1, 6.0, 50.0), (1, 10.0, 100.0), (2, 12.0, 100.0), (2, 20.0, 200.0))
TENTH = options((1, 1.0, 0.1))

KNOWN = (
    KnownOptimum("no tasks", problem(nodes=5), 0.0, ()),
    KnownOptimum(
        "gains far too small to matter beside what is had anyway",
        problem(task({0: 1e300, 1: 1e300 + 1e285}), task({0: 0.0, 1: 1e-300}), nodes=2),
        1e300 + 1e285,
    ),
    KnownOptimum(
        "equal optima: the task that already holds its nodes keeps them",
        problem(linear(1.0, 4), linear(1.0, 4, current=4), nodes=4),
        4.0,
        (0, 4),
    ),
    KnownOptimum(
        "equal optima, all rescaled alike: the largest counts in task order",
        problem(*[linear(1.0, 4, current=9)] * 3, nodes=6),
        6.0,
        (4, 2, 0),
    ),
    KnownOptimum(
        "slopes that differ by rounding alone are equal",
        problem(linear(0.1, 8), linear(0.1, 8, current=3), linear(0.1, 8, current=5), nodes=8),
        0.8,
        (0, 3, 5),
    ),
    KnownOptimum(
        "an optimum of nothing keeps what is held",
        problem(task({0: 0.0, 1: 0.0, 2: 0.0}, current=1), task({0: -9.0, 1: 0.0}, current=1), nodes=2),
        0.0,
        (1, 1),
    ),
    KnownOptimum("more nodes than 32 bits count", problem(linear(1.0, 3), linear(2.0, 3), nodes=2**33), 9.0, (3, 3)),
)

WITH_ROWS = (
    KnownOptimum(
        "a quota on one task",
        problem(linear(3.0, 6), linear(1.0, 6), nodes=6, rows=(LinearRow(np.array([1.0, 0.0]), upper=2.0),)),
        10.0,
    ),
    KnownOptimum(
        "a row on which a convex curve's run is chosen",
        problem(
            task({0: 0.0, 1: 1.0, 2: 3.0, 3: 6.0, 4: 10.0}),
            linear(2.0, 4),
            nodes=8,
            rows=(LinearRow(np.array([2.0, 1.0]), upper=9.0),),
        ),
        12.0,
    ),
)

WITH_CAPACITIES = (
    KnownOptimum("the cap is reached exactly", problem(TWO_LIMITS, nodes=1, capacities=(100.0,)), 10.0, (1,)),
    KnownOptimum(
        "a cap that rounding alone exceeds", problem(*[TENTH] * 3, nodes=3, capacities=(0.3,)), 3.0, (1, 1, 1)
    ),
    *[
        KnownOptimum(
            f"a cap that is missed by {excess:g}",
            problem(TWO_LIMITS, TWO_LIMITS, nodes=4, capacities=(300.0 * (1 - excess),)),
            26.0,
        )
        for excess in (3e-9, 1e-8, 1e-7, 1e-6)
    ],
    *[
        KnownOptimum(
            f"of three tasks worth the same, {running} keeps the only watts that there are",
            problem(
                *[options((1, 5.0, 80.0), (2, 8.0, 200.0), current=int(each == running)) for each in range(3)],
                nodes=9,
                capacities=(100.0,),
            ),
            5.0,
            tuple(int(each == running) for each in range(3)),
        )
        for running in range(3)
    ],
    KnownOptimum(
        "of equals the one that changes fewer tasks, though values are far beyond the optimum",
        problem(
            options((1, 26.0, 1.0)),
            TaskOptions(np.arange(3), np.array([-25.0, 1.0, 100.0]), 2, 1, 2, np.array([[0.0, 1.0, 2.0]])),
            nodes=3,
            capacities=(1.0,),
        ),
        1.0,
        (0, 1),
    ),
)

SAME = task({0: -7.0, 2: -16.0, 3: 43.0, 4: -18.0})
WITH_FLOOR = (
    KnownOptimum(
        "a credit of 1e-8 of the value decides",
        problem(
            SAME,
            SAME,
            nodes=3,
            floor=Floor(((0,), (1,)), (np.array([2e-7, 2e-7, 6e-7, 1e-7]), np.array([3e-7, 1e-7, 4e-7, 0.0]))),
        ),
        36.0 + 3e-7,
    ),
    KnownOptimum(
        "one group can never earn anything, so another's credit counts for nothing",
        problem(
            task({0: -1.0, 1: -11.0}),
            task({0: -1.0}),
            nodes=14,
            floor=Floor(((0, 1), (1,)), (np.array([1e290, 4e290]), np.array([0.0])), 1000.0),
        ),
        -2.0,
    ),
)
