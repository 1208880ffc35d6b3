"""Solvers by name: found by entry point, described without being imported, called through one wrapper.

A solver registers by an entry point of the group ``bftrainer.solvers`` whose object is a class that fits
`solvers.problem.Solver`. Its module must import its solver library inside `solve`, not at its top, so that listing
solvers imports none of them. A static method ``licence() -> str`` is optional.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, packages_distributions, version
from importlib.util import find_spec
from time import perf_counter

from bftrainer.errors import SolverUnavailableError, UnknownSolverError, UnsupportedProblemError, suggestion
from solvers.problem import AllocationProblem, Limits, Solver, SolveResult

__all__ = ["GROUP", "SolverInfo", "catalogue", "get_solver", "licence", "names", "solve", "solver_class"]

GROUP = "bftrainer.solvers"
# Import name -> what installs it, for the message about a missing one.
EXTRAS = {"gurobipy": "pip install bftrainer[gurobi]"}


@dataclass(frozen=True, slots=True)
class SolverInfo:
    """One row of the list of solvers.

    Parameters
    ----------
    name : str
    installed : bool
        Whether all that it requires can be imported.
    licensed : str
        What its licence covers or lacks; empty if it needs none, or is not installed.
    exact, extra_rows : bool
        As `solvers.problem.Solver`.
    version : str
        Versions of what it requires; empty if it requires nothing or is not installed.
    """

    name: str
    installed: bool
    licensed: str
    exact: bool
    extra_rows: bool
    version: str


@cache
def _entries() -> dict[str, EntryPoint]:
    """Entry points by name; reading them takes milliseconds, so it is done once a process."""
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)}


def names() -> tuple[str, ...]:
    """Names of the registered solvers, installed or not."""
    return tuple(_entries())


@cache
def solver_class(name: str) -> type[Solver]:
    """The class registered as `name`, whether or not what it requires is installed.

    Raises
    ------
    UnknownSolverError
        If nobody registered it.
    SolverUnavailableError
        If its module cannot be imported.
    """
    entries = _entries()
    if name not in entries:
        raise UnknownSolverError(f"Unknown solver {name!r}.{suggestion(name, entries)}")
    try:
        registered: type[Solver] = entries[name].load()
    except (ImportError, AttributeError) as error:
        raise SolverUnavailableError(f"{name}: {entries[name].value} cannot be loaded: {error}") from error
    return registered


def get_solver(name: str) -> Solver:
    """A new solver of that name.

    Raises
    ------
    UnknownSolverError
        If nobody registered it.
    SolverUnavailableError
        If something it requires is not installed.
    """
    registered = solver_class(name)
    missing = [module for module in registered.requires if not _importable(module)]
    if missing:
        how = EXTRAS.get(missing[0], f"pip install {missing[0]}")
        raise SolverUnavailableError(f"{name}: {missing[0]} is not installed; try: {how}")
    return registered()


def licence(name: str) -> str:
    """What the licence of an installed solver covers, or why there is none; empty if it needs none."""
    probe = getattr(get_solver(name), "licence", None)
    return probe() if probe else ""


def catalogue() -> Iterator[SolverInfo]:
    """Describe every registered solver; starts a licensed one's environment, solves nothing."""
    for name in names():
        try:
            registered = solver_class(name)
        except SolverUnavailableError as error:
            # One broken third party must not hide the others.
            yield SolverInfo(name, installed=False, licensed=str(error), exact=False, extra_rows=False, version="")
            continue
        installed = all(_importable(module) for module in registered.requires)
        yield SolverInfo(
            name=name,
            installed=installed,
            licensed=licence(name) if installed else "",
            exact=registered.exact,
            extra_rows=registered.extra_rows,
            version=", ".join(_version(module) for module in registered.requires) if installed else "",
        )


def solve(solver: Solver, problem: AllocationProblem, limits: Limits) -> SolveResult:
    """Solve `problem` by `solver`, timed; refuse what the solver cannot take.

    Raises
    ------
    UnsupportedProblemError
        If the problem has extra rows and the solver takes none.
    bftrainer.errors.SolverError
        If the solver fails.
    """
    if problem.rows and not solver.extra_rows:
        raise UnsupportedProblemError(
            f"{solver.name}: takes no extra rows, and the objective adds {len(problem.rows)}; try --solver cbc."
        )
    began = perf_counter()
    result = solver.solve(problem, limits)
    return replace(result, solve_s=perf_counter() - began)


@cache
def _importable(module: str) -> bool:
    return find_spec(module) is not None


@cache
def _version(module: str) -> str:
    for distribution in packages_distributions().get(module, [module]):
        try:
            return f"{distribution} {version(distribution)}"
        except PackageNotFoundError:
            continue
    return module
