"""Schemas of the master's files. Import it late: pydantic takes its time to load."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bftrainer.zeus.simulation.schema import JobTable, KeptJob

__all__ = [
    "BookedRow",
    "JobFile",
    "JournalDocument",
    "LaunchRow",
    "LaunchedJob",
    "MadeTable",
    "PlanTable",
    "ProgressTable",
    "SettingsTable",
]

_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_Number = Annotated[int, Field(ge=1)]
_Amount = Annotated[float, Field(ge=0)]


class PlanTable(BaseModel):
    """A plan as the journal has it; `beta_knob` null is infinity."""

    model_config = _STRICT

    job: KeptJob
    recurrences: Annotated[int, Field(ge=0)]
    batch_sizes: list[int]
    beta_knob: float | None
    eta_knob: float
    seed: int
    workdir: str


class SettingsTable(BaseModel):
    """How runs are made."""

    model_config = _STRICT

    monitor_path: str
    max_power_w: float
    gpus: int
    observer_mode: bool
    profile_warmup_iters: int
    profile_measure_iters: int
    set_power_limits: bool
    measure: str
    timeout_s: float | None
    grace_s: float


class LaunchRow(BaseModel):
    """A run to be made."""

    model_config = _STRICT

    recurrence: _Number
    attempt: _Number
    batch_size: _Number
    learning_rate: float
    seed: int
    trial: int | None


class BookedRow(BaseModel):
    """A run that was made."""

    model_config = _STRICT

    launch: LaunchRow
    energy_j: _Amount
    time_s: _Amount
    reached: bool
    cost_j: _Amount
    failure: str | None


class MadeTable(BaseModel):
    """What a run did that is not booked yet."""

    model_config = _STRICT

    energy_j: _Amount
    time_s: _Amount
    reached: bool
    failure: str | None


class ProgressTable(BaseModel):
    """Where a job stands; costs that are null are infinite."""

    model_config = _STRICT

    recurrence: _Number
    attempt: _Number
    seed: int
    min_cost_j: _Amount | None
    others_cost_j: _Amount | None
    spent_j: _Amount
    pending: LaunchRow | None
    made: MadeTable | None
    booked: list[BookedRow]
    failure: str | None


class JournalDocument(BaseModel):
    """A journal; the policy's state is for the policy to judge."""

    model_config = _STRICT

    schema_: Annotated[Literal[1], Field(alias="schema")]
    plan: PlanTable
    settings: SettingsTable
    policy: dict[str, Any] | None
    progress: ProgressTable


class LaunchedJob(JobTable):
    """The job of a job file: how it is launched has to be said."""

    default_bs: int
    default_lr: float
    workdir: str = "."
    command: Annotated[list[str], Field(min_length=1)]


class JobFile(BaseModel):
    """A job file: a job that recurs, and how it is tuned."""

    model_config = _STRICT

    schema_: Annotated[Literal[1], Field(alias="schema")]
    job: LaunchedJob
    recurrences: Annotated[int, Field(ge=1)]
    batch_sizes: Annotated[list[_Number], Field(min_length=1)]
    eta: float = 0.5
    # TOML has an infinity: never stop a run.
    beta: Annotated[float, Field(allow_inf_nan=True)] = 2.0
    seed: int = 123456
    policy: str = "zeus"
    window_size: int = 0
    log_base: str = "zeus_log"
    monitor_path: str = "zeus_monitor"
    observer_mode: bool = False
    profile_warmup_iters: int = 10
    profile_measure_iters: int = 40
    max_power_w: float | None = None
    gpus: int | None = None
    allow_mixed: bool = False
    set_power_limits: bool = False
    measure: str = "auto"
    timeout_s: float | None = None
    grace_s: float = 10.0
