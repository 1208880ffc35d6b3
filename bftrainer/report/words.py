"""Sentences about a run, made of its summary: terminal, pages and notebooks say the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bftrainer.report.glossary import format_value, mark_assumed
from bftrainer.report.ledger import LIMITING
from solvers.problem import DecidedBy

Summary = Mapping[str, Any]
_LIMITS = {
    "rescaling": "growing and shrinking cost {} of the idle node-time; a larger -Tfwd changes less often",
    "preemption": "work lost as nodes were taken back cost {} of the idle node-time; --offer-after leaves out nodes "
    "that are idle only briefly",
    "saving": "checkpoints took {} of the idle node-time; tasks may save less often",
    "below_best": "{} of the idle node-time was held at counts at which a node does less than it could; a larger -maxJ "
    "spreads nodes over more tasks",
    "not_offered": "{} of the idle node-time was withheld; a smaller --offer-after offers more",
    "capped": "the power cap forbade {} of the idle node-time",
    "declined": "decisions left {} of the idle node-time free, for costs or minima; a larger -Tfwd, or tasks with a "
    "smaller minimum, use more",
    "admission": "too few tasks were admitted at once: {} of the idle node-time would have suited waiting ones; a "
    "larger -maxJ admits more",
    "demand": "there were too few tasks: no task could use {} of the idle node-time",
    "pool": "the idle nodes themselves",
}
_SETTLED = {
    DecidedBy.PRUNING: "exact pruning settled",
    DecidedBy.SEARCH: "search settled",
    DecidedBy.REMEMBERED: "answers remembered in",
    DecidedBy.TRIVIAL: "nothing to choose in",
}


def join_names(names: Sequence[str]) -> str:
    """All names, in a list."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def headline(summary: Summary) -> str:
    """What became of the idle node-time, and what limited it."""
    hours, limit = useful_hours(summary), limit_in_words(summary)
    tasks = f"{summary['tasks_completed']:,} of {summary['tasks_total']:,} tasks completed"
    if hours is None or limit is None:
        return f"{tasks}{mark_assumed(summary, 'tasks_completed')}."
    idle_h, share = summary["ledger"]["idle_node_s"] / 3600, format_value(summary["ledger"]["useful"], "share")
    return (
        f"{format_amount(hours)} of {format_amount(idle_h)} idle node-hours ({share}) became lasting work"
        f"{mark_assumed(summary, 'ledger.useful')}, and {tasks}. What limited it: {limit}."
    )


def format_amount(amount: float) -> str:
    """Format node-hours: without decimals, except small ones."""
    return f"{amount:,.0f}" if abs(amount) >= 10 else f"{amount:.2g}"


def useful_hours(summary: Summary) -> float | None:
    """Node-hours that became lasting work; None without idle nodes."""
    ledger = summary.get("ledger") or {}
    return None if ledger.get("useful") is None else float(ledger["useful"] * ledger["idle_node_s"] / 3600)


def is_short_of_tasks(summary: Summary) -> bool:
    """Whether at times no task could use idle nodes; dedicated nodes would have lacked tasks too, so U says little."""
    return ((summary.get("ledger") or {}).get("demand") or 0.0) >= LIMITING


def limit_in_words(summary: Summary) -> str | None:
    """What limited a run; None where that is unknown."""
    ledger, limit = summary.get("ledger") or {}, summary.get("limited_by")
    if limit not in _LIMITS:
        return None
    text = _LIMITS[limit].format(format_value(ledger.get(limit), "share"))
    had_all = summary.get("tasks_total", math.inf) <= summary.get("max_tasks", 0)
    return text.partition("; a larger -maxJ")[0] if had_all else text


def more_tasks_in_words(summary: Summary) -> str | None:
    """What more tasks at once would have done; None where too few tasks did not limit the run."""
    levels = (summary.get("more_tasks") or {}).get("levels")
    if levels is None:
        return None
    if not levels:
        return "more may do more: try a larger -maxJ, as 30 or 70 (not tried here, as the run is too large)"
    texts = []
    for level, other in levels.items():
        if summary["tasks_completed"] == summary["tasks_total"] == other["tasks_completed"]:
            sooner = 1.0 - other["window_s"] / summary["window_s"]
            text = f"been done {format_value(abs(sooner), 'share')} {'sooner' if sooner >= 0 else 'later'}"
        else:
            more = other["work_done"] / summary["work_done"] - 1.0 if summary["work_done"] else 0.0
            text = f"done {format_value(abs(more), 'share')} {'more' if more >= 0 else 'less'} work"
        texts.append(f"{level} would have {text}")
    return ", ".join(texts)


def learning_in_words(summary: Summary) -> str | None:
    """What decisions learned of how tasks scale; None if they knew it."""
    if (tasks := summary.get("learned_tasks")) is None:
        return None
    text = f"curves of {tasks:,} of {summary['tasks_total']:,} tasks, in {summary['learned_probes']:,} probes"
    errors = [summary.get("learned_error"), summary.get("learned_error_used")]
    if errors == [None, None]:  # nobody knows the true curves of real tasks
        return text
    mean, used = (format_value(error, "share") for error in errors)
    return f"{text}; error at the end {used} where tasks ran, {mean} over all counts"


def optimality_in_words(summary: Summary) -> str:
    """How many decisions are proven optimal, and what the others hold."""
    text = f"{summary['decisions_optimal']:,} of {summary['decisions']:,} decisions proven optimal"
    if summary.get("decisions_claimed"):
        text += f", {summary['decisions_claimed']:,} claimed optimal by the solver"
    if summary["decisions_incumbent"]:
        gap = summary["gap_max"]
        worst = f" (worst gap {100 * gap:.3g} %)" if gap is not None else ""
        text += f", {summary['decisions_incumbent']:,} with an incumbent{worst}"
    if summary["decisions_kept"]:
        text += f", {summary['decisions_kept']:,} kept the allocation"
    return text


def decision_times_in_words(summary: Summary) -> str:
    """Median, 95th percentile and maximum of decision times, and which solver answered."""
    times = (summary[f"solve_s_{name}"] for name in ("median", "p95", "max"))
    median, p95, most = ("-" if time_s is None else f"{1000 * time_s:,.3g} ms" for time_s in times)
    return f"{median} median, {p95} p95, {most} max ({', '.join(summary['solvers']) or summary['solver']})"


def solver_use_in_words(summary: Summary) -> str | None:
    """How often the solver was asked, and what settled the other decisions; None if unknown, or it decided all."""
    by, asked, total = summary.get("decided_by"), summary.get("backend_asked"), summary["decisions"]
    if not by or asked is None or not total or by.get(DecidedBy.BACKEND) == total:
        return None
    text = f"{' or '.join(summary['solvers'])} was asked in {format_value(asked / total, 'share')} of decisions"
    settled = ", ".join(f"{what} {by[key]:,}" for key, what in _SETTLED.items() if by.get(key))
    return f"{text}; {settled}" if settled else text


def fallback_in_words(summary: Summary) -> str | None:
    """How often the fallback answered, as the solver failed; None if it never did, or there is none."""
    number = summary.get("decisions_fallback")
    return f"{summary['solver']} failed in {number:,} of {summary['decisions']:,} decisions" if number else None


def name_tasks(kind: str) -> str:
    """The tasks of a kind of an assessment, in words."""
    return "your tasks" if kind == "own" else f"{kind} models"
