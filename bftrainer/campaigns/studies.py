"""Studies of one configuration by many replays: forecasts, advice on settings, and what grants and more tasks bring."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from bftrainer.errors import BftrainerError, SettingsError
from bftrainer.model import NS_PER_S, Objective, iso
from bftrainer.model.task import SAVING_FIELDS
from bftrainer.objectives import name_of_objective, throughput
from bftrainer.parallel import map_in_order
from bftrainer.plugins import require_extra
from bftrainer.report.comparison import figures_of, relative
from bftrainer.report.glossary import check_metrics, format_value, name_tasks
from bftrainer.report.metrics import Intervals, Proportion, estimate, proportion, ratio
from bftrainer.runs import RunResult, run_replay
from bftrainer.runs.config import ReplayConfig
from bftrainer.runs.run_inputs import Inputs, load_inputs, work_adds_up
from bftrainer.terms import GLOSSARY, ON_SCALING

# --- Advice on settings

# Ranges of the forward-looking time in seconds, and of the number of active tasks.
FORWARD_S = (1.0, 3600.0)
MOST_TASKS = 64
# Differences below this share count as noise.
NEGLIGIBLE = 0.001
# Settings that complete fewer tasks are no better because those few took less time.
_OF_ALL = dict.fromkeys(("makespan_s", "turnaround_mean_s", "turnaround_p90_s"), "tasks_completed")
_OF_ALL["wait_mean_s"] = "tasks_started"
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
    scores: Mapping[SearchedSettings, float] = field(default_factory=dict)
    """The metric on the training part, in the order of trials, the given settings first; NaN where it has no value."""
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
        trained, held_out = (  # relative, unless one of both values is below 0
            f"{100 * abs(gain):.2f} %"
            if math.isfinite(gain) and min(current, best) >= 0.0
            else f"{abs(best - current):.4g} (from {current:.4g} to {best:.4g})"
            for gain, (current, best) in zip(self.gains, (self.trained, self.held_out), strict=True)
        )
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


def advise(plan: AdvicePlan, on_trial: Callable[[object], None] = lambda _: None) -> Advice:
    """Search on the training part, then replay the given and the best settings on the rest.

    An `InputError` if an input cannot be used, or the metric has no value with the given settings.
    """
    require_extra("Advice needs", "advise")
    import optuna

    inputs, metric, current = load_inputs(plan.config), plan.metric, plan.current
    for name in plan.objectives:  # found out now, not during the search
        load_inputs(replace(plan.config, objective=name))
    config = replace(plan.config, baseline=metric in _NEED_BASELINE)
    training, remainder = split_window(config, inputs, plan.train_share)
    scores, sign = dict[SearchedSettings, float](), GLOSSARY[metric].better
    most_tasks = max(plan.config.max_tasks, min(MOST_TASKS, max(1, len(inputs.tasks))))

    def check(part: str, *values: float) -> None:
        """Refuse a metric without a value on a part of the log, and say why."""
        if any(map(math.isnan, values)):
            notes = [f"Note: {note}" for note in inputs.notes]
            if metric in _OF_ALL:
                label = GLOSSARY[_OF_ALL[metric]].label
                notes.insert(0, f"It is taken of runs with all {len(inputs.tasks):,} {label}.")
            raise SettingsError(" ".join([f"No value of {metric} on the {part} part.", *notes]))

    scores[current] = measure_settings(training, current, metric)
    check("training", scores[current])
    objectives = {name_of_objective(one): one for one in (current.objective, *plan.objectives)}
    first = current.to_dict() | {"forward_time_s": min(max(current.forward_time_s, FORWARD_S[0]), FORWARD_S[1])}
    if not plan.objectives:
        del first["objective"]
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # A tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011), which begins with the given settings.
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=plan.seed % 2**32))
    optuna.logging.set_verbosity(verbosity)
    study.enqueue_trial(first)
    for _ in range(plan.trials):
        trial = study.ask()
        forward_s = trial.suggest_float("forward_time_s", *FORWARD_S, log=True)
        max_tasks, objective = trial.suggest_int("max_tasks", 1, most_tasks, log=True), current.objective
        if plan.objectives:
            objective = objectives[trial.suggest_categorical("objective", list(objectives))]
        settings = SearchedSettings(float(f"{forward_s:.2g}"), max_tasks, objective)  # two digits are enough
        if settings not in scores:
            scores[settings] = measure_settings(training, settings, metric)
        value = scores[settings]
        study.tell(trial, -math.inf if math.isnan(value) else sign * value)
        on_trial(value)
    best = find_best(scores, metric)
    held_out = measure_settings(remainder, current, metric), measure_settings(remainder, best, metric)
    check("held-out", *held_out)
    assumed = inputs.assumed_scaling.note if inputs.assumed_scaling and metric in ON_SCALING else None
    split_s = training.until_s(inputs.log.start_ns)
    return Advice(plan, best, (scores[current], scores[best]), held_out, split_s, scores, assumed)


def find_begin_s(config: ReplayConfig, inputs: Inputs) -> float:
    """Begin of what is replayed, in seconds since the log's own start."""
    log = load_inputs(replace(config, since=None, until=None, baseline=False)).log
    return (inputs.log.start_ns - log.start_ns) / NS_PER_S


