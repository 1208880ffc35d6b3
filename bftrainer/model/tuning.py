"""Tuning of tasks while a replay runs: the request, and the runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import InvalidTaskError
from bftrainer.model.type_checks import convert_fields, require


@dataclass(frozen=True, slots=True)
class TuningSpec:
    """The job that a tuned task is a recurrence of, and how it is tuned.

    Parameters
    ----------
    train_trace, power_trace : str
        Files of measured training runs and of their power.
    dataset, network, optimizer : str
        Names of the job's parts in these files.
    target_metric : float
        Validation metric to reach.
    max_epochs : int
        Epochs after which a run gives up.
    default_batch_size : int
        Batch size to start with.
    eta : float
        Weight of energy against time, 0 to 1.
    beta : float
        A run stops before it costs this many times the cheapest run; inf for never.
    seed : int, optional
        Seed of the group's policy and paths; None for the replay's seed.
    idle_power_w : float, optional
        Power of one of its GPUs while the task holds it without training, in watts; None for the power of an idle node
        of the pool.
    policy, power_policy : str, optional
        Names of the policies that choose batch sizes and power limits; None for the replay's.

    Raises
    ------
    InvalidTaskError
        If a field is of another type, a number out of range, or a name empty.
    """

    train_trace: str
    power_trace: str
    dataset: str
    network: str
    optimizer: str
    target_metric: float
    max_epochs: int
    default_batch_size: int
    eta: float = 0.5
    beta: float = 2.0
    seed: int | None = None
    idle_power_w: float | None = None
    policy: str | None = None
    power_policy: str | None = None

    def __post_init__(self) -> None:
        convert_fields(self, InvalidTaskError, "zeus.{}")
        texts = ("train_trace", "power_trace", "dataset", "network", "optimizer", "policy", "power_policy")
        require(
            InvalidTaskError,
            *((getattr(self, name) != "", f"zeus.{name} to be text, got ''") for name in texts),
            (math.isfinite(self.target_metric), f"a finite zeus.target_metric, got {self.target_metric}"),
            (self.max_epochs >= 1, f"zeus.max_epochs >= 1, got {self.max_epochs}"),
            (self.default_batch_size >= 1, f"zeus.default_batch_size >= 1, got {self.default_batch_size}"),
            (0.0 <= self.eta <= 1.0, f"zeus.eta from 0 (time) to 1 (energy), got {self.eta}"),
            (self.beta > 0.0, f"zeus.beta > 0 (inf: never stop early), got {self.beta}"),
            ((self.seed or 0) >= 0, f"zeus.seed >= 0, got {self.seed}"),
            (
                0.0 <= (self.idle_power_w or 0.0) < math.inf,
                f"zeus.idle_power_w of 0 W or more, got {self.idle_power_w}",
            ),
        )


@dataclass(frozen=True, slots=True, eq=False)
class TunedRun:
    """One run of a tuned task at one power limit.

    Parameters
    ----------
    attempt : int
        Number of this attempt of the task, from 0.
    batch_size, power_limit_w : int
        Settings of the run.
    reaches : bool
        Whether it reaches its target; if not, it stops early and the task is tried again.
    power_w : ndarray of float64, shape (max_nodes + 1,)
        Power at every count while it trains, in watts.
    profiling_work : float
        Work at the start of the run that tries all power limits; 0 if this batch size was profiled before.
    profiling_power_w : ndarray of float64, shape (max_nodes + 1,)
        Power at every count during that work, in watts.
    """

    attempt: int
    batch_size: int
    power_limit_w: int
    reaches: bool
    power_w: NDArray[np.float64]
    profiling_work: float
    profiling_power_w: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A finished run of a tuned task, as reported to its group.

    Parameters
    ----------
    group, task : str
        Names of the group and of the task.
    recurrence, attempt : int
        Number of the task in its group, in order of admission, and of the attempt of this task; from 0.
    batch_size, power_limit_w : int
        Settings of the run; the limit is the one chosen for the batch size.
    energy_j, train_s : float
        Energy and time of its net work on one node, from which the group's policy learns.
    reached : bool
        Whether it reached its target.
    """

    group: str
    task: str
    recurrence: int
    attempt: int
    batch_size: int
    power_limit_w: int
    energy_j: float
    train_s: float
    reached: bool
