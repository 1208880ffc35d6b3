"""Assess whether harvesting is worth it on a machine: replay its whole log with tasks that saturate its idle nodes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from bftrainer._version import __version__
from bftrainer.campaigns.advice import (
    Advice,
    AdvicePlan,
    SearchedSettings,
    find_best,
    finite_or_none,
    measure_settings,
    split_window,
)
from bftrainer.campaigns.bound import GRANTS, measure_grants
from bftrainer.campaigns.idle_time import (
    DAY_S,
    HOUR_S,
    KINDS,
    WEEK_S,
    machine_node_s,
    measure_idle_time,
    saturate_pool,
    spread_amounts,
)
from bftrainer.campaigns.verdict import RECOMMENDED, MachinePrices, Thresholds, evaluate_kind, verdict_of
from bftrainer.errors import InputError, SettingsError
from bftrainer.files.opening import Form, form_of
from bftrainer.files.text_files import first_row
from bftrainer.files.writing import file_source
from bftrainer.model import NS_PER_S, NodeLog, TaskSpec, iso
from bftrainer.nodelogs.edit import idle_node_s, read_departures
from bftrainer.parallel import Work
from bftrainer.replay import Adoption, Cluster, Observer
from bftrainer.report.ledger import PARTS, best_rate
from bftrainer.report.metrics import Intervals
from bftrainer.runs.config import ReplayConfig
from bftrainer.runs.run import RunResult, run_replay
from bftrainer.runs.run_inputs import load_inputs

FORWARD_S = (900.0, 60.0, 300.0, 3600.0, 14_400.0)
"""Forward times to choose from, the given one first."""
_MOST_SEARCHED = 256
"""More active tasks than this are tried only where the pool needs them at their most nodes: each costs time."""
LEAST_BLOCKS = 4
_MOST_GPUS = 10**6
_USEFUL = "ledger.useful"
Steps = Callable[[Mapping[str, ReplayConfig], Work], Sequence[dict[str, Any]]]
"""Results of steps by name, which the work, a picklable callable, makes of a configuration if they are not known."""


@dataclass(frozen=True, slots=True)
class AssessPlan:
    """What is assessed, and by what."""

    log: NodeLog
    tasks: tuple[TaskSpec, ...] = ()
    """The site's, repeated to saturate the pool; by default tasks of each of `KINDS`."""
    offer_after_s: float = 0.0
    planned_departures: Path | None = None
    thresholds: Thresholds = Thresholds()  # noqa: RUF009 - frozen
    prices: MachinePrices = MachinePrices()  # noqa: RUF009
    gpus_per_node: int | None = None

    def __post_init__(self) -> None:
        if not self.log.window_s > 0:
            raise SettingsError("Expected a log of some time, got one of an instant.")
        if self.gpus_per_node is not None and not 1 <= self.gpus_per_node <= _MOST_GPUS:
            raise SettingsError(f"Expected --gpus-per-node of 1 to {_MOST_GPUS:,}, got {self.gpus_per_node}.")
        if self.planned_departures is not None:
            read_departures(self.planned_departures, self.log.nodes)  # refused before anything is written

    @property
    def identity(self) -> str:
        """Checksum of all that the steps depend on; thresholds and prices come after them."""
        log, planned = self.log, self.planned_departures
        digest = hashlib.sha256("\n".join(log.nodes).encode())
        for column in (log.time_ns, log.node, log.idle):
            digest.update(np.ascontiguousarray(column).tobytes())
        departures = None if planned is None else file_source(planned)["sha256"]
        others = (__version__, log.start_ns, log.end_ns, self.tasks, self.offer_after_s, departures, KINDS)
        digest.update(repr(others).encode())
        return digest.hexdigest()

    @property
    def grant_window_s(self) -> float:
        """How much of the log, at its end, grants are measured on: a third, but a week or more, and 8 weeks at most."""
        return min(self.log.window_s, 8 * WEEK_S, max(WEEK_S, self.log.window_s / 3))

    @property
    def steps(self) -> int:
        """Number of steps that an assessment takes at most."""
        return 3 * (1 if self.tasks else len(KINDS)) + len(GRANTS) + (self.log.window_s > self.grant_window_s)


