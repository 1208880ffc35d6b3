"""Assess whether harvesting is worth it on a machine: replay its whole log with tasks that saturate its idle nodes."""

from __future__ import annotations

import gc
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer._version import __version__
from bftrainer.campaigns.advice import AdvicePlan, advise
from bftrainer.campaigns.model_kinds import KINDS, saturating
from bftrainer.campaigns.verdict import MachinePrices, Thresholds, judged_kind, verdict_of
from bftrainer.errors import InputError, SettingsError
from bftrainer.files.documents import first_row
from bftrainer.files.opening import Form, form_of
from bftrainer.files.writing import file_source
from bftrainer.model import NS_PER_S, NodeLog, TaskSpec, iso
from bftrainer.nodelogs.edit import partitions_of
from bftrainer.nodelogs.offers import idle_node_s
from bftrainer.parallel import Work
from bftrainer.replay import Adoption, Cluster, Observer
from bftrainer.report.ledger import PARTS, best_rate, limited_by
from bftrainer.report.metrics import Intervals
from bftrainer.runs.config import ReplayConfig
from bftrainer.runs.run import RunResult, run_replay

HOUR_S, DAY_S, WEEK_S = 3600.0, 86_400.0, 604_800.0
FORWARD_S = (900.0, 60.0, 300.0, 3600.0, 14_400.0)
"""Forward times to choose from, the given one first."""
_SEARCHED_S = WEEK_S
"""How much of the log settings are searched on, but a tenth of it at least and six tenths at most."""
_MOST_SEARCHED = 256
"""More active tasks than this are tried only where the pool needs them at their most nodes: each costs time."""
_COLLECTED_AFTER = 50_000
"""New objects after which Python looks for garbage."""
LEAST_BLOCKS = 4
_MOST_GPUS = 10**6
_POOL_PERCENT = (5, 50, 95, 100)
_STRETCHES = 240
"""Into how many the window is cut for a picture of it."""
_USEFUL = "ledger.useful"
Floats = NDArray[np.float64]
Steps = Callable[[Mapping[str, ReplayConfig], Work], Sequence[dict[str, Any]]]
"""Results of steps by name, which the work, a picklable callable, makes of a configuration if they are not known."""


@dataclass(frozen=True, slots=True)
class AssessPlan:
    """What is assessed, and by what.

    Parameters
    ----------
    log : NodeLog
    tasks : tuple of TaskSpec
        The site's, repeated to saturate the pool; by default tasks of each of `KINDS`.
    offer_after_s : float
        A node is offered once it has been idle so long.
    planned_departures : Path, optional
        When nodes are known to leave.
    thresholds : Thresholds
    prices : MachinePrices
    gpus_per_node : int, optional
    """

    log: NodeLog
    tasks: tuple[TaskSpec, ...] = ()
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

    @property
    def identity(self) -> str:
        """Checksum of all that the steps depend on; thresholds and prices come after them."""
        log, planned = self.log, self.planned_departures
        digest = hashlib.sha256("\n".join(log.nodes).encode())
        for column in (log.time_ns, log.node, log.idle):
            digest.update(np.ascontiguousarray(column).tobytes())
        known = None if planned is None else file_source(planned)["sha256"]
        digest.update(
            repr((__version__, log.start_ns, log.end_ns, self.tasks, self.offer_after_s, known, KINDS)).encode()
        )
        return digest.hexdigest()

    @property
    def steps(self) -> int:
        """Number of steps that an assessment takes."""
        return 2 * (1 if self.tasks else len(KINDS))


