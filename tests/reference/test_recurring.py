"""On random traces, seeds and knobs, ours does what a second simulator does that was written from the description."""

import math
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import BftrainerError
from bftrainer.zeus import Corrections, Group, JITPowerLimitOptimizer, Job
from tests.examples import examples
from tests.reference.recurring import Pruning, Reference, Sampling
from tests.zeus.golden import Watched, WatchedSampling, WatchedSimulator
from tests.zeus.worlds import NEVER, World, betas, groups, seeds

amounts = st.floats(0.5, 2000.0, allow_nan=False)
etas = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.0, 1.0))
counts = st.sampled_from([0, 1, 10, 40, 80])
windows = st.sampled_from([0, 0, 2, 3, 7])
priors = st.one_of(st.just((0.0, 0.0)), st.tuples(st.floats(-1e5, 0.0), st.floats(1e-10, 1.0)))
precisions = st.one_of(st.none(), st.floats(1e-12, 1.0))


@st.composite
def odd_worlds(draw: st.DrawFn) -> World:
    """One to six batch sizes with one to four runs each, one to four power limits, all of them anything."""
    sizes = sorted(draw(st.sets(st.integers(1, 4096), min_size=1, max_size=6)))
    epochs = st.one_of(st.integers(1, 15).map(float), st.just(NEVER))
    runs = [(size, each) for size in sizes for each in draw(st.lists(epochs, min_size=1, max_size=4))]
    powers = []
    for size in sizes:
        limits = draw(st.permutations(range(50, 50 * draw(st.integers(1, 4)) + 50, 50)))
        powers += [(size, limit, draw(amounts), draw(amounts)) for limit in limits]
    job = Job("d", "n", "sgd", 0.9, draw(st.integers(3, 15)), draw(st.sampled_from(sizes)))
    other = draw(st.one_of(st.none(), st.integers(10, 1000)))
    return World(job, tuple(draw(st.permutations(runs))), tuple(draw(st.permutations(powers))), other)


def usual_world(seed: int) -> World:
    """Batch sizes that mostly reach the target, the default one always, at costs that are not far apart."""
    rng = np.random.default_rng(seed)
    sizes = [8 * 2**power for power in range(rng.integers(2, 7))]
    default = int(rng.choice(sizes))
    runs, powers = [], []
    for size in sizes:
        middle = rng.uniform(4, 9)
        for _ in range(rng.integers(1, 6)):
            missed = size != default and rng.random() < 0.08
            runs.append((size, NEVER if missed else float(rng.integers(round(middle), round(1.6 * middle) + 1))))
        time, power = rng.uniform(0.7, 1.3), rng.uniform(100, 160)
        powers += [
            (size, limit, time * (250 / limit) ** 0.4, power * (limit / 250) ** 0.6) for limit in (100, 175, 250)
        ]
    rng.shuffle(runs)
    return World(Job("d", "n", "sgd", 0.9, 16, default), tuple(runs), tuple(powers), 300)


worlds = st.one_of(odd_worlds(), seeds.map(usual_world), seeds.map(usual_world))


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
