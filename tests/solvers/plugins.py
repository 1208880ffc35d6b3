"""Solvers as other packages may have them: lazy, broken in some way, or sure of themselves."""

from __future__ import annotations

from solvers import AllocationProblem, DecidedBy, Held, Limits, SolveResult, StopReason, objective
from solvers.registry import get_solver, solve


class Lazy:
    """A third party's solver: nobody gets anything."""

    name = "lazy"
    exact = False
    extra_rows = False
    requires: tuple[str, ...] = ()

    def solve(self, problem, limits):  # noqa: ARG002
        counts = (0,) * len(problem.tasks)
        return SolveResult(counts, 0.0, float("inf"), StopReason.HEURISTIC, Held.INCUMBENT, self.name)


class Missing(Lazy):
    """One whose library is not there."""

    name = "missing"
    requires = ("no_such_library",)


class Crashing(Lazy):
    """One that breaks as soon as it is asked."""

    name = "crashing"

    def solve(self, problem, limits):  # noqa: ARG002
        raise RuntimeError("it\nbroke")


class Unmade(Lazy):
    """One that cannot even be made."""

    name = "unmade"

    def __init__(self):
        raise RuntimeError("no such device")


class Unlicensed(Lazy):
    """One whose licence server is down."""

    name = "unlicensed"

    def licence(self):
        raise OSError("no route to host")


class _Hostile(type):
    @property
    def exact(cls):
        raise RuntimeError("never asked before")


class Hostile(metaclass=_Hostile):
    """One whose capabilities cannot be read."""

    name = "hostile"
    extra_rows = False
    requires = ()


def __getattr__(name):
    if name == "Explosive":
        raise RuntimeError("on import")
    raise AttributeError(name)


class Nothing:
    """No nodes for anybody, called the optimum, with a bound to match, and said to have been found by pruning."""

    name, exact, extra_rows, floor = "nothing", True, True, True
    requires: tuple[str, ...] = ()

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:  # noqa: ARG002
        """Answer a problem."""
        counts = (0,) * len(problem.tasks)
        value = objective(problem, counts)
        ended = StopReason.OPTIMAL, Held.OPTIMAL, self.name
        return SolveResult(counts, value, value, *ended, decided_by=DecidedBy.PRUNING)


class Exact:
    """The optimum, which it asks the dynamic programme for."""

    name, exact, extra_rows = "exact", True, False
    requires: tuple[str, ...] = ()

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:
        """Answer a problem."""
        return solve(get_solver("dp"), problem, limits)