def assessment_of(
    plan: AssessPlan,
    quality: Mapping[str, Any] | None = None,
    steps: Steps = lambda configs, work: list(map(work, configs.values())),
) -> dict[str, Any]:
    """Assess a machine; the answer is ready for JSON.

    Parameters
    ----------
    plan : AssessPlan
    quality : mapping, optional
        Account of the import, as `DataQuality.summary` gives it; None for a log that was a node log.
    steps : callable
        Computes steps that do not depend on each other, and keeps them.

    Raises
    ------
    SettingsError
        If a setting contradicts the log, or the tasks cannot be repeated.
    """
    holes = _idle_time(plan.log)
    sets = _sets(plan, holes)
    window_s = plan.log.window_s
    configs = {f"settings {name}": _config(plan, tasks, holes) for name, tasks, _ in sets}
    advice = steps(configs, partial(_of, _advised, window_s))
    chosen = {
        f"replay {name}": replace(config, forward_time_s=found["forward_time_s"], max_tasks=found["max_tasks"])
        for (name, _, _), config, found in zip(sets, configs.values(), advice, strict=True)
    }
    replayed = steps(chosen, partial(_of, _replayed, holes["node_hours"] * HOUR_S))
    kinds = []
    for (name, _, about), settings, figures in zip(sets, advice, replayed, strict=True):
        entry = {"name": name, "assumed": dict(about), "settings": settings, **figures}
        saving = about["save_s"] / (about["save_s"] + about["checkpoint_interval_s"]) if "save_s" in about else 0.0
        kinds.append(judged_kind(entry, saving, plan.prices, plan.gpus_per_node, _machine_node_s(plan.log)))
    source = {
        "nodes": len(plan.log.nodes),
        "window": [iso(plan.log.start_ns), iso(plan.log.end_ns)],
        "window_s": plan.log.window_s,
        "provenance": {key: value for key, value in plan.log.provenance.items() if key != "partitions"},
        "quality": None if quality is None else dict(quality),
    }
    found = {
        "schema": 1,
        "log": source,
        "idle": holes,
        "thresholds": asdict(plan.thresholds),
        "prices": asdict(plan.prices),
        "gpus_per_node": plan.gpus_per_node,
        "offer_after_s": plan.offer_after_s,
        "planned_departures": None if plan.planned_departures is None else str(plan.planned_departures),
        "solver": "dp",
        "startup_cost": "full",
        "kinds": kinds,
    }
    return found | verdict_of(found, plan.thresholds, plan.prices)


def _sets(plan: AssessPlan, holes: Mapping[str, Any]) -> list[tuple[str, tuple[TaskSpec, ...], dict[str, Any]]]:
    """Kinds of tasks: name, tasks to repeat, and what is assumed of them."""
    if plan.tasks:
        return [("own", plan.tasks, {"tasks": len(plan.tasks)})]
    node_s, window_s = holes["departures_per_idle_node_s"], holes["departure_events_per_s"]
    found: list[tuple[str, tuple[TaskSpec, ...], dict[str, Any]]] = []
    for kind in KINDS:
        interval_s = kind.interval_s(node_s, window_s)
        found.append((kind.name, (kind.task(interval_s),), kind.assumed(interval_s)))
    return found


def _machine_node_s(log: NodeLog) -> float:
    """Node-seconds of the machine, without those in which nodes were not part of it, as far as its import told."""
    away_s = 0.0 if "edits" in log.provenance else float(log.provenance.get("away_node_s") or 0.0)
    return len(log.nodes) * log.window_s - away_s


def _idle_time(log: NodeLog) -> dict[str, Any]:
    """Idle time of a log: how much, on how many nodes, where and when."""
    time_ns, joined, changed = log.changes()
    level = np.append(0, np.cumsum(2 * joined - changed))
    edges_s = np.concatenate(([0.0], np.clip((time_ns - log.start_ns) / NS_PER_S, 0, log.window_s), [log.window_s]))
    length_s = np.diff(edges_s)
    total = float(level @ length_s)
    left = (changed - joined)[edges_s[1:-1] > 0]
    order = np.argsort(level, kind="stable")
    passed = np.cumsum(length_s[order])
    places = np.searchsorted(passed, np.array(_POOL_PERCENT) / 100 * passed[-1])
    pool = {f"p{share}": int(level[order][at]) for share, at in zip(_POOL_PERCENT, places, strict=True)}
    return {
        "node_hours": total / HOUR_S,
        "share": total / max(_machine_node_s(log), 1.0),
        "mean_nodes": total / log.window_s,
        "pool_nodes": pool,
        "while_most_idle_share": float((level * length_s)[2 * level > len(log.nodes)].sum()) / total if total else 0.0,
        "departures_per_idle_node_s": float(left.sum()) / total if total else 0.0,
        "departure_events_per_s": float((left > 0).sum()) / log.window_s,
        "nodes_by_hour_of_week": _by_hour(log.start_ns, edges_s, level),
        "nodes_over_window": _over_window(edges_s, level),
        "by_partition": _by_partition(log),
    }


