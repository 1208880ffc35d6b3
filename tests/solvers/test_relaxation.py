"""Relaxation: the bound holds at the prices found, which are what limits are worth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.instances import power_instance, problems
from solvers import Limits
from solvers.dynamic_programme import DynamicProgramme
from solvers.relaxation import option_table, relax
from tests.solvers.known_optima import TWO_LIMITS, linear, problem
from tests.solvers.support import optimum, small


def test_the_bound_holds_and_is_mostly_tight() -> None:
    """The Lagrangian bound is never below the optimum, and on real curves within half a percent of it."""
    distances = []
    for asked in problems(2, 10, 130, 40):
        best = DynamicProgramme().solve(asked, Limits(prune=False)).objective
        bound = relax(option_table(asked)).bound
        assert bound >= best * (1 - 1e-12)
        distances.append(bound / best - 1)
    assert np.median(distances) < 0.005


def test_the_multiplier_is_the_worth_of_a_node() -> None:
    """Relaxing by hand: the third-best node sets the price, and losses follow from it."""
    asked = problem(linear(5.0, 2), linear(3.0, 4), nodes=4)
    relaxed = relax(option_table(asked))
    assert relaxed.bound == pytest.approx(16.0)
    assert 3.0 <= relaxed.multipliers[0] <= 5.0
    assert relaxed.choices.sum() <= 4


def test_option_table_by_hand() -> None:
    """Rows hold a task's options in order; what is missing, or exceeds a limit by itself, is -inf."""
    twice = replace(TWO_LIMITS, uses=np.vstack((TWO_LIMITS.uses, TWO_LIMITS.uses)))
    asked = problem(twice, linear(1.0, 2), nodes=2, capacities=(np.inf, 150.0))
    table = option_table(asked)
    np.testing.assert_array_equal(table.values, [[0.0, 6.0, 10.0, 12.0, -np.inf], [0.0, 1.0, 2.0, -np.inf, -np.inf]])
    np.testing.assert_array_equal(table.amounts[1][0], [0.0, 50.0, 100.0, 100.0, 200.0])
    assert not table.amounts[1][1].any()
    assert table.limits == pytest.approx((2.0, 150.0), rel=1e-12)


def test_prices_by_hand() -> None:
    """A watt is worth what running at 100 W instead of 50 W gains; where watts are to spare, nothing."""
    scarce = relax(option_table(problem(TWO_LIMITS, TWO_LIMITS, nodes=4, capacities=(300.0,))))
    assert scarce.bound == pytest.approx(32.0)
    assert scarce.multipliers[1] == pytest.approx((10.0 - 6.0) / 50.0)
    spare = relax(option_table(problem(TWO_LIMITS, TWO_LIMITS, nodes=2, capacities=(900.0,))))
    assert spare.multipliers[1] == 0.0
    assert spare.bound == pytest.approx(20.0)


def test_several_prices_bound_every_allocation() -> None:
    """On 200 small problems of one or two capacities no optimum exceeds the bound, and what is chosen is feasible."""
    for seed in range(200):
        asked = small(seed)
        relaxed = relax(option_table(asked))
        assert min(relaxed.multipliers) >= 0.0
        assert relaxed.bound >= optimum(seed) - 1e-9 * abs(optimum(seed)) - 1e-12
        assert relaxed.value <= relaxed.bound + 1e-9 * abs(relaxed.bound)
        assert (relaxed.losses >= 0.0).all()
        for amount, limit in zip(option_table(asked).amounts, option_table(asked).limits, strict=True):
            assert amount[np.arange(len(amount)), relaxed.choices].sum() <= limit


def test_a_capacity_that_never_binds_changes_no_bound() -> None:
    """The prices of a plain problem, found by the one-price way, give the bound that the way of several gives."""
    for asked in problems(6, 10, 130, 20):
        plain = relax(option_table(asked))
        several = relax(option_table(asked))
        assert several.bound == pytest.approx(plain.bound, rel=1e-9)


def test_the_bound_under_a_cap_is_mostly_tight() -> None:
    """On instances that look measured the bound is within 2 % of the optimum in the median."""
    distances = []
    for number in range(12):
        asked = power_instance(np.random.default_rng([6, number]), 10, 130)
        best = DynamicProgramme().solve(asked, Limits()).objective
        distances.append(relax(option_table(asked)).bound / best - 1)
    assert min(distances) >= -1e-12
    assert np.median(distances) < 0.02
