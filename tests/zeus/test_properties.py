"""What holds in every simulation, whatever the traces, the knobs and the seeds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bftrainer.errors import BftrainerError
from bftrainer.zeus import (
    BatchSizeOptimizer,
    GTSBatchSizeOptimizer,
    JITPowerLimitOptimizer,
    PruningGTSBatchSizeOptimizer,
    Simulator,
)
from bftrainer.zeus.policies.policy_registry import (
    PolicyContext,
    batch_size_optimizer,
)
from tests.examples import examples
from tests.shipped import shipped
from tests.zeus.traced import state_text
from tests.zeus.worlds import betas, etas, groups, seeds, worlds

many = examples(40)
OPTIONS = {
    "zeus, window": lambda seed: PruningGTSBatchSizeOptimizer(0.0, 0.0, 3, True, seed, False),
    "zeus, prior": lambda seed: PruningGTSBatchSizeOptimizer(-500.0, 1e-4, 0, True, seed, False),
    "gts, no precision": lambda seed: GTSBatchSizeOptimizer(False, seed=seed, verbose=False),
    "gts, certain": lambda seed: GTSBatchSizeOptimizer(False, math.inf, seed=seed, verbose=False),
    "gts, given precision": lambda seed: GTSBatchSizeOptimizer(False, 1e-4, seed=seed, verbose=False),
}
every_policy = pytest.mark.parametrize("name", [*shipped("bftrainer.batch_size_optimizers"), *OPTIONS])


def context(world, seed):
    """What policies are made for; the oracle needs a target that is reached at all."""
    assume(any(epochs <= world.job.max_epochs for _, epochs in world.paths))
    return PolicyContext(world.trace(), world.job, 0.5, 2.0, seed, concurrency=True)


def made(name, world, seed):
    """A policy of ours, or one with options of its own."""
    return OPTIONS[name](seed) if name in OPTIONS else batch_size_optimizer(name, context(world, seed))


def simulator(world, policy, seed=1, limits=None):
    """A simulator that gives up on a group's job soon."""
    limits = limits or JITPowerLimitOptimizer(False)
    return Simulator(world.trace(), None, policy, limits, seed, verbose=False, max_group_retries=5)


def ended(simulate, *arguments):
    """The history and the exception's text, if there is one."""
    try:
        return simulate(*arguments), None
    except BftrainerError as error:
        return error.history, str(error)


class Watched(BatchSizeOptimizer):
    """Writes down each call of a policy, and what was answered."""

    name = "watched"

    def __init__(self, policy, calls):
        self.policy, self.calls = policy, calls

    def __deepcopy__(self, memo):
        return self

    def register_job(self, *arguments):
        self.calls.append(("register_job", arguments, self.policy.register_job(*arguments)))

    def predict(self, *arguments):
        self.calls.append(("predict", arguments, self.policy.predict(*arguments)))
        return self.calls[-1][-1]

    def observe(self, *arguments):
        self.calls.append(("observe", arguments, self.policy.observe(*arguments)))


@every_policy
@examples(8)
@given(world=worlds, seed=seeds, beta=betas)
def test_calls_made_again_lead_to_the_same_state(name, world, seed, beta):
    """Whoever makes the same calls again has the same policy, draws included, so none needs to be saved."""
    watched = Watched(made(name, world, seed), [])
    ended(simulator(world, watched).simulate_one_job, world.job, 25, beta, 0.5)
    again = made(name, world, seed)
    for call, arguments, answer in watched.calls:
        assert getattr(again, call)(*arguments) == answer
    assert state_text(again) == state_text(watched.policy)


@many
@given(worlds, seeds, betas, etas, st.integers(0, 30), st.integers(0, 30))
def test_a_shorter_history_is_the_beginning_of_a_longer_one(world, seed, beta, eta, first, more):
    """What a recurrence does depends on those before it, never on how many there are to be."""
    simulated = simulator(world, PruningGTSBatchSizeOptimizer(seed=seed, verbose=False), seed)
    short, _ = ended(simulated.simulate_one_job, world.job, first, beta, eta)
    long, _ = ended(simulated.simulate_one_job, world.job, first + more, beta, eta)
    assert long[: len(short)] == short
    assert len(long) >= len(short) >= 0


@every_policy
@examples(8)
@given(world=worlds, seed=seeds, beta=betas, jobs=groups)
def test_calls_repeat_and_leave_policies_alone(name, world, seed, beta, jobs):
    """Whatever was simulated before, a simulation gives the same; the policies passed in stay as they were."""
    sizes, limits = made(name, world, seed), JITPowerLimitOptimizer(False)
    used = made(name, world, seed)
    used.register_job(world.job, world.sizes())
    used.observe(world.job, used.predict(world.job), 100.0, True)
    limits.observe(world.job, world.sizes()[0], 50, 1.0)
    for passed in (sizes, used):
        before = state_text([passed, limits])
        simulated = simulator(world, passed, seed, limits if passed is sizes else None)
        first = ended(simulated.simulate_one_job, world.job, 10, beta, 0.5)
        overlapping = ended(simulated.simulate_one_alibaba_group, world.job, jobs, beta, 0.5)
        assert ended(simulated.simulate_one_job, world.job, 10, beta, 0.5) == first
        assert ended(simulated.simulate_one_alibaba_group, world.job, jobs, beta, 0.5) == overlapping
        assert state_text([passed, limits]) == before


@many
@given(worlds, seeds, betas, etas, groups, st.integers(-20, 20), st.integers(0, 10))
def test_units_do_not_matter(world, seed, beta, eta, jobs, time_power, power_power):
    """Times and powers in units that are powers of two apart: the same choices, energies and times in those units."""
    time, power = 2.0**time_power, 2.0**power_power
    scaled = world.scaled(time, power)
    policy = PruningGTSBatchSizeOptimizer(concurrency=True, seed=seed, verbose=False)
    for call, arguments in (("simulate_one_job", (20,)), ("simulate_one_alibaba_group", (jobs,))):
        histories = [
            ended(getattr(simulator(each, policy, seed), call), world.job, *arguments, beta, eta)[0]
            for each in (world, scaled)
        ]
        assert [
            replace(entry, pl=entry.pl * int(power), energy=entry.energy * time * power, time=entry.time * time)
            for entry in histories[0]
        ] == histories[1]
