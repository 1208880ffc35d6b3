"""`bftrainer trace stats` and `generate`: the figures of a trace, and traces by a model of these."""

from __future__ import annotations

from dataclasses import asdict, astuple
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from bftrainer.cli._shared import usage
from bftrainer.cli._shared.stdio import note, print_figures, print_json, print_table
from bftrainer.cli._shared.usage import FILE
from bftrainer.cli.spot import MINUTES, model_options

_KINDS = {
    "nodes": "Node log",
    "spot": "Spot event trace",
    "counts": "Count trace",
    "terminations": "Termination trace",
}


@usage.command(epilog="Example: bftrainer trace stats idle.csv --figure nodes.svg")
@click.argument("file", type=FILE)
@click.option("--recorded-terminations", "recorded", type=FILE, help="Those of a count trace.  [default: its falls]")
@click.option("--additions", type=FILE, help="Write the additions that were measured: CSV, dt,additions.")
@click.option("--terminations", type=FILE, help="Write the terminations that were measured: CSV, dt,preemptions.")
@usage.json_option
@click.option("--figure", type=FILE, help="Draw nodes over time and the survival curve: .png, .svg or .pdf.")
@usage.force_option
def stats(
    file: Path, recorded: Path | None, additions: Path | None, terminations: Path | None, as_json: bool,
    figure: Path | None, force: bool,
) -> None:  # fmt: skip
    """Print the figures of FILE: a node log, a spot event trace, a count trace or a termination trace."""
    from bftrainer.nodelogs.availability import read_availability, write_measured
    from bftrainer.spot.statistics import trace_statistics

    usage.refuse_figure(figure, force=force)
    usage.refuse_files(additions, terminations, force=force)
    trace = read_availability(file, note, recorded)
    found = trace_statistics(trace)
    if additions or terminations:
        at_start = write_measured(trace, additions, terminations)
        note(f"nodes at the start, for spot simulate --initial-nodes: {at_start}")
    if figure is not None:
        from bftrainer.spot.run_plots import trace_figure

        usage.write_figure(figure, trace_figure(trace.counts, found.survival))
    if as_json:
        print_json(found.as_json())
    else:
        figures = found.figures
        start, end = (figures[which][:19] for which in ("start", "end"))
        print_figures(f"{_KINDS[figures['kind']]}, {start} to {end} UTC", figures)


@usage.command(epilog="Example: bftrainer trace generate --nodes 200 --days 1 -o made.parquet")
@click.option("--like", type=FILE, help="Fit the model to this trace of any kind.")
@click.option(
    "--model",
    type=click.Choice(["minutes", "supercomputer"]),
    help="Spot nodes, or holes of a batch scheduler.  [default: minutes if LIKE is no node log, else supercomputer]",
)
@click.option("--days", type=usage.POSITIVE, default=14.0, help="Length of the trace.")
@click.option("--seed", type=int, default=0, help="The same one gives the same bytes.")
@click.option(
    "--start", type=click.DateTime(), metavar="DATE", default="2021-01-01", help="UTC.  [default: 2021-01-01]"
)
@click.option("--preemption-scale", type=float, help="minutes: factor of the chance of a preemption.  [default: 1]")
@click.option("--addition-scale", type=float, help="minutes: factor of the chance of an addition.  [default: 1]")
@model_options(f"minutes: {MINUTES}; else fragment-mean, fragment-median, daily-amplitude, peak-hour", "minutes: ")
@click.option("--nodes", type=usage.SIZE, help="supercomputer: nodes of the machine.  [default: 4734]")
@click.option("--idle-share", type=float, help="supercomputer: mean share of idle nodes.  [default: 0.0827]")
@usage.NODE_LOG_OUTPUT
@usage.force_option
@usage.json_option
def generate(
    output: Path, force: bool, start: datetime, as_json: bool, model_figures: tuple[tuple[str, float], ...],
    **options: Any,
) -> None:  # fmt: skip
    """Generate a trace of nodes, which `bftrainer replay` and `bftrainer spot simulate` take as it is."""
    from bftrainer.nodelogs.node_log_files import node_log_files, refuse_node_log, write_node_log
    from bftrainer.spot.generation import generate_trace

    refuse_node_log(output, force=force)
    usage.refuse_inputs(*node_log_files(output))
    chosen = {name: value for name, value in options.items() if value is not None} | dict(model_figures)
    made = generate_trace(start_ns=checked_instant(start), warn=note, **chosen)
    write_node_log(output, made.log)
    if as_json:
        print_json({"files": [str(output)], "figures": [asdict(figure) for figure in made.figures]})
        return
    click.echo(f"{output}: node log of {len(made.log.nodes):,} nodes, {made.log.node.size:,} transitions")
    rows = []
    for name, *values in map(astuple, made.figures):
        rows.append([name, *("" if value is None else f"{value:.5g}" for value in values)])
    print_table(["", "asked", "expected", "drawn", "realised"], rows)


def checked_instant(date: datetime) -> int:
    """Nanoseconds since the epoch of a date of the command line, if it can be told in these."""
    from bftrainer.model import instant_ns

    if not 1678 <= date.year < 2262:
        raise click.BadParameter(f"Expected a date between the years 1678 and 2262, got {date:%Y-%m-%d}.")
    return instant_ns(date)
