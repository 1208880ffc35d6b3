"""Assess whether harvesting is worth it: replay a whole log with tasks that saturate its idle nodes, and judge that."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from bftrainer._version import __version__
from bftrainer.campaigns import idle_time, studies
from bftrainer.campaigns.idle_time import DAY_S, HOUR_S, KINDS, WEEK_S
from bftrainer.errors import InputError, SettingsError
from bftrainer.files.opening import Form, form_of
from bftrainer.files.text_files import first_row
from bftrainer.files.writing import file_source
from bftrainer.model import NS_PER_S, NodeLog, TaskSpec, iso
from bftrainer.nodelogs.edit import read_departures
from bftrainer.nodelogs.inventory import shorten_names
from bftrainer.parallel import Work
from bftrainer.replay import Adoption, Cluster, Observer
from bftrainer.report.glossary import format_value, limit_in_words, name_tasks
from bftrainer.report.ledger import PARTS, best_rate, find_limit
from bftrainer.report.metrics import Intervals, idle_node_s
from bftrainer.runs import RunResult, run_replay
from bftrainer.runs.config import ReplayConfig

FORWARD_S = (900.0, 60.0, 300.0, 3600.0, 14_400.0)
"""Forward times to choose from, the given one first."""
_MOST_SEARCHED = 256
"""More active tasks than this are tried only where the pool needs them at their most nodes: each costs time."""
LEAST_BLOCKS = 4
MOST_DOUBT = 0.01
"""Largest share of the window that may be untrusted, and of its busy time that may be missing, for a verdict."""
MOST_EMPTY = 0.2
"""Largest share of the idle time while a machine is mostly empty for a verdict that is green."""
RECOMMENDED = ("forward_time_s", "max_tasks")
"""Settings that are searched for, and recommended."""
_CLUSTERS = "the log is of "
_EXPORT = (
    "Export all jobs that ran in four weeks or more, also those that began before or still run (sacct -a -S ... "
    "-E ... without a choice of states; all daily files of PBS): see the page of your scheduler's import."
)
_WATCH = "Go on watching until there are four weeks: the same bftrainer watch goes on in the same file."
_BY_CLUSTER = "Each cluster by itself: bftrainer assess with --cluster NAME."
_MOST = 1e12
_USEFUL = "ledger.useful"
Steps = Callable[[Mapping[str, ReplayConfig], Work], Sequence[dict[str, Any]]]
"""Results of steps by name, which the work, a picklable callable, makes of a configuration if they are not known."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What is worth it."""

    worth_share: float = 0.01
    """Least lower bound of the useful node-hours, as a share of the machine's."""
    worth_value: float = 0.0
    """What the lower bound of the net value must exceed, where there is a price; it then decides alone."""
    least_window_s: float = 7 * DAY_S
    """Shorter logs get no verdict."""

    def __post_init__(self) -> None:
        if not 0 < self.worth_share < 1:
            share = f"{100 * self.worth_share:g} % (a hundredth is 1% or 0.01)"
            raise SettingsError(f"Expected 0 < worth share < 100 %, got {share}.")
        if not math.isfinite(self.worth_value):
            raise SettingsError(f"Expected a finite worth value, got {self.worth_value}.")
        if not 0 < self.least_window_s < math.inf:
            raise SettingsError(f"Expected a least window above 0 s, got {self.least_window_s}.")


_FLAGS = {"node_w": "--node-power", "idle_w": "--idle-power", "carbon_gco2_per_kwh": "--carbon"}


