"""The verdict of an assessment: what was recovered, with an interval, what it is worth, and what to make of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from bftrainer.errors import SettingsError
from bftrainer.report.glossary import format_value
from bftrainer.report.intervals import estimate
from bftrainer.report.ledger import limited_by
from bftrainer.report.words import limit_in_words

HOUR_S, DAY_S = 3600.0, 86_400.0
MOST_DOUBT = 0.01
"""Largest share of the window that may be untrusted, and of its busy time that may be missing, for a verdict."""
MOST_EMPTY = 0.2
"""Largest share of the idle time while a machine is mostly empty for a verdict that is green."""
_RECOMMENDED = ("forward_time_s", "max_tasks")
_EXPORT = (
    "Export all jobs that ran in four weeks or more, also those that began before or still run (sacct -a -S ... "
    "-E ... without a choice of states; all daily files of PBS): see the page of your scheduler's import."
)
_WATCH = "Go on watching until there are four weeks: the same bftrainer watch goes on in the same file."
_MOST = 1e12


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What is worth it.

    Parameters
    ----------
    worth_share : float
        Least lower bound of the useful node-hours, as a share of the machine's.
    worth_value : float
        What the lower bound of the net value must exceed, where there is a price; it then decides alone.
    least_window_s : float
        Shorter logs get no verdict.
    """

    worth_share: float = 0.01
    worth_value: float = 0.0
    least_window_s: float = 7 * DAY_S

    def __post_init__(self) -> None:
        if not 0 < self.worth_share <= 1:
            raise SettingsError(f"Expected 0 < worth share <= 1, got {self.worth_share}.")
        if not math.isfinite(self.worth_value):
            raise SettingsError(f"Expected a finite worth value, got {self.worth_value}.")
        if not 0 < self.least_window_s < math.inf:
            raise SettingsError(f"Expected a least window above 0 s, got {self.least_window_s}.")


@dataclass(frozen=True, slots=True)
class MachinePrices:
    """Prices and power, in one currency of the site; None where unknown.

    Parameters
    ----------
    price_node_hour : float, optional
        Worth of a useful node-hour.
    price_kwh : float, optional
        Price of a kilowatt-hour.
    node_w, idle_w : float, optional
        What a node draws that trains, and one that does nothing, in watts.
    pue : float
        Watts at the meter for each watt of the nodes.
    carbon_gco2_per_kwh : float, optional
        Grams of CO2 for a kilowatt-hour.
    """

    price_node_hour: float | None = None
    price_kwh: float | None = None
    node_w: float | None = None
    idle_w: float | None = None
    pue: float = 1.0
    carbon_gco2_per_kwh: float | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            least = 1 if each.name == "pue" else 0
            if value is not None and not least <= value <= _MOST:
                raise SettingsError(f"Expected {each.name.replace('_', ' ')} of {least} to {_MOST:g}, got {value:g}.")
        if self.node_w is not None and self.node_w < (self.idle_w or 0.0):
            raise SettingsError(f"Expected a node that trains to draw no less than an idle one, got {self.node_w} W.")


