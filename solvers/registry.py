"""Solvers by name: found by entry point, described without being imported, called through one wrapper.

A solver registers by an entry point of the group ``bftrainer.solvers`` whose object is a class that fits
`solvers.problem.Solver`; one that is not registered is called ``module:Class``. Its module must import its solver
library inside `solve`, not at its top, so that listing solvers imports none of them. A static method ``licence() ->
str`` is optional.

Solvers of other packages may hang, crash, exit or use up memory, so they are asked in a process of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, packages_distributions, version
from time import perf_counter
from typing import Any, Literal

import numpy as np

from bftrainer.errors import (
    BftrainerError,
    SolverError,
    SolverUnavailableError,
    UnknownSolverError,
    UnsupportedProblemError,
)
from bftrainer.extras import EXTRAS, absent, installing, pip_install
from bftrainer.plugins import Plugins, clash, entries_of
from solvers import supervised
from solvers.evaluation import add_time, verify_result
from solvers.option_pruning import upper_bound
from solvers.problem import AllocationProblem, Limits, OutOfTime, Solver, SolveResult, TaskOptions

GROUP = "bftrainer.solvers"
_SOLVERS = Plugins(GROUP, "solver", UnknownSolverError)
PROGRAMME = "solvers.dynamic_programme"
CAPABILITIES = ("exact", "extra_rows", "capacities", "floor")
MEMORY_BYTES = 4 * 2**30
"""Most memory of a process that runs solvers of other packages."""
Isolate = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True)
class Declaration:
    """Attributes of a solver, as `solvers.problem.Solver` has them; capabilities that it does not mention it lacks.

    Parameters
    ----------
    name : str
    exact, extra_rows, capacities, floor : bool
    requires : tuple of str
    needs_licence : bool
    is_loaded : bool
        Whether the above is known.
    fault : str
        Why it cannot be loaded or made; empty if it can.
    """

    name: str
    exact: bool = False
    extra_rows: bool = True
    capacities: bool = True
    floor: bool = True
    requires: tuple[str, ...] = ()
    needs_licence: bool = False
    is_loaded: bool = True
    fault: str = ""

    @classmethod
    def of(cls, solver: Solver | type[Solver]) -> Declaration:
        """What a solver at hand says of itself."""
        return cls(
            str(solver.name),
            exact=bool(solver.exact),
            extra_rows=bool(solver.extra_rows),
            capacities=bool(getattr(solver, "capacities", False)),
            floor=bool(getattr(solver, "floor", False)),
            requires=tuple(map(str, solver.requires)),
            needs_licence=hasattr(solver, "licence"),
        )


def names() -> tuple[str, ...]:
    """Names of the registered solvers, whether installed or not."""
    return tuple(entries_of(GROUP))


def _entry(name: str) -> EntryPoint:
    if ":" in name:
        return EntryPoint(name, name, GROUP)
    entries = entries_of(GROUP)
    if name not in entries:
        raise _SOLVERS.unknown(name, name, entries)
    fault = clash(entries[name])
    if fault:
        raise UnknownSolverError(f"{name}: {fault}; uninstall the other.")
    return entries[name][0]


def _is_own(module: str) -> bool:
    return module.partition(".")[0] in ("solvers", "bftrainer")


def is_ours(solver: str | Solver) -> bool:
    """Whether a solver is this package's own; others may do anything already while they are loaded.

    Raises
    ------
    UnknownSolverError
        If it is not registered, or several packages register different ones.
    """
    if isinstance(solver, str):
        return _is_own(_entry(solver).value.partition(":")[0])
    return solver.is_ours if isinstance(solver, Isolated) else _is_own(type(solver).__module__)


@cache
def solver_class(name: str) -> type[Solver]:
    """The class registered as `name`, whether or not what it requires is installed.

    Raises
    ------
    UnknownSolverError
        If it is not registered, or several packages register different ones.
    SolverUnavailableError
        If its module cannot be imported.
    """
    entry = _entry(name)
    named = name == entry.value  # as module:Class
    with _blaming(f"{name if named else f'{name}: {entry.value}'} cannot be loaded", SolverUnavailableError):
        registered: type[Solver] = _SOLVERS.imported(name, names()) if named else entry.load()
        # Each attribute is read once here, so that a missing or failing one is found.
        _ = registered.name, registered.exact, registered.extra_rows, tuple(registered.requires)
    return registered


def get_solver(name: str) -> Solver:
    """Make a solver by name.

    Raises
    ------
    UnknownSolverError
        If no solver of this name is registered.
    SolverUnavailableError
        If something it requires is not installed, or it cannot be made.
    """
    registered = solver_class(name)
    missing = absent(*registered.requires)
    if missing:
        extra = next((extra for extra, modules in EXTRAS.items() if missing[0] in modules), None)
        brings = (
            f"try: {pip_install(missing[0])}" if extra is None else f"the extra {extra} brings it, {installing(extra)}"
        )
        raise SolverUnavailableError(f"{name}: {missing[0]} is not installed; {brings}")
    with _blaming(name, SolverUnavailableError):
        return registered()


@cache
def declaration(name: str) -> Declaration:
    """What a solver says of itself; one of another package is asked in a process of its own.

    Raises
    ------
    UnknownSolverError
        If there is none of that name, or several packages register different ones.
    """
    try:
        found: Declaration = _load_and_ask(_declare, name)
        return found
    except UnknownSolverError:
        raise
    except BftrainerError as error:
        # Whoever asks it for an answer hears why there is none.
        return Declaration(name, is_loaded=False, fault=str(error))


def _declare(name: str) -> Declaration:
    fault = ""
    try:
        get_solver(name)
    except BftrainerError as error:
        fault = str(error)
    with _blaming(name, SolverUnavailableError):
        return replace(Declaration.of(solver_class(name)), fault=fault)


def licence(name: str) -> str:
    """Say what the licence of an installed solver covers, or why there is none; empty if it needs none."""
    return str(_load_and_ask(_licence, name))


def _licence(name: str) -> str:
    with _blaming(name, SolverUnavailableError):
        return str(getattr(get_solver(name), "licence", str)())


def _load_and_ask(ask: Callable[[str], Any], name: str) -> Any:
    """Ask the code of a solver, that of another package in a process of its own, whatever it does there."""
    if is_ours(name):
        return ask(name)
    within_s = supervised.START_S
    try:
        return supervised.run_in_subprocess(
            name, ask, name, deadline=perf_counter() + within_s, memory_bytes=MEMORY_BYTES
        )
    except OutOfTime:
        fault = f"{name}: cannot be loaded within {within_s:g} s; its process was ended."
        raise SolverUnavailableError(fault) from None
    except SolverUnavailableError:
        raise
    except SolverError as error:
        raise SolverUnavailableError(f"{str(error).rstrip('.')}, while it was loaded.") from None


def catalogue() -> Iterator[dict[str, Any]]:
    """Describe every registered solver; starts a licensed one's environment, solves nothing."""
    for name in names():
        licensed = ""
        try:
            says = declaration(name)
            installed = says.is_loaded and not absent(*says.requires)
            licensed = says.fault if installed or not says.is_loaded else ""
            if installed and says.needs_licence and not licensed:
                licensed = licence(name)
        except BftrainerError as error:  # one broken third party must not hide the others
            licensed = str(error)
            if isinstance(error, UnknownSolverError):
                says, installed = Declaration(name, is_loaded=False), False
        can = {key: says.is_loaded and getattr(says, key) for key in CAPABILITIES}
        brings = ", ".join(map(_version, says.requires)) if installed else ""
        yield {"name": name, "installed": installed, "licensed": licensed, **can, "version": brings}


