"""State of a recurring job: a fold over its launches and results. No files, no processes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bftrainer.errors import ResumeError
from bftrainer.zeus.master.plan import Plan
from bftrainer.zeus.master.script import RunSettings, TrainingReport
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer
from bftrainer.zeus.policies.job import HistoryEntry, zeus_cost
from bftrainer.zeus.recurrences import RecurrenceTracker


@dataclass(frozen=True, slots=True)
class Launch:
    """A run that is about to be launched; recurrence and try count from 1, and None bounds no cost."""

    recurrence: int
    attempt: int
    batch_size: int
    learning_rate: float
    seed: int
    cost_bound_j: float | None = None

    @property
    def job_id(self) -> str:
        """Name of the run in a job's logs."""
        return f"rec{self.recurrence:02}+try{self.attempt:02}"


@dataclass(frozen=True, slots=True)
class Booked:
    """A run that has ended, with the cost that the policy learned from."""

    launch: Launch
    energy_j: float
    time_s: float
    reached: bool
    cost_j: float
    failure: str | None = None

    def entry(self) -> HistoryEntry:
        """Entry for a history; its power limit is None, because the script chooses that."""
        return HistoryEntry(self.launch.batch_size, None, self.energy_j, self.reached, self.time_s)


class Recurrences:
    """Recurrences of a job: which run comes next, and what the runs so far did.

    The policy is registered and learns; without one nothing can be chosen, but events can be applied.

    Attributes
    ----------
    recurrence : int
        Number of the current recurrence, from 1.
    pending, launched : Launch or None, and bool
        The run that was chosen last, until it is booked, and whether its launch is an event that was applied.
    booked : list of Booked
    failure : str or None
        Why the job is given up, if it is.
    """

    def __init__(self, plan: Plan, settings: RunSettings, policy: BatchSizeOptimizer | None) -> None:
        self.plan, self.settings, self.policy = plan, settings, policy
        if policy is not None:
            policy.register_job(plan.job, list(plan.batch_sizes))
        self.recurrence = 1
        self.pending: Launch | None = None
        self.launched = False
        self.booked: list[Booked] = []
        self.failure: str | None = None
        self._tracker = RecurrenceTracker(plan.job, plan.beta_knob)

    @property
    def done(self) -> bool:
        """Whether there is nothing left to run."""
        return self.recurrence > self.plan.recurrences or self.failure is not None

    @property
    def history(self) -> list[HistoryEntry]:
        """All runs so far."""
        return [run.entry() for run in self.booked]

    def choose(self) -> Launch:
        """Choose the run to make now, the same one until it is booked: `TuningError` if no batch size is left."""
        if self.pending is None:
            assert self.policy is not None
            job, bound_j = self.plan.job, self._tracker.cost_bound_j()
            batch_size = int(self.policy.predict(job))
            self.pending = Launch(
                self.recurrence,
                self._tracker.tries[self.recurrence - 1] + 1,
                batch_size,
                job.scale_lr(batch_size),
                self.plan.seed + len(self.booked),
                bound_j if math.isfinite(bound_j) else None,
            )
        return self.pending

    def apply(self, event: str, fields: Mapping[str, Any]) -> None:
        """Apply a ``launch``, which the policy has to choose again, or a ``result``, which it learns from."""
        if event == "launch":
            launch = Launch(**fields)
            if self.policy is not None and (size := self.choose().batch_size) != launch.batch_size:
                raise ResumeError(
                    f"{launch.job_id}: Expected the policy to choose batch size {launch.batch_size} again, got {size}; "
                    "it is another policy, or had learned from earlier jobs."
                )
            self.pending, self.launched = launch, True
        elif event == "result":
            self._book(TrainingReport(**fields))
        else:
            raise ResumeError(f"Expected launch or result, got {event!r}.")

    def _book(self, report: TrainingReport) -> None:
        """Book the pending run; if the first one misses its target, or 20 tries do, the job is given up."""
        launch, job = self.pending, self.plan.job
        assert launch is not None
        cost_j = zeus_cost(report.energy_j, report.time_s, self.plan.eta_knob, self.settings.total_power_w)
        if self.policy is not None:
            self.policy.observe(job, launch.batch_size, cost_j, report.reached)
        self.booked.append(Booked(launch, report.energy_j, report.time_s, report.reached, cost_j, report.failure))
        self.pending, self.launched = None, False
        reason = self._tracker.record_try(self.recurrence - 1, launch.batch_size, cost_j, report.reached)
        if reason is not None:
            self.failure = reason if report.failure is None else f"{reason[:-1]} ({report.failure})."
        self.recurrence += report.reached

    def to_dict(self) -> dict[str, Any]:
        """Return where the job stands as plain values for JSON."""
        return {
            "recurrence": self.recurrence,
            "pending": None if self.pending is None else asdict(self.pending),
            "booked": [asdict(run) for run in self.booked],
            "failure": self.failure,
        }


class MasterObserver:
    """Is notified of what a master does; override the methods you need."""

    def started(self, logdir: Path, progress: Recurrences) -> None:
        """Recurrences start or resume, with their logs in `logdir`."""

    def launching(self, launch: Launch, progress: Recurrences) -> None:
        """A run is about to be launched."""

    def printed(self, piece: bytes) -> None:
        """The training script printed something, on standard output or error."""

    def booked(self, booked: Booked, progress: Recurrences) -> None:
        """A run has ended and is booked."""