def judged_kind(
    entry: Mapping[str, Any], prices: MachinePrices, gpus: int | None, machine_node_s: float
) -> dict[str, Any]:
    """A kind's figures with what follows from them: checkpoints booked, interval, worth, energy.

    All but `mostly_empty_node_hours` is of the time when at least half of the machine is busy; shares are of the whole
    machine in the whole window.

    Parameters
    ----------
    entry : mapping
    prices : MachinePrices
    gpus : int or None
    machine_node_s : float
        Node-seconds of the machine in the window.
    """
    assumed, ledger = entry["assumed"], dict(entry["ledger"])
    saving = 0.0
    if "save_s" in assumed:
        saving = assumed["save_s"] / (assumed["save_s"] + assumed["checkpoint_interval_s"])
    useful = ledger["useful"]
    if useful is not None and useful > 0:
        ledger["useful"], ledger["saving"] = useful * (1 - saving), useful * saving
    useful_h, empty_h = (entry[f"{when}_node_s"] * (1 - saving) / HOUR_S for when in ("useful", "mostly_empty"))
    weekly_h = [node_s * (1 - saving) / HOUR_S for node_s in entry["blocks"]["node_s"]]
    half_h = estimate(weekly_h).half_width if weekly_h else None
    bounds = [None if half_h is None else useful_h + sign * half_h * len(weekly_h) for sign in (-1, 1)]
    per_hour_kwh = None
    if prices.node_w is not None and useful_h > 0 and useful_h + empty_h > 0:
        extra_w = (prices.node_w - (prices.idle_w or 0.0)) * prices.pue
        per_hour_kwh = extra_w / 1000.0 * (entry["used_node_s"] / HOUR_S) / (useful_h + empty_h)
    net = None
    if prices.price_node_hour is not None:
        net = prices.price_node_hour - (per_hour_kwh or 0.0) * (prices.price_kwh or 0.0)
    energy_kwh = None if per_hour_kwh is None else per_hour_kwh * useful_h
    emissions_kg = None
    if energy_kwh is not None and prices.carbon_gco2_per_kwh is not None:
        emissions_kg = energy_kwh * prices.carbon_gco2_per_kwh / 1000.0
    machine_h = machine_node_s / HOUR_S
    return dict(entry) | {
        "ledger": ledger,
        "limited_by": limited_by(ledger),
        "useful_node_hours": useful_h,
        "useful_node_hours_ci95": bounds,
        "useful_share": useful_h / machine_h,
        "useful_share_ci95": [None if bound is None else bound / machine_h for bound in bounds],
        "mostly_empty_node_hours": empty_h,
        "mostly_empty_share": empty_h / machine_h,
        "mostly_empty_value": None if net is None else empty_h * net,
        "gpu_hours": None if gpus is None else useful_h * gpus,
        "energy_kwh": energy_kwh,
        "emissions_kg": emissions_kg,
        "net_value": None if net is None else useful_h * net,
        "net_value_ci95": [None if net is None or bound is None else bound * net for bound in bounds],
    }


def verdict_of(found: Mapping[str, Any], thresholds: Thresholds, prices: MachinePrices) -> dict[str, Any]:
    """Verdict, its reason, recommended settings, caveats, and what to measure next.

    Returns
    -------
    dict
        `verdict` is ``worth it``, ``only for some``, ``not worth it`` or ``none``; `colour` ``green``, ``amber``,
        ``red`` or ``gray``; `about`, the kind of tasks that it is about; `mostly_empty`, a sentence about the time that
        is not counted, or None.
    """
    kinds = found["kinds"]
    passed = [kind for kind in kinds if _passes(_margin(kind, prices), thresholds, prices)]
    # If none is worth it, one with a wide interval says more than one that recovers nothing for certain.
    best = max(kinds, key=lambda kind: (_margin if passed else _mean)(kind, prices))
    doubts = _why_none(found, thresholds)
    recommended = None
    if doubts:
        verdict, lead, text = "none", "No verdict", "; ".join(doubts)
    elif passed:
        verdict = "worth it" if len(passed) == len(kinds) else "only for some"
        names = " and ".join(called(kind["name"]) for kind in passed)
        lead = "Worth it" if verdict == "worth it" or kinds[0]["name"] == "own" else f"Worth it only for {names}"
        lead += "" if found["idle"]["mostly_empty"]["share"] <= MOST_EMPTY else ", with care"
        text = _amounts(best, found, thresholds, prices)
        recommended = {"kind": best["name"], **{name: best["settings"][name] for name in _RECOMMENDED}}
    else:
        verdict = "not worth it"
        is_open = _is_open(best, thresholds, prices) or _would_pass(best, thresholds, prices)
        lead = "Not shown to be worth it" if is_open else "Not worth it"
        text = f"because {_reason(best, found, thresholds, prices)}"
    next_ = [*(text for text in (_export(doubts, found),) if text), *_next(found, prices)]
    if not doubts and not passed and _is_open(best, thresholds, prices):
        next_.insert(0, f"A longer log: {best['blocks']['unit']}s differ so much that this one cannot tell.")
    return {
        "verdict": verdict,
        "colour": _colour(verdict, found, _would_pass(best, thresholds, prices)),
        "sentence": f"{lead}{', ' if verdict == 'not worth it' else ': '}{text}.",
        "about": best["name"],
        "mostly_empty": _mostly_empty(best, found, bool(doubts)),
        "recommended": recommended,
        "worth_for": [] if doubts else [kind["name"] for kind in passed],
        "caveats": _caveats(found, best, prices),
        "next": next_,
    }


