"""Finding, describing and calling solvers."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from bftrainer.errors import SolverUnavailableError, UnknownSolverError
from solvers import Held, Limits, SolveResult, StopReason, registry
from tests.solvers.known_optima import linear, problem

SHIPPED = ("cbc", "dp", "equal-share", "exhaustive", "gurobi", "highs", "mip-gurobi", "mip-highs", "node-level")


class Lazy:
    """A third party's solver: nobody gets anything."""

    name = "lazy"
    exact = False
    extra_rows = False
    requires: tuple[str, ...] = ()

    def solve(self, problem, limits):  # noqa: ARG002
        counts = (0,) * len(problem.tasks)
        return SolveResult(counts, 0.0, float("inf"), StopReason.HEURISTIC, Held.INCUMBENT, self.name)


class Missing(Lazy):
    """One whose library is not there."""

    name = "missing"
    requires = ("no_such_library",)


@pytest.fixture
def third_party(monkeypatch):
    """Entry points of others beside our own."""
    extra = [
        EntryPoint("lazy", f"{__name__}:Lazy", registry.GROUP),
        EntryPoint("missing", f"{__name__}:Missing", registry.GROUP),
        EntryPoint("broken", "no_such_module:Solver", registry.GROUP),
    ]
    original = registry.entry_points
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    monkeypatch.setattr(registry, "entry_points", lambda group: [*original(group=group), *extra])
    registry._entries.cache_clear()
    registry.solver_class.cache_clear()
    yield
    registry._entries.cache_clear()
    registry.solver_class.cache_clear()


def test_all_shipped_solvers_are_registered():
    """The package's entry points name nine solvers, each under its own name."""
    assert registry.names() == SHIPPED
    assert all(registry.solver_class(name).name == name for name in SHIPPED)


def test_describing_imports_no_solver_library():
    """Names, capabilities and availability are told without importing mip, highspy, gurobipy or pandas."""
    code = (
        "import sys; from solvers import registry; "
        "[(registry.get_solver(n).exact, n) for n in registry.names()]; "
        "print(sorted({'mip', 'highspy', 'gurobipy', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_solver_is_suggested_a_known_one():
    """A slip of the finger is answered by the nearest name, nonsense by all of them."""
    with pytest.raises(UnknownSolverError, match=r"Unknown solver 'gurobbi'\. Did you mean 'gurobi'\?"):
        registry.get_solver("gurobbi")
    with pytest.raises(UnknownSolverError, match="Known: cbc, dp"):
        registry.get_solver("zzzzzz")


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch):
    """Not installed is an error of its own, which names the extra."""
    monkeypatch.setattr(registry, "_importable", lambda module: module != "gurobipy")
    with pytest.raises(
        SolverUnavailableError, match=r"gurobi: gurobipy is not installed; try: pip install bftrainer\[gurobi\]"
    ):
        registry.get_solver("gurobi")
    rows = {row.name: row for row in registry.catalogue()}
    assert (rows["gurobi"].installed, rows["gurobi"].version) == (False, "")
    assert rows["cbc"].installed


def test_the_catalogue_tells_capabilities_apart():
    """Every solver has a row: installed, licensed, exact, extra rows, version."""
    rows = {row.name: row for row in registry.catalogue()}
    assert tuple(rows) == SHIPPED
    assert rows["cbc"].version.startswith("mip ")
    assert (rows["dp"].exact, rows["dp"].extra_rows, rows["dp"].version) == (True, False, "")
    assert not rows["equal-share"].exact
    assert rows["gurobi"].licensed
    assert rows["dp"].licensed == ""


@pytest.mark.usefixtures("third_party")
def test_third_parties_register_by_entry_point():
    """A solver of another distribution is found, listed and timed like ours; a broken one hides none."""
    rows = {row.name: row for row in registry.catalogue()}
    assert rows["lazy"].installed
    assert not rows["missing"].installed
    assert "cannot be loaded" in rows["broken"].licensed
    result = registry.solve(registry.get_solver("lazy"), problem(linear(1.0, 2), nodes=2), Limits())
    assert result.counts == (0,)
    assert result.solve_s > 0
    with pytest.raises(SolverUnavailableError, match="missing: no_such_library is not installed"):
        registry.get_solver("missing")
    with pytest.raises(SolverUnavailableError, match="broken: no_such_module:Solver cannot be loaded"):
        registry.get_solver("broken")