def _over_window(edges_s: Floats, level: NDArray[np.int64]) -> list[float]:
    """Mean idle nodes in equal stretches of the window."""
    cuts_s = np.linspace(0.0, edges_s[-1], _STRETCHES + 1)
    sums = np.interp(cuts_s, edges_s, np.append(0.0, np.cumsum(level * np.diff(edges_s))))
    return [float(nodes) for nodes in np.diff(sums) / np.diff(cuts_s)]


def _by_hour(start_ns: int, edges_s: Floats, level: NDArray[np.int64]) -> list[float | None]:
    """Mean idle nodes in each hour of the week from Monday, UTC; None for hours that the window does not have."""
    idle_s = np.append(0.0, np.cumsum(level * np.diff(edges_s)))
    monday_s = (start_ns / NS_PER_S + 3 * DAY_S) % WEEK_S  # the epoch began on a Thursday
    hours_s = np.arange(math.floor(monday_s / HOUR_S), math.ceil((monday_s + edges_s[-1]) / HOUR_S) + 1) * HOUR_S
    cuts_s = np.clip(hours_s - monday_s, 0.0, edges_s[-1])
    hour = (hours_s[:-1] / HOUR_S).round().astype(int) % 168
    shared_s = np.bincount(hour, np.diff(cuts_s), 168)
    sums = np.bincount(hour, np.diff(np.interp(cuts_s, edges_s, idle_s)), 168)
    return [float(amount / time_s) if time_s else None for amount, time_s in zip(sums, shared_s, strict=True)]


def _by_partition(log: NodeLog) -> dict[str, dict[str, float]]:
    """Nodes and idle share of each partition that the log's provenance knows."""
    number = {name: place for place, name in enumerate(log.nodes)}
    found = {}
    for name, nodes in partitions_of(log).items():
        members = np.array([number[node] for node in nodes if node in number], dtype=np.int64)
        if members.size:
            keep = np.isin(log.node, members)
            part = replace(log, time_ns=log.time_ns[keep], node=log.node[keep], idle=log.idle[keep])
            node_s = idle_node_s(part, log.window_s)
            found[name] = {"nodes": int(members.size), "share": node_s / (members.size * log.window_s)}
    return found


def _of(work: Callable[..., dict[str, Any]], of: float, config: ReplayConfig) -> Any:
    """What a step's work makes of its configuration."""
    usual = gc.get_threshold()
    # Thousands of tasks live as long as a replay: to look through them as often as usual takes a tenth of its time.
    gc.set_threshold(_COLLECTED_AFTER)
    try:
        return work(config, of)
    finally:
        gc.set_threshold(*usual)


def _config(plan: AssessPlan, tasks: Sequence[TaskSpec], holes: Mapping[str, Any]) -> ReplayConfig:
    """Replay of tasks that saturate the pool, as many at once as fill it at their most nodes."""
    roster, filling = saturating(tasks, holes["pool_nodes"]["p100"], holes["node_hours"] * HOUR_S)
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


