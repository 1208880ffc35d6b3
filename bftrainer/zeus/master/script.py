"""What a training script is told and reports, and the context manager that it runs its epochs in.

Settings come from job files, and reach scripts in environment variables; `train.json` comes back. `training_run`
measures, stops early and reports.

Examples
--------
>>> def train(batch_size, epochs, batches, step, accuracy):
...     with training_run(batch_size, epochs) as run:
...         for epoch in run.epochs():
...             for batch in run.steps(batches):
...                 step(batch)
...             run.report(accuracy())
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass
from pydantic_core import PydanticKnownError

from bftrainer.errors import BftrainerError, InputError, OutputError, TuningError, TuningInputError
from bftrainer.files.text_files import json_file, toml_file
from bftrainer.model.type_checks import fault_text
from bftrainer.zeus.master.hardware import (
    Gpus,
    Hardware,
    Meter,
    PowerProfiler,
    ProfiledLimit,
    best_limit,
    find_hardware,
    measure_since,
    open_meter,
    read_profile,
    write_json,
)
from bftrainer.zeus.policies.job import JobSettings, zeus_cost

logger = logging.getLogger(__name__)

# Ways to measure energy; "auto" is NVML where there is a GPU, else the model.
Measure = Literal["auto", "nvml", "zeus", "model"]

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


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
    """Settings that all runs share; scripts get those with an alias in the variable of that name."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    # A monitoring program for scripts that use one, passed on unchanged.
    monitor_path: Annotated[str, Field(serialization_alias="ZEUS_MONITOR_PATH")] = "zeus_monitor"
    # Highest power of one GPU, or of the machine without GPUs; None, in a script only: the value from NVML. That of a
    # power station, and more GPUs than any computer has, are errors, and could overflow.
    max_power_w: Annotated[float | None, Field(gt=0, le=1e9, serialization_alias="BFTRAINER_MAX_POWER_W")] = None
    # None: as many as are found, else 1.
    gpus: Annotated[int | None, Field(ge=1, le=1_000_000, serialization_alias="BFTRAINER_GPUS")] = None
    # Train at the highest power, and book the energy and time of the best power limit found.
    observer_mode: bool = False
    # Iterations before and during the measurement of each power limit, if `set_power_limits` allows that.
    profile_warmup_iters: Annotated[int, Field(ge=0)] = 10
    profile_measure_iters: Annotated[int, Field(ge=1)] = 40
    set_power_limits: Annotated[bool, Field(serialization_alias="BFTRAINER_SET_POWER_LIMITS")] = False
    measure: Annotated[Measure, Field(serialization_alias="BFTRAINER_MEASURE")] = "auto"
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

    target_metric: Annotated[float, Field(serialization_alias="ZEUS_TARGET_METRIC")]
    log_dir: Annotated[str, Field(serialization_alias="ZEUS_LOG_DIR")] = "zeus_log"
    job_id: Annotated[str, Field(serialization_alias="ZEUS_JOB_ID")] = "zeus"
    cost_threshold: Annotated[float, Field(ge=0, allow_inf_nan=True, serialization_alias="ZEUS_COST_THRESH")] = math.inf
    eta_knob: Annotated[float, Field(ge=0, le=1, serialization_alias="ZEUS_ETA_KNOB")] = 0.5

    def report_path(self, batch_size: int) -> Path:
        """Return the path of the script's report on a run at `batch_size`."""
        return Path(self.log_dir) / f"{self.job_id}+bs{batch_size}.train.json"

    def power_profile_path(self, batch_size: int) -> Path:
        """Return the path where power limits measured at `batch_size` are stored for later runs."""
        return Path(self.log_dir) / f"bs{batch_size}.power.json"

    def variables(self) -> dict[str, str]:
        """Return the environment variables for these values; values that are None are left out."""
        values = self.model_dump(include=set(_VARIABLES), by_alias=True, exclude_none=True)
        values["ZEUS_USE_OPTIMAL_PL"] = not self.observer_mode
        values[_ITERATIONS] = f"{self.profile_warmup_iters},{self.profile_measure_iters}"
        return {variable: str(value) for variable, value in values.items()}

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


