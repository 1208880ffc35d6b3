"""Figures of summary.json, recomputed from the books and the tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bftrainer.audit.accounts import Interval
from bftrainer.audit.books import Books
from bftrainer.audit.input_files import LEARNED, NS, Series
from bftrainer.audit.parts import ROUNDING, Part
from bftrainer.audit.recorded_run import SCHEMA, RecordedRun

J_PER_KWH = 3.6e6
CLOCK = "wall-clock times cannot be recomputed"
DEDICATED = "needs replays on constant pools, whose decisions are not recorded"
SIZES = "the model that the solver got is not recorded, only its size"
LEARNER = "the learner is not asked again; decisions are judged by what they record of its beliefs"
UNKNOWN = "not known to this audit"
_ABSENT = object()
# Keys that other parts use.
_READ = frozenset(("settings", "inputs"))
# Keys that nothing in the record determines, and why.
_UNCHECKED = {
    **dict.fromkeys(("load_s", "replay_s", "baseline_s"), CLOCK),
    **dict.fromkeys(("command", "versions", "engine"), "only says how the run was made"),
    **dict.fromkeys(("node_log_notes", "node_log_zone"), "says how the node log was made"),
    "failures": "reasons in words; tasks_failed counts them",
    "bounds": "rests on other replays of the same inputs, which are not kept",
    **dict.fromkeys(("efficiency", "efficiency_horizon_s", "efficiency_eq_nodes", "ideal_work"), DEDICATED),
    **dict.fromkeys(("loss_variability_share", "loss_horizon_share"), DEDICATED),
    **dict.fromkeys(("learned_tasks", "learned_probes", "learned_error", "learned_error_used"), LEARNER),
    **dict.fromkeys(("ledger", "limited_by"), "attributes idle node-time by what was wanted, which is not booked here"),
}
# Figures that follow from the work that tasks did.
_OF_WORK = frozenset(
    (
        *("work_done", "rescale_loss_work", "rescale_loss_share", "preemption_loss_work", "preemption_loss_share"),
        *("saving_loss_work", "saving_loss_share", "return_on_investment"),
    )
)
_TWICE = ("seed", "solver", "objective", "forward_time_s", "max_tasks")
# Settings that the audit goes by.
_USED = frozenset(
    (
        *("first_node", "node_count", "skip_events", "since", "until_s", "max_events", "decide_on", "initial"),
        *("startup_cost", "objective", "solver", "fallback", "forward_time_s", "mip_gap", "max_tasks", "seed"),
        *("strict_published", "baseline", "large_idle", "scaling", "idle_power_w", "pue", "power_options"),
        *("power_cap", "carbon", "offer_after_s", "policy", "power_policy", "compat"),
    )
)
_HOW = dict.fromkeys(
    ("time_limit_s", "effort", "threads", "prune"), "says how decisions are found, not what they are worth"
)
_HOW["profile_noise"] = LEARNER


def check_figures(record: RecordedRun, books: Books, carbon: Series | None) -> list[Part]:
    """Check all keys of the summary: those that follow from the books, and others."""
    part = Part("summary.json adds up")
    if "assumed_scaling" in record.summary:
        law, assumed = record.settings.get("scaling"), [each for each in books.accounts.values() if each.task.assumed]
        right = (law in (None, LEARNED)) == (not assumed)
        part.expect(right, "settings.scaling: {} recorded, {} tasks without their own", law, len(assumed))
    rest = Part("what else the run wrote")
    found = _all(record, books, carbon)
    scale = sum(account.gross for account in books.accounts.values())
    if isinstance(record.summary.get("assumed_scaling"), dict):
        rest.leave_out("summary.json assumed_scaling: its note in words, and whether its law was asked for")
    absent = []
    for name, figure in _flat(found).items():
        recorded = _at(record.summary, name)
        if recorded is _ABSENT:
            absent.append(name)
            continue
        slack = ROUNDING * scale if name.rpartition(".")[2].endswith(("_work", "work_done")) else 0.0
        part.same_unless(books.settings.live and name.rpartition(".")[2] in _OF_WORK, name, recorded, figure, slack)
    if books.settings.live:
        done = math.fsum(row["work_done"] for row in record.tasks)
        part.same("work_done of all tasks", record.summary.get("work_done"), done, ROUNDING * done)
    left = {name: _UNCHECKED.get(name, UNKNOWN) for name in sorted(record.summary.keys() - found.keys() - _READ)}
    left |= {f"settings.{name}": _HOW.get(name, UNKNOWN) for name in sorted(record.settings.keys() - _USED)}
    for why in dict.fromkeys(left.values()):
        names = [name for name, reason in left.items() if reason == why]
        rest.leave_out(f"summary.json {', '.join(names)}: {why}", len(names))
    if absent:
        rest.leave_out(f"summary.json {', '.join(absent)}: not in it", len(absent))
    if record.decisions:
        rest.leave_out(f"decisions.parquet, columns model_rows, model_columns: {SIZES}", 2)
    for name in record.unknown:
        rest.leave_out(f"{name}: {UNKNOWN}")
    return [part, rest]


def _flat(found: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Figures by keys with dots; tables of counts stay whole."""
    flat: dict[str, Any] = {}
    for name, value in found.items():
        nested = isinstance(value, dict) and name in ("below_large_idle", "solvers")
        nested = nested or before.startswith("solvers.")
        flat |= _flat(value, f"{before}{name}.") if nested and isinstance(value, dict) else {f"{before}{name}": value}
    return flat


