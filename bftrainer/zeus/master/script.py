"""Settings of a master: job files, and environment variables to training scripts; `train.json` comes back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass
from pydantic_core import PydanticKnownError

from bftrainer.errors import BftrainerError, InputError, OutputError, TuningError, TuningInputError
from bftrainer.files.opening import one_line
from bftrainer.files.text_files import fault_text, json_file, toml_file
from bftrainer.files.writing import replacing
from bftrainer.zeus.policies.job import JobSettings

# Ways to measure energy; "auto" is NVML where there is a GPU, else the model.
Measure = Literal["auto", "nvml", "zeus", "model"]
MEASURES: tuple[str, ...] = get_args(Measure)

M = TypeVar("M", bound=BaseModel)


def check_table(model: type[M], values: Mapping[str, Any], error: type[BftrainerError], place: object = "") -> M:
    """Make a table from values, or raise `error` with one line that names `place`, key and value."""

    def keys(path: tuple[int | str, ...]) -> list[str]:
        """Keys of the table at a path."""
        table: Any = model
        for part in path:
            table = table.model_fields[part].annotation
        return [field.alias or name for name, field in table.model_fields.items()]

    try:
        return model.model_validate(values)
    except ValidationError as fault:
        raise error(f"{place}{': ' if place else ''}{fault_text(fault, keys)}") from None


class RunSettings(BaseModel):
    """Settings that all runs share; the last two are not passed to scripts."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    # A monitoring program for scripts that use one, passed on unchanged.
    monitor_path: str = "zeus_monitor"
    # Highest power of one GPU, or of the machine without GPUs; None, in a script only: the value from NVML. That of a
    # power station, and more GPUs than any computer has, are errors, and could overflow.
    max_power_w: Annotated[float, Field(gt=0, le=1e9)] | None = None
    gpus: Annotated[int, Field(ge=1, le=1_000_000)] | None = None  # None: as many as are found, else 1
    # Train at the highest power, and book the energy and time of the best power limit found.
    observer_mode: bool = False
    # Iterations before and during the measurement of each power limit, if `set_power_limits` allows that.
    profile_warmup_iters: Annotated[int, Field(ge=0)] = 10
    profile_measure_iters: Annotated[int, Field(ge=1)] = 40
    set_power_limits: bool = False
    measure: Measure = "auto"
    # Time after which a run is ended and counts as failed, and time for it to end after SIGTERM.
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    grace_s: Annotated[float, Field(ge=0)] = 10.0

    @property
    def total_power_w(self) -> float:
        """Highest power of all GPUs of a run together, which converts time to energy."""
        assert self.max_power_w is not None  # always set in a master
        return self.max_power_w * (self.gpus or 1)


class RunEnvironment(RunSettings):
    """Values that a training script gets for one run, in environment variables."""

    target_metric: float
    log_dir: str = "zeus_log"
    job_id: str = "zeus"
    cost_threshold: Annotated[float, Field(ge=0, allow_inf_nan=True)] = math.inf
    eta_knob: Annotated[float, Field(ge=0, le=1)] = 0.5

    def report_path(self, batch_size: int) -> Path:
        """Return the path of the script's report on a run at `batch_size`."""
        return Path(self.log_dir) / f"{self.job_id}+bs{batch_size}.train.json"

    def power_profile_path(self, batch_size: int) -> Path:
        """Return the path where power limits measured at `batch_size` are stored for later runs."""
        return Path(self.log_dir) / f"bs{batch_size}.power.json"

    def variables(self) -> dict[str, str]:
        """Return the environment variables for these values; values that are None are left out."""
        values = {variable: getattr(self, field) for field, variable in _VARIABLES.items()}
        values["ZEUS_USE_OPTIMAL_PL"] = not self.observer_mode
        values[_ITERATIONS] = f"{self.profile_warmup_iters},{self.profile_measure_iters}"
        return {variable: str(value) for variable, value in values.items() if value is not None}

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> RunEnvironment:
        """Read the environment variables, whose defaults are the published ones: `TuningInputError` names a bad one."""
        if "ZEUS_TARGET_METRIC" not in environ:
            raise TuningInputError("ZEUS_TARGET_METRIC: Missing from the environment.")
        values = {field: environ[variable] for field, variable in _VARIABLES.items() if variable in environ}
        values["set_power_limits"] = str(_is_true(environ, "BFTRAINER_SET_POWER_LIMITS", "false"))
        values["observer_mode"] = str(not _is_true(environ, "ZEUS_USE_OPTIMAL_PL", "true"))
        iterations = environ.get(_ITERATIONS, "10,40").split(",")
        if len(iterations) != 2:
            raise TuningInputError(
                f"{_ITERATIONS}: Expected two numbers of iterations, warm-up,measured, got {environ[_ITERATIONS]!r}."
            )
        values["profile_warmup_iters"], values["profile_measure_iters"] = iterations
        try:
            return cls.model_validate_strings(values)
        except ValidationError as faults:
            fault = faults.errors()[0]
            variable = _VARIABLES.get(str(fault["loc"][0]), _ITERATIONS)
            raise TuningInputError(f"{variable}: {fault['msg']}, got {fault['input']!r}.") from None


