"""Forecast of completion times: replay tasks on many stretches of idle nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bftrainer.campaigns.advice import find_begin_s, find_length_s, finite_or_none
from bftrainer.errors import BftrainerError, SettingsError
from bftrainer.model import NS_PER_S, iso
from bftrainer.parallel import in_order
from bftrainer.report.metrics import Proportion, proportion
from bftrainer.runs.config import ReplayConfig
from bftrainer.runs.run import run_replay
from bftrainer.runs.run_inputs import load_inputs

LEAST, MOST = 2, 100_000
"""Numbers of stretches that may be asked for."""
_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True, slots=True)
class ForecastPlan:
    """Plan of a forecast: log, tasks and settings, with the log's part between `since` and `until`."""

    config: ReplayConfig
    deadline_s: float
    """Seconds after the start by which all should be done."""
    horizon_s: float
    """Length of each stretch; completion times beyond it are unknown."""
    stretches: int = 100
    start_ns: int | None = None
    """Real start of the tasks, for tasks with dates; those of the past are submitted at once. By default submission
    times are shifted so that the first one is at the start."""

    def __post_init__(self) -> None:
        if not 0 < self.deadline_s < math.inf:
            raise SettingsError(f"Expected a deadline after the start, got one {self.deadline_s:g} s after it.")
        if not self.deadline_s <= self.horizon_s < math.inf:
            least = f"at least the {self.deadline_s:g} s until the deadline"
            raise SettingsError(f"Expected a horizon of {least}, got {self.horizon_s:g} s.{self.name_start()}")
        if self.start_ns is not None and self.start_ns + round(self.horizon_s * NS_PER_S) > np.iinfo(np.int64).max:
            raise SettingsError(f"Expected a horizon that ends before the year 2262, got {self.horizon_s:g} s.")
        if not LEAST <= self.stretches <= MOST:
            raise SettingsError(f"Expected at least {LEAST} stretches, and at most {MOST:,}, got {self.stretches}.")

    def name_start(self) -> str:
        """Since when the deadline counts, if it is a date: by default the log's end, perhaps years ago."""
        return "" if self.start_ns is None else f" Times count from {iso(self.start_ns)[:10]} (--start)."


@dataclass(frozen=True, slots=True)
class Forecast:
    """Result of a forecast."""

    plan: ForecastPlan
    completion_s: tuple[float, ...]
    """Seconds after the start at which all tasks of a stretch were done; infinity if beyond the horizon."""
    done_shares: tuple[float, ...]
    """Shares of the tasks that were done by the deadline."""
    overlap: float
    """Mean number of stretches that cover a moment of the log; up to 1 they are independent."""
    assumed_scaling: str | None = None

    @property
    def probability(self) -> Proportion:
        """Share of the stretches in which all tasks were done by the deadline, with its 95 % confidence interval."""
        met = sum(time_s <= self.plan.deadline_s for time_s in self.completion_s)
        return proportion(met, len(self.completion_s))

    def interval(self) -> tuple[float, float]:
        """Central interval that holds the completion time of all tasks in 80 %; infinity: beyond the horizon."""
        return quantile(self.completion_s, 0.1), quantile(self.completion_s, 0.9)

    def to_dict(self) -> dict[str, Any]:
        """The forecast, ready for JSON; null stands for a time beyond the horizon."""
        chance = self.probability
        quantiles = {f"p{round(100 * level)}": finite_or_none(quantile(self.completion_s, level)) for level in _LEVELS}
        return {
            "start": None if self.plan.start_ns is None else iso(self.plan.start_ns),
            "deadline_s": self.plan.deadline_s,
            "horizon_s": self.plan.horizon_s,
            "stretches": len(self.completion_s),
            "overlap": self.overlap,
            "probability": chance.share,
            "probability_ci95": [chance.low, chance.high],
            "tasks_done_share_mean": math.fsum(self.done_shares) / len(self.done_shares),
            "interval80_s": [finite_or_none(time_s) for time_s in self.interval()],
            "completion_quantiles_s": quantiles,
            "completion_s": [finite_or_none(time_s) for time_s in self.completion_s],
            "assumed_scaling": self.assumed_scaling,
        }


def next_weekday(start_ns: int, weekday: int, of_day_s: float) -> int:
    """First time after the start, in nanoseconds, so many seconds into a weekday (UTC), which counts from Monday, 0."""
    day_s = start_ns // NS_PER_S // 86_400 * 86_400
    monday_s = day_s - (day_s // 86_400 + 3) % 7 * 86_400  # the epoch began on a Thursday
    this_week_ns = round((monday_s + 86_400 * weekday + of_day_s) * NS_PER_S)
    return this_week_ns if this_week_ns > start_ns else this_week_ns + 7 * 86_400 * NS_PER_S


def quantile(sample: Sequence[float], level: float) -> float:
    """Value that a further observation stays below with a probability of `level`.

    Interpolates between the order statistics k / (n + 1) of the sample; beyond its ends, these are returned.
    """
    ordered = sorted(sample)
    place = min(max(level * (len(ordered) + 1) - 1.0, 0.0), len(ordered) - 1.0)
    low, part = int(place), place - int(place)
    if part == 0.0 or ordered[low] == ordered[min(low + 1, len(ordered) - 1)]:
        return ordered[low]
    return ordered[low] + part * (ordered[low + 1] - ordered[low])


def forecast(
    plan: ForecastPlan, workers: int | None = None, on_outcome: Callable[[object], None] = lambda _: None
) -> Forecast:
    """Replay the tasks on all stretches; an `InputError` if the log is too short for stretches of that length."""
    inputs = load_inputs(replace(plan.config, baseline=False))
    begin_s, until_s = find_begin_s(plan.config, inputs), find_length_s(plan.config, inputs)
    if until_s <= plan.horizon_s:
        raise SettingsError(
            f"Expected a log longer than the {plan.horizon_s:g} s of a stretch, got one of {until_s:g} s; a shorter "
            f"--horizon (by default twice the deadline) may help.{plan.name_start()}"
        )
    starts_s = [begin_s + float(start_s) for start_s in np.linspace(0.0, until_s - plan.horizon_s, plan.stretches)]
    completion_s, done_shares = list[float](), list[float]()
    try:
        with closing(in_order(partial(_replay_stretch, plan), starts_s, workers)) as results:
            for ends_s in results:
                completion_s.append(max(ends_s, default=0.0))
                done_shares.append(sum(end_s <= plan.deadline_s for end_s in ends_s) / max(1, len(ends_s)))
                on_outcome(ends_s)
    except BftrainerError as error:
        raise BftrainerError(f"Stretch {len(done_shares)}: {error}") from None
    overlap = plan.stretches * plan.horizon_s / until_s
    assumed = None if inputs.assumed_scaling is None else inputs.assumed_scaling.note
    return Forecast(plan, tuple(completion_s), tuple(done_shares), overlap, assumed)


def _replay_stretch(plan: ForecastPlan, begin_s: float) -> list[float]:
    """Completion times of the tasks in a stretch, seconds after its begin; infinity for those that are not done."""
    inputs = load_inputs(replace(plan.config, since=begin_s, until=plan.horizon_s, baseline=False))
    start_ns = plan.start_ns
    if start_ns is None:
        start_ns = min((task.submit_ns for task in inputs.tasks if task.submit_ns is not None), default=0)
    tasks = tuple(
        replace(task, submit_s=max(0.0, task.submission_s(start_ns)), submit_ns=None) for task in inputs.tasks
    )
    records = run_replay(inputs=replace(inputs, tasks=tasks)).recording.tasks
    return [math.inf if task.completed_s is None else task.completed_s for task in records]
