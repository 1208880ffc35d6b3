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
from tests.zeus.fingerprint import as_pandas_reads
from tests.zeus.golden import DATA, frame
from tests.zeus.worlds import world

MADE = world({8: [4.0], 16: [5.0]})
JOB = MADE.job
SIZES = [8, 16]


def simulated(*, verbose):
    """Five recurrences with the published policies, which are as talkative as the simulator."""
    policies = PruningGTSBatchSizeOptimizer(seed=1, verbose=verbose), JITPowerLimitOptimizer(verbose)
    simulator = Simulator(MADE.trace(), None, *policies, verbose=verbose)
    return simulator.simulate_one_job(JOB, 5, 2.0, 0.5)


def test_verbose_prints_to_standard_output(capsys):
    """Where no logging is set up, runs and choices are read on standard output, after the name of who made them."""
    assert not logging.getLogger("bftrainer").isEnabledFor(logging.DEBUG)
    history = simulated(verbose=True)
    printed, errors = capsys.readouterr()
    assert errors == ""
    lines = printed.splitlines()
    assert {line.split("]")[0] for line in lines} == {"[Simulator", "[Pruning GTS BSO", "[JITPLO", "[GaussianTS"}
    runs = [line for line in lines if line.startswith("[Simulator]")]
    assert len(runs) == len(history)
    assert all(f"batch size {entry.bs}, {entry.pl} W" in run for entry, run in zip(history, runs, strict=True))
    assert any("batch size 16 reached the target" in line for line in lines)
    assert any("batch sizes [8, 16] survived" in line for line in lines)


def test_without_verbose_nothing_is_printed_and_all_is_logged(capsys, caplog):
    """The same choices are records of level DEBUG, whether they are printed or not; results are the same."""
    with caplog.at_level(logging.DEBUG, "bftrainer.zeus"):
        quiet = simulated(verbose=False)
        unprinted = list(caplog.messages)
        assert capsys.readouterr() == ("", "")
        caplog.clear()
        assert simulated(verbose=True) == quiet
    assert {record.levelname for record in caplog.records} == {"DEBUG"}
    assert caplog.messages == unprinted
    assert [line.split("] ", 1)[1] for line in capsys.readouterr().out.splitlines()] == unprinted


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


def test_a_run_that_never_starts_is_told_of(capsys):
    """A bound that allows for no epoch is said so, as published; such a run has no entry in the history."""
    made = world({8: [1.0], 1: [1.0]}, default_bs=8)
    simulator = Simulator(made.trace(), None, InTurn(8, 1, 8), JITPowerLimitOptimizer(False))
    history = simulator.simulate_one_job(made.job, 2, 1.2, 0.5)
    assert [entry.bs for entry in history] == [8, 8]
    runs = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[Simulator]")]
    assert ["cannot run even one epoch" in line for line in runs] == [False, True, False]


def test_own_policies_may_log(capsys):
    """`_log` of the published interfaces prints the policy's name and its message."""
    InTurn(8).register_job(JOB, SIZES)
    assert capsys.readouterr().out == "[own] 2 batch sizes, 100 % of them\n"
    JITPowerLimitOptimizer()._log("100 %")
    assert capsys.readouterr().out == "[JITPLO] 100 %\n"


def test_verbose_may_be_changed_later(capsys):
    """The attribute is what counts, as published: a simulator and its copies of policies fall silent and speak up."""
    policies = PruningGTSBatchSizeOptimizer(verbose=False), JITPowerLimitOptimizer(False)
    simulator = Simulator(MADE.trace(), None, *policies)
    simulator.verbose = False
    simulator.simulate_one_job(JOB, 2, 2.0, 0.5)
    assert capsys.readouterr().out == ""
    simulator.verbose = simulator.plo.verbose = True
    simulator.simulate_one_job(JOB, 2, 2.0, 0.5)
    out = capsys.readouterr().out
    assert "[Simulator]" in out
    assert "[JITPLO]" in out


def as_pandas_joins(train, power):
    """The published frame: both tables joined on what they have in common, with the energy of an epoch."""
    joined = train.merge(power, how="inner")
    joined["energy_per_epoch"] = joined.time_per_epoch * joined.average_power
    return joined


def test_df_is_the_joined_table():
    """Of paths, frames and a trace that is shared: rows, columns, types and bits as pandas reads and joins them."""
    paths = DATA / "tiny_train.csv", DATA / "tiny_power.csv"
    frames = [as_pandas_reads(path) for path in paths]
    wanted = as_pandas_joins(*frames)
    policies = PruningGTSBatchSizeOptimizer(verbose=False), JITPowerLimitOptimizer(False)
    for tables in (paths, frames, (TrainingTrace(*paths), None)):
        simulator = Simulator(*tables, *policies, verbose=False)
        pd.testing.assert_frame_equal(simulator.df, wanted)
        assert simulator.df is simulator.df


def test_jobs_pick_their_rows():
    """`filter_df` gives the rows of one dataset, network, optimizer and target, with their places in the table."""
    train = frame(DATA / "tiny_train.csv")
    first = train.iloc[0]
    job = Job(first.dataset, first.network, first.optimizer, first.target_metric, 10)
    mine = job.filter_df(train)
    same = [
        (row.dataset, row.network, row.optimizer, row.target_metric)
        == (job.dataset, job.network, job.optimizer, job.target_metric)
        for row in train.itertuples()
    ]
    pd.testing.assert_frame_equal(mine, train[same])
    assert len(mine) > 0
    assert len(Job("nobody's", "n", "sgd", 0.5, 10).filter_df(train)) == 0
    with pytest.raises(TuningInputError, match=r"Job\(.*: .*found no optimizer, target_metric"):
        job.filter_df(train[["dataset", "network"]])


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


def test_the_pruning_policy_shows_its_jobs():
    """Managers of all jobs, bandits of those whose pruning is over, and rewards by batch size."""
    policy = PruningGTSBatchSizeOptimizer(verbose=False)
    policy.register_job(JOB, SIZES)
    assert policy.exp_manager[JOB].batch_sizes == SIZES
    assert policy.mabs == {}
    for cost in (3.0, 2.0, 4.0, 5.0):
        policy.observe(JOB, policy.predict(JOB), cost, True)
    played = policy.predict(JOB)
    assert set(policy.mabs) == {JOB}
    assert policy.history == {JOB: {8: [-3.0, -5.0], 16: [-2.0, -4.0]}}
    policy.observe(JOB, played, 1.0, True)
    assert policy.history[JOB][played][-1] == -1.0
    assert deepcopy(policy).history == policy.history


def test_sampling_alone_shows_its_jobs():
    """Bandits, batch sizes in the order given, and rewards by batch size."""
    policy = GTSBatchSizeOptimizer(True, verbose=False)
    policy.register_job(JOB, [16, 8])
    policy.observe(JOB, 8, 2.0)
    assert policy.mabs[JOB].arms == [16, 8]
    assert policy.batch_sizes == {JOB: [16, 8]}
    assert policy.history == {JOB: {16: [], 8: [-2.0]}}


def test_the_power_policy_shows_the_best():
    """The best limit so far and its cost, by job and batch size."""
    policy = JITPowerLimitOptimizer(verbose=False)
    assert (policy.best_pl, policy.best_cost) == ({}, {})
    for limit, cost in ((250, 3.0), (200, 2.0), (150, 4.0)):
        policy.observe(JOB, 8, limit, cost)
    policy.observe(JOB, 16, 250, math.pi)
    assert policy.best_pl == {JOB: {8: 200, 16: 250}}
    assert policy.best_cost == {JOB: {8: 2.0, 16: math.pi}}
