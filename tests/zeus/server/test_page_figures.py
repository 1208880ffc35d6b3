"""Figures of a job, by hand: what its trials have used, and what was saved."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pytest

from bftrainer.zeus.server.job_figures import describe_savings, figures_by_size, format_si
from bftrainer.zeus.server.messages import Arm, TrialRow


def results_of(size, converged, *values):
    """Results that used so much energy, in 36 times as many seconds."""
    return [
        TrialRow(
            "t-1", size, 1, "MAB", "Succeeded", 0.0, cost=3 * used, energy=used, time=36 * used, converged=converged
        )
        for used in values
    ]


def test_figures_by_batch_size():
    """Means over the trials that reached the target; trials without a result, or that are void, do not count."""
    rows = [*results_of(64, True, 2.0, 4.0, 9.0), *results_of(8, False, 8.0)]
    running = replace(rows[0], cost=None, converged=None)
    sizes = figures_by_size([*rows[:2], replace(rows[2], excluded="Voided"), rows[3], running])
    assert list(sizes) == [8, 64]
    assert (sizes[64].results, sizes[64].converged, sizes[8].converged, sizes[8].means) == (2, 2, 0, {})
    assert sizes[64].means == {"cost": 9.0, "energy": 3.0, "time": 108.0}


def test_savings_by_hand():
    """Three runs with 16 used 10 less each than the default's mean, a failure 25: 5 J are saved."""
    groups = [
        results_of(32, True, 90.0, 100.0, 110.0),
        results_of(16, True, 90.0, 90.0, 90.0),
        results_of(8, False, 25.0),
    ]
    assert describe_savings(figures_by_size(chain(*groups)), 32) == "energy 5 J (0.8%), time 0.05 h (0.8%)"


@pytest.mark.parametrize(
    "rows", [[], results_of(16, True, 1.0), results_of(32, True, 1.0) + results_of(32, False, 9.0)]
)
def test_too_few_runs_with_the_default_give_no_figure(rows):
    """One run says little of a mean; the text says how many there are."""
    number = len({row.converged for row in rows if row.batch_size == 32 and row.converged})
    assert describe_savings(figures_by_size(rows), 32).startswith(f"not known: {number} of the 2 runs")


def test_beliefs_are_costs():
    """Rewards are negative costs; what is certain has no deviation, and of what is unknown there is none."""
    about = {"batch_size": 8, "reward_precision": None, "observations": 2}
    known, certain, unknown = (
        Arm(mean=mean, precision=precision, **about) for mean, precision in ((-5.0, 0.25), (-5.0, None), (0.0, 0.0))
    )
    assert [(arm.mean_j, arm.deviation_j) for arm in (known, certain, unknown)] == [
        (5.0, 2.0),
        (5.0, 0.0),
        (None, None),
    ]


@pytest.mark.parametrize(("number", "text"), [(None, "–"), (1234.5, "1.234 k"), (-2e7, "-20 M"), (0.5, "0.5 ")])
def test_numbers_are_short(number, text):
    """Four digits and a prefix."""
    assert format_si(number) == text
