"""Solvers by name: found by entry point, described without being imported, called through one wrapper.

A solver registers by an entry point of the group ``bftrainer.solvers`` whose object is a class that fits
`solvers.problem.Solver`; one that is not registered is called ``module:Class``. Its module must import its solver
library inside `solve`, so that listing solvers imports none of them. Solvers of other packages may hang, crash, exit or
use up memory, so they are described and asked in a process of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter
from typing import Any, Literal

import numpy as np

from bftrainer.errors import BftrainerError, SettingsError, SolverError, SolverUnavailableError
from bftrainer.plugins import EXTRAS, Plugins, absent, answering, blame, installing, pip_install
from solvers import supervised
from solvers.evaluation import verify_result
from solvers.option_pruning import upper_bound
from solvers.problem import AllocationProblem, DecidedBy, Limits, OutOfTime, Solver, SolveResult, TaskOptions

GROUP = "bftrainer.solvers"
_SOLVERS = Plugins(GROUP, "solver", SettingsError)
PROGRAMME = "solvers.dynamic_programme"
MEMORY_BYTES = 4 * 2**30
"""Memory of a process with a solver of another package."""
Isolate = Literal["auto", "always", "never"]
# Features of problems that not all solvers take: the capability, and the message about a solver that lacks it.
_FEATURES = (
    ("rows", "extra_rows", "extra rows, which the objective adds; try --solver cbc"),
    ("capacities", "capacities", "capacities besides nodes; try --solver dp or cbc"),
    ("floor", "floor", "floor for the worst-off; try --solver cbc or highs"),
)
_TRIAL = AllocationProblem((TaskOptions(np.arange(3), np.array([0.0, 1.0, 3.0]), maximum=2),) * 2, 2)


@dataclass(slots=True)
class SolverProxy:
    """A solver, by its registered name or as a picklable object: what it says of itself; it answers in another process.

    Its attributes are those of `solvers.problem.Solver`, known before the first problem. A `fault` is why it cannot be
    made: it refuses every problem, so that a fallback can answer. Unless it `is_loaded`, nothing else is known of it.
    `licensed` says what its licence covers, or why there is none.
    """

    solver: str | Solver
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

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:
        """Answer `problem` within `limits`; a `SolverError` if the solver fails in any way."""
        if self.fault:
            raise SolverUnavailableError(self.fault)
        ask = partial(_ask, self.name, late=f"no answer within its time limit of {limits.time_s:g} s")
        ask(_load, self.solver)  # starting and loading take none of the time limit
        within_s = limits.time_s + supervised.overrun_s(limits.time_s)
        answer: SolveResult = ask(_answer, self.solver, problem, limits, within_s=within_s)
        return answer


def _describe(solver: str | Solver, source: Solver | type[Solver]) -> SolverProxy:
    """Read the attributes of a solver; it lacks capabilities that it does not mention."""
    capabilities = bool(getattr(source, "capacities", False)), bool(getattr(source, "floor", False))
    requires = tuple(map(str, source.requires))
    own = str(source.name), bool(source.exact), bool(source.extra_rows), *capabilities, requires
    return SolverProxy(solver, *own, needs_licence=hasattr(source, "licence"))


def names() -> list[str]:
    """Names of the registered solvers, whether installed or not."""
    return _SOLVERS.names()


def _is_ours(solver: str | Solver) -> bool:
    """Whether a solver is this package's own; others may do anything as soon as they are loaded."""
    solver = solver.solver if isinstance(solver, SolverProxy) else solver
    module = _SOLVERS.entry(solver).value if isinstance(solver, str) else type(solver).__module__
    return module.replace(":", ".").partition(".")[0] in ("solvers", "bftrainer")


@cache
def solver_class(name: str) -> type[Solver]:
    """The class registered as `name`, whether or not its library is installed.

    A `SettingsError` if it is not registered, or several packages register different ones; a `SolverUnavailableError`
    if its module cannot be imported.
    """
    entry = _SOLVERS.entry(name)
    is_path = name == entry.value  # module:Class
    with answering(f"{name if is_path else f'{name}: {entry.value}'} cannot be loaded", SolverUnavailableError):
        registered: type[Solver] = _SOLVERS.import_attribute(name, names()) if is_path else entry.load()
        _describe(name, registered)  # raises here if an attribute is missing
    return registered


def get_solver(name: str) -> Solver:
    """Make a solver by name.

    A `SettingsError` if no solver of this name is registered; a `SolverUnavailableError` if its library is not
    installed, or it cannot be made.
    """
    registered = solver_class(name)
    missing = absent(*registered.requires)
    if missing:
        extra = next((extra for extra, modules in EXTRAS.items() if missing[0] in modules), "")
        remedy = f"the extra {extra} brings it, {installing(extra)}" if extra else f"try: {pip_install(missing[0])}"
        raise SolverUnavailableError(f"{name}: {missing[0]} is not installed; {remedy}")
    with answering(name, SolverUnavailableError):
        return registered()