@dataclass(frozen=True, slots=True)
class MachinePrices:
    """Prices and power, in one currency of the site; None where unknown."""

    price_node_hour: float | None = None
    """Worth of a useful node-hour."""
    price_kwh: float | None = None
    node_w: float | None = None
    """Watts that a node draws that trains, and then one that does nothing."""
    idle_w: float | None = None
    pue: float = 1.0
    """Watts at the meter for each watt of the nodes."""
    carbon_gco2_per_kwh: float | None = None

    def __post_init__(self) -> None:
        for price in fields(self):
            value = getattr(self, price.name)
            least = 1 if price.name == "pue" else 0
            if value is not None and not least <= value <= _MOST:
                flag = _FLAGS.get(price.name, f"--{price.name.replace('_', '-')}")
                raise SettingsError(f"Expected {flag} of {least} to {_MOST:g}, got {value:g}.")
        if self.node_w is not None and self.node_w < (self.idle_w or 0.0):
            idle_power = f"--idle-power, {self.idle_w:g} W"
            raise SettingsError(f"Expected --node-power to be no less than {idle_power}, got {self.node_w:g} W.")


@dataclass(frozen=True, slots=True)
class AssessPlan:
    """What is assessed, and by what."""

    log: NodeLog
    tasks: tuple[TaskSpec, ...] = ()
    """The site's, repeated to saturate the pool; by default tasks of each of `KINDS`."""
    offer_after_s: float = 0.0
    planned_departures: Path | None = None
    thresholds: Thresholds = Thresholds()
    prices: MachinePrices = MachinePrices()
    gpus_per_node: int | None = None

    def __post_init__(self) -> None:
        if not self.log.window_s > 0:
            raise SettingsError("Expected a log of some time, got one of an instant.")
        if self.gpus_per_node is not None and not 1 <= self.gpus_per_node <= 10**6:
            raise SettingsError(f"Expected --gpus-per-node of 1 to 1,000,000, got {self.gpus_per_node}.")
        if self.planned_departures is not None:
            read_departures(self.planned_departures, self.log.nodes)  # refused before anything is written

    @property
    def figure(self) -> str:
        """What decides: the useful share of the machine, or the net value where there is a price."""
        return "useful_share" if self.prices.price_node_hour is None else "net_value"

    def is_passed(self, value: float) -> bool:
        """Whether so much of that is enough."""
        bar = self.thresholds
        return value > bar.worth_value if self.figure == "net_value" else value >= bar.worth_share

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
        return 3 * (1 if self.tasks else len(KINDS)) + len(studies.GRANTS) + (self.log.window_s > self.grant_window_s)


def assessment_of(
    plan: AssessPlan,
    quality: Mapping[str, Any] | None = None,
    steps: Steps = lambda configs, work: list(map(work, configs.values())),
) -> dict[str, Any]:
    """Assess a machine; the answer is ready for JSON.

    `quality` is the account of the import, None for a node log; `steps` computes, and keeps, steps that do not depend
    on each other. A `SettingsError` if a setting contradicts the log, or the tasks cannot be repeated.
    """
    log, idle = plan.log, idle_time.measure_idle_time(plan.log)
    assumed: dict[str, dict[str, Any]] = {"own": {"tasks": len(plan.tasks)}}
    tasks = {"own": plan.tasks}
    if not plan.tasks:
        losses = idle["departures_per_idle_node_s"], idle["departure_events_per_s"]
        assumed = {kind.name: kind.list_assumptions(kind.interval_s(*losses)) for kind in KINDS}
        tasks = {kind.name: (kind.task(kind.interval_s(*losses)),) for kind in KINDS}
    configs = {name: _configure(plan, idle, of_kind) for name, of_kind in tasks.items()}
    figures = _measure_kinds(configs, steps)
    kinds = [evaluate_kind(plan, {"name": name, "assumed": assumed[name], **figures[name]}) for name in configs]
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
    answer |= verdict_of(plan, answer)
    best = next(kind for kind in kinds if kind["name"] == answer["about"])
    if answer["verdict"] == "none" or best["useful_node_s"] <= 0:
        return answer | {"grants": None}
    # What a grant brings is measured on the end of a long log.
    config = replace(configs[best["name"]], **{name: best["settings"][name] for name in RECOMMENDED})
    ways, known = dict(studies.GRANTS), {"named": dict(best)}
    if log.window_s > plan.grant_window_s:
        end = log.since(log.end_ns - round(plan.grant_window_s * NS_PER_S))
        config, ways, known = replace(config, node_log=end), {"named": {}, **ways}, {}
    replayed = steps({f"grant {name}": replace(config, **options) for name, options in ways.items()}, _replay)
    return answer | {"grants": studies.measure_grants(best, known | dict(zip(ways, replayed, strict=True)))}


