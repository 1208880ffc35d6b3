"""Advice on settings for a log: search on its first part, and prove the best on the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bftrainer.errors import SettingsError
from bftrainer.model import NS_PER_S, Objective
from bftrainer.objectives import name_of_objective
from bftrainer.plugins import require_extra
from bftrainer.report.comparison import figures_of, relative
from bftrainer.report.glossary import GLOSSARY, ON_SCALING, check_metrics
from bftrainer.runs.config import ReplayConfig
from bftrainer.runs.run import run_replay
from bftrainer.runs.run_inputs import Inputs, load_inputs, log_start_ns

# Ranges of the forward-looking time in seconds, and of the number of active tasks.
FORWARD_S = (1.0, 3600.0)
MOST_TASKS = 64
# Differences below this share count as noise.
NEGLIGIBLE = 0.001
# Settings that complete fewer tasks are no better because those few took less time.
_OF_ALL = {
    **dict.fromkeys(("makespan_s", "turnaround_mean_s", "turnaround_p90_s"), "tasks_completed"),
    "wait_mean_s": "tasks_started",
}
_NEED_BASELINE = ("efficiency", "loss_variability_share", "loss_horizon_share")


@dataclass(frozen=True, slots=True)
class SearchedSettings:
    """Settings that the search varies."""

    forward_time_s: float
    max_tasks: int
    objective: str | Objective

    def to_dict(self) -> dict[str, Any]:
        """The settings, ready for JSON."""
        return asdict(self) | {"objective": name_of_objective(self.objective)}


Scores = Mapping[SearchedSettings, float]
"""Settings in the order of their trials, the given ones first, with a metric; NaN where it has no value."""


@dataclass(frozen=True, slots=True)
class AdvicePlan:
    """Plan of a search: inputs with the settings that advice is compared with, figure to improve, and search space."""

    config: ReplayConfig
    metric: str = "efficiency"
    train_share: float = 0.6
    """Share of the window to search on; the rest is held out."""
    trials: int = 40
    """Number of settings to try, including the given ones."""
    objectives: tuple[str | Objective, ...] = ()
    """Objectives to choose from; only the given one if empty."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_metrics([self.metric])
        if not 0.01 <= self.train_share <= 0.9:
            raise SettingsError(f"Expected 0.01 <= train share <= 0.9, got {self.train_share}.")
        if self.trials < 2:
            raise SettingsError(f"Expected at least 2 trials, got {self.trials}.")

    @property
    def current(self) -> SearchedSettings:
        """The settings that advice is compared with."""
        return SearchedSettings(self.config.forward_time_s, self.config.max_tasks, self.config.objective)


@dataclass(frozen=True, slots=True)
class Advice:
    """Result of a search; the metric on each part is a pair, with the given settings and with the best ones."""

    plan: AdvicePlan
    best: SearchedSettings
    trained: tuple[float, float]
    held_out: tuple[float, float]
    split_s: float = math.nan
    """Seconds after the window's start at which it is split."""
    scores: Scores = field(default_factory=dict)
    assumed_scaling: str | None = None

    @property
    def gains(self) -> tuple[float, float]:
        """Relative improvement of the best settings over the given ones: on the training part, and on the rest."""
        if self.best == self.plan.current:
            return 0.0, 0.0
        sign, gains = GLOSSARY[self.plan.metric].better, []
        for current, best in (self.trained, self.held_out):
            change = relative(best, current)
            gains.append(sign * (math.inf * best if change is None else change))
        return gains[0], gains[1]

    @property
    def verdict(self) -> str:
        """``better``, ``overfit`` (better on the training part, worse on the rest) or ``same``."""
        trained, held_out = self.gains
        if trained <= NEGLIGIBLE or self.best == self.plan.current:
            return "same"
        if held_out < -NEGLIGIBLE:
            return "overfit"
        return "better" if held_out > NEGLIGIBLE else "same"

    @property
    def recommendation(self) -> SearchedSettings:
        """The best settings if they are better on the rest as well, else the given ones."""
        return self.best if self.verdict == "better" else self.plan.current

    def sentence(self) -> str:
        """The advice in words."""
        trained, held_out = map(_describe_gain, self.gains, (self.trained, self.held_out))
        if self.verdict == "better":
            return f"Use these settings: better by {trained} on the training part, and by {held_out} on the rest."
        if self.verdict == "overfit":
            return (
                f"Keep the given settings: what is better by {trained} on the training part is worse by {held_out} on "
                "the rest. The search has fitted the training part, not the machine (overfit)."
            )
        return "Keep the given settings: nothing that was tried is better on both parts."

    def to_dict(self) -> dict[str, Any]:
        """All of it, JSON-ready."""
        return {
            "metric": self.plan.metric,
            "verdict": self.verdict,
            "overfit": self.verdict == "overfit",
            "sentence": self.sentence(),
            "advised": self.recommendation.to_dict(),
            "split_s": self.split_s,
            "trials": self.plan.trials,
            "given": {**self.plan.current.to_dict(), "training": self.trained[0], "held_out": self.held_out[0]},
            "best": {**self.best.to_dict(), "training": self.trained[1], "held_out": self.held_out[1]},
            "tried": [one.to_dict() | {"training": finite_or_none(value)} for one, value in self.scores.items()],
            # Null: infinite, as from nothing to something.
            "gain": dict(zip(("training", "held_out"), map(finite_or_none, self.gains), strict=True)),
            "assumed_scaling": self.assumed_scaling,
        }


def finite_or_none(value: float) -> float | None:
    """A number for JSON."""
    return value if math.isfinite(value) else None


