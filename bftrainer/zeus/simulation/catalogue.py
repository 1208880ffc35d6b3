"""What traces of training runs hold: jobs, and for each target the optimum and the energy-time Pareto front."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bftrainer.errors import TuningInputError
from bftrainer.zeus.policies.job import Job
from bftrainer.zeus.policies.trace import TrainingTrace
from bftrainer.zeus.simulation.inputs import MAX_EPOCHS, JobChoice, ZeusInputs, choose_jobs, job_key
from bftrainer.zeus.simulation.optimum import Configuration, configurations, optimum, pareto_front

__all__ = ["TargetFacts", "TracedJob", "described_jobs", "target_facts", "traced_jobs"]


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
        sizes = trace.of(Job(*key, targets[0], MAX_EPOCHS)).batch_sizes
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
    best = optimum(settings) if settings else None
    return TargetFacts(job, eta_knob, reaching, best, tuple(pareto_front(settings)))


def described_jobs(inputs: ZeusInputs, choice: JobChoice) -> tuple[list[Job], bool]:
    """Jobs to describe, and whether they were chosen with their targets.

    Without a target, jobs are described for each target that their runs aim at.

    Raises
    ------
    TuningInputError
        As `choose_jobs`, but that jobs need not be named, nor targets.
    """
    trace = inputs.trace
    open_ended = choice.file is None and not inputs.is_sample and not choice.targets
    if not open_ended:
        return choose_jobs(inputs, choice), True
    if len(choice.max_epochs) > 1 or choice.default_batch_sizes:
        raise TuningInputError("Expected --max-epochs once and no --default-bs where no --target is given.")
    keys: Sequence[tuple[str, str, str]] = [job_key(trace, name) for name in choice.names] or trace.jobs
    max_epochs = choice.max_epochs[0] if choice.max_epochs else MAX_EPOCHS
    return [Job(*key, target, max_epochs) for key in keys for target in trace.targets(*key)], False
