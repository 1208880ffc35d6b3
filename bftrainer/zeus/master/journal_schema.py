"""Schemas of the master's files, made of the classes whose values they keep. Import it late, as pydantic."""

from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BaseModel, Field

from bftrainer.zeus.master.plan import Plan, RunSettings
from bftrainer.zeus.master.recurrences import Booked, Launch
from bftrainer.zeus.master.script import TrainingReport
from bftrainer.zeus.policies.job import Job
from bftrainer.zeus.simulation.result_schema import NAMES, SCHEMA, STRICT, KeptJob, table_of

__all__ = ["JobFile", "JournalDocument", "LaunchedJob"]

_Number: TypeAlias = Annotated[int, Field(ge=1)]
_AMOUNT = Annotated[float, Field(ge=0)]

_USED = {"energy_j": _AMOUNT, "time_s": _AMOUNT}
_LaunchRow = table_of("LaunchRow", Launch, dict.fromkeys(("recurrence", "attempt", "batch_size"), _Number))
_BookedRow = table_of("BookedRow", Booked, {"launch": _LaunchRow, **_USED, "cost_j": _AMOUNT})
# What a run did that is not booked yet.
_MadeTable = table_of("MadeTable", TrainingReport, {**_USED, "failure": str | None})
_ProgressTable = table_of(
    "ProgressTable",
    None,
    {
        "recurrence": _Number,
        "attempt": _Number,
        "seed": int,
        # Costs that are null are infinite.
        "min_cost_j": _AMOUNT | None,
        "others_cost_j": _AMOUNT | None,
        "spent_j": _AMOUNT,
        "pending": _LaunchRow | None,
        "made": _MadeTable | None,
        "booked": GenericAlias(list, _BookedRow),
        "failure": str | None,
    },
)
_COUNT = Annotated[int, Field(ge=0)]
_PlanTable = table_of(
    "PlanTable", Plan, {"job": KeptJob, "recurrences": _COUNT, "batch_sizes": list[int], "beta_knob": float | None}
)
JournalDocument = table_of(
    "JournalDocument",
    None,
    {
        "schema_": SCHEMA,
        "plan": _PlanTable,
        "settings": table_of("SettingsTable", RunSettings, {}),
        # A policy's state is for the policy to judge.
        "policy": dict[str, Any] | None,
        "progress": _ProgressTable,
    },
)

if TYPE_CHECKING:
    LaunchedJob = BaseModel
else:
    # How the job of a job file is launched has to be said.
    _LAUNCH = {
        "default_bs": int,
        "default_lr": float,
        "workdir": (str, "."),
        "command": Annotated[list[str], Field(min_length=1)],
    }
    LaunchedJob = table_of("LaunchedJob", Job, NAMES | _LAUNCH)


class JobFile(BaseModel):
    """A job file: a job that recurs, and how it is tuned."""

    model_config = STRICT

    schema_: SCHEMA
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