def _configure(plan: AssessPlan, idle: Mapping[str, Any], tasks: tuple[TaskSpec, ...]) -> ReplayConfig:
    """A replay of as many of these tasks at once as fill the pool at their most nodes."""
    roster, filling = idle_time.saturate_pool(tasks, idle["pool_nodes"]["p100"], idle["node_hours"] * HOUR_S)
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
        advice = studies.Advice(plan, replace(plan.current, **search["best"]), (trained[0], trained[1]), held_out)
        is_better = advice.verdict == "better"
        words = {"verdict": advice.verdict, "why": advice.sentence(), "tried": search["tried"]}
        gains = dict(zip(("gain_training", "gain_held_out"), map(studies.finite_or_none, advice.gains), strict=True))
        chosen = search["best" if is_better else "given"] | words | gains
        answer[name] = {"settings": chosen, **(best if is_better else current)}
    return answer


def _plan_search(config: ReplayConfig) -> studies.AdvicePlan:
    """Search on a week, up to two of a long log, from as many tasks as fill the pool at a quarter of their most."""
    tasks = max(config.max_tasks, min(_MOST_SEARCHED, 4 * config.max_tasks))
    window_s = cast(NodeLog, config.node_log).window_s
    searched_s = max(WEEK_S, min(window_s / 10, 2 * WEEK_S))
    share = min(0.6, max(0.01, searched_s / window_s))
    return studies.AdvicePlan(replace(config, max_tasks=tasks), metric=_USEFUL, train_share=share)


def _search(config: ReplayConfig) -> dict[str, Any]:
    """The given settings, and those that are best on the first part of the log: first -Tfwd, then -maxJ."""
    plan, filling = _plan_search(config), config.max_tasks
    most = max(filling, min(_MOST_SEARCHED, 16 * filling))
    scores = studies.search_in_turn(plan, {"forward_time_s": FORWARD_S, "max_tasks": (filling, most)})
    pair = plan.current, studies.find_best(scores, _USEFUL)
    given, best = ({name: getattr(settings, name) for name in RECOMMENDED} for settings in pair)
    trained = [studies.finite_or_none(scores[settings]) for settings in pair]
    return {"given": given, "best": best, "trained": trained, "tried": len(scores)}


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
        ledger = {"idle_node_s": idle_s, **{name: share * ledger[name] for name in PARTS if name in ledger}}
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
    blocks, empty = idle_time.spread_amounts(log, intervals.end_s, node_s, cuts_s)
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


