"""`ZeusMaster`, the master with the published interface, and the `Driver` that makes a job's runs.

A run's script is logged, shown live and limited in time, and every process that it started is ended.
"""

from __future__ import annotations

import logging
import math
import os
import selectors
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from bftrainer.errors import OutputError, TuningError, TuningInputError
from bftrainer.files.writing import lock_file, report_os_errors
from bftrainer.supervisor import SupervisedProcess
from bftrainer.zeus.master.hardware import find_gpus, find_hardware, require_gpus, restore_limits
from bftrainer.zeus.master.journal import LOCK, JobJournal, Launch, MasterObserver, Plan, Recurrences
from bftrainer.zeus.master.script import (
    RunEnvironment,
    RunSettings,
    TrainingReport,
    check_table,
    make_directory,
    read_report,
)
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer
from bftrainer.zeus.policies.job import HistoryEntry, Job, attach_history, usage_fault
from bftrainer.zeus.simulation.campaign import write_history

logger = logging.getLogger(__name__)

HISTORY = "history.json"
LULL_S = 1.0
CHUNK = 1 << 16
# The kernel counts a wait in milliseconds, in 32 bits: at most 24 days.
LONGEST_WAIT_S = 3600.0
_SIGNALS = tuple(-signum for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))


class RunUsage(NamedTuple):
    """Energy and time of one run, and whether it reached its target: three values, as published."""

    energy_j: float
    time_s: float
    reached: bool


class ZeusMaster:
    """Drives recurring training jobs: chooses batch sizes, launches the script, and learns from what it reports.

    Parameters
    ----------
    batch_size_optimizer : BatchSizeOptimizer
        The policy, `bso` from then on; it is changed.
    log_base, monitor_path : str
        Absolute paths: a directory for logs, and a monitoring program, which is passed on to scripts that use one.
    seed : int
        Seed of a job's first run; each later run uses the next number.
    observer_mode, profile_warmup_iters, profile_measure_iters, **settings
        See `RunSettings`; power and number of GPUs are by default what NVML finds. Attributes with their names read
        them.
    observers : sequence of MasterObserver
        Are notified of each run.

    Raises
    ------
    TuningInputError, SettingsError, OutputError
        If a path is relative, or a setting is not usable; GPUs are not as requested, or their power is unknown; or
        `log_base` is a directory that others have made or may change.

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
        observers: Sequence[MasterObserver] = (),
        **settings: Any,
    ) -> None:
        for name, path in (("log_base", log_base), ("monitor_path", monitor_path)):
            if not os.path.isabs(path):
                raise TuningInputError(f"Expected {name} as an absolute path, got {path!r}.")
        _refuse_foreign(Path(log_base), sticky=True)
        self.bso, self.log_base, self.seed = batch_size_optimizer, log_base, seed
        self.observers = observers
        settings |= {"monitor_path": monitor_path, "observer_mode": observer_mode}
        settings |= {"profile_warmup_iters": profile_warmup_iters, "profile_measure_iters": profile_measure_iters}
        checked = check_table(RunSettings, settings, TuningInputError)
        self.hardware = find_hardware(checked.max_power_w, checked.gpus)
        power = {"max_power_w": self.hardware.max_power_w, "gpus": self.hardware.count}
        self.settings = checked.model_copy(update=power)
        if checked.set_power_limits:
            gpus = require_gpus(self.hardware.gpus)
            gpus.set_limits_w(gpus.limits_w())  # by which who may not set any learns it now

    @property
    def max_pl(self) -> float:
        """Highest power of one GPU in watts."""
        watts = self.hardware.max_power_w
        return int(watts) if watts.is_integer() else watts

    def __getattr__(self, name: str) -> object:
        if name in RunSettings.model_fields:
            return getattr(self.settings, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def build_logdir(
        self, job: Job, num_recurrence: int, eta_knob: float, beta_knob: float, exist_ok: bool = True
    ) -> str:
        """Create a directory for a job's logs, named after the job, its settings and the time: `OutputError` if not."""
        path = self._logdir(job, num_recurrence, eta_knob, beta_knob)
        if not make_directory(path, exist_ok=exist_ok):
            raise OutputError(f"{path}: Directory exists.")
        return str(path)

    def _logdir(self, job: Job, recurrences: int, eta_knob: float, beta_knob: float) -> Path:
        now = time.strftime("%Y%m%d%H%M%S")
        name = f"{job.to_logdir()}+x{recurrences}+eta{eta_knob}+beta{beta_knob}+{now}"
        # Names of data sets and networks may hold any character; the directory must stay inside `log_base`.
        return Path(self.log_base) / "".join(char if char.isprintable() and char != os.sep else "_" for char in name)

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
    ) -> RunUsage:
        """Launch the job's script once; return its energy and time, and whether it reached its target.

        Recurrence and tries count from 1; `cost_ub` is the cost that the run must stay below.
        """
        # A plan's bound and batch sizes are for several recurrences; a single run needs neither.
        sizes = tuple({batch_size, job.default_bs or batch_size})
        plan = _make_plan(job, rec_i, sizes, math.inf, eta_knob, seed)
        launch = Launch(rec_i, tries, batch_size, learning_rate, seed, cost_bound_j=cost_ub)
        show = partial(_notify, self.observers, "printed")
        report = make_run(Path(logdir).absolute(), plan, self.settings, launch, show)
        return RunUsage(report.energy_j, report.time_s, report.reached)

    def run(
        self, job: Job, num_recurrence: int, batch_sizes: Sequence[int], beta_knob: float, eta_knob: float
    ) -> list[HistoryEntry]:
        """Run all recurrences of a job; return an entry for each run, without power limits.

        Parameters
        ----------
        job : Job
            The job, with a command, a default batch size and a default learning rate.
        num_recurrence, batch_sizes
            Number of recurrences, and batch sizes that may be chosen.
        beta_knob, eta_knob : float
            A run stops before its cost reaches this multiple of the cheapest recurrence (inf: never); weight of energy
            in costs, 0 (only time counts) to 1 (only energy counts).

        Raises
        ------
        TuningInputError, TuningError, OutputError
            See `Driver.drive`; also if the job lacks something, or a number is out of range. Then nothing is written.
        """
        return self.start(job, num_recurrence, batch_sizes, beta_knob, eta_knob).drive()

    def start(
        self, job: Job, num_recurrence: int, batch_sizes: Sequence[int], beta_knob: float, eta_knob: float
    ) -> Driver:
        """Prepare the recurrences of a job, which `Driver.drive` then runs; see `run`."""
        plan = _make_plan(job, num_recurrence, tuple(map(int, batch_sizes)), beta_knob, eta_knob, self.seed)
        progress = Recurrences(plan, self.settings, self.bso)
        wanted = self._logdir(job, num_recurrence, eta_knob, beta_knob)
        names = chain([wanted.name], (f"{wanted.name}+{number}" for number in count(2)))
        # Another job may start in the same second.
        journal = JobJournal(
            next(path for path in map(wanted.with_name, names) if make_directory(path, exist_ok=False))
        )
        journal.begin(progress)
        return Driver(journal, progress, self.observers)


