"""Policies are found by name, made for a job, and refused with what there is instead."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from bftrainer.errors import TuningInputError
from bftrainer.zeus import (
    DefaultBatchSize,
    GridSearch,
    GTSBatchSizeOptimizer,
    JITPowerLimitOptimizer,
    MaxPowerLimit,
    Oracle,
    PruningGTSBatchSizeOptimizer,
)
from bftrainer.zeus.policies.policy_registry import (
    BATCH_SIZES,
    POWER_LIMITS,
    PolicyContext,
    batch_size_optimizer,
    power_limit_optimizer,
)
from tests.shipped import shipped
from tests.zeus.worlds import JOB, Measured, training_trace

EPOCHS = {100: (2.0, 60.0), 200: (1.0, 150.0)}
CONTEXT = PolicyContext(
    training_trace({size: Measured([epochs], EPOCHS) for size, epochs in ((4, 9.0), (8, 5.0), (16, 2.0))}),
    JOB,
    eta_knob=0.5,
    beta_knob=5.0,
    seed=7,
)
BATCH_SIZE = {
    "default": DefaultBatchSize,
    "grid": GridSearch,
    "gts": GTSBatchSizeOptimizer,
    "oracle": Oracle,
    "zeus": PruningGTSBatchSizeOptimizer,
}
POWER_LIMIT = {"jit": JITPowerLimitOptimizer, "max-power": MaxPowerLimit, "oracle": Oracle}


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
    # With eta 0 only time counts, with 1 only energy.
    limits = [power_limit_optimizer("oracle", replace(CONTEXT, eta_knob=eta)).predict(JOB, 8) for eta in (0.0, 1.0)]
    assert limits == [200, 100]
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
    yield "my_policies"
    sys.modules.pop("my_policies", None)


def test_any_callable_works(module):
    """`module:callable` is found in the current directory, which does not stay on the path."""
    before = list(sys.path)
    assert batch_size_optimizer(f"{module}:mine", CONTEXT).name == "mine"
    assert sys.path == before


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
    with pytest.raises(TuningInputError, match=r"power-limit policy .*'zeus'\. Known: .*max-power"):
        power_limit_optimizer("zeus", CONTEXT)
