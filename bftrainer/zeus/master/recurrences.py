"""State of a recurring job: its plan, the next run to launch, and the results so far. No files, no processes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bftrainer.errors import TuningInputError
from bftrainer.zeus.master.script import TrainingReport
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer, check_seed, default_first
from bftrainer.zeus.policies.job import HistoryEntry, Job, check_knobs, zeus_cost
from bftrainer.zeus.simulation.recurring import MAX_TRIES


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
    """A run to be made.

    Parameters
    ----------
    recurrence, attempt : int
        Which recurrence it belongs to, and which try of it this is; from 1.
    batch_size : int
    learning_rate : float
    seed : int
    trial : int or None
        Number that a server gave it.
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
    """A run that was made.

    Parameters
    ----------
    launch : Launch
    energy_j, time_s : float
        What it used.
    reached : bool
        Whether it reached its target.
    cost_j : float
        What the policy was told it cost.
    failure : str or None
        Why it failed, as far as it is not for its target.
    """

    launch: Launch
    energy_j: float
    time_s: float
    reached: bool
    cost_j: float
    failure: str | None = None

    def entry(self) -> HistoryEntry:
        """The run as histories hold it; the power limit is the script's affair."""
        return HistoryEntry(self.launch.batch_size, None, self.energy_j, self.reached, self.time_s)


class Decisions(ABC):
    """Where batch sizes come from, and what runs did goes to.

    Attributes
    ----------
    alone : bool
        Whether nobody else's runs teach it, so that the first run has to reach its target.
    """

    alone: bool

    def begin(self) -> None:
        """Get ready to choose; by default nothing is to be done."""
        return

    @abstractmethod
    def choose(self) -> tuple[int, int | None]:
        """Batch size of the next run, and the number of its trial if there is one."""

    def close(self) -> None:
        """Let go of what it takes to choose; by default nothing."""
        return

    @abstractmethod
    def lowest_cost_j(self) -> float:
        """Cost of the cheapest run that others made; infinity if there is none."""

    @abstractmethod
    def learn(self, launch: Launch, report: TrainingReport, cost_j: float, failed: bool) -> bool:
        """Hear what a run did; whether it counts as having reached its target."""


class LocalDecisions(Decisions):
    """Decisions of a policy in this process.

    Parameters
    ----------
    policy : BatchSizeOptimizer
        It is changed.
    job : Job
    """

    alone = True

    def __init__(self, policy: BatchSizeOptimizer, job: Job) -> None:
        self.policy, self.job = policy, job

    def choose(self) -> tuple[int, int | None]:
        """See `Decisions`."""
        return int(self.policy.predict(self.job)), None

    def lowest_cost_j(self) -> float:
        """Infinity: nobody else makes runs."""
        return math.inf

    def learn(self, launch: Launch, report: TrainingReport, cost_j: float, failed: bool) -> bool:  # noqa: ARG002
        """See `Decisions`."""
        self.policy.observe(self.job, launch.batch_size, cost_j, report.reached)
        return report.reached


class Recurrences:
    """A job's recurrences, try by try.

    Parameters
    ----------
    plan : Plan
    decisions : Decisions
    max_power_w : float
        Power of all GPUs that time is converted with.
    """

    def __init__(self, plan: Plan, decisions: Decisions, max_power_w: float) -> None:
        self.plan, self.decisions, self.max_power_w = plan, decisions, max_power_w
        self.recurrence, self.attempt = 1, 1
        self.seed = plan.seed
        self.min_cost_j = math.inf
        self.others_cost_j = math.inf
        self.spent_j = 0.0
        self.pending: Launch | None = None
        # What the pending run did, as long as it is not booked.
        self.made: tuple[TrainingReport, str | None] | None = None
        self.booked: list[Booked] = []
        self.failure: str | None = None

    @property
    def done(self) -> bool:
        """Whether there is nothing left to run."""
        return self.recurrence > self.plan.recurrences or self.failure is not None

    @property
    def cost_bound_j(self) -> float:
        """Cost at which a run stops."""
        if math.isinf(self.plan.beta_knob):
            # Also where the cheapest recurrence cost nothing: the product would be NaN.
            return math.inf
        return self.plan.beta_knob * min(self.min_cost_j, self.others_cost_j)

    @property
    def history(self) -> list[HistoryEntry]:
        """All runs so far."""
        return [each.entry() for each in self.booked]

    def next(self) -> Launch:
        """The run to make now; the same one until it is booked.

        Raises
        ------
        TuningError
            If the policy has no batch size left.
        """
        if self.pending is None:
            size, trial = self.decisions.choose()
            # Lowered here and kept, so that a run which is made again may cost the same.
            self.others_cost_j = self.decisions.lowest_cost_j()
            rate = self.plan.job.scale_lr(size)
            self.pending = Launch(self.recurrence, self.attempt, size, rate, self.seed, trial)
        return self.pending

    def book(self, report: TrainingReport, failure: str | None = None) -> Booked:
        """Say what the run that was asked for did; one that failed has not reached its target.

        If the default batch size, or any in 20 tries, does not reach the target, that is the `failure` from then on.
        """
        launch = self.next()
        cost = zeus_cost(report.energy_j, report.time_s, self.plan.eta_knob, self.max_power_w)
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
            self.failure = self._hopeless(launch, failure)
        return booked

    def _hopeless(self, launch: Launch, failure: str | None) -> str | None:
        job, why = self.plan.job, "" if failure is None else f" ({failure})"
        if launch.recurrence == 1 and self.decisions.alone:
            which = "default" if launch.batch_size == job.default_bs else "first"
            return f"{job}: The {which} batch size {launch.batch_size} did not converge{why}."
        if launch.attempt >= MAX_TRIES:
            return f"{job}: Did not reach the target metric in {MAX_TRIES} tries{why}."
        return None

    def to_dict(self) -> dict[str, Any]:
        """All state but that of the decisions in plain values, fit for JSON; infinity is None."""
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
        """Go on from where `to_dict` was called."""
        self.recurrence, self.attempt, self.seed = state["recurrence"], state["attempt"], state["seed"]
        self.min_cost_j, self.others_cost_j = (
            math.inf if state[name] is None else state[name] for name in ("min_cost_j", "others_cost_j")
        )
        self.spent_j, self.failure = state["spent_j"], state["failure"]
        self.pending = None if state["pending"] is None else Launch(**state["pending"])
        made = state["made"]
        if made is not None:
            report = TrainingReport(made["energy_j"], made["time_s"], made["reached"])
            self.made = report, made["failure"]
        self.booked = [Booked(**each | {"launch": Launch(**each["launch"])}) for each in state["booked"]]


class MasterObserver:
    """Told what a master does; override what you need."""

    def started(self, logdir: Path, progress: Recurrences) -> None:
        """Recurrences begin, or go on, with their logs in `logdir`."""

    def launching(self, launch: Launch, progress: Recurrences) -> None:
        """A run is about to be launched."""

    def printed(self, piece: bytes) -> None:
        """The training script printed something, on standard output or error."""

    def booked(self, booked: Booked, progress: Recurrences) -> None:
        """A run has ended and is booked."""