def _refuse_foreign(path: Path, *, sticky: bool = False) -> None:
    """Refuse a directory of another user, or one that any may change; if `sticky`, not one like ``/tmp``."""
    about = path.stat() if path.is_dir() else None
    if about is None or (sticky and about.st_mode & stat.S_ISVTX):
        return
    if about.st_uid != os.geteuid() or about.st_mode & stat.S_IWOTH:
        raise OutputError(f"{path}: Expected a directory of this user's that no other user may write to.")


def _make_plan(
    job: Job, recurrences: int, batch_sizes: tuple[int, ...], beta_knob: float, eta_knob: float, seed: int
) -> Plan:
    """Make a plan whose command can be run, in the absolute directory of the job."""
    plan = Plan(job, recurrences, batch_sizes, beta_knob, eta_knob, seed, os.path.abspath(job.workdir or "."))
    check_command(job.command or [], Path(plan.workdir), os.environ)
    return plan


class Driver:
    """Makes the remaining runs of a recurring job, whose journal was begun, and keeps the journal."""

    def __init__(self, journal: JobJournal, progress: Recurrences, observers: Sequence[MasterObserver] = ()) -> None:
        self.logdir, self.journal = journal.path.parent, journal
        self.progress, self.observers = progress, observers

    @classmethod
    def resume(
        cls, logdir: Path, observers: Sequence[MasterObserver] = (), policy: BatchSizeOptimizer | None = None
    ) -> Driver:
        """Make the driver of an interrupted job from its journal.

        A new `policy` like the one that the job began with is needed if that one cannot be made again by itself.
        `OutputError` if there is no journal, the policy decides otherwise than it did, or others have made the
        directory or may change it: its command would be run.
        """
        _refuse_foreign(logdir)
        # Absolute, because scripts get this path and run in another directory.
        journal = JobJournal(logdir.absolute())
        return cls(journal, journal.replay(policy), observers)

    def drive(self, at_most: int | None = None) -> list[HistoryEntry]:
        """Make all remaining runs, or those of the next `at_most` recurrences; return an entry per run since the first.

        Raises
        ------
        TuningError
            If the job is given up, a script succeeds without a usable report, or the policy has no batch size left;
            with the `history` so far.
        TuningInputError, OutputError
            If the command cannot be run, another master is running the job, or journal or log cannot be written.
        """
        progress, journal = self.progress, self.journal
        plan, settings = progress.plan, progress.settings
        notify = partial(_notify, self.observers)
        with ExitStack() as stack:
            # Processes of an earlier master may need their grace time to end.
            patience_s = settings.grace_s + 1.0
            lock = stack.enter_context(lock_file(self.logdir / LOCK, self.logdir, patience_s, stays=True))
            journal.catch_up(progress)
            if progress.booked:
                write_history(self.logdir / HISTORY, progress.history)
            check_command(plan.job.command or [], Path(plan.workdir), os.environ)
            stack.enter_context(attach_history(lambda: progress.history))
            # Scripts may set the power limits of these.
            gpus = find_gpus() if settings.set_power_limits else None
            limited = None if gpus is None else gpus.first(settings.gpus or len(gpus))
            restore = stack.enter_context(restore_limits(self.logdir, limited))
            notify("started", self.logdir, progress)
            pause = math.inf if at_most is None else progress.recurrence + at_most
            while not progress.done and progress.recurrence < pause:
                launch = progress.choose()
                if not progress.launched:
                    journal.append(progress, "launch", asdict(launch))
                notify("launching", launch, progress)
                report = make_run(self.logdir, plan, settings, launch, partial(notify, "printed"), (lock,))
                restore()
                journal.append(progress, "result", asdict(report))
                write_history(self.logdir / HISTORY, progress.history)
                logger.debug("%s: %s", plan.job, progress.booked[-1])
                notify("booked", progress.booked[-1], progress)
            if progress.failure is not None:
                raise TuningError(progress.failure)
        return progress.history


