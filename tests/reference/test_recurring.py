"""On random traces, seeds and knobs, ours does what a second simulator does that was written from the description."""

from __future__ import annotations

import math
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import BftrainerError
from bftrainer.zeus import Corrections, Group, JITPowerLimitOptimizer, Job
from tests.examples import examples
from tests.zeus.golden import Watched, WatchedSampling, WatchedSimulator
from tests.zeus.reference import Pruning, Reference, Sampling
from tests.zeus.worlds import NEVER, World, betas, etas, groups, seeds, worlds

counts = st.sampled_from([0, 1, 10, 40, 80])
windows = st.sampled_from([0, 0, 2, 3, 7])
priors = st.one_of(st.just((0.0, 0.0)), st.tuples(st.floats(-1e5, 0.0), st.floats(1e-10, 1.0)))
precisions = st.one_of(st.none(), st.floats(1e-12, 1.0))


def compare(world, beta, eta, seed, watched, policy, jobs, corrections=None):
    """Both end alike: history, exception, what the policy was asked and told, and the generators' states.

    `jobs` are a group, or the number of recurrences.
    """
    corrections, limits = corrections or Corrections(), JITPowerLimitOptimizer(False)
    simulator = WatchedSimulator(world.trace(), None, watched, limits, seed, verbose=False, corrections=corrections)
    corrected = (corrections.group_never_ran_cost, corrections.group_min_cost_accumulates)
    reference = Reference(world, policy, beta, eta, seed, *corrected)
    is_group = isinstance(jobs, Group)
    simulate = simulator.simulate_one_alibaba_group if is_group else simulator.simulate_one_job
    error = failure = None
    try:
        history = simulate(world.job, jobs, beta, eta)
    except BftrainerError as refusal:
        error, history = refusal, refusal.history
    try:
        reference.group(list(jobs.jobs)) if is_group else reference.job(jobs)
    except (ValueError, RuntimeError) as refusal:
        failure = refusal
    assert (error is None) == (failure is None), (error, failure)
    assert failure is None or isinstance(error, type(failure)), (error, failure)
    ours = simulator.tuning.batch_sizes
    assert ours.predictions == reference.predictions
    assert [tuple(told) for told in ours.observations] == reference.observations
    assert [astuple(entry) for entry in history] == reference.history
    assert simulator.tuning.training.rng.bit_generator.state == reference.rng.bit_generator.state
    bandit, drawn = ours.mabs.get(world.job), reference.policy.rng
    assert (bandit is None) == (drawn is None)
    assert bandit is None or bandit.rng.bit_generator.state == drawn.bit_generator.state


RECURRENCES = (worlds, betas, etas, seeds, seeds, windows, priors, counts)
SAMPLING = (worlds, betas, etas, seeds, seeds, precisions, priors, st.integers(1, 3))
GROUPS = (worlds, betas, etas, seeds, seeds, windows, groups, st.builds(Corrections, st.booleans(), st.booleans()))


def recurrences(world, beta, eta, seed, policy_seed, window, prior, count):
    """Recurrences of one job, pruned and then sampled."""
    watched = Watched(window_size=window, prior_mean=prior[0], prior_precision=prior[1], seed=policy_seed)
    policy = Pruning(world.job.default_bs, world.sizes(), policy_seed, window, prior)
    compare(world, beta, eta, seed, watched, policy, count)


def sampling(world, beta, eta, seed, policy_seed, precision, prior, explorations):
    """Recurrences of one job, sampled from the start, with a reward precision that is learned or given."""
    watched = WatchedSampling(precision is None, precision or 0.0, *prior, explorations, policy_seed)
    compare(world, beta, eta, seed, watched, Sampling(world.sizes(), policy_seed, precision, explorations, prior), 30)


def overlapping(world, beta, eta, seed, policy_seed, window, jobs, corrections):
    """Jobs of a group, corrected and not."""
    watched = Watched(concurrency=True, window_size=window, seed=policy_seed)
    policy = Pruning(world.job.default_bs, world.sizes(), policy_seed, window)
    compare(world, beta, eta, seed, watched, policy, jobs, corrections)


@pytest.mark.parametrize("count", [100, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("check", "inputs"),
    [(recurrences, RECURRENCES), (sampling, SAMPLING), (overlapping, GROUPS)],
    ids=["recurrences", "sampling", "groups"],
)
def test_ours_is_the_reference(check, inputs, count):
    """Choices, exceptions, draws, energies, times and costs are equal, to the bit."""
    examples(count)(given(*inputs)(check))()


def test_the_reference_itself():
    """By hand: one batch size, two power limits; the first run profiles, the second is bound by 1.5 times its cost."""
    job = Job("d", "n", "sgd", 0.9, 12, 8)
    powers = ((8, 100, 2.0, 50.0), (8, 200, 1.0, 100.0))
    reference = Reference(World(job, ((8, 2.0),), powers), Pruning(8, [8], 1), 1.5, 0.5, 0)
    reference.job(2)
    # Both limits take 100 J an epoch; 200 W takes 1 s rather than 2, and the profiling epoch 1.5 s.
    assert reference.history == [(8, 200, 200.0, True, 2.5), (8, 200, 200.0, True, 2.0)]
    assert [cost for _, cost, _ in reference.observations] == [350.0, 300.0]
    hopeless = Reference(World(job, ((8, NEVER),), powers), Pruning(8, [8], 1), math.inf, 0.5, 0)
    with pytest.raises(RuntimeError, match="default did not converge"):
        hopeless.job(1)
    # 12 epochs at 200 W, of which the first profiles.
    assert hopeless.history == [(8, 200, 1200.0, False, 12.5)]
