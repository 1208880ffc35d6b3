"""Which solvers a test can use here."""

from __future__ import annotations

import pytest

from bftrainer.errors import SolverUnavailableError
from solvers import Solver
from solvers.registry import get_solver, names, solver_class

EXACT = tuple(name for name in names() if solver_class(name).exact)
TAKES_ROWS = tuple(name for name in names() if solver_class(name).extra_rows)
TAKES_CAPACITIES = tuple(name for name in names() if getattr(solver_class(name), "capacities", False))
TAKES_FLOOR = tuple(name for name in names() if getattr(solver_class(name), "floor", False))


def usable(name: str) -> Solver:
    """The solver of that name; the test is skipped where it is not installed or has no licence."""
    try:
        solver = get_solver(name)
        probe = getattr(solver, "licence", None)
        if probe is not None and not probe().startswith("valid"):
            pytest.skip(probe())
    except SolverUnavailableError as error:
        pytest.skip(str(error))
    return solver
