"""`bftrainer trace stats`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bftrainer.cli.streams import tell

__all__ = ["stats"]

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("file", type=FILE)
@click.option("--terminations", type=FILE, help="Terminations recorded beside a count trace.  [default: its falls]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--figure", type=FILE, help="Draw nodes over time and the survival curve: .png, .svg or .pdf.")
@click.option("--force", is_flag=True, help="Replace an existing figure.")
def stats(file: Path, terminations: Path | None, as_json: bool, figure: Path | None, force: bool) -> None:
    """Print the figures of FILE: a node log, a spot event trace, a count trace or a termination trace."""
    from bftrainer.cli.figure import refuse_figure, write_figure
    from bftrainer.cli.trace_table import render_statistics
    from bftrainer.spot.statistics import trace_statistics
    from bftrainer.traces.availability import read_availability

    refuse_figure(figure, force=force)
    trace = read_availability(file, lambda note: tell(f"Note: {note}"), terminations)
    found = trace_statistics(trace)
    if figure is not None:
        from bftrainer.report.trace_figures import trace_figure

        write_figure(figure, trace_figure(trace.counts, found.survival))
    click.echo(json.dumps(found.as_json(), indent=2) if as_json else render_statistics(found.figures))
