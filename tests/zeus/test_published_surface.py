"""What the published classes print and show beside their results: `verbose`, data frames, attributes of policies."""

from __future__ import annotations

import logging
import math
from copy import deepcopy

import pandas as pd
import pytest

from bftrainer.errors import TuningInputError
from bftrainer.zeus import (
    BatchSizeOptimizer,
    GaussianTS,
    GTSBatchSizeOptimizer,
    JITPowerLimitOptimizer,
    Job,
    PruningGTSBatchSizeOptimizer,
    Simulator,
    TrainingTrace,
)
from tests.zeus.golden import DATA, frame
from tests.zeus.worlds import JOB, round_trace

TRACE = round_trace({8: [4.0], 16: [5.0]})
SIZES = [8, 16]


def make_simulator(*, verbose):
    """A simulator with the published policies, which are as talkative as it is."""
    policies = PruningGTSBatchSizeOptimizer(seed=1, verbose=verbose), JITPowerLimitOptimizer(verbose)
    return Simulator(TRACE, None, *policies, verbose=verbose)


def test_verbose_prints_to_standard_output(capsys, caplog):
    """Runs and choices are printed after the name of who made them; printed or not, they are DEBUG records."""
    assert not logging.getLogger("bftrainer").isEnabledFor(logging.DEBUG)
    history = make_simulator(verbose=True).simulate_one_job(JOB, 5, 2.0, 0.5)
    printed, errors = capsys.readouterr()
    assert errors == ""
    lines = printed.splitlines()
    assert {line.split("]")[0] for line in lines} == {"[Simulator", "[Pruning GTS BSO", "[JITPLO", "[GaussianTS"}
    runs = [line for line in lines if line.startswith("[Simulator]")]
    assert all(f"batch size {entry.bs}, {entry.pl} W" in run for entry, run in zip(history, runs, strict=True))
    assert any("batch size 16 reached the target" in line for line in lines)
    assert any("batch sizes [8, 16] survived" in line for line in lines)
    with caplog.at_level(logging.DEBUG, "bftrainer.zeus"):
        assert make_simulator(verbose=False).simulate_one_job(JOB, 5, 2.0, 0.5) == history
    assert capsys.readouterr() == ("", "")
    assert {record.levelname for record in caplog.records} == {"DEBUG"}
    assert [line.split("] ", 1)[1] for line in lines] == caplog.messages


def test_verbose_may_be_changed_later(capsys):
    """The attribute is what counts, as published: a simulator and its copies of policies speak up."""
    simulator = make_simulator(verbose=False)
    simulator.verbose = simulator.plo.verbose = True
    simulator.simulate_one_job(JOB, 2, 2.0, 0.5)
    assert {line.split("]")[0] for line in capsys.readouterr().out.splitlines()} == {"[Simulator", "[JITPLO"}


class InTurn(BatchSizeOptimizer):
    """A policy that was written with the published interface: plays batch sizes in turn, and logs that."""

    name = "own"

    def __init__(self, *sizes):
        self.sizes = list(sizes)

    def register_job(self, _, batch_sizes):
        self._log(f"{len(batch_sizes)} batch sizes, 100 % of them")

    def predict(self, _):
        return self.sizes.pop(0)

    def observe(self, job, batch_size, cost, converged=None):
        pass


def test_own_policies(capsys):
    """`_log` prints a policy's name; a bound that allows for no epoch is said so, and makes no entry in the history."""
    trace = round_trace({8: [1.0], 1: [1.0]})
    simulator = Simulator(trace, None, InTurn(8, 1, 8), JITPowerLimitOptimizer(False))
    history = simulator.simulate_one_job(JOB, 2, 1.2, 0.5)
    assert [entry.bs for entry in history] == [8, 8]
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "[own] 2 batch sizes, 100 % of them"
    runs = [line for line in lines if line.startswith("[Simulator]")]
    assert ["cannot run even one epoch" in line for line in runs] == [False, True, False]


