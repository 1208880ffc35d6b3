"""Simulations of single jobs and of groups: by hand, and what they refuse."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bftrainer.errors import TuningError, TuningInputError
from bftrainer.zeus import (
    BatchSizeOptimizer,
    Corrections,
    Group,
    GroupJob,
    HistoryEntry,
    JITPowerLimitOptimizer,
    PruningGTSBatchSizeOptimizer,
    SimulationObserver,
    Simulator,
)
from tests.zeus.golden import DATA, frame
from tests.zeus.worlds import NEVER, world


def simulator(made, policy=None, **options):
    """A simulator of a world with the published policies."""
    concurrency = options.pop("concurrency", False)
    policy = policy or PruningGTSBatchSizeOptimizer(concurrency=concurrency, verbose=False)
    return Simulator(made.trace(), None, policy, JITPowerLimitOptimizer(False), verbose=False, **options)


class Scripted(BatchSizeOptimizer):
    """Plays given batch sizes in turn, the last one for ever, and writes down what it is told."""

    name = "scripted"

    def __init__(self, *sizes):
        self.sizes, self.told = list(sizes), []

    def register_job(self, *_):
        pass

    def predict(self, _):
        return self.sizes.pop(0) if len(self.sizes) > 1 else self.sizes[0]

    def observe(self, _, batch_size, cost, converged=None):
        self.told.append((batch_size, cost, converged))


class Runs(SimulationObserver):
    """Keeps the runs."""

    def __init__(self):
        self.runs = []

    def ran(self, run):
        self.runs.append(run)


def test_recurrences_by_hand():
    """Pruning down and up, twice, in a world of round figures: eta 1, so 100 W; the first use of a size profiles."""
    made = world({8: [4.0], 16: [4.0], 32: [NEVER]}, default_bs=16)
    history = simulator(made).simulate_one_job(made.job, 5, math.inf, 1.0)
    # An epoch at batch size 16 takes 10 s and 750 J at 100 W; the profiling one 8.125 s and 843.75 J.
    assert history[0] == HistoryEntry(16, 100, 843.75 + 3 * 750.0, True, 8.125 + 30.0)
    assert [(entry.bs, entry.reached) for entry in history] == [
        (16, True),
        (8, True),
        (32, False),  # the next batch size is tried in the same recurrence
        (16, True),  # the second round starts at the cheaper one
        (8, True),
        (16, True),  # and the bandit plays it
    ]
    assert history[3] == HistoryEntry(16, 100, 3000.0, True, 40.0)


def test_costs_as_the_server_counts_them():
    """With `server_costs` a run beyond its bound has not converged, and bounds follow the cheapest run alone."""
    made = world({8: [4.0], 16: [8.0]}, default_bs=8)
    sizes = (8, 16, 8, 16, 8)
    # The bound, 10,212.5, allows for the 8 epochs that batch size 16 needs, but not for what profiling adds to them.
    published = simulator(made, Scripted(*sizes)).job_runs(made.job, 2, 0.95, 0.0)
    assert [(run.cost_j, run.reached) for run in published] == [(10_750.0, True), (10_375.0, True)]
    seen = Runs()
    corrected = simulator(made, Scripted(*sizes), corrections=Corrections(server_costs=True), observers=[seen])
    with pytest.raises(TuningError, match="Recurrence 3 did not reach the target metric in 20 tries"):
        corrected.job_runs(made.job, 3, 0.95, 0.0)
    runs = seen.runs
    assert [(run.recurrence, run.cost_j, run.reached) for run in runs[:3]] == [
        (0, 10_750.0, True),
        (1, 10_375.0, False),
        (1, 10_000.0, True),
    ]
    # 0.95 of 10,000, the last run's cost without its failed try, allows for 7 epochs.
    assert (runs[3].epochs, runs[3].reached) == (7, False)


def test_a_run_that_never_starts():
    """It is observed at 100 times the bound, books nothing, and counts as a try."""
    made = world({8: [4.0], 1: [4.0]}, default_bs=8)
    policy = Scripted(8, 1)
    with pytest.raises(TuningError, match="Recurrence 2 did not reach the target metric in 20 tries") as failed:
        # An epoch at batch size 1 costs 20,000, more than half of what batch size 8 does.
        simulator(made, policy).simulate_one_job(made.job, 2, 0.5, 0.0)
    assert len(failed.value.history) == 1
    runs = Runs()
    with pytest.raises(TuningError):
        simulator(made, policy, observers=[runs]).simulate_one_job(made.job, 2, 0.5, 0.0)
    assert [run.started for run in runs.runs] == [True] + [False] * 20
    assert {run.cost_j for run in runs.runs[1:]} == {100 * 0.5 * 10_750.0}


def test_published_call_order():
    """Paths or frames, and positional arguments in the published order; entries hold plain Python values."""
    from bftrainer.zeus import Job

    job = Job("tiny", "net", "sgd", 0.9, 12, 8)
    policies = (PruningGTSBatchSizeOptimizer(), JITPowerLimitOptimizer())
    paths = (DATA / "tiny_train.csv", DATA / "tiny_power.csv")
    histories = [
        Simulator(*tables, *policies, 1, False).simulate_one_job(job, 10, 2.0, 0.5)
        for tables in (paths, map(str, paths), map(frame, paths))
    ]
    assert histories[0] == histories[1] == histories[2]
    for entry in histories[0]:
        assert [type(getattr(entry, name)) for name in ("bs", "pl", "energy", "reached", "time")] == [
            int,
            int,
            float,
            bool,
            float,
        ]
    assert eval(repr(histories[0]), {"HistoryEntry": HistoryEntry}) == histories[0]


@pytest.mark.parametrize(
    ("changes", "knobs", "message"),
    [
        ({"default_bs": None}, (2.0, 0.5), r"Expected a default batch size, got none. Closest: 8, 16\."),
        ({"default_bs": 12}, (2.0, 0.5), r"one of the job's batch sizes, got 12. Closest: 8, 16\."),
        ({"dataset": "e"}, (2.0, 0.5), r"e,n,sgd\. Did you mean 'd,n,sgd'\?"),
        ({"target_metric": 0.8}, (2.0, 0.5), r"target metric 0.8. Closest: 0.9\."),
        ({}, (0.0, 0.5), "beta above 0"),
        ({}, (2.0, 1.1), "eta from 0"),
        ({}, (math.nan, 0.5), "beta above 0"),
    ],
)
def test_what_cannot_be_simulated(changes, knobs, message):
    """Said before anything runs, for jobs and for groups, with the closest values there are."""
    made = world({8: [4.0], 16: [4.0]})
    job = replace(made.job, **changes)
    with pytest.raises(TuningInputError, match=message):
        simulator(made).simulate_one_job(job, 3, *knobs)
    with pytest.raises(TuningInputError, match=message):
        simulator(made).simulate_one_alibaba_group(job, Group("g", "d", (GroupJob(0.0, 1.0, 1.0),)), *knobs)


def test_numbers_out_of_range():
    """A negative number of recurrences, seed or number of retries is refused."""
    made = world({8: [4.0]})
    with pytest.raises(TuningInputError, match="0 or more recurrences, got -1"):
        simulator(made).simulate_one_job(made.job, -1, 2.0, 0.5)
    with pytest.raises(TuningInputError, match="seed of 0 or more, got -5"):
        simulator(made, seed=-5)
    with pytest.raises(TuningInputError, match="0 or more retries of a group's job, got -1"):
        simulator(made, max_group_retries=-1)


def test_a_policy_that_makes_up_a_batch_size():
    """The error names the closest ones, and holds the runs before it."""
    made = world({8: [4.0], 16: [4.0]})
    with pytest.raises(TuningInputError, match=r"got 12. Closest: 8, 16\.") as failed:
        simulator(made, Scripted(8, 12)).simulate_one_job(made.job, 3, 2.0, 0.5)
    assert [entry.bs for entry in failed.value.history] == [8]


def test_a_group_without_concurrency():
    """A policy that is not made for runs that overlap refuses them, and the error holds the runs before it."""
    made = world({8: [4.0], 16: [4.0]})
    jobs = Group("g", "d", (GroupJob(0.0, 10.0, 1.0), GroupJob(5.0, 12.0, 1.0)))
    with pytest.raises(TuningError, match="size 8 was reported") as failed:
        simulator(made).simulate_one_alibaba_group(made.job, jobs, 2.0, 0.5)
    assert [entry.bs for entry in failed.value.history] == [8]
