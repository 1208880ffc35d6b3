"""When will these tasks be done? Replays of them on many stretches of idle nodes tell how completion times spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from bftrainer.campaigns.engines import Engine
from bftrainer.errors import BftrainerError, SettingsError
from bftrainer.model import NS_PER_S, NodeLog, TaskSpec
from bftrainer.parallel import Lost
from bftrainer.report.intervals import Proportion, proportion
from bftrainer.runs.config import ReplayConfig
from bftrainer.runs.readers import shared_readers
from bftrainer.runs.run import load_inputs, log_start_ns, run_replay
from bftrainer.spot.generation import MAX_DAYS
from bftrainer.spot.supercomputer import SupercomputerModel

LEAST = 2
"""Stretches that a spread needs."""
MOST = 100_000
FOR_INTERVAL = 9
"""Stretches from which on an interval of 80 % lies within what was seen."""
DAY_S = 86_400.0
WARM_UP_S = 2 * DAY_S


@dataclass(frozen=True, slots=True)
class ForecastPlan:
    """What is forecast.

    Parameters
    ----------
    config : ReplayConfig
        Log, tasks and settings; the log's part between `since` and `until`.
    deadline_s : float
        Seconds after the start by which all should be done.
    horizon_s : float
        Length of each stretch: completion times beyond it are not told apart.
    stretches : int
        How many.
    generated : bool
        Whether stretches are generated like the log, by its length of days and its holes, instead of cut from it.
    start_ns : int, optional
        When the tasks would start, for tasks with dates; those of the past are submitted at once. By default all
        submissions count from the start, the first one being at once.
    seed : int
        Of generated stretches.
    """

    config: ReplayConfig
    deadline_s: float
    horizon_s: float
    stretches: int = 100
    generated: bool = False
    start_ns: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.deadline_s < math.inf:
            raise SettingsError(f"Expected a deadline after the start, got one {self.deadline_s:g} s after it.")
        if not self.deadline_s <= self.horizon_s < math.inf:
            least = f"at least the {self.deadline_s:g} s until the deadline"
            raise SettingsError(f"Expected a horizon of {least}, got {self.horizon_s:g} s.")
        if self.horizon_s > MAX_DAYS * DAY_S:
            raise SettingsError(f"Expected a horizon of at most {MAX_DAYS:.0f} days, got {self.horizon_s:g} s.")
        if self.start_ns is not None and self.start_ns + round(self.horizon_s * NS_PER_S) > np.iinfo(np.int64).max:
            raise SettingsError(f"Expected a horizon that ends before the year 2262, got {self.horizon_s:g} s.")
        if not LEAST <= self.stretches <= MOST:
            raise SettingsError(f"Expected at least {LEAST} stretches, and at most {MOST:,}, got {self.stretches}.")


@dataclass(frozen=True, slots=True)
class Forecast:
    """What stretches of idle nodes say.

    Parameters
    ----------
    plan : ForecastPlan
    completion_s : tuple of float
        When all tasks were done, in seconds after the start; infinity if they were not within the horizon.
    done : tuple of float
        Shares of the tasks that were done by the deadline.
    overlap : float
        How many stretches cover a moment of the log on average; 1 or less are independent of each other, many tell
        little more than one.
    assumed_scaling : str or None
        What was assumed of how tasks scale, on which all of it rests.
    """

    plan: ForecastPlan
    completion_s: tuple[float, ...]
    done: tuple[float, ...]
    overlap: float
    assumed_scaling: str | None = None

    @property
    def probability(self) -> Proportion:
        """Share of the stretches in which all tasks were done by the deadline, with its 95 % confidence interval."""
        met = sum(time_s <= self.plan.deadline_s for time_s in self.completion_s)
        return proportion(met, len(self.completion_s))

    def interval(self, share: float = 0.8) -> tuple[float, float]:
        """From when to when all tasks are done with a probability of `share`; infinity: beyond the horizon."""
        return spread(self.completion_s, share)

    def to_dict(self) -> dict[str, Any]:
        """All of it, JSON-ready; null stands for a time beyond the horizon."""
        found, (low, high) = self.probability, self.interval()
        quantiles = {f"p{round(100 * level)}": _told(quantile(self.completion_s, level)) for level in _LEVELS}
        return {
            "deadline_s": self.plan.deadline_s,
            "horizon_s": self.plan.horizon_s,
            "stretches": len(self.completion_s),
            "generated": self.plan.generated,
            "overlap": self.overlap,
            "probability": found.share,
            "probability_ci95": [found.low, found.high],
            "tasks_done_share_mean": math.fsum(self.done) / len(self.done),
            "interval80_s": [_told(low), _told(high)],
            "completion_quantiles_s": quantiles,
            "completion_s": [_told(time_s) for time_s in self.completion_s],
            "assumed_scaling": self.assumed_scaling,
        }


_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)


def _told(time_s: float) -> float | None:
    return time_s if math.isfinite(time_s) else None


def quantile(sample: Sequence[float], level: float) -> float:
    """Value that the next one of the sample's kind stays below with a probability of `level`.

    Between the order statistics k / (n + 1) of the sample; beyond its ends there is nothing to tell but those.
    """
    ordered = sorted(sample)
    place = min(max(level * (len(ordered) + 1) - 1.0, 0.0), len(ordered) - 1.0)
    low, part = int(place), place - int(place)
    if part == 0.0 or ordered[low] == ordered[min(low + 1, len(ordered) - 1)]:
        return ordered[low]
    return ordered[low] + part * (ordered[low + 1] - ordered[low])


def spread(sample: Sequence[float], share: float) -> tuple[float, float]:
    """Interval that holds the next value of the sample's kind with a probability of `share`, as much on each side.

    Raises
    ------
    SettingsError
        If `share` is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise SettingsError(f"Expected a share between 0 and 1, got {share}.")
    return quantile(sample, (1 - share) / 2), quantile(sample, (1 + share) / 2)


