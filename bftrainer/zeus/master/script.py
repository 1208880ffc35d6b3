"""Interface between master and training script: environment variables to the script, `train.json` back."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from bftrainer.errors import TrainingReportError, TuningInputError, suggestion
from bftrainer.files.documents import parsed_json
from bftrainer.files.opening import one_line
from bftrainer.files.writing import replacing

# Ways to measure energy; "auto" takes the first of NVML and RAPL that is there, else the model.
MEASURES = ("auto", "nvml", "rapl", "zeus", "model")

# A power station, and more than any computer has: what is above is a slip, and could not be reckoned with.
MOST_POWER_W, MOST_GPUS = 1e9, 1_000_000


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How runs are made, whichever they are.

    Parameters
    ----------
    monitor_path : str
        A monitoring program, for scripts that use one; passed on as it is.
    max_power_w : float or None
        Highest power of one GPU (or of whatever trains); None, in a script only: what NVML says.
    gpus : int or None
        GPUs of a run; None: those found, else 1.
    observer_mode : bool
        Whether runs train at the highest power, and book what the power limit found best would have taken.
    profile_warmup_iters, profile_measure_iters : int
        Iterations before and during the measurement of each power limit.
    set_power_limits : bool
        Whether scripts may set power limits.
    measure : str
        How energy is measured, one of `MEASURES`.
    timeout_s : float or None
        Time after which a run is ended as failed; the script is not told.
    grace_s : float
        Time that a run has to end when it is asked to; the script is not told.

    Raises
    ------
    TuningInputError
        If a value is out of range.
    """

    monitor_path: str = "zeus_monitor"
    max_power_w: float | None = None
    gpus: int | None = None
    observer_mode: bool = False
    profile_warmup_iters: int = 10
    profile_measure_iters: int = 40
    set_power_limits: bool = False
    measure: str = "auto"
    timeout_s: float | None = None
    grace_s: float = 10.0

    def __post_init__(self) -> None:
        if self.profile_warmup_iters < 0 or self.profile_measure_iters < 1:
            raise TuningInputError(
                f"Expected 0 or more warm-up and 1 or more measured iterations, got {self.iterations}."
            )
        if self.max_power_w is not None and not 0 < self.max_power_w <= MOST_POWER_W:
            expected = "above 0 W" if not self.max_power_w > 0 else f"of at most {MOST_POWER_W:g} W"
            raise TuningInputError(f"Expected a highest power {expected}, got {self.max_power_w}.")
        if self.gpus is not None and not 1 <= self.gpus <= MOST_GPUS:
            expected = "1 or more GPUs" if self.gpus < 1 else f"at most {MOST_GPUS:,} GPUs"
            raise TuningInputError(f"Expected {expected}, got {self.gpus}.")
        if self.measure not in MEASURES:
            raise TuningInputError(f"Unknown way to measure {self.measure!r}.{suggestion(self.measure, MEASURES)}")
        if self.timeout_s is not None and not (self.timeout_s > 0 and math.isfinite(self.timeout_s)):
            raise TuningInputError(f"Expected a time-out above 0 s, got {self.timeout_s}.")
        if not (self.grace_s >= 0 and math.isfinite(self.grace_s)):
            raise TuningInputError(f"Expected a grace of 0 s or more, got {self.grace_s}.")

    @property
    def iterations(self) -> str:
        """Those of the measurement, as the environment has them."""
        return f"{self.profile_warmup_iters},{self.profile_measure_iters}"

    @property
    def total_power_w(self) -> float:
        """Highest power of all GPUs of a run; time is converted to energy with it."""
        assert self.max_power_w is not None  # a master knows it
        return self.max_power_w * (self.gpus or 1)


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """What one run of a training script is told.

    Parameters
    ----------
    target_metric : float
        Validation metric at which the run has reached its target.
    log_dir : str
        Directory of the run's report and of power profiles.
    job_id : str
        Which recurrence and try this is; begins the names of its files.
    cost_threshold : float
        Cost (J) that the run must stay below; infinity: none.
    eta_knob : float
        Weight of energy in costs.
    settings : RunSettings

    Raises
    ------
    TuningInputError
        If a value is out of range.
    """

    target_metric: float
    log_dir: str = "zeus_log"
    job_id: str = "zeus"
    cost_threshold: float = math.inf
    eta_knob: float = 0.5
    settings: RunSettings = field(default_factory=RunSettings)

    def __post_init__(self) -> None:
        if not math.isfinite(self.target_metric):
            raise TuningInputError(f"Expected a finite target metric, got {self.target_metric}.")
        if not self.cost_threshold >= 0:
            raise TuningInputError(f"Expected a cost threshold of 0 or more, got {self.cost_threshold}.")
        if not 0.0 <= self.eta_knob <= 1.0:
            raise TuningInputError(f"Expected eta from 0 (time) to 1 (energy), got {self.eta_knob}.")

    def report_path(self, batch_size: int) -> Path:
        """Where the script reports what a run at `batch_size` did."""
        return Path(self.log_dir) / f"{self.job_id}+bs{batch_size}.train.json"

    def power_profile_path(self, batch_size: int) -> Path:
        """Where the power limits measured at `batch_size` are kept for later runs."""
        return Path(self.log_dir) / f"bs{batch_size}.power.json"

    def variables(self) -> dict[str, str]:
        """The environment variables that say all this; what is None is left out."""
        known = {**asdict(self), **asdict(self.settings), "use_optimal_pl": not self.settings.observer_mode}
        values = ((name, known[field]) for name, (field, _) in _VARIABLES.items())
        said = {name: str(value) for name, value in values if value is not None}
        return said | {_ITERATIONS: self.settings.iterations}

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> RunEnvironment:
        """What the environment variables say; those that are missing have their published defaults.

        Raises
        ------
        TuningInputError
            If the target metric is missing, or a variable is not what it should be.
        """
        if "ZEUS_TARGET_METRIC" not in environ:
            raise TuningInputError("ZEUS_TARGET_METRIC: Missing from the environment.")
        text = environ.get(_ITERATIONS, "10,40")
        parts = text.split(",")
        if len(parts) != 2:
            raise TuningInputError(
                f"{_ITERATIONS}: Expected two numbers of iterations, warm-up,measured, got {text!r}."
            )
        warmup, measured = (_whole(_ITERATIONS, part) for part in parts)
        told = {field: parsed(name, environ[name]) for name, (field, parsed) in _VARIABLES.items() if name in environ}
        told |= {"profile_warmup_iters": warmup, "profile_measure_iters": measured}
        told["observer_mode"] = not told.pop("use_optimal_pl", True)
        settings = RunSettings(**{each.name: told.pop(each.name) for each in fields(RunSettings) if each.name in told})
        return cls(**told, settings=settings)


