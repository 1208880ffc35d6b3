"""What holds in every simulation, whatever the traces, the knobs and the seeds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import BftrainerError
from bftrainer.zeus import (
    BatchSizeOptimizer,
    Group,
    GroupJob,
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
from tests.zeus.traced import JOB, measurements, state_text, training_trace

seeds = st.integers(0, 2**32 - 1)
etas = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.0, 1.0))
betas = st.one_of(st.sampled_from([1.0, 1.2, 2.0, math.inf]), st.floats(0.2, 6.0))
traces = measurements().map(training_trace)
OPTIONS = {
    "zeus, window": lambda seed: PruningGTSBatchSizeOptimizer(0.0, 0.0, 3, True, seed, False),
    "zeus, prior": lambda seed: PruningGTSBatchSizeOptimizer(-500.0, 1e-4, 0, True, seed, False),
    "gts, no precision": lambda seed: GTSBatchSizeOptimizer(False, seed=seed, verbose=False),
    "gts, certain": lambda seed: GTSBatchSizeOptimizer(False, math.inf, seed=seed, verbose=False),
    "gts, given precision": lambda seed: GTSBatchSizeOptimizer(False, 1e-4, seed=seed, verbose=False),
}
every_policy = pytest.mark.parametrize("name", [*shipped("bftrainer.batch_size_optimizers"), *OPTIONS])


def make(name, trace, seed):
    """A policy of ours, or one with options of its own."""
    context = PolicyContext(trace, JOB, 0.5, 2.0, seed, concurrency=True)
    return OPTIONS[name](seed) if name in OPTIONS else batch_size_optimizer(name, context)


def simulator(trace, policy, seed=1, limits=None):
    """A simulator that gives up on a group's job soon."""
    limits = limits or JITPowerLimitOptimizer(False)
    return Simulator(trace, None, policy, limits, seed, verbose=False, max_group_retries=5)


@st.composite
def groups(draw):
    """Jobs by start time, some at once, some ending when others start, some at once themselves."""
    starts = sorted(draw(st.lists(st.integers(0, 60).map(float), min_size=1, max_size=25)))
    lengths = st.integers(0, 20).map(float)
    return Group("g", "d", tuple(GroupJob(each, each + draw(lengths), draw(st.floats(0.3, 3.0))) for each in starts))


def finish(simulate, *arguments):
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
@given(trace=traces, seed=seeds, beta=betas)
def test_calls_made_again_lead_to_the_same_state(name, trace, seed, beta):
    """Whoever makes the same calls again has the same policy, draws included, so none needs to be saved."""
    watched = Watched(make(name, trace, seed), [])
    finish(simulator(trace, watched).simulate_one_job, JOB, 25, beta, 0.5)
    again = make(name, trace, seed)
    for call, arguments, answer in watched.calls:
        assert getattr(again, call)(*arguments) == answer
    assert state_text(again) == state_text(watched.policy)


@examples(40)
@given(traces, seeds, betas, etas, st.integers(0, 30), st.integers(0, 30))
def test_a_shorter_history_is_the_beginning_of_a_longer_one(trace, seed, beta, eta, first, more):
    """What a recurrence does depends on those before it, never on how many there are to be."""
    simulated = simulator(trace, PruningGTSBatchSizeOptimizer(seed=seed, verbose=False), seed)
    short, _ = finish(simulated.simulate_one_job, JOB, first, beta, eta)
    long, _ = finish(simulated.simulate_one_job, JOB, first + more, beta, eta)
    assert long[: len(short)] == short
    assert len(long) >= len(short) >= 0


@every_policy
@examples(8)
@given(trace=traces, seed=seeds, beta=betas, jobs=groups())
def test_calls_repeat_and_leave_policies_alone(name, trace, seed, beta, jobs):
    """Whatever was simulated before, a simulation gives the same; the policies passed in stay as they were."""
    sizes, limits = make(name, trace, seed), JITPowerLimitOptimizer(False)
    used = make(name, trace, seed)
    used.register_job(JOB, trace.of(JOB).batch_sizes)
    used.observe(JOB, used.predict(JOB), 100.0, True)
    limits.observe(JOB, 8, 50, 1.0)
    for passed in (sizes, used):
        before = state_text([passed, limits])
        simulated = simulator(trace, passed, seed, limits if passed is sizes else None)
        first = finish(simulated.simulate_one_job, JOB, 10, beta, 0.5)
        overlapping = finish(simulated.simulate_one_alibaba_group, JOB, jobs, beta, 0.5)
        assert finish(simulated.simulate_one_job, JOB, 10, beta, 0.5) == first
        assert finish(simulated.simulate_one_alibaba_group, JOB, jobs, beta, 0.5) == overlapping
        assert state_text([passed, limits]) == before
