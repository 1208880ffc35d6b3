"""`bftrainer trace stats` and `generate`: the figures of a trace, and traces by a model of these."""

from __future__ import annotations

from dataclasses import asdict
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


@click.command(epilog="Example: bftrainer trace stats idle.csv --figure nodes.svg")
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


_HOLES = {"fragment-mean": None, "fragment-median": None, "daily-amplitude": 0.375, "peak-hour": 16.4}
"""Figures of the model supercomputer: seconds of a log-normal fragment, its daily cycle of 0 to 1, and that's peak."""


@click.command(
    cls=usage.Sectioned,
    sections={
        "Common options": (
            *("output", "model", "like", "days", "nodes", "idle_share", "initial_nodes", "max_nodes", "start", "seed"),
        )
    },
    epilog="Example: bftrainer trace generate --nodes 200 --days 1 -o made.parquet",
)
@click.option("--like", type=FILE, help="Fit the model to this trace of any kind.")
@click.option(
    "--model",
    type=click.Choice(["minutes", "supercomputer"]),
    help="Spot nodes, or holes of a batch scheduler.  [default: minutes if LIKE is no node log, else supercomputer]",
)
@click.option("--days", type=usage.POSITIVE, default=14.0, show_default=True, help="Length of the trace.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same one gives the same bytes.")
@click.option(
    "--start", type=click.DateTime(), metavar="DATE", default="2021-01-01", help="UTC.  [default: 2021-01-01]"
)
@click.option("--preemption-scale", type=float, help="minutes: factor of the chance of a preemption.  [default: 1]")
@click.option("--addition-scale", type=float, help="minutes: factor of the chance of an addition.  [default: 1]")
@model_options(MINUTES | _HOLES, "minutes: ")
@click.option("--nodes", type=usage.SIZE, help="supercomputer: nodes of the machine.  [default: 4734]")
@click.option("--idle-share", type=float, help="supercomputer: mean share of idle nodes.  [default: 0.0827]")
@usage.NODE_LOG_OUTPUT
@click.option("--spot", is_flag=True, help="Write a spot event trace beside it: x.parquet has x-spot.csv.")
@click.option("--counts", is_flag=True, help="Write x-preemptions.csv and x-additions.csv beside it.")
@usage.force_option
@usage.json_option
def generate(
    output: Path, force: bool, start: datetime, spot: bool, counts: bool, as_json: bool,
    model_figures: tuple[tuple[str, float], ...], **options: Any,
) -> None:  # fmt: skip
    """Generate a trace of nodes, which `bftrainer replay` and `bftrainer spot simulate` take as it is."""
    from bftrainer.nodelogs.availability import write_spot_trace
    from bftrainer.nodelogs.node_log_files import node_log_files, refuse_node_log, write_node_log
    from bftrainer.spot.generation import generate_trace, sibling, write_pair

    refuse_node_log(output, force=force)
    beside = [sibling(output, "spot")] if spot else []
    beside += [sibling(output, what) for what in ("preemptions", "additions")] if counts else []
    usage.refuse_files(*beside, force=force)
    usage.refuse_inputs(*node_log_files(output), *beside)
    chosen = {name: value for name, value in options.items() if value is not None} | dict(model_figures)
    made = generate_trace(start_ns=checked_instant(start), warn=note, **chosen)
    write_node_log(output, made.log)
    written = {output: f"node log of {len(made.log.nodes):,} nodes, {made.log.node.size:,} transitions"}
    if spot:
        write_spot_trace(beside[0], made.log)
        written[beside[0]] = "spot event trace"
    if counts:
        written |= {path: path.stem.rpartition("-")[2] for path in write_pair(output, made.log)}
    figures = [asdict(figure) for figure in made.figures]
    if as_json:
        print_json({"files": [str(path) for path in written], "figures": figures})
        return
    for path, what in written.items():
        click.echo(f"{path}: {what}")
    rows = [
        [each if isinstance(each, str) else "" if each is None else f"{each:.5g}" for each in figure.values()]
        for figure in figures
    ]
    print_table(["", "asked", "expected", "drawn", "realised"], rows)


def checked_instant(date: datetime) -> int:
    """Nanoseconds since the epoch of a date of the command line, if it can be told in these."""
    from bftrainer.model import instant_ns

    if not 1678 <= date.year < 2262:
        raise click.BadParameter(f"Expected a date between the years 1678 and 2262, got {date:%Y-%m-%d}.")
    return instant_ns(date)
