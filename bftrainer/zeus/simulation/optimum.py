"""What traces hold, and what a traced job could cost at best: the cheapest setting, the Pareto front, regrets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from bftrainer.errors import TuningInputError
from bftrainer.zeus.policies.job import Job, check_knobs, zeus_cost
from bftrainer.zeus.policies.trace import BatchSizeTrace, JobTrace, TrainingTrace
from bftrainer.zeus.simulation.recurring import Run

__all__ = [
    "Configuration",
    "TargetFacts",
    "TracedJob",
    "best_of",
    "configurations",
    "optimum",
    "pareto_front",
    "regrets",
    "target_facts",
    "traced_jobs",
]


@dataclass(frozen=True, slots=True)
class Configuration:
    """A batch size and power limit, and what a recurrence takes with them on average.

    Parameters
    ----------
    batch_size : int
        The batch size.
    power_limit_w : float
        GPU power limit in watts.
    energy_j, time_s, cost_j : float
        Mean of a recurrence, failed tries included.
    success_share : float
        Share of tries that reach the target, above 0.

    Raises
    ------
    TuningInputError
        If a figure is out of range.
    """

    batch_size: int
    power_limit_w: float
    energy_j: float
    time_s: float
    cost_j: float
    success_share: float

    def __post_init__(self) -> None:
        for name in ("batch_size", "power_limit_w", "success_share"):
            if not getattr(self, name) > 0:
                raise TuningInputError(f"Expected {name} above 0, got {getattr(self, name)}.")
        for name in ("energy_j", "time_s", "cost_j"):
            if not 0 <= getattr(self, name) < math.inf:
                raise TuningInputError(f"Expected a finite {name} of 0 or more, got {getattr(self, name)}.")
        if self.success_share > 1:
            raise TuningInputError(f"Expected success_share of 1 at most, got {self.success_share}.")


def configurations(trace: JobTrace, job: Job, eta_knob: float) -> list[Configuration]:
    """What a recurrence takes on average with each batch size and power limit that can reach the target.

    A try takes a measured path at random; one that does not reach the target within the job's epochs trains all of
    them, and the recurrence tries again. Nothing is stopped early, and no epoch profiles power limits.

    Parameters
    ----------
    trace : JobTrace
        What was measured of the job.
    job : Job
        The job; its `max_epochs` counts.
    eta_knob : float
        Weight of energy in costs, 0 to 1.

    Returns
    -------
    list of Configuration
        By increasing batch size, then from the highest power limit down; empty if nothing reaches the target.

    Raises
    ------
    TuningInputError
        If `eta_knob` is out of range.

    Notes
    -----
    With a share p of tries that succeed, a recurrence has 1/p tries on average (Wald's equation), so each mean over
    paths is divided by p. The simulator gives up after 20 tries, which this leaves out.
    """
    check_knobs(eta_knob, math.inf)
    found = []
    for sized in trace.batch_sizes.values():
        reaching = sum(epochs <= job.max_epochs for epochs in sized.target_epochs)
        if not reaching:
            continue
        success_share = reaching / len(sized.target_epochs)
        epochs = _mean_epochs(sized, job.max_epochs) / success_share
        for point in sized.points:
            energy_j, time_s = point.energy_per_epoch_j * epochs, point.time_per_epoch_s * epochs
            cost_j = zeus_cost(energy_j, time_s, eta_knob, trace.max_power_w)
            found.append(
                Configuration(sized.batch_size, point.limit_w, energy_j, time_s, cost_j, success_share),
            )
    return found


def _mean_epochs(sized: BatchSizeTrace, max_epochs: int) -> float:
    """Epochs of a try; a path that never reaches its target is NaN, which compares false."""
    return fmean(epochs if epochs <= max_epochs else max_epochs for epochs in sized.target_epochs)


def optimum(configurations: Sequence[Configuration]) -> Configuration:
    """The configuration of least cost.

    Parameters
    ----------
    configurations : sequence of Configuration
        Of equally cheap ones the first wins: in the order of `configurations` that is the smallest batch size, and at
        it the highest power limit.

    Raises
    ------
    TuningInputError
        If there are none.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 3.2: the batch size and power limit of least cost.
    """
    if not configurations:
        raise TuningInputError("Expected a batch size that reaches the target within the job's epochs, found none.")
    return min(configurations, key=lambda each: each.cost_j)


def best_of(settings: Sequence[Configuration]) -> Configuration | None:
    """The cheapest setting; None if there are none."""
    return optimum(settings) if settings else None


def pareto_front(configurations: Sequence[Configuration]) -> list[Configuration]:
    """Configurations that no other one beats in time without taking more energy, or the reverse.

    Returns
    -------
    list of Configuration
        Time increases and energy falls, both strictly; of configurations equal in both the first stays.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 2.3: the energy-time trade-off of training.
    """
    front: list[Configuration] = []
    for each in sorted(configurations, key=lambda one: (one.time_s, one.energy_j)):
        if not front or each.energy_j < front[-1].energy_j:
            front.append(each)
    return front


def regrets(runs: Sequence[Run], best: Configuration) -> list[float]:
    """How much more each recurrence cost than the optimum does on average.

    Parameters
    ----------
    runs : sequence of Run
        A simulation's runs, of one job or of a group.
    best : Configuration
        What to compare with, for the same job and eta.

    Returns
    -------
    list of float, shape (recurrences,)
        By number of the recurrence, in joules; negative where a recurrence was lucky in the path it drew.

    Notes
    -----
    The cost of a recurrence is that of all its tries: epochs that profile power limits and tries that were stopped
    early count; tries whose bound allowed for no epoch used nothing, whatever the policy was told. In a group, costs
    are those of the traced job, before they are scaled by the ratio of run times. That failed tries count, and that the
    optimum is a mean over the paths of the trace, is our reading: the source defines regret for single runs.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 6: regret is cost beyond that of the best batch size and power limit.
    """
    spent: dict[int, float] = {}
    for run in runs:
        spent[run.recurrence] = spent.get(run.recurrence, 0.0) + (run.cost_j if run.started else 0.0)
    return [spent[recurrence] - best.cost_j for recurrence in sorted(spent)]


@dataclass(frozen=True, slots=True)
class TracedJob:
    """A job of the traces.

    Parameters
    ----------
    dataset, network, optimizer : str
        What is trained.
    batch_sizes, power_limits_w : tuple of numbers
        What was measured, increasing; a batch size need not have every limit.
    target_metrics : tuple of float
        What runs aim at, increasing.
    """

    dataset: str
    network: str
    optimizer: str
    batch_sizes: tuple[int, ...]
    power_limits_w: tuple[float, ...]
    target_metrics: tuple[float, ...]

    @property
    def name(self) -> str:
        """The job as ``--job`` takes it."""
        return f"{self.dataset},{self.network},{self.optimizer}"


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What a job with a target can be had for.

    Parameters
    ----------
    job : Job
        The job; target and epochs count.
    eta_knob : float
        Weight of energy in costs.
    reaching : tuple of int
        Batch sizes at which some run reaches the target.
    optimum : Configuration or None
        The cheapest setting; None if none reaches the target.
    front : tuple of Configuration
        Settings that no other one beats in both energy and time, by time.
    """

    job: Job
    eta_knob: float
    reaching: tuple[int, ...]
    optimum: Configuration | None
    front: tuple[Configuration, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain values."""
        return asdict(self) | {"job": self.job.to_dict()}


def traced_jobs(trace: TrainingTrace, keys: Iterable[tuple[str, str, str]] | None = None) -> list[TracedJob]:
    """Jobs of the traces, all of them or those of these datasets, networks and optimizers."""
    found = []
    for key in trace.jobs if keys is None else keys:
        targets = tuple(trace.targets(*key))
        sizes = trace.of(Job(*key, targets[0], max_epochs=1)).batch_sizes
        limits = {point.limit_w for sized in sizes.values() for point in sized.points}
        found.append(TracedJob(*key, tuple(sizes), tuple(sorted(limits)), targets))
    return found


def target_facts(trace: TrainingTrace, job: Job, eta_knob: float) -> TargetFacts:
    """Optimum and Pareto front of a job.

    Raises
    ------
    TuningInputError
        If the job or its target is not in the traces, or `eta_knob` is out of range.
    """
    settings = configurations(trace.of(job), job, eta_knob)
    reaching = tuple(dict.fromkeys(each.batch_size for each in settings))
    return TargetFacts(job, eta_knob, reaching, best_of(settings), tuple(pareto_front(settings)))
