"""Messages between client and server, validated when read: jobs, trials, results, verdicts, and the state of tuning."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from bftrainer.errors import TuningInputError, escaped, legible, suggestion
from bftrainer.files.documents import fault_text

# Names are keys of a database, whose indexes are limited in length.
NAME_LENGTH = 400
# Whole numbers that every database holds.
LARGEST = 2**31 - 1
LARGEST_SEED = 2**63 - 1
# Far beyond any measurement, and small enough that squares of costs do not overflow.
LARGEST_MEASURE, LARGEST_COST_J = 1e50, 1e100
# A week.
LONGEST_LEASE_S = 604_800.0


def _truncated(value: Any) -> Any:
    """Cut off fractions, as clients may rely on it: 12.9 epochs are 12."""
    return int(value) if isinstance(value, float) and math.isfinite(value) else value


def _counting(value: Any) -> Any:
    """Refuse what counts nothing: pydantic takes true for 1; fractions it refuses by itself."""
    if isinstance(value, bool):
        raise PydanticKnownError("int_type")
    return value


Whole = Annotated[int, BeforeValidator(_truncated)]
Natural = Annotated[int, BeforeValidator(_counting), Field(ge=0, le=LARGEST)]
Counted = Annotated[int, BeforeValidator(_counting), Field(ge=1, le=LARGEST)]

_TRIAL_EXAMPLE: dict[str, JsonValue] = {"job_id": "bert-finetuning", "batch_size": 16, "trial_number": 1}


class WireModel(BaseModel):
    """A message: unknown fields are ignored, names may be numbers."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True, frozen=True)


class _Strict(BaseModel):
    """Refuses fields that it does not know, and says which is meant."""

    model_config = ConfigDict(extra="forbid")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise TuningInputError(f"{type(self).__name__}: {fault_text(error)}") from None

    # So that pydantic does not call it for what it reads: a server answers all faults of a request.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, value: Any) -> Any:
        for name in value if isinstance(value, Mapping) else ():
            if name not in cls.model_fields:
                near = suggestion(str(name), cls.model_fields)
                why = legible(f"Unknown field {name!r}.{near}")
                raise PydanticCustomError("extra_forbidden", "{why}", {"why": why, "field": escaped(str(name))})
        return value


class GpuConfig(WireModel):
    """The GPUs that a job runs on.

    Parameters
    ----------
    max_power : float
        Power limits of all the job's GPUs together, in watts.
    number_of_gpus, gpu_model : int and str
        How many, and which.
    """

    max_power: float = Field(gt=0)
    number_of_gpus: Whole = Field(gt=0)
    gpu_model: str = Field(min_length=1)


class LenientTuningParams(WireModel):
    """How a job is tuned, whatever it runs on; unknown fields are ignored.

    Parameters
    ----------
    job_id : str, optional
        Name of the job, which starts with `job_id_prefix`; without one the server makes it from the prefix.
    batch_sizes, default_batch_size : list of int and int
        Batch sizes to choose from; the one to start with is among them.
    eta_knob : float
        Weight of energy against time in costs, 0 to 1.
    beta_knob : float or None
        A run stops when it costs more than this many times the cheapest one; None: never.
    target_metric, higher_is_better_metric, max_epochs : float, bool and int
        When a run has converged, and when it has failed.
    num_pruning_rounds, window_size, mab_prior_mean, mab_prior_precision, mab_num_explorations, mab_seed
        Settings of the pruning, and of the bandit that plays what is left; a window of 0 means all results.
    """

    job_id: str | None = None
    job_id_prefix: str
    batch_sizes: Annotated[list[Whole], AfterValidator(sorted)] = Field(min_length=1)
    default_batch_size: Whole = Field(gt=0)
    eta_knob: float = Field(0.5, ge=0, le=1)
    beta_knob: float | None = Field(2.0, gt=0)
    target_metric: float = 0.5
    higher_is_better_metric: bool = True
    max_epochs: Whole = Field(100, gt=0)
    num_pruning_rounds: Whole = Field(2, ge=0)
    window_size: Whole = 0
    mab_prior_mean: float = 0.0
    mab_prior_precision: float = 0.0
    mab_num_explorations: Whole = Field(2, ge=0)
    mab_seed: Whole | None = None

    @model_validator(mode="after")
    def _check_choices(self) -> Self:
        if self.default_batch_size not in self.batch_sizes:
            raise ValueError(
                f"Expected default_batch_size among batch_sizes {self.batch_sizes}, got {self.default_batch_size}."
            )
        if self.job_id is not None and not self.job_id.startswith(self.job_id_prefix):
            raise ValueError(
                f"Expected job_id to start with job_id_prefix {self.job_id_prefix!r}, got {self.job_id!r}."
            )
        return self


