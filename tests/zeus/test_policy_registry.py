"""Policies are found by name and made for a job; those to compare with; what holds in every simulation."""

import math
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer import zeus
from bftrainer.errors import AllPrunedError, BftrainerError, TuningError, TuningInputError
from bftrainer.zeus.policies.policy_registry import (
    BATCH_SIZES,
    POWER_LIMITS,
    PolicyContext,
    batch_size_optimizer,
    power_limit_optimizer,
)
from bftrainer.zeus.policies.trace import configurations, optimum
from tests.examples import examples
from tests.shipped import shipped
from tests.zeus.worlds import JOB, NEVER, Measured, betas, groups, measurements, seeds, state_text, training_trace

EPOCHS = {100: (2.0, 60.0), 200: (1.0, 150.0)}
CONTEXT = PolicyContext(
    training_trace({size: Measured([epochs], EPOCHS) for size, epochs in ((4, 9.0), (8, 5.0), (16, 2.0))}),
    JOB,
    eta_knob=0.5,
    beta_knob=5.0,
    seed=7,
)
BATCH_SIZE = {
    "default": zeus.DefaultBatchSize,
    "grid": zeus.GridSearch,
    "gts": zeus.GTSBatchSizeOptimizer,
    "oracle": zeus.Oracle,
    "zeus": zeus.PruningGTSBatchSizeOptimizer,
}
POWER_LIMIT = {"jit": zeus.JITPowerLimitOptimizer, "max-power": zeus.MaxPowerLimit, "oracle": zeus.Oracle}


def test_names():
    """What ships is registered and made by its name, among what others may have installed."""
    assert shipped("bftrainer.batch_size_optimizers") == sorted(BATCH_SIZE)
    assert shipped("bftrainer.power_limit_optimizers") == sorted(POWER_LIMIT)
    assert set(BATCH_SIZES.names()) >= set(BATCH_SIZE)
    assert set(POWER_LIMITS.names()) >= set(POWER_LIMIT)
    assert {name: type(batch_size_optimizer(name, CONTEXT)) for name in BATCH_SIZE} == BATCH_SIZE
    assert {name: type(power_limit_optimizer(name, CONTEXT)) for name in POWER_LIMIT} == POWER_LIMIT


def test_the_context_arrives():
    """Seed and concurrency are those of the context, and verbose sets a level."""
    policy = batch_size_optimizer("zeus", replace(CONTEXT, seed=11, concurrency=True, verbose=True))
    assert (policy.seed, policy.concurrency, policy.verbose) == (11, True, True)
    assert batch_size_optimizer("zeus", CONTEXT).concurrency is False
    assert batch_size_optimizer("gts", CONTEXT).seed == 7
    # Policies of a job that is trained for real are made without measurements; those that need some say so.
    real = replace(CONTEXT, trace=None, window_size=5)
    assert batch_size_optimizer("zeus", real).window_size == 5
    with pytest.raises(TuningInputError, match="The policy oracle needs a trace of measured runs"):
        batch_size_optimizer("oracle", real)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of the user's in the current directory, which nobody installed."""
    (tmp_path / "my_policies.py").write_text(
        "from bftrainer.zeus import DefaultBatchSize, JITPowerLimitOptimizer\n"
        "class Mine(DefaultBatchSize):\n    name = 'mine'\n"
        "def mine(context):\n    return Mine()\n"
        "def limits(context):\n    return JITPowerLimitOptimizer()\n"
        "def breaks(context):\n    raise ValueError('two\\nlines')\n"
    )
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("my_policies", None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("zeuss", "Expected a known batch-size policy or module:callable, got 'zeuss'. Did you mean 'zeus'"),
        ("jit", f"Known: {', '.join(BATCH_SIZES.names())}"),
        ("my_policies:mines", "to define 'mines'. Did you mean 'mine'"),
        ("my_policies:limits", "Expected a BatchSizeOptimizer, got JITPowerLimitOptimizer"),
        ("my_policies:breaks", "cannot be made: ValueError: two lines."),
    ],
)
@pytest.mark.usefixtures("module")
def test_what_is_not_there(name, said):
    """What cannot be had is told in one line, with what there is; a batch-size policy is no power-limit policy."""
    with pytest.raises(TuningInputError) as caught:
        batch_size_optimizer(name, CONTEXT)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    # A callable is found in the current directory, which does not stay on the path.
    before = list(sys.path)
    assert batch_size_optimizer("my_policies:mine", CONTEXT).name == "mine"
    assert sys.path == before
    with pytest.raises(TuningInputError, match=r"power-limit policy .*'zeus'\. Known: .*max-power"):
        power_limit_optimizer("zeus", CONTEXT)


# --- policies to compare with -----------------------------------------------------------------------------------------


SIZES = [4, 8, 16, 32]
ORDER = [8, 4, 16, 32]
TRACE = training_trace(
    {
        4: Measured([9.0], {100: (2.0, 50.0)}),
        8: Measured([5.0], {100: (2.0, 60.0), 200: (1.0, 150.0)}),
        16: Measured([2.0], {100: (2.0, 70.0), 200: (1.5, 160.0)}),
        32: Measured([NEVER], {200: (1.0, 190.0)}),
    }
)
BATCH_SIZE_POLICIES = {
    "grid": zeus.GridSearch,
    "default": zeus.DefaultBatchSize,
    "oracle": lambda: zeus.Oracle.of(TRACE, [JOB], 0.5),
}


