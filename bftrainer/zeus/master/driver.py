"""Launch the runs of a recurring job one after the other, and keep the job's journal."""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from bftrainer.errors import JournalError, NotConvergedError, OutputError, TrainingReportError
from bftrainer.files.manifest import list_written
from bftrainer.files.permissions import refuse_foreign
from bftrainer.files.writing import leftovers
from bftrainer.zeus.master.hardware import LIMITS, Gpus, found_gpus, restoring_limits
from bftrainer.zeus.master.journal import JOURNAL, locked, read_journal, runs_booked, write_journal
from bftrainer.zeus.master.launch import Ended, check_command, run_script
from bftrainer.zeus.master.recurrences import Launch, MasterObserver, Plan, Recurrences
from bftrainer.zeus.master.script import RunEnvironment, RunSettings, TrainingReport, read_report
from bftrainer.zeus.policies.job import HistoryEntry, usage_fault
from bftrainer.zeus.recurrences import attach_history
from bftrainer.zeus.simulation.files import write_history

logger = logging.getLogger(__name__)

HISTORY = "history.json"
LULL_S = 1.0
# Files that the master or scripts first write under a temporary name.
_REPLACED = (JOURNAL, HISTORY, LIMITS, "rec*.train.json", "bs*.power.json")
_WRITTEN = (JOURNAL, HISTORY, "rec*.train.json", "rec*.train.log", "bs*.power.json")
_ASKED = tuple(-signum for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))


class Driver:
    """Makes the remaining runs of a recurring job, and keeps its journal.

    Parameters
    ----------
    logdir : Path
        Directory for journal, history, reports and outputs.
    progress : Recurrences
        State of the job.
    observers : sequence of MasterObserver
        Are notified of each run.
    find : callable
        Finds the GPUs whose power limits are restored.
    """

    def __init__(
        self,
        logdir: Path,
        progress: Recurrences,
        observers: Sequence[MasterObserver] = (),
        find: Callable[[], Gpus | None] = found_gpus,
    ) -> None:
        # Absolute, because scripts get this path and run in another directory.
        self.logdir = logdir.absolute()
        self.progress, self.observers, self.find = progress, observers, find
        self._resumed = False
        self._token: str | None = None

    @classmethod
    def resumed(cls, logdir: Path, observers: Sequence[MasterObserver] = (), token: str | None = None) -> Driver:
        """Make the driver of an interrupted job from its journal; `token` is for a server that decides.

        Raises
        ------
        JournalError
            If there is no journal to resume from, or others have made its directory or may change it: its command
            would be run.
        """
        if logdir.is_dir():
            refuse_foreign(logdir, JournalError)
        driver = cls(logdir, read_journal(logdir, token), observers)
        driver._resumed, driver._token = True, token
        return driver

    def drive(self, at_most: int | None = None) -> list[HistoryEntry]:
        """Make all remaining runs, or those of the next recurrences.

        Parameters
        ----------
        at_most : int, optional
            Number of recurrences after which to pause; `resumed` continues from there.

        Returns
        -------
        list of HistoryEntry
            One entry per run, earlier runs included.

        Raises
        ------
        NotConvergedError
            If the default batch size misses the target in the first run, or a recurrence misses it 20 times.
        TrainingReportError
            If the script succeeds without a usable report.
        TuningError
            If the policy has no batch size left. These errors hold the `history` so far.
        TuningInputError
            If the command cannot be run.
        JournalError
            If another master is running the job, or has continued it since this one last did.
        OutputError
            If the journal or a log cannot be written.
        """
        with ExitStack() as stack:
            # Processes of an earlier master may need their grace time to end.
            lock = stack.enter_context(locked(self.logdir, self.progress.settings.grace_s + 1.0))
            self._reload_journal()
            progress = self.progress
            plan, settings = progress.plan, progress.settings
            check_command(plan.job.command or [], Path(plan.workdir), os.environ)
            stack.enter_context(attach_history(lambda: progress.history))
            restore = stack.enter_context(restoring_limits(self.logdir, self._limited_gpus()))
            if self._resumed:
                self._clean_up()
            self._list_files(final=False)
            stack.callback(progress.decisions.close)
            progress.decisions.begin()
            self._notify("started", self.logdir, progress)
            pause = math.inf if at_most is None else progress.recurrence + at_most
            while not progress.done and progress.recurrence < pause:
                if progress.made is None:
                    launch = progress.next()
                    write_journal(self.logdir, progress)
                    self._notify("launching", launch, progress)
                    bound, show = progress.cost_bound_j, partial(self._notify, "printed")
                    with progress.decisions.holding(launch):
                        progress.made = make_run(self.logdir, plan, settings, launch, bound, show, (lock,))
                    # Saved first: if the server cannot be reached, the run need not be repeated.
                    write_journal(self.logdir, progress)
                    restore()
                self._book(*progress.made)
            self._list_files(final=progress.done or progress.failure is not None)
            if progress.failure is not None:
                raise NotConvergedError(progress.failure)
        return progress.history

    def _list_files(self, *, final: bool) -> None:
        """List in the manifest what the job has written; with checksums when nothing of it changes any more."""
        list_written(self.logdir, {path.name for name in _WRITTEN for path in self.logdir.glob(name)}, final=final)

    def _reload_journal(self) -> None:
        """Reload the journal: another master may have continued the job before this one locked it."""
        if self._resumed:
            self.progress = read_journal(self.logdir, self._token)
        elif runs_booked(self.logdir) > len(self.progress.booked):
            # The caller's policy object cannot be brought to the journal's state.
            raise JournalError(f"{self.logdir}: Another master has gone on with this job.")

    def _clean_up(self) -> None:
        """Clean up after a killed master or script: delete half-written files, rewrite a history that lags behind."""
        for name in _REPLACED:
            for left in leftovers(self.logdir, name):
                left.unlink()
        if self.progress.booked:
            write_history(self.logdir / HISTORY, self.progress.history)

    def _limited_gpus(self) -> Gpus | None:
        """Find the GPUs whose power limits scripts may set."""
        settings = self.progress.settings
        gpus = self.find() if settings.set_power_limits else None
        return None if gpus is None else gpus.first(settings.gpus or len(gpus))

    def _book(self, report: TrainingReport, failure: str | None) -> None:
        progress = self.progress
        booked = progress.book(report, failure)
        write_journal(self.logdir, progress)
        write_history(self.logdir / HISTORY, progress.history)
        logger.debug("%s: %s", progress.plan.job, booked)
        self._notify("booked", booked, progress)

    def _notify(self, event: str, *what: object) -> None:
        for observer in self.observers:
            getattr(observer, event)(*what)


