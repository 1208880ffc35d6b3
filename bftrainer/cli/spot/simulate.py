"""`bftrainer spot simulate`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from bftrainer.cli._shared.sizes import large_option, size_option
from bftrainer.cli._shared.stdio import tell
from bftrainer.cli.spot.options import FILE, Places, prices_of, settings_of, spot_options

__all__ = ["simulate"]


@click.command()
@click.option("--trace", type=FILE, required=True, help="Node log, spot event trace or count trace.")
@click.option("--additions", type=FILE, help="Additions that belong to the preemptions that --trace names then.")
@size_option("--initial-nodes", help="With --additions: nodes at the start.  [default: 32]")
@spot_options
@large_option
def simulate(trace: Path, additions: Path | None, initial_nodes: int | None, as_json: bool, **options: Any) -> None:
    """Simulate a checkpointed pipeline-parallel training run on a trace of preemptible nodes."""
    from bftrainer.spot.run import load_log, simulate_spot, write_spot

    places = Places(options)
    settings, profile = settings_of(options)
    log, sources = load_log(trace, additions, initial_nodes, lambda note: tell(f"Note: {note}"))
    result = simulate_spot(log, settings, prices_of(options), sources | {"profile": profile})

    def draw() -> Any:
        """The figure, imported with what draws only if it is asked for."""
        from bftrainer.model.availability import CountTrace
        from bftrainer.spot.figures import run_figure

        return run_figure(result.run, CountTrace.of(log), result.figures())

    summary = result.summary()
    click.echo(json.dumps(summary, indent=2) if as_json else "\n".join(_table(summary)))
    places.put(partial(write_spot, result), draw)


_INDENT = 23


def _table(summary: Mapping[str, Any]) -> list[str]:
    """Headline figures, one a line."""
    span_h = summary["span_s"] / 3600.0
    rows = [
        ("iterations", _iterations(summary)),
        ("throughput", _throughput(summary)),
        *((name, _time(summary, name)) for name in ("training", "redoing", "reconfiguring", "stalled")),
        ("reconfigurations", f"{summary['reconfigurations']:,}, {summary['reconfiguration_restarts']:,} drawn out"),
        ("checkpoints", f"{summary['checkpoints']:,}, {summary['checkpoints_lost']:,} lost on the way"),
        ("preemptions", f"{summary['preemptions']:,} nodes, {summary['active_preemptions']:,} of them active"),
        ("node-hours", f"{summary['node_hours_held']:,.1f} held, {summary['node_hours_used']:,.1f} used"),
        ("world size", f"{summary['mean_world_size'] or 0:.1f} mean, {summary['largest_world_size']} largest"),
        *_costs(summary),
    ]
    title = f"Checkpointed training on {summary['nodes']:,} nodes over {span_h:,.2f} h"
    return [title, *(f"{label:{_INDENT}}{text}" for label, text in rows)]


def _iterations(summary: Mapping[str, Any]) -> str:
    lost = summary["iterations_lost"]
    return f"{summary['iterations_done']:,} done, {summary['iterations_executed']:,} executed, {lost:,} lost"


def _throughput(summary: Mapping[str, Any]) -> str:
    text = f"{summary['iterations_per_hour'] or 0:,.1f} iterations/h"
    samples = summary["samples_per_s"]
    return text if samples is None else f"{text}, {samples:,.2f} samples/s"


def _time(summary: Mapping[str, Any], name: str) -> str:
    time_s = summary[f"{name}_s"]
    share = 100.0 * time_s / summary["span_s"] if summary["span_s"] else 0.0
    return f"{time_s / 3600.0:,.2f} h, {share:.1f} %"


def _costs(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    if summary["cost"] is None:
        return []
    worth = summary["iterations_per_currency"]
    rows = [("cost", f"{summary['cost']:,.2f}" + ("" if worth is None else f", {worth:,.2f} iterations per unit"))]
    if summary["on_demand_cost"] is not None:
        other = summary["on_demand_iterations_per_currency"] or 0.0
        text = (
            f"{summary['on_demand_cost']:,.2f}, {other:,.2f} iterations per unit on {summary['on_demand_nodes']} nodes"
        )
        ratio = summary["value_against_on_demand"]
        rows.append(("on demand", text + ("" if ratio is None else f"; spot is worth {ratio:.2f} times that")))
    return rows
