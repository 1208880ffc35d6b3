"""Upper confidence bounds: a bandit without draws, to compare Thompson sampling with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bftrainer.errors import AllPrunedError
from bftrainer.zeus.policies.interfaces import (
    BatchSizeOptimizer,
    check_cost,
    check_known,
    check_told,
    default_first,
    registered,
)
from bftrainer.zeus.policies.job import Job

__all__ = ["UCB"]


@dataclass(slots=True)
class _Arm:
    """Runs with one batch size: how many, how many reached the target, and what they cost in all."""

    plays: int = 0
    reached: int = 0
    spent_j: float = 0.0


@dataclass(slots=True)
class _Played:
    """A job's arms, and the extreme costs of its runs that reached the target."""

    arms: dict[int, _Arm]
    lowest_j: float = math.inf
    highest_j: float = -math.inf


class UCB(BatchSizeOptimizer):
    """UCB1 on costs: plays the batch size whose cost may be lowest, given how often it was played.

    An arm's cost is what its runs cost in all over the number that reached the target: what a success costs, failed
    tries included. The bound lies below it by ``R sqrt(2 ln t / n)`` after n of t runs in all, R being the range of the
    costs of runs that reached the target; so costs may be of any scale. Each arm is played once first, the default
    before the others, as the simulated job gives up if its first run fails. One that never reached its target is not
    played again; without failures this is UCB1.

    References
    ----------
    Auer, Cesa-Bianchi and Fischer, "Finite-time analysis of the multiarmed bandit problem", Machine Learning 47 (2002),
    figure 1. There, rewards lie in [0, 1]; the range in place of 1 and the cost of a success are ours.
    """

    def __init__(self) -> None:
        self._jobs: dict[Job, _Played] = {}

    @property
    def name(self) -> str:
        """Name of the policy."""
        return "UCB1 BSO"

    def register_job(self, job: Job, batch_sizes: Sequence[int]) -> None:
        """Make an arm of each batch size; a job that is known goes on as it was.

        Raises
        ------
        TuningInputError
            If the job's default batch size is missing or not among `batch_sizes`.
        """
        if job not in self._jobs:
            self._jobs[job] = _Played({size: _Arm() for size in default_first(job, batch_sizes)})

    def predict(self, job: Job) -> int:
        """The arm that was never played, then the one with the lowest bound; ties go to the first in that order.

        Raises
        ------
        AllPrunedError
            If all were played and none reached its target.
        """
        played = registered(self._jobs, job)
        for size, arm in played.arms.items():
            if not arm.plays:
                return size
        playable = {size: arm for size, arm in played.arms.items() if arm.reached}
        if not playable:
            raise AllPrunedError(f"{job}: Expected a batch size that converges, but all were tried and none did.")
        spread = played.highest_j - played.lowest_j
        twice_log = 2.0 * math.log(sum(arm.plays for arm in played.arms.values()))
        return min(
            playable,
            key=lambda size: (
                playable[size].spent_j / playable[size].reached - spread * math.sqrt(twice_log / playable[size].plays)
            ),
        )

    def observe(self, job: Job, batch_size: int, cost: float, converged: bool | None = None) -> None:
        """Learn from a run.

        Raises
        ------
        TuningInputError
            If the batch size is not one of the job's, the cost is not finite, or `converged` is None.
        """
        played = registered(self._jobs, job)
        check_known(job, batch_size, played.arms)
        check_cost(job, batch_size, cost)
        converged = check_told(job, batch_size, converged)
        arm = played.arms[batch_size]
        arm.plays += 1
        arm.spent_j += cost
        if converged:
            arm.reached += 1
            played.lowest_j, played.highest_j = min(played.lowest_j, cost), max(played.highest_j, cost)

    def to_dict(self) -> dict[str, Any]:
        """All state in plain values, fit for JSON; extreme costs are None before any."""
        return {
            "jobs": [
                {
                    "job": job.to_dict(),
                    "arms": [{"batch_size": size, **asdict(arm)} for size, arm in played.arms.items()],
                    "extremes_j": [played.lowest_j, played.highest_j] if played.lowest_j < math.inf else None,
                }
                for job, played in self._jobs.items()
            ]
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> UCB:
        """The optimizer whose `to_dict` gave `state`."""
        optimizer = cls()
        for entry in state["jobs"]:
            arms = {arm["batch_size"]: _Arm(arm["plays"], arm["reached"], arm["spent_j"]) for arm in entry["arms"]}
            optimizer._jobs[Job(**entry["job"])] = _Played(arms, *(entry["extremes_j"] or ()))
        return optimizer
