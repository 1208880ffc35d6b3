"""Solvers by name: found by entry point, described without being imported, called through one wrapper.

A solver registers by an entry point of the group ``bftrainer.solvers`` whose object is a class that fits
`solvers.problem.Solver`; one that is not registered is called ``module:Class``. Its module must import its solver
library inside `solve`, so that listing solvers imports none of them. Solvers of other packages may hang, crash, exit or
use up memory, so they are described and asked in a process of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import distributions
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
    made: every problem is refused, so that a fallback can answer. Unless it `is_loaded`, nothing else is known of it.
    `licensed` says what its licence covers, once that has been asked for; it is None for a solver that needs none.
    """

    solver: str | Solver
    name: str
    exact: bool = False
    extra_rows: bool = True
    capacities: bool = True
    floor: bool = True
    requires: tuple[str, ...] = ()
    licensed: str | None = None
    is_loaded: bool = True
    fault: str = ""

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:
        """Answer `problem` within `limits`; a `SolverError` if the solver fails in any way."""
        if self.fault:
            raise SolverUnavailableError(self.fault)
        _ask(self.name, _answer, self.solver)  # starting and loading take none of the time limit
        result: SolveResult = _ask(self.name, _answer, self.solver, problem, limits, limit_s=limits.time_s)
        return result


def _describe(solver: str | Solver, source: Solver | type[Solver]) -> SolverProxy:
    """Read the attributes of a solver; it lacks capabilities that it does not mention."""
    capabilities = bool(getattr(source, "capacities", False)), bool(getattr(source, "floor", False))
    own = str(source.name), bool(source.exact), bool(source.extra_rows), *capabilities, tuple(map(str, source.requires))
    return SolverProxy(solver, *own, licensed="" if hasattr(source, "licence") else None)


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

    A `SettingsError` if none or several are registered; a `SolverUnavailableError` if its module cannot be imported.
    """
    entry = _SOLVERS.entry(name)
    is_path = name == entry.value  # module:Class
    with answering(f"{name if is_path else f'{name}: {entry.value}'} cannot be loaded", SolverUnavailableError):
        registered: type[Solver] = _SOLVERS.import_attribute(name, names()) if is_path else entry.load()
        _describe(name, registered)  # raises here if an attribute is missing
    return registered


def get_solver(name: str) -> Solver:
    """Make a solver by name.

    It raises what `solver_class` does; a `SolverUnavailableError` also if its library is missing or it cannot be made.
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
def describe_solver(name: str, with_licence: bool = False, is_isolated: bool = False) -> SolverProxy:
    """Describe a registered solver; a `SettingsError` if there is none, or different ones are of that name.

    Solvers of other packages are loaded only where this process `is_isolated`, as the one that is asked about them.
    """
    described = SolverProxy(name, name, is_loaded=False)
    try:
        if not is_isolated and not _is_ours(name):
            asked: SolverProxy = _ask(f"{name}: cannot be loaded", describe_solver, name, with_licence, True)
            return asked
        described = _describe(name, solver_class(name))
        solver: Any = get_solver(name)
        if with_licence and described.licensed is not None:
            with answering(name, SolverUnavailableError):
                described.licensed = str(solver.licence())
    except BftrainerError as error:
        if isinstance(error, SettingsError) and not described.is_loaded:
            raise
        described.fault = str(error)  # its `solve` raises it for a decision
    return described


def catalogue() -> Iterator[dict[str, Any]]:
    """Describe every registered solver; starts a licensed one's environment, solves nothing."""
    for name in names():
        try:
            solver = describe_solver(name, with_licence=True)
        except SettingsError as error:  # two packages of one name must not hide the others
            solver = SolverProxy(name, name, is_loaded=False, fault=str(error))
        is_installed = solver.is_loaded and not absent(*solver.requires)
        versions = {module: [one.version for one in distributions(name=module)][:1] for module in solver.requires}
        yield {
            "name": name,
            "installed": is_installed,
            "licensed": solver.licensed or (solver.fault if is_installed or not solver.is_loaded else ""),
            **{
                key: solver.is_loaded and getattr(solver, key) for key in ("exact", "extra_rows", "capacities", "floor")
            },
            "version": ", ".join(" ".join([module, *own]) for module, own in versions.items()) if is_installed else "",
        }


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
        if type(solver).__module__ == "solvers.dynamic_programme" and not problem.capacities:
            # `verify_result` finds the same, a tenth of an event later.
            result.solve_s = solve_s
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
    is_ours = _is_ours(solver)
    # Objects of the caller are trusted as the caller is, and other processes may lack their class.
    if isolate == "never" or (isolate == "auto" and (is_ours or not isinstance(solver, str))):
        return solver
    described = describe_solver(solver) if isinstance(solver, str) else _describe(solver, solver)
    return solver if is_ours and not described.requires else described


def check_licence(solver: Solver) -> None:
    """Have a solver that needs a licence solve something now, instead of failing at the first decision."""
    is_doubtful = isinstance(solver, SolverProxy) and (solver.fault or solver.licensed is not None)
    if is_doubtful or hasattr(solver, "licence"):
        solve(solver, _TRIAL, Limits(prune=False))


def _ask(name: str, function: Callable[..., Any], *args: object, limit_s: float | None = None) -> Any:
    """Call a function in another process; every failure there is a `SolverError`."""
    within_s, late = supervised.START_S, f"{supervised.START_S:g} s"
    if limit_s is not None:
        within_s, late = limit_s + supervised.overrun_s(limit_s), f"its time limit of {limit_s:g} s"
    deadline = perf_counter() + within_s
    with answering(name, SolverError):  # arguments or answers may be such that they cannot be pickled
        try:
            return supervised.run_in_subprocess(name, function, *args, deadline=deadline, memory_bytes=MEMORY_BYTES)
        except OutOfTime:
            raise SolverError(f"{name}: no answer within {late}; its process was ended.") from None
        except MemoryError:
            raise SolverError(f"{name}: needs more than {MEMORY_BYTES / 2**30:g} GiB of memory.") from None


_make_once = cache(get_solver)


def _answer(solver: str | Solver, *question: Any) -> SolveResult | None:
    """Load a solver and its libraries in the isolated process, and solve a problem within limits, if asked to."""
    loaded = _make_once(solver) if isinstance(solver, str) else solver
    for name in loaded.requires:
        import_module(name)
    return solve(loaded, *question) if question else None