# Fields of `RunEnvironment` that have a variable of their own.
_VARIABLES = {
    "target_metric": "ZEUS_TARGET_METRIC",
    "log_dir": "ZEUS_LOG_DIR",
    "job_id": "ZEUS_JOB_ID",
    "cost_threshold": "ZEUS_COST_THRESH",
    "eta_knob": "ZEUS_ETA_KNOB",
    "monitor_path": "ZEUS_MONITOR_PATH",
    "max_power_w": "BFTRAINER_MAX_POWER_W",
    "gpus": "BFTRAINER_GPUS",
    "set_power_limits": "BFTRAINER_SET_POWER_LIMITS",
    "measure": "BFTRAINER_MEASURE",
}
_ITERATIONS = "ZEUS_PROFILE_PARAMS"


def _is_true(environ: Mapping[str, str], variable: str, default: str) -> bool:
    """Read a variable that is true or false, in any case, as published."""
    text = environ.get(variable, default)
    if text.lower() not in ("true", "false"):
        raise TuningInputError(f"{variable}: Expected true or false, got {text!r}.")
    return text.lower() == "true"


def _refuse_boolean(value: object) -> object:
    """Refuse true, which pydantic takes for 1."""
    if isinstance(value, bool):
        raise PydanticKnownError("float_type")
    return value


def _read_verdict(value: object) -> object:
    """Read a verdict that is text: only "true" means reached, as published."""
    return value.lower() == "true" if isinstance(value, str) else value


# Joules or seconds, possibly as text: years of a power station at most, so that costs can be squared and added up.
_Amount = Annotated[float, BeforeValidator(_refuse_boolean), Field(ge=0, le=1e18, allow_inf_nan=False)]


@checked_dataclass(frozen=True, slots=True)
class TrainingReport:
    """Energy, time and verdict of one run; `failure` says why the master found that it failed."""

    energy_j: _Amount
    time_s: _Amount
    reached: Annotated[bool, BeforeValidator(_read_verdict), Field(strict=True)]
    failure: str | None = None


# Published keys of a report, by field.
_KEYS = {"energy_j": "energy", "time_s": "time", "reached": "reached"}


def read_report(path: Path) -> TrainingReport:
    """Read a report, where numbers and verdict may be text: `TuningError` names file and key."""
    if not path.exists():
        raise TuningError(f"{path} does not exist.")
    try:
        document = json_file(path, InputError)
    except InputError as fault:
        raise TuningError(str(fault)) from None
    if not isinstance(document, dict):
        raise TuningError(f"{path}: Expected an object, got {one_line(document)}.")
    try:
        return TrainingReport(**{field: document[key] for field, key in _KEYS.items() if key in document})
    except ValidationError as error:
        first = error.errors()[0]
        key = _KEYS[str(first["loc"][0])]
        if first["type"].startswith("missing"):
            raise TuningError(f"{path}: Missing key {key!r}.") from None
        raise TuningError(f"{path}: {key}: {first['msg']}, got {one_line(repr(first['input']))}.") from None


def write_report(path: Path, report: TrainingReport, **more: Any) -> None:
    """Write a report atomically; `more` are further keys, which the master does not read."""
    write_json(path, {key: getattr(report, field) for field, key in _KEYS.items()} | more)


def write_json(path: Path, document: object) -> None:
    """Write a JSON file whole or not at all, and to the disk, as the machine may lose power."""
    with replacing(path) as stream:
        stream.write(f"{json.dumps(document, allow_nan=False)}\n".encode())


def make_directory(path: Path, *, exist_ok: bool = True) -> None:
    """Create a directory and its parents: `FileExistsError`, or `OutputError` if it cannot be created."""
    try:
        path.mkdir(mode=0o755, parents=True, exist_ok=exist_ok)
    except FileExistsError:
        if exist_ok:
            raise OutputError(f"{path}: Expected a directory, found a file.") from None
        raise
    except (OSError, ValueError) as cause:
        raise OutputError(f"{path}: cannot be made ({getattr(cause, 'strerror', None) or cause}).") from None


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
    content = toml_file(path, TuningInputError)
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
