"""Messages between client and server: jobs, trials, results, verdicts, and the state of tuning.

The server reads them as leniently as the published one: fractions of whole numbers are cut off, unknown fields ignored.
A program that makes one, such as our client's user, is told of both; `check` refuses values that mean nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticKnownError

from bftrainer.errors import TuningInputError, UnusableValueError, suggestion
from bftrainer.model.type_checks import fault_text

# Names are keys of a database, whose indexes are limited in length.
NAME_LENGTH = 400
# Whole numbers that every database holds.
LARGEST, LARGEST_SEED = 2**31 - 1, 2**63 - 1
# Far beyond any measurement, and small enough that squares of costs do not overflow.
LARGEST_MEASURE = 1e50
# Seconds without a sign of life after which an exploration is handed out again: usually, and a week at most.
LEASE_S, LONGEST_LEASE_S = 300.0, 604_800.0
# Context of the validation of what a program makes.
_MADE = {"made": True}


def _read_whole(value: Any, info: ValidationInfo) -> Any:
    """Cut off fractions, on which clients may rely: 12.9 epochs are 12; what a program makes has none."""
    if info.context is _MADE:
        if isinstance(value, bool):
            raise PydanticKnownError("int_type")
        return value
    return int(value) if isinstance(value, float) and math.isfinite(value) else value


# Least and most of each number, by the name of its field in all messages.
_LIMITS = {
    **dict.fromkeys(("batch_sizes", "max_epochs", "number_of_gpus", "batch_size", "trial_number"), (1, LARGEST)),
    **dict.fromkeys(("num_pruning_rounds", "window_size", "mab_num_explorations", "current_epoch"), (0, LARGEST)),
    **dict.fromkeys(("target_metric", "beta_knob"), (-math.inf, math.inf)),
    **dict.fromkeys(("mab_prior_precision", "max_power", "time", "energy"), (0, LARGEST_MEASURE)),
    "mab_prior_mean": (-LARGEST_MEASURE, LARGEST_MEASURE),
    "mab_seed": (0, LARGEST_SEED),
}
Whole = Annotated[int, BeforeValidator(_read_whole)]
# PostgreSQL holds no NUL.
Name = Annotated[str, Field(max_length=NAME_LENGTH, pattern=r"^[^\x00]*$")]


class WireModel(BaseModel):
    """A message; names may be numbers. A program that makes it of unusable values is told by `TuningInputError`."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True, frozen=True)

    def __init__(self, **values: Any) -> None:
        where, field_names = type(self).__name__, type(self).model_fields
        for name in values:
            if name not in field_names:
                raise TuningInputError(f"{where}: Unknown field {name!r}.{suggestion(name, field_names)}")
        try:
            self.__pydantic_validator__.validate_python(values, self_instance=self, context=_MADE)
            self.check()
        except ValidationError as error:
            raise TuningInputError(f"{where}: {fault_text(error)}") from None
        except UnusableValueError as error:
            raise TuningInputError(f"{where}: {error.field}: {error}") from None

    # So that pydantic does not call it for what it reads.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def check(self, *skipped: str) -> None:
        """Raise `UnusableValueError` for a field, not skipped, that means nothing or that no database holds."""
        for name, (least, most) in _LIMITS.items():
            value = self.__dict__.get(name)
            for number in value if isinstance(value, list) else [value]:
                if number is None or name in skipped or (least <= number <= most and abs(number) != math.inf):
                    continue
                expected = f"less than or equal to {most}" if number > most else f"greater than or equal to {least}"
                if number != number or most == math.inf:
                    expected = "a finite number"
                raise UnusableValueError(f"Input should be {expected}, got {number}.", name)


class GpuConfig(WireModel):
    """The GPUs that a job runs on."""

    max_power: float = Field(gt=0)  # limits of all of them together, in watts
    number_of_gpus: Whole = Field(gt=0)
    gpu_model: Name = Field(min_length=1)


