"""What grants, knowledge and more tasks at once are worth: other replays of the same tasks and nodes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bftrainer.campaigns.advice import find_length_s
from bftrainer.campaigns.verdict import half_width_of_sum
from bftrainer.errors import BftrainerError, SettingsError
from bftrainer.model.task import SAVING_FIELDS
from bftrainer.objectives import throughput
from bftrainer.report.glossary import format_value, name_tasks
from bftrainer.report.metrics import Intervals, ratio
from bftrainer.runs.run import RunResult, run_replay
from bftrainer.runs.run_inputs import Inputs, work_adds_up

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

    Returns
    -------
    dict
        Ready for JSON. `bounds`: of each way its `name`, its `work` until `time_s`, `against_named`, its change as a
        share of that of *named* (None if that did no lasting work), and `departure_share` and `rescale_share`, work
        lost to the end of the replay to departures and to decisions' own changes, as shares of all done. `time_s`: the
        earliest time at which one of them is done. `outstanding_share`: share of all work that *named* has left at
        `half_s`, half of the replayed part of the log. `notes`: why the figures may say little.

    Raises
    ------
    SettingsError
        If there is no notice, or tasks count work in different units.
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
        runs[name] = run_replay(inputs=_drop_costs(changed) if name == FREE else changed).recording
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


def _drop_costs(inputs: Inputs) -> Inputs:
    """The same inputs, whose tasks rescale for nothing, by curves that decisions know, for the most throughput."""
    nothing: dict[str, Any] = {"grow_cost_s": 0.0, "shrink_cost_s": 0.0} | dict.fromkeys(SAVING_FIELDS)
    free = tuple(replace(task, **nothing) for task in inputs.tasks)
    config, settings = replace(inputs.config, objective="throughput"), replace(inputs.settings, objective=throughput)
    return replace(inputs, config=config, tasks=free, learned=(), settings=settings)


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
