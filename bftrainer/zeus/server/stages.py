"""What the server has found out of a job so far: by its pruning, and by its bandit. Looking changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bftrainer.zeus.server.published_models import ExplorationsPerJob, GaussianTsArmState
from bftrainer.zeus.server.schemas import TrialRow

if TYPE_CHECKING:
    from bftrainer.zeus.policies.bandit import GaussianTS
    from bftrainer.zeus.policies.pruning import PruningExploreManager
    from bftrainer.zeus.server.store import JobStore

__all__ = ["BanditStage", "PruningStage"]


class PruningStage:
    """What the pruning of jobs has found out.

    Parameters
    ----------
    service : JobStore
        Keeps jobs and trials.
    """

    def __init__(self, service: JobStore) -> None:
        self.service = service

    async def of(self, job_id: str) -> PruningExploreManager:
        """What explores a job's batch sizes, a copy of it: asking and telling it changes nothing on the server.

        Raises
        ------
        UnknownJobError
            If there is no such job.
        """
        tuned = await self.service.look(lambda transaction: transaction.tuned(job_id))
        return tuned.pruned.manager

    async def explorations(self, job_id: str) -> ExplorationsPerJob:
        """Results of a job's explorations.

        Raises
        ------
        UnknownJobError
            If there is no such job.
        """
        by_size: dict[int, list[TrialRow]] = {}
        for trial in await self.service.look(lambda transaction: transaction.explorations(job_id)):
            by_size.setdefault(trial.batch_size, []).append(trial)
        return ExplorationsPerJob(job_id=job_id, explorations_per_bs=by_size)


class BanditStage:
    """What the bandits of jobs believe.

    Parameters
    ----------
    service : JobStore
        Keeps jobs and trials.
    """

    name = "GaussianTS"

    def __init__(self, service: JobStore) -> None:
        self.service = service

    async def of(self, job_id: str) -> GaussianTS | None:
        """A job's bandit, a copy of it, or None while its batch sizes are pruned.

        Raises
        ------
        UnknownJobError
            If there is no such job.
        """
        tuned = await self.service.look(lambda transaction: transaction.tuned(job_id))
        return tuned.pruned.bandit

    async def arms(self, job_id: str) -> list[GaussianTsArmState]:
        """What the bandit believes of each batch size; nothing while batch sizes are pruned.

        Raises
        ------
        UnknownJobError
            If there is no such job.
        """
        bandit = await self.of(job_id)
        if bandit is None:
            return []
        return [
            GaussianTsArmState(
                job_id=job_id,
                batch_size=arm,
                param_mean=bandit.arm_param_mean[arm],
                param_precision=bandit.arm_param_prec[arm],
                reward_precision=bandit.arm_reward_prec[arm],
                num_observations=bandit.arm_num_observations[arm],
            )
            for arm in bandit.arms
        ]
