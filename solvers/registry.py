"""Solvers by name: found by entry point, described without being imported, called through one wrapper.

A solver registers by an entry point of the group ``bftrainer.solvers`` whose object is a class that fits
`solvers.problem.Solver`; one that is not registered is called ``module:Class``. Its module must import its solver
library inside `solve`, not at its top, so that listing solvers imports none of them. A static method ``licence() ->
str`` is optional.

Solvers of other packages may hang, crash, exit or use up memory, so they are asked in a process of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from time import perf_counter
from typing import Any, Literal

import numpy as np

from bftrainer.errors import (
    BftrainerError,
    SettingsError,
    SolverError,
    SolverUnavailableError,
)
from bftrainer.extras import EXTRAS, absent, installing, pip_install
from bftrainer.plugins import Plugins, answering, blame, entries_of
from solvers import supervised
from solvers.evaluation import add_time, verify_result
from solvers.option_pruning import upper_bound
from solvers.problem import AllocationProblem, Limits, OutOfTime, Solver, SolveResult, TaskOptions

GROUP = "bftrainer.solvers"
_SOLVERS = Plugins(GROUP, "solver", SettingsError)
PROGRAMME = "solvers.dynamic_programme"
MEMORY_BYTES = 4 * 2**30
"""Most memory of a process that runs solvers of other packages."""
Isolate = Literal["auto", "always", "never"]
_PARTS = (
    ("rows", "extra_rows", "extra rows, which the objective adds; try --solver cbc"),
    ("capacities", "capacities", "capacities besides nodes; try --solver dp or cbc"),
    ("floor", "floor", "floor for the worst-off; try --solver cbc or highs"),
)
"""Parts of a problem that not all solvers take: the capability, and what is said of one that lacks it."""
_TWO_NODES = TaskOptions(np.arange(3), np.array([0.0, 1.0, 3.0]), maximum=2)
_TRIAL = AllocationProblem((_TWO_NODES, _TWO_NODES), 2), Limits(prune=False)


@dataclass(frozen=True, slots=True)
class Declaration:
    """Attributes of a solver, as `solvers.problem.Solver` has them; it lacks capabilities that it does not mention.

    A `fault` is why it cannot be made; unless it `is_loaded`, nothing else is known of it. `licensed` is what its
    licence covers, or why there is none; empty if it was not asked, or needs none.
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
    licensed: str = ""

    @classmethod
    def of(cls, solver: Solver | type[Solver]) -> Declaration:
        """What a solver at hand says of itself."""
        return cls(
            str(solver.name),
            bool(solver.exact),
            bool(solver.extra_rows),
            capacities=bool(getattr(solver, "capacities", False)),
            floor=bool(getattr(solver, "floor", False)),
            requires=tuple(map(str, solver.requires)),
            needs_licence=hasattr(solver, "licence"),
        )


def names() -> tuple[str, ...]:
    """Names of the registered solvers, whether installed or not."""
    return tuple(entries_of(GROUP))


def _is_ours(solver: str | Solver) -> bool:
    """Whether a solver is this package's own; others may do anything already while they are loaded."""
    if isinstance(solver, Isolated):
        return solver.is_ours
    module = _SOLVERS.entry(solver).value if isinstance(solver, str) else type(solver).__module__
    return module.replace(":", ".").partition(".")[0] in ("solvers", "bftrainer")


@cache
def solver_class(name: str) -> type[Solver]:
    """The class registered as `name`, whether or not what it requires is installed.

    Raises
    ------
    SettingsError
        If it is not registered, or several packages register different ones.
    SolverUnavailableError
        If its module cannot be imported.
    """
    entry = _SOLVERS.entry(name)
    named = name == entry.value  # as module:Class
    with answering(f"{name if named else f'{name}: {entry.value}'} cannot be loaded", SolverUnavailableError):
        registered: type[Solver] = _SOLVERS.imported(name, names()) if named else entry.load()
        Declaration.of(registered)  # so that an attribute that is missing or fails is found here
    return registered


def get_solver(name: str) -> Solver:
    """Make a solver by name.

    Raises
    ------
    SettingsError
        If no solver of this name is registered.
    SolverUnavailableError
        If something it requires is not installed, or it cannot be made.
    """
    registered = solver_class(name)
    missing = absent(*registered.requires)
    if missing:
        brings = f"try: {pip_install(missing[0])}"
        for extra, modules in EXTRAS.items():
            if missing[0] in modules:
                brings = f"the extra {extra} brings it, {installing(extra)}"
        raise SolverUnavailableError(f"{name}: {missing[0]} is not installed; {brings}")
    with answering(name, SolverUnavailableError):
        return registered()


@cache
def declaration(name: str, with_licence: bool = False) -> Declaration:
    """What a solver says of itself; one of another package is asked in a process of its own.

    Raises
    ------
    SettingsError
        If there is none of that name, or several packages register different ones.
    """
    try:
        if _is_ours(name):
            return _describe(name, with_licence)
        late = f"no answer within {supervised.START_S:g} s"
        says: Declaration = _ask(name, _describe, name, with_licence, late=late)
        return says
    except SettingsError:
        raise
    except BftrainerError as error:  # whoever asks it for an answer hears why there is none
        is_lost = isinstance(error, SolverError) and not isinstance(error, SolverUnavailableError)
        fault = f"{str(error).rstrip('.')}, while it was loaded." if is_lost else str(error)
        return Declaration(name, is_loaded=False, fault=fault)