def _colour(verdict: str, found: Mapping[str, Any], would_pass: bool) -> str:
    """Colour of a verdict: amber where it holds for some only, or much of the idle time is not counted."""
    if verdict == "worth it":
        return "green" if found["idle"]["mostly_empty"]["share"] <= MOST_EMPTY else "amber"
    return {"only for some": "amber", "none": "gray"}.get(verdict, "amber" if would_pass else "red")


def _would_pass(kind: Mapping[str, Any], thresholds: Thresholds, prices: MachinePrices) -> bool:
    """Whether a kind would be worth it if time when the machine stands mostly empty counted."""
    more = kind["mostly_empty_share" if prices.price_node_hour is None else "mostly_empty_value"]
    return bool(more > 0) and _passes(_mean(kind, prices) + more, thresholds, prices)


def _mostly_empty(kind: Mapping[str, Any], found: Mapping[str, Any], is_doubted: bool) -> str | None:
    """What a kind recovers while the machine stands mostly empty, which the verdict does not count."""
    empty = found["idle"]["mostly_empty"]
    if not empty["node_hours"]:
        return None
    more = "" if is_doubted else "another "
    return (
        f"Such tasks would recover {more}{max(kind['mostly_empty_node_hours'], 0.0):,.0f} node-hours while the machine "
        f"stood mostly empty (that time holds {format_value(empty['share'], 'share')} of the idle time); they are not "
        "counted."
    )


def called(kind: str) -> str:
    """The tasks of a kind, in words."""
    return "your tasks" if kind == "own" else f"{kind} models"


def _margin(kind: Mapping[str, Any], prices: MachinePrices) -> float:
    """What kinds are ranked by: the lower bound if there is one, else the mean."""
    key = "useful_share" if prices.price_node_hour is None else "net_value"
    low = kind[f"{key}_ci95"][0]
    return float(kind[key] if low is None else min(kind[f"{key}_ci95"]))


def _is_open(kind: Mapping[str, Any], thresholds: Thresholds, prices: MachinePrices) -> bool:
    """Whether the mean would be enough, and only the interval is too wide."""
    return _passes(_mean(kind, prices), thresholds, prices)


def _mean(kind: Mapping[str, Any], prices: MachinePrices) -> float:
    return float(kind["useful_share" if prices.price_node_hour is None else "net_value"])


def _passes(value: float, thresholds: Thresholds, prices: MachinePrices) -> bool:
    return value >= thresholds.worth_share if prices.price_node_hour is None else value > thresholds.worth_value


def _why_none(found: Mapping[str, Any], thresholds: Thresholds) -> list[str]:
    """Reasons for which there can be no verdict."""
    log, doubts = found["log"], []
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
        least, days = thresholds.least_window_s / DAY_S, log["window_s"] / DAY_S
        are = "day is" if f"{days:.3g}" == "1" else "days are"
        doubts.append(f"{days:.3g} {are} too few to tell of others; {least:g} are the least (--least-window)")
    elif not found["kinds"][0]["blocks"]["node_s"]:
        doubts.append("the window has fewer than four days to compare")
    if clusters := next((note for note in log["provenance"].get("notes") or [] if _CLUSTERS in note), None):
        doubts.append(f"{clusters.partition(':')[0]}, and no task runs on nodes of both: assess each with --cluster")
    return doubts


