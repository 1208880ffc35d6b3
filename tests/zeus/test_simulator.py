"""Simulations of single jobs and of groups, and their runs: by hand, and what they refuse."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from bftrainer.errors import TuningError, TuningInputError
from bftrainer.zeus import (
    BatchSizeOptimizer,
    Corrections,
    Group,
    GroupJob,
    HistoryEntry,
    JITPowerLimitOptimizer,
    Job,
    PowerLimitOptimizer,
    PruningGTSBatchSizeOptimizer,
    SimulationObserver,
    Simulator,
)
from bftrainer.zeus.simulation.simulator import Training
from tests.zeus.golden import DATA
from tests.zeus.worlds import JOB, round_trace


def simulator(trace, policy=None, **options):
    """A simulator of a trace with the published policies."""
    policy = policy or PruningGTSBatchSizeOptimizer(verbose=False)
    return Simulator(trace, None, policy, JITPowerLimitOptimizer(False), verbose=False, **options)


class Scripted(BatchSizeOptimizer):
    """Plays given batch sizes in turn, the last one for ever."""

    name = "scripted"

    def __init__(self, *sizes):
        self.sizes = list(sizes)

    def register_job(self, *_):
        pass

    def predict(self, _):
        return self.sizes.pop(0) if len(self.sizes) > 1 else self.sizes[0]

    def observe(self, *_):
        pass


class Runs(SimulationObserver):
    """Keeps the runs."""

    def __init__(self):
        self.runs = []

    def ran(self, run):
        self.runs.append(run)


def test_costs_as_the_server_counts_them():
    """With `server_costs` a run beyond its bound has not converged, and bounds follow the cheapest run alone."""
    trace = round_trace({8: [4.0], 16: [8.0]})
    sizes = (8, 16, 8, 16, 8)
    # The bound, 10,212.5, allows for the 8 epochs that batch size 16 needs, but not for what profiling adds to them.
    published = simulator(trace, Scripted(*sizes)).job_runs(JOB, 2, 0.95, 0.0)
    assert [(run.cost_j, run.reached) for run in published] == [(10_750.0, True), (10_375.0, True)]
    seen = Runs()
    corrected = simulator(trace, Scripted(*sizes), corrections=Corrections(server_costs=True), observers=[seen])
    with pytest.raises(TuningError, match="Recurrence 3 did not reach the target metric in 20 tries"):
        corrected.job_runs(JOB, 3, 0.95, 0.0)
    found = [(run.recurrence, run.cost_j, run.reached) for run in seen.runs[:3]]
    assert found == [(0, 10_750.0, True), (1, 10_375.0, False), (1, 10_000.0, True)]
    # 0.95 of 10,000, the last run's cost without its failed try, allows for 7 epochs.
    assert (seen.runs[3].epochs, seen.runs[3].reached) == (7, False)


def test_published_call_order():
    """Positional arguments in the published order; entries hold plain Python values."""
    paths = (str(DATA / f"tiny_{name}.csv") for name in ("train", "power"))
    simulated = Simulator(*paths, PruningGTSBatchSizeOptimizer(), JITPowerLimitOptimizer(), 1, False)
    first = simulated.simulate_one_job(Job("tiny", "net", "sgd", 0.9, 12, 8), 10, 2.0, 0.5)
    plain = [int, int, float, bool, float]
    assert all([type(getattr(entry, n)) for n in ("bs", "pl", "energy", "reached", "time")] == plain for entry in first)
    assert eval(repr(first), {"HistoryEntry": HistoryEntry}) == first


@pytest.mark.parametrize(
    ("changes", "knobs", "message"),
    [
        ({"default_bs": None}, (2.0, 0.5), r"Expected a default batch size, got none. Closest: 8, 16\."),
        ({"default_bs": 12}, (2.0, 0.5), r"one of the job's batch sizes, got 12. Closest: 8, 16\."),
        ({"dataset": "made-op"}, (2.0, 0.5), r"Did you mean 'made-up,net,sgd'\?"),
        ({}, (0.0, 0.5), "beta above 0"),
        ({}, (2.0, 1.1), "eta from 0"),
    ],
)
def test_what_cannot_be_simulated(changes, knobs, message):
    """Said before anything runs, for jobs and for groups, with the closest values there are."""
    trace = round_trace({8: [4.0], 16: [4.0]})
    job = replace(JOB, **changes)
    with pytest.raises(TuningInputError, match=message):
        simulator(trace).simulate_one_job(job, 3, *knobs)
    with pytest.raises(TuningInputError, match=message):
        simulator(trace).simulate_one_alibaba_group(job, Group("g", "d", (GroupJob(0.0, 1.0, 1.0),)), *knobs)
    for make, said in (
        (lambda: simulator(trace).simulate_one_job(JOB, -1, 2.0, 0.5), "0 or more recurrences, got -1"),
        (lambda: simulator(trace, seed=-5), "seed of 0 or more, got -5"),
        (lambda: simulator(trace, max_group_retries=-1), "0 or more retries of a group's job, got -1"),
    ):
        with pytest.raises(TuningInputError, match=said):
            make()


def test_errors_hold_the_runs_before_them():
    """Of a policy that makes up a batch size, and one that is not made for runs that overlap."""
    trace = round_trace({8: [4.0], 16: [4.0]})
    jobs = Group("g", "d", (GroupJob(0.0, 10.0, 1.0), GroupJob(5.0, 12.0, 1.0)))
    for simulate, said in (
        (lambda: simulator(trace, Scripted(8, 12)).simulate_one_job(JOB, 3, 2.0, 0.5), r"12. Closest: 8, 16\."),
        (lambda: simulator(trace).simulate_one_alibaba_group(JOB, jobs, 2.0, 0.5), "size 8 was reported"),
    ):
        with pytest.raises((TuningError, TuningInputError), match=said) as failed:
            simulate()
        assert [entry.bs for entry in failed.value.history] == [8]


# --- single runs -------------------------------------------------------------------------------------------------


def training(paths, eta=0.5, seed=0, **job):
    """Runs in a round trace: at batch size 8 an epoch takes 12.5 s, 1,875 J at 200 W; 20 s, 1,500 J at 100 W."""
    job = replace(JOB, **job)
    return Training(job, round_trace(paths).of(job), eta, np.random.default_rng(seed))


class Undecided(PowerLimitOptimizer):
    """Never has an answer."""

    name = "undecided"

    def predict(self, *_):
        return None

    def observe(self, *_):
        pass


def test_a_power_limit_optimizer_without_an_answer():
    """It is named; so are limits that were not measured."""
    with pytest.raises(TuningError, match="power limit from undecided after it observed all"):
        training({8: [4.0]}).choose_limit(Undecided(), 8)
    with pytest.raises(TuningInputError, match=r"got 150 W. Closest: 100, 200\."):
        training({8: [4.0]}).run(8, 150, math.inf, False)