def _describe(name: str, with_licence: bool) -> Declaration:
    says = Declaration.of(solver_class(name))
    try:
        solver = get_solver(name)
        if with_licence:
            with answering(name, SolverUnavailableError):
                says = replace(says, licensed=str(getattr(solver, "licence", str)()))
    except BftrainerError as error:
        return replace(says, fault=str(error))
    return says


def catalogue() -> Iterator[dict[str, Any]]:
    """Describe every registered solver; starts a licensed one's environment, solves nothing."""
    for name in names():
        try:
            says = declaration(name, with_licence=True)
        except SettingsError as error:  # two packages of one name must not hide the others
            says = Declaration(name, is_loaded=False, fault=str(error))
        installed = says.is_loaded and not absent(*says.requires)
        licensed = says.licensed or (says.fault if installed or not says.is_loaded else "")
        can = {key: says.is_loaded and getattr(says, key) for key in ("exact", "extra_rows", "capacities", "floor")}
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
    SolverUnavailableError
        If the problem has extra rows, capacities or a floor and the solver takes none.
    bftrainer.errors.SolverError
        If the solver fails, or its answer is invalid.
    """
    name = type(solver).__name__
    try:
        name = solver.name
        for part, capability, what in _PARTS:
            if getattr(problem, part) and not getattr(solver, capability, False):
                raise SolverUnavailableError(f"{name}: takes no {what}.")
        began = perf_counter()
        result = solver.solve(problem, limits)
        solve_s = perf_counter() - began
        if type(solver).__module__ == PROGRAMME and not problem.capacities:
            return add_time(result, solve_s)  # `verify_result` finds the same, a tenth of an event later
        return verify_result(name, problem, result, solve_s, None if _is_ours(solver) else upper_bound)
    except (BftrainerError, MemoryError):
        raise
    except Exception as error:  # what others have written may raise anything
        raise blame(name, SolverError, error) from error


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
    SettingsError
        If no solver of this name is registered.
    """

    def __init__(self, solver: str | Solver, memory_bytes: int = MEMORY_BYTES) -> None:
        self._solver, self._memory_bytes, self.is_ours = solver, memory_bytes, _is_ours(solver)
        says = declaration(solver) if isinstance(solver, str) else Declaration.of(solver)
        self.name, self.exact, self.requires, self.fault = says.name, says.exact, says.requires, says.fault
        self.extra_rows, self.capacities, self.floor = says.extra_rows, says.capacities, says.floor
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
        late = f"no answer within its time limit of {limits.time_s:g} s"
        ask = partial(_ask, self.name, late=late, memory_bytes=self._memory_bytes)
        ask(_load, self._solver)  # starting and loading take none of the time limit
        within_s = limits.time_s + supervised.overrun_s(limits.time_s)
        answer: SolveResult = ask(_answer, self._solver, problem, limits, within_s=within_s)
        return answer


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
    # Objects of the caller's are trusted as the caller is, and may be of a class that no other process has.
    leaves = isolate == "always" or (isolate == "auto" and isinstance(solver, str) and not _is_ours(solver))
    if isolate == "always" and _is_ours(solver):
        leaves = bool((solver_class(solver) if isinstance(solver, str) else solver).requires)
    return Isolated(solver, memory_bytes) if leaves else solver


def check_licence(solver: Solver) -> None:
    """Have a solver that needs a licence solve something now, instead of failing at the first decision."""
    if hasattr(solver, "licence"):
        solve(solver, *_TRIAL)


def _ask(
    name: str,
    ask: Callable[..., Any],
    *args: object,
    late: str,
    within_s: float | None = None,
    memory_bytes: int = MEMORY_BYTES,
) -> Any:
    """Call a function in another process; whatever is raised there, or sent from there, is a `SolverError`."""
    deadline = perf_counter() + (supervised.START_S if within_s is None else within_s)
    try:
        return supervised.run_in_subprocess(name, ask, *args, deadline=deadline, memory_bytes=memory_bytes)
    except OutOfTime:
        raise SolverError(f"{name}: {late}; its process was ended.") from None
    except MemoryError:
        raise SolverError(f"{name}: needs more than {memory_bytes / 2**30:g} GiB of memory.") from None
    except BftrainerError:
        raise
    except Exception as error:  # what cannot be sent either way
        raise blame(name, SolverError, error) from error


_make_once = cache(get_solver)


def _load(solver: str | Solver) -> None:
    """Import all that a solver calls, before time counts."""
    for name in (_make_once(solver) if isinstance(solver, str) else solver).requires:
        import_module(name)


def _answer(solver: str | Solver, problem: AllocationProblem, limits: Limits) -> SolveResult:
    """What a solver answers, in the process that may die of it."""
    return solve(_make_once(solver) if isinstance(solver, str) else solver, problem, limits)
