"""The verdict of an assessment: what was recovered, with an interval, what it is worth, and what to make of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from bftrainer.campaigns.idle_time import DAY_S, HOUR_S
from bftrainer.errors import SettingsError
from bftrainer.report.glossary import format_value, join_names, limit_in_words, name_tasks
from bftrainer.report.ledger import find_limit
from bftrainer.report.metrics import estimate

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
            raise SettingsError(
                f"Expected --node-power to be no less than --idle-power, {self.idle_w:g} W, got {self.node_w:g} W."
            )


def evaluate_kind(
    entry: Mapping[str, Any], prices: MachinePrices, gpus: int | None, machine_node_s: float
) -> dict[str, Any]:
    """A kind's figures with what follows from them: checkpoints booked, interval, worth, energy.

    All but `mostly_empty_node_hours` is of the time when at least half of the machine is busy; shares are of the whole
    machine in the whole window.
    """
    assumed, ledger, machine_h = entry["assumed"], dict(entry["ledger"]), machine_node_s / HOUR_S
    saving = assumed["save_s"] / (assumed["save_s"] + assumed["checkpoint_interval_s"]) if "save_s" in assumed else 0.0
    useful = ledger["useful"]
    if useful is not None and useful > 0:
        ledger["useful"], ledger["saving"] = useful * (1 - saving), useful * saving
    useful_h, empty_h = (entry[f"{when}_node_s"] * (1 - saving) / HOUR_S for when in ("useful", "mostly_empty"))
    blocks_h = [node_s * (1 - saving) / HOUR_S for node_s in entry["blocks"]["node_s"]]
    half_h = half_width_of_sum(blocks_h)
    bounds_h = (None, None) if half_h is None else (useful_h - half_h, useful_h + half_h)
    per_hour_kwh = None
    if prices.node_w is not None and useful_h > 0 and useful_h + empty_h > 0:
        extra_w = (prices.node_w - (prices.idle_w or 0.0)) * prices.pue
        per_hour_kwh = extra_w / 1000.0 * (entry["used_node_s"] / HOUR_S) / (useful_h + empty_h)
    net = None
    if prices.price_node_hour is not None:
        net = prices.price_node_hour - (per_hour_kwh or 0.0) * (prices.price_kwh or 0.0)
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
        "gpu_hours": _multiply(gpus, useful_h),
        "energy_kwh": energy_kwh,
        "emissions_kg": _multiply(energy_kwh, _multiply(prices.carbon_gco2_per_kwh, 1e-3)),
        "net_value": _multiply(net, useful_h),
        "net_value_ci95": [_multiply(net, bound) for bound in bounds_h],
    }


def half_width_of_sum(blocks: Sequence[float]) -> float | None:
    """Half the width of the 95 % interval of a sum over stretches that are alike; None for fewer than two."""
    half = estimate(blocks).half_width if blocks else None
    return None if half is None else half * len(blocks)


def _multiply(one: float | None, two: float | None) -> float | None:
    """A product; None if a factor is unknown."""
    return None if one is None or two is None else one * two


@dataclass(frozen=True, slots=True)
class _Bar:
    """What a kind must reach: a share of the machine (`useful_share`), or a `net_value` where there is a price."""

    thresholds: Thresholds
    figure: str

    @property
    def has_price(self) -> bool:
        """Whether the net value decides."""
        return self.figure == "net_value"

    def is_passed(self, value: float) -> bool:
        """Whether a share or a net value is enough."""
        return value > self.thresholds.worth_value if self.has_price else value >= self.thresholds.worth_share

    def low(self, kind: Mapping[str, Any]) -> float:
        """Lower bound of a kind's share or net value, by which kinds are ranked; the mean without an interval."""
        bounds = kind[f"{self.figure}_ci95"]
        return float(kind[self.figure] if bounds[0] is None else min(bounds))


