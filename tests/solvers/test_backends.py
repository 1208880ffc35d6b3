"""What the MILP backends do when things do not end well."""

from __future__ import annotations

import math
import os
import re
from dataclasses import replace
from pathlib import Path

import mip.cbc
import numpy as np
import pytest

import solvers
from benchmarks.instances import instance, power_instance, problems
from bftrainer.errors import SolverError, SolverUnavailableError
from solvers import AllocationProblem, Held, Limits, LinearRow, StopReason, TaskOptions, milp
from solvers.cbc_backend import CbcSolver
from solvers.count_model import formulate
from solvers.gurobi_backend import GurobiSolver, environment, unavailable
from solvers.highs_backend import HighsSolver
from solvers.milp import ModelOutcome
from solvers.option_pruning import fitting_options
from solvers.registry import get_solver, solve
from solvers.supervised import ProcessDiedError, run_in_subprocess
from tests.solvers.known_optima import linear, problem, task
from tests.solvers.support import Scripted, usable


def rough(tasks: int, nodes: int, capacities: tuple[float, ...] = ()) -> AllocationProblem:
    """A problem of random steps: hardly a run is longer than two counts."""
    rng = np.random.default_rng(0)
    values = [np.concatenate(([0.0], np.sort(rng.random(64)) * 1e3)) for _ in range(tasks)]
    uses = np.arange(65.0)[None] if capacities else None
    return AllocationProblem(
        tuple(TaskOptions(np.arange(65), v, 0, 1, 64, uses) for v in values), nodes, capacities=capacities
    )


def test_no_module_uses_special_ordered_sets() -> None:
    """CBC crashes the process on SOS2, so no module of the package may add one."""
    for path in Path(solvers.__file__).parent.glob("*.py"):
        assert not re.search(r"add_?sos|SOS_TYPE", path.read_text(), re.IGNORECASE), path


@pytest.mark.parametrize("capacities", [(), (900.0,)], ids=["plain", "capped"])
def test_an_oversize_model_is_said_to_be_one(capacities: tuple[float, ...]) -> None:
    """Beyond the size-limited licence Gurobi says how large the model is and what to use instead."""
    solver = usable("gurobi")
    import gurobipy

    with gurobipy.Model(env=environment("gurobi")) as model:
        if model.LicenseExpiration == 0 or "GRB_LICENSE_FILE" in os.environ:
            pytest.skip("a full licence takes any size")
    oversize = r"gurobi: model of \d,\d{3} variables exceeds the size-limited licence; try --solver cbc or highs\."
    with pytest.raises(SolverUnavailableError, match=oversize):
        solver.solve(rough(60, 1000, capacities), Limits(prune=False))


def test_a_bad_licence_is_an_error_that_names_the_solver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """GRB_LICENSE_FILE is honoured; a file that is missing or no licence ends in one line, not in another solver."""
    usable("gurobi")
    monkeypatch.setenv("GRB_LICENSE_FILE", str(tmp_path / "none.lic"))
    with pytest.raises(SolverUnavailableError, match=r"gurobi: no valid licence .*; try --solver cbc\."):
        GurobiSolver().solve(problems(1, 10, 130, 1)[0], Limits(prune=False))
    assert GurobiSolver.licence().startswith("gurobi: no valid licence")
    monkeypatch.undo()
    assert GurobiSolver.licence().startswith("valid")


def test_gurobi_errors_are_told_apart() -> None:
    """No licence and too large are unavailable; anything else is a failure."""
    assert type(unavailable("gurobi", 10009, "x")) is SolverUnavailableError
    assert type(unavailable("gurobi", 10010, "x", 3198)) is SolverUnavailableError
    assert type(unavailable("gurobi", 10001, "out of memory")) is SolverError


@pytest.mark.parametrize("name", ["cbc", "highs"])
def test_a_time_limit_is_kept_by_the_clock(name: str) -> None:
    """A hard model ends near its limit, and what is held then is feasible and bounded."""
    asked = rough(120, 2000)
    result = solve(usable(name), asked, Limits(time_s=0.3, prune=False))
    best = solve(get_solver("dp"), asked, Limits()).objective
    assert result.solve_s < 3.0
    if result.stop_reason is StopReason.TIME_LIMIT:
        assert result.held in (Held.INCUMBENT, Held.NOTHING, Held.OPTIMAL)
    assert result.bound >= best * (1 - 1e-9)
    assert math.isnan(result.objective) == (result.held is Held.NOTHING)


def test_other_statuses_are_errors() -> None:
    """A status outside the table is an error that names the solver and the status."""

    class Unfinished:
        """A solver that ends in a status nobody expects."""

        name = "kUnknown"

        def getModelStatus(self) -> Unfinished:  # noqa: N802
            return self

    with pytest.raises(SolverError, match="highs: ended with status kUnknown"):
        HighsSolver()._outcome(Unfinished())


@pytest.mark.parametrize("name", ["cbc", "highs"])
@pytest.mark.parametrize(("lower", "upper"), [(1.0, math.inf), (-math.inf, -1.0)], ids=["below", "above"])
def test_a_row_of_no_task_may_exclude_everything(name: str, lower: float, upper: float) -> None:
    """A row whose coefficients are all 0 sums to 0; backends that are given no entry of it check that too."""
    excluded = replace(problems(1, 4, 30, 1)[0], rows=(LinearRow(np.zeros(4), lower, upper),))
    with pytest.raises(SolverError, match=f"{name}: no allocation satisfies the extra rows"):
        get_solver(name).solve(excluded, Limits())


