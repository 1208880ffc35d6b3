"""Means and their intervals."""

from __future__ import annotations

import math

import pytest

from bftrainer.report.intervals import estimate, student_quantile

# Student, "Tables for estimating the probability that the mean of a unique sample of observations lies between ...",
# as every collection of tables has it: two-sided, 95 % and 99 %.
TABLE = {1: (12.706, 63.657), 2: (4.303, 9.925), 3: (3.182, 5.841), 9: (2.262, 3.250), 30: (2.042, 2.750)}


def test_quantiles_are_those_of_the_tables():
    """They agree with the printed tables to their last digit; with many degrees of freedom, the normal one."""
    for freedom, quantiles in TABLE.items():
        assert tuple(round(student_quantile(freedom, level), 3) for level in (0.95, 0.99)) == quantiles
    assert student_quantile(5000, 0.95) == pytest.approx(1.95996, abs=5e-4)


def test_estimate_by_hand():
    """Of 1, 2 and 3: mean 2, standard error 1/sqrt(3), two degrees of freedom; one value has no spread."""
    three = estimate([1.0, 2.0, 3.0])
    assert (three.mean, three.number) == (2.0, 3)
    assert three.half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert (estimate([4.0]).mean, estimate([4.0]).half_width) == (4.0, None)
    assert estimate([7.0] * 5).half_width == 0.0
