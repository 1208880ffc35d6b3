"""Simulations of single jobs and of groups, and their runs: by hand, and what they refuse."""

from __future__ import annotations

import math
from contextlib import suppress
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
from tests.zeus.golden import DATA, frame, units
from tests.zeus.worlds import JOB, NEVER, round_trace


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


def test_recurrences_by_hand():
    """Pruning down and up, twice, in a world of round figures: eta 1, so 100 W; the first use of a size profiles."""
    trace = round_trace({8: [4.0], 16: [4.0], 32: [NEVER]})
    history = simulator(trace).simulate_one_job(replace(JOB, default_bs=16), 5, math.inf, 1.0)
    # An epoch at batch size 16 takes 10 s and 750 J at 100 W; the profiling one 8.125 s and 843.75 J.
    assert history[0] == HistoryEntry(16, 100, 843.75 + 3 * 750.0, True, 8.125 + 30.0)
    # The next batch size is tried in the same recurrence; the second round starts at the cheaper one.
    order = [(16, True), (8, True), (32, False), (16, True), (8, True), (16, True)]
    assert [(entry.bs, entry.reached) for entry in history] == order
    assert history[3] == HistoryEntry(16, 100, 3000.0, True, 40.0)


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


def test_a_run_that_never_starts():
    """It is observed at 100 times the bound, books nothing, and counts as a try."""
    trace, seen = round_trace({8: [4.0], 1: [4.0]}), Runs()
    with pytest.raises(TuningError, match="Recurrence 2 did not reach the target metric in 20 tries") as failed:
        # An epoch at batch size 1 costs 20,000, more than half of what batch size 8 does.
        simulator(trace, Scripted(8, 1), observers=[seen]).simulate_one_job(JOB, 2, 0.5, 0.0)
    assert len(failed.value.history) == 1
    assert [run.started for run in seen.runs] == [True] + [False] * 20
    assert {run.cost_j for run in seen.runs[1:]} == {100 * 0.5 * 10_750.0}


@pytest.mark.parametrize(
    ("corrections", "first_costs"),
    [
        (Corrections(), [10_750.0, 0.0]),
        (Corrections(group_never_ran_cost=True), [10_750.0, 100 * 0.5 * 10_750.0]),
    ],
)
def test_a_groups_job_that_never_starts(corrections, first_costs):
    """It is observed at 0, as published, or at 100 times the bound, and tried again as often as is allowed."""
    jobs, seen = Group("g", "d", (GroupJob(0.0, 1.0, 1.0), GroupJob(5.0, 6.0, 1.0))), Runs()
    trace = round_trace({8: [4.0], 1: [4.0]})
    made = simulator(trace, Scripted(8, 1), observers=[seen], corrections=corrections, max_group_retries=3)
    with pytest.raises(TuningError):
        made.simulate_one_alibaba_group(JOB, jobs, 0.5, 0.0)
    assert [run.cost_j for run in seen.runs][:2] == first_costs


@pytest.mark.parametrize("accumulates", [False, True])
def test_the_bound_of_a_groups_jobs(accumulates):
    """A retry's cost alone bounds later jobs, as published, or that of all its tries: 5,375, or 6,437.5 more."""
    jobs, seen = Group("g", "d", tuple(GroupJob(10.0 * n, 10.0 * n + 1.0, 1.0) for n in range(3))), Runs()
    corrections = Corrections(group_min_cost_accumulates=accumulates)
    trace = round_trace({8: [4.0], 16: [4.0], 32: [NEVER]})
    made = simulator(trace, Scripted(8, 32, 16, 8), observers=[seen], corrections=corrections, max_group_retries=3)
    with suppress(TuningError):
        made.simulate_one_alibaba_group(JOB, jobs, 1.0, 0.0)
    assert [run.cost_j for run in seen.runs[:3]] == [10_750.0, 6_437.5, 5_375.0]
    # Two epochs of the four that batch size 8 needs cost 5,000.
    assert [run.reached for run in seen.runs[:4]] == [True, False, True, accumulates]


def test_published_call_order():
    """Paths or frames, and positional arguments in the published order; entries hold plain Python values."""
    job = Job("tiny", "net", "sgd", 0.9, 12, 8)
    policies = (PruningGTSBatchSizeOptimizer(), JITPowerLimitOptimizer())
    paths = (DATA / "tiny_train.csv", DATA / "tiny_power.csv")
    first, *others = [
        Simulator(*tables, *policies, 1, False).simulate_one_job(job, 10, 2.0, 0.5)
        for tables in (paths, map(str, paths), map(frame, paths))
    ]
    assert others == [first, first]
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


def test_numbers_out_of_range():
    """A negative number of recurrences, seed or number of retries is refused."""
    trace = round_trace({8: [4.0]})
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
    assert [runs.choose_limit(optimizer, size) for size in (8, 8, 16)] == [(limit, True), (limit, False), (limit, True)]


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