def verdict_of(answer: Mapping[str, Any], thresholds: Thresholds, prices: MachinePrices) -> dict[str, Any]:
    """Verdict, its reason, recommended settings, caveats, and what to measure next.

    The verdict is ``worth it``, ``only for some``, ``not worth it`` or ``none``, its colour ``green``, ``amber``,
    ``red`` or ``gray``; `about` is the kind of tasks that it is about, `mostly_empty` a sentence about the time that is
    not counted, or None.
    """
    kinds, bar = answer["kinds"], _Bar(thresholds, "useful_share" if prices.price_node_hour is None else "net_value")
    passed = [kind for kind in kinds if bar.is_passed(bar.low(kind))]
    # If none is worth it, one with a wide interval says more than one that recovers nothing for certain.
    best = max(kinds, key=bar.low if passed else lambda kind: float(kind[bar.figure]))
    doubts, next_texts = _why_none(answer, thresholds), _list_next(answer, prices)
    empty, mostly_empty, recommended = answer["idle"]["mostly_empty"], None, None
    of_idle = f"{format_value(empty['share'], 'share')} of the idle time"
    if empty["node_hours"]:
        more_h = f"{'' if doubts else 'another '}{max(best['mostly_empty_node_hours'], 0.0):,.0f} node-hours"
        when = f"while the machine stood mostly empty (that time holds {of_idle})"
        mostly_empty = f"Such tasks would recover {more_h} {when}; they are not counted."
    if doubts:
        verdict, colour, sentence = "none", "gray", f"No verdict: {'; '.join(doubts)}."
        by_watch = answer["log"]["provenance"].get("format") == "watch"
        is_of_clusters = all(_CLUSTERS in doubt for doubt in doubts)
        next_texts.insert(0, _BY_CLUSTER if is_of_clusters else _WATCH if by_watch else _EXPORT)
    elif passed:
        is_all = len(passed) == len(kinds)
        verdict, colour = "worth it" if is_all else "only for some", "green" if is_all else "amber"
        names = "" if is_all else f" only for {' and '.join(name_tasks(kind['name']) for kind in passed)}"
        if empty["share"] > MOST_EMPTY:
            colour, names = "amber", f"{names}, with care because the machine stood mostly empty in {of_idle}"
        sentence = f"Worth it{names}: {_describe_amounts(best, answer, bar)}."
        recommended = {"kind": best["name"], **{name: best["settings"][name] for name in RECOMMENDED}}
    else:
        more, mean = best[f"mostly_empty_{'value' if bar.has_price else 'share'}"], best[bar.figure]
        would_pass, is_open = more > 0 and bar.is_passed(mean + more), bar.is_passed(mean)
        verdict, colour = "not worth it", "amber" if would_pass else "red"
        lead = "Not shown to be worth it" if is_open or would_pass else "Not worth it"
        sentence = f"{lead}, because {_why_not(best, answer, bar)}."
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
        "worth_for": [] if doubts else [kind["name"] for kind in passed],
        "caveats": _list_caveats(answer, best, prices),
        "next": next_texts,
    }


def _why_none(answer: Mapping[str, Any], thresholds: Thresholds) -> list[str]:
    """Reasons for which there can be no verdict."""
    log, doubts = answer["log"], []
    coverage = log["provenance"].get("coverage")
    if isinstance(coverage, Mapping):
        untrusted = (coverage.get("untrusted_s") or 0.0) / log["window_s"]
        missing = coverage.get("missing_busy_share")
        if coverage.get("trusted") is None:
            doubts.append(f"nothing of the log can be trusted, as {coverage.get('reason')}")
        elif untrusted > MOST_DOUBT:
            doubts.append(f"{100 * untrusted:.3g} % of the window is not covered by the log")
        if missing is not None and missing > MOST_DOUBT:
            doubts.append(f"about {100 * missing:.2g} % of the busy node-time is missing, and looks idle")
        if (runaway := coverage.get("runaway_share") or 0.0) > MOST_DOUBT:
            doubts.append(
                f"{coverage['runaways']:,} runs without an end, whose nodes ran other jobs since (runaways), hold "
                f"{100 * runaway:.3g} % of the busy node-time"
            )
        if lost := coverage.get("lost_days"):
            doubts.append(
                f"records of about {lost:.3g} days within the window are missing, and what ran then looks idle"
            )
    if log["window_s"] < thresholds.least_window_s:
        least, days = thresholds.least_window_s / DAY_S, f"{log['window_s'] / DAY_S:.3g}"
        are = "day is" if days == "1" else "days are"
        doubts.append(f"{days} {are} too few to tell of others; {least:g} are the least (--least-window)")
    elif not answer["kinds"][0]["blocks"]["node_s"]:
        doubts.append("the window has fewer than four days to compare")
    if clusters := next((note for note in log["provenance"].get("notes") or [] if _CLUSTERS in note), None):
        doubts.append(f"{clusters.partition(':')[0]}, and no task runs on nodes of both: assess each with --cluster")
    return doubts