@cache
def describe_solver(name: str, with_licence: bool = False) -> SolverProxy:
    """Describe a registered solver; a `SettingsError` if there is none, or different ones are of that name."""
    try:
        if _is_ours(name):
            return _load_description(name, with_licence)
        late = f"no answer within {supervised.START_S:g} s"
        lead = f"{name}: cannot be loaded"
        described: SolverProxy = _ask(lead, _load_description, name, with_licence, late=late)
        return described
    except SettingsError:
        raise
    except BftrainerError as error:  # its `solve` raises it for a decision
        return SolverProxy(name, name, is_loaded=False, fault=str(error))


def _load_description(name: str, with_licence: bool) -> SolverProxy:
    described = _describe(name, solver_class(name))
    try:
        solver = get_solver(name)
        with answering(name, SolverUnavailableError):
            licensed = str(getattr(solver, "licence", str)()) if with_licence else ""
        return replace(described, licensed=licensed)
    except BftrainerError as error:
        return replace(described, fault=str(error))


def catalogue() -> Iterator[dict[str, Any]]:
    """Describe every registered solver; starts a licensed one's environment, solves nothing."""
    for name in names():
        try:
            solver = describe_solver(name, with_licence=True)
        except SettingsError as error:  # two packages of one name must not hide the others
            solver = SolverProxy(name, name, is_loaded=False, fault=str(error))
        is_installed = solver.is_loaded and not absent(*solver.requires)
        capabilities = ("exact", "extra_rows", "capacities", "floor")
        yield {
            "name": name,
            "installed": is_installed,
            "licensed": solver.licensed or (solver.fault if is_installed or not solver.is_loaded else ""),
            **{capability: solver.is_loaded and getattr(solver, capability) for capability in capabilities},
            "version": ", ".join(map(_version, solver.requires)) if is_installed else "",
        }


def _version(module: str) -> str:
    """A module and the version of the distribution of that name, if there is one."""
    try:
        return f"{module} {version(module)}"
    except PackageNotFoundError:
        return module


def solve(solver: Solver, problem: AllocationProblem, limits: Limits) -> SolveResult:
    """Solve `problem` by `solver`, timed, and verify its answer.

    A `SolverUnavailableError` if the problem has extra rows, capacities or a floor and the solver takes none; a
    `SolverError` if it fails, or its answer is invalid.
    """
    name = type(solver).__name__
    try:
        name = solver.name
        for feature, capability, message in _FEATURES:
            if getattr(problem, feature) and not getattr(solver, capability, False):
                raise SolverUnavailableError(f"{name}: takes no {message}.")
        began = perf_counter()
        result = solver.solve(problem, limits)
        solve_s = perf_counter() - began
        if type(solver).__module__ == PROGRAMME and not problem.capacities:
            # `verify_result` finds the same, a tenth of an event later.
            result.solve_s = solve_s
            result.decided_by = DecidedBy.KEPT if result.counts is None else result.decided_by
            result.backend_s = solve_s if result.decided_by is DecidedBy.BACKEND else None
            return result
        return verify_result(name, problem, result, solve_s, None if _is_ours(solver) else upper_bound)
    except (BftrainerError, MemoryError):
        raise
    except Exception as error:  # plug-ins may raise anything
        raise blame(name, SolverError, error) from error


def isolate_solver(solver: str | Solver, isolate: Isolate) -> str | Solver:
    """The solver, in a process of its own where `isolate` says so.

    ``auto`` isolates solvers that other packages register; ``always`` also objects of the caller and our own solvers
    that call a library. CBC and HiGHS, where they may not keep their limits, always run in a process of their own.
    """
    if _is_ours(solver):
        calls_library = bool((solver_class(solver) if isinstance(solver, str) else solver).requires)
        is_isolated = isolate == "always" and calls_library
    else:
        # Objects of the caller are trusted as the caller is, and other processes may lack their class.
        is_isolated = isolate == "always" or (isolate == "auto" and isinstance(solver, str))
    if not is_isolated:
        return solver
    return describe_solver(solver) if isinstance(solver, str) else _describe(solver, solver)


def check_licence(solver: Solver) -> None:
    """Have a solver that needs a licence solve something now, instead of failing at the first decision."""
    if hasattr(solver, "licence") or (isinstance(solver, SolverProxy) and (solver.needs_licence or solver.fault)):
        solve(solver, _TRIAL, Limits(prune=False))


def _ask(name: str, function: Callable[..., Any], *args: object, late: str, within_s: float | None = None) -> Any:
    """Call a function in another process; every failure there is a `SolverError`."""
    deadline = perf_counter() + (supervised.START_S if within_s is None else within_s)
    with answering(name, SolverError):  # arguments or answers may be such that they cannot be pickled
        try:
            return supervised.run_in_subprocess(name, function, *args, deadline=deadline, memory_bytes=MEMORY_BYTES)
        except OutOfTime:
            raise SolverError(f"{name}: {late}; its process was ended.") from None
        except MemoryError:
            raise SolverError(f"{name}: needs more than {MEMORY_BYTES / 2**30:g} GiB of memory.") from None


_make_once = cache(get_solver)


def _load(solver: str | Solver) -> None:
    """Import the libraries of a solver, before time counts."""
    for name in (_make_once(solver) if isinstance(solver, str) else solver).requires:
        import_module(name)


def _answer(solver: str | Solver, problem: AllocationProblem, limits: Limits) -> SolveResult:
    """Solve in the isolated process."""
    return solve(_make_once(solver) if isinstance(solver, str) else solver, problem, limits)