def find_length_s(config: ReplayConfig, inputs: Inputs) -> float:
    """Length of what is replayed."""
    return min(config.until_s(inputs.log.start_ns), inputs.log.window_s)


def split_window(config: ReplayConfig, inputs: Inputs, share: float) -> tuple[ReplayConfig, ReplayConfig]:
    """Replays of the first share of a window, and of the rest."""
    begin_s, length_s = find_begin_s(config, inputs), find_length_s(config, inputs)
    split_s = float(round(share * length_s))
    first = replace(config, since=begin_s, until=split_s)
    return first, replace(config, since=begin_s + split_s, until=length_s - split_s)


def find_best(scores: Mapping[SearchedSettings, float], metric: str) -> SearchedSettings:
    """The first settings with the best value."""
    sign = GLOSSARY[metric].better
    return max(scores, key=lambda settings: -math.inf if math.isnan(scores[settings]) else sign * scores[settings])


def search_in_turn(plan: AdvicePlan, choices: Mapping[str, Sequence[Any]]) -> dict[SearchedSettings, float]:
    """Measure settings on the training part: choices for one after the other, with the best so far of the others."""
    training, _ = split_window(plan.config, load_inputs(plan.config), plan.train_share)
    scores, best = dict[SearchedSettings, float](), plan.current
    for name, values in choices.items():
        for settings in (replace(best, **{name: value}) for value in values):
            if settings not in scores:
                scores[settings] = measure_settings(training, settings, plan.metric)
        best = find_best(scores, plan.metric)
    return scores


def measure_settings(config: ReplayConfig, settings: SearchedSettings, metric: str) -> float:
    """The metric of a replay; NaN if it has none."""
    options: dict[str, Any] = {"forward_time_s": settings.forward_time_s, "max_tasks": settings.max_tasks}
    inputs = load_inputs(replace(config, objective=settings.objective, **options))
    summary = run_replay(inputs=inputs, details=False).summary()
    value, counted = figures_of(summary).get(metric), _OF_ALL.get(metric)
    is_of_all = counted is None or summary[counted] == summary["tasks_total"]
    return float(value) if value is not None and is_of_all else math.nan


# --- Forecasts

MOST_STRETCHES = 100_000
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
        if not 2 <= self.stretches <= MOST_STRETCHES:
            raise SettingsError(f"Expected 2 to {MOST_STRETCHES:,} stretches, got {self.stretches}.")

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
            "interval80_s": [finite_or_none(quantile(self.completion_s, level)) for level in (0.1, 0.9)],
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
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low if low == high else low + (place - math.floor(place)) * (high - low)


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
        with closing(map_in_order(partial(_replay_stretch, plan), starts_s, workers)) as results:
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


# --- Grants and more tasks

NOTICE_S = 120.0
GRANTS: dict[str, dict[str, Any]] = {"chosen": {"give_way": "chosen"}, "notice": {"notice_s": NOTICE_S}}
"""Grants, and the options of a replay that has them."""
_WORDS = {
    "chosen": "if your scheduler lets the harvester choose which nodes to return",
    "notice": f"with {NOTICE_S / 60:g} minutes' notice before nodes are taken",
}
_WORTH = 0.01
WHY_LESS = "tasks keep other nodes, which leave at other times, and all later decisions differ"
"""Why more freedom may bring less."""
NAMED, CHOSEN, KNOWN, FREE = "named", "chosen", "all departures known", "changes free"
LEVELS = (30, 70)
"""Tasks at once that are tried."""
MOST_WORK = 500_000
"""Events times tasks of a run up to which they are tried; this does not depend on a clock."""
_REMEDIED = ("admission", "below_best")
"""What limits a run that more tasks at once may help."""
BOTH = f"chosen, notice {NOTICE_S:g} s"


