"""What every policy checks of what it is told, in the same words."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from numbers import Integral
from typing import TypeVar

from bftrainer.errors import TuningInputError, TuningProtocolError, nearest
from bftrainer.zeus.policies.job import Job

__all__ = ["check_batch_sizes", "check_cost", "check_known", "check_seed", "check_told", "default_first", "registered"]

T = TypeVar("T")


def check_batch_sizes(job: Job, batch_sizes: Sequence[int]) -> None:
    """Refuse a job without batch sizes.

    Raises
    ------
    TuningInputError
        If there are none.
    """
    if not len(batch_sizes):
        raise TuningInputError(f"Batch size list for {job} is empty.")


def check_cost(job: Job, batch_size: int, cost: float) -> None:
    """Refuse costs that nothing can be learned from.

    Raises
    ------
    TuningInputError
        If the cost is not finite.
    """
    if not math.isfinite(cost):
        raise TuningInputError(f"{job}: Expected a finite cost of batch size {batch_size}, got {cost}.")


def check_seed(seed: int) -> int:
    """A seed as a plain number.

    Raises
    ------
    TuningInputError
        If it is not a whole number of 0 or more: without a seed nothing could be repeated.
    """
    if not isinstance(seed, Integral) or seed < 0:
        raise TuningInputError(f"Expected a seed of 0 or more, got {seed!r}.")
    return int(seed)


def check_known(job: Job, batch_size: int, known: Collection[int]) -> None:
    """Refuse a batch size that is not one of the job's.

    Raises
    ------
    TuningInputError
        If it is none of the `known` ones.
    """
    if batch_size not in known:
        close = nearest(batch_size, known)
        raise TuningInputError(f"{job}: Expected one of the job's batch sizes, got {batch_size}.{close}")


def default_first(job: Job, batch_sizes: Sequence[int]) -> list[int]:
    """The job's default batch size, then the others in increasing order.

    Raises
    ------
    TuningInputError
        If there are no batch sizes, or the default is missing or not one of them.
    """
    check_batch_sizes(job, batch_sizes)
    if job.default_bs is None:
        raise TuningInputError(f"{job}: Expected a default batch size, got none.{nearest(0, batch_sizes)}")
    check_known(job, job.default_bs, batch_sizes)
    return [job.default_bs, *sorted(int(size) for size in batch_sizes if size != job.default_bs)]


def check_told(job: object, batch_size: int, converged: bool | None) -> bool:
    """Whether a run converged, for a policy that has to know.

    Raises
    ------
    TuningInputError
        If that is unknown.
    """
    if converged is None:
        raise TuningInputError(f"{job}: Expected to hear whether batch size {batch_size} converged, got None.")
    return converged


def registered(jobs: Mapping[Job, T], job: Job) -> T:
    """What a policy keeps of a job.

    Raises
    ------
    TuningProtocolError
        If the job was not registered.
    """
    found = jobs.get(job)
    if found is None:
        raise TuningProtocolError(f"Expected a registered job, got {job}; call register_job first.")
    return found
