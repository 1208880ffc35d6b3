"""What the master is told: which job recurs how often, how each run of it is made, and the job files that say so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bftrainer.errors import TuningInputError
from bftrainer.files.documents import fault_text, telling_fault, toml_file
from bftrainer.zeus.master.script import RunEnvironment
from bftrainer.zeus.policies.interfaces import check_seed, default_first
from bftrainer.zeus.policies.job import Job, check_knobs

__all__ = ["Plan", "RunSettings", "read_job_file"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A job, and its recurrences.

    Parameters
    ----------
    job : Job
        With command, default batch size and default learning rate.
    recurrences : int
        Times that it recurs.
    batch_sizes : tuple of int
        Batch sizes to choose from.
    beta_knob, eta_knob : float
        Multiple of the lowest cost at which a run stops, and weight of energy in costs.
    seed : int
        Seed of the first run; each later one, retries too, has the next.
    workdir : str
        Absolute path of the directory that runs are made in, wherever the master then is.

    Raises
    ------
    TuningInputError
        If the job lacks something or its learning rate cannot be scaled, a batch size is below 1 or there twice, the
        default is not among them, or a number is out of range.
    """

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
            raise TuningInputError(f"{job}: Expected a command to launch runs with, got none.")
        if self.recurrences < 0:
            raise TuningInputError(f"Expected 0 or more recurrences, got {self.recurrences}.")
        for size in self.batch_sizes:
            if size < 1 or self.batch_sizes.count(size) > 1:
                raise TuningInputError(f"{job}: Expected batch sizes of 1 or more, each once, got {size}.")
        default_first(job, self.batch_sizes)
        job.scale_lr(job.default_bs or 0)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How runs are made.

    Parameters
    ----------
    monitor_path : str
        A monitoring program, passed on to the training script.
    max_power_w : float
        Highest power of one GPU.
    gpus : int
        GPUs of a run.
    observer_mode : bool
        Whether runs train at the highest power and book what the best limit would have taken.
    profile_warmup_iters, profile_measure_iters : int
        Iterations before and during the measurement of each power limit.
    set_power_limits : bool
        Whether scripts may set power limits.
    measure : str
        How scripts measure energy.
    timeout_s : float or None
        Time after which a run is ended as failed.
    grace_s : float
        Time that a run has to end when it is asked to.

    Raises
    ------
    TuningInputError
        If a value is out of range.
    """

    monitor_path: str
    max_power_w: float
    gpus: int = 1
    observer_mode: bool = False
    profile_warmup_iters: int = 10
    profile_measure_iters: int = 40
    set_power_limits: bool = False
    measure: str = "auto"
    timeout_s: float | None = None
    grace_s: float = 10.0

    def __post_init__(self) -> None:
        self.environment(0.0, Path(), "", math.inf, 0.5)
        if self.timeout_s is not None and not (self.timeout_s > 0 and math.isfinite(self.timeout_s)):
            raise TuningInputError(f"Expected a time-out above 0 s, got {self.timeout_s}.")
        if not (self.grace_s >= 0 and math.isfinite(self.grace_s)):
            raise TuningInputError(f"Expected a grace of 0 s or more, got {self.grace_s}.")

    @property
    def total_power_w(self) -> float:
        """Highest power of all GPUs of a run; time is converted to energy with it."""
        return self.max_power_w * self.gpus

    def environment(
        self, target_metric: float, logdir: Path, job_id: str, cost_threshold: float, eta_knob: float
    ) -> RunEnvironment:
        """What one run of the script is told."""
        same = ("monitor_path", "profile_warmup_iters", "profile_measure_iters", "max_power_w", "gpus")
        return RunEnvironment(
            target_metric=target_metric,
            log_dir=str(logdir),
            job_id=job_id,
            cost_threshold=cost_threshold,
            eta_knob=eta_knob,
            use_optimal_pl=not self.observer_mode,
            **{name: getattr(self, name) for name in (*same, "set_power_limits", "measure")},
        )

    def child_environment(self, run: RunEnvironment, environ: Mapping[str, str]) -> dict[str, str]:
        """All environment variables of one run: those of `environ`, and what it is told."""
        # Python keeps what it prints to a pipe; a user who watches wants it now.
        return {"PYTHONUNBUFFERED": "1"} | dict(environ) | run.variables()


def read_job_file(path: Path, changes: Mapping[str, Any] | None = None) -> tuple[Job, Any]:
    """A job, and how it is tuned: keys of the file as attributes.

    Parameters
    ----------
    path : Path
        The file; `workdir`, `log_base` and `monitor_path` in it are relative to its directory.
    changes : mapping, optional
        Values by key that go before those of the file; its paths are relative to the current directory.

    Raises
    ------
    TuningInputError
        Naming file and key, if it cannot be read, is no TOML, or a key is unknown, missing or of the wrong type.
    """
    from pydantic import ValidationError

    from bftrainer.zeus.file_schemas import JobFile, LaunchedJob

    content, _ = toml_file(path, TuningInputError)
    keys = ["schema" if name == "schema_" else name for name in JobFile.model_fields]
    known: dict[tuple[int | str, ...], list[str]] = {(): keys, ("job",): list(LaunchedJob.model_fields)}
    try:
        file: Any = JobFile.model_validate(content | dict(changes or {}))
        here = path.parent.resolve()
        launched = file.job.model_dump()
        job = Job(**launched | {"workdir": str(here / launched["workdir"])})
    except ValidationError as fault:
        raise TuningInputError(f"{path}: {fault_text(telling_fault(fault), lambda at: known.get(at, []))}") from None
    except TuningInputError as fault:
        raise TuningInputError(f"{path}: {fault}") from None
    given = changes or {}
    for name in ("log_base", "monitor_path"):
        base = Path.cwd() if name in given else here
        setattr(file, name, str(base / getattr(file, name)))
    return job, file