def bound_work(
    inputs: Inputs,
    notices_s: Sequence[float],
    on_progress: Callable[[int], object] = lambda count: None,  # noqa: ARG005
) -> dict[str, Any]:
    """Compute what grants are worth by other replays of the same rules; only *changes free* is a bound.

    *Named* is the replay as given; *notice* tells it some time before which nodes leave; *chosen* lets decisions say
    which; *all departures known* tells it from the start on. *Changes free* has no rescale costs, knows curves and
    maximises throughput.

    Ready for JSON: `bounds`, of each way its `name`, its `work` until `time_s`, at which the first of them is done,
    `against_named`, its change as a share of that of *named* (None if that did no lasting work), and work lost to
    departures and to decisions' own changes as shares of all done until its end; `outstanding_share` of all work that
    *named* has left at `half_s`, half of the replayed part of the log; `notes`, why the figures may say little.

    A `SettingsError` if there is no notice, or tasks count work in different units.
    """
    if not notices_s:
        raise SettingsError("Expected at least one notice, got none.")
    if not work_adds_up(inputs.tasks):
        raise SettingsError("Expected tasks that count work in one unit, got epochs over different datasets.")
    ways: dict[str, dict[str, Any]] = {NAMED: {}}
    ways |= {f"notice {notice_s:g} s": {"notice_s": notice_s} for notice_s in sorted(notices_s)}
    ways |= {CHOSEN: GRANTS["chosen"], BOTH: GRANTS["chosen"] | GRANTS["notice"]}
    ways |= {KNOWN: {"notice_s": inputs.log.window_s}, FREE: {}}
    runs = {}
    for count, (name, options) in enumerate(ways.items(), start=1):
        granted: dict[str, Any] = {"give_way": "named", "notice_s": 0.0, **options}
        config = replace(inputs.config, baseline=False, **granted)
        changed = replace(inputs, config=config, settings=replace(inputs.settings, **granted))
        if name == FREE:
            nothing: dict[str, Any] = {"grow_cost_s": 0.0, "shrink_cost_s": 0.0} | dict.fromkeys(SAVING_FIELDS)
            config = replace(config, objective="throughput")
            settings = replace(changed.settings, objective=throughput)
            free = tuple(replace(task, **nothing) for task in inputs.tasks)
            changed = replace(changed, config=config, tasks=free, learned=(), settings=settings)
        runs[name] = run_replay(inputs=changed).recording
        on_progress(count)
    time_s, half_s = min(run.end_s for run in runs.values()), find_length_s(inputs.config, inputs) / 2
    named = Intervals.of(runs[NAMED])
    named_work, bounds = named.work_at(time_s), []
    for name, run in zip(runs, map(Intervals.of, runs.values()), strict=True):
        work, gross = run.work_at(time_s), math.fsum(run.gross)
        bound = {"name": name, "work": work, "against_named": work / named_work - 1.0 if named_work > 0.0 else None}
        for cause, lost in (("departure", run.preemption + run.given_back), ("rescale", run.rescale)):
            bound[f"{cause}_share"] = ratio(math.fsum(lost), gross) or 0.0
        bounds.append(bound)
    outstanding_share = 1.0 - named.work_at(half_s) / math.fsum(task.work for task in inputs.tasks)
    answer = {"bounds": bounds, "time_s": time_s, "half_s": half_s, "outstanding_share": outstanding_share}
    return answer | {"notes": list_doubts(answer)}


def list_doubts(answer: Mapping[str, Any]) -> list[str]:
    """Reasons why bounds may say little: grants that do less than smaller ones, and work that is done early."""
    work = {bound["name"]: bound["work"] for bound in answer["bounds"]}
    notices = [name for name in work if name.startswith("notice")]
    orders = ([NAMED, *notices, KNOWN, FREE], [NAMED, CHOSEN, BOTH, FREE])
    pairs = [pair for order in orders for pair in itertools.pairwise(order) if work[pair[0]] > work[pair[1]]]
    texts = [f"{less} does less than {more}: {WHY_LESS}." for more, less in pairs]
    if answer["outstanding_share"] < 0.5:
        share, half = f"{100 * answer['outstanding_share']:.0f} %", format_value(answer["half_s"], "s")
        why = "bounds say little where all is done in the end; take more or larger tasks."
        texts.insert(0, f"only {share} of the work is outstanding at half of the log ({half}): {why}")
    return texts


