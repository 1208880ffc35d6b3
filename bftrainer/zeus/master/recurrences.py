"""State of a recurring job: a fold over its launches, results and verdicts. No files, no processes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bftrainer.errors import RunDirectoryError
from bftrainer.zeus.master.plan import Plan, describe_policy
from bftrainer.zeus.master.script import RunSettings, TrainingReport
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer
from bftrainer.zeus.policies.job import HistoryEntry, Job, zeus_cost
from bftrainer.zeus.recurrences import MAX_TRIES, RecurrenceTracker


@dataclass(frozen=True, slots=True)
class Choice:
    """A batch size; a server adds the number of the trial, and the lowest cost that it knows of."""

    batch_size: int
    trial: int | None = None
    others_cost_j: float = math.inf


@dataclass(frozen=True, slots=True)
class Launch:
    """A run that is about to be launched; recurrence and try count from 1, and None bounds no cost."""

    recurrence: int
    attempt: int
    batch_size: int
    learning_rate: float
    seed: int
    trial: int | None = None
    cost_bound_j: float | None = None

    @property
    def job_id(self) -> str:
        """Name of the run in a job's logs."""
        return f"rec{self.recurrence:02}+try{self.attempt:02}"


@dataclass(frozen=True, slots=True)
class Booked:
    """A run that has ended, as it is booked, with the cost that the policy learned from."""

    launch: Launch
    energy_j: float
    time_s: float
    reached: bool
    cost_j: float
    failure: str | None = None

    def entry(self) -> HistoryEntry:
        """Entry for a history; its power limit is None, because the script chooses that."""
        return HistoryEntry(self.launch.batch_size, None, self.energy_j, self.reached, self.time_s)


class Decisions:
    """Chooses batch sizes, and learns from what the runs did; these are of a job that is only looked at.

    If they are `alone`, they learn from this master's runs only: then the first run has to reach its target, and a run
    has if its report says so.
    """

    def __init__(self, *, alone: bool) -> None:
        self.alone = alone

    def begin(self) -> None:
        """Get ready to choose."""

    def describe(self) -> dict[str, Any]:
        """Say as plain values for JSON how to make these decisions again."""
        raise NotImplementedError

    def choose(self) -> Choice:
        """Choose what the next run is made with."""
        raise NotImplementedError

    def repeat(self, launch: Launch) -> None:
        """Bring the decisions to where they were after they chose `launch`."""

    def learn(self, launch: Launch, report: TrainingReport, cost_j: float) -> bool:  # noqa: ARG002
        """Learn from a run; return whether it counts as having reached its target."""
        return report.reached

    def holding(self, launch: Launch) -> AbstractContextManager[object]:  # noqa: ARG002
        """Say for as long as the `with` block lasts that a run is going on; by default nobody is told."""
        return nullcontext()

    def close(self) -> None:
        """Release resources, such as connections."""


class LocalDecisions(Decisions):
    """Lets a policy in this process decide, which knows the job."""

    def __init__(self, policy: BatchSizeOptimizer, job: Job) -> None:
        super().__init__(alone=True)
        self.policy, self.job = policy, job

    def describe(self) -> dict[str, Any]:
        """See `Decisions`."""
        return {"policy": describe_policy(self.policy)}

    def choose(self) -> Choice:
        """See `Decisions`."""
        return Choice(int(self.policy.predict(self.job)))

    def repeat(self, launch: Launch) -> None:
        """Have the policy choose again: `RunDirectoryError` if it chooses another batch size."""
        size = self.choose().batch_size
        if size != launch.batch_size:
            raise RunDirectoryError(
                f"{launch.job_id}: Expected the policy to choose batch size {launch.batch_size} again, got {size}; it "
                "is another policy, or had learned from earlier jobs."
            )

    def learn(self, launch: Launch, report: TrainingReport, cost_j: float) -> bool:
        """See `Decisions`."""
        self.policy.observe(self.job, launch.batch_size, cost_j, report.reached)
        return report.reached


class Recurrences:
    """Recurrences of a job: which run comes next, and what the runs so far did.

    Attributes
    ----------
    recurrence : int
        Number of the current recurrence, from 1.
    pending, report : Launch or None, and TrainingReport or None
        The run that was chosen last, and what it did, until it is booked.
    booked : list of Booked
    failure : str or None
        Why the job is given up, if it is.
    """

    def __init__(self, plan: Plan, settings: RunSettings, decisions: Decisions) -> None:
        self.plan, self.settings, self.decisions = plan, settings, decisions
        self.recurrence = 1
        self.pending: Launch | None = None
        self.report: TrainingReport | None = None
        self.booked: list[Booked] = []
        self.failure: str | None = None
        self._tracker = RecurrenceTracker(
            plan.job, plan.beta_knob, max_tries=MAX_TRIES, first_must_reach=decisions.alone
        )

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
            choice = self.decisions.choose()
            bound_j = self._tracker.cost_bound_j(choice.others_cost_j)
            self.pending = Launch(
                self.recurrence,
                self._tracker.tries[self.recurrence - 1] + 1,
                choice.batch_size,
                self.plan.job.scale_lr(choice.batch_size),
                self.plan.seed + len(self.booked),
                choice.trial,
                bound_j if math.isfinite(bound_j) else None,
            )
        return self.pending

    def learn(self) -> bool:
        """Have the decisions learn from the pending run's report; return whether it counts as reached."""
        assert self.pending is not None
        assert self.report is not None
        return self.decisions.learn(self.pending, self.report, self._cost_j(self.report))

    def book(self, reached: bool) -> Booked:
        """Book the pending run; if the first one misses its target, or 20 tries do, the job is given up."""
        launch, report = self.pending, self.report
        assert launch is not None
        assert report is not None
        cost_j = self._cost_j(report)
        booked = Booked(launch, report.energy_j, report.time_s, reached, cost_j, report.failure)
        self.booked.append(booked)
        self.pending = self.report = None
        reason = self._tracker.record_try(self.recurrence - 1, launch.batch_size, cost_j, reached)
        if reason is not None:
            self.failure = reason if report.failure is None else f"{reason[:-1]} ({report.failure})."
        self.recurrence += reached
        return booked

    def apply(self, event: str, fields: Mapping[str, Any]) -> None:
        """Apply an event of a journal: ``launch``, ``result``, or the ``verdict`` of a server."""
        if event == "launch":
            launch = Launch(**fields)
            if self.pending is None:
                self.decisions.repeat(launch)
            self.pending = launch
        elif event == "result":
            self.report = TrainingReport(**fields)
            if self.decisions.alone:
                self.book(self.learn())
        elif event == "verdict":
            self.book(fields["reached"])
        else:
            raise RunDirectoryError(f"Expected launch, result or verdict, got {event!r}.")

    def to_dict(self) -> dict[str, Any]:
        """Return where the job stands as plain values for JSON."""
        return {
            "recurrence": self.recurrence,
            "pending": None if self.pending is None else asdict(self.pending),
            "booked": [asdict(run) for run in self.booked],
            "failure": self.failure,
        }

    def _cost_j(self, report: TrainingReport) -> float:
        return zeus_cost(report.energy_j, report.time_s, self.plan.eta_knob, self.settings.total_power_w)


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