@pytest.mark.parametrize("name", BATCH_SIZE_POLICIES)
def test_jobs_are_registered(name):
    """Registering again changes nothing; a job that is not, nor known to the oracle, is refused."""
    policy = BATCH_SIZE_POLICIES[name]()
    policy.register_job(JOB, SIZES)
    policy.observe(JOB, policy.predict(JOB), 5.0, True)
    before = state_text(policy)
    policy.register_job(JOB, SIZES)
    assert state_text(policy) == before
    with pytest.raises(TuningError, match="register_job first"):
        policy.predict(replace(JOB, dataset="other"))
    with pytest.raises(TuningInputError, match=r"got \d+\. Closest: 4, 32"):
        BATCH_SIZE_POLICIES[name]().register_job(JOB, [4, 32])
    if name != "oracle":
        with pytest.raises(TuningInputError, match="is empty"):
            BATCH_SIZE_POLICIES[name]().register_job(JOB, [])
        with pytest.raises(TuningInputError, match="Expected a default batch size, got none"):
            policy.register_job(replace(JOB, default_bs=None), SIZES)


def play(costs, rounds, overlapping=()):
    """The choices of grid search where batch sizes cost what is said, and without a cost don't converge."""
    policy, choices = zeus.GridSearch(), []
    policy.register_job(JOB, SIZES)
    for size in overlapping:
        policy.observe(JOB, size, costs[size], True)
    for _ in range(rounds):
        choices.append(policy.predict(JOB))
        policy.observe(JOB, choices[-1], costs.get(choices[-1], 0.0), choices[-1] in costs)
    return policy, choices


def test_grid_search():
    """The default, then upwards from the smallest, each once; then the cheapest that converged, of equals the first."""
    policy, choices = play({8: 9.0, 16: 3.0, 32: 5.0}, 6)
    assert choices == [*ORDER, 16, 16]
    policy.observe(JOB, 16, 1000.0, False)
    assert policy.predict(JOB) == 16
    assert play({8: 3.0, 4: 3.0}, 5)[1][-1] == 8
    # A run that nobody asked for is the batch size's trial if there was none.
    assert play({16: 3.0, 8: 4.0, 4: 4.0, 32: 4.0}, 4, overlapping=[16])[1] == [8, 4, 32, 16]
    with pytest.raises(AllPrunedError):
        play({}, 5)
    unusable = {(5, 1.0, True): r"batch sizes, got 5\. Closest: 4, 8, 16", (8, 1.0): "converged of batch size 8"}
    policy, _ = play({}, 0)
    for report, said in unusable.items():
        with pytest.raises(TuningInputError, match=said):
            policy.observe(JOB, *report)


@given(sizes=measurements(), eta=st.sampled_from((0.0, 0.5, 1.0)))
def test_the_oracle_knows_the_optimum(sizes, eta):
    """Its batch size and limit are the optimum of the trace; limits of the others are the cheapest there are."""
    trace = training_trace(sizes)
    oracle, found = zeus.Oracle.of(trace, [JOB], eta), configurations(trace.of(JOB), JOB, eta)
    best = optimum(found)
    assert (oracle.predict(JOB), oracle.predict(JOB, best.batch_size)) == (best.batch_size, best.power_limit_w)
    for each in found:
        limit = oracle.predict(JOB, each.batch_size)
        (chosen,) = (one for one in found if (one.batch_size, one.power_limit_w) == (each.batch_size, limit))
        assert chosen.cost_j <= each.cost_j * (1 + 1e-12)
    # A job whose every path misses the target has no optimum, and an unknown batch size no limit.
    with pytest.raises(TuningInputError, match="No batch size reaches"):
        zeus.Oracle.of(TRACE, [replace(JOB, max_epochs=1)], 0.5)
    with pytest.raises(TuningInputError, match=r"got 5\. Closest: 4, 8, 16"):
        zeus.Oracle.of(TRACE, [JOB], 0.5).predict(JOB, 5)


# --- whatever the traces, the knobs and the seeds ---------------------------------------------------------------------

traces = measurements().map(training_trace)
OPTIONS = {
    "zeus, window": lambda seed: zeus.PruningGTSBatchSizeOptimizer(0.0, 0.0, 3, True, seed, False),
    "zeus, prior": lambda seed: zeus.PruningGTSBatchSizeOptimizer(-500.0, 1e-4, 0, True, seed, False),
    "gts, no precision": lambda seed: zeus.GTSBatchSizeOptimizer(False, seed=seed, verbose=False),
    "gts, certain": lambda seed: zeus.GTSBatchSizeOptimizer(False, math.inf, seed=seed, verbose=False),
    "gts, given precision": lambda seed: zeus.GTSBatchSizeOptimizer(False, 1e-4, seed=seed, verbose=False),
}
every_policy = pytest.mark.parametrize("name", [*shipped("bftrainer.batch_size_optimizers"), *OPTIONS])


def make(name, trace, seed):
    """A policy of ours, or one with options of its own."""
    context = PolicyContext(trace, JOB, 0.5, 2.0, seed, concurrency=True)
    return OPTIONS[name](seed) if name in OPTIONS else batch_size_optimizer(name, context)


def simulator(trace, policy, seed=1, limits=None):
    """A simulator that gives up on a group's job soon."""
    limits = limits or zeus.JITPowerLimitOptimizer(False)
    return zeus.Simulator(trace, None, policy, limits, seed, verbose=False, max_group_retries=5)


def finish(simulate, *arguments):
    """The history and the exception's text, if there is one."""
    try:
        return simulate(*arguments), None
    except BftrainerError as error:
        return error.history, str(error)


@every_policy
@examples(8)
@given(trace=traces, seed=seeds, beta=betas, jobs=groups)
def test_calls_repeat_and_leave_policies_alone(name, trace, seed, beta, jobs):
    """Whatever was simulated before, a simulation gives the same; the policies passed in stay as they were."""
    sizes, limits = make(name, trace, seed), zeus.JITPowerLimitOptimizer(False)
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
