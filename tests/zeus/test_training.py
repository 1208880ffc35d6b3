"""Single runs: which path, how far, at what energy and time, under which power limit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bftrainer.errors import TuningError, TuningInputError
from bftrainer.zeus import JITPowerLimitOptimizer, PowerLimitOptimizer
from bftrainer.zeus.simulation.simulator import Training
from tests.zeus.golden import units
from tests.zeus.worlds import world


def training(paths, eta=0.5, seed=0, **job):
    """Runs in a round world: at batch size 8 an epoch takes 12.5 s, 1,875 J at 200 W; 20 s, 1,500 J at 100 W."""
    made = world(paths, **job)
    return Training(made.job, made.trace().of(made.job), eta, np.random.default_rng(seed))


@pytest.mark.parametrize("case", units()["df_sample"], ids=lambda case: f"{case['seed']}-{case['n']}")
def test_published_paths(case):
    """Paths are drawn as the published simulator draws rows; the generator ends in the state of as many draws."""
    runs = training({8: [float(epochs) for epochs in range(1, case["n"] + 1)]}, seed=case["seed"], max_epochs=1000)
    drawn = [runs.run(8, 200, math.inf, False).epochs - 1 for _ in case["samples"]]
    assert drawn == case["samples"]
    expected = np.random.default_rng(case["seed"])
    expected.integers(0, case["n"], len(drawn))
    assert runs.rng.bit_generator.state == expected.bit_generator.state


@pytest.mark.parametrize(("eta", "limit"), [(0.0, 200), (0.5, 200), (0.9, 100), (1.0, 100)])
def test_power_limits_are_chosen_just_in_time(eta, limit):
    """Time asks for 200 W, energy for 100 W; the first use of a batch size profiles, and no other."""
    runs, optimizer = training({8: [4.0], 16: [4.0]}, eta), JITPowerLimitOptimizer(False)
    assert runs.choose_limit(optimizer, 8) == (limit, True)
    assert runs.choose_limit(optimizer, 8) == (limit, False)
    assert runs.choose_limit(optimizer, 16) == (limit, True)


class Undecided(PowerLimitOptimizer):
    """Never has an answer."""

    name = "undecided"

    def predict(self, *_):
        return None

    def observe(self, *_):
        pass


def test_a_power_limit_optimizer_without_an_answer():
    """It is named."""
    with pytest.raises(TuningError, match="power limit from undecided after it observed all"):
        training({8: [4.0]}).choose_limit(Undecided(), 8)


def test_what_was_not_measured():
    """Batch sizes and limits that policies make up are refused with the closest ones."""
    runs = training({8: [4.0], 16: [4.0]})
    with pytest.raises(TuningInputError, match=r"got 12. Closest: 8, 16\."):
        runs.run(12, 200, math.inf, False)
    with pytest.raises(TuningInputError, match=r"got 150 W. Closest: 100, 200\."):
        runs.run(8, 150, math.inf, False)
