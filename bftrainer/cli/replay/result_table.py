"""A run's headline figures as a table for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any

from bftrainer.cli._shared.stdio import duration, write_rows
from bftrainer.report.comparison import figures_of
from bftrainer.report.glossary import ASSUMED, GLOSSARY, assumption, format_value
from bftrainer.report.words import (
    decision_times_in_words,
    fallback_in_words,
    learning_in_words,
    limit_in_words,
    more_tasks_in_words,
    optimality_in_words,
    solver_use_in_words,
)

Summary = dict[str, Any]


def render_summary(summary: Summary, out: IO[str]) -> None:
    """Write a run's headline figures to `out`, one a line; a terminal's width is respected."""
    start, end = summary["window_start"][:19], summary["window_end"][:19]
    title = f"Replay of {summary['nodes_total']:,} nodes, {start} to {end} UTC"
    if summary["partial"]:
        title += " (partial: failed)" if summary["end_reason"] == "failed" else " (partial: interrupted)"
    assumed = assumption(summary)
    rows = []
    for label, key, show in _ROWS:
        text = None if key in _WHERE_KNOWN and summary.get(key) in (None, []) else show(summary)
        bears = assumed is not None and assumed.bears(key)
        rows.append((label, f"{text} ({ASSUMED})" if bears and text is not None else text))
        if key == "eq_nodes":
            rows += [("" if at else "  of the log", note) for at, note in enumerate(summary["node_log_notes"])]
    write_rows(title, rows, out)


def _efficiency(summary: Summary) -> str:
    return (
        f"{format_value(summary['efficiency'], 'share')} of {summary['efficiency_eq_nodes']:.1f} dedicated nodes, "
        f"until {duration(summary['efficiency_horizon_s'])} "
        f"(decisions on {summary['settings'].get('decide_on', 'unknown')})"
    )


def _below_large_idle(summary: Summary) -> str | None:
    small = summary["below_large_idle"]
    if small["occupancy"] is None:
        return None
    return f"{format_value(small['occupancy'], 'share')} (while fewer than {small['large_idle']:,} nodes are idle)"


def _ledger(summary: Summary) -> str | None:
    """Parts of the idle node-time, but for those that nothing went to."""
    figures = figures_of(summary)
    known = {key: figures[key] for key in GLOSSARY if key.startswith("ledger.") and figures.get(key)}
    return ", ".join(f"{GLOSSARY[key].label} {format_value(share, 'share')}" for key, share in known.items()) or None


def _energy(summary: Summary) -> str:
    tasks, idle = (_amount(summary[name] / 3.6e6) for name in ("energy_j", "idle_energy_j"))
    mean, peak = ((summary[f"{name}_power_w"] or 0.0) / 1e3 for name in ("average", "peak"))
    return f"{tasks} kWh by tuned tasks, {idle} kWh idle; {mean:,.2f} kW on average, {peak:,.2f} kW peak"


def _amount(value: float) -> str:
    """One decimal, unless that would round away what a short replay used."""
    return f"{value:,.1f}" if value >= 10 or not value else f"{value:,.3g}"


def _tuning(summary: Summary) -> str:
    # The three most frequent, each with how often.
    sizes, limits = (
        ", ".join(f"{value} ({count:,}x)" for value, count in sorted(counts.items(), key=lambda it: -it[1])[:3]) or "-"
        for counts in (summary["batch_sizes"], summary["power_limits_w"])
    )
    return (
        f"{summary['tasks_reached']:,} reached their target in {summary['attempts']:,} tries, "
        f"{summary['tasks_failed']:,} failed; batch sizes {sizes}, power limits {limits} W"
    )


def _first_failure(summary: Summary) -> str:
    """Why the first group was given up, and the number of other groups."""
    first, *others = summary["failures"]
    return str(first) + (f" ({len(others):,} more in summary.json)" if others else "")


def _wall_time(summary: Summary) -> str:
    parts = ", ".join(f"{summary[f'{name}_s']:.2f} {name}" for name in ("load", "replay", "baseline"))
    return f"{summary['wall_s']:.2f} s: {parts}"


# Rows that are left out without these figures.
_WHERE_KNOWN = (
    *("efficiency", "makespan_s", "turnaround_mean_s", "wait_mean_s", "tasks_reached", "failures", "energy_j"),
    "give_backs",
    "emissions_gco2",
)
# Label, the figure that it tells of first, and what it tells.
_ROWS: tuple[tuple[str, str, Callable[[Summary], str | None]], ...] = (
    ("events", "events", lambda s: f"{s['events']:,} in {duration(s['window_s'])}"),
    (
        "idle nodes",
        "eq_nodes",
        lambda s: f"{s['eq_nodes'] or 0:,.1f} on average, {format_value(s['idle_node_s'], 'node_s')}",
    ),
    (ASSUMED, "", lambda s: None if (found := assumption(s)) is None else found.note),
    ("occupancy", "occupancy", lambda s: format_value(s["occupancy"], "share")),
    ("  below large idle", "occupancy", _below_large_idle),
    ("work done", "work_done", lambda s: f"{s['work_done']:.6g}"),
    ("efficiency U", "efficiency", _efficiency),
    ("ledger", "occupancy", _ledger),
    ("  limited by", "limited_by", limit_in_words),
    ("  tasks at once", "", more_tasks_in_words),
    ("learned", "", learning_in_words),
    ("return on investment", "return_on_investment", lambda s: format_value(s["return_on_investment"], "share")),
    (
        "tasks",
        "tasks_completed",
        lambda s: f"{s['tasks_completed']:,} completed, {s['tasks_started']:,} started, of {s['tasks_total']:,}",
    ),
    ("makespan", "makespan_s", lambda s: duration(s["makespan_s"])),
    (
        "turnaround",
        "turnaround_mean_s",
        lambda s: f"{duration(s['turnaround_mean_s'])} mean, {duration(s['turnaround_p90_s'])} p90",
    ),
    ("waiting", "wait_mean_s", lambda s: f"{duration(s['wait_mean_s'])} mean"),
    ("preemptions, rescales", "preemptions", lambda s: f"{s['preemptions']:,}, {s['rescales']:,}"),
    ("given back", "give_backs", lambda s: f"{s['give_backs']:,} times, as decisions chose"),
    ("tuning", "tasks_reached", _tuning),
    ("  given up", "failures", _first_failure),
    ("energy", "energy_j", _energy),
    ("emissions", "emissions_gco2", lambda s: f"{_amount(s['emissions_gco2'] / 1e3)} kg CO2 (PUE {s['pue']:g})"),
    ("optimality", "decisions_optimal", optimality_in_words),
    ("  asked", "decisions_optimal", solver_use_in_words),
    ("  fallback", "decisions_fallback", fallback_in_words),
    ("decision time", "solve_s_median", decision_times_in_words),
    ("wall time", "wall_s", _wall_time),
)
