"""The cost of energy and time, and the knobs."""

from __future__ import annotations

import math

import pytest

from bftrainer.errors import TuningInputError
from bftrainer.zeus import zeus_cost
from bftrainer.zeus.policies.job import check_knobs, usage_fault
from tests.zeus.golden import units


def test_published_costs():
    """All recorded costs to the bit: the order of the operations is the published one."""
    rows = units()["zeus_cost"]
    assert len(rows) == 108
    for *arguments, cost in rows:
        assert zeus_cost(*arguments) == cost


@pytest.mark.parametrize(("eta", "beta"), [(0.0, 1e-9), (1.0, math.inf), (0.5, 1.0)])
def test_usable_knobs(eta, beta):
    """Both ends of eta, and any beta above 0."""
    check_knobs(eta, beta)


@pytest.mark.parametrize(
    ("eta", "beta", "message"),
    [
        (-0.1, 2.0, r"eta from 0 \(time\) to 1 \(energy\), got -0.1"),
        (1.5, 2.0, "got 1.5"),
        (math.nan, 2.0, "eta .* got nan"),
        (0.5, 0.0, r"beta above 0 \(inf: never stop early\), got 0.0"),
        (0.5, -1.0, "got -1.0"),
        (0.5, math.nan, "beta .* got nan"),
    ],
)
def test_meaningless_knobs(eta, beta, message):
    """What the published simulator takes without a word, and gives nonsense for, is refused."""
    with pytest.raises(TuningInputError, match=message):
        check_knobs(eta, beta)


@pytest.mark.parametrize(
    ("energy_j", "time_s", "eta", "ended", "fault"),
    [
        (1100.0, 10.0, 0.5, True, None),
        (1100.1, 10.0, 0.5, False, ("energy", "Expected at most 1100 J in 10 s at 100 W, got 1100.1.")),
        (1e-9, 0.0, 0.5, False, ("energy", "Expected at most 0 J in 0 s at 100 W, got 1e-09.")),
        (0.0, 0.0, 0.5, False, None),
        (0.0, 0.0, 0.5, True, ("time", "Expected more than 0 of a run that has ended, got 0 J in 0 s.")),
        (0.0, 10.0, 0.5, True, None),
        (0.0, 10.0, 1.0, True, ("energy", "Expected more than 0 of a run that has ended, got 0 J in 10 s.")),
    ],
)
def test_what_no_run_uses(energy_j, time_s, eta, ended, fault):
    """Energy stays below the power limit and a tenth more; a run that has ended has cost something."""
    assert usage_fault(energy_j, time_s, 100.0, eta, ended=ended) == fault
