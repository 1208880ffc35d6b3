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

from bftrainer.errors import OutputError, TrainingReportError, TuningInputError, suggestion
from bftrainer.files.documents import parsed_json
from bftrainer.files.opening import one_line
from bftrainer.files.writing import replacing
from bftrainer.zeus.policies.job import check_knobs

# Ways to measure energy; "auto" takes the first of NVML and RAPL that is available, else the model.
MEASURES = ("auto", "nvml", "rapl", "zeus", "model")

# The power of a power station, and more GPUs than any computer has: larger values are errors, and could overflow.
MOST_POWER_W, MOST_GPUS = 1e9, 1_000_000


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Settings that all runs share.

    Parameters
    ----------
    monitor_path : str
        Path of a monitoring program for scripts that use one, passed on unchanged.
    max_power_w : float or None
        Highest power of one GPU, or of the machine without GPUs; None, in a script only: the value from NVML.
    gpus : int or None
        Number of GPUs of a run; None: as many as are found, else 1.
    observer_mode : bool
        Whether runs train at the highest power, and book the energy and time of the best power limit found.
    profile_warmup_iters, profile_measure_iters : int
        Iterations before and during the measurement of each power limit.
    set_power_limits : bool
        Whether scripts may set power limits.
    measure : str
        How energy is measured, one of `MEASURES`.
    timeout_s : float or None
        Time after which a run is ended and counts as failed; not passed to the script.
    grace_s : float
        Time for a run to end after SIGTERM, before it is killed; not passed to the script.

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
        """Iterations before and during a measurement, as text for the environment variable."""
        return f"{self.profile_warmup_iters},{self.profile_measure_iters}"

    @property
    def total_power_w(self) -> float:
        """Highest power of all GPUs of a run together, which converts time to energy."""
        assert self.max_power_w is not None  # always set in a master
        return self.max_power_w * (self.gpus or 1)


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """Values that a training script gets for one run, in environment variables.

    Parameters
    ----------
    target_metric : float
        Validation metric at which the run has reached its target.
    log_dir : str
        Directory for the run's report and for power profiles.
    job_id : str
        Identifies recurrence and try; the names of the run's files begin with it.
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
        check_knobs(self.eta_knob, math.inf)

    def report_path(self, batch_size: int) -> Path:
        """Return the path of the script's report on a run at `batch_size`."""
        return Path(self.log_dir) / f"{self.job_id}+bs{batch_size}.train.json"

    def power_profile_path(self, batch_size: int) -> Path:
        """Return the path where power limits measured at `batch_size` are stored for later runs."""
        return Path(self.log_dir) / f"bs{batch_size}.power.json"

    def variables(self) -> dict[str, str]:
        """Return the environment variables for these values; values that are None are left out."""
        known = {**asdict(self), **asdict(self.settings), "use_optimal_pl": not self.settings.observer_mode}
        values = ((name, known[field]) for name, (field, _) in _VARIABLES.items())
        said = {name: str(value) for name, value in values if value is not None}
        return said | {_ITERATIONS: self.settings.iterations}

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> RunEnvironment:
        """Read the environment variables; missing ones get their published defaults.

        Raises
        ------
        TuningInputError
            If the target metric is missing, or a variable has an invalid value.
        """
        if "ZEUS_TARGET_METRIC" not in environ:
            raise TuningInputError("ZEUS_TARGET_METRIC: Missing from the environment.")
        text = environ.get(_ITERATIONS, "10,40")
        parts = text.split(",")
        if len(parts) != 2:
            raise TuningInputError(
                f"{_ITERATIONS}: Expected two numbers of iterations, warm-up,measured, got {text!r}."
            )
        warmup, measured = (_parsed(_ITERATIONS, part, *_WHOLE) for part in parts)
        there = {name: how for name, how in _VARIABLES.items() if name in environ}
        args = {field: _parsed(name, environ[name], *kind) for name, (field, kind) in there.items()}
        args |= {"profile_warmup_iters": warmup, "profile_measure_iters": measured}
        args["observer_mode"] = not args.pop("use_optimal_pl", True)
        settings = RunSettings(**{each.name: args.pop(each.name) for each in fields(RunSettings) if each.name in args})
        return cls(**args, settings=settings)


def _parsed(name: str, text: str, kind: Callable[[str], Any], expected: str) -> Any:
    try:
        return kind(text)
    except (ValueError, KeyError):
        raise TuningInputError(f"{name}: Expected {expected}, got {text!r}.") from None


