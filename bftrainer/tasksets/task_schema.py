"""Schema of a TOML task. Import it late: pydantic takes as long to load as a small replay to run."""

from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ScalingTable", "TaskTable", "ZeusTable"]

_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class ScalingTable(BaseModel):
    """`[task.scaling]`: points or a model."""

    model_config = _STRICT

    nodes: list[int] | None = None
    throughput: list[float] | None = None
    credit: list[float] | None = None
    model: Literal["linear", "amdahl"] | None = None
    rate_1: float | None = None
    parallel_fraction: float | None = None


class ZeusTable(BaseModel):
    """`[task.zeus]`: the job whose batch size and power limit are tuned."""

    model_config = ConfigDict(extra="forbid", strict=True)

    train_trace: Annotated[str, Field(min_length=1)]
    power_trace: Annotated[str, Field(min_length=1)]
    dataset: Annotated[str, Field(min_length=1)]
    network: Annotated[str, Field(min_length=1)]
    optimizer: Annotated[str, Field(min_length=1)]
    target_metric: float
    max_epochs: int
    default_batch_size: int
    eta: float = 0.5
    beta: float = 2.0
    seed: int | None = None
    idle_power_w: float | None = None


class TaskTable(BaseModel):
    """`[[task]]`."""

    model_config = _STRICT

    name: Annotated[str, Field(min_length=1)]
    group: str | None = None
    user: str | None = None
    submit: datetime | date | float | str = 0.0
    min_nodes: int
    max_nodes: int
    work: float | None = None
    grow_cost_s: float = 0.0
    shrink_cost_s: float = 0.0
    weight: float = 1.0
    deadline: datetime | date | float | str | None = None
    gpus_per_node: int = 1
    scaling: ScalingTable | None = None
    zeus: ZeusTable | None = None
