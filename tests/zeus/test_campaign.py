"""Simulations by the dozen: what they are made of, and that nothing but this decides their results."""

from __future__ import annotations

import math
import textwrap

import pytest

from bftrainer.errors import BftrainerError, SettingsError, TuningInputError
from bftrainer.zeus import JITPowerLimitOptimizer, Job, PruningGTSBatchSizeOptimizer, Simulator, read_groups
from bftrainer.zeus.simulation.campaign import Simulation, group_seed, simulate, simulate_all, with_seeds
from tests.recurring import PAGES, WORDS, write_world


@pytest.fixture
def trace(tmp_path, monkeypatch):
    """The trace of the small world, in whose folder the test runs."""
    monkeypatch.chdir(tmp_path)
    return write_world(tmp_path)


def facts(results):
    """All that results say."""
    return [(result.simulation, result.runs, result.failure) for result in results]


def campaign():
    """Jobs, groups, policies and seeds, mixed."""
    singles = [Simulation(WORDS, 30, policy=policy) for policy in ("zeus", "grid")]
    groups = [Simulation(PAGES, None, group, seed=3) for group in read_groups("groups.csv").values()][:2]
    return [each for simulation in (*singles, *groups) for each in with_seeds(simulation, 3)]


def test_one_simulation_is_what_the_simulator_does(trace):
    """The published policies with one seed for all give what the simulator gives when they are passed to it."""
    simulator = Simulator(
        trace, None, PruningGTSBatchSizeOptimizer(seed=9), JITPowerLimitOptimizer(), seed=9, verbose=False
    )
    result = simulate(trace, Simulation(WORDS, 40, eta_knob=0.3, beta_knob=2.5, seed=9))
    assert result.history == simulator.simulate_one_job(WORDS, 40, 2.5, 0.3)
    assert (result.failure, result.is_partial) == (None, False)


def test_a_group_is_what_the_simulator_does(trace):
    """So does a group, whose policy expects runs that overlap."""
    group = read_groups("groups.csv")["c"]
    simulator = Simulator(
        trace, None, PruningGTSBatchSizeOptimizer(concurrency=True, seed=2), JITPowerLimitOptimizer(), seed=2
    )
    result = simulate(trace, Simulation(WORDS, None, group, seed=2, beta_knob=math.inf))
    assert result.history == simulator.simulate_one_alibaba_group(WORDS, group, math.inf, 0.5)


@pytest.mark.long
def test_workers_change_nothing(trace):
    """One process or three: the same results in the same order, all of them counted."""
    simulations = campaign()
    counted = []
    alone = simulate_all(trace, simulations, workers=1)
    shared = simulate_all(trace, simulations, workers=3, progress=counted.append)
    assert facts(alone) == facts(shared) == facts(counted)
    assert [result.simulation for result in alone] == simulations
    assert {result.failure for result in alone} == {None}


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_the_first_bad_input_is_raised(trace, workers):
    """A job that cannot start ends the campaign with its own error, in this process and in others."""
    good = Simulation(PAGES, 5)
    bad = [Simulation(Job("pages", "net", "sgd", target, 20, 8), 5) for target in (0.51, 0.52)]
    with pytest.raises(TuningInputError, match=r"target metric 0\.51\. Closest: 0\.5, 0\.6\."):
        simulate_all(trace, [good, *bad, good], workers=workers)


def test_what_fails_keeps_its_runs(trace):
    """A default batch size that does not converge ends a simulation after its first run, which is kept."""
    bad = Simulation(Job("pages", "net", "sgd", 0.5, 20, 32), 5)
    results = simulate_all(trace, [bad, Simulation(PAGES, 5)])
    assert [result.is_partial for result in results] == [True, False]
    assert "The default batch size 32 did not converge." in results[0].failure
    assert [(entry.bs, entry.reached) for entry in results[0].history] == [(32, False)]


def policy(folder, body):
    """A module with a policy of the user's."""
    (folder / "mine.py").write_text(
        "from bftrainer.zeus.policies.baselines import DefaultBatchSize\n"
        "class Mine(DefaultBatchSize):\n" + textwrap.indent(textwrap.dedent(body), "    ") + "\n"
        "def make(context):\n    return Mine()\n"
    )


@pytest.mark.long
def test_a_policy_that_breaks_is_told(trace, tmp_path, monkeypatch):
    """Whatever a user's policy raises ends its simulation in one line, with the runs until then."""
    policy(tmp_path, "count = 0\ndef predict(self, job):\n    self.count += 1\n    return 8 // (self.count < 2)")
    monkeypatch.delitem(__import__("sys").modules, "mine", raising=False)
    # The other process finds the policy too, and so shows that it is looked up by name there.
    one, other = simulate_all(trace, with_seeds(Simulation(PAGES, 5, policy="mine:make"), 2), workers=2)
    assert "ZeroDivisionError" in one.failure
    assert "mine:make" in one.failure
    assert len(one.runs) == len(other.runs) == 1


@pytest.mark.long
def test_a_lost_worker_is_told(trace, tmp_path):
    """A process that dies is an error of ours, in one line, and nothing waits for it for ever."""
    policy(tmp_path, "def predict(self, job):\n    import os\n    os._exit(3)")
    with pytest.raises(BftrainerError, match="worker process"):
        simulate_all(trace, with_seeds(Simulation(PAGES, 5, policy="mine:make"), 2), workers=2)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"recurrences": None}, "either recurrences or a group"),
        ({"recurrences": -1}, "recurrences >= 0, got -1"),
        ({"seed": -1}, "seed >= 0, got -1"),
        ({"eta_knob": 1.5}, "eta from 0"),
        ({"eta_knob": math.nan}, "eta from 0"),
        ({"beta_knob": 0.0}, "beta above 0"),
        ({"beta_knob": math.nan}, "beta above 0"),
    ],
)
def test_simulations_are_checked_when_made(values, said):
    """What makes no sense is refused before anything is simulated."""
    with pytest.raises((SettingsError, TuningInputError), match=said):
        Simulation(PAGES, **values)
    with pytest.raises(SettingsError, match="at least one worker"):
        simulate_all(None, [], workers=0)


def test_seeds_of_groups_are_their_own():
    """A group's seed depends on its name and the campaign's seed alone; no two of a hundred are equal."""
    seeds = {group_seed(seed, f"g{number}") for seed in (1, 2) for number in range(50)}
    assert len(seeds) == 100
    assert group_seed(1, "g7") in seeds