@cache
def _version(module: str) -> str:
    """A module's distribution and its version, from their metadata."""
    try:
        return f"{module} {version(module)}"
    except PackageNotFoundError:  # a distribution of another name provides it, or none
        found = packages_distributions().get(module, [module])[0]
        return module if found == module else f"{found} {version(found)}"


def solve(solver: Solver, problem: AllocationProblem, limits: Limits) -> SolveResult:
    """Solve `problem` by `solver`, timed, and verify its answer; refuse what the solver cannot take.

    Raises
    ------
    UnsupportedProblemError
        If the problem has extra rows, capacities or a floor and the solver takes none.
    bftrainer.errors.SolverError
        If the solver fails, or its answer is invalid.
    """
    name = type(solver).__name__
    try:
        name = solver.name
        if problem.rows and not solver.extra_rows:
            raise UnsupportedProblemError(
                f"{name}: takes no extra rows, and the objective adds {len(problem.rows)}; try --solver cbc."
            )
        if problem.capacities and not getattr(solver, "capacities", False):
            raise UnsupportedProblemError(f"{name}: takes no capacities besides nodes; try --solver dp or cbc.")
        if problem.floor is not None and not getattr(solver, "floor", False):
            raise UnsupportedProblemError(f"{name}: takes no floor for the worst-off; try --solver cbc or highs.")
        began = perf_counter()
        result = solver.solve(problem, limits)
        solve_s = perf_counter() - began
        if type(solver).__module__ == PROGRAMME and not problem.capacities:
            return add_time(result, solve_s)  # `verify_result` finds the same, a tenth of an event later
        return verify_result(name, problem, result, solve_s, None if is_ours(solver) else upper_bound)
    except (BftrainerError, MemoryError):
        raise
    except Exception as error:  # a fallback must catch whatever third-party code raises
        raise SolverError(_describe(name, error)) from error


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

    def __init__(self, solver: str | Solver, memory_bytes: int = MEMORY_BYTES) -> None:
        self._solver, self._memory_bytes, self.is_ours = solver, memory_bytes, is_ours(solver)
        says = declaration(solver) if isinstance(solver, str) else Declaration.of(solver)
        self.name, self.exact, self.requires = says.name, says.exact, says.requires
        self.extra_rows, self.capacities, self.floor = says.extra_rows, says.capacities, says.floor
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
        try:
            # Starting and loading take none of the time limit.
            self._run(_get_ready, self._solver, within_s=supervised.START_S)
            asked, allowed_s = (self._solver, problem, limits), limits.time_s + max(0.1 * limits.time_s, 0.2)
            answer: SolveResult = self._run(_answer, *asked, within_s=allowed_s)
            return answer
        except OutOfTime:
            fault = f"{self.name}: no answer within its time limit of {limits.time_s:g} s; its process was ended."
        except MemoryError:
            fault = f"{self.name}: needs more than {self._memory_bytes / 2**30:g} GiB of memory."
        except SolverError as error:
            fault = str(error)
        raise SolverError(f"{fault.rstrip('.')}.")

    def _run(self, run: Callable[..., Any], *args: object, within_s: float) -> Any:
        deadline = perf_counter() + within_s
        with _blaming(self.name, SolverError):  # whatever third-party code raises, or sends
            return supervised.run_in_subprocess(
                self.name, run, *args, deadline=deadline, memory_bytes=self._memory_bytes
            )


