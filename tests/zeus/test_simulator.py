"""Simulations and their runs: what they refuse, and what they print and show: `verbose`, data frames, attributes."""

import logging
import math
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bftrainer import zeus
from bftrainer.errors import TuningError, TuningInputError
from bftrainer.zeus.simulation.simulator import Training
from tests.zeus.golden import DATA, frame, units
from tests.zeus.worlds import JOB, round_trace


def simulator(trace, policy=None, **options):
    """A simulator of a trace with the published policies."""
    policy = policy or zeus.PruningGTSBatchSizeOptimizer(verbose=False)
    return zeus.Simulator(trace, None, policy, zeus.JITPowerLimitOptimizer(False), verbose=False, **options)


class Scripted(zeus.BatchSizeOptimizer):
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


class Runs(zeus.SimulationObserver):
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
    corrected = simulator(trace, Scripted(*sizes), corrections=zeus.Corrections(server_costs=True), observers=[seen])
    with pytest.raises(TuningError, match="Recurrence 3 did not reach the target metric in 20 tries"):
        corrected.job_runs(JOB, 3, 0.95, 0.0)
    found = [(run.recurrence, run.cost_j, run.reached) for run in seen.runs[:3]]
    assert found == [(0, 10_750.0, True), (1, 10_375.0, False), (1, 10_000.0, True)]
    # 0.95 of 10,000, the last run's cost without its failed try, allows for 7 epochs.
    assert (seen.runs[3].epochs, seen.runs[3].reached) == (7, False)


def test_published_call_order():
    """Positional arguments in the published order; entries hold plain Python values."""
    paths = (str(DATA / f"tiny_{name}.csv") for name in ("train", "power"))
    simulated = zeus.Simulator(*paths, zeus.PruningGTSBatchSizeOptimizer(), zeus.JITPowerLimitOptimizer(), 1, False)
    first = simulated.simulate_one_job(zeus.Job("tiny", "net", "sgd", 0.9, 12, 8), 10, 2.0, 0.5)
    plain = [int, int, float, bool, float]
    assert all([type(getattr(entry, n)) for n in ("bs", "pl", "energy", "reached", "time")] == plain for entry in first)
    assert eval(repr(first), {"HistoryEntry": zeus.HistoryEntry}) == first


def test_what_cannot_be_simulated():
    """Said before anything runs, for jobs and for groups, with the closest values there are."""
    trace, group = round_trace({8: [4.0], 16: [4.0]}), zeus.Group("g", "d", (zeus.GroupJob(0.0, 1.0, 1.0),))
    for changes, knobs, said in (
        ({"default_bs": None}, (2.0, 0.5), r"Expected a default batch size, got none. Closest: 8, 16\."),
        ({"default_bs": 12}, (2.0, 0.5), r"one of the job's batch sizes, got 12. Closest: 8, 16\."),
        ({"dataset": "made-op"}, (2.0, 0.5), r"Did you mean 'made-up,net,sgd'\?"),
        ({}, (2.0, 1.1), "eta from 0"),
    ):
        job = replace(JOB, **changes)
        with pytest.raises(TuningInputError, match=said):
            simulator(trace).simulate_one_job(job, 3, *knobs)
        with pytest.raises(TuningInputError, match=said):
            simulator(trace).simulate_one_alibaba_group(job, group, *knobs)
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
    jobs = zeus.Group("g", "d", (zeus.GroupJob(0.0, 10.0, 1.0), zeus.GroupJob(5.0, 12.0, 1.0)))
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


class Undecided(zeus.PowerLimitOptimizer):
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


# --- what the published classes print and show beside their results ---------------------------------------------------

TRACE = round_trace({8: [4.0], 16: [5.0]})
SIZES = [8, 16]


def make_simulator(*, verbose):
    """A simulator with the published policies, which are as talkative as it is."""
    policies = zeus.PruningGTSBatchSizeOptimizer(seed=1, verbose=verbose), zeus.JITPowerLimitOptimizer(verbose)
    return zeus.Simulator(TRACE, None, *policies, verbose=verbose)


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
    # The attribute is what counts, as published.
    simulator = make_simulator(verbose=False)
    simulator.verbose = simulator.plo.verbose = True
    simulator.simulate_one_job(JOB, 2, 2.0, 0.5)
    assert {line.split("]")[0] for line in capsys.readouterr().out.splitlines()} == {"[Simulator", "[JITPLO"}


