"""Solvers by name: found by entry point, described without being imported, called through one wrapper.

A solver registers by an entry point of the group ``bftrainer.solvers`` whose object is a class that fits
`solvers.problem.Solver`. Its module must import its solver library inside `solve`, not at its top, so that listing
solvers imports none of them. A static method ``licence() -> str`` is optional.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from time import perf_counter

from bftrainer.errors import (
    BftrainerError,
    SolverError,
    SolverUnavailableError,
    UnknownSolverError,
    UnsupportedProblemError,
    suggestion,
)
from bftrainer.extras import EXTRAS, absent, installing, pip_install
from bftrainer.plugins import clash, entries_of
from solvers.evaluation import verified
from solvers.problem import AllocationProblem, Limits, Solver, SolveResult

GROUP = "bftrainer.solvers"


@dataclass(frozen=True, slots=True)
class SolverInfo:
    """One row of the list of solvers.

    Parameters
    ----------
    name : str
    installed : bool
        Whether everything that it requires can be imported.
    licensed : str
        What its licence covers or lacks; empty if it needs none, or is not installed.
    exact, extra_rows, capacities, floor : bool
        As `solvers.problem.Solver`.
    version : str
        Versions of what it requires; empty if it requires nothing or is not installed.
    """

    name: str
    installed: bool
    licensed: str
    exact: bool
    extra_rows: bool
    capacities: bool
    floor: bool
    version: str


def names() -> tuple[str, ...]:
    """Names of the registered solvers, whether installed or not."""
    return tuple(entries_of(GROUP))


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
    entries = entries_of(GROUP)
    if name not in entries:
        raise UnknownSolverError(f"Unknown solver {name!r}.{suggestion(name, entries)}")
    fault = clash(entries[name])
    if fault:
        raise UnknownSolverError(f"{name}: {fault}; uninstall the other.")
    entry = entries[name][0]
    with _loading(f"{name}: {entry.value} cannot be loaded"):
        registered: type[Solver] = entry.load()
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
        raise SolverUnavailableError(f"{name}: {missing[0]} is not installed; {_install_hint(missing[0])}")
    with _loading(name):
        return registered()


def heeded(name: str) -> frozenset[str]:
    """Which of `time`, `gap`, `threads`, `prune`, `effort` of the `Limits` affect the solver; all, if it does not say.

    Raises
    ------
    UnknownSolverError, SolverUnavailableError
        As `solver_class`.
    """
    registered = solver_class(name)
    with _loading(name):
        return frozenset(getattr(registered, "heeds", ("time", "gap", "threads", "prune", "effort")))


def licence(name: str) -> str:
    """Say what the licence of an installed solver covers, or why there is none; empty if it needs none."""
    solver = get_solver(name)
    with _loading(name):
        probe = getattr(solver, "licence", None)
        return str(probe()) if probe else ""


def catalogue() -> Iterator[SolverInfo]:
    """Describe every registered solver; starts a licensed one's environment, solves nothing."""
    for name in names():
        try:
            described = _described(name)
        except BftrainerError as error:
            # One broken third party must not hide the others.
            described = SolverInfo(name, False, str(error), False, False, False, False, "")
        yield described


def _described(name: str) -> SolverInfo:
    registered = solver_class(name)
    installed = not absent(*registered.requires)
    licensed = ""
    if installed:
        try:
            licensed = licence(name)
        except BftrainerError as error:
            licensed = str(error)
    return SolverInfo(
        name=name,
        installed=installed,
        licensed=licensed,
        exact=registered.exact,
        extra_rows=registered.extra_rows,
        capacities=_takes(registered, "capacities"),
        floor=_takes(registered, "floor"),
        version=", ".join(_version(module) for module in registered.requires) if installed else "",
    )


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
        if problem.capacities and not _takes(solver, "capacities"):
            raise UnsupportedProblemError(f"{name}: takes no capacities besides nodes; try --solver dp or cbc.")
        if problem.floor is not None and not _takes(solver, "floor"):
            raise UnsupportedProblemError(f"{name}: takes no floor for the worst-off; try --solver cbc or highs.")
        began = perf_counter()
        result = solver.solve(problem, limits)
        return verified(name, problem, result, perf_counter() - began)
    except (BftrainerError, MemoryError):
        raise
    except Exception as error:  # A solver may be third-party code, and a fallback must catch whatever it raises.
        raise SolverError(_one_line(name, error)) from error


def _takes(solver: Solver | type[Solver], capability: str) -> bool:
    """Whether the solver declares a capability; one that does not mention it lacks it."""
    return bool(getattr(solver, capability, False))


@contextmanager
def _loading(where: str) -> Iterator[None]:
    """Turn whatever third-party code raises into `SolverUnavailableError`."""
    try:
        yield
    except (BftrainerError, MemoryError):
        raise
    except Exception as error:  # A solver may be third-party code: its import and its constructor may raise anything.
        raise SolverUnavailableError(_one_line(where, error)) from error


def _one_line(where: str, error: Exception) -> str:
    return " ".join(f"{where}: {type(error).__name__}: {error}".split())


def _install_hint(module: str) -> str:
    """End of a message that says how to install a module: an extra of ours, or else the package of that name."""
    found = next((name for name, modules in EXTRAS.items() if module in modules), None)
    return f"try: {pip_install(module)}" if found is None else f"the extra {found} brings it, {installing(found)}"


@cache
def _version(module: str) -> str:
    with suppress(PackageNotFoundError):
        return f"{module} {version(module)}"
    # A distribution of another name provides it; finding that reads the file lists of all installed ones.
    for distribution in packages_distributions().get(module, ()):
        with suppress(PackageNotFoundError):
            return f"{distribution} {version(distribution)}"
    return module
