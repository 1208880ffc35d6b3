"""Decisions for one job on the server: the next trial's batch size, the verdict on a report, and learning from it.

Pure: no database and no clock. Pruning and bandit are those of the simulator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bftrainer.errors import AllPrunedError, LateTrialError, NothingConvergedError
from bftrainer.zeus.policies.bandit import RewardLog
from bftrainer.zeus.policies.job import zeus_cost
from bftrainer.zeus.policies.pruning import BanditSettings, PrunedBandit, PruningExploreManager
from bftrainer.zeus.server.messages import LenientJobSpec, LenientTrainingResult, ReportResponse
from bftrainer.zeus.server.state_messages import Arm


class Stage(StrEnum):
    """Stage of a job's tuning."""

    PRUNING = "Pruning"
    MAB = "MAB"
    # The published name of the member; the other enumerations have such names too.
    Pruning = PRUNING


class TrialType(StrEnum):
    """Why a trial got its batch size."""

    EXPLORATION = "Exploration"
    CONCURRENT = "Concurrent"
    MAB = "MAB"
    Exploration = EXPLORATION
    Concurrent = CONCURRENT


class TrialStatus(StrEnum):
    """Whether a trial is running, has a result, or was ended without one."""

    DISPATCHED = "Dispatched"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    Dispatched = DISPATCHED
    Succeeded = SUCCEEDED
    Failed = FAILED


@dataclass(slots=True)
class TunedJob:
    """A job and the state of its tuning.

    Parameters
    ----------
    spec : LenientJobSpec
        The job.
    seed : int
        Seed of the job's bandit.
    pruned : PrunedBandit
        State of the job's batch sizes.
    min_cost : float or None
        Cost in joules of the cheapest run so far.
    min_cost_batch_size : int
        Batch size of that run; the default before any run.
    exploring : int or None
        Number of the trial that pruning waits for.
    """

    spec: LenientJobSpec
    seed: int
    pruned: PrunedBandit
    min_cost: float | None
    min_cost_batch_size: int
    exploring: int | None = None

    @classmethod
    def new(cls, spec: LenientJobSpec, seed: int) -> TunedJob:
        """Make the state of a new job."""
        manager = PruningExploreManager(spec.batch_sizes, spec.default_batch_size, spec.num_pruning_rounds)
        pruned = PrunedBandit(spec.job_id, manager, _settings(spec, seed))
        return cls(spec, seed, pruned, None, spec.default_batch_size)

    @property
    def stage(self) -> Stage:
        """Whether batch sizes are still being pruned."""
        return Stage.PRUNING if self.pruned.bandit is None else Stage.MAB

    def choose(self, *, waiting: bool) -> tuple[int, TrialType]:
        """Choose the batch size of the next trial; also return why.

        Parameters
        ----------
        waiting : bool
            Whether the trial that pruning waits for is still running; if it was ended without a result, another trial
            takes its place.

        Raises
        ------
        NothingConvergedError
            If no batch size reached the target in a round of pruning.
        """
        manager = self.pruned.manager
        if self.stage is Stage.PRUNING and manager.expecting is not None:
            if waiting:
                return self.min_cost_batch_size, TrialType.CONCURRENT
            return manager.expecting, TrialType.EXPLORATION
        try:
            size = self.pruned.predict()
        except AllPrunedError:
            raise NothingConvergedError(
                "No converged batch sizes has observed. Reconfigure batch_sizes and re-launch the job."
            ) from None
        return size, TrialType.EXPLORATION if self.stage is Stage.PRUNING else TrialType.MAB

    def judge(self, result: LenientTrainingResult) -> tuple[ReportResponse, float]:
        """Judge a report: whether the run continues, has converged or failed; also return its cost so far in joules."""
        spec = self.spec
        cost = zeus_cost(result.energy, result.time, spec.eta_knob, spec.max_power)
        met = (
            result.metric >= spec.target_metric if spec.higher_is_better_metric else result.metric <= spec.target_metric
        )
        if spec.beta_knob is not None and self.min_cost is not None and cost > spec.beta_knob * self.min_cost:
            # The published message has this line break too.
            message = (
                f"Batch Size({result.batch_size}) exceeded the cost upper bound: current cost({cost}) >\n"
                f"{' ' * 20}beta_knob({spec.beta_knob})*min_cost({self.min_cost})"
            )
            return ReportResponse(stop_train=True, converged=False, message=message), cost
        if met:
            return ReportResponse(stop_train=True, converged=True, message="Train succeeded"), cost
        if result.current_epoch >= spec.max_epochs:
            message = f"Train failed to converge within max_epoch({spec.max_epochs})"
            return ReportResponse(stop_train=True, converged=False, message=message), cost
        return ReportResponse(stop_train=False, converged=False, message="Stop condition not met, keep training"), cost

    def learn(self, kind: TrialType, batch_size: int, cost_j: float, converged: bool, *, published: bool) -> None:
        """Learn from a trial that has ended.

        Parameters
        ----------
        kind : TrialType
            Why the trial got its batch size.
        batch_size : int
            Batch size of the trial.
        cost_j, converged : float and bool
            Cost of the trial, and whether it reached its target within its cost bound.
        published : bool
            Like the published server, let failed trials lower the bound too, and refuse concurrent ones that end late.

        Raises
        ------
        LateTrialError
            If `published` is true, and a concurrent trial from the pruning stage ends after that stage.
        """
        if published and kind is TrialType.CONCURRENT and self.stage is Stage.MAB:
            raise LateTrialError("Cannot update an arm since this trial is not issued from MAB stage.")
        exploration = kind is TrialType.EXPLORATION
        self.pruned.observe(batch_size, cost_j, converged, exploration=exploration)
        if exploration:
            self.exploring = None
        if (converged or published) and cost_j < (math.inf if self.min_cost is None else self.min_cost):
            self.min_cost, self.min_cost_batch_size = cost_j, batch_size

    def arms(self) -> list[Arm]:
        """List the bandit's arms."""
        bandit = self.pruned.bandit
        if bandit is None:
            return []
        rows = [(size, *bandit.beliefs[size].to_list()) for size in bandit.arms]
        return [Arm.model_validate(dict(zip(Arm.model_fields, row, strict=True))) for row in rows]

    def to_dict(self) -> dict[str, Any]:
        """Return the state that choices need besides the job and its cheapest run, as plain values for JSON."""
        return {"seed": self.seed, "exploring": self.exploring, "tuned": self.pruned.to_dict()}

    @classmethod
    def from_dict(
        cls,
        state: Mapping[str, Any],
        spec: LenientJobSpec,
        min_cost: float | None,
        min_cost_batch_size: int,
        rewards: dict[int, RewardLog] | None = None,
    ) -> TunedJob:
        """Restore a job from the state that `to_dict` returned; `rewards` are needed only to learn."""
        settings = _settings(spec, state["seed"])
        pruned = PrunedBandit.from_dict(state["tuned"], spec.job_id, settings, rewards)
        return cls(spec, state["seed"], pruned, min_cost, min_cost_batch_size, state["exploring"])


def _settings(spec: LenientJobSpec, seed: int) -> BanditSettings:
    return BanditSettings(
        prior_mean=spec.mab_prior_mean,
        prior_precision=spec.mab_prior_precision,
        window_size=max(0, spec.window_size),
        num_exploration=spec.mab_num_explorations,
        seed=seed,
        verbose=False,
        explorations_alone=True,
    )
