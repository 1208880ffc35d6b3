"""The summary of a run as a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any

from bftrainer.cli._shared.stdio import duration, percent, write_rows
from bftrainer.report.glossary import ASSUMED, assumption
from bftrainer.report.metrics import settled_before

__all__ = ["render_summary"]

Summary = dict[str, Any]


def render_summary(summary: Summary, out: IO[str]) -> None:
    """Write a run's headline figures to `out`, one a line; a terminal's width is respected."""
    start, end = summary["window_start"][:19], summary["window_end"][:19]
    title = f"Replay of {summary['nodes_total']:,} nodes, {start} to {end} UTC"
    if summary["partial"]:
        title += " (partial: interrupted)"
    assumed = assumption(summary)
    rows = []
    for label, key, show in _ROWS:
        text = show(summary)
        bears = assumed is not None and assumed.bears(key)
        rows.append((label, f"{text} ({ASSUMED})" if bears and text is not None else text))
    write_rows(title, rows, out)


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{1000 * value:,.3g} ms"


def _optimality(summary: Summary) -> str:
    text = f"{summary['decisions_optimal']:,} of {summary['decisions']:,} decisions proven optimal"
    if summary["decisions_incumbent"]:
        gap = summary["gap_max"]
        worst = f" (worst gap {100 * gap:.3g} %)" if gap is not None else ""
        text += f", {summary['decisions_incumbent']:,} with an incumbent{worst}"
    if summary["decisions_kept"]:
        text += f", {summary['decisions_kept']:,} kept what there was"
    return text


def _efficiency(summary: Summary) -> str | None:
    if summary["efficiency"] is None:
        return None
    return (
        f"{percent(summary['efficiency'])} of {summary['efficiency_eq_nodes']:.1f} dedicated nodes, until "
        f"{duration(summary['efficiency_horizon_s'])} (decisions on {summary['settings']['decide_on']})"
    )


def _makespan(summary: Summary) -> str | None:
    return None if summary["makespan_s"] is None else duration(summary["makespan_s"])


def _turnaround(summary: Summary) -> str | None:
    if summary["turnaround_mean_s"] is None:
        return None
    return f"{duration(summary['turnaround_mean_s'])} mean, {duration(summary['turnaround_p90_s'])} p90"


def _waiting(summary: Summary) -> str | None:
    return None if summary["wait_mean_s"] is None else f"{duration(summary['wait_mean_s'])} mean"


def _tasks(summary: Summary) -> str:
    return (
        f"{summary['tasks_completed']:,} completed, {summary['tasks_started']:,} started, of {summary['tasks_total']:,}"
    )


def _below_large_idle(summary: Summary) -> str | None:
    small = summary["below_large_idle"]
    if small["occupancy"] is None:
        return None
    return f"{percent(small['occupancy'])} (while fewer than {small['large_idle']:,} nodes are idle)"


def _energy(summary: Summary) -> str | None:
    if "energy_j" not in summary:
        return None
    tasks, idle = (summary[name] / 3.6e6 for name in ("energy_j", "idle_energy_j"))
    mean, peak = ((summary[f"{name}_power_w"] or 0.0) / 1e3 for name in ("average", "peak"))
    used = f"{_amount(tasks)} kWh by tuned tasks, {_amount(idle)} kWh idle"
    return f"{used}; {mean:,.2f} kW on average, {peak:,.2f} kW peak"


def _amount(value: float) -> str:
    """One decimal, unless that would round away what a short replay used."""
    return f"{value:,.1f}" if value >= 10 or not value else f"{value:,.3g}"


def _emissions(summary: Summary) -> str | None:
    grams = summary.get("emissions_gco2")
    return None if grams is None else f"{_amount(grams / 1e3)} kg CO2 (PUE {summary['pue']:g})"


def _tuning(summary: Summary) -> str | None:
    if "attempts" not in summary:
        return None
    return (
        f"{summary['tasks_reached']:,} reached their target in {summary['attempts']:,} tries, "
        f"{summary['tasks_failed']:,} failed; batch sizes {_frequent(summary['batch_sizes'])}, "
        f"power limits {_frequent(summary['power_limits_w'])} W"
    )


def _given_up(summary: Summary) -> str | None:
    """Why the first group was given up, and how many were for other reasons."""
    failures = summary.get("failures")
    if not failures:
        return None
    return str(failures[0]) + (f" ({len(failures) - 1:,} more in summary.json)" if len(failures) > 1 else "")


def _frequent(counts: dict[str, int]) -> str:
    """The three most frequent, each with how often."""
    most = sorted(counts.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{value} ({count:,}x)" for value, count in most) or "-"


def _decision_time(summary: Summary) -> str:
    median, p95, most = (_milliseconds(summary[f"solve_s_{name}"]) for name in ("median", "p95", "max"))
    answered = ", ".join(summary["solvers"]) or summary["solver"]
    return f"{median} median, {p95} p95, {most} max ({answered})"


def _wall_time(summary: Summary) -> str:
    parts = ", ".join(f"{summary[f'{name}_s']:.2f} {name}" for name in ("load", "replay", "baseline"))
    return f"{summary['wall_s']:.2f} s: {parts}"


def _scaling(summary: Summary) -> str | None:
    found = assumption(summary)
    return None if found is None else found.note


# Label, the figure that it tells of first, and what it tells.
_ROWS: tuple[tuple[str, str, Callable[[Summary], str | None]], ...] = (
    ("events", "events", lambda s: f"{s['events']:,} in {duration(s['window_s'])}"),
    (
        "idle nodes",
        "eq_nodes",
        lambda s: f"{s['eq_nodes'] or 0:,.1f} on average, {s['idle_node_s'] / 3600:,.0f} node-hours",
    ),
    (ASSUMED, "", _scaling),
    ("occupancy", "occupancy", lambda s: percent(s["occupancy"])),
    ("  below large idle", "occupancy", _below_large_idle),
    ("work done", "work_done", lambda s: f"{s['work_done']:.6g}"),
    ("efficiency U", "efficiency", _efficiency),
    ("rescale loss", "rescale_loss_share", lambda s: percent(s["rescale_loss_share"])),
    ("preemption loss", "preemption_loss_share", lambda s: percent(s["preemption_loss_share"])),
    ("return on investment", "return_on_investment", lambda s: percent(s["return_on_investment"])),
    ("tasks", "tasks_completed", _tasks),
    ("makespan", "makespan_s", _makespan),
    ("turnaround", "turnaround_mean_s", _turnaround),
    ("waiting", "wait_mean_s", _waiting),
    ("preemptions, rescales", "preemptions", lambda s: f"{s['preemptions']:,}, {s['rescales']:,}"),
    ("tuning", "tasks_reached", _tuning),
    ("  given up", "failures", _given_up),
    ("energy", "energy_j", _energy),
    ("emissions", "emissions_gco2", _emissions),
    ("optimality", "decisions_optimal", _optimality),
    ("  asked", "decisions_optimal", settled_before),
    ("decision time", "solve_s_median", _decision_time),
    ("wall time", "wall_s", _wall_time),
)
