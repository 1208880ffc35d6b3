"""Schemas of the files about recurring jobs. Import it late: pydantic takes as long to load as a simulation to run."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "CorrectionsTable",
    "GroupTable",
    "HistoryDocument",
    "HistoryRow",
    "JobTable",
    "KeptJob",
    "ResultsDocument",
    "RunRow",
    "SimulationTable",
]

_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_Name = Annotated[str, Field(min_length=1)]
_Count = Annotated[int, Field(ge=0)]
_Size = Annotated[int, Field(gt=0)]
_Amount = Annotated[float, Field(ge=0)]


class JobTable(BaseModel):
    """`[[job]]` of a file of jobs, with the fields of `bftrainer.zeus.Job`."""

    model_config = _STRICT

    dataset: _Name
    network: _Name
    optimizer: _Name
    target_metric: float
    max_epochs: int
    default_bs: int | None = None
    default_lr: float | None = None


class KeptJob(JobTable):
    """A job as results hold it: what launches it is kept too."""

    workdir: str | None
    command: list[str] | None


class GroupTable(BaseModel):
    """A group as results hold it, jobs as start, end and ratio of run times."""

    model_config = _STRICT

    name: str
    dataset: str
    jobs: list[Annotated[list[float], Field(min_length=3, max_length=3)]]


class CorrectionsTable(BaseModel):
    """Departures from the published behaviour."""

    model_config = _STRICT

    group_never_ran_cost: bool
    group_min_cost_accumulates: bool
    server_costs: bool = False


class RunRow(BaseModel):
    """One run of a simulation."""

    model_config = _STRICT

    recurrence: _Count
    attempt: _Count
    batch_size: _Size
    power_limit_w: _Size
    profiled: bool
    reached: bool
    epochs: _Amount
    energy_j: _Amount
    time_s: _Amount
    cost_j: float
    runtime_ratio: Annotated[float, Field(gt=0)]
    traced_energy_j: _Amount
    traced_time_s: _Amount


class SimulationTable(BaseModel):
    """One simulation and its runs."""

    model_config = _STRICT

    job: KeptJob
    recurrences: int | None
    group: GroupTable | None
    policy: str
    power_policy: str
    eta_knob: float
    beta_knob: float | None
    seed: int
    corrections: CorrectionsTable
    max_group_retries: int
    failure: str | None
    runs: list[RunRow]


class ResultsDocument(BaseModel):
    """A file of results; what else it holds beside these keys is about it."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    schema_: Annotated[Literal[1], Field(alias="schema")]
    partial: bool
    simulations: list[SimulationTable]


class HistoryRow(BaseModel):
    """One run as the simulator returns it."""

    model_config = _STRICT

    bs: _Size
    pl: _Size | None
    energy: _Amount
    reached: bool
    time: _Amount


class HistoryDocument(BaseModel):
    """A file of one plain history."""

    model_config = _STRICT

    schema_: Annotated[Literal[1], Field(alias="schema")]
    history: list[HistoryRow]
