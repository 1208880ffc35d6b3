"""`bftrainer trace stats` and `generate`: the figures of a trace, and traces by a model of these."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.stdio import tell
from bftrainer.cli._shared.usage import LARGE_DAYS, Sectioned, refuse_inputs, refuse_unused, size_option
from bftrainer.cli.spot import minute_options
from bftrainer.cli.zeus.zeus_options import FILE, with_options

if TYPE_CHECKING:
    from bftrainer.spot.generation import Figure, ModelName

Figures = Mapping[str, Any]

_INDENT = 23


def render_statistics(figures: Figures) -> str:
    """Lines of the figures that there are, for people."""
    start, end = figures["start"][:19], figures["end"][:19]
    lines = [f"{_KINDS[figures['kind']]}, {start} to {end} UTC"]
    for label, show, *needed in _ROWS:
        if all(figures[key] is not None for key in needed):
            lines.append(f"{label:{_INDENT}}{show(figures)}")
    return "\n".join(lines)


_KINDS = {
    "nodes": "Node log",
    "spot": "Spot event trace",
    "counts": "Count trace",
    "terminations": "Termination trace",
}


def _pair(mean: float, std: float | None, unit: str = "") -> str:
    return f"{mean:,.5g}{unit}" + ("" if std is None else f" +- {std:,.5g}{unit}")


def _size(figures: Figures, name: str) -> str:
    mean = figures[f"{name}_mean"]
    each = "" if mean is None else f", {_pair(mean, figures[f'{name}_std'])} nodes each"
    return f"{figures[f'{name}_chance']:.5f} chance a minute, {figures[f'{name}s_per_minute']:.4f} nodes a minute{each}"


def _regular(figures: Figures) -> str:
    return (
        f"{_pair(figures['regular_addition_mean'], figures['regular_addition_std'])} nodes each, "
        f"big ones {100 * figures['big_addition_share']:.2f} %"
    )


def _fragments(figures: Figures) -> str:
    text = f"{figures['fragments']:,} completed"
    for key, what in (("start", "the window's start"), ("end", "its end")):
        if figures[f"fragments_cut_at_{key}"]:
            text += f", {figures[f'fragments_cut_at_{key}']:,} cut at {what}"
    if figures["stays_of_no_time"]:
        text += f"; {figures['stays_of_no_time']:,} of no time, left out"
    return text


def _lengths(figures: Figures) -> str:
    return (
        f"{figures['fragment_mean_s']:,.1f} s mean, {figures['fragment_median_s']:,.1f} s median, "
        f"{100 * figures['fragment_under_600_s_share']:.1f} % under 10 min"
    )


def _lifetimes(figures: Figures) -> str:
    parts = []
    for key in ("mean", "median", "p10", "p90"):
        value = figures[f"lifetime_{key}_s"]
        parts.append(f"{'more than seen' if value is None else f'{value:,.1f} s'} {key}")
    return ", ".join(parts)


def _hours(figures: Figures) -> str:
    rates = [rate for rate in figures["events_by_hour_of_day"] if rate is not None]
    return f"{figures['events_per_hour']:,.2f} an hour, {min(rates):,.2f} to {max(rates):,.2f} by hour of day"


_ROWS: tuple[tuple[Any, ...], ...] = (
    ("span", lambda f: f"{f['span_s'] / 3600:,.2f} h"),
    ("events", lambda f: f"{f['events']:,}"),
    ("nodes", lambda f: f"{f['nodes']:,}, {f['end_nodes']:,} there at the end", "nodes"),
    ("node-hours", lambda f: f"{f['node_hours']:,.1f}", "node_hours"),
    (
        "nodes there",
        lambda f: (
            f"{f['mean_nodes']:,.1f} mean, {f['median_nodes']:,.0f} median, {f['max_nodes']:,} max"
            f" ({100 * f['idle_share']:.2f} % of all)"
        ),
        "mean_nodes",
        "idle_share",
    ),
    ("events over time", _hours, "events_per_hour"),
    (
        "rows of the count",
        lambda f: f"every {_pair(f['row_interval_mean_s'], f['row_interval_std_s'], ' s')}",
        "row_interval_mean_s",
    ),
    (
        "terminations",
        lambda f: f"every {_pair(f['termination_interval_mean_s'], f['termination_interval_std_s'], ' s')}",
        "termination_interval_mean_s",
    ),
    ("preemptions", lambda f: _size(f, "preemption"), "preemption_chance"),
    ("additions", lambda f: _size(f, "addition"), "addition_chance"),
    ("  regular ones", _regular, "regular_addition_mean"),
    ("fragments", _fragments, "fragments"),
    ("  their length", _lengths, "fragment_mean_s"),
    ("lifetimes", _lifetimes, "lifetime_mean_s"),
)


@click.command(epilog="Example: bftrainer trace stats idle.csv --figure nodes.svg")
@click.argument("file", type=FILE)
@click.option(
    "--recorded-terminations",
    "recorded",
    type=FILE,
    help="Terminations recorded beside a count trace.  [default: its falls]",
)
@click.option("--additions", type=FILE, help="Write the additions that were measured: CSV, dt,additions.")
@click.option("--terminations", type=FILE, help="Write the terminations that were measured: CSV, dt,preemptions.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--figure", type=FILE, help="Draw nodes over time and the survival curve: .png, .svg or .pdf.")
@click.option("--force", is_flag=True, help="Replace existing files.")
def stats(
    file: Path, recorded: Path | None, additions: Path | None, terminations: Path | None, as_json: bool,
    figure: Path | None, force: bool,
) -> None:  # fmt: skip
    """Print the figures of FILE: a node log, a spot event trace, a count trace or a termination trace."""
    from bftrainer.cli._shared.usage import refuse_figure, write_figure
    from bftrainer.cli.logs.trace_models import render_statistics
    from bftrainer.files.writing import refuse_existing
    from bftrainer.nodelogs.availability import read_availability, write_measured
    from bftrainer.spot.statistics import trace_statistics

    writes = (additions, terminations, figure)
    refuse_unused({"force": writes == (None, None, None) and "nothing is written"})
    refuse_inputs(*writes)
    refuse_figure(figure, force=force)
    for place in (additions, terminations):
        if place is not None:
            refuse_existing(place, force=force)
    trace = read_availability(file, lambda note: tell(f"Note: {note}"), recorded)
    found = trace_statistics(trace)
    if additions is not None or terminations is not None:
        at_start = write_measured(trace, additions, terminations)
        tell(f"Note: nodes at the start, for spot simulate --initial-nodes: {at_start}")
    if figure is not None:
        from bftrainer.spot.run_plots import trace_figure

        write_figure(figure, trace_figure(trace.counts, found.survival))
    click.echo(json.dumps(found.as_json(), indent=2) if as_json else render_statistics(found.figures))


_LEVELS = (
    click.option("--preemption-scale", type=float, help="minutes: factor of the chance of a preemption.  [default: 1]"),
    click.option("--addition-scale", type=float, help="minutes: factor of the chance of an addition.  [default: 1]"),
)
_HOLES = (
    size_option("--nodes", help="supercomputer: nodes of the machine.  [default: 4734]"),
    click.option("--idle-share", type=float, help="supercomputer: mean share of idle nodes.  [default: 0.0827]"),
    click.option(
        "--fragment-mean", "fragment_mean_s", type=float, help="supercomputer: mean fragment in seconds, log-normal."
    ),
    click.option("--fragment-median", "fragment_median_s", type=float, help="supercomputer: its median."),
    click.option("--daily-amplitude", type=float, help="supercomputer: of the daily cycle, 0 to 1.  [default: 0.375]"),
    click.option("--peak-hour", type=float, help="supercomputer: peak of the daily cycle, UTC.  [default: 16.4]"),
)


@click.command(
    cls=Sectioned,
    sections={
        "Common options": ("output", "model", "like", "days", "nodes", "idle_share", "initial_nodes", "start", "seed")
    },
    epilog="Example: bftrainer trace generate --nodes 200 --days 1 -o made.parquet",
)
@click.option("--like", type=FILE, help="Fit the model to this trace of any kind.")
@click.option(
    "--model",
    type=click.Choice(["minutes", "supercomputer"]),
    help="minutes: spot nodes; supercomputer: holes of a batch scheduler.  [default: minutes if LIKE is a spot or "
    "count trace, else supercomputer]",
)
@size_option("--days", usual=LARGE_DAYS, kind=click.FLOAT, default=14.0, show_default=True, help="Length of the trace.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same one gives the same bytes.")
@click.option(
    "--start", type=click.DateTime(), metavar="DATE", default="2021-01-01", help="UTC.  [default: 2021-01-01]"
)
@with_options(*_LEVELS, *minute_options("minutes: "), *_HOLES)
@click.option("-o", "--output", type=FILE, required=True, help="Node log to write: .parquet, .csv, .csv.gz or .pkl.")
@click.option("--spot", is_flag=True, help="Write a spot event trace beside it: x.parquet has x-spot.csv.")
@click.option("--counts", is_flag=True, help="Write x-preemptions.csv and x-additions.csv beside it.")
@click.option("--force", is_flag=True, help="Replace existing files.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def generate(
    like: Path | None, days: float, seed: int, start: datetime, output: Path, spot: bool, counts: bool, force: bool,
    as_json: bool, model: ModelName | None, **options: Any,
) -> None:  # fmt: skip
    """Generate a trace of nodes, which `bftrainer replay` and `bftrainer spot simulate` take as it is."""
    from bftrainer.files.writing import refuse_existing
    from bftrainer.model import instant_ns
    from bftrainer.nodelogs.availability import write_spot_trace
    from bftrainer.nodelogs.node_log_files import node_log_files, refuse_node_log, write_node_log
    from bftrainer.spot.generation import generate_trace, sibling, write_pair

    if not 1678 <= start.year < 2262:
        raise click.BadParameter(f"Expected a date between the years 1678 and 2262, got {start:%Y-%m-%d}.")
    refuse_node_log(output, force=force)
    beside = [sibling(output, "spot")] if spot else []
    beside += [sibling(output, what) for what in ("preemptions", "additions")] if counts else []
    refuse_inputs(*node_log_files(output), *beside)
    for path in beside:
        refuse_existing(path, force=force)
    chosen = {name: value for name, value in options.items() if value is not None}
    made = generate_trace(
        days, seed=seed, model=model, like=like, start_ns=instant_ns(start),
        warn=lambda note: tell(f"Note: {note}"), **chosen,
    )  # fmt: skip
    write_node_log(output, made.log)
    written = {output: f"node log of {len(made.log.nodes):,} nodes, {made.log.node.size:,} transitions"}
    if spot:
        write_spot_trace(beside[0], made.log)
        written[beside[0]] = "spot event trace"
    if counts:
        written |= {path: path.stem.rpartition("-")[2] for path in write_pair(output, made.log)}
    if as_json:
        figures = [asdict(figure) for figure in made.figures]
        click.echo(json.dumps({"files": [str(path) for path in written], "figures": figures}, indent=2))
        return
    click.echo("\n".join([*(f"{path}: {what}" for path, what in written.items()), *_made_table(made.figures)]))


def _made_table(figures: tuple[Figure, ...]) -> list[str]:
    """What was asked for, beside what came of it."""
    names = ("asked", "expected", "drawn", "realised")
    lines = [f"{'':24}" + "".join(f"{name:>12}" for name in names)]
    for figure in figures:
        values = (getattr(figure, name) for name in names)
        cells = ("" if value is None else f"{value:.5g}" for value in values)
        lines.append(f"{figure.name:24}" + "".join(f"{cell:>12}" for cell in cells))
    return lines