def _describe_amounts(kind: Mapping[str, Any], answer: Mapping[str, Any], bar: _Bar) -> str:
    """What a kind recovers, in words, and the bar that it takes."""
    days, (low, high) = answer["log"]["window_s"] / DAY_S, kind["useful_node_hours_ci95"]
    text = f"{name_tasks(kind['name'])} recover {kind['useful_node_hours']:,.0f} useful node-hours ({low:,.0f} to "
    text += f"{high:,.0f}, 95 %) in {days:,.0f} days, {format_value(kind['useful_share'], 'share')} of the machine's"
    if kind["gpu_hours"] is not None:
        text += f" ({kind['gpu_hours']:,.0f} GPU-hours)"
    if bar.has_price:
        low, high = sorted(kind["net_value_ci95"])
        worth = f"{kind['net_value']:,.0f} net ({low:,.0f} to {high:,.0f}"
        return f"{text}, worth {worth}; the bar is {bar.thresholds.worth_value:,.0f})"
    least, need = (format_value(share, "share") for share in (kind["useful_share_ci95"][0], bar.thresholds.worth_share))
    return f"{text} ({least} at least; the bar is {need})"


def _why_not(best: Mapping[str, Any], answer: Mapping[str, Any], bar: _Bar) -> str:
    """Why even the best kind is not worth it."""
    name, need = name_tasks(best["name"]), format_value(bar.thresholds.worth_share, "share")
    if bar.has_price:
        low, high = sorted(best["net_value_ci95"])
        worth = f"even {name} are worth {best['net_value']:,.0f} net ({low:,.0f} to {high:,.0f})"
        return f"{worth}, and the lower end does not exceed {bar.thresholds.worth_value:,.0f}"
    empty, useful = answer["idle"]["mostly_empty"]["share"], format_value(best["useful_share"], "share")
    idle_share = answer["idle"]["share"] * (1.0 - empty)
    idle, when = format_value(idle_share, "share"), " while at least half of it is busy" if empty else ""
    if idle_share < bar.thresholds.worth_share:
        return f"only {idle} of the machine is idle{when}, less than the bar of {need}"
    if bar.is_passed(best[bar.figure]):
        unit = best["blocks"]["unit"]
        return f"{name} recover {useful} of the machine, but {unit}s differ so much that it may be less than {need}"
    limit = limit_in_words({"ledger": best["ledger"], "limited_by": find_limit(best["ledger"])})
    return f"of {idle} idle{when}, {name} recover {useful} of the machine, less than {need}: {limit}"


def _list_caveats(answer: Mapping[str, Any], best: Mapping[str, Any], prices: MachinePrices) -> list[str]:
    """What was assumed, trimmed, starved or not checked, one line each."""
    log, provenance, blocks = answer["log"], answer["log"]["provenance"], best["blocks"]
    # What was not idle stands on the page with its causes.
    notes = [note for note in provenance.get("notes") or [] if note and not note.startswith("node-hours that were not")]
    part = (log["quality"] or {}).get("unit", "node")
    texts = {
        "Node-hours, prices, power and the assumed tasks are of such a node, not of one of the machine's.": any(
            note.startswith("a node here is") for note in notes
        ),
        f"A node here is one {part} (--unit); node-hours, prices, power and tasks are of these.": part != "node",
        "A task may spread over nodes of all partitions, as if they were alike, GPUs too: --partition assesses one.": (
            len(answer["idle"]["by_partition"]) > 1
        ),
        "Coverage was not checked: the node log does not say how it was recorded.": _is_unchecked(log),
        f"Intervals are of 95 % over {len(blocks['node_s'])} {blocks['unit']}s (Student's t), as if {blocks['unit']}s "
        "were independent: they say nothing of years that differ."
        + " Days are more alike than weeks."
        * (blocks["unit"] == "day"): best["useful_share_ci95"][0] is not None,
        "Not counted is the time while more than half of the nodes are idle: maintenance, outages, or records that are "
        "missing? You know whether those nodes may be lent. Shares that are lost are of all time.": (
            answer["idle"]["mostly_empty"]["node_hours"] > 0
        ),
    }
    return [
        *(f"{note[0].upper()}{note[1:]}" for note in notes),
        *(text for text, holds in texts.items() if holds),
        *_caveats_of_tasks(answer["kinds"], best["name"], prices),
        "Decided by dp, whose optima are worth the same as CBC's; starts cost in full (--startup-cost full); nodes are "
        "given back at once when the scheduler wants them.",
    ]