class TuningParams(WireModel):
    """How a job is tuned, whatever it runs on.

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

    job_id: Name | None = None
    job_id_prefix: Annotated[Name, Field(max_length=NAME_LENGTH - 9)]  # a name that is made from it is longer
    batch_sizes: Annotated[list[Whole], AfterValidator(sorted)] = Field(min_length=1, max_length=10_000)
    default_batch_size: Whole = Field(gt=0)
    eta_knob: float = Field(default=0.5, ge=0, le=1)
    beta_knob: float | None = Field(default=2.0, gt=0)
    target_metric: float = 0.5
    higher_is_better_metric: bool = True
    max_epochs: Whole = Field(default=100, gt=0)
    num_pruning_rounds: Whole = Field(default=2, ge=0)
    window_size: Whole = 0
    mab_prior_mean: float = 0.0
    mab_prior_precision: float = 0.0
    mab_num_explorations: Whole = Field(default=2, ge=0)
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

    def check(self, *skipped: str) -> None:
        """Refuse values that mean nothing; see `WireModel.check`."""
        super().check(*skipped)
        if len(set(self.batch_sizes)) < len(self.batch_sizes):
            raise UnusableValueError(
                f"Expected each batch size once, got {abbreviate(self.batch_sizes)}.", "batch_sizes"
            )


class JobSpec(TuningParams, GpuConfig):
    """A recurring job, with the fields of `GpuConfig` and `TuningParams`."""


class TrialId(WireModel):
    """A trial of a job: one run that was given a batch size."""

    job_id: Name
    batch_size: Whole
    trial_number: Whole


class TrainingResult(TrialId):
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


class TrialVoid(WireModel):
    """A trial that shall count for nothing, as if it had never been, and why."""

    job_id: Name
    trial_number: Whole = Field(ge=1, le=LARGEST)
    reason: Annotated[str, Field(min_length=1, max_length=1_000, pattern=r"^[^\x00]*$")]


class ReportResponse(WireModel):
    """The server's verdict on a report: whether to stop, whether the target was reached, and why."""

    stop_train: bool
    converged: bool
    message: str


class Message(WireModel):
    """What went wrong."""

    message: str


class Arm(WireModel):
    """A batch size that the bandit plays, and its belief about the mean reward, the negative cost in joules."""

    batch_size: int
    mean: float | None  # None where nothing is known
    precision: float | None  # None where all is certain
    reward_precision: float | None
    observations: int  # results that the belief rests on

    @property
    def mean_j(self) -> float | None:
        """Expected mean cost in joules; None where nothing is known."""
        return None if self.mean is None or self.precision == 0 else -self.mean

    @property
    def deviation_j(self) -> float | None:
        """Standard deviation of the belief about the mean cost; None where nothing is known."""
        return None if self.mean_j is None else 0.0 if self.precision is None else self.precision**-0.5


@dataclass(slots=True)
class TrialRow:
    """A trial, in the server's table, in its memory and in its answers; times are seconds since 1970."""

    job_id: str
    batch_size: int
    trial_number: int
    type: str  # Exploration, Concurrent or MAB
    status: str  # Dispatched, Succeeded (it has a result) or Failed (it was ended without one)
    started: float
    ended: float | None = None
    time: float | None = None  # seconds and joules of its latest report, which has its result at last
    energy: float | None = None
    cost: float | None = None  # joules
    converged: bool | None = None  # whether it reached the target within its bound
    observation: int | None = None  # which result of the job this was, from 1
    heard: float | None = None  # when it last showed that it was running
    lease_s: float | None = None  # seconds of silence after which it may be handed out again; None: the time-out
    excluded: str | None = None  # why it counts for nothing, however it ended: Voided
    epoch: int | None = None  # of its latest report
    metric: float | None = None  # of its latest report; None if that was not a number
    results_before: int = 0  # that the job had when it was handed out: the order of all that happened
    request_id: str | None = None  # that it was handed out on
    asked_by: str | None = None  # name of the user who sent that
    refused: bool = False  # whether its latest report could not be true

    @property
    def counts(self) -> bool:
        """Whether it has a result that counts."""
        return self.cost is not None and self.excluded is None


# Fields of a trial that are nobody's business but the server's.
PRIVATE_FIELDS = frozenset({"results_before", "request_id", "asked_by", "refused"})


class JobSummary(WireModel):
    """A job, and the state of its tuning."""

    spec: JobSpec
    owner: str | None = None  # name of the user whose job it is; None: nobody's
    stage: str  # Pruning, or MAB once the bandit plays
    registered: float  # seconds since 1970
    trials: int  # handed out, and those with a result: also those that count for nothing
    observations: int
    min_cost: float | None  # of the cheapest run so far, in joules
    min_cost_batch_size: int
    exploring: int | None  # batch size that the pruning waits for
    remaining: list[int]  # batch sizes that are not pruned
    arms: list[Arm]  # the bandit's; none while batch sizes are pruned


# Longer lists of numbers are abbreviated.
_FEW = 16


def abbreviate(numbers: Sequence[int], between: str = ", ") -> str:
    """List numbers; of many only the first ones, the last, and how many there are."""
    if len(numbers) <= _FEW:
        return between.join(map(str, numbers))
    first = between.join(map(str, numbers[: _FEW - 2]))
    return f"{first}{between}...{between}{numbers[-1]} ({len(numbers):,} in all)"
