"""Solvers by name: found by entry point, described without being imported, called through one wrapper.

A solver registers by an entry point of the group ``bftrainer.solvers`` whose object is a class that fits
`solvers.problem.Solver`; one that is not registered is called ``module:Class``. Its module must import its solver
library inside `solve`, not at its top, so that listing solvers imports none of them. A static method ``licence() ->
str`` is optional.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, packages_distributions, version
from time import perf_counter
from typing import Any

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
from solvers.evaluation import timed, verified
from solvers.option_pruning import upper_bound
from solvers.problem import AllocationProblem, Limits, OutOfTime, Solver, SolveResult

GROUP = "bftrainer.solvers"
_SOLVERS = Plugins(GROUP, "solver", UnknownSolverError)
PROGRAMME = "solvers.dynamic_programme"
CAPABILITIES = ("exact", "extra_rows", "capacities", "floor")
ALL_LIMITS = frozenset({"time", "gap", "threads", "prune", "effort"})
MEMORY_BYTES = 4 * 2**30
"""Most memory of a process that runs solvers of other packages."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a solver says of itself, as `solvers.problem.Solver`; nothing is known of one that cannot be loaded.

    Parameters
    ----------
    name : str
    exact, extra_rows, capacities, floor : bool
    requires : tuple of str
    heeds : frozenset of str
        All limits, if it does not say.
    needs_licence, is_loaded : bool
    fault : str
        Why it cannot be loaded or made; empty if it can.
    """

    name: str
    exact: bool = False
    extra_rows: bool = True
    capacities: bool = True
    floor: bool = True
    requires: tuple[str, ...] = ()
    heeds: frozenset[str] = ALL_LIMITS
    needs_licence: bool = False
    is_loaded: bool = True
    fault: str = ""


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


def is_own(module: str) -> bool:
    """Whether a module is this package's own."""
    return module.partition(".")[0] in ("solvers", "bftrainer")


def is_ours(name: str) -> bool:
    """Whether a solver is this package's own; others may do anything already while they are loaded.

    Raises
    ------
    UnknownSolverError
        If it is not registered, or several packages register different ones.
    """
    return is_own(_entry(name).value.partition(":")[0])


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
    with _naming(f"{name if named else f'{name}: {entry.value}'} cannot be loaded"):
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
    with _naming(name):
        return registered()


def declare(solver: Solver | type[Solver]) -> Declaration:
    """What a solver at hand says of itself; capabilities that it does not mention it lacks."""
    return Declaration(
        str(solver.name),
        exact=bool(solver.exact),
        extra_rows=bool(solver.extra_rows),
        capacities=bool(getattr(solver, "capacities", False)),
        floor=bool(getattr(solver, "floor", False)),
        requires=tuple(map(str, solver.requires)),
        heeds=frozenset(getattr(solver, "heeds", ALL_LIMITS)),
        needs_licence=hasattr(solver, "licence"),
    )


@cache
def declaration(name: str) -> Declaration:
    """What a solver says of itself; one of another package is asked in a process of its own.

    Raises
    ------
    UnknownSolverError
        If there is none of that name, or several packages register different ones.
    """
    try:
        found: Declaration = _ask(_declared, name)
        return found
    except UnknownSolverError:
        raise
    except BftrainerError as error:
        # Whoever asks it for an answer hears why there is none.
        return Declaration(name, is_loaded=False, fault=str(error))


def _declared(name: str) -> Declaration:
    fault = ""
    try:
        get_solver(name)
    except BftrainerError as error:
        fault = str(error)
    with _naming(name):
        return replace(declare(solver_class(name)), fault=fault)


def licence(name: str) -> str:
    """Say what the licence of an installed solver covers, or why there is none; empty if it needs none."""
    return str(_ask(_licence, name))


def _licence(name: str) -> str:
    with _naming(name):
        return str(getattr(get_solver(name), "licence", str)())


def _ask(ask: Callable[[str], Any], name: str) -> Any:
    """Ask the code of a solver, that of another package in a process of its own, whatever it does there."""
    if is_ours(name):
        return ask(name)
    start_s = supervised.START_S
    try:
        return supervised.run_apart(name, ask, name, deadline=perf_counter() + start_s, memory_bytes=MEMORY_BYTES)
    except OutOfTime:
        fault = f"{name}: cannot be loaded within {start_s:g} s; its process was ended."
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
        if type(solver).__module__ == PROGRAMME and not problem.capacities:
            return timed(result, perf_counter() - began)  # `verified` finds the same, a tenth of an event later
        solve_s = perf_counter() - began
        return verified(name, problem, result, solve_s, None if _is_trusted(solver) else upper_bound)
    except (BftrainerError, MemoryError):
        raise
    except Exception as error:  # a fallback must catch whatever third-party code raises
        raise SolverError(describe_error(name, error)) from error


def _is_trusted(solver: Solver) -> bool:
    """Whether what a solver claims of its answers is this package's own, also of one in another process."""
    module = type(solver).__module__
    return getattr(solver, "is_ours", False) if module == "solvers.isolation" else is_own(module)


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Turn whatever third-party code raises while it is loaded into `SolverUnavailableError`."""
    try:
        yield
    except (BftrainerError, MemoryError):
        raise
    except Exception as error:  # its import and its constructor may raise anything
        raise SolverUnavailableError(describe_error(where, error)) from error


def describe_error(where: str, error: Exception) -> str:
    """Message that names whose error it is."""
    return " ".join(f"{where}: {type(error).__name__}: {error}".split())


@cache
def _version(module: str) -> str:
    """A module's distribution and its version, from their metadata."""
    try:
        return f"{module} {version(module)}"
    except PackageNotFoundError:  # a distribution of another name provides it, or none
        found = packages_distributions().get(module, [module])[0]
        return module if found == module else f"{found} {version(found)}"
