"""Data classes with the names of the published server, for code that was written for it.

`PruningStage` and `BanditStage` return the classes that describe stored state (`JobState`, `ExplorationsPerJob`,
`GaussianTsArmState`). Classes that describe a change (`CreateJob`, `CreateTrial`, `UpdateTrial` and the like) check
their fields as published, but the store here takes none of them: transactions have methods of their own.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from numpy.random import default_rng
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from bftrainer.zeus.server.messages import (
    Counted,
    JobSpec,
    LenientJobSpec,
    LenientTrialId,
    LenientTuningParams,
    TrialId,
)
from bftrainer.zeus.server.state_messages import TrialRow
from bftrainer.zeus.server.tuned_job import Stage, TrialStatus, TrialType

if TYPE_CHECKING:
    from bftrainer.zeus.policies.bandit import GaussianTS
    from bftrainer.zeus.policies.pruning import PrunedBandit, PruningExploreManager
    from bftrainer.zeus.server.store import JobStore

__all__ = [
    "DELETE_JOB_URL",
    "GET_NEXT_BATCH_SIZE_URL",
    "REGISTER_JOB_URL",
    "REPORT_END_URL",
    "REPORT_RESULT_URL",
    "BanditStage",
    "BatchSizeBase",
    "CreateArms",
    "CreateConcurrentTrial",
    "CreateExplorationTrial",
    "CreateJob",
    "CreateMabTrial",
    "CreateTrial",
    "CreateTrialBase",
    "CreatedJob",
    "ExplorationsPerJob",
    "GaussianTsArmState",
    "GetNormal",
    "GetRandomChoices",
    "JobParams",
    "JobSpecFromClient",
    "JobState",
    "PruningStage",
    "ReadTrial",
    "TrialResultsPerBs",
    "UpdateExpDefaultBs",
    "UpdateGeneratorState",
    "UpdateJobMinCost",
    "UpdateJobStage",
    "UpdateTrial",
]

REGISTER_JOB_URL = DELETE_JOB_URL = "/jobs"
GET_NEXT_BATCH_SIZE_URL = "/jobs/batch_size"
REPORT_RESULT_URL = "/report"
REPORT_END_URL = "/trials"

# Classes that have the same fields and checks here.
JobSpecFromClient = JobSpec
ReadTrial = TrialId


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


def _check_generator_state(state: str) -> str:
    """Refuse text that is not the state of NumPy's default generator as JSON."""
    try:
        value: Any = json.loads(state)
        default_rng(0).bit_generator.state = value
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError):
        raise ValueError(f"Expected the state of a generator as JSON, got {state[:80]!r}.") from None
    return state


_GeneratorState = Annotated[str, AfterValidator(_check_generator_state)]


class JobParams(LenientTuningParams):
    """How a registered job is tuned: as `LenientTuningParams`, with its name."""

    job_id: str


class CreatedJob(LenientJobSpec):
    """A job as it is registered: as `JobSpec`, with its name."""

    job_id: str


class JobState(CreatedJob):
    """A job, and where its tuning stands.

    Parameters
    ----------
    exp_default_batch_size : int
        Batch size that the round of pruning starts at.
    stage : Stage
        Pruning, or MAB once the bandit plays.
    min_cost, min_cost_batch_size : float or None, and int
        Cost in joules of the cheapest run so far, and its batch size; at first the default.
    mab_random_generator_state : str or None
        State of the bandit's generator, as JSON.
    """

    exp_default_batch_size: Counted
    stage: Stage = Stage.PRUNING
    min_cost: float | None = Field(None, ge=0)
    min_cost_batch_size: Counted
    mab_random_generator_state: _GeneratorState | None = None


class CreateJob(JobState):
    """A new job, without any result."""

    stage: Literal[Stage.PRUNING] = Stage.PRUNING
    min_cost: None = None

    @classmethod
    def from_job_config(cls, spec: LenientJobSpec) -> CreateJob:
        """A job as it is first registered; `spec` must have its name."""
        default = spec.default_batch_size
        return cls(**spec.model_dump(), exp_default_batch_size=default, min_cost_batch_size=default)


class UpdateExpDefaultBs(_Frozen):
    """Set the batch size at which a job's next round of pruning starts."""

    job_id: str
    exp_default_batch_size: Counted


class UpdateJobStage(_Frozen):
    """End a job's pruning; there is no way back."""

    job_id: str
    stage: Literal[Stage.MAB] = Stage.MAB


class UpdateGeneratorState(_Frozen):
    """Store the state of a job's generator, given as JSON."""

    job_id: str
    state: _GeneratorState


class UpdateJobMinCost(_Frozen):
    """Store a job's lowest cost (J), and the batch size of that run."""

    job_id: str
    min_cost: float = Field(ge=0)
    min_cost_batch_size: Counted


class BatchSizeBase(_Frozen):
    """A batch size of a job."""

    job_id: str
    batch_size: Counted


class CreateTrialBase(BatchSizeBase):
    """A trial that is handed out."""

    type: TrialType
    start_timestamp: datetime = Field(default_factory=lambda: datetime.now(UTC))
    status: Literal[TrialStatus.DISPATCHED] = TrialStatus.DISPATCHED


class CreateTrial(CreateTrialBase):
    """A trial that is handed out, with its number."""

    trial_number: Counted