def make_run(
    logdir: Path,
    plan: Plan,
    settings: RunSettings,
    launch: Launch,
    cost_bound_j: float,
    show: Callable[[bytes], None] = lambda piece: None,  # noqa: ARG005
    held: Sequence[int] = (),
) -> tuple[TrainingReport, str | None]:
    """Make one run of a job's script.

    Parameters
    ----------
    logdir : Path
        Directory for the run's report and output.
    plan, settings, launch
        Describe the run.
    cost_bound_j : float
        Cost that the run must stay below.
    show : callable
        Is called with each piece of output as it arrives.
    held : sequence of int
        File descriptors that stay open until all processes of the run are gone.

    Returns
    -------
    report : TrainingReport
        Energy and time of the run. A failed run without a report gets the time that it took, at the highest power.
    failure : str or None
        Why the run failed: an exit status other than 0, or a time-out.

    Raises
    ------
    TuningInputError, TrainingReportError, OutputError
        See `Driver.drive`.
    """
    job = plan.job
    run = RunEnvironment(job.target_metric, str(logdir), launch.job_id, cost_bound_j, plan.eta_knob, settings)
    path = run.report_path(launch.batch_size)
    # An old report would be mistaken for this run's.
    _remove(path)
    ended = run_script(
        job.gen_command(launch.batch_size, launch.learning_rate, launch.seed, launch.recurrence),
        Path(plan.workdir),
        # Python buffers its output to a pipe; a user who watches wants to see it at once.
        {"PYTHONUNBUFFERED": "1"} | dict(os.environ) | run.variables(),
        logdir / f"{run.job_id}.train.log",
        show,
        settings.timeout_s,
        settings.grace_s,
        held,
    )
    if ended.failure is None:
        return _believable(path, settings, plan.eta_knob), None
    if not ended.timed_out and (ended.status is None or ended.status in _ASKED):
        # A system that kills a job's processes may kill this one next; then the run is repeated, rather than booked.
        time.sleep(LULL_S)
    return _of_failed(ended, path, settings, plan.eta_knob), ended.failure


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as cause:
        raise OutputError(f"{path}: cannot be removed ({cause.strerror or cause}).") from None


def _believable(path: Path, settings: RunSettings, eta_knob: float) -> TrainingReport:
    """Read a report, which the batch-size server would believe too."""
    report = read_report(path)
    fault = usage_fault(report.energy_j, report.time_s, settings.total_power_w, eta_knob, ended=True)
    if fault is not None:
        raise TrainingReportError(f"{path}: {': '.join(fault)}")
    return report


def _of_failed(ended: Ended, path: Path, settings: RunSettings, eta_knob: float) -> TrainingReport:
    with suppress(TrainingReportError):
        report = _believable(path, settings, eta_knob)
        return replace(report, reached=False)
    return TrainingReport(settings.total_power_w * ended.time_s, ended.time_s, False)
