"""Solvers in a process of their own, which may hang, crash, exit or use up memory without taking the run along."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from time import perf_counter
from typing import Any, Literal

import numpy as np

from bftrainer.errors import SolverError, SolverUnavailableError
from solvers.evaluation import verified
from solvers.problem import AllocationProblem, Limits, OutOfTime, Solver, SolveResult, TaskOptions
from solvers.registry import declaration, get_solver, is_ours, solve, solver_class
from solvers.supervised import Bounds, run_apart

Isolate = Literal["auto", "always", "never"]

GIB = 2**30
BOUNDS = Bounds(memory_bytes=4 * GIB, file_bytes=64 * 2**20, start_s=60.0)


class Isolated:
    """A solver that answers in another process.

    Parameters
    ----------
    solver : str or Solver
        Registered name, which the other process looks up itself; or an object that can be pickled.
    bounds : Bounds

    Raises
    ------
    UnknownSolverError, SolverUnavailableError
        If no solver of this name is registered, or it cannot be made.
    """

    name: str
    exact: bool
    extra_rows: bool
    capacities: bool
    floor: bool
    requires: tuple[str, ...]
    heeds: frozenset[str]
    licence: Callable[[], str]

    def __init__(self, solver: str | Solver, bounds: Bounds = BOUNDS) -> None:
        self._solver, self._bounds = solver, bounds
        self.fault, self.core_step = "", ""
        self.is_ours = is_ours(solver) if isinstance(solver, str) else _is_ours(type(solver))
        if isinstance(solver, str) and not self.is_ours:
            self._declare_as_other_package(solver)
            return
        made: Any = _made(solver) if isinstance(solver, str) else solver
        self._declare(made)
        # The compiled core does part of what our solvers do; others do all of it.
        if self.is_ours and hasattr(made, "core_step"):
            self.core_step = made.core_step

    def _declare_as_other_package(self, name: str) -> None:
        """Take over what the solver says of itself; one that cannot be made refuses every problem, for a fallback."""
        says = declaration(name)
        self.fault = says.fault
        self._declare(says)
        if says.needs_licence or says.fault:
            self.licence = lambda: ""  # so that it is tried before the run

    def _declare(self, says: object) -> None:
        for each in ("name", "exact", "extra_rows", "requires", "capacities", "floor", "heeds", "licence"):
            if hasattr(says, each):
                setattr(self, each, getattr(says, each))

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:
        """Answer `problem` within `limits`.

        Raises
        ------
        SolverError
            If the solver fails in any way.
        """
        if self.fault:
            raise SolverUnavailableError(self.fault)
        name, began = self.name, perf_counter()
        latest = began + limits.time_s + max(0.1 * limits.time_s, 0.2)
        apart: Any = {"deadline": latest, "bounds": self._bounds, "ready": _get_ready}
        try:
            answer = run_apart(name, _answer, self._solver, problem, limits, **apart)
            return verified(name, problem, answer, perf_counter() - began)
        except OutOfTime:
            fault = f"{name}: no answer within its time limit of {limits.time_s:g} s; its process was ended."
        except MemoryError:
            fault = f"{name}: needs more than {self._bounds.memory_bytes / GIB:g} GiB of memory."
        except SolverError as error:
            fault = str(error)
        except Exception as error:  # whatever third-party code raises, or sends
            fault = " ".join(f"{name}: {type(error).__name__}: {error}".split())
        raise SolverError(f"{fault.rstrip('.')}.")


def isolated(solver: str | Solver, isolate: Isolate, bounds: Bounds = BOUNDS) -> str | Solver:
    """The solver, in a process of its own where that is wanted.

    Parameters
    ----------
    solver : str or Solver
    isolate : {"auto", "always", "never"}
        Which leave this process: those that other packages have registered; all but those that are this package's own
        from end to end; none. CBC and HiGHS, wherever they may not keep their limits, always do.
    bounds : Bounds
        As of `Isolated`.
    """
    if isolate == "never":
        return solver
    try:
        if isinstance(solver, str) and not is_ours(solver):
            return Isolated(solver, bounds)
        kind = solver_class(solver) if isinstance(solver, str) else type(solver)
        # Objects of the caller's are trusted as the caller is, and may be of a class that no other process has.
        leaves = isolate == "always" and (bool(kind.requires) or not _is_ours(kind))
        return Isolated(solver, bounds) if leaves else solver
    except SolverError:
        return solver  # whoever asks it hears why it cannot be used


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


@cache
def _made(name: str) -> Solver:
    return get_solver(name)


def _get_ready(solver: str | Solver) -> None:
    """Load all that a solver calls, in this process and in the one that ours ask in turn, before time counts."""
    made = _made(solver) if isinstance(solver, str) else solver
    if not _is_ours(type(made)):
        for name in made.requires:
            import_module(name)
        return
    one = TaskOptions(np.arange(3), np.array([0.0, 1.0, 3.0]), maximum=2)
    asked = solver, AllocationProblem((one, one), 2), Limits(prune=False)
    _answer(*asked)
    if made.requires:
        run_apart(made.name, _answer, *asked, deadline=perf_counter() + BOUNDS.start_s)


def _answer(solver: str | Solver, problem: AllocationProblem, limits: Limits) -> SolveResult:
    """What a solver answers, in the process that may die of it."""
    return solve(_made(solver) if isinstance(solver, str) else solver, problem, limits)
