"""Metrics of runs in words: values as text, assumptions, and sentences about a run.

Terminal, pages and notebooks say the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from bftrainer.errors import SettingsError
from bftrainer.terms import GLOSSARY, JUDGED, Term, Unit

# Least value, size and name of each unit.
_SCALES: dict[Unit, tuple[tuple[float, float, str], ...]] = {
    "s": ((172800.0, 86400.0, "d"), (3600.0, 3600.0, "h"), (60.0, 60.0, "min"), (0.0, 1.0, "s")),
    "wall_s": ((60.0, 60.0, "min"), (1.0, 1.0, "s"), (1e-3, 1e-3, "ms"), (0.0, 1e-6, "µs")),
    "J": ((3.6e9, 3.6e9, "MWh"), (3.6e6, 3.6e6, "kWh"), (3600.0, 3600.0, "Wh"), (0.0, 1.0, "J")),
    "W": ((1e6, 1e6, "MW"), (1e3, 1e3, "kW"), (0.0, 1.0, "W")),
    "g": ((1e6, 1e6, "t"), (1e3, 1e3, "kg"), (0.0, 1.0, "g")),
}


def key_of(name: str) -> str:
    """Key of a metric, from its key or label; unknown names stay as they are."""
    labels = {term.label.casefold(): key for key, term in GLOSSARY.items()}
    return name if name in GLOSSARY else labels.get(name.casefold(), name)


def suggest_metrics(name: str, keys: Iterable[str]) -> str:
    """Ending of a message about an unknown metric: the closest ones, by the words of pages, or where all are listed."""
    labels = {key: GLOSSARY[key].label if key in GLOSSARY else key for key in keys}
    words = labels | {label.casefold(): label for label in labels.values()}
    near = dict.fromkeys(words[word] for word in get_close_matches(name.casefold(), words))
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else " `bftrainer plot --list` names all."


def check_metrics(names: Sequence[str]) -> None:
    """Refuse more than two metrics, and those that have no better or worse or depend on the clock: `SettingsError`."""
    for name in names:
        if name not in JUDGED:
            raise SettingsError(f"Expected a metric to improve, got {name!r}.{suggest_metrics(name, JUDGED)}")
    if len(names) > 2 or len({*names}) < len(names):
        raise SettingsError(f"Expected one metric or two different ones, got {', '.join(names)}.")


def format_value(value: float | None, unit: Unit) -> str:
    """Format a value with its unit.

    Examples
    --------
    >>> format_value(-1e-16, "share"), format_value(224292.8, "s"), format_value(1.2e-4, "wall_s")
    ('0.00 %', '2.6 d', '120 µs')
    >>> format_value(None, "W"), format_value(17308566170.0, "work"), format_value(9598018.9, "node_s")
    ('-', '1.731e+10', '2,666 node-hours')
    >>> format_value(90000.0, "work"), format_value(1.2, "node_s")
    ('90,000', '0.00033 node-hours')
    """
    if value is None:
        return "-"
    if unit == "share":
        return f"{round(100 * value, 2) + 0.0:.2f} %"  # rounding noise below 0 is no loss and no gain
    if unit == "count":
        return f"{value:,.0f}"
    if unit == "nodes":
        return f"{value:,.1f}"
    if unit == "node_s":
        hours = round(value / 3600, 6)
        return f"{hours:,.0f} node-hours" if abs(hours) >= 10 or not hours else f"{hours:.2g} node-hours"
    if unit in _SCALES:
        size, name = scale(value, unit)
        amount = value / size
        return f"{amount:,.0f} {name}" if abs(amount) >= 1000 else f"{amount:.3g} {name}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e6 else f"{value:.4g}"


def scale(value: float, unit: Unit) -> tuple[float, str]:
    """Size and name of the unit for values up to this one; the name is empty for plain numbers."""
    if unit in _SCALES:
        return next((size, name) for least, size, name in _SCALES[unit] if abs(value) >= least)
    return {"share": (0.01, "%"), "node_s": (3600.0, "node-hours"), "nodes": (1.0, "nodes")}.get(unit, (1.0, ""))


def scale_axis(values: Iterable[float | None], term: Term) -> tuple[float, str]:
    """Size of the unit for drawing such values, and the axis label with that unit."""
    size, unit = scale(max((abs(value) for value in values if value is not None), default=0.0), term.unit)
    return size, f"{term.label} ({unit})" if unit else term.label


ASSUMED = "assumed scaling"
MARK = "*"
"""Stand beside a figure that rests on an assumption, where there is room for words and where there is none."""


def scaling_note(summary: Mapping[str, Any]) -> str | None:
    """What a run assumes of how tasks scale, without a full stop; None if the user gave the scaling of all tasks."""
    recorded = summary.get("assumed_scaling")
    return None if recorded is None else str(recorded["note"])


def is_assumed(summary: Mapping[str, Any], key: str) -> bool:
    """Whether a figure rests on assumed scaling; ``below_large_idle.occupancy`` does if ``occupancy`` does."""
    recorded = summary.get("assumed_scaling")
    return recorded is not None and key.rpartition(".")[2] in recorded["figures"]


def mark_assumed(summary: Mapping[str, Any], key: str) -> str:
    """Mark for a figure in a sentence that rests on an assumption; empty if it does not."""
    return f" ({ASSUMED})" if is_assumed(summary, key) else ""


def assumption_notes(note: str | None) -> list[str]:
    """Caveat of an assumption about how tasks scale, if there is one."""
    return [] if note is None else [f"Rests on {ASSUMED}: {note}."]


# --- Sentences about a run, made of its summary

Summary = Mapping[str, Any]
LIMITING = 0.01
"""Share of the idle node-time from which on a loss is said to have limited the run."""
_SETTLED = {
    "pruning": "exact pruning settled",
    "search": "search settled",
    "remembered": "answers remembered in",
    "trivial": "nothing to choose in",
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


def ledger_in_words(summary: Summary) -> str | None:
    """Parts of the idle node-time, except those that nothing went to."""
    ledger, keys = summary.get("ledger") or {}, (key for key in GLOSSARY if key.startswith("ledger."))
    shares = {GLOSSARY[key].label: ledger.get(key.removeprefix("ledger.")) for key in keys}
    return ", ".join(f"{label} {format_value(share, 'share')}" for label, share in shares.items() if share) or None


def few_idle_in_words(summary: Summary) -> str | None:
    """Occupancy while few nodes are idle; None if that never was."""
    small = summary["below_large_idle"]
    if small["occupancy"] is None:
        return None
    return f"{format_value(small['occupancy'], 'share')} (while fewer than {small['large_idle']:,} nodes are idle)"


def tuning_in_words(summary: Summary) -> str:
    """Outcome of tuned tasks, and the three most frequent batch sizes and power limits, each with how often."""
    sizes, limits = (
        ", ".join(f"{value} ({count:,}x)" for value, count in sorted(counts.items(), key=lambda it: -it[1])[:3]) or "-"
        for counts in (summary["batch_sizes"], summary["power_limits_w"])
    )
    reached, attempts, failed = (summary[name] for name in ("tasks_reached", "attempts", "tasks_failed"))
    tries = f"{reached:,} reached their target in {attempts:,} tries, {failed:,} failed"
    return f"{tries}; batch sizes {sizes}, power limits {limits} W"


def failures_in_words(summary: Summary) -> str:
    """Why the first group was given up, and the number of other groups."""
    first, *later = summary["failures"]
    return str(first) + (f" ({len(later):,} more in summary.json)" if later else "")


def limit_in_words(summary: Summary) -> str | None:
    """What limited a run; None where that is unknown."""
    ledger, limit = summary.get("ledger") or {}, summary.get("limited_by")
    if limit == "pool":
        return "the idle nodes themselves"
    term = GLOSSARY.get(f"ledger.{limit}")
    if term is None or not term.limit:
        return None
    text = term.limit.format(format_value(ledger.get(limit), "share"))
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
    if not by or asked is None or not total or by.get("backend") == total:
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