_VARIABLES = {
    name: field.serialization_alias
    for name, field in RunEnvironment.model_fields.items()
    if field.serialization_alias is not None
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

    energy_j: Annotated[_Amount, Field(validation_alias=AliasChoices("energy", "energy_j"))]
    time_s: Annotated[_Amount, Field(validation_alias=AliasChoices("time", "time_s"))]
    reached: Annotated[bool, BeforeValidator(_read_verdict), Field(strict=True)]
    failure: str | None = None


def read_report(path: Path) -> TrainingReport:
    """Read a report, where numbers and verdict may be text: `TuningError` names file and key."""
    if not path.exists():
        raise TuningError(f"{path} does not exist.")
    try:
        document = json_file(path, InputError)
        published = document.keys() & {"energy", "time", "reached"} if isinstance(document, dict) else ()
        return TypeAdapter(TrainingReport).validate_python({key: document[key] for key in published})
    except InputError as fault:
        raise TuningError(str(fault)) from None
    except ValidationError as fault:
        raise TuningError(f"{path}: {fault_text(fault)}") from None


def make_directory(path: Path, *, exist_ok: bool = True) -> bool:
    """Create a directory and its parents; return False if it exists and may not. `OutputError` if that fails."""
    try:
        path.mkdir(mode=0o755, parents=True, exist_ok=exist_ok)
    except (OSError, ValueError) as cause:
        if isinstance(cause, FileExistsError) and not exist_ok:
            return False
        raise OutputError(f"{path}: cannot be made ({getattr(cause, 'strerror', None) or cause}).") from None
    return True


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


class TrialDriver(Protocol):
    """Leads a script through one training run: says how long it goes on, and takes what it reaches."""

    batch_size: int
    max_epochs: int
    epochs_done: int
    reached: bool

    def begin_epoch(self) -> bool:
        """End the current epoch, if there is one, and begin the next; False if training is over."""

    def step(self) -> object:
        """Record that a step is about to begin; by default do nothing: only a master has power limits measured."""
        return None

    def report(self, metric: float) -> bool:
        """Report the validation metric of an epoch; return whether training is over."""

    def epochs(self) -> Iterator[int]:
        """Yield the numbers of the epochs to train, from 0; all from first to last is booked, also evaluation."""
        while self.begin_epoch():
            yield self.epochs_done

    def steps(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield an epoch's batches unchanged; power limits may be measured meanwhile."""
        for batch in batches:
            self.step()
            yield batch


class TrainingRun(TrialDriver):
    """One training run: its epochs, the energy and time booked so far, and when it is over. Made by `training_run`.

    You et al., "Zeus", NSDI '23, sections 4.2 (power limits) and 4.4 (early stopping).
    """

    def __init__(
        self,
        environment: RunEnvironment,
        batch_size: int,
        max_epochs: int,
        hardware: Hardware,
        meter: Meter,
        control: Gpus | None = None,
        *,
        higher_is_better: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if batch_size < 1 or max_epochs < 1:
            raise TuningInputError(f"Expected batch size and epochs of 1 or more, got {batch_size} and {max_epochs}.")
        self.environment, self.batch_size, self.max_epochs = environment, batch_size, max_epochs
        self.hardware, self.meter, self.control = hardware, meter, control
        self.higher_is_better, self.clock = higher_is_better, clock
        self.energy_j = self.time_s = 0.0
        self.epochs_done = 0
        self.reached = self.stopped_early = False
        self._since: tuple[float, float] | None = None
        self._steps = 0
        # Energy, time and number of the epochs without profiling.
        self._usual = (0.0, 0.0, 0)
        self._scale = (1.0, 1.0)
        self._best: ProfiledLimit | None = None
        self._profiler: PowerProfiler | None = None
        if control is not None:
            limits = read_profile(environment.power_profile_path(batch_size))
            if limits and {limit.limit_w for limit in limits} <= set(control.candidate_limits_w()):
                self._use(limits)
            else:
                iterations = (environment.profile_warmup_iters, environment.profile_measure_iters)
                self._profiler = PowerProfiler(control, meter, clock, *iterations)
        self._profiling = self._profiler is not None

    @property
    def cost_j(self) -> float:
        """Cost of the energy and time booked so far."""
        return self._cost(self.energy_j, self.time_s)

    @property
    def power_limit_w(self) -> int | None:
        """Power limit found best; None if none was measured."""
        return None if self._best is None else self._best.limit_w

    def begin_epoch(self) -> bool:
        """See `TrialDriver`; training is over at the target, at `max_epochs`, or before it would cost too much."""
        self.end_epoch()
        if self.reached or self.epochs_done == self.max_epochs:
            return False
        if self._is_too_costly():
            self.stopped_early = True
            return False
        self._since = (self.clock(), self.meter.energy_j())
        self._steps = 0
        return True

    def step(self) -> None:
        """Record that a step is about to begin; in the first epoch, measure power limits meanwhile."""
        self._steps += 1
        if self._profiler is not None:
            self._profiler.step()
            if self._profiler.done:
                limits, self._profiler = self._profiler.limits, None
                path = self.environment.power_profile_path(self.batch_size)
                write_json(path, [limit.model_dump() for limit in limits])
                self._use(limits)

    def report(self, metric: float) -> bool:
        """Report the validation metric of an epoch; return whether it reached the target, never for NaN."""
        target = self.environment.target_metric
        self.reached = self.reached or bool(metric >= target if self.higher_is_better else metric <= target)
        return self.reached

    def end_epoch(self) -> None:
        """Book the current epoch, if there is one."""
        if self._since is None:
            return
        time_s, energy_j = measure_since(self._since, self.clock, self.meter)
        self._since = None
        if self._profiling and not self._steps:
            logger.warning("Power limits are measured only if batches go through steps(); none did.")
            self._profiler, self._profiling = None, False
        if not self._profiling:
            # Profiled steps ran at all limits, and are booked as measured.
            energy_j, time_s = energy_j * self._scale[0], time_s * self._scale[1]
            self._usual = (self._usual[0] + energy_j, self._usual[1] + time_s, self._usual[2] + 1)
        self._profiling = self._profiler is not None
        self.energy_j += energy_j
        self.time_s += time_s
        self.epochs_done += 1

    def finish(self) -> None:
        """Book the current epoch, if there is one, and write the report; the master reads its first three keys."""
        self.end_epoch()
        report = {
            "energy": self.energy_j,
            "time": self.time_s,
            "reached": self.reached,
            "num_epochs": self.epochs_done,
            "cost": self.cost_j,
            "stopped_early": self.stopped_early,
            "power_limit_w": self.power_limit_w,
            "max_power_w": self.hardware.total_power_w,
            "measured_by": self.meter.name,
        }
        write_json(self.environment.report_path(self.batch_size), report)

    def _use(self, limits: Sequence[ProfiledLimit]) -> None:
        """Train at the best of the measured limits; in observer mode train at the highest, but book for the best."""
        assert self.control is not None
        self._best = best = best_limit(limits, self.environment.eta_knob, self.hardware.total_power_w)
        if not self.environment.observer_mode:
            self.control.set_limit_w(best.limit_w)
            return
        highest = max(limits, key=lambda limit: limit.limit_w)
        self.control.set_limit_w(highest.limit_w)
        slower = highest.steps_per_s / best.steps_per_s
        self._scale = (slower * best.power_w / highest.power_w if highest.power_w else 1.0, slower)

    def _is_too_costly(self) -> bool:
        """Whether one more epoch would reach the threshold; false before the first, and while limits are measured."""
        if self.epochs_done == 0 or self._profiling:
            return False
        energy_j, time_s, count = self._usual
        if not count:  # all epochs so far were profiled, and profiling is over: as many steps at the best limit
            assert self._best is not None
            time_s, count = self._steps / self._best.steps_per_s, 1
            energy_j = self._best.power_w * time_s
        return self.cost_j + self._cost(energy_j / count, time_s / count) >= self.environment.cost_threshold

    def _cost(self, energy_j: float, time_s: float) -> float:
        return zeus_cost(energy_j, time_s, self.environment.eta_knob, self.hardware.total_power_w)


@contextmanager
def training_run(
    batch_size: int,
    max_epochs: int,
    *,
    higher_is_better: bool = True,
    synchronize: Callable[[], object] | None = None,
    meter: Meter | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[TrainingRun]:
    """Measure a training run, stop it if it costs too much, and report it, as the environment asks.

    The report is written when the `with` block ends without an exception. Power limits are measured and set only if
    the master's settings allow it, and are restored at the end.

    Parameters
    ----------
    batch_size, max_epochs : int
        What to train with, and epochs after which the run gives up.
    higher_is_better : bool
        Whether the metric rises to its target, rather than falls.
    synchronize : callable, optional
        Waits until a GPU's work is done, such as ``torch.cuda.synchronize``; called before each measurement.
    meter, clock : optional
        Instead of the meter that the environment names, and the clock in seconds.

    Raises
    ------
    TuningInputError, SettingsError, OutputError
        If a variable of the environment is missing or invalid, energy cannot be measured as requested, power limits
        cannot be set, the highest power is unknown, or the report cannot be written.
    """
    environment = RunEnvironment.read(os.environ)
    hardware = find_hardware(environment.max_power_w, environment.gpus)
    make_directory(Path(environment.log_dir))
    with ExitStack() as stack:
        if meter is None:
            meter = open_meter(environment.measure, hardware.total_power_w, hardware.gpus)
            stack.callback(meter.close)
        control = hardware.gpus if environment.set_power_limits else None
        if control is not None:
            stack.callback(control.set_limits_w, control.limits_w())
        run = TrainingRun(
            environment,
            batch_size,
            max_epochs,
            hardware,
            meter,
            control,
            higher_is_better=higher_is_better,
            clock=synchronize_clock(clock, synchronize),
        )
        yield run
        run.finish()


def synchronize_clock(clock: Callable[[], float], synchronize: Callable[[], object] | None) -> Callable[[], float]:
    """Make a clock that waits for all submitted work before it is read."""

    def read_clock() -> float:
        if synchronize is not None:
            synchronize()
        return clock()

    return read_clock
