"""State of a recurring job: its plan, the next run to launch, and the results so far. No files, no processes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bftrainer.errors import TuningInputError
from bftrainer.zeus.master.script import RunSettings, TrainingReport
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer, check_seed, default_first
from bftrainer.zeus.policies.job import HistoryEntry, Job, check_knobs, zeus_cost
from bftrainer.zeus.recurrences import MAX_TRIES


@dataclass(frozen=True, slots=True)
class Plan:
    """A job, how often it recurs, and the settings it is tuned with.

    Parameters
    ----------
    job : Job
        With command, default batch size and default learning rate.
    recurrences : int
        Number of recurrences.
    batch_sizes : tuple of int
        Batch sizes that may be chosen.
    beta_knob, eta_knob : float
        Multiple of the lowest cost at which a run stops, and weight of energy in costs.
    seed : int
        Seed of the first run; each later run, retries included, uses the next number.
    workdir : str
        Absolute path of the directory that runs start in.

    Raises
    ------
    TuningInputError
        If the job lacks something or its learning rate cannot be scaled, a batch size is below 1 or given twice, the
        default is not one of the batch sizes, or a number is out of range.
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
            raise TuningInputError(f"{job}: Missing command to launch runs with.")
        if self.recurrences < 0:
            raise TuningInputError(f"Expected 0 or more recurrences, got {self.recurrences}.")
        for size in self.batch_sizes:
            if size < 1 or self.batch_sizes.count(size) > 1:
                raise TuningInputError(f"{job}: Expected batch sizes of 1 or more, each once, got {size}.")
        default_first(job, self.batch_sizes)
        job.scale_lr(job.default_bs or 0)


@dataclass(frozen=True, slots=True)
class Launch:
    """A run that is about to be launched.

    Parameters
    ----------
    recurrence, attempt : int
        Number of the recurrence, and of the try within it; both count from 1.
    batch_size : int
    learning_rate : float
    seed : int
    trial : int or None
        Number that the server gave the run, if a server decides.
    """

    recurrence: int
    attempt: int
    batch_size: int
    learning_rate: float
    seed: int
    trial: int | None = None

    @property
    def job_id(self) -> str:
        """Name of the run in a job's logs."""
        return f"rec{self.recurrence:02}+try{self.attempt:02}"


@dataclass(frozen=True, slots=True)
class Booked:
    """A run that has ended, as it is booked.

    Parameters
    ----------
    launch : Launch
    energy_j, time_s : float
        Energy and time that the run used.
    reached : bool
        Whether the run reached its target.
    cost_j : float
        Cost of the run that the policy learned from.
    failure : str or None
        Why the run failed; None if it did not, or only missed its target.
    """

    launch: Launch
    energy_j: float
    time_s: float
    reached: bool
    cost_j: float
    failure: str | None = None

    def entry(self) -> HistoryEntry:
        """Entry for a history; its power limit is None, because the script chooses that."""
        return HistoryEntry(self.launch.batch_size, None, self.energy_j, self.reached, self.time_s)


class Decisions(ABC):
    """Chooses batch sizes, and learns from what the runs did.

    Attributes
    ----------
    alone : bool
        Whether it learns from this master's runs only, so that the first run has to reach its target.
    """

    alone: bool

    def begin(self) -> None:
        """Get ready to choose; by default do nothing."""
        return

    @abstractmethod
    def choose(self) -> tuple[int, int | None]:
        """Batch size of the next run, and the number of its trial if there is one."""

    def close(self) -> None:
        """Release resources, such as connections; by default do nothing."""
        return

    def holding(self, launch: Launch) -> AbstractContextManager[object]:  # noqa: ARG002
        """Say for as long as the `with` block lasts that a run is going on; by default nobody is told."""
        return nullcontext()

    @abstractmethod
    def lowest_cost_j(self) -> float:
        """Cost of the cheapest run that other masters made; infinity if there is none."""

    @abstractmethod
    def learn(self, launch: Launch, report: TrainingReport, cost_j: float, failed: bool) -> bool:
        """Learn from a run; return whether it counts as having reached its target."""


class LocalDecisions(Decisions):
    """Lets a policy in this process decide.

    Parameters
    ----------
    policy : BatchSizeOptimizer
        The policy; it is changed.
    job : Job
    """

    alone = True

    def __init__(self, policy: BatchSizeOptimizer, job: Job) -> None:
        self.policy, self.job = policy, job

    def choose(self) -> tuple[int, int | None]:
        """See `Decisions`."""
        return int(self.policy.predict(self.job)), None

    def lowest_cost_j(self) -> float:
        """Infinity: other masters make no runs."""
        return math.inf

    def learn(self, launch: Launch, report: TrainingReport, cost_j: float, failed: bool) -> bool:  # noqa: ARG002
        """See `Decisions`."""
        self.policy.observe(self.job, launch.batch_size, cost_j, report.reached)
        return report.reached


