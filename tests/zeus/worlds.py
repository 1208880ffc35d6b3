"""Traces small enough to check by hand, and random ones: plain rows that ours and the reference both start from."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from bftrainer.zeus import Group, GroupJob, Job, TrainingTrace

NEVER = math.nan


@dataclass(frozen=True)
class World:
    """A job and what was measured of it, in the order of the files.

    Parameters
    ----------
    job : Job
        The job.
    paths : tuple of (int, float)
        Batch size, and epochs to the target, NaN if never reached, of each run.
    powers : tuple of (int, int, float, float)
        Batch size, power limit (W), time per epoch (s), average power (W).
    other_limit_w : int or None
        Power limit of another job in the same trace, if there is one.
    """

    job: Job
    paths: tuple[tuple[int, float], ...]
    powers: tuple[tuple[int, int, float, float], ...]
    other_limit_w: int | None = None

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

    def scaled(self, time: float, power: float) -> World:
        """The same in other units of time and power, of which limits are whole."""
        powers = tuple((size, int(limit * power), t * time, watts * power) for size, limit, t, watts in self.powers)
        other = None if self.other_limit_w is None else int(self.other_limit_w * power)
        return replace(self, powers=powers, other_limit_w=other)

    def _names(self, size: int) -> dict[str, Any]:
        job = self.job
        names = {"dataset": job.dataset, "network": job.network, "optimizer": job.optimizer}
        return names | {"batch_size": size}


def world(paths: dict[int, list[float]], **job: Any) -> World:
    """A world with round figures: an epoch at batch size b takes 100/b s at 200 W, 160/b s at 100 W.

    Power is 0.75 of the limit, so an epoch takes 15,000/b J at 200 W and 12,000/b J at 100 W.
    """
    fields = {"target_metric": 0.9, "max_epochs": 12, "default_bs": min(paths)} | job
    runs = tuple((size, float(epochs)) for size, many in paths.items() for epochs in many)
    powers = tuple(row for size in paths for row in ((size, 100, 160 / size, 75.0), (size, 200, 100 / size, 150.0)))
    return World(Job("d", "n", "sgd", **fields), runs, powers)


amounts = st.floats(0.5, 2000.0, allow_nan=False)
seeds = st.integers(0, 2**32 - 1)
etas = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.0, 1.0))
betas = st.one_of(st.sampled_from([1.0, 1.2, 2.0, math.inf]), st.floats(0.2, 6.0))


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


worlds = st.one_of(odd_worlds(), seeds.map(usual_world), seeds.map(usual_world))
groups = st.one_of(odd_groups(), seeds.map(usual_group), seeds.map(usual_group)).map(
    lambda jobs: Group("g", "d", tuple(jobs))
)
