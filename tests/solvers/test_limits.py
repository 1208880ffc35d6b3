"""Time limits hold by the clock, whatever a backend does."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest

from benchmarks.instances import problems
from solvers import DecidedBy, Held, Limits, StopReason, check, milp, objective
from solvers.count_model import CountModel, formulate
from solvers.label_setting import search
from solvers.milp import OUT_OF_TIME, MilpSolver, ModelOutcome
from solvers.option_pruning import fitting_options, prune, search_options
from solvers.problem import OutOfTime
from solvers.registry import get_solver, solve
from tests.solvers.known_optima import linear, problem
from tests.solvers.support import usable


class Stuck(MilpSolver):
    """A backend whose code returns when it likes."""

    name = "stuck"

    def _keeps_limits(self, model: CountModel, limits: Limits) -> bool:  # noqa: ARG002 - whatever they are
        return False

    def _run(self, model: CountModel, limits: Limits) -> ModelOutcome:  # noqa: ARG002 - whatever they are
        """Not before an hour has passed."""
        time.sleep(3600.0)
        return OUT_OF_TIME


@pytest.mark.parametrize("pruned", [True, False], ids=["pruned", "whole"])
def test_a_backend_that_does_not_return_is_ended(pruned: bool) -> None:
    """What the search knows is then held, and said to be the search's; without pruning nothing is."""
    asked = next(each for each in problems(7, 10, 130, 8) if not prune(each).decided)
    result = Stuck().solve(asked, Limits(time_s=0.2, prune=pruned))
    assert result.stop_reason is StopReason.TIME_LIMIT
    assert result.model_columns > 0
    if pruned:
        assert result.decided_by is DecidedBy.SEARCH
        assert result.objective == objective(asked, choices=prune(asked).incumbent)
    else:
        assert (result.held, result.counts) == (Held.NOTHING, None)


@pytest.mark.parametrize("name", ["cbc", "highs", "node-level"])
@pytest.mark.parametrize(("limit_s", "more_s"), [(10.0, 1.0), (0.5, 0.2)])
def test_none_is_waited_for_longer_than_its_limit_allows(
    name: str, limit_s: float, more_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes are ended before a tenth of the limit, or 0.2 s, has passed beyond it, and are told to end earlier."""
    waits = []

    def run_in_subprocess(*args: object, deadline: float) -> ModelOutcome:
        waits.append(deadline - args[-1])
        return OUT_OF_TIME

    monkeypatch.setattr(milp, "run_in_subprocess", run_in_subprocess)
    monkeypatch.setattr("solvers.highs_backend.SMALL", 0)
    get_solver(name).solve(problems(1, 4, 20, 1)[0], Limits(time_s=limit_s, prune=False))
    (waited_s,) = waits
    assert 0.0 < waited_s < more_s


def test_what_goes_before_the_backend_ends_in_time_too() -> None:
    """No model is written, nothing searched and nothing exchanged after the deadline; what is known stays feasible."""
    asked = problems(7, 10, 130, 1)[0]
    with pytest.raises(OutOfTime):
        formulate(fitting_options(asked).choices, asked, deadline=-math.inf)
    late = prune(asked, -math.inf)
    assert late.incumbent is not None
    assert objective(asked, choices=late.incumbent) <= prune(asked).bound
    check(asked, choices=search_options(asked, -math.inf).incumbent)


def test_a_search_that_is_given_up_leaves_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its best allocation, its bound, and the options that may be better go on to the backend."""
    asked = next(each for each in problems(7, 10, 130, 8) if not prune(each).decided)
    before = prune(asked)

    def given_up(table, relaxed, *_, **__):
        return replace(search(table, relaxed, math.inf), least=0.0)

    monkeypatch.setattr("solvers.option_pruning.search", given_up)
    after = search_options(asked, math.inf)
    assert after.bound == before.bound
    assert all(set(new) <= set(old) for new, old in zip(after.choices, before.choices, strict=True))
    assert objective(asked, choices=after.incumbent) >= objective(asked, choices=before.incumbent)


@pytest.mark.parametrize(
    ("limit_s", "columns", "apart_too"), [(10.0, 1_000, False), (10.0, 0, True), (0.5, 1_000, True)]
)
def test_cbc_answers_small_models_in_this_process(
    limit_s: float, columns: int, apart_too: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only while its tree is limited, and with a limit that leaves time to end by itself; the answer is the same."""
    asked = next(each for each in problems(7, 10, 130, 8) if not prune(each).decided)
    apart_runs = []
    run_in_subprocess = milp.run_in_subprocess

    def counted(*args: object, deadline: float) -> ModelOutcome:
        apart_runs.append(args[0])
        return run_in_subprocess(*args, deadline=deadline)

    monkeypatch.setattr(milp, "run_in_subprocess", counted)
    monkeypatch.setattr("solvers.cbc_backend.SMALL", columns)
    result = get_solver("cbc").solve(asked, Limits(time_s=limit_s))
    assert bool(apart_runs) == apart_too
    assert result.objective == pytest.approx(get_solver("dp").solve(asked, Limits()).objective, rel=1e-9)


@pytest.mark.parametrize("name", ["cbc", "dp", "gurobi", "highs"])
@pytest.mark.parametrize("pruned", [True, False], ids=["pruned", "whole"])
def test_a_limit_too_short_for_anything_is_no_error(name: str, pruned: bool) -> None:
    """Within 0.1 ms what the search knows is held, with its gap; without pruning, nothing: never "no allocation"."""
    for asked in problems(7, 10, 130, 3):
        result = solve(usable(name), asked, Limits(time_s=0.0001, prune=pruned))
        assert result.held is not Held.NOTHING or (not pruned and result.stop_reason is StopReason.TIME_LIMIT)
        assert result.held is Held.NOTHING or 0.0 <= result.gap < math.inf


def test_the_dynamic_programme_holds_what_its_bound_came_with() -> None:
    """Where not even the first step is within the time: a feasible allocation, and a bound that no other exceeds."""
    reasons = set()
    for asked in problems(7, 10, 130, 20):
        late, best = (get_solver("dp").solve(asked, Limits(time_s=time_s)) for time_s in (-1.0, 10.0))
        assert late.held is (Held.INCUMBENT if late.stop_reason is StopReason.TIME_LIMIT else Held.OPTIMAL)
        assert check(asked, late.counts) == late.objective <= best.objective * (1 + 1e-9)
        assert best.objective <= late.bound * (1 + 1e-9)
        reasons.add(late.stop_reason)
    assert reasons == {StopReason.TIME_LIMIT, StopReason.OPTIMAL}  # some are decided before time counts


@pytest.mark.parametrize("name", ["cbc", "dp", "gurobi", "highs", "exhaustive", "equal-share"])
def test_pools_of_more_nodes_than_32_bits(name: str) -> None:
    """All tasks get what they can use."""
    asked = problem(linear(1.0, 3), linear(2.0, 3), nodes=2**33)
    assert solve(usable(name), asked, Limits()).counts == (3, 3)