@pytest.mark.parametrize(
    ("status", "words"), [("Cbc_isAbandoned", "gave the model up"), ("Cbc_isContinuousUnbounded", "found .* unbounded")]
)
def test_failures_of_cbc_are_errors(monkeypatch: pytest.MonkeyPatch, status: str, words: str) -> None:
    """What CBC cannot solve is an error that names it, and no answer."""
    real = mip.cbc.cbclib

    class Failing:
        """CBC's functions, of which the questions about the outcome are answered otherwise."""

        def __getattr__(self, name: str) -> object:
            asks = name in ("Cbc_isAbandoned", "Cbc_isProvenOptimal", "Cbc_isProvenInfeasible", status)
            return (lambda _: name == status) if asks else getattr(real, name)

    monkeypatch.setattr("mip.cbc.cbclib", Failing())
    asked = rough(10, 100)
    with pytest.raises(SolverError, match=f"cbc: {words}"):
        CbcSolver()._run(formulate(fitting_options(asked).choices, asked), Limits())


def test_a_backend_that_answers_nonsense_is_found_out() -> None:
    """An allocation that breaks the pool's limit is an error, not a decision."""
    asked = problem(linear(2.0, 3), linear(1.0, 3), nodes=3)
    odd = Scripted(lambda model: ModelOutcome(StopReason.OPTIMAL, model.upper, 1e4), name="odd")
    with pytest.raises(SolverError, match="odd: answered with an allocation that is not feasible"):
        solve(odd, asked, Limits(prune=False))


def test_a_claim_of_optimality_is_checked() -> None:
    """A solution below its own bound is an incumbent, whatever the backend calls it."""
    asked = problem(linear(2.0, 3), nodes=3)
    outcome = ModelOutcome(
        StopReason.OPTIMAL, np.array([2.0]), math.ldexp(6.0, formulate([np.arange(4)], asked).exponent)
    )
    judged = Scripted(outcome).solve(asked, Limits(prune=False))
    assert (judged.held, judged.objective, judged.bound) == (Held.INCUMBENT, 4.0, 6.0)
    assert judged.gap == pytest.approx(0.5)


def test_a_decided_problem_needs_no_backend() -> None:
    """Where pruning leaves one option each, the answer is there; without pruning the backend is asked."""
    asked = problem(linear(2.0, 3), task({0: 0.0, 2: 1.0}), nodes=9)

    never = Scripted()
    assert never.solve(asked, Limits()).counts == (3, 2)
    with pytest.raises(IndexError):
        never.solve(asked, Limits(prune=False))


@pytest.mark.parametrize("name", ["highs", "gurobi", "cbc"])
def test_the_number_of_threads_may_change(name: str) -> None:
    """HiGHS's one scheduler a process is restarted when the next solve asks for other threads; answers stay."""
    asked = problems(1, 5, 40, 1)[0]
    found = {solve(usable(name), asked, Limits(threads=threads, prune=False)).objective for threads in (1, 2, 1)}
    assert len(found) == 1


def test_tasks_that_are_all_alike_do_not_keep_cbc_branching() -> None:
    """Pools for 30 equal tasks that took CBC forever while it tried permutations are proven within seconds."""
    rng = np.random.default_rng([1, 30, 391])
    asked = [instance(rng, 30, 391, equal=number % 4 == 3) for number in range(200)]
    for number in (3, 71, 163, 195):
        assert solve(get_solver("cbc"), asked[number], Limits(time_s=20.0)).held is Held.OPTIMAL


def test_pruning_keeps_the_time_limit_under_a_cap() -> None:
    """A hundred equal tasks, whose search alone takes more than a second, end near a limit of a tenth of it."""
    asked = power_instance(np.random.default_rng([8, 3]), 100, 4608, equal=True)
    result = solve(get_solver("cbc"), asked, Limits(time_s=0.1))
    assert (result.stop_reason, result.held) == (StopReason.TIME_LIMIT, Held.INCUMBENT)
    assert result.objective <= result.bound
    assert result.solve_s < 1.0


def test_a_process_that_died_is_replaced_once(monkeypatch):
    """A second death is an error; after the first one the next process answers."""
    asked = []

    def dies(times):
        def ask(*given, **how):
            asked.append(given)
            if len(asked) <= times:
                raise ProcessDiedError("cbc: its process ended by SIGABRT.")
            return run_in_subprocess(*given, **how)

        return ask

    solver, one = CbcSolver(), problem(linear(1.0, 2), nodes=2)
    monkeypatch.setattr(CbcSolver, "_keeps_limits", lambda *_: False)
    monkeypatch.setattr(milp, "run_in_subprocess", dies(1))
    assert solve(solver, one, Limits(prune=False)).counts == (2,)
    asked.clear()
    monkeypatch.setattr(milp, "run_in_subprocess", dies(2))
    with pytest.raises(SolverError, match="SIGABRT"):
        solve(solver, one, Limits(prune=False))
