"""Batch sizes with power limits, and what a recurrence costs with each of them: the cheapest, and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from bftrainer.errors import TuningInputError
from bftrainer.zeus.policies.job import Job, check_knobs, zeus_cost
from bftrainer.zeus.policies.trace import JobTrace


@dataclass(frozen=True, slots=True)
class Configuration:
    """A batch size and power limit, and what a recurrence with them takes on average, failed tries included.

    `success_share` is the share of tries that reach the target, above 0.
    """

    batch_size: int
    power_limit_w: float
    energy_j: float
    time_s: float
    cost_j: float
    success_share: float


def configurations(trace: JobTrace, job: Job, eta_knob: float) -> list[Configuration]:
    """Compute the means of a recurrence with each batch size and power limit that can reach the target.

    A try takes a measured path at random; one that does not reach the target within the job's epochs trains all of
    them, and the recurrence tries again. Nothing is stopped early, and no epoch profiles power limits.

    They are sorted by batch size, then from the highest power limit down; there are none if nothing reaches the target.
    `TuningInputError` if `eta_knob` is out of range.

    Notes
    -----
    With a share p of tries that succeed, a recurrence has 1/p tries on average (Wald's equation), so each mean over
    paths is divided by p. The simulator gives up after 20 tries, which this leaves out.
    """
    check_knobs(eta_knob, math.inf)
    settings = []
    for sized in trace.batch_sizes.values():
        reaching = sum(epochs <= job.max_epochs for epochs in sized.target_epochs)
        if not reaching:
            continue
        success_share = reaching / len(sized.target_epochs)
        # Of a try; a path that never reaches its target is NaN, which compares false.
        tried = fmean(path if path <= job.max_epochs else job.max_epochs for path in sized.target_epochs)
        epochs = tried / success_share
        for point in sized.points:
            energy_j, time_s = point.energy_per_epoch_j * epochs, point.time_per_epoch_s * epochs
            cost_j = zeus_cost(energy_j, time_s, eta_knob, trace.max_power_w)
            settings.append(Configuration(sized.batch_size, point.limit_w, energy_j, time_s, cost_j, success_share))
    return settings


def optimum(configurations: Sequence[Configuration]) -> Configuration:
    """Find the configuration of least cost; of equally cheap ones the first, and `TuningInputError` if there are none.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 3.2: the batch size and power limit of least cost.
    """
    if not configurations:
        raise TuningInputError("No batch size reaches the target within the job's epochs.")
    return min(configurations, key=lambda setting: setting.cost_j)


def pareto_front(configurations: Sequence[Configuration]) -> list[Configuration]:
    """Find the configurations that no other one beats in time or energy without being worse in the other.

    Time increases and energy falls, both strictly; of configurations equal in both the first stays.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 2.3: the energy-time trade-off of training.
    """
    front: list[Configuration] = []
    for setting in sorted(configurations, key=lambda one: (one.time_s, one.energy_j)):
        if not front or setting.energy_j < front[-1].energy_j:
            front.append(setting)
    return front
