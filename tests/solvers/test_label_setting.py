"""The search by labels: it finds and proves the optimum, and says so when it cannot."""

from __future__ import annotations

import math
from time import perf_counter

import numpy as np
import pytest

from benchmarks.instances import power_instance
from solvers import AllocationProblem, label_setting, objective
from solvers.label_setting import Found, _drop_dominated, search
from solvers.relaxation import option_table, relax
from tests.solvers.known_optima import TWO_LIMITS, problem
from tests.solvers.support import optimum, small


def searched(asked: AllocationProblem, deadline: float = math.inf, **how: float) -> tuple[Found, float]:
    """What a search ends with, and what no allocation is worth more than."""
    table = option_table(asked)
    relaxed = relax(table)
    return search(table, relaxed, deadline, **how), relaxed.bound


def test_by_hand() -> None:
    """Three nodes and 250 W: the bound buys the half watt that no allocation can, and the search sees that."""
    found, bound = searched(problem(TWO_LIMITS, TWO_LIMITS, nodes=3, capacities=(249.0,)))
    assert bound == pytest.approx(18.0 + 0.08 * 99.0)
    assert bound - found.shortfall == pytest.approx(22.0)
    assert found.proven
    assert sorted(found.choices.tolist()) in ([1, 3], [2, 3])


def test_the_optimum_is_found_and_proven() -> None:
    """On 200 small problems."""
    for seed in range(200):
        asked = small(seed)
        found, bound = searched(asked)
        value = objective(asked, choices=found.choices.tolist())
        assert found.proven, seed
        assert value == pytest.approx(optimum(seed), rel=1e-9, abs=1e-9), seed
        assert bound - found.least == pytest.approx(value, rel=1e-9, abs=1e-9), seed


@pytest.mark.parametrize("limit", ["time", "memory"])
def test_a_search_that_is_given_up_keeps_what_it_has(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past its deadline, or with too many labels at once, a search ends with the allocation that it began with."""
    asked = power_instance(np.random.default_rng(1), 6, 40)
    if limit == "memory":
        monkeypatch.setattr(label_setting, "MOST_AT_ONCE", 0)
    table = option_table(asked)
    relaxed = relax(table)
    found = search(table, relaxed, perf_counter() + (60.0 if limit == "memory" else -1.0))
    assert not found.proven
    assert (found.least, found.shortfall) == (0.0, relaxed.bound - relaxed.value)
    assert found.choices.tolist() == relaxed.choices.tolist()


def test_undominated_by_hand() -> None:
    """Among labels of equal nodes the dearer one must be worth more; nodes are not compared with one another."""
    nodes = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 1.0])
    watts = np.array([5.0, 6.0, 7.0, 9.0, 9.0, 5.0])
    worth = np.array([3.0, 3.0, 4.0, 2.0, 1.0, 2.0])
    assert _drop_dominated([nodes, watts], worth, 1e-9).tolist() == [0, 2, 3]
    assert _drop_dominated([watts], worth, 1e-9).tolist() == [0, 2]
    assert _drop_dominated([], worth, 1e-9).tolist() == [2]


def test_what_differs_by_rounding_alone_is_dominated() -> None:
    """Permutations of equal tasks reach the same worth by sums that round differently, and are one label."""
    worth = np.array([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1, 0.1 + 0.3 + 0.2])
    assert len(set(worth.tolist())) > 1
    assert _drop_dominated([np.ones(3), np.ones(3)], worth, 1e-12).size == 1


def test_all_limits_slack() -> None:
    """Where nothing is scarce every task takes its best option, and the bound is met at once."""
    found, bound = searched(problem(TWO_LIMITS, TWO_LIMITS, nodes=9, capacities=(math.inf,)))
    assert (found.choices.tolist(), found.shortfall, bound) == ([4, 4], 0.0, 40.0)


def test_the_effort_is_limited() -> None:
    """A search that may look at nothing keeps what it began with; with more it is no worse, and in the end proven."""
    asked = power_instance(np.random.default_rng(1), 10, 130, equal=True)
    short = [searched(asked, effort=2.0**exponent)[0] for exponent in (-1, 12, 16, 24)]
    assert [one.proven for one in short[::3]] == [False, True]
    assert [one.shortfall for one in short] == sorted([one.shortfall for one in short], reverse=True)