def _advised(config: ReplayConfig, window_s: float) -> dict[str, Any]:
    """Settings that are better on the first part of the log and on the rest, else the given ones.

    As many tasks as fill the pool at a quarter of their most nodes lose less to a node than those that fill it at their
    most; how far to look ahead is found with them, then how many are best.
    """
    filling = config.max_tasks
    given, most = (max(filling, min(_MOST_SEARCHED, times * filling)) for times in (4, 16))
    in_turn = {"forward_time_s": FORWARD_S[1:], "max_tasks": (filling, most)}
    config = replace(config, max_tasks=given)
    try:
        share = min(0.6, max(0.1, _SEARCHED_S / window_s))
        found = advise(AdvicePlan(config, metric=_USEFUL, train_share=share, in_turn=in_turn))
    except SettingsError as error:  # a part without idle nodes
        return {
            "forward_time_s": config.forward_time_s,
            "max_tasks": config.max_tasks,
            "verdict": "same",
            "why": str(error),
        }
    gains = dict(zip(("gain_training", "gain_held_out"), (_finite(gain) for gain in found.gains), strict=True))
    best = {"forward_time_s": found.advised.forward_time_s, "max_tasks": found.advised.max_tasks}
    return best | {"verdict": found.verdict, "why": found.sentence(), "tried": len(found.tried), **gains}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


class _NodeStarts(Observer):
    """Counts nodes that tasks are given."""

    nodes = 0

    def on_decision(self, cluster: Cluster, adopted: Adoption) -> None:  # noqa: ARG002
        """Count those of a decision."""
        self.nodes += sum(map(len, adopted.added.values()))


def _replayed(config: ReplayConfig, idle_node_s: float) -> dict[str, Any]:
    """Figures of a replay of the whole window, which has so many idle node-seconds."""
    starts = _NodeStarts()
    result = run_replay(config=config, observers=[starts], details=False)
    summary = result.summary()
    days = summary["window_s"] / DAY_S
    ledger = summary["ledger"]
    useful_s = ledger["idle_node_s"] * (ledger["useful"] or 0.0)
    if summary["end_reason"] == "finished" and idle_node_s > ledger["idle_node_s"] > 0:
        # What was idle after the last task was done is wanted by none.
        share = ledger["idle_node_s"] / idle_node_s
        ledger = {"idle_node_s": idle_node_s, **{part: share * ledger[part] for part in PARTS if part in ledger}}
        ledger["demand"] += 1.0 - share
    return {
        "tasks": summary["tasks_total"],
        "ledger": ledger,
        "limited_by": limited_by(ledger),
        "end_reason": summary["end_reason"],
        "used_node_s": summary["used_node_s"],
        "useful_node_s": useful_s,
        "blocks": _blocks(result, useful_s, config.node_log.window_s if isinstance(config.node_log, NodeLog) else 0.0),
        "node_starts_per_day": starts.nodes / days if days else 0.0,
        "rescales_per_day": summary["rescales"] / days if days else 0.0,
        "preemptions_per_day": summary["preemptions"] / days if days else 0.0,
        "decisions": summary["decisions"],
        "decisions_optimal": summary["decisions_optimal"],
    }


def _blocks(result: RunResult, useful_s: float, window_s: float) -> dict[str, Any]:
    """Useful node-seconds in equal stretches of the window: weeks, or days if there are fewer than four weeks.

    Where tasks have different best rates, the useful node-time is spread as the node-time that tasks held.
    """
    intervals, tasks = Intervals.of(result.recording), result.recording.tasks
    rates = {best_rate(spec) for spec in {task.spec.scaling: task.spec for task in tasks}.values()}
    amount = intervals.net if len(rates) == 1 else intervals.used * intervals.length_s
    whole = math.fsum(amount)
    length_s = WEEK_S if window_s >= LEAST_BLOCKS * WEEK_S else DAY_S
    number = math.floor(window_s / length_s)
    if number < LEAST_BLOCKS:
        return {"unit": None, "node_s": []}
    edges_s = np.linspace(0.0, window_s, number + 1)
    reached = np.interp(edges_s, np.append(0.0, intervals.end_s), np.append(0.0, np.cumsum(amount)))
    shares = np.diff(reached) / whole if whole else np.zeros(number)
    return {"unit": "week" if length_s == WEEK_S else "day", "node_s": (shares * useful_s).tolist()}


def is_node_log(path: Path) -> bool:
    """Whether a file is a node log rather than a scheduler's: by its form, or the columns of its CSV."""
    try:
        form = form_of(path)
    except InputError:
        return False
    if form is not Form.CSV:
        return form is not Form.TOML
    header = first_row(path, InputError)
    return {"time", "node", "idle"} <= {name.strip() for name in header}