def _notify(observers: Sequence[MasterObserver], event: str, *values: object) -> None:
    for observer in observers:
        getattr(observer, event)(*values)


def make_run(
    logdir: Path,
    plan: Plan,
    settings: RunSettings,
    launch: Launch,
    show: Callable[[bytes], None],
    descriptors: Sequence[int] = (),
) -> TrainingReport:
    """Make one run of a job's script; `descriptors` stay open until all its processes are gone.

    A failed run without a report gets the time that it took, at the highest power.
    """
    environment = RunEnvironment(
        **settings.model_dump(),
        target_metric=plan.job.target_metric,
        log_dir=str(logdir),
        job_id=launch.job_id,
        cost_threshold=math.inf if launch.cost_bound_j is None else launch.cost_bound_j,
        eta_knob=plan.eta_knob,
    )
    path = environment.report_path(launch.batch_size)
    try:
        # An old report would be mistaken for this run's.
        path.unlink(missing_ok=True)
    except OSError as cause:
        raise OutputError(f"{path}: cannot be removed ({cause.strerror or cause}).") from None
    ended = run_script(
        plan.job.gen_command(launch.batch_size, launch.learning_rate, launch.seed, launch.recurrence),
        Path(plan.workdir),
        # Python buffers its output to a pipe; a user who watches wants to see it at once.
        {"PYTHONUNBUFFERED": "1"} | dict(os.environ) | environment.variables(),
        logdir / f"{launch.job_id}.train.log",
        show,
        settings.timeout_s,
        settings.grace_s,
        descriptors,
    )
    if ended.failure is None:
        return _read_believable(path, environment)
    if not ended.timed_out and (ended.status is None or ended.status in _SIGNALS):
        # A system that kills a job's processes may kill this one next; then the run is repeated, rather than booked.
        time.sleep(LULL_S)
    with suppress(TuningError):  # what it said that it used, else its time at the highest power
        return replace(_read_believable(path, environment), reached=False, failure=ended.failure)
    return TrainingReport(environment.total_power_w * ended.time_s, ended.time_s, False, failure=ended.failure)