def _real(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise TuningInputError(f"{name}: Expected a number, got {text!r}.") from None


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise TuningInputError(f"{name}: Expected a whole number, got {text!r}.") from None


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise TuningInputError(f"{name}: Expected true or false, got {text!r}.")
    return text.lower() == "true"


def _text(name: str, text: str) -> str:  # noqa: ARG001
    return text


# Each variable's field, of `RunEnvironment` or its settings, and what makes its value of the text.
_VARIABLES: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    "ZEUS_TARGET_METRIC": ("target_metric", _real),
    "ZEUS_LOG_DIR": ("log_dir", _text),
    "ZEUS_JOB_ID": ("job_id", _text),
    "ZEUS_COST_THRESH": ("cost_threshold", _real),
    "ZEUS_ETA_KNOB": ("eta_knob", _real),
    "ZEUS_MONITOR_PATH": ("monitor_path", _text),
    "ZEUS_USE_OPTIMAL_PL": ("use_optimal_pl", _boolean),
    "BFTRAINER_MAX_POWER_W": ("max_power_w", _real),
    "BFTRAINER_GPUS": ("gpus", _whole),
    "BFTRAINER_SET_POWER_LIMITS": ("set_power_limits", _boolean),
    "BFTRAINER_MEASURE": ("measure", _text),
}
# The one variable that says two things.
_ITERATIONS = "ZEUS_PROFILE_PARAMS"


# A report has a handful of numbers; what is larger is something else.
MOST_BYTES = 1 << 20

# Joules, and seconds: years of a power station. Costs of such reports can still be squared and added up.
MOST_AMOUNT = 1e18


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """Energy, time and verdict of one run.

    Parameters
    ----------
    energy_j, time_s : float
        Used by the run.
    reached : bool
        Whether it reached its target.

    Raises
    ------
    TrainingReportError
        If energy or time is negative, not finite, or more than any run can use.
    """

    energy_j: float
    time_s: float
    reached: bool

    def __post_init__(self) -> None:
        for name, value in (("energy", self.energy_j), ("time", self.time_s)):
            if not (value >= 0 and math.isfinite(value)):
                raise TrainingReportError(f"Expected {name} to be a finite number of 0 or more, got {value}.")
            if value > MOST_AMOUNT:
                raise TrainingReportError(f"Expected {name} to be at most {MOST_AMOUNT:g}, got {value}.")


def read_report(path: Path) -> TrainingReport:
    """The report in a file; numbers may be text, and so may the verdict, of which only "true" is one.

    Raises
    ------
    TrainingReportError
        Naming file and key, if there is no such file, or it holds something else.
    """
    try:
        with open(path, "rb", opener=_opened) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise TrainingReportError(f"{path}: Expected a file, got something else.")
            text = stream.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise TrainingReportError(f"{path} does not exist.") from None
    except OSError as cause:
        raise TrainingReportError(f"{path}: {cause.strerror or cause}.") from None
    if len(text) > MOST_BYTES:
        raise TrainingReportError(f"{path}: Expected a report of at most {MOST_BYTES:,} bytes, got a larger file.")
    document = parsed_json(path, text, TrainingReportError)
    if not isinstance(document, dict):
        raise TrainingReportError(f"{path}: Expected an object, got {one_line(document)}.")
    try:
        return TrainingReport(_number(document, "energy"), _number(document, "time"), _verdict(document))
    except TrainingReportError as fault:
        raise TrainingReportError(f"{path}: {fault}") from None


def write_report(path: Path, report: TrainingReport, **more: Any) -> None:
    """Write a report, whole or not at all; `more` are further keys, which the master does not read."""
    document = {"energy": report.energy_j, "time": report.time_s, "reached": report.reached} | more
    with replacing(path) as stream:
        stream.write(f"{json.dumps(document, allow_nan=False)}\n".encode())


def _opened(path: str, flags: int) -> int:
    """Open without waiting for a writer, which a pipe may never get."""
    return os.open(path, flags | os.O_NONBLOCK)


def _number(document: dict[str, Any], key: str) -> float:
    value = _there(document, key)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TrainingReportError(f"Expected {key} to be a number, got {one_line(value)}.")
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise TrainingReportError(f"Expected {key} to be a number, got {one_line(repr(value))}.") from None


def _verdict(document: dict[str, Any]) -> bool:
    value = _there(document, "reached")
    if not isinstance(value, bool | str):
        raise TrainingReportError(f"Expected reached to be true or false, got {one_line(value)}.")
    return value if isinstance(value, bool) else value.lower() == "true"


def _there(document: dict[str, Any], key: str) -> Any:
    if key not in document:
        raise TrainingReportError(f"Missing key {key!r}.")
    return document[key]
