"""Single runs: which path, how far, at what energy and time, under which power limit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bftrainer.errors import TuningInputError, TuningProtocolError
from bftrainer.zeus import JITPowerLimitOptimizer, PowerLimitOptimizer
from bftrainer.zeus.simulation.simulator import Training
from tests.zeus.golden import units
from tests.zeus.worlds import NEVER, world


def training(paths, eta=0.5, seed=0, **job):
    """Runs in a round world: at batch size 8 an epoch takes 12.5 s, 1,875 J at 200 W; 20 s, 1,500 J at 100 W."""
    made = world(paths, **job)
    return Training(made.job, made.trace().of(made.job), eta, np.random.default_rng(seed))


def outcome(run):
    """Energy, time, verdict and epochs of a run."""
    return run.energy_j, run.time_s, run.reached, run.epochs


@pytest.mark.parametrize("case", units()["df_sample"], ids=lambda case: f"{case['seed']}-{case['n']}")
def test_published_paths(case):
    """Paths are drawn as the published simulator draws rows; the generator ends in the state of as many draws."""
    runs = training({8: [float(epochs) for epochs in range(1, case["n"] + 1)]}, seed=case["seed"], max_epochs=1000)
    drawn = [runs.run(8, 200, math.inf, False).epochs - 1 for _ in case["samples"]]
    assert drawn == case["samples"]
    expected = np.random.default_rng(case["seed"])
    expected.integers(0, case["n"], len(drawn))
    assert runs.rng.bit_generator.state == expected.bit_generator.state


def test_a_run_that_profiles():
    """The first of four epochs takes the mean of both limits."""
    assert outcome(training({8: [4.0]}).run(8, 200, math.inf, True)) == (1687.5 + 3 * 1875.0, 16.25 + 37.5, True, 4.0)


@pytest.mark.parametrize("epochs", [13.0, NEVER])
def test_a_run_that_gives_up(epochs):
    """Twelve epochs are not enough, or none ever are."""
    assert outcome(training({8: [epochs]}).run(8, 100, math.inf, False)) == (18_000.0, 240.0, False, 12)


@pytest.mark.parametrize(
    ("bound", "epochs", "reached"),
    [(6562.5, 3.0, False), (8749.9, 3.0, False), (8750.0, 4.0, True), (1e9, 4.0, True)],
)
def test_a_run_that_stops_early(bound, epochs, reached):
    """An epoch at 200 W costs half of 1,875 J and half of 200 W for 12.5 s, 2,187.5 J: as many as the bound allows."""
    run = training({8: [4.0]}).run(8, 200, bound, False)
    assert (run.epochs, run.reached) == (epochs, reached)
    assert run.energy_j == 1875.0 * epochs


def test_a_run_that_never_starts():
    """A bound below one epoch: nothing is used, and yet a path is drawn."""
    runs = training({8: [4.0, 5.0]}, seed=3)
    run = runs.run(8, 200, 2187.4, False)
    assert outcome(run) == (0.0, 0.0, False, 0.0)
    assert not run.started
    expected = np.random.default_rng(3)
    expected.integers(0, 2)
    assert runs.rng.bit_generator.state == expected.bit_generator.state


def test_the_epoch_cost_uses_the_batch_sizes_highest_limit():
    """A higher limit of another job raises costs, and does not change when a run stops."""
    made = world({8: [4.0]})
    other = type(made)(made.job, made.paths, made.powers, 500)
    runs = [Training(one.job, one.trace().of(one.job), 0.5, np.random.default_rng(0)) for one in (made, other)]
    assert outcome(runs[0].run(8, 200, 8750.0, False)) == outcome(runs[1].run(8, 200, 8750.0, False))
    assert [one.cost(1000.0, 10.0) for one in runs] == [1500.0, 3000.0]


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
    with pytest.raises(TuningProtocolError, match="power limit from undecided after it observed all"):
        training({8: [4.0]}).choose_limit(Undecided(), 8)


def test_what_was_not_measured():
    """Batch sizes and limits that policies make up are refused with the closest ones."""
    runs = training({8: [4.0], 16: [4.0]})
    with pytest.raises(TuningInputError, match=r"got 12. Closest: 8, 16\."):
        runs.run(12, 200, math.inf, False)
    with pytest.raises(TuningInputError, match=r"got 150 W. Closest: 100, 200\."):
        runs.run(8, 150, math.inf, False)