def assessment_of(
    plan: AssessPlan,
    quality: Mapping[str, Any] | None = None,
    steps: Steps = lambda configs, work: list(map(work, configs.values())),
) -> dict[str, Any]:
    """Assess a machine; the answer is ready for JSON.

    `quality` is the account of the import, None for a node log; `steps` computes, and keeps, steps that do not depend
    on each other. A `SettingsError` if a setting contradicts the log, or the tasks cannot be repeated.
    """
    log, idle = plan.log, measure_idle_time(plan.log)
    assumed: dict[str, dict[str, Any]] = {"own": {"tasks": len(plan.tasks)}}
    tasks = {"own": plan.tasks}
    if not plan.tasks:
        losses = idle["departures_per_idle_node_s"], idle["departure_events_per_s"]
        assumed = {kind.name: kind.list_assumptions(kind.interval_s(*losses)) for kind in KINDS}
        tasks = {kind.name: (kind.task(kind.interval_s(*losses)),) for kind in KINDS}
    configs = {name: _configure(plan, idle, of_kind) for name, of_kind in tasks.items()}
    kinds = [
        evaluate_kind(
            {"name": name, "assumed": assumed[name], **figures}, plan.prices, plan.gpus_per_node, machine_node_s(log)
        )
        for name, figures in _measure_kinds(configs, steps).items()
    ]
    answer: dict[str, Any] = {
        "schema": 2,
        "log": {
            "nodes": len(log.nodes),
            "window": [iso(log.start_ns), iso(log.end_ns)],
            "window_s": log.window_s,
            "provenance": {key: value for key, value in log.provenance.items() if key != "partitions"},
            "quality": None if quality is None else dict(quality),
        },
        "idle": idle,
        "thresholds": asdict(plan.thresholds),
        "prices": asdict(plan.prices),
        "gpus_per_node": plan.gpus_per_node,
        "offer_after_s": plan.offer_after_s,
        "planned_departures": None if plan.planned_departures is None else str(plan.planned_departures),
        "solver": "dp",
        "startup_cost": "full",
        "kinds": kinds,
    }
    answer |= verdict_of(answer, plan.thresholds, plan.prices)
    best = next(kind for kind in kinds if kind["name"] == answer["about"])
    has_grants = answer["verdict"] != "none" and best["useful_node_s"] > 0
    return answer | {"grants": _measure_grants(plan, configs[best["name"]], best, steps) if has_grants else None}


def _configure(plan: AssessPlan, idle: Mapping[str, Any], tasks: tuple[TaskSpec, ...]) -> ReplayConfig:
    """A replay of as many of these tasks at once as fill the pool at their most nodes."""
    roster, filling = saturate_pool(tasks, idle["pool_nodes"]["p100"], idle["node_hours"] * HOUR_S)
    return ReplayConfig(
        node_log=plan.log,
        tasks=roster,
        solver="dp",
        startup_cost="full",
        baseline=False,
        forward_time_s=FORWARD_S[0],
        max_tasks=filling,
        offer_after_s=plan.offer_after_s,
        planned_departures=plan.planned_departures,
    )


def _measure_kinds(configs: Mapping[str, ReplayConfig], steps: Steps) -> dict[str, dict[str, Any]]:
    """Figures of each kind of tasks, with the settings that are best on the first part and not worse on the rest."""
    searches = steps({f"settings {name}": config for name, config in configs.items()}, _search)
    settings = dict(zip(configs, searches, strict=True))
    replays = {
        f"replay {name} {which}": replace(config, **settings[name][which])
        for name, config in configs.items()
        for which in ("given", "best")
        if which == "given" or settings[name]["best"] != settings[name]["given"]
    }
    figures, answer = dict(zip(replays, steps(replays, _replay), strict=True)), {}
    for name, config in configs.items():
        search, plan, current = settings[name], _plan_search(config), figures[f"replay {name} given"]
        best = figures.get(f"replay {name} best", current)
        trained = [math.nan if value is None else value for value in search["trained"]]
        held_out = (current["held_out"], best["held_out"])
        advice = Advice(plan, replace(plan.current, **search["best"]), (trained[0], trained[1]), held_out)
        is_better = advice.verdict == "better"
        words = {"verdict": advice.verdict, "why": advice.sentence(), "tried": search["tried"]}
        gains = dict(zip(("gain_training", "gain_held_out"), map(finite_or_none, advice.gains), strict=True))
        chosen = search["best" if is_better else "given"] | words | gains
        answer[name] = {"settings": chosen, **(best if is_better else current)}
    return answer


def _measure_grants(plan: AssessPlan, config: ReplayConfig, best: Mapping[str, Any], steps: Steps) -> dict[str, Any]:
    """Useful node-seconds of a kind in each stretch of the window, if the scheduler grants something."""
    config = replace(config, **{name: best["settings"][name] for name in RECOMMENDED})
    ways, figures = dict(GRANTS), {"named": dict(best)}
    if plan.log.window_s > plan.grant_window_s:
        end = plan.log.since(plan.log.end_ns - round(plan.grant_window_s * NS_PER_S))
        config, ways, figures = replace(config, node_log=end), {"named": {}, **GRANTS}, {}
    replayed = steps({f"grant {name}": replace(config, **options) for name, options in ways.items()}, _replay)
    return measure_grants(best, figures | dict(zip(ways, replayed, strict=True)))


