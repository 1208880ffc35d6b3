"""A run's headline figures as a table for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any

from bftrainer.cli.stdio import duration, write_rows
from bftrainer.report import words
from bftrainer.report.comparison import figures_of
from bftrainer.report.glossary import ASSUMED, GLOSSARY, assumption, format_value

Summary = dict[str, Any]


def render_summary(summary: Summary, out: IO[str]) -> None:
    """Write a run's headline figures to `out`, one a line; a terminal's width is respected."""
    start, end = summary["window_start"][:19], summary["window_end"][:19]
    title = f"Replay of {summary['nodes_total']:,} nodes, {start} to {end} UTC"
    if summary["partial"]:
        title += " (partial: failed)" if summary["end_reason"] == "failed" else " (partial: interrupted)"
    assumed = assumption(summary)
    cells = {key: _Cell(value) for key, value in summary.items()}
    rows = []
    for label, key, show in _ROWS:
        text = None
        if key not in _WHERE_KNOWN or summary.get(key) not in (None, []):
            text = show.format_map(cells) if isinstance(show, str) else show(summary)
        bears = assumed is not None and assumed.bears(key)
        rows.append((label, f"{text} ({ASSUMED})" if bears and text is not None else text))
        if key == "eq_nodes":
            rows += [("" if at else "  of the log", note) for at, note in enumerate(summary["node_log_notes"])]
            rows.append((ASSUMED, None if assumed is None else assumed.note))
    write_rows(title, rows, out)


class _Cell:
    """A value that is formatted as ``h``, a length of time, as ``kWh``, by a unit of the glossary, or as a number."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __format__(self, form: str) -> str:
        if form == "h":
            return duration(self._value)
        if form in ("share", "node_s"):
            return format_value(self._value, form)  # type: ignore[arg-type]
        if form == "amount":  # one decimal, unless that would round away what a short replay used
            return f"{self._value:,.1f}" if self._value >= 10 or not self._value else f"{self._value:,.3g}"
        return format(self._value or 0, form)


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
    """Parts of the idle node-time, except those that nothing went to."""
    figures = figures_of(summary)
    losses = {key: figures[key] for key in GLOSSARY if key.startswith("ledger.") and figures.get(key)}
    return ", ".join(f"{GLOSSARY[key].label} {format_value(share, 'share')}" for key, share in losses.items()) or None


def _energy(summary: Summary) -> str:
    tasks, idle = (_Cell(summary[name] / 3.6e6) for name in ("energy_j", "idle_energy_j"))
    mean, peak = ((summary[f"{name}_power_w"] or 0.0) / 1e3 for name in ("average", "peak"))
    return f"{tasks:amount} kWh by tuned tasks, {idle:amount} kWh idle; {mean:,.2f} kW on average, {peak:,.2f} kW peak"


def _tuning(summary: Summary) -> str:
    # The three most frequent, each with how often.
    sizes, limits = (
        ", ".join(f"{value} ({count:,}x)" for value, count in sorted(counts.items(), key=lambda it: -it[1])[:3]) or "-"
        for counts in (summary["batch_sizes"], summary["power_limits_w"])
    )
    reached, attempts, failed = (summary[name] for name in ("tasks_reached", "attempts", "tasks_failed"))
    tries = f"{reached:,} reached their target in {attempts:,} tries, {failed:,} failed"
    return f"{tries}; batch sizes {sizes}, power limits {limits} W"


def _first_failure(summary: Summary) -> str:
    """Why the first group was given up, and the number of other groups."""
    first, *later = summary["failures"]
    return str(first) + (f" ({len(later):,} more in summary.json)" if later else "")


# Rows that are left out without these figures.
_WHERE_KNOWN = (
    *("efficiency", "makespan_s", "turnaround_mean_s", "wait_mean_s", "tasks_reached", "failures", "energy_j"),
    *("give_backs", "emissions_gco2"),
)
# Label, the figure that it tells of first, and what it tells.
_ROWS: tuple[tuple[str, str, str | Callable[[Summary], str | None]], ...] = (
    ("events", "events", "{events:,} in {window_s:h}"),
    ("idle nodes", "eq_nodes", "{eq_nodes:,.1f} on average, {idle_node_s:node_s}"),
    ("occupancy", "occupancy", "{occupancy:share}"),
    ("  below large idle", "occupancy", _below_large_idle),
    ("work done", "work_done", "{work_done:.6g}"),
    ("efficiency U", "efficiency", _efficiency),
    ("ledger", "occupancy", _ledger),
    ("  limited by", "limited_by", words.limit_in_words),
    ("  tasks at once", "", words.more_tasks_in_words),
    ("learned", "", words.learning_in_words),
    ("return on investment", "return_on_investment", "{return_on_investment:share}"),
    ("tasks", "tasks_completed", "{tasks_completed:,} completed, {tasks_started:,} started, of {tasks_total:,}"),
    ("makespan", "makespan_s", "{makespan_s:h}"),
    ("turnaround", "turnaround_mean_s", "{turnaround_mean_s:h} mean, {turnaround_p90_s:h} p90"),
    ("waiting", "wait_mean_s", "{wait_mean_s:h} mean"),
    ("preemptions, rescales", "preemptions", "{preemptions:,}, {rescales:,}"),
    ("given back", "give_backs", "{give_backs:,} times, as decisions chose"),
    ("tuning", "tasks_reached", _tuning),
    ("  given up", "failures", _first_failure),
    ("energy", "energy_j", _energy),
    ("emissions", "emissions_gco2", lambda s: f"{_Cell(s['emissions_gco2'] / 1e3):amount} kg CO2 (PUE {s['pue']:g})"),
    ("optimality", "decisions_optimal", words.optimality_in_words),
    ("  asked", "decisions_optimal", words.solver_use_in_words),
    ("  fallback", "decisions_fallback", words.fallback_in_words),
    ("decision time", "solve_s_median", words.decision_times_in_words),
    ("wall time", "wall_s", "{wall_s:.2f} s: {load_s:.2f} load, {replay_s:.2f} replay, {baseline_s:.2f} baseline"),
)