def _amounts(kind: Mapping[str, Any], found: Mapping[str, Any], thresholds: Thresholds, prices: MachinePrices) -> str:
    """What a kind recovers, in words, and the bar that it takes."""
    days = found["log"]["window_s"] / DAY_S
    hours, (low, high) = kind["useful_node_hours"], kind["useful_node_hours_ci95"]
    share = format_value(kind["useful_share"], "share")
    text = f"{called(kind['name'])} recover {hours:,.0f} useful node-hours ({low:,.0f} to {high:,.0f}, 95 %)"
    text += f" in {days:,.0f} days, {share} of the machine's"
    if kind["gpu_hours"] is not None:
        text += f" ({kind['gpu_hours']:,.0f} GPU-hours)"
    if kind["net_value"] is not None:
        low, high = sorted(kind["net_value_ci95"])
        text += f", worth {kind['net_value']:,.0f} net ({low:,.0f} to {high:,.0f}"
        text += f"; the bar is {thresholds.worth_value:,.0f})"
    elif prices.price_node_hour is None:
        low = format_value(kind["useful_share_ci95"][0], "share")
        text += f" ({low} at least; the bar is {format_value(thresholds.worth_share, 'share')})"
    return text


def _reason(best: Mapping[str, Any], found: Mapping[str, Any], thresholds: Thresholds, prices: MachinePrices) -> str:
    """Why even the best kind is not worth it."""
    empty = found["idle"]["mostly_empty"]["share"]
    idle, useful = found["idle"]["share"] * (1.0 - empty), best["useful_share"]
    when = " while at least half of it is busy" if empty else ""
    if prices.price_node_hour is not None:
        low, high = sorted(best["net_value_ci95"])
        return (
            f"even {called(best['name'])} are worth {best['net_value']:,.0f} net ({low:,.0f} to {high:,.0f}), and the "
            f"lower end does not exceed {thresholds.worth_value:,.0f}"
        )
    need = format_value(thresholds.worth_share, "share")
    if idle < thresholds.worth_share:
        return f"only {format_value(idle, 'share')} of the machine is idle{when}, less than the bar of {need}"
    if useful >= thresholds.worth_share:
        unit = best["blocks"]["unit"]
        recovered = f"{called(best['name'])} recover {format_value(useful, 'share')} of the machine"
        return f"{recovered}, but {unit}s differ so much that it may be less than {need}"
    lost = {part: best["ledger"][part] or 0.0 for part in _LOST}
    part = max(lost, key=lambda name: lost[name])
    return (
        f"of {format_value(idle, 'share')} idle{when}, {called(best['name'])} recover {format_value(useful, 'share')} "
        f"of the machine, less than {need}: most is lost to {_LOST[part]} ({format_value(lost[part], 'share')} of the "
        "idle node-time)"
    )


_CLUSTERS = "the log is of "
_LOST = {
    "rescaling": "changes of the node count",
    "preemption": "work that goes with nodes that leave",
    "saving": "saving checkpoints",
    "below_best": "holes too small for the tasks' best rate",
    "not_offered": "waiting until nodes are offered",
    "capped": "the power cap",
    "admission": "too few tasks at once",
    "declined": "holes too short or too small for a start",
    "demand": "times with more idle nodes than tasks can use",
}


def _export(doubts: list[str], found: Mapping[str, Any]) -> str | None:
    if not doubts:
        return None
    if all(_CLUSTERS in doubt for doubt in doubts):
        return "Each cluster by itself: bftrainer assess with --cluster NAME."
    return _WATCH if found["log"]["provenance"].get("format") == "watch" else _EXPORT


