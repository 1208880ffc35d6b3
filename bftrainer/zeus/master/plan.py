"""What a master is to do: the plan of a recurring job, and the job file that it is read from."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from bftrainer.errors import RunDirectoryError, TuningInputError
from bftrainer.files.documents import toml_file
from bftrainer.plugins import full_name
from bftrainer.zeus.master.script import RunSettings, check_table
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer, check_seed, default_first
from bftrainer.zeus.policies.job import Job, JobSettings, check_knobs
from bftrainer.zeus.policies.policy_registry import BATCH_SIZES


def describe_policy(policy: BatchSizeOptimizer) -> dict[str, Any]:
    """Describe how a policy was made: its class, and the options that it has as attributes."""
    values = {name: getattr(policy, name, None) for name in inspect.signature(type(policy)).parameters}
    options = {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)}
    return {"class": full_name(type(policy)), "options": options}


def restore_policy(description: Mapping[str, Any]) -> BatchSizeOptimizer:
    """Make a policy from what `describe_policy` returned, as new: `RunDirectoryError` if that is not possible."""
    name = description["class"]
    try:
        policy: BatchSizeOptimizer = BATCH_SIZES.imported(name)(**description["options"])
    except (TuningInputError, TypeError) as fault:
        raise RunDirectoryError(
            f"The policy {name} cannot be made again ({fault}); pass one as Driver.resume(..., policy=...)."
        ) from None
    return policy


@dataclass(frozen=True, slots=True)
class Plan:
    """A job, how often it recurs, and the settings it is tuned with; `workdir` is absolute."""

    job: Job
    recurrences: int
    batch_sizes: tuple[int, ...]
    beta_knob: float
    eta_knob: float
    seed: int
    workdir: str

    def __post_init__(self) -> None:
        job = self.job
        check_knobs(self.eta_knob, self.beta_knob)
        check_seed(self.seed)
        if job.command is None:
            raise TuningInputError(f"{job}: Missing command to launch runs with.")
        job.check_placeholders()
        if self.recurrences < 0:
            raise TuningInputError(f"Expected 0 or more recurrences, got {self.recurrences}.")
        for size in self.batch_sizes:
            if size < 1 or self.batch_sizes.count(size) > 1:
                raise TuningInputError(f"{job}: Expected batch sizes of 1 or more, each once, got {size}.")
        default_first(job, self.batch_sizes)
        job.scale_lr(job.default_bs or 0)


class LaunchedJob(JobSettings):
    """The table ``[job]`` of a job file: a job, and how it is launched."""

    default_bs: int
    default_lr: float
    workdir: str = "."
    command: Annotated[list[str], Field(min_length=1)]


class JobFile(RunSettings):
    """A job file: a job that recurs, how it is tuned, and settings of its runs."""

    schema_: Literal[1] = Field(alias="schema")
    job: LaunchedJob
    recurrences: Annotated[int, Field(ge=1)]
    batch_sizes: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
    eta: float = 0.5
    # TOML can write infinity: never stop a run.
    beta: Annotated[float, Field(allow_inf_nan=True)] = 2.0
    seed: int = 123456
    policy: str = "zeus"
    window_size: int = 0
    log_base: str = "zeus_log"

    def settings(self) -> dict[str, Any]:
        """Return the settings of its runs by name."""
        return {name: getattr(self, name) for name in RunSettings.model_fields}


def read_job_file(path: Path, changes: Mapping[str, Any]) -> JobFile:
    """Read a job file; `changes` override its values: `TuningInputError` names file and key.

    Paths of the file are relative to its directory, those of `changes` to the current one; all become absolute.
    """
    content, _ = toml_file(path, TuningInputError)
    file = check_table(JobFile, content | dict(changes), TuningInputError, path)
    here = path.parent.resolve()
    bases = {name: Path.cwd() if name in changes else here for name in ("log_base", "monitor_path")}
    paths: dict[str, Any] = {name: str(base / getattr(file, name)) for name, base in bases.items()}
    job = file.job.model_copy(update={"workdir": str(here / file.job.workdir)})
    try:
        job.to_job()
    except TuningInputError as fault:
        raise TuningInputError(f"{path}: {fault}") from None
    return file.model_copy(update=paths | {"job": job})