def _read_believable(path: Path, environment: RunEnvironment) -> TrainingReport:
    """Read a report, which the batch-size server would believe too."""
    report = read_report(path)
    fault = usage_fault(report.energy_j, report.time_s, environment.total_power_w, environment.eta_knob, ended=True)
    if fault is not None:
        raise TuningError(f"{path}: {': '.join(fault)}")
    return report


@dataclass(frozen=True, slots=True)
class Ended:
    """How a script ended: a negative status is a signal, and the time lasts to the end of all that it started."""

    status: int | None
    timed_out: bool
    time_s: float

    @property
    def failure(self) -> str | None:
        """Describe what went wrong; None if nothing did."""
        if self.timed_out:
            return f"it ran out of time after {self.time_s:.0f} s"
        if self.status is None:
            return "it was killed with its supervisor"
        if self.status:
            return f"it ended by signal {-self.status}" if self.status < 0 else f"it exited with status {self.status}"
        return None


def check_command(command: Sequence[str], workdir: Path, environ: Mapping[str, str]) -> None:
    """Check that a command can be run in a directory: `TuningInputError` if either does not exist."""
    if not command or not command[0]:
        raise TuningInputError("Expected a command, got an empty one.")
    if not workdir.is_dir():
        raise TuningInputError(f"{workdir}: No such directory to run the command in.")
    program = command[0]
    path = str(workdir / program) if os.sep in program else program
    if shutil.which(path, path=environ.get("PATH", os.defpath)) is None:
        raise TuningInputError(f"Expected a program that can be run in {workdir}, got {program!r}.")


def run_script(
    command: Sequence[str],
    workdir: Path,
    environ: Mapping[str, str],
    log: Path,
    show: Callable[[bytes], None],
    timeout_s: float | None = None,
    grace_s: float = 10.0,
    descriptors: Sequence[int] = (),
) -> Ended:
    """Run a command until it ends, or is ended after `timeout_s`; log and show its output as it arrives."""
    with report_os_errors(log):
        file = log.open("wb", buffering=0)

    def take(piece: bytes) -> None:
        """Log a piece of output, and show it."""
        with report_os_errors(log):
            file.write(piece)
        show(piece)

    def take_last(piece: bytes) -> None:
        """Log what a script prints while it is ended; errors of the log matter less by then."""
        with suppress(OSError):
            file.write(piece)

    with file:
        started_s = time.monotonic()
        try:
            process = SupervisedProcess(command, workdir, environ, subprocess.PIPE, grace_s, descriptors)
        except (OSError, ValueError) as error:
            raise TuningInputError(f"The command cannot be run: {error}.") from None
        try:
            timed_out = not _follow(process, take, math.inf if timeout_s is None else started_s + timeout_s)
        finally:
            _end(process, take_last)
    status = process.status
    if "refused" in status:
        raise TuningInputError(f"The command cannot be run: {status['refused']}.")
    # A command that ended in time may leave processes that outlive the limit: that is no time-out.
    return Ended(
        int(status["exited"]) if "exited" in status else None,
        timed_out and "alone" not in status,
        time.monotonic() - started_s,
    )


def _follow(process: SupervisedProcess, take: Callable[[bytes], None], deadline_s: float) -> bool:
    """Pass on all output until all processes are gone; return False if the time limit came first."""
    stream = process.supervisor.stdout
    assert stream is not None
    gone = os.pidfd_open(process.supervisor.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            selector.register(gone, selectors.EVENT_READ)
            while (remaining_s := deadline_s - time.monotonic()) > 0:
                ready = [key.fileobj for key, _ in selector.select(min(remaining_s, LONGEST_WAIT_S))]
                piece = os.read(stream.fileno(), CHUNK) if stream in ready else b""
                if piece:
                    take(piece)
                elif ready:
                    return True
            return False
    finally:
        os.close(gone)


def _end(process: SupervisedProcess, take: Callable[[bytes], None]) -> None:
    """End all that the script has started, passing on its last output."""
    process.stop()
    # Without a reader, SIGPIPE would end the command at its last output.
    with process.supervisor:
        _follow(process, take, math.inf)
    while not process.read_status():
        pass
    # Kill the command here if its supervisor was killed before it could do so.
    status = process.status
    if "started" in status and "exited" not in status:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(int(status["started"]), signal.SIGKILL)