def isolate_solver(solver: str | Solver, isolate: Isolate, memory_bytes: int = MEMORY_BYTES) -> str | Solver:
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
        ours = is_ours(solver)
        if isinstance(solver, str) and not ours:
            return Isolated(solver, memory_bytes)
        kind = solver_class(solver) if isinstance(solver, str) else solver
        # Objects of the caller's are trusted as the caller is, and may be of a class that no other process has.
        leaves = isolate == "always" and (bool(kind.requires) or not ours)
        return Isolated(solver, memory_bytes) if leaves else solver
    except SolverError:
        return solver  # whoever asks it hears why it cannot be used


_ready: set[str] = set()
_make_once = cache(get_solver)


def _get_ready(solver: str | Solver) -> None:
    """Load all that a solver calls, in this process and in the one that ours ask in turn, before time counts."""
    made = _make_once(solver) if isinstance(solver, str) else solver
    if made.name in _ready:
        return
    _ready.add(made.name)
    for name in made.requires:
        import_module(name)
    if is_ours(made):
        one = TaskOptions(np.arange(3), np.array([0.0, 1.0, 3.0]), maximum=2)
        asked = solver, AllocationProblem((one, one), 2), Limits(prune=False)
        _answer(*asked)
        supervised.run_in_subprocess(made.name, _answer, *asked, deadline=perf_counter() + supervised.START_S)


def _answer(solver: str | Solver, problem: AllocationProblem, limits: Limits) -> SolveResult:
    """What a solver answers, in the process that may die of it."""
    return solve(_make_once(solver) if isinstance(solver, str) else solver, problem, limits)


@contextmanager
def _blaming(where: str, kind: type[SolverError]) -> Iterator[None]:
    """Turn whatever third-party code raises into an error of this kind that names whose it is."""
    try:
        yield
    except (BftrainerError, MemoryError, OutOfTime):
        raise
    except Exception as error:
        raise kind(_describe(where, error)) from error


def _describe(where: str, error: Exception) -> str:
    """Message that names whose error it is."""
    return " ".join(f"{where}: {type(error).__name__}: {error}".split())


def check_licence(solver: Solver) -> None:
    """Have a solver that needs a licence solve something now, instead of failing at the first decision."""
    if hasattr(solver, "licence"):
        two = TaskOptions(np.arange(3), np.array([0.0, 1.0, 3.0]), maximum=2)
        solve(solver, AllocationProblem((two, two), 2), Limits(prune=False))
