"""What the server shows of what it keeps: jobs, arms, trials, and what was wrong with a request."""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer.zeus.server.messages import LenientJobSpec, WireModel


class Arm(WireModel):
    """A batch size that the bandit plays, and its belief about the mean reward, the negative cost in joules.

    Parameters
    ----------
    mean, precision, reward_precision : float or None
        None where nothing is known (mean) or all is certain (precisions).
    observations : int
        Results that the belief rests on.
    """

    batch_size: int
    mean: float | None
    precision: float | None
    reward_precision: float | None
    observations: int


@dataclass(slots=True)
class TrialRow:
    """A trial as the server answers it.

    Parameters
    ----------
    type : str
        Exploration, Concurrent or MAB.
    status : str
        Dispatched, Succeeded (it has a result) or Failed (it was ended without one).
    started, ended : float or None
        Seconds since 1970.
    time, energy, cost : float or None
        Seconds, joules and cost in joules of its result.
    converged : bool or None
        Whether it reached its target within its bound.
    observation : int or None
        Which result of the job this was, from 1.
    heard : float or None
        When it last showed that it was running, in seconds since 1970.
    lease_s : float or None
        Seconds of silence after which an exploration may be handed out again; None: the server's time-out.
    excluded : str or None
        Why it counts for nothing, however it ended: Voided, or Archived by an earlier version.
    inherited : bool
        Whether an earlier version took it over from another job, with its costs translated.
    """

    job_id: str
    batch_size: int
    trial_number: int
    type: str
    status: str
    started: float
    ended: float | None = None
    time: float | None = None
    energy: float | None = None
    cost: float | None = None
    converged: bool | None = None
    observation: int | None = None
    heard: float | None = None
    lease_s: float | None = None
    excluded: str | None = None
    inherited: bool = False


@dataclass(slots=True)
class StoredTrial(TrialRow):
    """A trial as a row of the server's table and in its memory; time and energy are those of the latest report.

    Parameters
    ----------
    epoch, metric : float or None
        By its latest report; a metric that is not a number is None.
    results_before : int
        Results that the job had when the trial was handed out: the order of all that happened to it.
    request_id, asked_by : str or None
        The request that it was handed out on, and the name of the user who sent that.
    refused : bool
        Whether its latest report could not be true.
    """

    epoch: int | None = None
    metric: float | None = None
    results_before: int = 0
    request_id: str | None = None
    asked_by: str | None = None
    refused: bool = False


class JobSummary(WireModel):
    """A job, and the state of its tuning.

    Parameters
    ----------
    owner : str or None
        Name of the user whose job it is; None: nobody's.
    stage : str
        Pruning, or MAB once the bandit plays.
    trials, observations : int
        Trials handed out, and those with a result: all that ever were, also those that count for nothing.
    min_cost, min_cost_batch_size : float or None, and int
        The cheapest run so far.
    exploring : int or None
        Batch size that the pruning waits for.
    remaining : list of int
        Batch sizes that are not pruned.
    arms : list of Arm
        The bandit's; empty while batch sizes are pruned.
    """

    spec: LenientJobSpec
    owner: str | None = None
    stage: str
    registered: float
    trials: int
    observations: int
    min_cost: float | None
    min_cost_batch_size: int
    exploring: int | None
    remaining: list[int]
    arms: list[Arm]


class JobVoided(JobSummary):
    """A job after a trial of it was voided.

    Parameters
    ----------
    changed : bool
        False: the trial was voided before, and nothing was done.
    stopped : list of int
        Trials that the voided trial's cost stopped, and that what is left would not have: they still count as missing
        the target, unless they are voided too.
    """

    changed: bool
    stopped: list[int]


class Fault(WireModel):
    """One invalid field of a request."""

    loc: list[str | int]
    msg: str
    type: str


class Invalid(WireModel):
    """Why a request is invalid: field by field, or in one sentence."""

    detail: list[Fault] | None = None
    message: str | None = None
