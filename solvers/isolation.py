"""Solvers in a process of their own, which may hang, crash, exit or use up memory without taking the run along."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from time import perf_counter
from typing import Literal

import numpy as np

from bftrainer.errors import SolverError, SolverUnavailableError
from solvers import registry
from solvers.problem import AllocationProblem, Limits, OutOfTime, Solver, SolveResult, TaskOptions
from solvers.supervised import START_S, run_apart

Isolate = Literal["auto", "always", "never"]


class Isolated:
    """A solver that answers in another process; one that cannot be made refuses every problem, for a fallback.

    Parameters
    ----------
    solver : str or Solver
        Registered name, which the other process looks up itself; or an object that can be pickled.
    memory_bytes : int
        Most memory of that process.

    Raises
    ------
    UnknownSolverError
        If no solver of this name is registered.
    """

    def __init__(self, solver: str | Solver, memory_bytes: int = registry.MEMORY_BYTES) -> None:
        self._solver, self._memory_bytes = solver, memory_bytes
        says = registry.declaration(solver) if isinstance(solver, str) else registry.declare(solver)
        self.name, self.exact, self.requires, self.heeds = says.name, says.exact, says.requires, says.heeds
        self.extra_rows, self.capacities, self.floor = says.extra_rows, says.capacities, says.floor
        self.is_ours = registry.is_ours(solver) if isinstance(solver, str) else registry.is_own(type(solver).__module__)
        self.fault = says.fault
        if says.needs_licence or says.fault:
            self.licence = lambda: ""  # so that it is tried before the run

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:
        """Answer `problem` within `limits`.

        Raises
        ------
        SolverError
            If the solver fails in any way.
        """
        if self.fault:
            raise SolverUnavailableError(self.fault)
        name, most = self.name, self._memory_bytes
        try:
            # Starting and loading take none of the time limit.
            run_apart(name, _get_ready, self._solver, deadline=perf_counter() + START_S, memory_bytes=most)
            latest = perf_counter() + limits.time_s + max(0.1 * limits.time_s, 0.2)
            asked = _answer, self._solver, problem, limits
            answer: SolveResult = run_apart(name, *asked, deadline=latest, memory_bytes=most)
            return answer
        except OutOfTime:
            fault = f"{name}: no answer within its time limit of {limits.time_s:g} s; its process was ended."
        except MemoryError:
            fault = f"{name}: needs more than {most / 2**30:g} GiB of memory."
        except SolverError as error:
            fault = str(error)
        except Exception as error:  # whatever third-party code raises, or sends
            fault = registry.describe_error(name, error)
        raise SolverError(f"{fault.rstrip('.')}.")


def isolated(solver: str | Solver, isolate: Isolate, memory_bytes: int = registry.MEMORY_BYTES) -> str | Solver:
    """The solver, in a process of its own where that is wanted.

    Parameters
    ----------
    solver : str or Solver
    isolate : {"auto", "always", "never"}
        Which leave this process: those that other packages have registered; all but those that are this package's own
        from end to end; none. CBC and HiGHS, wherever they may not keep their limits, always do.
    memory_bytes : int
        As of `Isolated`.
    """
    if isolate == "never":
        return solver
    try:
        if isinstance(solver, str) and not registry.is_ours(solver):
            return Isolated(solver, memory_bytes)
        kind = registry.solver_class(solver) if isinstance(solver, str) else type(solver)
        # Objects of the caller's are trusted as the caller is, and may be of a class that no other process has.
        leaves = isolate == "always" and (bool(kind.requires) or not registry.is_own(kind.__module__))
        return Isolated(solver, memory_bytes) if leaves else solver
    except SolverError:
        return solver  # whoever asks it hears why it cannot be used


_ready: set[str] = set()


@cache
def _made(name: str) -> Solver:
    return registry.get_solver(name)


def _get_ready(solver: str | Solver) -> None:
    """Load all that a solver calls, in this process and in the one that ours ask in turn, before time counts."""
    made = _made(solver) if isinstance(solver, str) else solver
    if made.name in _ready:
        return
    _ready.add(made.name)
    for name in made.requires:
        import_module(name)
    if registry.is_own(type(made).__module__):
        one = TaskOptions(np.arange(3), np.array([0.0, 1.0, 3.0]), maximum=2)
        asked = solver, AllocationProblem((one, one), 2), Limits(prune=False)
        _answer(*asked)
        run_apart(made.name, _answer, *asked, deadline=perf_counter() + START_S)


def _answer(solver: str | Solver, problem: AllocationProblem, limits: Limits) -> SolveResult:
    """What a solver answers, in the process that may die of it."""
    return registry.solve(_made(solver) if isinstance(solver, str) else solver, problem, limits)
