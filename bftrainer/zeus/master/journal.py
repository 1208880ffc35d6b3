"""Plan and state of a recurring job, a fold over its launches and results, and the journal that keeps them.

The journal has a line for the plan, then one for each launch and each result: on the disk before a run is launched, and
as soon as it has ended. A job is resumed by registering it and replaying its events: policies choose and learn again,
so that any deterministic policy comes back to where it was. A line that a kill cut off is none: its run is made again.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bftrainer.errors import OutputError, TuningInputError
from bftrainer.files.writing import LineJournal
from bftrainer.model.type_checks import fault_text
from bftrainer.plugins import full_name
from bftrainer.zeus.master.script import RunSettings, TrainingReport, check_table
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer, check_seed, default_first
from bftrainer.zeus.policies.job import HistoryEntry, Job, RecurrenceTracker, check_knobs, zeus_cost
from bftrainer.zeus.policies.policy_registry import BATCH_SIZES

JOURNAL = "journal.jsonl"
LOCK = "lock"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """A job, how often it recurs, and the settings it is tuned with; `workdir` is absolute."""

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
            raise TuningInputError(f"{job}: Missing command to launch runs with.")
        job.check_placeholders()
        if self.recurrences < 0:
            raise TuningInputError(f"Expected 0 or more recurrences, got {self.recurrences}.")
        for size in self.batch_sizes:
            if size < 1 or self.batch_sizes.count(size) > 1:
                raise TuningInputError(f"{job}: Expected batch sizes of 1 or more, each once, got {size}.")
        default_first(job, self.batch_sizes)
        job.scale_lr(job.default_bs or 0)


class JobJournal:
    """The journal of a job, in the directory of its logs, and where the job stands after the lines read so far."""

    def __init__(self, logdir: Path) -> None:
        self.path, self._applied = logdir / JOURNAL, 1  # lines, of which the plan is the first

    def begin(self, progress: Recurrences) -> None:
        """Write the plan of a new job, and how its policy was made: its class, and the options that are attributes."""
        kind, policy = type(progress.policy), progress.policy
        values = {name: getattr(policy, name, None) for name in inspect.signature(kind).parameters}
        options = {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)}
        about = {"class": full_name(kind), "options": options}
        self._write("plan", {"schema": SCHEMA, **plan_document(progress), "policy": about})

    def append(self, progress: Recurrences, event: str, fields: Mapping[str, Any]) -> None:
        """Append an event, and apply it once it is on the disk: `OutputError` if it cannot be written."""
        self._write(event, fields)
        progress.apply(event, fields)
        self._applied += 1

    def _write(self, event: str, fields: Mapping[str, Any]) -> None:
        LineJournal(self.path).append([json.dumps({"event": event, **fields}, allow_nan=False)])

    def replay(self, policy: BatchSizeOptimizer | None = None, *, only_look: bool = False) -> Recurrences:
        """Register the job of the plan, the first line, and replay its events: `OutputError` if that fails.

        A new policy like the one that the job began with is needed if the journal cannot say how to make it, and none
        if the job is only looked at.
        """
        logdir = self.path.parent
        if not self.path.exists():
            missing = (
                f"Not the logs of a recurring job: {JOURNAL} is missing" if logdir.is_dir() else "No such directory"
            )
            raise OutputError(f"{logdir}: {missing}.")
        lines = LineJournal(self.path).read()
        with self._name_line(1, "the plan of a job"):
            first = json.loads(lines[0])
            if first["event"] != "plan" or first["schema"] != SCHEMA:
                raise OutputError(f"Expected a plan of schema {SCHEMA}, got {first['event']} of {first['schema']}.")
            values = first["plan"]
            values["job"], values["batch_sizes"] = Job(**values["job"]), tuple(values["batch_sizes"])
            values["beta_knob"] = math.inf if values["beta_knob"] is None else values["beta_knob"]
            plan, settings = Plan(**values), check_table(RunSettings, first["settings"], OutputError, "settings")
            if policy is None and not only_look:
                kind, options = first["policy"]["class"], first["policy"]["options"]
                try:
                    policy = BATCH_SIZES.import_attribute(kind)(**options)
                except (TuningInputError, TypeError) as fault:
                    advice = "pass one as Driver.resume(..., policy=...)"
                    raise OutputError(f"The policy {kind} cannot be made again ({fault}); {advice}.") from None
            progress = Recurrences(plan, settings, policy)
        self.catch_up(progress)
        return progress

    def catch_up(self, progress: Recurrences) -> None:
        """Apply the events since the last one that is known, which another master may have appended."""
        for line in LineJournal(self.path).read()[self._applied :]:
            with self._name_line(self._applied + 1, "an event of a job"):
                fields = json.loads(line)
                progress.apply(fields.pop("event"), fields)
            self._applied += 1

    @contextmanager
    def _name_line(self, number: int, expected: str) -> Iterator[None]:
        """Turn whatever a line that is no such thing raises into `OutputError` that names it."""
        try:
            yield
        except OutputError as fault:
            raise OutputError(f"{self.path}:{number}: {fault}") from None
        except (ValueError, TypeError, LookupError, AttributeError, AssertionError, RecursionError) as fault:
            reason = fault_text(fault) if isinstance(fault, ValidationError) else str(fault)
            raise OutputError(f"{self.path}:{number}: Expected {expected}, got something else: {reason}") from None


def plan_document(progress: Recurrences) -> dict[str, Any]:
    """Return the plan of a job and the settings of its runs as plain values for JSON."""
    plan = asdict(progress.plan)
    # JSON has no infinity: null means that no run is stopped.
    beta_knob = plan["beta_knob"] if math.isfinite(plan["beta_knob"]) else None
    return {"plan": plan | {"beta_knob": beta_knob}, "settings": progress.settings.model_dump()}


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


class Recurrences:
    """Recurrences of a job: which run comes next, and what the runs so far did.

    The policy is registered and learns; without one nothing can be chosen, but events can be applied.
    """

    def __init__(self, plan: Plan, settings: RunSettings, policy: BatchSizeOptimizer | None) -> None:
        self.plan, self.settings, self.policy = plan, settings, policy
        if policy is not None:
            policy.register_job(plan.job, list(plan.batch_sizes))
        self.recurrence = 1
        self.pending: Launch | None = None  # chosen last, until it is booked
        self.launched = False  # whether its launch is an event that was applied
        self.booked: list[Booked] = []
        self.failure: str | None = None  # why the job is given up
        self._tracker = RecurrenceTracker(plan.job, plan.beta_knob)

    @property
    def done(self) -> bool:
        """Whether there is nothing left to run."""
        return self.recurrence > self.plan.recurrences or self.failure is not None

    @property
    def history(self) -> list[HistoryEntry]:
        """All runs so far; their power limit is None, because the script chooses that."""
        return [HistoryEntry(run.launch.batch_size, None, run.energy_j, run.reached, run.time_s) for run in self.booked]

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
                raise OutputError(
                    f"{launch.job_id}: Expected the policy to choose batch size {launch.batch_size} again, got {size}; "
                    "it is another policy, or had learned from earlier jobs."
                )
            self.pending, self.launched = launch, True
        elif event == "result":
            self._book(TrainingReport(**fields))
        else:
            raise OutputError(f"Expected launch or result, got {event!r}.")

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
