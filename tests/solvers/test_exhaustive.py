"""The oracle of the other tests."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bftrainer.errors import SolverUnavailableError
from solvers import Limits, check, objective
from solvers.reference_solvers import Exhaustive
from tests.solvers.known_optima import KNOWN, WITH_ROWS, linear, problem


@pytest.mark.parametrize("known", [*KNOWN, *WITH_ROWS], ids=lambda known: known.name)
def test_against_plain_loops(known) -> None:
    """The vectorised enumeration finds what plain loops over `check` and `objective` find."""
    best = -np.inf
    for counts in itertools.product(*[task.counts.tolist() for task in known.problem.tasks]):
        try:
            check(known.problem, counts)
        except ValueError:
            continue
        best = max(best, objective(known.problem, counts))
    assert Exhaustive().solve(known.problem, Limits()).objective == best


def test_too_many_allocations_are_refused() -> None:
    """Beyond two million combinations it refuses at once instead of filling the memory."""
    with pytest.raises(SolverUnavailableError, match="exhaustive: Expected at most 2,000,000 allocations"):
        Exhaustive().solve(problem(*[linear(1.0, 64)] * 10, nodes=130), Limits())