_REAL, _WHOLE, _TEXT = (float, "a number"), (int, "a whole number"), (str, "text")
_BOOLEAN = (lambda text: {"true": True, "false": False}[text.lower()], "true or false")
# For each variable, its field in `RunEnvironment` or `RunSettings`, what converts its text, and what that expects.
_VARIABLES: Mapping[str, tuple[str, tuple[Callable[[str], Any], str]]] = {
    "ZEUS_TARGET_METRIC": ("target_metric", _REAL),
    "ZEUS_LOG_DIR": ("log_dir", _TEXT),
    "ZEUS_JOB_ID": ("job_id", _TEXT),
    "ZEUS_COST_THRESH": ("cost_threshold", _REAL),
    "ZEUS_ETA_KNOB": ("eta_knob", _REAL),
    "ZEUS_MONITOR_PATH": ("monitor_path", _TEXT),
    "ZEUS_USE_OPTIMAL_PL": ("use_optimal_pl", _BOOLEAN),
    "BFTRAINER_MAX_POWER_W": ("max_power_w", _REAL),
    "BFTRAINER_GPUS": ("gpus", _WHOLE),
    "BFTRAINER_SET_POWER_LIMITS": ("set_power_limits", _BOOLEAN),
    "BFTRAINER_MEASURE": ("measure", _TEXT),
}
# The only variable that holds two values.
_ITERATIONS = "ZEUS_PROFILE_PARAMS"


# A report has a few numbers; a larger file is something else.
MOST_BYTES = 1 << 20
_EPOCHS = "num_epochs"

# In joules or seconds: years of a power station. Costs up to this can still be squared and added up.
MOST_AMOUNT = 1e18


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """Energy, time and verdict of one run.

    Parameters
    ----------
    energy_j, time_s : float
        Energy and time that the run used.
    reached : bool
        Whether the run reached its target.
    epochs : int or None
        Epochs done; None: the script did not say.

    Raises
    ------
    TrainingReportError
        If energy or time is negative, not finite, or more than any run can use.
    """

    energy_j: float
    time_s: float
    reached: bool
    epochs: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("energy", self.energy_j), ("time", self.time_s)):
            if not (value >= 0 and math.isfinite(value)):
                raise TrainingReportError(f"Expected {name} to be a finite number of 0 or more, got {value}.")
            if value > MOST_AMOUNT:
                raise TrainingReportError(f"Expected {name} to be at most {MOST_AMOUNT:g}, got {value}.")


def read_report(path: Path) -> TrainingReport:
    """Read a report from a file; numbers may be text, and so may the verdict, where only "true" means reached.

    Raises
    ------
    TrainingReportError
        If the file is missing or is not a report; the message names file and key.
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
        used = _number(document, "energy"), _number(document, "time")
        return TrainingReport(*used, _verdict(document), _epochs(document))
    except TrainingReportError as fault:
        raise TrainingReportError(f"{path}: {fault}") from None


def write_report(path: Path, report: TrainingReport, **more: Any) -> None:
    """Write a report atomically; `more` are further keys, which the master does not read."""
    document = {"energy": report.energy_j, "time": report.time_s, "reached": report.reached}
    document |= {} if report.epochs is None else {_EPOCHS: report.epochs}
    write_json(path, document | more)


def write_json(path: Path, document: object) -> None:
    """Write a JSON file whole or not at all, and to the disk, as the machine may lose power.

    Raises
    ------
    OutputError
        If it cannot be written; an earlier one stays.
    """
    with replacing(path) as stream:
        stream.write(f"{json.dumps(document, allow_nan=False)}\n".encode())


def make_directory(path: Path, *, exist_ok: bool = True) -> None:
    """Create a directory and its parents.

    Raises
    ------
    FileExistsError
        If it exists although `exist_ok` is false.
    OutputError
        If it cannot be created.
    """
    try:
        path.mkdir(mode=0o755, parents=True, exist_ok=exist_ok)
    except FileExistsError:
        if exist_ok:
            raise OutputError(f"{path}: Expected a directory, found a file.") from None
        raise
    except OSError as cause:
        raise OutputError(f"{path}: cannot be made ({cause.strerror or cause}).") from None
    except ValueError as cause:
        raise OutputError(f"{str(path)!r}: cannot be made ({cause}).") from None


def _opened(path: str, flags: int) -> int:
    """Open a file without waiting: a pipe may never get a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _number(document: dict[str, Any], key: str) -> float:
    value = _value(document, key)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TrainingReportError(f"Expected {key} to be a number, got {one_line(value)}.")
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise TrainingReportError(f"Expected {key} to be a number, got {one_line(repr(value))}.") from None


def _verdict(document: dict[str, Any]) -> bool:
    value = _value(document, "reached")
    if not isinstance(value, bool | str):
        raise TrainingReportError(f"Expected reached to be true or false, got {one_line(value)}.")
    return value if isinstance(value, bool) else value.lower() == "true"


def _epochs(document: dict[str, Any]) -> int | None:
    """Epochs done, where a script says so: the published master does not read them, so they may be anything."""
    value = document.get(_EPOCHS)
    return value if type(value) is int and value >= 0 else None


def _value(document: dict[str, Any], key: str) -> Any:
    if key not in document:
        raise TrainingReportError(f"Missing key {key!r}.")
    return document[key]