def _plan_search(config: ReplayConfig) -> AdvicePlan:
    """Search on a week, up to two of a long log, from as many tasks as fill the pool at a quarter of their most."""
    tasks = max(config.max_tasks, min(_MOST_SEARCHED, 4 * config.max_tasks))
    window_s = cast(NodeLog, config.node_log).window_s
    searched_s = max(WEEK_S, min(window_s / 10, 2 * WEEK_S))
    share = min(0.6, max(0.01, searched_s / window_s))
    return AdvicePlan(replace(config, max_tasks=tasks), metric=_USEFUL, train_share=share)


def _search(config: ReplayConfig) -> dict[str, Any]:
    """The given settings, and those that are best on the first part of the log: first -Tfwd, then -maxJ."""
    plan, filling = _plan_search(config), config.max_tasks
    first, _ = split_window(plan.config, load_inputs(plan.config), plan.train_share)
    most = max(filling, min(_MOST_SEARCHED, 16 * filling))
    choices: dict[str, Sequence[Any]] = {"forward_time_s": FORWARD_S, "max_tasks": (filling, most)}
    scores, best = dict[SearchedSettings, float](), plan.current
    for name, values in choices.items():
        for settings in (replace(best, **{name: value}) for value in values):
            if settings not in scores:
                scores[settings] = measure_settings(first, settings, _USEFUL)
        best = find_best(scores, _USEFUL)
    given, chosen = ({name: getattr(one, name) for name in RECOMMENDED} for one in (plan.current, best))
    trained = [finite_or_none(scores[settings]) for settings in (plan.current, best)]
    return {"given": given, "best": chosen, "trained": trained, "tried": len(scores)}


class _NodeStarts(Observer):
    """Counts nodes that tasks are given."""

    nodes = 0

    def on_decision(self, cluster: Cluster, adopted: Adoption) -> None:  # noqa: ARG002
        """Count those of a decision."""
        self.nodes += sum(map(len, adopted.added.values()))


def _replay(config: ReplayConfig) -> dict[str, Any]:
    """Figures of a replay of the whole window; what is done while the machine is mostly empty is counted apart."""
    starts, log = _NodeStarts(), cast(NodeLog, config.node_log)
    result = run_replay(config=config, observers=[starts], details=False)
    summary = result.summary()
    days = summary["window_s"] / DAY_S
    counts = {"node_starts": starts.nodes, "rescales": summary["rescales"], "preemptions": summary["preemptions"]}
    idle_s, ledger = idle_node_s(log, log.window_s), summary["ledger"]
    useful_s = ledger["idle_node_s"] * (ledger["useful"] or 0.0)
    if summary["end_reason"] == "finished" and idle_s > ledger["idle_node_s"] > 0:
        # What was idle after the last task was done is wanted by none.
        share = ledger["idle_node_s"] / idle_s
        ledger = {"idle_node_s": idle_s, **{part: share * ledger[part] for part in PARTS if part in ledger}}
        ledger["demand"] += 1.0 - share
    return {
        "tasks": summary["tasks_total"],
        "ledger": ledger,
        **{name: summary[name] for name in ("end_reason", "used_node_s", "decisions", "decisions_optimal")},
        **_useful_time(result, useful_s, log, _plan_search(config).train_share),
        **{f"{name}_per_day": count / days if days else 0.0 for name, count in counts.items()},
    }


def _useful_time(result: RunResult, useful_s: float, log: NodeLog, trained_share: float) -> dict[str, Any]:
    """Useful node-seconds, by week or day, while at least half of the machine is busy; the rest; and after training."""
    # Where tasks have different best rates, useful node-time is spread as the node-time that tasks held.
    intervals, tasks = Intervals.of(result.recording), result.recording.tasks
    rates = {best_rate(spec) for spec in {task.spec.scaling: task.spec for task in tasks}.values()}
    amount = intervals.net if len(rates) == 1 else intervals.used * intervals.length_s
    total = math.fsum(amount)
    node_s = amount * (useful_s / total) if total else np.zeros_like(amount)
    is_long = log.window_s >= LEAST_BLOCKS * WEEK_S
    number = math.floor(log.window_s / (WEEK_S if is_long else DAY_S))
    cuts_s = np.linspace(0.0, log.window_s, max(number, 1) + 1)
    blocks, empty = spread_amounts(log, intervals.end_s, node_s, cuts_s)
    is_comparable = number >= LEAST_BLOCKS
    return {
        "useful_node_s": float(blocks.sum()),
        "mostly_empty_node_s": empty,
        "held_out": float(node_s[intervals.end_s > trained_share * log.window_s].sum()),
        "blocks": {
            "unit": ("week" if is_long else "day") if is_comparable else None,
            "node_s": blocks.tolist() if is_comparable else [],
        },
    }


def is_node_log(path: Path) -> bool:
    """Whether a file is a node log rather than a scheduler's: by its form, or the columns of its CSV."""
    try:
        if (form := form_of(path)) is not Form.CSV:
            return form is not Form.TOML
        header = first_row(path)
    except InputError:
        return False
    return {"time", "node", "idle"} <= {name.strip() for name in header}
