"""`bftrainer trace stats`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bftrainer.cli._shared.places import refuse_inputs
from bftrainer.cli._shared.stdio import tell
from bftrainer.cli._shared.unused import refuse_unused

__all__ = ["stats"]

FILE = click.Path(path_type=Path)


@click.command()
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
    from bftrainer.cli._shared.figure import refuse_figure, write_figure
    from bftrainer.cli.logs.trace_table import render_statistics
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
        from bftrainer.report.trace_figures import trace_figure

        write_figure(figure, trace_figure(trace.counts, found.survival))
    click.echo(json.dumps(found.as_json(), indent=2) if as_json else render_statistics(found.figures))