class Recurrences:
    """Recurrences of a job: which run comes next, and what the runs so far did.

    Parameters
    ----------
    plan : Plan
    settings : RunSettings
        Settings of all runs, of which the highest power converts time into cost.
    decisions : Decisions
    """

    def __init__(self, plan: Plan, settings: RunSettings, decisions: Decisions) -> None:
        self.plan, self.settings, self.decisions = plan, settings, decisions
        self.recurrence, self.attempt = 1, 1
        self.seed = plan.seed
        self.min_cost_j = math.inf
        self.others_cost_j = math.inf
        self.spent_j = 0.0
        self.pending: Launch | None = None
        # What the pending run did, until it is booked.
        self.made: tuple[TrainingReport, str | None] | None = None
        self.booked: list[Booked] = []
        self.failure: str | None = None

    @property
    def done(self) -> bool:
        """Whether there is nothing left to run."""
        return self.recurrence > self.plan.recurrences or self.failure is not None

    @property
    def cost_bound_j(self) -> float:
        """Cost at which the next run stops."""
        if math.isinf(self.plan.beta_knob):
            # Needed if the cheapest recurrence cost nothing: infinity times 0 would be NaN.
            return math.inf
        return self.plan.beta_knob * min(self.min_cost_j, self.others_cost_j)

    @property
    def history(self) -> list[HistoryEntry]:
        """All runs so far."""
        return [each.entry() for each in self.booked]

    def next(self) -> Launch:
        """Return the run to make now: the same one until it is booked.

        Raises
        ------
        TuningError
            If the policy has no batch size left.
        """
        if self.pending is None:
            size, trial = self.decisions.choose()
            # Updated only here, so that a run which is repeated after a restart keeps its bound.
            self.others_cost_j = self.decisions.lowest_cost_j()
            rate = self.plan.job.scale_lr(size)
            self.pending = Launch(self.recurrence, self.attempt, size, rate, self.seed, trial)
        return self.pending

    def book(self, report: TrainingReport, failure: str | None = None) -> Booked:
        """Book the run that `next` returned; a run with a `failure` has not reached its target.

        If the default batch size misses the target, or 20 tries do, this sets the attribute `failure`.
        """
        launch = self.next()
        cost = zeus_cost(report.energy_j, report.time_s, self.plan.eta_knob, self.settings.total_power_w)
        reached = self.decisions.learn(launch, report, cost, failure is not None)
        booked = Booked(launch, report.energy_j, report.time_s, reached, cost, failure)
        self.booked.append(booked)
        self.pending = self.made = None
        self.seed += 1
        self.attempt += 1
        self.spent_j += cost
        if reached:
            self.min_cost_j = min(self.min_cost_j, self.spent_j)
            self.recurrence, self.attempt, self.spent_j = self.recurrence + 1, 1, 0.0
        else:
            self.failure = self._give_up_reason(launch, failure)
        return booked

    def _give_up_reason(self, launch: Launch, failure: str | None) -> str | None:
        job, why = self.plan.job, "" if failure is None else f" ({failure})"
        if launch.recurrence == 1 and self.decisions.alone:
            which = "default" if launch.batch_size == job.default_bs else "first"
            return f"{job}: The {which} batch size {launch.batch_size} did not converge{why}."
        if launch.attempt >= MAX_TRIES:
            return f"{job}: Did not reach the target metric in {MAX_TRIES} tries{why}."
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return all state except that of the decisions as plain values for JSON; infinity becomes None."""
        return {
            "recurrence": self.recurrence,
            "attempt": self.attempt,
            "seed": self.seed,
            "min_cost_j": self.min_cost_j if math.isfinite(self.min_cost_j) else None,
            "others_cost_j": self.others_cost_j if math.isfinite(self.others_cost_j) else None,
            "spent_j": self.spent_j,
            "pending": None if self.pending is None else asdict(self.pending),
            "made": None if self.made is None else asdict(self.made[0]) | {"failure": self.made[1]},
            "booked": [asdict(each) for each in self.booked],
            "failure": self.failure,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `to_dict` returned."""
        self.recurrence, self.attempt, self.seed = state["recurrence"], state["attempt"], state["seed"]
        self.min_cost_j, self.others_cost_j = (
            math.inf if state[name] is None else state[name] for name in ("min_cost_j", "others_cost_j")
        )
        self.spent_j, self.failure = state["spent_j"], state["failure"]
        self.pending = None if state["pending"] is None else Launch(**state["pending"])
        made = state["made"]
        if made is not None:
            self.made = TrainingReport(**{name: made[name] for name in made if name != "failure"}), made["failure"]
        self.booked = [Booked(**each | {"launch": Launch(**each["launch"])}) for each in state["booked"]]


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