def _describe_gain(gain: float, values: tuple[float, float]) -> str:
    """Difference in words: relative, unless one of both values is below 0."""
    if math.isfinite(gain) and min(values) >= 0.0:
        return f"{100 * abs(gain):.2f} %"
    return f"{abs(values[1] - values[0]):.4g} (from {values[0]:.4g} to {values[1]:.4g})"


def advise(plan: AdvicePlan, on_trial: Callable[[object], None] = lambda _: None) -> Advice:
    """Search on the training part, then replay the given and the best settings on the rest.

    An `InputError` if an input cannot be used, or the metric has no value with the given settings.
    """
    require_extra("Advice needs", "advise")
    inputs, metric, current = load_inputs(plan.config), plan.metric, plan.current
    for name in plan.objectives:  # found out now, not during the search
        load_inputs(replace(plan.config, objective=name))
    config = replace(plan.config, baseline=metric in _NEED_BASELINE)
    training, remainder = split_window(config, inputs, plan.train_share)
    scores: dict[SearchedSettings, float] = {}

    def measure(settings: SearchedSettings) -> float:
        """The metric of settings on the training part, which are replayed once."""
        if settings not in scores:
            scores[settings] = measure_settings(training, settings, metric)
        return scores[settings]

    def check(part: str, *values: float) -> None:
        """Refuse a metric without a value on a part of the log, and say why."""
        if any(map(math.isnan, values)):
            notes = [f"Note: {note}" for note in inputs.notes]
            if metric in _OF_ALL:
                label = GLOSSARY[_OF_ALL[metric]].label
                notes.insert(0, f"It is taken of runs with all {len(inputs.tasks):,} {label}.")
            raise SettingsError(" ".join([f"No value of {metric} on the {part} part.", *notes]))

    check("training", measure(current))
    _sample(plan, len(inputs.tasks), measure, on_trial)
    best = find_best(scores, metric)
    held_out = measure_settings(remainder, current, metric), measure_settings(remainder, best, metric)
    check("held-out", *held_out)
    assumed = inputs.assumed_scaling.note if inputs.assumed_scaling and metric in ON_SCALING else None
    split_s = training.until_s(inputs.log.start_ns)
    return Advice(plan, best, (scores[current], scores[best]), held_out, split_s, scores, assumed)


def find_begin_s(config: ReplayConfig, inputs: Inputs) -> float:
    """Begin of what is replayed, in seconds since the log's own start."""
    return (inputs.log.start_ns - log_start_ns(config)) / NS_PER_S


def find_length_s(config: ReplayConfig, inputs: Inputs) -> float:
    """Length of what is replayed."""
    return min(config.until_s(inputs.log.start_ns), inputs.log.window_s)


def split_window(config: ReplayConfig, inputs: Inputs, share: float) -> tuple[ReplayConfig, ReplayConfig]:
    """Replays of the first share of a window, and of the rest."""
    begin_s, length_s = find_begin_s(config, inputs), find_length_s(config, inputs)
    split_s = float(round(share * length_s))
    first = replace(config, since=begin_s, until=split_s)
    return first, replace(config, since=begin_s + split_s, until=length_s - split_s)


def find_best(scores: Scores, metric: str) -> SearchedSettings:
    """The first settings with the best value."""
    sign = GLOSSARY[metric].better
    return max(scores, key=lambda settings: -math.inf if math.isnan(scores[settings]) else sign * scores[settings])


def measure_settings(config: ReplayConfig, settings: SearchedSettings, metric: str) -> float:
    """The metric of a replay; NaN if it has none."""
    options: dict[str, Any] = {"forward_time_s": settings.forward_time_s, "max_tasks": settings.max_tasks}
    inputs = load_inputs(replace(config, objective=settings.objective, **options))
    summary = run_replay(inputs=inputs, details=False).summary()
    value, counted = figures_of(summary).get(metric), _OF_ALL.get(metric)
    is_of_all = counted is None or summary[counted] == summary["tasks_total"]
    return float(value) if value is not None and is_of_all else math.nan


def _sample(
    plan: AdvicePlan, tasks: int, measure: Callable[[SearchedSettings], float], on_trial: Callable[[object], None]
) -> None:
    """Try settings, the given ones first, by a tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011)."""
    import optuna

    sign, most_tasks = GLOSSARY[plan.metric].better, max(plan.config.max_tasks, min(MOST_TASKS, max(1, tasks)))
    objectives = {name_of_objective(one): one for one in (plan.current.objective, *plan.objectives)}

    def try_settings(trial: Any) -> float:
        """Value of settings that the library suggests, which it maximises."""
        forward_s = trial.suggest_float("forward_time_s", *FORWARD_S, log=True)
        max_tasks = trial.suggest_int("max_tasks", 1, most_tasks, log=True)
        objective = plan.current.objective
        if plan.objectives:
            objective = objectives[trial.suggest_categorical("objective", list(objectives))]
        # Two significant digits are enough for a setting.
        value = measure(SearchedSettings(float(f"{forward_s:.2g}"), max_tasks, objective))
        on_trial(value)
        return -math.inf if math.isnan(value) else sign * value

    first = plan.current.to_dict()
    first["forward_time_s"] = min(max(plan.current.forward_time_s, FORWARD_S[0]), FORWARD_S[1])
    if not plan.objectives:
        del first["objective"]
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=plan.seed % 2**32))
        study.enqueue_trial(first)
        study.optimize(try_settings, n_trials=plan.trials)
    finally:
        optuna.logging.set_verbosity(verbosity)
