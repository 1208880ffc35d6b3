"""What a training script is told through its environment: written by the master, read by `training_run`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bftrainer.errors import TuningInputError, suggestion

__all__ = ["MEASURES", "RunEnvironment"]

# Ways to measure energy; "auto" takes the first of NVML and RAPL that is there, else the model.
MEASURES = ("auto", "nvml", "rapl", "zeus", "model")
# A power station, and more than any computer has: what is above is a slip, and could not be reckoned with.
MOST_POWER_W, MOST_GPUS = 1e9, 1_000_000
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """The settings of one run of a training script.

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
    monitor_path : str
        A monitoring program, for scripts that use one; passed on as it is.
    profile_warmup_iters, profile_measure_iters : int
        Iterations before and during the measurement of each power limit.
    use_optimal_pl : bool
        Whether to train at the power limit found best; else at the highest, booking what the best would have taken.
    max_power_w : float or None
        Highest power of one GPU (or of whatever trains); None: what NVML says.
    gpus : int or None
        GPUs of the run; None: those found, else 1.
    set_power_limits : bool
        Whether power limits may be set.
    measure : str
        How energy is measured, one of `MEASURES`.

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
    monitor_path: str = "zeus_monitor"
    profile_warmup_iters: int = 10
    profile_measure_iters: int = 40
    use_optimal_pl: bool = True
    max_power_w: float | None = None
    gpus: int | None = None
    set_power_limits: bool = False
    measure: str = "auto"

    def __post_init__(self) -> None:
        if not math.isfinite(self.target_metric):
            raise TuningInputError(f"Expected a finite target metric, got {self.target_metric}.")
        if not self.cost_threshold >= 0:
            raise TuningInputError(f"Expected a cost threshold of 0 or more, got {self.cost_threshold}.")
        if not 0.0 <= self.eta_knob <= 1.0:
            raise TuningInputError(f"Expected eta from 0 (time) to 1 (energy), got {self.eta_knob}.")
        if self.profile_warmup_iters < 0 or self.profile_measure_iters < 1:
            got = f"{self.profile_warmup_iters},{self.profile_measure_iters}"
            raise TuningInputError(f"Expected 0 or more warm-up and 1 or more measured iterations, got {got}.")
        if self.max_power_w is not None and not 0 < self.max_power_w <= MOST_POWER_W:
            expected = "above 0 W" if not self.max_power_w > 0 else f"of at most {MOST_POWER_W:g} W"
            raise TuningInputError(f"Expected a highest power {expected}, got {self.max_power_w}.")
        if self.gpus is not None and not 1 <= self.gpus <= MOST_GPUS:
            expected = "1 or more GPUs" if self.gpus < 1 else f"at most {MOST_GPUS:,} GPUs"
            raise TuningInputError(f"Expected {expected}, got {self.gpus}.")
        if self.measure not in MEASURES:
            raise TuningInputError(f"Unknown way to measure {self.measure!r}.{suggestion(self.measure, MEASURES)}")

    def report_path(self, batch_size: int) -> Path:
        """Where the script reports what a run at `batch_size` did."""
        return Path(self.log_dir) / f"{self.job_id}+bs{batch_size}.train.json"

    def power_profile_path(self, batch_size: int) -> Path:
        """Where the power limits measured at `batch_size` are kept for later runs."""
        return Path(self.log_dir) / f"bs{batch_size}.power.json"

    def variables(self) -> dict[str, str]:
        """The environment variables that say all this."""
        said = {
            "ZEUS_LOG_DIR": self.log_dir,
            "ZEUS_JOB_ID": self.job_id,
            "ZEUS_COST_THRESH": str(self.cost_threshold),
            "ZEUS_ETA_KNOB": str(self.eta_knob),
            "ZEUS_TARGET_METRIC": str(self.target_metric),
            "ZEUS_MONITOR_PATH": self.monitor_path,
            "ZEUS_PROFILE_PARAMS": f"{self.profile_warmup_iters},{self.profile_measure_iters}",
            "ZEUS_USE_OPTIMAL_PL": str(self.use_optimal_pl),
            "BFTRAINER_MEASURE": self.measure,
            "BFTRAINER_SET_POWER_LIMITS": str(self.set_power_limits),
        }
        optional = {"BFTRAINER_MAX_POWER_W": self.max_power_w, "BFTRAINER_GPUS": self.gpus}
        return said | {name: str(value) for name, value in optional.items() if value is not None}

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> RunEnvironment:
        """What the environment variables say; those that are missing have their published defaults.

        Raises
        ------
        TuningInputError
            If the target metric is missing, or a variable is not what it should be.
        """
        if "ZEUS_TARGET_METRIC" not in environ:
            raise TuningInputError("ZEUS_TARGET_METRIC: Expected the target metric in the environment, got none.")
        warmup, measured = _pair(environ)
        return cls(
            target_metric=_number(environ, "ZEUS_TARGET_METRIC", 0.0),
            log_dir=environ.get("ZEUS_LOG_DIR", "zeus_log"),
            job_id=environ.get("ZEUS_JOB_ID", "zeus"),
            cost_threshold=_number(environ, "ZEUS_COST_THRESH", math.inf),
            eta_knob=_number(environ, "ZEUS_ETA_KNOB", 0.5),
            monitor_path=environ.get("ZEUS_MONITOR_PATH", "zeus_monitor"),
            profile_warmup_iters=warmup,
            profile_measure_iters=measured,
            use_optimal_pl=_boolean(environ, "ZEUS_USE_OPTIMAL_PL", True),
            max_power_w=_number(environ, "BFTRAINER_MAX_POWER_W", 0.0) if "BFTRAINER_MAX_POWER_W" in environ else None,
            gpus=_whole("BFTRAINER_GPUS", environ["BFTRAINER_GPUS"]) if "BFTRAINER_GPUS" in environ else None,
            set_power_limits=_boolean(environ, "BFTRAINER_SET_POWER_LIMITS", False),
            measure=environ.get("BFTRAINER_MEASURE", "auto"),
        )


def _number(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name)
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        raise TuningInputError(f"{name}: Expected a number, got {text!r}.") from None


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise TuningInputError(f"{name}: Expected a whole number, got {text!r}.") from None


def _boolean(environ: Mapping[str, str], name: str, default: bool) -> bool:
    text = environ.get(name, str(default))
    if text.lower() not in _BOOLEANS:
        raise TuningInputError(f"{name}: Expected true or false, got {text!r}.")
    return _BOOLEANS[text.lower()]


def _pair(environ: Mapping[str, str]) -> tuple[int, int]:
    name = "ZEUS_PROFILE_PARAMS"
    text = environ.get(name, "10,40")
    parts = text.split(",")
    if len(parts) != 2:
        raise TuningInputError(f"{name}: Expected two numbers of iterations, warm-up,measured, got {text!r}.")
    return _whole(name, parts[0]), _whole(name, parts[1])