def evaluate_kind(plan: AssessPlan, entry: Mapping[str, Any]) -> dict[str, Any]:
    """A kind's figures with what follows from them: checkpoints booked, interval, worth, energy.

    All but `mostly_empty_node_hours` is of the time when at least half of the machine is busy; shares are of the whole
    machine in the whole window.
    """
    assumed, ledger, prices = entry["assumed"], dict(entry["ledger"]), plan.prices
    machine_h = idle_time.machine_node_s(plan.log) / HOUR_S
    saving = assumed["save_s"] / (assumed["save_s"] + assumed["checkpoint_interval_s"]) if "save_s" in assumed else 0.0
    useful = ledger["useful"]
    if useful is not None and useful > 0:
        ledger["useful"], ledger["saving"] = useful * (1 - saving), useful * saving
    useful_h, empty_h = (entry[f"{when}_node_s"] * (1 - saving) / HOUR_S for when in ("useful", "mostly_empty"))
    blocks_h = [node_s * (1 - saving) / HOUR_S for node_s in entry["blocks"]["node_s"]]
    half_h = studies.half_width_of_sum(blocks_h)
    bounds_h = (None, None) if half_h is None else (useful_h - half_h, useful_h + half_h)
    per_hour_kwh = None
    if prices.node_w is not None and useful_h > 0 and useful_h + empty_h > 0:
        extra_w = (prices.node_w - (prices.idle_w or 0.0)) * prices.pue
        per_hour_kwh = extra_w / 1000.0 * (entry["used_node_s"] / HOUR_S) / (useful_h + empty_h)
    price = prices.price_node_hour
    net = None if price is None else price - (per_hour_kwh or 0.0) * (prices.price_kwh or 0.0)
    energy_kwh = _multiply(per_hour_kwh, useful_h)
    return dict(entry) | {
        "ledger": ledger,
        "limited_by": find_limit(ledger),
        "useful_node_hours": useful_h,
        "useful_node_hours_ci95": list(bounds_h),
        "useful_share": useful_h / machine_h,
        "useful_share_ci95": [None if bound is None else bound / machine_h for bound in bounds_h],
        "mostly_empty_node_hours": empty_h,
        "mostly_empty_share": empty_h / machine_h,
        "mostly_empty_value": _multiply(net, empty_h),
        "gpu_hours": _multiply(plan.gpus_per_node, useful_h),
        "energy_kwh": energy_kwh,
        "emissions_kg": _multiply(energy_kwh, _multiply(prices.carbon_gco2_per_kwh, 1e-3)),
        "net_value": _multiply(net, useful_h),
        "net_value_ci95": [_multiply(net, bound) for bound in bounds_h],
    }


def _multiply(one: float | None, two: float | None) -> float | None:
    """A product; None if a factor is unknown."""
    return None if one is None or two is None else one * two