class TuningParams(LenientTuningParams, _Strict):
    """How a job is tuned, whatever it runs on: fields of `LenientTuningParams`; senseless values are refused."""

    model_config = ConfigDict(allow_inf_nan=False)

    job_id: Annotated[str, Field(max_length=NAME_LENGTH)] | None = None
    # A generated name is nine characters longer than its prefix.
    job_id_prefix: str = Field(max_length=NAME_LENGTH - 9)
    batch_sizes: Annotated[list[Counted], AfterValidator(sorted)] = Field(min_length=1, max_length=10_000)
    default_batch_size: Counted
    max_epochs: Counted = 100
    num_pruning_rounds: Natural = 2
    window_size: Natural = 0
    mab_prior_mean: float = Field(0.0, ge=-LARGEST_MEASURE, le=LARGEST_MEASURE)
    mab_prior_precision: float = Field(0.0, ge=0, le=LARGEST_MEASURE)
    mab_num_explorations: Natural = 2
    mab_seed: Annotated[int, BeforeValidator(_counting), Field(ge=0, le=LARGEST_SEED)] | None = None

    @field_validator("job_id", "job_id_prefix", "gpu_model", check_fields=False)
    @classmethod
    def _check_text(cls, text: str | None) -> str | None:
        if text is not None and "\0" in text:
            raise ValueError("Expected text without the character NUL.")
        return text

    @field_validator("batch_sizes")
    @classmethod
    def _check_repeats(cls, sizes: list[int]) -> list[int]:
        (size, times), *_ = Counter(sizes).most_common(1)
        if times > 1:
            raise ValueError(f"Expected each batch size once, got {size} {times} times.")
        return sizes


_SPEC_EXAMPLE: dict[str, JsonValue] = (
    {name: field.default for name, field in TuningParams.model_fields.items()}
    | {"job_id": "bert-finetuning", "job_id_prefix": "bert", "batch_sizes": [8, 16, 32, 64], "default_batch_size": 16}
    | {"target_metric": 0.84, "max_epochs": 20, "mab_seed": 1}
    | {"max_power": 1200.0, "number_of_gpus": 4, "gpu_model": "V100"}
)


class LenientJobSpec(LenientTuningParams, GpuConfig):
    """A recurring job, its GPUs and how it is tuned, checked as little as by the published server."""


class JobSpec(TuningParams, LenientJobSpec):
    """A recurring job, with the fields of `GpuConfig` and `LenientTuningParams`; senseless values are refused."""

    model_config = ConfigDict(json_schema_extra={"examples": [_SPEC_EXAMPLE]})

    max_power: float = Field(gt=0, le=LARGEST_MEASURE)
    number_of_gpus: Counted
    gpu_model: str = Field(min_length=1, max_length=NAME_LENGTH)


class LenientTrialId(WireModel):
    """A trial of a job: one run that was given a batch size."""

    job_id: str
    batch_size: Whole
    trial_number: Whole


class TrialId(LenientTrialId, _Strict):
    """A trial of a job: one run that was given a batch size."""

    model_config = ConfigDict(json_schema_extra={"examples": [_TRIAL_EXAMPLE]})

    batch_size: Counted
    trial_number: Counted


class LenientTrainingResult(LenientTrialId):
    """What a run has used and reached by the end of an epoch.

    Parameters
    ----------
    time, energy : float
        Seconds and joules since the run began.
    metric : float
        Validation metric after `current_epoch`. NaN, the metric of a run that diverged, never converges; nor does
        infinity, except on a server that answers as the published one.
    current_epoch : int
        Epochs done.
    """

    time: float
    energy: float
    metric: float
    current_epoch: Whole


class TrainingResult(LenientTrainingResult, _Strict):
    """What a run has used and reached by the end of an epoch."""

    __doc__ = f"{LenientTrainingResult.__doc__}"

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [_TRIAL_EXAMPLE | {"time": 812.5, "energy": 640123.0, "metric": 0.71, "current_epoch": 3}]
        }
    )

    batch_size: Counted
    trial_number: Counted
    time: float = Field(ge=0, le=LARGEST_MEASURE, allow_inf_nan=False)
    energy: float = Field(ge=0, le=LARGEST_MEASURE, allow_inf_nan=False)
    current_epoch: Annotated[Whole, Field(ge=0, le=LARGEST)]

    @field_validator("metric")
    @classmethod
    def _without_infinity(cls, metric: float) -> float:
        # An infinite loss, or the result of a division by 0: no target was reached.
        return metric if math.isfinite(metric) else math.nan


class TrialVoid(WireModel, _Strict):
    """A trial that shall count for nothing, as if it had never been, and why."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"job_id": "bert-finetuning", "trial_number": 1, "reason": "wrong meter"}]},
    )

    job_id: str = Field(max_length=NAME_LENGTH)
    trial_number: Counted
    reason: str = Field(min_length=1, max_length=1_000)


class ReportResponse(WireModel):
    """The server's verdict on a report: whether to stop, whether the target was reached, and why."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"stop_train": True, "converged": True, "message": "Train succeeded"}]}
    )

    stop_train: bool
    converged: bool
    message: str