def test_df_is_the_joined_table():
    """Of paths, frames and a shared trace: rows, columns, types and bits as pandas has them; one history."""
    paths = DATA / "tiny_train.csv", DATA / "tiny_power.csv"
    train, power = frames = [frame(path) for path in paths]
    wanted = train.merge(power, how="inner")
    wanted["energy_per_epoch"] = wanted.time_per_epoch * wanted.average_power
    policies = PruningGTSBatchSizeOptimizer(verbose=False), JITPowerLimitOptimizer(False)
    histories = []
    for tables in (paths, frames, (TrainingTrace(*paths), None)):
        simulator = Simulator(*tables, *policies, verbose=False)
        pd.testing.assert_frame_equal(simulator.df, wanted)
        histories.append(simulator.simulate_one_job(Job("tiny", "net", "sgd", 0.9, 12, 8), 40, 2.0, 0.5))
    assert histories == [histories[0]] * 3


def test_jobs_pick_their_rows():
    """`filter_df` gives the rows of one dataset, network, optimizer and target, with their places in the table."""
    train = frame(DATA / "tiny_train.csv")
    names = ["dataset", "network", "optimizer", "target_metric"]
    job = Job(*train[names].iloc[0], 10)
    mine = job.filter_df(train)
    pd.testing.assert_frame_equal(mine, train[(train[names] == train[names].iloc[0]).all(axis=1)])
    assert len(train) > len(mine) > 0
    with pytest.raises(TuningInputError, match=r"Job\(.*: .*found no optimizer, target_metric"):
        job.filter_df(train[names[:2]])


def test_bandits_show_their_parameters():
    """Means, precisions and counts by arm are those of the beliefs, and cannot be written past them."""
    bandit = GaussianTS([8, 16], [0.5, 0.25], -10.0, 1.0, seed=7, verbose=False)
    bandit.fit_arm(8, [-4.0, -6.0], reset=False)
    assert (bandit.name, bandit.seed, bandit.prior_mean, bandit.prior_prec) == ("GaussianTS", 7, -10.0, 1.0)
    assert bandit.arm_param_mean == {8: -7.5, 16: -10.0}
    assert bandit.arm_param_prec == {8: 2.0, 16: 1.0}
    assert bandit.arm_reward_prec == {8: 0.5, 16: 0.25}
    assert bandit.arm_num_observations == {8: 2, 16: 0}
    with pytest.raises(TypeError):
        bandit.arm_param_mean[8] = 0.0


def test_policies_show_their_jobs():
    """Managers of all jobs, bandits of those whose pruning is over, rewards by batch size; the best power limits."""
    policy = PruningGTSBatchSizeOptimizer(verbose=False)
    policy.register_job(JOB, SIZES)
    assert (policy.exp_manager[JOB].batch_sizes, policy.mabs) == (SIZES, {})
    for cost in (3.0, 2.0, 4.0, 5.0):
        policy.observe(JOB, policy.predict(JOB), cost, True)
    policy.predict(JOB)
    assert set(policy.mabs) == {JOB}
    assert policy.history == deepcopy(policy).history == {JOB: {8: [-3.0, -5.0], 16: [-2.0, -4.0]}}
    sampling = GTSBatchSizeOptimizer(True, verbose=False)
    sampling.register_job(JOB, [16, 8])
    sampling.observe(JOB, 8, 2.0)
    assert (sampling.mabs[JOB].arms, sampling.batch_sizes) == ([16, 8], {JOB: [16, 8]})
    assert sampling.history == {JOB: {16: [], 8: [-2.0]}}
    limits = JITPowerLimitOptimizer(verbose=False)
    for size, limit, cost in ((8, 250, 3.0), (8, 200, 2.0), (8, 150, 4.0), (16, 250, math.pi)):
        limits.observe(JOB, size, limit, cost)
    assert limits.best_pl == {JOB: {8: 200, 16: 250}}
    assert limits.best_cost == {JOB: {8: 2.0, 16: math.pi}}