class Talking(Scripted):
    """One that logs what it is told."""

    def register_job(self, _, batch_sizes):
        self._log(f"{len(batch_sizes)} batch sizes, 100 % of them")


def test_own_policies(capsys):
    """`_log` prints a policy's name; a bound that allows for no epoch is said so, and makes no entry in the history."""
    trace = round_trace({8: [1.0], 1: [1.0]})
    simulator = zeus.Simulator(trace, None, Talking(8, 1, 8), zeus.JITPowerLimitOptimizer(False))
    history = simulator.simulate_one_job(JOB, 2, 1.2, 0.5)
    assert [entry.bs for entry in history] == [8, 8]
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "[scripted] 2 batch sizes, 100 % of them"
    runs = [line for line in lines if line.startswith("[Simulator]")]
    assert ["cannot run even one epoch" in line for line in runs] == [False, True, False]


def test_df_is_the_joined_table():
    """Of paths, frames and a shared trace: rows, columns, types and bits as pandas has them; one history."""
    paths = DATA / "tiny_train.csv", DATA / "tiny_power.csv"
    train, power = frames = [frame(path) for path in paths]
    wanted = train.merge(power, how="inner")
    wanted["energy_per_epoch"] = wanted.time_per_epoch * wanted.average_power
    policies = zeus.PruningGTSBatchSizeOptimizer(verbose=False), zeus.JITPowerLimitOptimizer(False)
    histories = []
    for tables in (paths, frames, (zeus.TrainingTrace(*paths), None)):
        simulator = zeus.Simulator(*tables, *policies, verbose=False)
        pd.testing.assert_frame_equal(simulator.df, wanted)
        histories.append(simulator.simulate_one_job(zeus.Job("tiny", "net", "sgd", 0.9, 12, 8), 40, 2.0, 0.5))
    assert histories == [histories[0]] * 3


def test_jobs_pick_their_rows():
    """`filter_df` gives the rows of one dataset, network, optimizer and target, with their places in the table."""
    train = frame(DATA / "tiny_train.csv")
    names = ["dataset", "network", "optimizer", "target_metric"]
    job = zeus.Job(*train[names].iloc[0], 10)
    mine = job.filter_df(train)
    pd.testing.assert_frame_equal(mine, train[(train[names] == train[names].iloc[0]).all(axis=1)])
    assert len(train) > len(mine) > 0
    with pytest.raises(TuningInputError, match=r"Job\(.*: .*found no optimizer, target_metric"):
        job.filter_df(train[names[:2]])


def test_bandits_show_their_parameters():
    """Means, precisions and counts by arm are those of the beliefs, and cannot be written past them."""
    bandit = zeus.GaussianTS([8, 16], [0.5, 0.25], -10.0, 1.0, seed=7, verbose=False)
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
    policy = zeus.PruningGTSBatchSizeOptimizer(verbose=False)
    policy.register_job(JOB, SIZES)
    assert (policy.exp_manager[JOB].batch_sizes, policy.mabs) == (SIZES, {})
    for cost in (3.0, 2.0, 4.0, 5.0):
        policy.observe(JOB, policy.predict(JOB), cost, True)
    policy.predict(JOB)
    assert set(policy.mabs) == {JOB}
    assert policy.history == deepcopy(policy).history == {JOB: {8: [-3.0, -5.0], 16: [-2.0, -4.0]}}
    sampling = zeus.GTSBatchSizeOptimizer(True, verbose=False)
    sampling.register_job(JOB, [16, 8])
    sampling.observe(JOB, 8, 2.0)
    assert (sampling.mabs[JOB].arms, sampling.batch_sizes) == ([16, 8], {JOB: [16, 8]})
    assert sampling.history == {JOB: {16: [], 8: [-2.0]}}
    limits = zeus.JITPowerLimitOptimizer(verbose=False)
    for size, limit, cost in ((8, 250, 3.0), (8, 200, 2.0), (8, 150, 4.0), (16, 250, math.pi)):
        limits.observe(JOB, size, limit, cost)
    assert limits.best_pl == {JOB: {8: 200, 16: 250}}
    assert limits.best_cost == {JOB: {8: 2.0, 16: math.pi}}
