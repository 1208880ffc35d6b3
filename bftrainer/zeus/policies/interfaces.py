"""What a policy must offer: implement one of these to have your own simulated, replayed or served."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence

from bftrainer.zeus.policies.job import Job
from bftrainer.zeus.policies.verbosity import say

__all__ = ["BatchSizeOptimizer", "PowerLimitOptimizer"]

logger = logging.getLogger(__name__)


class BatchSizeOptimizer(ABC):
    """Chooses the batch size of each run of a recurring job, and learns from what the run cost.

    A simulation works on a deep copy, so the object passed in stays as it was.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the policy, for tables and figures."""

    @abstractmethod
    def register_job(self, job: Job, batch_sizes: Sequence[int]) -> None:
        """Get ready for a job that may use `batch_sizes`; for one that is known already, do nothing."""

    @abstractmethod
    def predict(self, job: Job) -> int:
        """Batch size of the job's next run."""

    @abstractmethod
    def observe(self, job: Job, batch_size: int, cost: float, converged: bool | None = None) -> None:
        """Learn what a run with `batch_size` cost, and whether it reached its target (None: unknown)."""

    def _log(self, message: str) -> None:
        """Print what an own policy has to say, after its name."""
        say(logger, True, self.name, "%s", message)


class PowerLimitOptimizer(ABC):
    """Chooses the GPU power limit for a job and batch size, once it was told what each limit costs."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the policy, for tables and figures."""

    @abstractmethod
    def predict(self, job: Job, batch_size: int) -> int | None:
        """Power limit in watts, or None to have all limits profiled in the run's first epoch."""

    @abstractmethod
    def observe(self, job: Job, batch_size: int, power_limit: int, cost: float) -> None:
        """Learn what an epoch at `power_limit` cost; called for each limit, from the highest down."""

    def _log(self, message: str) -> None:
        """Print what an own policy has to say, after its name."""
        say(logger, True, self.name, "%s", message)