def _at(summary: Mapping[str, Any], name: str) -> Any:
    value: Any = summary
    for key in name.split("."):
        value = value.get(key, _ABSENT) if isinstance(value, dict) else _ABSENT
    return value


def _all(record: RecordedRun, books: Books, carbon: Series | None) -> dict[str, Any]:
    """Every figure that follows from the record."""
    intervals, summary = books.time.intervals, record.summary
    pool = _pool(intervals)
    window_s = (books.settings.end_ns - books.settings.start_ns) / NS
    solve_s = [row["solve_s"] for row in record.decisions]
    clocks = [summary[name] for name in ("load_s", "replay_s", "baseline_s") if name in summary]
    wall_s = math.fsum(clocks) if len(clocks) == 3 else summary.get("wall_s")
    found = {
        "schema": SCHEMA,
        **{name: record.settings.get(name) for name in _TWICE},
        "end_reason": _end_reason(record, books),
        "window_start": summary.get("window_start"),
        "window_end": summary.get("window_end"),
        "window_s": window_s,
        "nodes_total": len(books.log.nodes),
        "events": len(record.steps),
        **pool,
        **_tasks(record, pool["used_node_s"]),
        "assumed_scaling": _assumed(record, books),
        **_decisions(record),
        "wall_s": wall_s,
        "solve_wall_share": math.fsum(solve_s) / wall_s if wall_s else None,
        "below_large_idle": _below(record.settings.get("large_idle"), intervals),
        **(_power(record, books, carbon, window_s) if record.power is not None else {}),
        **(_tuned(books) if record.attempts is not None else {}),
    }
    compares = bool(record.settings.get("baseline")) and summary.get("end_reason") != "interrupted"
    if not compares:
        found |= {name: None for name, why in _UNCHECKED.items() if why == DEDICATED}
    # A replay that ended in time may be cut short where it is compared with dedicated nodes.
    cut = compares and summary.get("efficiency_horizon_s") is None
    cut |= summary.get("bounds", {}) is None
    return found | {"partial": cut or summary.get("end_reason") == "interrupted"}


def _end_reason(record: RecordedRun, books: Books) -> str | None:
    """The recorded end reason if it is plausible, else the expected one."""
    said, end, settings = record.summary.get("end_reason"), books.settings.end_ns, record.settings
    stop_s = settings.get("until_s")
    until = math.inf if stop_s is None else books.settings.start_ns + round(stop_s * NS)
    limit = settings.get("max_events")
    if end > until or (limit is not None and len(record.steps) > limit):
        return "a limit that it went beyond"
    through = not books.queue.waiting and not books.queue.active
    borne_out = {
        "finished": through,
        "window_end": end == books.log.end_ns and until >= end,
        "until": end == until,
        "max_events": len(record.steps) == limit,
        "interrupted": True,
    }
    if borne_out.get(str(said), False):
        return str(said)
    return next((reason for reason, holds in borne_out.items() if holds and reason != "interrupted"), None)