class CreateExplorationTrial(CreateTrialBase):
    """A trial that the pruning asks for."""

    type: Literal[TrialType.EXPLORATION] = TrialType.EXPLORATION


class CreateConcurrentTrial(CreateTrialBase):
    """A trial that runs beside the one that the pruning waits for."""

    type: Literal[TrialType.CONCURRENT] = TrialType.CONCURRENT


class CreateMabTrial(CreateTrialBase):
    """A trial whose batch size the bandit chose."""

    type: Literal[TrialType.MAB] = TrialType.MAB


class UpdateTrial(TrialId):
    """The end of a trial: with a result if it has succeeded, without one if it has failed."""

    end_timestamp: datetime = Field(default_factory=lambda: datetime.now(UTC))
    status: Literal[TrialStatus.SUCCEEDED, TrialStatus.FAILED]
    time: float | None = Field(None, ge=0)
    energy: float | None = Field(None, ge=0)
    converged: bool | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        missing = [name for name in ("time", "energy", "converged") if getattr(self, name) is None]
        if self.status is TrialStatus.SUCCEEDED and missing:
            raise ValueError(f"Missing {', '.join(missing)} of a trial that has succeeded.")
        return self


class TrialResultsPerBs(BatchSizeBase):
    """Results of a job at one batch size, by trial number."""

    results: list[TrialRow]

    @model_validator(mode="after")
    def _check_trials(self) -> Self:
        _check_results(self.job_id, self.batch_size, self.results)
        return self


class ExplorationsPerJob(_Frozen):
    """Results of a job's explorations by batch size, each by trial number."""

    job_id: str
    explorations_per_bs: dict[int, list[TrialRow]]

    @model_validator(mode="after")
    def _check_trials(self) -> Self:
        for size, results in self.explorations_per_bs.items():
            _check_results(self.job_id, size, results)
        return self


class GaussianTsArmState(BatchSizeBase):
    """The bandit's belief about a batch size's mean reward, the negative cost.

    Parameters
    ----------
    param_mean, param_precision : float
        Of the belief.
    reward_precision : float
        Of single rewards; infinite if they never vary, and then that of the belief too.
    num_observations : int
        Results that the belief rests on.
    """

    param_mean: float
    param_precision: float
    reward_precision: float
    num_observations: int = Field(ge=0)


class GetRandomChoices(_Frozen):
    """Draw an order of `choices` from a job's generator."""

    job_id: str
    choices: list[int]


class GetNormal(_Frozen):
    """Draw from a normal distribution with a job's generator."""

    job_id: str
    loc: float
    scale: float = Field(ge=0)


class CreateArms(_Frozen):
    """Make the arms of a job's bandit, on behalf of a trial."""

    trial: LenientTrialId
    arm_states: list[GaussianTsArmState]


def _check_results(job_id: str, size: int, results: list[TrialRow]) -> None:
    for trial in results:
        if (trial.job_id, trial.batch_size) != (job_id, size):
            raise ValueError(
                f"Expected results of {job_id} at batch size {size}, got one of {trial.job_id} at {trial.batch_size}."
            )
        if trial.status != TrialStatus.SUCCEEDED:
            raise ValueError(f"Expected trials that have succeeded, got {trial.trial_number}, {trial.status}.")


class _View:
    """Shows copies of what tunes jobs; using them changes nothing on the server.

    Parameters
    ----------
    service : JobStore
        Keeps jobs and trials.

    Raises
    ------
    UnknownJobError
        By all methods, if there is no such job.
    """

    def __init__(self, service: JobStore) -> None:
        self.service = service

    async def _pruned(self, job_id: str) -> PrunedBandit:
        return (await self.service.look(lambda transaction: transaction.tuned(job_id))).pruned


class PruningStage(_View):
    """Results of the pruning of jobs."""

    async def of(self, job_id: str) -> PruningExploreManager:
        """A copy of the manager that explores a job's batch sizes."""
        return (await self._pruned(job_id)).manager

    async def explorations(self, job_id: str) -> ExplorationsPerJob:
        """Results of a job's explorations."""
        by_size: dict[int, list[TrialRow]] = {}
        for trial in await self.service.look(lambda transaction: transaction.explorations(job_id)):
            by_size.setdefault(trial.batch_size, []).append(trial)
        return ExplorationsPerJob(job_id=job_id, explorations_per_bs=by_size)


class BanditStage(_View):
    """Bandits of jobs, and what they believe; there is neither while batch sizes are pruned."""

    name = "GaussianTS"

    async def of(self, job_id: str) -> GaussianTS | None:
        """A copy of a job's bandit."""
        return (await self._pruned(job_id)).bandit

    async def arms(self, job_id: str) -> list[GaussianTsArmState]:
        """The bandit's belief about each batch size."""
        bandit = await self.of(job_id)
        if bandit is None:
            return []
        beliefs = [(arm, bandit.beliefs[arm]) for arm in bandit.arms]
        return [
            GaussianTsArmState(
                job_id=job_id,
                batch_size=arm,
                param_mean=belief.mean,
                param_precision=belief.precision,
                reward_precision=belief.reward_precision,
                num_observations=belief.observations,
            )
            for arm, belief in beliefs
        ]