def verdict_of(plan: AssessPlan, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Verdict, its reason, recommended settings, caveats, and what to measure next.

    The verdict is ``worth it``, ``only for some``, ``not worth it`` or ``none``, its colour ``green``, ``amber``,
    ``red`` or ``gray``; `about` is the kind of tasks that it is about, `mostly_empty` a sentence about the time that is
    not counted, or None.
    """
    kinds = {kind["name"]: kind for kind in answer["kinds"]}
    means = {name: kind[plan.figure] for name, kind in kinds.items()}
    lows = {
        name: min([mean, *(bound for bound in kinds[name][f"{plan.figure}_ci95"] if bound is not None)])
        for name, mean in means.items()
    }
    passed = [name for name, low in lows.items() if plan.is_passed(low)]
    # If none is worth it, one with a wide interval says more than one that recovers nothing for certain.
    best = kinds[max(kinds, key=(lows if passed else means).__getitem__)]
    doubts, next_texts = _why_none(answer, plan.thresholds), _list_next(answer, plan.prices)
    empty, mostly_empty, recommended = answer["idle"]["mostly_empty"], None, None
    of_idle = f"{format_value(empty['share'], 'share')} of the idle time"
    if empty["node_hours"]:
        more_h = f"{'' if doubts else 'another '}{max(best['mostly_empty_node_hours'], 0.0):,.0f} node-hours"
        why = f"{of_idle} is not counted, as more than half of the machine stood empty then"
        mostly_empty = f"{why}; such tasks would recover {more_h} in it."
    if doubts:
        verdict, colour, sentence = "none", "gray", f"No verdict: {'; '.join(doubts)}."
        by_watch = answer["log"]["provenance"].get("format") == "watch"
        is_of_clusters = all(_CLUSTERS in doubt for doubt in doubts)
        next_texts.insert(0, _BY_CLUSTER if is_of_clusters else _WATCH if by_watch else _EXPORT)
    elif passed:
        is_all = len(passed) == len(kinds)
        verdict, colour = "worth it" if is_all else "only for some", "green" if is_all else "amber"
        names = "" if is_all else f" only for {' and '.join(map(name_tasks, passed))}"
        coverage = answer["log"]["provenance"].get("coverage")
        gone = (coverage.get("missing_ids_share") or 0.0) if isinstance(coverage, Mapping) else 0.0
        if empty["share"] > MOST_EMPTY or gone > MOST_DOUBT:
            missing = f" as {100 * gone:.2g} % of the job ids are in no row, whose nodes look idle"
            colour, names = "amber", f"{names}, with care{missing * (gone > MOST_DOUBT)}"
            next_texts[:0] = ["Which records are missing: export all jobs of all states again."] * (gone > MOST_DOUBT)
        sentence = f"Worth it{names}: {_describe_amounts(best, answer, plan)}."
        recommended = {"kind": best["name"], **{name: best["settings"][name] for name in RECOMMENDED}}
    else:
        more, mean = best[f"mostly_empty_{plan.figure.rpartition('_')[2]}"], best[plan.figure]
        would_pass, is_open = more > 0 and plan.is_passed(mean + more), plan.is_passed(mean)
        verdict, colour = "not worth it", "amber" if would_pass else "red"
        lead = "Not shown to be worth it" if is_open or would_pass else "Not worth it"
        sentence = f"{lead}, because {_why_not(best, answer, plan)}."
        if is_open:
            unit = best["blocks"]["unit"]
            next_texts.insert(0, f"A longer log: {unit}s differ so much that this one cannot tell.")
    return {
        "verdict": verdict,
        "colour": colour,
        "sentence": sentence,
        "about": best["name"],
        "mostly_empty": mostly_empty,
        "recommended": recommended,
        "worth_for": [] if doubts else passed,
        "caveats": _list_caveats(answer, best, plan.prices),
        "next": next_texts,
    }


def _why_none(answer: Mapping[str, Any], thresholds: Thresholds) -> list[str]:
    """Reasons for which there can be no verdict."""
    log, days = answer["log"], f"{answer['log']['window_s'] / DAY_S:.3g}"
    is_long = log["window_s"] >= thresholds.least_window_s
    least = f"{thresholds.least_window_s / DAY_S:g} are the least (--least-window)"
    clusters = [note.partition(":")[0] for note in log["provenance"].get("notes") or [] if _CLUSTERS in note][:1]
    coverage = log["provenance"].get("coverage")
    account: Mapping[str, Any] = coverage if isinstance(coverage, Mapping) else {"trusted": ["all"]}
    names = ("untrusted_s", "missing_busy_share", "runaway_share", "runaways", "lost_days")
    untrusted_s, missing, runaway, number, lost = (account.get(name) or 0 for name in names)
    untrusted, is_trusted = untrusted_s / log["window_s"], account.get("trusted") is not None
    held = f"hold {100 * runaway:.3g} % of the busy node-time"
    dates = f" ({shorten_names(account['lacking_dates'])})" if account.get("lacking_dates") else ""
    return _select(
        (not is_trusted, f"nothing of the log can be trusted, as {account.get('reason')}"),
        (is_trusted and untrusted > MOST_DOUBT, f"{100 * untrusted:.3g} % of the window is not covered by the log"),
        (missing > MOST_DOUBT, f"about {100 * missing:.2g} % of the busy node-time is missing, and looks idle"),
        (runaway > MOST_DOUBT, f"{number:,} runs without an end, whose nodes ran other jobs since (runaways), {held}"),
        (lost > 0, f"records of about {lost:.3g} days are missing{dates}, and what ran then looks idle"),
        (not is_long, f"{days} {'day is' if days == '1' else 'days are'} too few to tell of others; {least}"),
        (is_long and not answer["kinds"][0]["blocks"]["node_s"], "the window has fewer than four days to compare"),
        *((True, f"{note}, and no task runs on nodes of both: assess each with --cluster") for note in clusters),
    )


def _select(*claims: tuple[bool, str]) -> list[str]:
    """Texts of the claims that hold."""
    return [text for holds, text in claims if holds]


def _describe_amounts(kind: Mapping[str, Any], answer: Mapping[str, Any], plan: AssessPlan) -> str:
    """What a kind recovers, in words, and the bar that it takes."""
    days, (low, high) = answer["log"]["window_s"] / DAY_S, kind["useful_node_hours_ci95"]
    text = f"{name_tasks(kind['name'])} recover {kind['useful_node_hours']:,.0f} useful node-hours ({low:,.0f} to "
    text += f"{high:,.0f}, 95 %) in {days:,.0f} days, {format_value(kind['useful_share'], 'share')} of the machine's"
    if kind["gpu_hours"] is not None:
        text += f" ({kind['gpu_hours']:,.0f} GPU-hours)"
    if plan.figure == "net_value":
        low, high = sorted(kind["net_value_ci95"])
        worth = f"{kind['net_value']:,.0f} net ({low:,.0f} to {high:,.0f}"
        return f"{text}, worth {worth}; the bar is {plan.thresholds.worth_value:,.0f})"
    shares = kind["useful_share_ci95"][0], plan.thresholds.worth_share
    least, need = (format_value(share, "share") for share in shares)
    return f"{text} ({least} at least; the bar is {need})"


def _why_not(best: Mapping[str, Any], answer: Mapping[str, Any], plan: AssessPlan) -> str:
    """Why even the best kind is not worth it."""
    name, need = name_tasks(best["name"]), format_value(plan.thresholds.worth_share, "share")
    if plan.figure == "net_value":
        low, high = sorted(best["net_value_ci95"])
        worth = f"even {name} are worth {best['net_value']:,.0f} net ({low:,.0f} to {high:,.0f})"
        return f"{worth}, and the lower end does not exceed {plan.thresholds.worth_value:,.0f}"
    empty, useful = answer["idle"]["mostly_empty"]["share"], format_value(best["useful_share"], "share")
    idle_share = answer["idle"]["share"] * (1.0 - empty)
    idle, when = format_value(idle_share, "share"), " while at least half of it is busy" if empty else ""
    if idle_share < plan.thresholds.worth_share:
        return f"only {idle} of the machine is idle{when}, less than the bar of {need}"
    if plan.is_passed(best[plan.figure]):
        unit = best["blocks"]["unit"]
        return f"{name} recover {useful} of the machine, but {unit}s differ so much that it may be less than {need}"
    limit = limit_in_words({"ledger": best["ledger"], "limited_by": find_limit(best["ledger"])})
    return f"of {idle} idle{when}, {name} recover {useful} of the machine, less than {need}: {limit}"


def _list_caveats(answer: Mapping[str, Any], best: Mapping[str, Any], prices: MachinePrices) -> list[str]:
    """What was assumed, trimmed, starved or not checked, one line each."""
    log, unit, number = answer["log"], best["blocks"]["unit"], len(best["blocks"]["node_s"])
    node_unit, is_own = (log["quality"] or {}).get("unit", "node"), best["name"] == "own"
    # What was not idle stands on the page with its causes.
    notes = [note for note in log["provenance"].get("notes") or [] if not note.startswith("node-hours that were not")]
    is_of_blocks = any(note.startswith("a node here is") for note in notes)
    is_mixed, was_empty = len(answer["idle"]["by_partition"]) > 1, answer["idle"]["mostly_empty"]["node_hours"] > 0
    has_interval, is_free = best["useful_share_ci95"][0] is not None, prices.price_node_hour is None
    of_kinds = list[tuple[bool, str]]()
    for kind in answer["kinds"]:
        losing, limit = sum(node_s < 0 for node_s in kind["blocks"]["node_s"]), limit_in_words(kind)
        when = f"{losing} of {number} {unit}s, in which starts and lost work cost more than was done"
        of_kinds += [
            (losing > 0, f"{kind['name']}: useful node-hours are below 0 in {when}."),
            (limit is not None and kind["limited_by"] != "pool", f"{kind['name']}: {limit}."),
            (kind["settings"]["verdict"] == "overfit", f"{kind['name']}: {kind['settings']['why']}"),
        ]
    lacking = _select((prices.node_w is None, "--node-power"), (prices.price_kwh is None, "--price-kwh"))
    lacks_idle = prices.node_w is not None and prices.idle_w is None
    uncounted = "Time while more than half of the nodes are idle is not counted: maintenance, outages, missing records?"
    independent = f"as if {unit}s were independent: they say nothing of years that differ."
    independent += " Days are more alike than weeks, which makes them too narrow." * (unit == "day")
    return _select(
        (was_empty, f"{uncounted} You know whether those nodes may be lent. Shares of losses are of all idle time."),
        *((bool(note), f"{note[:1].upper()}{note[1:]}") for note in notes),
        (is_of_blocks, "Node-hours, prices, power and the assumed tasks are of such a node, not of the machine's."),
        (
            node_unit != "node",
            f"A node here is one {node_unit} (--unit); node-hours, prices, power and tasks are of these.",
        ),
        (is_mixed, "A task may use nodes of all partitions, as if alike, GPUs too: --partition assesses one."),
        (_is_unchecked(log), "Coverage was not checked: the node log does not say how it was recorded."),
        (has_interval, f"Intervals are of 95 % over {number} {unit}s (Student's t), {independent}"),
        (is_own, "The tasks were repeated, without dates, until they saturate the pool: your users may submit fewer."),
        (is_own, "Saving checkpoints takes no time, but for what the tasks' costs of change include."),
        (not is_own, "Tasks are assumed: scaling, memory, checkpoints and start of each kind are listed with it."),
        *of_kinds,
        (not is_free and bool(lacking), f"The net value is without energy, which takes {' and '.join(lacking)}."),
        (lacks_idle, "Energy counts idle nodes as drawing nothing: --idle-power is not given."),
        (True, "Decided by dp, with the optima of CBC; starts cost in full, and nodes are given back at once."),
    )


def _is_unchecked(log: Mapping[str, Any]) -> bool:
    """Whether a log is a node log that does not say what it covers."""
    provenance = log["provenance"]
    return log["quality"] is None and provenance.get("coverage") is None and provenance.get("format") != "watch"


def _list_next(answer: Mapping[str, Any], prices: MachinePrices) -> list[str]:
    """What to measure next, what matters most first."""
    log, notes = answer["log"], " ".join(answer["log"]["provenance"].get("notes") or [])
    is_nameless, is_own = "names no nodes" in notes, answer["kinds"][0]["name"] == "own"
    lacks = "when nodes were down" in notes and not is_nameless
    names, downtimes = "Names of the nodes of each job: without them", "when nodes were down (--downtimes)"
    return _select(
        (_is_unchecked(log), "Whether the log covers its window and when nodes were down: assess the scheduler's log."),
        (lacks, "When nodes were down or drained (--downtimes; sacctmgr -P show event): idle time is an upper bound."),
        (is_nameless, f"{names} lengths of idle stretches are a guess, and {downtimes} cannot be taken into account."),
        (not is_own, "How your own models scale, and what their checkpoints take: bftrainer tasks fit, then --tasks."),
        (prices.price_node_hour is None, "What a node-hour is worth to you (--price-node-hour)."),
        (prices.node_w is None, "A node's power (--node-power), for energy and its price (--price-kwh)."),
        (answer["gpus_per_node"] is None, "How many GPUs a node has (--gpus-per-node)."),
        (answer["offer_after_s"] == 0, "How soon nodes may be lent: --offer-after shows what waiting costs."),
    )


def is_node_log(path: Path) -> bool:
    """Whether a file is a node log rather than a scheduler's: by its form, or the columns of its CSV."""
    try:
        form = form_of(path)
        is_table = form is Form.CSV and {"time", "node", "idle"} <= {name.strip() for name in first_row(path)}
    except InputError:
        return False
    return is_table or form not in (Form.CSV, Form.TOML)
