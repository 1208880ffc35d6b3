"""`ZeusMaster`, the master with the published interface: drives recurring jobs by a policy."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bftrainer.errors import OutputError, TuningInputError
from bftrainer.files.permissions import refuse_foreign
from bftrainer.zeus.master.driver import Driver, make_run
from bftrainer.zeus.master.hardware import Gpus, find_hardware, found_gpus
from bftrainer.zeus.master.journal import JOURNAL, write_journal
from bftrainer.zeus.master.launch import check_command
from bftrainer.zeus.master.recurrences import Decisions, Launch, LocalDecisions, MasterObserver, Plan, Recurrences
from bftrainer.zeus.master.script import RunSettings, make_directory
from bftrainer.zeus.master.server_decisions import ServerDecisions, job_spec
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer
from bftrainer.zeus.policies.job import HistoryEntry, Job

if TYPE_CHECKING:
    from bftrainer.zeus.server.client import BatchSizeClient


def _of_settings(name: str, doc: str) -> property:
    """Make a read-only property for a setting of a master."""
    return property(lambda master: getattr(master.settings, name), doc=doc)


class ZeusMaster:
    """Drives recurring training jobs: chooses batch sizes, launches the script, and learns from what it reports.

    Parameters
    ----------
    batch_size_optimizer : BatchSizeOptimizer
        The policy; it is changed.
    log_base : str
        Absolute path of a directory for logs; it is created with the first job's.
    monitor_path : str
        Absolute path of a monitoring program, which is passed on to scripts that use one.
    seed : int
        Seed of a job's first run; each later run uses the next number.
    observer_mode, profile_warmup_iters, profile_measure_iters, set_power_limits, measure, timeout_s, grace_s
        See `RunSettings`.
    max_power_w, gpus : float and int, optional
        See `RunSettings`; by default what NVML finds.
    allow_mixed : bool
        Whether GPUs may be of several models.
    observers : sequence of MasterObserver
        Are notified of each run.
    find : callable
        Finds GPUs.

    Attributes
    ----------
    bso : BatchSizeOptimizer
        The policy.
    settings : RunSettings
        Settings of all runs; `max_pl`, `monitor_path`, `observer_mode`, `profile_warmup_iters` and
        `profile_measure_iters` read them. None can be changed once the master is made.
    hardware : Hardware
        GPUs or machine that runs train on.

    Raises
    ------
    TuningInputError
        If a path is relative, or a setting is not usable.
    MeasurementError
        If GPUs are not as requested, or the highest power of one is unknown.
    OutputError
        If `log_base` is no directory, or one that others have made or may change.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 4 and algorithm 1.
    """

    def __init__(
        self,
        batch_size_optimizer: BatchSizeOptimizer,
        log_base: str,
        monitor_path: str,
        seed: int = 123456,
        observer_mode: bool = False,
        profile_warmup_iters: int = 10,
        profile_measure_iters: int = 40,
        *,
        max_power_w: float | None = None,
        gpus: int | None = None,
        allow_mixed: bool = False,
        set_power_limits: bool = False,
        measure: str = "auto",
        timeout_s: float | None = None,
        grace_s: float = 10.0,
        observers: Sequence[MasterObserver] = (),
        find: Callable[[], Gpus | None] = found_gpus,
    ) -> None:
        for name, path in (("log_base", log_base), ("monitor_path", monitor_path)):
            if not os.path.isabs(path):
                raise TuningInputError(f"Expected {name} as an absolute path, got {path!r}.")
        self.bso, self.log_base, self.seed = batch_size_optimizer, log_base, seed
        self.observers, self.find = observers, find
        self.hardware = hardware = find_hardware(max_power_w, gpus, allow_mixed=allow_mixed, find=find)
        if set_power_limits:
            hardware.check_limits()
        self.settings = RunSettings(
            monitor_path=monitor_path,
            max_power_w=hardware.max_power_w,
            gpus=hardware.count,
            observer_mode=observer_mode,
            profile_warmup_iters=profile_warmup_iters,
            profile_measure_iters=profile_measure_iters,
            set_power_limits=set_power_limits,
            measure=measure,
            timeout_s=timeout_s,
            grace_s=grace_s,
        )
        base = Path(log_base)
        if base.exists():
            if not base.is_dir():
                raise OutputError(f"{base}: Expected a directory, found a file.")
            refuse_foreign(base, OutputError, sticky=True)

    @property
    def max_pl(self) -> float:
        """Highest power of one GPU in watts."""
        watts = float(self.hardware.max_power_w)
        return int(watts) if watts.is_integer() else watts

    monitor_path = _of_settings("monitor_path", "The monitoring program.")
    observer_mode = _of_settings("observer_mode", "Whether runs train at the highest power.")
    profile_warmup_iters = _of_settings("profile_warmup_iters", "Iterations before each limit's measurement.")
    profile_measure_iters = _of_settings("profile_measure_iters", "Iterations of each measurement.")

    def build_logdir(
        self, job: Job, num_recurrence: int, eta_knob: float, beta_knob: float, exist_ok: bool = True
    ) -> str:
        """Create a directory for a job's logs, named after the job, its settings and the time.

        Raises
        ------
        OutputError
            If it cannot be created, or exists although `exist_ok` is false.
        """
        path = self._logdir(job, num_recurrence, eta_knob, beta_knob)
        try:
            make_directory(path, exist_ok=exist_ok)
        except FileExistsError:
            raise OutputError(f"{path}: Directory exists.") from None
        return str(path)

    def run_job(
        self,
        job: Job,
        batch_size: int,
        learning_rate: float,
        seed: int,
        logdir: str,
        rec_i: int,
        tries: int,
        eta_knob: float,
        cost_ub: float,
    ) -> tuple[float, float, bool]:
        """Launch the job's script once.

        Parameters
        ----------
        job : Job
        batch_size, learning_rate, seed
            Values of the command's placeholders.
        logdir : str
            Directory for the run's report and output.
        rec_i, tries : int
            Number of the recurrence and of the try; both count from 1.
        eta_knob : float
            Weight of energy in costs.
        cost_ub : float
            Cost that the run must stay below.

        Returns
        -------
        energy, time : float
            Energy and time that the run used, in joules and seconds.
        reached : bool
            Whether the run reached its target.

        Raises
        ------
        TuningInputError
            If the command cannot be run.
        TrainingReportError
            If the script succeeds without a usable report.
        """
        # A plan's bound and batch sizes are for several recurrences; a single run needs neither.
        plan = Plan(
            job, rec_i, tuple({batch_size, job.default_bs or batch_size}), math.inf, eta_knob, seed, _workdir(job)
        )
        job.check_placeholders()
        check_command(job.command or [], Path(plan.workdir), os.environ)
        launch = Launch(rec_i, tries, batch_size, learning_rate, seed)
        report, _ = make_run(Path(logdir).absolute(), plan, self.settings, launch, cost_ub, self._show)
        return report.energy_j, report.time_s, report.reached

    def _show(self, piece: bytes) -> None:
        for observer in self.observers:
            observer.printed(piece)

    def run(
        self, job: Job, num_recurrence: int, batch_sizes: Sequence[int], beta_knob: float, eta_knob: float
    ) -> list[HistoryEntry]:
        """Run all recurrences of a job.

        Parameters
        ----------
        job : Job
            The job, with a command, a default batch size and a default learning rate.
        num_recurrence : int
            Number of recurrences.
        batch_sizes : sequence of int
            Batch sizes that may be chosen.
        beta_knob : float
            A run stops before its cost reaches this multiple of the cheapest recurrence; inf: never.
        eta_knob : float
            Weight of energy in costs, 0 (only time counts) to 1 (only energy counts).

        Returns
        -------
        list of HistoryEntry
            One entry per run; their power limits are None.

        Raises
        ------
        TuningInputError
            If the job lacks something, or a number is out of range; then nothing is written.
        TuningError, OutputError
            See `Driver.drive`.
        """
        return self.start(job, num_recurrence, batch_sizes, beta_knob, eta_knob).drive()

    def start(
        self,
        job: Job,
        num_recurrence: int,
        batch_sizes: Sequence[int],
        beta_knob: float,
        eta_knob: float,
        client: BatchSizeClient | None = None,
    ) -> Driver:
        """Prepare the recurrences of a job, which `Driver.drive` then runs.

        Parameters
        ----------
        job, num_recurrence, batch_sizes, beta_knob, eta_knob
            See `run`.
        client : BatchSizeClient, optional
            Client of a server that decides instead of the policy, with the policy's settings.

        Raises
        ------
        TuningInputError, OutputError
            See `run`.
        ServerRequestError
            If the server cannot be reached, or refuses the job.
        """
        plan = Plan(job, num_recurrence, tuple(map(int, batch_sizes)), beta_knob, eta_knob, self.seed, _workdir(job))
        job.check_placeholders()
        check_command(job.command or [], Path(plan.workdir), os.environ)
        decisions: Decisions
        if client is not None:
            decisions = ServerDecisions(client, job_spec(plan, self.bso, self.hardware))
        else:
            self.bso.register_job(plan.job, list(plan.batch_sizes))
            decisions = LocalDecisions(self.bso, plan.job)
        progress = Recurrences(plan, self.settings, decisions)
        with self._new_logdir(job, num_recurrence, eta_knob, beta_knob) as logdir:
            write_journal(logdir, progress)
            decisions.begin()  # last: whatever is refused before it, a server never hears of
        return Driver(logdir, progress, self.observers, self.find)

    @contextmanager
    def _new_logdir(self, *named: Any) -> Iterator[Path]:
        """Create a directory for a job's logs, which goes again with all that was made for it if the block fails."""
        made = [path for path in self._logdir(*named).parents if not path.exists()]
        try:
            made.insert(0, self._made_logdir(*named))
            yield made[0]
        except BaseException:  # whatever it is, a job that is refused leaves nothing; it is raised again
            for path in made:
                with suppress(OSError, ValueError):  # not made, or another job has something there
                    (path / JOURNAL).unlink(missing_ok=True)
                    path.rmdir()
            raise

    def _made_logdir(self, *named: Any) -> Path:
        """Create a directory that no other job uses, even one that starts in the same second."""
        first = self._logdir(*named)
        for path in chain([first], (first.with_name(f"{first.name}+{number}") for number in count(2))):
            with suppress(FileExistsError):
                make_directory(path, exist_ok=False)
                return path
        raise AssertionError("there is always a next number")

    def _logdir(self, job: Job, recurrences: int, eta_knob: float, beta_knob: float) -> Path:
        now = time.strftime("%Y%m%d%H%M%S")
        name = f"{job.to_logdir()}+x{recurrences}+eta{eta_knob}+beta{beta_knob}+{now}"
        # Names of data sets and networks may hold any character; the directory must stay inside `log_base`.
        return Path(self.log_base) / "".join(each if each.isprintable() and each != os.sep else "_" for each in name)


def _workdir(job: Job) -> str:
    """Return the absolute directory that a job runs in."""
    return os.path.abspath(job.workdir or ".")