def _pool(intervals: Sequence[Interval]) -> dict[str, Any]:
    """Use of the pool and losses over some intervals."""
    length = math.fsum(each.length_s for each in intervals)
    idle = math.fsum(each.idle * each.length_s for each in intervals)
    used = math.fsum(each.used * each.length_s for each in intervals)
    gross, rescale, preemption, saving = (
        math.fsum(getattr(each, name) for each in intervals) for name in ("gross", "rescale", "preemption", "saving")
    )
    promised = math.fsum(each.rate * each.length_s for each in intervals) - rescale
    net = gross - rescale - preemption - saving
    return {
        "idle_node_s": idle,
        "eq_nodes": _ratio(idle, length),
        "used_node_s": used,
        "occupancy": _ratio(used, idle),
        "work_done": net,
        "rescale_loss_work": rescale,
        "rescale_loss_share": _ratio(rescale, gross),
        "preemption_loss_work": preemption,
        "preemption_loss_share": _ratio(preemption, gross),
        **({"saving_loss_work": saving, "saving_loss_share": _ratio(saving, gross)} if saving else {}),
        "return_on_investment": _ratio(net, promised),
    }


def _below(limit: Any, intervals: Sequence[Interval]) -> dict[str, Any]:
    """The same over the intervals with few idle nodes."""
    if not isinstance(limit, int):
        return {}
    some = [each for each in intervals if each.idle < limit]
    figures, every = _pool(some), _pool(intervals)
    length = math.fsum(each.length_s for each in intervals)
    return {
        "large_idle": limit,
        "time_share": _ratio(math.fsum(each.length_s for each in some), length),
        "idle_node_s_share": _ratio(figures["idle_node_s"], every["idle_node_s"]),
        **figures,
    }


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _tasks(record: RecordedRun, node_s: float) -> dict[str, Any]:
    """Completion, turnaround and waiting, from the rows of tasks that the books have confirmed."""
    rows = record.tasks
    submitted = [row["submitted"] / NS for row in rows]
    done = [(row["submitted"] / NS, row["completed"] / NS) for row in rows if row["completed"] is not None]
    turnaround = np.array([end - begin for begin, end in done])
    waits = [(row["started"] - row["submitted"]) / NS for row in rows if row["started"] is not None]
    preemptions, rescales = (sum(row[name] for row in rows) for name in ("preemptions", "rescales"))
    return {
        "tasks_total": len(rows),
        "tasks_started": len(waits),
        "tasks_completed": len(done),
        "makespan_s": max(end for _, end in done) - min(submitted) if done else None,
        "turnaround_mean_s": float(turnaround.mean()) if done else None,
        "turnaround_p90_s": float(np.percentile(turnaround, 90)) if done else None,
        "wait_mean_s": float(np.mean(waits)) if waits else None,
        "preemptions": preemptions,
        "rescales": rescales,
        "preemptions_per_node_hour": _ratio(preemptions * 3600.0, node_s),
        "rescales_per_node_hour": _ratio(rescales * 3600.0, node_s),
    }


def _assumed(record: RecordedRun, books: Books) -> dict[str, Any] | None:
    """What was assumed of tasks without a scaling of their own, and the figures that may rest on it."""
    tasks = [account.task for account in books.accounts.values() if account.task.assumed]
    if not tasks:
        return None
    recorded = record.summary.get("assumed_scaling")
    said = recorded if isinstance(recorded, dict) else {}
    return {
        **said,
        "model": record.settings.get("scaling"),
        "work_per_s_on_one_node": float(tasks[0].rate[1]),
        "tasks": len(tasks),
        "figures": [name for name in said.get("figures", ()) if record.summary.get(name) is not None],
    }


