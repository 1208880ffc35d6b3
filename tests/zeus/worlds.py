"""Traces small enough to check by hand, and random ones: plain rows that ours and the reference both start from."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from bftrainer.zeus import Group, GroupJob, Job, TrainingTrace

NEVER = math.nan
JOB = Job("made-up", "net", "sgd", 0.5, max_epochs=10, default_bs=8)


@dataclass(frozen=True)
class World:
    """A job and what was measured of it, in the order of the files."""

    job: Job
    paths: tuple[tuple[int, float], ...]  # batch size, and epochs to the target, NaN if never reached, of each run
    powers: tuple[tuple[int, int, float, float], ...]  # batch size, power limit (W), time of an epoch (s), power (W)
    other_limit_w: int | None = None  # power limit of another job in the same trace, if there is one

    def sizes(self) -> list[int]:
        """Batch sizes, increasing."""
        return sorted({size for size, _, _, _ in self.powers})

    def train(self) -> pd.DataFrame:
        """The table of runs."""
        rows = [
            {**self._names(size), "run": run, "target_metric": self.job.target_metric, "target_epoch": epochs}
            for run, (size, epochs) in enumerate(self.paths)
        ]
        if self.other_limit_w is not None:
            other = {"dataset": "other", "batch_size": 1, "target_metric": 0.1, "target_epoch": 1.0}
            rows.append({**rows[0], **other})
        return pd.DataFrame(rows)

    def power(self) -> pd.DataFrame:
        """The table of power measurements."""
        rows = [
            {**self._names(size), "power_limit": limit, "time_per_epoch": time, "average_power": watts}
            for size, limit, time, watts in self.powers
        ]
        if self.other_limit_w is not None:
            rows.append({**rows[0], "dataset": "other", "batch_size": 1, "power_limit": self.other_limit_w})
        return pd.DataFrame(rows)

    def trace(self) -> TrainingTrace:
        """Both, joined."""
        return TrainingTrace(self.train(), self.power())

    def _names(self, size: int) -> dict[str, Any]:
        job = self.job
        names = {"dataset": job.dataset, "network": job.network, "optimizer": job.optimizer}
        return names | {"batch_size": size}


seeds = st.integers(0, 2**32 - 1)
betas = st.one_of(st.sampled_from([1.0, 1.2, 2.0, math.inf]), st.floats(0.2, 6.0))


def usual_group(seed: int) -> list[GroupJob]:
    """Dozens of jobs that overlap now and then, or mostly."""
    rng = np.random.default_rng(seed)
    count = rng.integers(10, 80)
    starts = np.sort(rng.uniform(0, 10 * count * rng.choice([0.3, 1.0, 5.0]), count)).tolist()
    return [GroupJob(start, start + float(rng.uniform(1, 20)), float(rng.uniform(0.3, 3.0))) for start in starts]


@st.composite
def odd_groups(draw: st.DrawFn) -> list[GroupJob]:
    """Jobs by start time, some at once, some ending when others start, some at once themselves."""
    starts = sorted(draw(st.lists(st.integers(0, 60).map(float), min_size=1, max_size=25)))
    lengths = st.integers(0, 20).map(float)
    return [GroupJob(start, start + draw(lengths), draw(st.floats(0.3, 3.0))) for start in starts]


groups = st.one_of(odd_groups(), seeds.map(usual_group), seeds.map(usual_group)).map(
    lambda jobs: Group("g", "d", tuple(jobs))
)


class Measured(NamedTuple):
    """What a trace says of one batch size: epochs to the target by run, (s, W) of an epoch by power limit."""

    target_epochs: Sequence[float]
    epochs: Mapping[int, tuple[float, float]]


def training_trace(sizes: Mapping[int, Measured]) -> TrainingTrace:
    """A trace of `JOB` alone."""
    paths = tuple((size, epochs) for size, measured in sizes.items() for epochs in measured.target_epochs)
    powers = tuple((size, limit, *each) for size, measured in sizes.items() for limit, each in measured.epochs.items())
    return World(JOB, paths, powers).trace()


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
    path = st.one_of(reaching, st.just(NEVER), st.just(JOB.max_epochs + 1.0))
    found = {}
    for size in sorted(draw(st.sets(st.sampled_from((2, 4, 16, 32, 64)), max_size=3)) | {8}):
        paths = draw(st.lists(reaching if size == 8 else path, min_size=1, max_size=most_paths))
        limits = sorted(draw(st.sets(st.sampled_from((100, 150, 200)), min_size=1)))
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