class Message(WireModel):
    """What went wrong."""

    message: str


# --- what is kept, and shown of it --------------------------------------------------------------------------------


class Arm(WireModel):
    """A batch size that the bandit plays, and its belief about the mean reward, the negative cost in joules.

    Parameters
    ----------
    mean, precision, reward_precision : float or None
        None where nothing is known (mean) or all is certain (precisions).
    observations : int
        Results that the belief rests on.
    """

    batch_size: int
    mean: float | None
    precision: float | None
    reward_precision: float | None
    observations: int

    @property
    def mean_j(self) -> float | None:
        """Expected mean cost in joules; None where nothing is known."""
        return None if self.mean is None or self.precision == 0 else -self.mean

    @property
    def half_width_j(self) -> float:
        """Half of the 95 % interval of the mean cost."""
        return 0.0 if self.precision is None else 1.959964 * math.sqrt(1.0 / self.precision)


@dataclass(slots=True)
class TrialRow:
    """A trial as the server answers it.

    Parameters
    ----------
    type : str
        Exploration, Concurrent or MAB.
    status : str
        Dispatched, Succeeded (it has a result) or Failed (it was ended without one).
    started, ended : float or None
        Seconds since 1970.
    time, energy, cost : float or None
        Seconds, joules and cost in joules of its result.
    converged : bool or None
        Whether it reached its target within its bound.
    observation : int or None
        Which result of the job this was, from 1.
    heard : float or None
        When it last showed that it was running, in seconds since 1970.
    lease_s : float or None
        Seconds of silence after which an exploration may be handed out again; None: the server's time-out.
    excluded : str or None
        Why it counts for nothing, however it ended: Voided, or Archived by an earlier version.
    inherited : bool
        Whether an earlier version took it over from another job, with its costs translated.
    """

    job_id: str
    batch_size: int
    trial_number: int
    type: str
    status: str
    started: float
    ended: float | None = None
    time: float | None = None
    energy: float | None = None
    cost: float | None = None
    converged: bool | None = None
    observation: int | None = None
    heard: float | None = None
    lease_s: float | None = None
    excluded: str | None = None
    inherited: bool = False

    @property
    def counts(self) -> bool:
        """Whether it has a result of the job's own that counts."""
        return self.cost is not None and self.excluded is None and not self.inherited


@dataclass(slots=True)
class StoredTrial(TrialRow):
    """A trial as a row of the server's table and in its memory; time and energy are those of the latest report.

    Parameters
    ----------
    epoch, metric : float or None
        By its latest report; a metric that is not a number is None.
    results_before : int
        Results that the job had when the trial was handed out: the order of all that happened to it.
    request_id, asked_by : str or None
        The request that it was handed out on, and the name of the user who sent that.
    refused : bool
        Whether its latest report could not be true.
    """

    epoch: int | None = None
    metric: float | None = None
    results_before: int = 0
    request_id: str | None = None
    asked_by: str | None = None
    refused: bool = False


class JobSummary(WireModel):
    """A job, and the state of its tuning.

    Parameters
    ----------
    owner : str or None
        Name of the user whose job it is; None: nobody's.
    stage : str
        Pruning, or MAB once the bandit plays.
    trials, observations : int
        Trials handed out, and those with a result: all that ever were, also those that count for nothing.
    min_cost, min_cost_batch_size : float or None, and int
        The cheapest run so far.
    exploring : int or None
        Batch size that the pruning waits for.
    remaining : list of int
        Batch sizes that are not pruned.
    arms : list of Arm
        The bandit's; empty while batch sizes are pruned.
    """

    spec: LenientJobSpec
    owner: str | None = None
    stage: str
    registered: float
    trials: int
    observations: int
    min_cost: float | None
    min_cost_batch_size: int
    exploring: int | None
    remaining: list[int]
    arms: list[Arm]


class JobVoided(JobSummary):
    """A job after a trial of it was voided.

    Parameters
    ----------
    changed : bool
        False: the trial was voided before, and nothing was done.
    stopped : list of int
        Trials that the voided trial's cost stopped, and that what is left would not have: they still count as missing
        the target, unless they are voided too.
    """

    changed: bool
    stopped: list[int]


class Fault(WireModel):
    """One invalid field of a request."""

    loc: list[str | int]
    msg: str
    type: str


class Invalid(WireModel):
    """Why a request is invalid: field by field, or in one sentence."""

    detail: list[Fault] | None = None
    message: str | None = None


# Longer lists of numbers are abbreviated.
FEW = 16


def few(numbers: Sequence[int], between: str = ", ") -> str:
    """List numbers; of many only the first ones, the last, and how many there are."""
    if len(numbers) <= FEW:
        return between.join(map(str, numbers))
    first, last = numbers[: FEW - 2], numbers[-1]
    return f"{between.join(map(str, first))}{between}...{between}{last} ({len(numbers):,} in all)"