def _decisions(record: RecordedRun) -> dict[str, Any]:
    """Counts and times of the table of decisions."""
    rows = record.decisions
    held = Counter(row["held"] for row in rows)
    gaps = [row["gap"] for row in rows if row["gap"] is not None and row["held"] != "kept"]
    by_solver: dict[str, list[float]] = {}
    for row in rows:
        by_solver.setdefault(row["solver"], []).append(row["solve_s"])
    found = {
        "decisions": len(rows),
        **{f"decisions_{name}": held[name] for name in ("optimal", "incumbent", "kept")},
        "gap_max": max(gaps) if gaps else None,
        **_times([row["solve_s"] for row in rows]),
        "solvers": {name: {"decisions": len(times), **_times(times)} for name, times in sorted(by_solver.items())},
    }
    fallback = record.settings.get("fallback") or ""
    if "decisions_fallback" in record.summary and ":" not in fallback:  # an object's name in the table is another one
        found["decisions_fallback"] = len(by_solver.get(fallback, ())) if fallback else None
    if rows and isinstance(record.summary.get("decided_by"), dict):
        counted = Counter(row["decided_by"] for row in rows)
        # All ways to settle a decision may be listed, also those that none was settled by.
        found["decided_by"] = {name: counted[name] for name in {*counted, *record.summary["decided_by"]}}
    if rows:
        asked_s = [row["backend_s"] for row in rows if row["backend_s"] is not None]
        found |= {"backend_asked": len(asked_s), "backend_s": math.fsum(asked_s)}
    return found


def _times(solve_s: Sequence[float]) -> dict[str, float | None]:
    if not solve_s:
        return dict.fromkeys(("solve_s_median", "solve_s_p95", "solve_s_max"))
    names = ("solve_s_median", "solve_s_p95", "solve_s_max")
    return dict(zip(names, np.percentile(solve_s, [50, 95, 100]).tolist(), strict=True))


def _power(record: RecordedRun, books: Books, carbon: Series | None, window_s: float) -> dict[str, Any]:
    """Energy, power and emissions, from what was worked out to be drawn at each moment."""
    pue = books.settings.pue
    pieces = [(*piece, each.idle_w) for each in books.time.intervals for piece in each.pieces()]
    tasks_j = math.fsum(watts * (end - begin) for begin, end, watts, _ in pieces)
    idle_j = math.fsum(watts * (end - begin) for begin, end, _, watts in pieces)
    grams = None
    if carbon is not None:
        grams = math.fsum(
            pue * (drawn + idle) * (two - one) / J_PER_KWH * intensity
            for begin, end, drawn, idle in pieces
            for one, two, intensity in carbon.pieces(begin, end)
        )
    return {
        "energy_j": tasks_j,
        "idle_energy_j": idle_j,
        "site_energy_j": pue * (tasks_j + idle_j),
        "average_power_w": (tasks_j + idle_j) / window_s if window_s else None,
        "peak_power_w": max((drawn + idle for begin, end, drawn, idle in pieces if end > begin), default=0.0),
        "pue": record.settings.get("pue"),
        "idle_node_w": record.settings.get("idle_power_w"),
        "emissions_gco2": grams,
    }


def _tuned(books: Books) -> dict[str, Any]:
    """What tuned tasks ended with."""
    tuned = [account for account in books.accounts.values() if account.task.tuned is not None]
    sizes = Counter(attempt.batch_size for attempt in books.attempts)
    limits = Counter(attempt.power_limit_w for attempt in books.attempts)
    return {
        "tasks_reached": sum(account.completed_ns is not None for account in tuned),
        "tasks_failed": sum(account.failed for account in tuned),
        "attempts": sum(account.attempts for account in tuned),
        "train_s": math.fsum(account.train_s for account in tuned),
        "batch_sizes": {str(size): sizes[size] for size in sizes},
        "power_limits_w": {str(limit): limits[limit] for limit in limits},
    }