def _caveats(found: Mapping[str, Any], best: Mapping[str, Any], prices: MachinePrices) -> list[str]:
    """What was assumed, trimmed, starved or not checked, one line each."""
    log, provenance = found["log"], found["log"]["provenance"]
    coverage = provenance.get("coverage")
    # What was not idle stands on the page with its causes.
    given = [note for note in provenance.get("notes") or [] if note and not note.startswith("node-hours that were not")]
    notes = [f"{note[0].upper()}{note[1:]}" for note in given]
    if any(note.startswith("a node here is") for note in given):
        notes.append("Node-hours, prices, power and the assumed tasks are of such a node, not of one of the machine's.")
    if log["quality"] is not None and log["quality"].get("unit", "node") != "node":
        notes.append(
            f"A node here is one {log['quality']['unit']} (--unit); node-hours, prices, power and tasks are of these."
        )
    if len(found["idle"]["by_partition"]) > 1:
        notes.append(
            "A task may spread over nodes of all partitions, as if they were alike, GPUs too: --partition assesses one."
        )
    if log["quality"] is None and coverage is None and provenance.get("format") != "watch":
        notes.append("Coverage was not checked: the node log does not say how it was recorded.")
    if best["useful_share_ci95"][0] is not None:
        unit, number = best["blocks"]["unit"], len(best["blocks"]["node_s"])
        notes.append(
            f"Intervals are of 95 % over {number} {unit}s (Student's t), as if {unit}s were independent: they say "
            "nothing of years that differ." + (" Days are more alike than weeks." if unit == "day" else "")
        )
    if found["idle"]["mostly_empty"]["node_hours"]:
        notes.append(
            "Not counted is the time while more than half of the nodes are idle: maintenance, outages, or records that "
            "are missing? You know whether those nodes may be lent. Shares that are lost are of all time."
        )
    for kind in found["kinds"]:
        unit, node_s = kind["blocks"]["unit"], kind["blocks"]["node_s"]
        if losing := sum(each < 0 for each in node_s):
            notes.append(
                f"{kind['name']}: useful node-hours are below 0 in {losing} of {len(node_s)} {unit}s, in which starts, "
                "and work that was lost when nodes were taken, cost more than was done."
            )
    if best["name"] == "own":
        notes.append(
            "The tasks were repeated, without dates, until they saturate the pool: your users may submit fewer. Saving "
            "checkpoints takes no time, but for what their costs of change include."
        )
    else:
        notes.append("Tasks are assumed: scaling, memory, checkpoints and start of each kind are listed with it.")
    for kind in found["kinds"]:
        limit = limit_in_words(kind)
        if limit is not None and kind["limited_by"] != "pool":
            notes.append(f"{kind['name']}: {limit}.")
        if kind["settings"]["verdict"] == "overfit":
            notes.append(f"{kind['name']}: {kind['settings']['why']}")
    if prices.price_node_hour is not None and (prices.node_w is None or prices.price_kwh is None):
        notes.append("The net value is without energy: --node-power and --price-kwh are not given.")
    if prices.node_w is not None and prices.idle_w is None:
        notes.append("Energy counts idle nodes as drawing nothing: --idle-power is not given.")
    notes.append(
        "Decided by dp, whose optima are worth the same as CBC's; starts cost in full (--startup-cost full); nodes are "
        "given back at once when the scheduler wants them."
    )
    return notes


def _next(found: Mapping[str, Any], prices: MachinePrices) -> list[str]:
    """What to measure next, what matters most first."""
    log, texts = found["log"], []
    provenance = log["provenance"]
    notes = " ".join(provenance.get("notes") or [])
    if log["quality"] is None and provenance.get("coverage") is None and provenance.get("format") != "watch":
        texts.append("Whether the log covers its window, and when nodes were down: assess the scheduler's log itself.")
    if "when nodes were down" in notes:
        texts.append(
            "When nodes were down or drained (--downtimes; sacctmgr -P show event): idle time is an upper bound."
        )
    if "names no nodes" in notes:
        texts.append("Names of the nodes of each job: lengths of idle stretches are a guess without them.")
    if found["kinds"][0]["name"] != "own":
        texts.append("How your own models scale, and what their checkpoints take: bftrainer tasks fit, then --tasks.")
    if prices.price_node_hour is None:
        texts.append("What a node-hour is worth to you (--price-node-hour), and a node's power (--node-power).")
    if found["gpus_per_node"] is None:
        texts.append("How many GPUs a node has (--gpus-per-node).")
    if found["offer_after_s"] == 0:
        texts.append("How soon your scheduler may lend a node: --offer-after shows what waiting costs.")
    return texts
