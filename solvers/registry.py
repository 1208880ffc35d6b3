"""Solvers by name: found by entry point, described without being imported, called through one wrapper.

A solver registers by an entry point of the group ``bftrainer.solvers`` whose object is a class that fits
`solvers.problem.Solver`; one that is not registered is called ``module:Class``. Its module must import its solver
library inside `solve`, not at its top, so that listing solvers imports none of them. A static method ``licence() ->
str`` is optional.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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
from solvers.evaluation import timed, verified
from solvers.option_pruning import upper_bound
from solvers.problem import AllocationProblem, Limits, OutOfTime, Solver, SolveResult

GROUP = "bftrainer.solvers"
_SOLVERS = Plugins(GROUP, "solver", UnknownSolverError)
PROGRAMME = "solvers.dynamic_programme"
ALL_LIMITS = frozenset({"time", "gap", "threads", "prune", "effort"})


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


def _entry(name: str) -> EntryPoint:
    entries = entries_of(GROUP)
    if ":" in name:
        return EntryPoint(name, name, GROUP)
    if name not in entries:
        raise _SOLVERS.unknown(name, name, entries)
    fault = clash(entries[name])
    if fault:
        raise UnknownSolverError(f"{name}: {fault}; uninstall the other.")
    return entries[name][0]


def is_ours(name: str) -> bool:
    """Whether a solver is this package's own; others may do anything already while they are loaded.

    Raises
    ------
    UnknownSolverError
        If it is not registered, or several packages register different ones.
    """
    return _entry(name).value.partition(":")[0].partition(".")[0] == __name__.partition(".")[0]


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
    return _loaded(_entry(name))


def _loaded(entry: EntryPoint) -> type[Solver]:
    named = entry.name == entry.value  # as module:Class
    with _loading(f"{entry.value if named else f'{entry.name}: {entry.value}'} cannot be loaded"):
        registered: type[Solver] = _SOLVERS.imported(entry.name, names()) if named else entry.load()
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
    return _made(name, solver_class(name))


def _made(name: str, registered: type[Solver]) -> Solver:
    missing = absent(*registered.requires)
    if missing:
        raise SolverUnavailableError(f"{name}: {missing[0]} is not installed; {_install_hint(missing[0])}")
    with _loading(name):
        return registered()


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a solver says of itself.

    Parameters
    ----------
    name : str
    exact, extra_rows, capacities, floor : bool
    requires : tuple of str
    heeds : frozenset of str
        Which of `time`, `gap`, `threads`, `prune`, `effort` of the `Limits` affect it; all, if it does not say.
    needs_licence : bool
    is_loaded : bool
        Of one that cannot be loaded nothing is known.
    fault : str
        Why it cannot be loaded or made; empty if it can.
    """

    name: str
    exact: bool
    extra_rows: bool
    capacities: bool
    floor: bool
    requires: tuple[str, ...]
    heeds: frozenset[str]
    needs_licence: bool
    is_loaded: bool = True
    fault: str = ""


def declaration(name: str) -> Declaration:
    """What a solver says of itself; one of another package is asked in a process of its own.

    Raises
    ------
    UnknownSolverError
        If there is none of that name, or several packages register different ones.
    """
    entry = _entry(name)
    return _asked(entry.name, entry.value, is_ours(name))


@cache
def _asked(name: str, place: str, here: bool) -> Declaration:
    try:
        found: Declaration = _declared(name, place) if here else _apart(name, _declared, name, place)
        return found
    except UnknownSolverError:
        raise
    except BftrainerError as error:
        # Whoever asks it for an answer hears why there is none.
        return Declaration(name, False, True, True, True, (), ALL_LIMITS, False, is_loaded=False, fault=str(error))


def _declared(name: str, place: str) -> Declaration:
    registered, fault = _loaded(EntryPoint(name, place, GROUP)), ""
    try:
        _made(name, registered)
    except BftrainerError as error:
        fault = str(error)
    with _loading(name):
        return Declaration(
            str(registered.name),
            exact=bool(registered.exact),
            extra_rows=bool(registered.extra_rows),
            capacities=_takes(registered, "capacities"),
            floor=_takes(registered, "floor"),
            requires=tuple(map(str, registered.requires)),
            heeds=frozenset(getattr(registered, "heeds", ALL_LIMITS)),
            needs_licence=hasattr(registered, "licence"),
            fault=fault,
        )


def _apart(name: str, ask: Callable[..., Any], *args: str) -> Any:
    """Ask the code of another package in a process of its own.

    Raises
    ------
    SolverUnavailableError
        Whatever it does instead of answering.
    """
    from solvers.isolation import BOUNDS
    from solvers.supervised import run_apart

    try:
        return run_apart(name, ask, *args, deadline=perf_counter() + BOUNDS.start_s, bounds=BOUNDS)
    except OutOfTime:
        fault = f"{name}: cannot be loaded within {BOUNDS.start_s:g} s; its process was ended."
        raise SolverUnavailableError(fault) from None
    except SolverUnavailableError:
        raise
    except SolverError as error:
        raise SolverUnavailableError(f"{str(error).rstrip('.')}, while it was loaded.") from None


def licence(name: str) -> str:
    """Say what the licence of an installed solver covers, or why there is none; empty if it needs none."""
    entry = _entry(name)
    return _licence(entry.name, entry.value) if is_ours(name) else _apart(name, _licence, entry.name, entry.value)


def _licence(name: str, place: str) -> str:
    solver = _made(name, _loaded(EntryPoint(name, place, GROUP)))
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
    says = declaration(name)
    if not says.is_loaded:
        return SolverInfo(name, False, says.fault, False, False, False, False, "")
    installed, licensed = not absent(*says.requires), ""
    if installed:
        try:
            licensed = says.fault or licence(name)
        except BftrainerError as error:
            licensed = str(error)
    version = ", ".join(map(_version, says.requires)) if installed else ""
    return SolverInfo(
        name, installed, licensed, says.exact, says.extra_rows, says.capacities, says.floor, version=version
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
        if type(solver).__module__ == PROGRAMME and not problem.capacities:
            return timed(result, perf_counter() - began)  # `verified` finds the same, a tenth of an event later
        solve_s = perf_counter() - began
        return verified(name, problem, result, solve_s, None if _is_trusted(solver) else upper_bound)
    except (BftrainerError, MemoryError):
        raise
    except Exception as error:  # A solver may be third-party code, and a fallback must catch whatever it raises.
        raise SolverError(_one_line(name, error)) from error


def _is_trusted(solver: Solver) -> bool:
    """Whether what a solver claims of its answers is this package's own, also of one in another process."""
    module = type(solver).__module__
    if module == "solvers.isolation":
        return bool(getattr(solver, "is_ours", False))
    return module.partition(".")[0] in ("solvers", "bftrainer")


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
