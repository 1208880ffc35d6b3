"""Traces made of a few numbers, for tests that can be checked by hand, and strategies for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from bftrainer.zeus import Job, TrainingTrace

NAN = math.nan
NAMES = {"dataset": "made-up", "network": "net", "optimizer": "sgd"}
JOB = Job("made-up", "net", "sgd", 0.5, max_epochs=10, default_bs=8)
LIMITS_W = (100, 150, 200)


class Measured(NamedTuple):
    """What a trace says of one batch size: epochs to the target by run, (s, W) of an epoch by power limit."""

    target_epochs: Sequence[float]
    epochs: Mapping[int, tuple[float, float]]


def training_trace(sizes: Mapping[int, Measured]) -> TrainingTrace:
    """A trace of `JOB` alone."""
    train = [
        {**NAMES, "batch_size": size, "target_metric": 0.5, "target_epoch": epochs}
        for size, measured in sizes.items()
        for epochs in measured.target_epochs
    ]
    power = [
        {**NAMES, "batch_size": size, "power_limit": limit, "time_per_epoch": time, "average_power": watts}
        for size, measured in sizes.items()
        for limit, (time, watts) in measured.epochs.items()
    ]
    return TrainingTrace(pd.DataFrame(train), pd.DataFrame(power))


def round_trace(paths: Mapping[int, Sequence[float]]) -> TrainingTrace:
    """A trace with round figures: an epoch at batch size b takes 100/b s at 200 W, 160/b s at 100 W.

    Power is 0.75 of the limit, so an epoch takes 15,000/b J at 200 W and 12,000/b J at 100 W.
    """
    epochs = {size: {100: (160 / size, 75.0), 200: (100 / size, 150.0)} for size in paths}
    return training_trace({size: Measured(each, epochs[size]) for size, each in paths.items()})


@st.composite
def measurements(draw, most_paths: int = 4) -> dict[int, Measured]:
    """A few batch sizes, the default among them; it reaches the target on every path, others may not."""
    figures = st.tuples(st.floats(0.5, 50.0), st.floats(10.0, 250.0))
    reaching = st.integers(1, JOB.max_epochs).map(float)
    path = st.one_of(reaching, st.just(NAN), st.just(JOB.max_epochs + 1.0))
    found = {}
    for size in sorted(draw(st.sets(st.sampled_from((2, 4, 16, 32, 64)), max_size=3)) | {8}):
        paths = draw(st.lists(reaching if size == 8 else path, min_size=1, max_size=most_paths))
        limits = sorted(draw(st.sets(st.sampled_from(LIMITS_W), min_size=1)))
        found[size] = Measured(paths, {limit: draw(figures) for limit in limits})
    return found


def state_text(value: Any) -> str:
    """All that a policy, or a part of it, holds, as text; equal states have equal texts."""
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if hasattr(value, "tolist"):
        return repr(value.tolist())
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {state_text(each)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(state_text, value))}]"
    if isinstance(value, Job) or (not hasattr(value, "__dict__") and not hasattr(value, "__slots__")):
        return repr(value)
    names = getattr(value, "__slots__", None) or vars(value)
    return f"{type(value).__name__}({', '.join(f'{name}={state_text(getattr(value, name))}' for name in names)})"
