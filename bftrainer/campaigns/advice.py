"""Advice on settings for a log: search on its first part, and prove the best on the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from bftrainer.campaigns.engines import checksums_of, refuse_changed_inputs
from bftrainer.errors import SettingsError
from bftrainer.extras import require_extra
from bftrainer.model import NS_PER_S, Objective
from bftrainer.objectives import name_of_objective
from bftrainer.report.comparison import figures_of
from bftrainer.report.glossary import GLOSSARY, ON_SCALING, check_metric
from bftrainer.runs.config import ReplayConfig
from bftrainer.runs.run import run_replay
from bftrainer.runs.run_inputs import Inputs, load_inputs, log_start_ns

# Ranges of the forward-looking time in seconds, and of the number of active tasks.
FORWARD_S = (1.0, 3600.0)
MOST_TASKS = 64
# Differences below this share count as noise.
NEGLIGIBLE = 0.001


@dataclass(frozen=True, slots=True)
class SearchedSettings:
    """Settings that the search varies."""

    forward_time_s: float
    max_tasks: int
    objective: str | Objective

    def to_dict(self) -> dict[str, Any]:
        """The settings, ready for JSON."""
        return asdict(self) | {"objective": name_of_objective(self.objective)}


@dataclass(frozen=True, slots=True)
class AdvicePlan:
    """Plan of a search: metric, inputs and search space.

    Parameters
    ----------
    config : ReplayConfig
        Inputs, and the settings that advice is compared with.
    metric : str
        Figure of the summary to improve.
    train_share : float
        Share of the window to search on; the rest is held out.
    trials : int
        Number of settings to try, including the given ones.
    objectives : tuple of (str or Objective)
        Objectives to choose from; only the given one if empty.
    seed : int
        Seed of the search.
    in_turn : dict of str to tuple
        Values of settings to try instead of searching: of each setting in turn, with the best of those before it.
    """

    config: ReplayConfig
    metric: str = "efficiency"
    train_share: float = 0.6
    trials: int = 40
    objectives: tuple[str | Objective, ...] = ()
    seed: int = 0
    in_turn: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_metric(self.metric)
        if not 0.1 <= self.train_share <= 0.9:
            raise SettingsError(f"Expected 0.1 <= train share <= 0.9, got {self.train_share}.")
        if self.trials < 2:
            raise SettingsError(f"Expected at least 2 trials, got {self.trials}.")
        if not self.in_turn:
            require_extra("Advice needs", "advise")

    @property
    def given(self) -> SearchedSettings:
        """The settings that advice is compared with."""
        return SearchedSettings(self.config.forward_time_s, self.config.max_tasks, self.config.objective)


@dataclass(frozen=True, slots=True)
class Trials:
    """What was tried on the training part.

    Parameters
    ----------
    plan : AdvicePlan
    tried : tuple of (SearchedSettings, float)
        Different settings, the given ones first, with the metric; NaN where it has no value.
    """

    plan: AdvicePlan
    tried: tuple[tuple[SearchedSettings, float], ...]

    @property
    def best(self) -> SearchedSettings:
        """The first of those with the best value."""
        sign = GLOSSARY[self.plan.metric].better
        return max(self.tried, key=lambda each: -math.inf if math.isnan(each[1]) else sign * each[1])[0]

    @property
    def values(self) -> tuple[float, float]:
        """The metric with the given settings, and with the best ones."""
        values = dict(self.tried)
        return values[self.plan.given], values[self.best]


@dataclass(frozen=True, slots=True)
class Advice:
    """Result of a search.

    Parameters
    ----------
    plan : AdvicePlan
    best : SearchedSettings
        The best settings on the training part.
    trained, held_out : tuple of float
        The metric on each part: with the given settings, and with the best ones.
    split_s : float
        Time at which the window is split, in seconds after its start.
    tried : tuple of (SearchedSettings, float)
        As in `Trials`.
    assumed_scaling : str or None
        Assumption about how tasks scale, if the metric rests on it.
    """

    plan: AdvicePlan
    best: SearchedSettings
    trained: tuple[float, float]
    held_out: tuple[float, float]
    split_s: float = math.nan
    tried: tuple[tuple[SearchedSettings, float], ...] = ()
    assumed_scaling: str | None = None

    @property
    def gains(self) -> tuple[float, float]:
        """Relative improvement of the best settings over the given ones: on the training part, and on the rest."""
        if self.best == self.plan.given:
            return 0.0, 0.0
        sign = GLOSSARY[self.plan.metric].better
        return _gain(*self.trained, sign), _gain(*self.held_out, sign)

    @property
    def verdict(self) -> str:
        """``better``, ``overfit`` (better on the training part, worse on the rest) or ``same``."""
        trained, held_out = self.gains
        if trained <= NEGLIGIBLE or self.best == self.plan.given:
            return "same"
        if held_out < -NEGLIGIBLE:
            return "overfit"
        return "better" if held_out > NEGLIGIBLE else "same"

    @property
    def advised(self) -> SearchedSettings:
        """The best settings if they are better on the rest as well, else the given ones."""
        return self.best if self.verdict == "better" else self.plan.given

    def sentence(self) -> str:
        """The advice in words."""
        trained, held_out = map(_amount, self.gains, (self.trained, self.held_out))
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
            "advised": self.advised.to_dict(),
            "split_s": self.split_s,
            "trials": self.plan.trials,
            "given": {**self.plan.given.to_dict(), "training": self.trained[0], "held_out": self.held_out[0]},
            "best": {**self.best.to_dict(), "training": self.trained[1], "held_out": self.held_out[1]},
            "tried": [
                each.to_dict() | {"training": None if math.isnan(value) else value} for each, value in self.tried
            ],
            # Null: infinite, as from nothing to something.
            "gain": {
                part: gain if math.isfinite(gain) else None
                for part, gain in zip(("training", "held_out"), self.gains, strict=True)
            },
            "assumed_scaling": self.assumed_scaling,
        }


def _gain(given: float, best: float, sign: int) -> float:
    return sign * (best - given) / abs(given) if given else math.inf * sign * (best - given) if best != given else 0.0


def _amount(gain: float, values: tuple[float, float]) -> str:
    """Difference in words: relative, unless one of both values is below 0."""
    if math.isfinite(gain) and min(values) >= 0.0:
        return f"{100 * abs(gain):.2f} %"
    return f"{abs(values[1] - values[0]):.4g} (from {values[0]:.4g} to {values[1]:.4g})"


def advise(plan: AdvicePlan, on_trial: Callable[[object], None] = lambda _: None) -> Advice:
    """Search on the training part, then replay the given and the best settings on the rest.

    Raises
    ------
    InputError
        If an input cannot be used.
    SettingsError
        If the metric has no value with the given settings: nothing can be compared with it.
    """
    parts = _Parts.of(plan)
    trials = search_settings(plan, on_trial)
    held_out = {each: _value(parts.rest, each, plan.metric, parts.checksums) for each in (plan.given, trials.best)}
    if any(map(math.isnan, held_out.values())):
        raise SettingsError(f"No value of {plan.metric} on the held-out part.{_why(plan.metric, parts.inputs)}")
    scaling = parts.inputs.assumed_scaling
    return Advice(
        plan,
        trials.best,
        trials.values,
        (held_out[plan.given], held_out[trials.best]),
        parts.split_s,
        trials.tried,
        scaling.note if scaling and plan.metric in ON_SCALING else None,
    )


def search_settings(plan: AdvicePlan, on_trial: Callable[[object], None] = lambda _: None) -> Trials:
    """Search on the training part; each choice of settings is replayed once.

    Raises
    ------
    InputError, SettingsError
        As `advise`.
    """
    parts = _Parts.of(plan)
    for name in plan.objectives:  # found out now, not during the search
        load_inputs(replace(plan.config, objective=name))
    seen: dict[SearchedSettings, float] = {}

    def measure(settings: SearchedSettings) -> float:
        """The metric with some settings, which are remembered."""
        if settings not in seen:
            seen[settings] = _value(parts.training, settings, plan.metric, parts.checksums)
        return seen[settings]

    if math.isnan(measure(plan.given)):
        raise SettingsError(f"No value of {plan.metric} on the training part.{_why(plan.metric, parts.inputs)}")
    for name, values in plan.in_turn.items():
        best = Trials(plan, tuple(seen.items())).best
        for value in values:
            on_trial(measure(replace(best, **{name: value})))
    if not plan.in_turn:
        _sample(plan, len(parts.inputs.tasks), measure, on_trial)
    return Trials(plan, tuple(seen.items()))


@dataclass(frozen=True, slots=True)
class _Parts:
    """The training part of a window, the rest, and the inputs of both."""

    inputs: Inputs
    split_s: float
    training: ReplayConfig
    rest: ReplayConfig
    checksums: Mapping[str, str]

    @classmethod
    def of(cls, plan: AdvicePlan) -> _Parts:
        """Those of a plan."""
        inputs = load_inputs(plan.config)
        length_s = min(plan.config.until_s(inputs.log.start_ns), inputs.log.window_s)
        split_s = round(plan.train_share * length_s)
        whole = replace(plan.config, baseline=plan.metric in _NEED_BASELINE)
        # Counted from the log's own start, as the window may begin later.
        offset_s = (inputs.log.start_ns - log_start_ns(plan.config)) / NS_PER_S
        training = replace(whole, since=offset_s, until=split_s)
        rest = replace(whole, since=offset_s + split_s, until=length_s - split_s)
        return cls(inputs, float(split_s), training, rest, checksums_of(inputs))


def _sample(
    plan: AdvicePlan, tasks: int, measure: Callable[[SearchedSettings], float], on_trial: Callable[[object], None]
) -> None:
    """Try settings, the given ones first; the search library prints nothing.

    References
    ----------
    Bergstra et al., "Algorithms for hyper-parameter optimization", NeurIPS 2011: tree-structured Parzen estimators.
    """
    import optuna

    sign = GLOSSARY[plan.metric].better

    def objective(trial: Any) -> float:
        """Value that the search maximises."""
        value = measure(_suggest(trial, plan, tasks))
        on_trial(value)
        return -math.inf if math.isnan(value) else sign * value

    first = plan.given.to_dict()
    first["forward_time_s"] = min(max(plan.given.forward_time_s, FORWARD_S[0]), FORWARD_S[1])
    if not plan.objectives:
        del first["objective"]
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=plan.seed % 2**32))
        study.enqueue_trial(first)
        study.optimize(objective, n_trials=plan.trials)
    finally:
        optuna.logging.set_verbosity(verbosity)


def _why(metric: str, inputs: Inputs) -> str:
    """Reasons why a figure has no value, as the end of a message."""
    counted = _OF_ALL.get(metric)
    of_all = f" It is taken of runs with all {len(inputs.tasks):,} {GLOSSARY[counted].label}." if counted else ""
    return of_all + "".join(f" Note: {note}" for note in inputs.notes)


# Settings that complete fewer tasks are no better because those few took less time.
_OF_ALL = {
    **dict.fromkeys(("makespan_s", "turnaround_mean_s", "turnaround_p90_s"), "tasks_completed"),
    "wait_mean_s": "tasks_started",
}
_NEED_BASELINE = ("efficiency", "loss_variability_share", "loss_horizon_share")


def _suggest(trial: Any, plan: AdvicePlan, tasks: int) -> SearchedSettings:
    most = max(plan.config.max_tasks, min(MOST_TASKS, max(1, tasks)))
    forward_s = trial.suggest_float("forward_time_s", *FORWARD_S, log=True)
    max_tasks = trial.suggest_int("max_tasks", 1, most, log=True)
    chosen = plan.config.objective
    if plan.objectives:
        choices = {name_of_objective(each): each for each in (plan.given.objective, *plan.objectives)}  # by their names
        chosen = choices[trial.suggest_categorical("objective", list(choices))]
    # Two significant digits are enough for a setting.
    return SearchedSettings(float(f"{forward_s:.2g}"), max_tasks, chosen)


def _value(config: ReplayConfig, settings: SearchedSettings, metric: str, checksums: Mapping[str, str]) -> float:
    """The metric of a replay of files with these checksums; NaN if it has none."""
    changed = {each.name: getattr(settings, each.name) for each in fields(settings)}
    inputs = load_inputs(replace(config, **changed))
    refuse_changed_inputs(inputs, checksums)
    summary = run_replay(inputs=inputs, details=False).summary()
    value = figures_of(summary).get(metric)
    if metric in _OF_ALL and summary[_OF_ALL[metric]] < summary["tasks_total"]:
        return math.nan
    return math.nan if value is None else float(value)
