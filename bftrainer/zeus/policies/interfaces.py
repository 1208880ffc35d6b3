"""Interfaces to implement for a policy of your own, and checks and output that the included policies share."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from numbers import Integral
from typing import Generic, TypeVar

from bftrainer.errors import TuningError, TuningInputError, suggest_numbers
from bftrainer.zeus.policies.job import Job

logger = logging.getLogger(__name__)


def log_choice(logger: logging.Logger, verbose: bool, name: str, message: str, *values: object) -> None:
    """Log a choice at level DEBUG and, with `verbose`, print it as the published code does: `[name] message`."""
    # Choices are frequent and rarely logged, so the message is built only if needed.
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(message, *values, stacklevel=2)
    if verbose:
        print(f"[{name}] {message % values}")


class _Policy(ABC):
    """Common part of both kinds of policy."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the policy, for tables and figures."""

    def _log(self, message: str) -> None:
        """Print a message of a user's own policy, after its name."""
        log_choice(logger, True, self.name, "%s", message)


class BatchSizeOptimizer(_Policy):
    """Chooses the batch size of each run of a recurring job, and learns from what the run cost.

    A simulation works on a deep copy. `predict` raises `AllPrunedError` if no batch size is left, `observe`
    `TuningInputError` for a batch size that is not the job's, a cost that is not finite, or None for `converged`, if
    the policy needs to know, and both `TuningError` if the job was not registered.
    """

    @abstractmethod
    def register_job(self, job: Job, batch_sizes: Sequence[int]) -> None:
        """Prepare for a job that may use `batch_sizes`; do nothing if the job is already known."""

    @abstractmethod
    def predict(self, job: Job) -> int:
        """Choose the batch size of the job's next run."""

    @abstractmethod
    def observe(self, job: Job, batch_size: int, cost: float, converged: bool | None = None) -> None:
        """Learn what a run with `batch_size` cost, and whether it reached its target (None: unknown)."""


class PowerLimitOptimizer(_Policy):
    """Chooses the GPU power limit for a job and batch size, after observing the cost of each limit."""

    @abstractmethod
    def predict(self, job: Job, batch_size: int) -> int | None:
        """Choose a power limit in watts; None asks to profile all limits in the run's first epoch."""

    @abstractmethod
    def observe(self, job: Job, batch_size: int, power_limit: int, cost: float) -> None:
        """Learn what an epoch at `power_limit` cost; called for each limit, from the highest down."""


T = TypeVar("T")


class PerJobPolicy(BatchSizeOptimizer, Generic[T]):
    """Batch-size policy that keeps a state of type `T` for each job, from its registration on."""

    def __init__(self) -> None:
        self._jobs: dict[Job, T] = {}

    def register_job(self, job: Job, batch_sizes: Sequence[int]) -> None:
        """Prepare for a job, unless it is known; its default, where that counts, must be one of the batch sizes."""
        if job not in self._jobs:
            check_batch_sizes(job, batch_sizes)
            self._jobs[job] = self._initial_state(job, batch_sizes)

    @abstractmethod
    def _initial_state(self, job: Job, batch_sizes: Sequence[int]) -> T:
        """State of a job before its first run; there is a batch size."""


def check_observation(job: Job, batch_size: int, cost: float, batch_sizes: Collection[int] | None = None) -> None:
    """Refuse a run whose cost is not finite, or whose batch size is not one of those `known`, if they are."""
    if batch_sizes is not None:
        check_known(job, batch_size, batch_sizes)
    if not math.isfinite(cost):
        raise TuningInputError(f"{job}: Expected a finite cost of batch size {batch_size}, got {cost}.")


def check_batch_sizes(job: Job, batch_sizes: Sequence[int]) -> None:
    """Refuse an empty list of batch sizes."""
    if not len(batch_sizes):
        raise TuningInputError(f"Batch size list for {job} is empty.")


def check_known(job: Job, batch_size: int, batch_sizes: Collection[int]) -> None:
    """Refuse a batch size that is not one of the job's."""
    if batch_size not in batch_sizes:
        close = suggest_numbers(batch_size, batch_sizes)
        raise TuningInputError(f"{job}: Expected one of the job's batch sizes, got {batch_size}.{close}")


def check_verdict(job: object, batch_size: int, converged: bool | None) -> bool:
    """Return whether a run converged, for a policy that cannot do without that: None is refused."""
    if converged is None:
        raise TuningInputError(f"{job}: Expected converged of batch size {batch_size} to be true or false, got None.")
    return converged


def check_seed(seed: int) -> int:
    """Return a seed as a plain int; None is refused, because results could not be repeated."""
    if not isinstance(seed, Integral) or seed < 0:
        raise TuningInputError(f"Expected a seed of 0 or more, got {seed!r}.")
    return int(seed)


def default_first(job: Job, batch_sizes: Sequence[int]) -> list[int]:
    """Order batch sizes: the job's default, which must be one of them, then the others in increasing order."""
    check_batch_sizes(job, batch_sizes)
    if job.default_bs is None:
        raise TuningInputError(f"{job}: Expected a default batch size, got none.{suggest_numbers(0, batch_sizes)}")
    check_known(job, job.default_bs, batch_sizes)
    return [job.default_bs, *sorted(int(size) for size in batch_sizes if size != job.default_bs)]


def state_of(jobs: Mapping[Job, T], job: Job) -> T:
    """Return the state that a policy keeps for a job; a job that was not registered is refused."""
    state = jobs.get(job)
    if state is None:
        raise TuningError(f"Unknown job {job}; call register_job first.")
    return state