def _is_unchecked(log: Mapping[str, Any]) -> bool:
    """Whether a log is a node log that does not say what it covers."""
    provenance = log["provenance"]
    return log["quality"] is None and provenance.get("coverage") is None and provenance.get("format") != "watch"


def _caveats_of_tasks(kinds: Sequence[Mapping[str, Any]], best: str, prices: MachinePrices) -> list[str]:
    """What figures of kinds and their worth rest on."""
    texts = []
    for kind in kinds:
        unit, node_s = kind["blocks"]["unit"], kind["blocks"]["node_s"]
        if losing := sum(one < 0 for one in node_s):
            texts.append(
                f"{kind['name']}: useful node-hours are below 0 in {losing} of {len(node_s)} {unit}s, in which starts, "
                "and work that was lost when nodes were taken, cost more than was done."
            )
    if best == "own":
        texts.append(
            "The tasks were repeated, without dates, until they saturate the pool: your users may submit fewer. Saving "
            "checkpoints takes no time, but for what their costs of change include."
        )
    else:
        texts.append("Tasks are assumed: scaling, memory, checkpoints and start of each kind are listed with it.")
    for kind in kinds:
        limit = limit_in_words(kind)
        if limit is not None and kind["limited_by"] != "pool":
            texts.append(f"{kind['name']}: {limit}.")
        if kind["settings"]["verdict"] == "overfit":
            texts.append(f"{kind['name']}: {kind['settings']['why']}")
    values = {"--node-power": prices.node_w, "--price-kwh": prices.price_kwh}
    lacking = [option for option, value in values.items() if value is None]
    if prices.price_node_hour is not None and lacking:
        are = "are" if len(lacking) > 1 else "is"
        texts.append(f"The net value is without energy: {join_names(lacking)} {are} not given.")
    if prices.node_w is not None and prices.idle_w is None:
        texts.append("Energy counts idle nodes as drawing nothing: --idle-power is not given.")
    return texts


def _list_next(answer: Mapping[str, Any], prices: MachinePrices) -> list[str]:
    """What to measure next, what matters most first."""
    log = answer["log"]
    notes = " ".join(log["provenance"].get("notes") or [])
    texts = {
        "Whether the log covers its window, and when nodes were down: assess the scheduler's log itself.": (
            _is_unchecked(log)
        ),
        "When nodes were down or drained (--downtimes; sacctmgr -P show event): idle time is an upper bound.": (
            "when nodes were down" in notes and "names no nodes" not in notes
        ),
        "Names of the nodes of each job: without them lengths of idle stretches are a guess, and when nodes were down "
        "(--downtimes) cannot be taken into account.": "names no nodes" in notes,
        "How your own models scale, and what their checkpoints take: bftrainer tasks fit, then --tasks.": (
            answer["kinds"][0]["name"] != "own"
        ),
        "What a node-hour is worth to you (--price-node-hour).": prices.price_node_hour is None,
        "A node's power (--node-power), for energy and its price (--price-kwh).": prices.node_w is None,
        "How many GPUs a node has (--gpus-per-node).": answer["gpus_per_node"] is None,
        "How soon your scheduler may lend a node: --offer-after shows what waiting costs.": answer["offer_after_s"]
        == 0,
    }
    return [text for text, holds in texts.items() if holds]