def try_more_tasks(result: RunResult, interrupted: Callable[[], bool] = lambda: False) -> RunResult:
    """Add the work that each of `LEVELS` tasks at once would have done, where their number limited the run.

    There are no levels where the run is too large to try them, or cannot be decided by `dp`; nothing is added once
    `interrupted` returns True.
    """
    summary, config = result.summary(), result.config
    levels = [level for level in LEVELS if config.max_tasks < level]
    is_limited = summary["limited_by"] in _REMEDIED and summary["tasks_total"] > config.max_tasks
    if result.is_partial or not config.baseline or not levels or not is_limited:
        return result
    is_small = summary["events"] * summary["tasks_total"] <= MOST_WORK
    figures: dict[str, Any] = {}
    for level in levels if is_small else ():
        options: dict[str, Any] = {"max_tasks": level, "solver": "dp", "baseline": False}
        try:
            other = run_replay(config=replace(config, **options), interrupted=interrupted, details=False).summary()
        except (BftrainerError, MemoryError):  # what was asked for is done, and is not to be lost
            return replace(result, more_tasks={"levels": {}})
        if interrupted():
            return result
        figures[str(level)] = {name: other[name] for name in ("work_done", "window_s", "tasks_completed")}
    return replace(result, more_tasks={"levels": figures})


def half_width_of_sum(blocks: Sequence[float]) -> float | None:
    """Half the width of the 95 % interval of a sum over stretches that are alike; None for fewer than two."""
    half = estimate(blocks).half_width if blocks else None
    return None if half is None else half * len(blocks)


def measure_grants(kind: Mapping[str, Any], replays: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Compare replays with grants with *named*, the one without, stretch by stretch of their window.

    For each there are `useful_node_s`, `gain`, its change as a share of the useful node-seconds without, and
    `gain_ci95`, None where there are too few stretches to compare.
    """
    base, blocks = replays["named"]["useful_node_s"], replays["named"]["blocks"]
    number, grants = len(blocks["node_s"]), {}
    for name in ("named", *GRANTS):
        figures = replays[name]
        gain = figures["useful_node_s"] / base - 1.0 if base > 0 else 0.0
        pairs = zip(figures["blocks"]["node_s"], blocks["node_s"], strict=True)
        half = half_width_of_sum([one - two for one, two in pairs]) if base > 0 else None
        bounds = [None, None] if half is None else [gain - half / base, gain + half / base]
        grants[name] = {"useful_node_s": kind["useful_node_s"] * (1.0 + gain), "gain": gain, "gain_ci95": bounds}
    basis = f" Measured on {number} {blocks['unit']}s." if number else ""
    return {"kind": kind["name"], "sentence": _describe(kind["name"], grants) + basis, **grants}


def _describe(kind: str, grants: Mapping[str, Mapping[str, Any]]) -> str:
    """What each grant brings, in one sentence, and why one may bring less."""
    effects, clear = list[str](), list[float]()  # clear is a gain whose interval does not hold 0
    for name, words in _WORDS.items():
        gain, (low, high) = grants[name]["gain"], grants[name]["gain_ci95"]
        text = f"{100 * abs(gain):.1f} % {'more' if gain >= 0 else 'less'}"
        if low is not None:
            ends = [f"{round(100 * bound, 1) + 0.0:+.1f}" for bound in (low, high)]
            clear += [] if low <= 0.0 <= high else [gain]
            text = f"{'no more and no less' if low <= 0.0 <= high else text} ({ends[0]} to {ends[1]} %, 95 %)"
        effects.append(f"{text} {words}")
    text = f"{name_tasks(kind)} would do {' and '.join(effects)}."
    neither = f"Neither grant brings {100 * _WORTH:.0f} % here" if clear else "Neither grant matters here"
    is_worth = any(gain >= _WORTH for gain in clear)
    text = f"{text[0].upper()}{text[1:]}" if is_worth else f"{neither}: {text}"
    return text + f" Less is possible: {WHY_LESS}." * any(gain < 0 for gain in clear)
