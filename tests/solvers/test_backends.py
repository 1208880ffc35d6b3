"""What the MILP backends do, also when things do not end well."""

import math
import os
import re
from pathlib import Path

import mip.cbc
import numpy as np
import pytest

import solvers
from benchmarks.instances import instance
from bftrainer.errors import SolverError, SolverUnavailableError
from solvers import AllocationProblem, Held, Limits, StopReason, TaskOptions, milp
from solvers.backends import CbcSolver, GurobiSolver, HighsSolver, gurobi_environment, to_solver_error
from solvers.count_model import formulate
from solvers.milp import ModelOutcome
from solvers.option_pruning import fitting_options
from solvers.registry import get_solver, solve
from solvers.supervised import ProcessDiedError, run_in_subprocess
from tests.solvers.known_optima import linear, problem
from tests.solvers.support import Scripted, problems, rough, usable


def test_no_module_uses_special_ordered_sets() -> None:
    """CBC crashes the process on SOS2, so no module of the package may add one."""
    for path in Path(solvers.__file__).parent.glob("*.py"):
        assert not re.search(r"add_?sos|SOS_TYPE", path.read_text(), re.IGNORECASE), path


@pytest.mark.parametrize("capacity", [None, 900.0], ids=["plain", "capped"])
def test_an_oversize_model_is_said_to_be_one(capacity: float | None) -> None:
    """Beyond the size-limited licence Gurobi says how large the model is and what to use instead."""
    solver = usable("gurobi")
    import gurobipy

    with gurobipy.Model(env=gurobi_environment()) as model:
        if model.LicenseExpiration == 0 or "GRB_LICENSE_FILE" in os.environ:
            pytest.skip("a full licence takes any size")
    tasks = rough(60, 64, 1000).tasks
    if capacity is not None:
        tasks = tuple(TaskOptions(one.counts, one.values, 0, 1, 64, np.arange(65.0)[None]) for one in tasks)
    asked = AllocationProblem(tasks, 1000, capacities=() if capacity is None else (capacity,))
    oversize = r"gurobi: model of \d,\d{3} variables exceeds the size-limited licence; try --solver cbc or highs\."
    with pytest.raises(SolverUnavailableError, match=oversize):
        solver.solve(asked, Limits(prune=False))


def test_a_bad_licence_is_an_error_that_names_the_solver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """GRB_LICENSE_FILE is honoured; a file that is missing or no licence ends in one line, not in another solver."""
    usable("gurobi")
    monkeypatch.setenv("GRB_LICENSE_FILE", str(tmp_path / "none.lic"))
    with pytest.raises(SolverUnavailableError, match=r"gurobi: no valid licence .*; try --solver cbc\."):
        GurobiSolver().solve(problems(1, 10, 130, 1)[0], Limits(prune=False))
    assert GurobiSolver.licence().startswith("gurobi: no valid licence")
    monkeypatch.undo()
    assert GurobiSolver.licence().startswith("valid")


@pytest.mark.parametrize(
    ("code", "kind"), [(10009, SolverUnavailableError), (10010, SolverUnavailableError), (10001, SolverError)]
)
def test_gurobi_errors_are_told_apart(code: int, kind: type[SolverError]) -> None:
    """No licence and too large are unavailable; anything else is a failure."""
    assert type(to_solver_error(code, "x", 3198)) is kind


@pytest.mark.parametrize("kind", [CbcSolver, GurobiSolver, HighsSolver])
def test_other_statuses_are_errors(kind: type[milp.MilpSolver]) -> None:
    """A status outside the tables is an error that names the solver and the status."""
    with pytest.raises(SolverError, match=f"{kind.name}: ended with status odd"):
        kind().to_outcome("odd", None, 0.0)


@pytest.mark.parametrize("status", ["Abandoned", "ContinuousUnbounded"])
def test_failures_of_cbc_are_errors(monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    """A model that CBC cannot solve is an error that names it, and no answer."""
    real = mip.cbc.cbclib

    class Failing:
        """CBC's functions, of which the questions about the outcome are answered otherwise."""

        def __getattr__(self, name: str) -> object:
            asks = name.startswith("Cbc_is")
            return (lambda _: name == f"Cbc_is{status}") if asks else getattr(real, name)

    monkeypatch.setattr("mip.cbc.cbclib", Failing())
    asked = rough(10, 64, 100)
    with pytest.raises(SolverError, match=f"cbc: ended with status {status}"):
        CbcSolver()._run(formulate(fitting_options(asked).choices, asked), Limits())


def test_answers_of_backends_are_checked() -> None:
    """An allocation that breaks the pool's limit is an error; a solution below its own bound is an incumbent."""
    asked = problem(linear(2.0, 3), linear(1.0, 3), nodes=3)
    odd = Scripted(lambda model: ModelOutcome(StopReason.OPTIMAL, model.upper, 1e4), name="odd")
    with pytest.raises(SolverError, match="odd: answered with an allocation that is not feasible"):
        solve(odd, asked, Limits(prune=False))
    asked = problem(linear(2.0, 3), nodes=3)
    bound = math.ldexp(6.0, formulate([np.arange(4)], asked).exponent)
    result = Scripted(ModelOutcome(StopReason.OPTIMAL, np.array([2.0]), bound)).solve(asked, Limits(prune=False))
    assert (result.held, result.objective, result.bound) == (Held.INCUMBENT, 4.0, 6.0)
    assert result.gap == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["highs", "gurobi", "cbc"])
def test_the_number_of_threads_may_change(name: str) -> None:
    """HiGHS's one scheduler a process is restarted when the next solve asks for other threads; answers stay."""
    asked = problems(1, 5, 40, 1)[0]
    objectives = {solve(usable(name), asked, Limits(threads=threads, prune=False)).objective for threads in (1, 2, 1)}
    assert len(objectives) == 1


def test_tasks_that_are_all_alike_do_not_keep_cbc_branching() -> None:
    """Pools for 30 equal tasks that took CBC forever while it tried permutations are proven within seconds."""
    rng = np.random.default_rng([1, 30, 391])
    asked = [instance(rng, 30, 391, equal=number % 4 == 3) for number in range(200)]
    for number in (3, 71, 163, 195):
        assert solve(get_solver("cbc"), asked[number], Limits(time_s=20.0)).held is Held.OPTIMAL


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_process_that_died_is_replaced_once(deaths: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first death the next process answers; a second one is an error."""
    calls = []

    def run(*args, **how):
        calls.append(args)
        if len(calls) <= deaths:
            raise ProcessDiedError("cbc: its process ended by SIGABRT.")
        return run_in_subprocess(*args, **how)

    monkeypatch.setattr(CbcSolver, "_keeps_limits", lambda *_: False)
    monkeypatch.setattr(milp, "run_in_subprocess", run)
    asked = problem(linear(1.0, 2), nodes=2)
    if deaths == 1:
        assert solve(CbcSolver(), asked, Limits(prune=False)).counts == (2,)
    else:
        with pytest.raises(SolverError, match="SIGABRT"):
            solve(CbcSolver(), asked, Limits(prune=False))