def forecast(plan: ForecastPlan, engine: Engine, told: Callable[[object], None] = lambda _: None) -> Forecast:
    """Replay the tasks on all stretches.

    Raises
    ------
    InputError
        If an input cannot be used, or the log is too short for stretches of that length.
    BftrainerError
        If a replay fails.
    """
    inputs = load_inputs(replace(plan.config, baseline=False), shared_readers())
    log = inputs.log
    until_s = min(inputs.config.until_s(log.start_ns), log.window_s)
    items: list[_Stretch]
    if plan.generated:
        items = [_Stretch(plan, seed=plan.seed + number) for number in range(plan.stretches)]
        overlap = 0.0
    else:
        room_s = until_s - plan.horizon_s
        if room_s <= 0:
            raise SettingsError(
                f"Expected a log longer than the {plan.horizon_s:g} s of a stretch, got one of {until_s:g} s; "
                "a shorter --horizon, or --generated, may help."
            )
        starts = np.linspace(0.0, room_s, plan.stretches)
        base_s = (log.start_ns - log_start_ns(plan.config, shared_readers())) / NS_PER_S
        items = [_Stretch(plan, since_s=base_s + float(start)) for start in starts]
        overlap = plan.stretches * plan.horizon_s / until_s
    found: dict[int, tuple[float, float]] = {}
    with closing(engine.run(_replayed, items)) as outcomes:
        for index, outcome in outcomes:
            if isinstance(outcome, Lost | str):
                raise BftrainerError(f"Stretch {index}: {outcome.reason if isinstance(outcome, Lost) else outcome}")
            found[index] = outcome
            told(outcome)
    ordered = [found[index] for index in range(len(items))]
    assumed = None if inputs.assumed_scaling is None else inputs.assumed_scaling.note
    return Forecast(plan, tuple(time_s for time_s, _ in ordered), tuple(done for _, done in ordered), overlap, assumed)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What a worker is sent: a part of the log, or the seed of one like it."""

    plan: ForecastPlan
    since_s: float | None = None
    seed: int | None = None


def _replayed(stretch: _Stretch) -> tuple[float, float] | str:
    """When all tasks were done, and the share of them that was by the deadline; a text says what went wrong."""
    plan = stretch.plan
    config = replace(plan.config, until=plan.horizon_s, baseline=False)
    try:
        if stretch.seed is None:
            config = replace(config, since=stretch.since_s)
        else:
            config = replace(config, node_log=_like(plan, stretch.seed), since=None, skip_events=0)
            config = replace(config, first_node=0, node_count=None)
        inputs = load_inputs(config, shared_readers())
        tasks = _from_now(inputs.tasks, plan.start_ns)
        records = run_replay(inputs=replace(inputs, tasks=tasks)).recording.tasks
    except BftrainerError as error:
        return str(error)
    ends = [math.inf if task.completed_s is None else task.completed_s for task in records]
    return max(ends, default=0.0), sum(end <= plan.deadline_s for end in ends) / max(1, len(ends))


def _from_now(tasks: Sequence[TaskSpec], start_ns: int | None) -> tuple[TaskSpec, ...]:
    """Tasks submitted as long after the stretch's start as they would be after the real one."""
    if start_ns is None:
        dated = [task.submit_ns for task in tasks if task.submit_ns is not None]
        start_ns = min(dated, default=0)
    return tuple(replace(task, submit_s=max(0.0, task.submitted_after_s(start_ns)), submit_ns=None) for task in tasks)


def _like(plan: ForecastPlan, seed: int) -> NodeLog:
    """A stretch like the log that the plan names."""
    part = ("node_log", "skip_events", "first_node", "node_count", "since", "until")
    given = {name: getattr(plan.config, name) for name in part}
    model, end_ns = _fitted(ReplayConfig(**given, solver="dp", baseline=False))
    rng = np.random.default_rng([seed])
    # Stretches of a log begin at all times of day; so do these, unless it is known when the tasks would start.
    begin_ns = end_ns + round(rng.uniform(0.0, DAY_S) * NS_PER_S) if plan.start_ns is None else plan.start_ns
    # A generated log begins without the holes that had opened before: they have a while to appear.
    window_ns = (begin_ns - round(WARM_UP_S * NS_PER_S), begin_ns + round(plan.horizon_s * NS_PER_S))
    return model.generate(rng, window_ns).since(begin_ns)


@cache
def _fitted(config: ReplayConfig) -> tuple[SupercomputerModel, int]:
    """The model of the log, or of the part of it, that a configuration without tasks names, and its end."""
    log = load_inputs(config, shared_readers()).log
    end_ns = log.start_ns + round(min(config.until_s(log.start_ns), log.window_s) * NS_PER_S)
    return SupercomputerModel.fitted(log.ending(end_ns)), end_ns
