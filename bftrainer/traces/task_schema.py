"""Schema of a TOML task. Import it late: pydantic takes as long to load as a small replay to run."""

from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ScalingTable", "TaskTable"]

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


class TaskTable(BaseModel):
    """`[[task]]`."""

    model_config = _STRICT

    name: Annotated[str, Field(min_length=1)]
    group: str | None = None
    user: str | None = None
    submit: datetime | date | float | str = 0.0
    min_nodes: int
    max_nodes: int
    work: float
    grow_cost_s: float = 0.0
    shrink_cost_s: float = 0.0
    weight: float = 1.0
    deadline: datetime | date | float | str | None = None
    gpus_per_node: int = 1
    scaling: ScalingTable | None = None
