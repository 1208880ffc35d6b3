"""`bftrainer plot`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrainer.cli._shared.usage import refuse_inputs, refuse_unused

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot"]

FILE = click.Path(path_type=Path)
KINDS = ("pool", "gantt", "setting", "losses", "fragments", "energy")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("runs", metavar="RUN_DIR...", nargs=-1, required=True, type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="The figure: .png, .svg or .pdf.")
@click.option("--against", metavar="SETTING", default="forward_time_s", show_default=True, help="For kind setting.")
@click.option("--figure", metavar="NAME", default="efficiency", show_default=True, help="For kind setting.")
@click.option("--force", is_flag=True, help="Replace an existing figure.")
def plot(kind: str, runs: tuple[Path, ...], output: Path, against: str, figure: str, force: bool) -> None:
    """Draw a figure of finished runs for print.

    \b
    pool       idle and used nodes over time
    gantt      which task held nodes when; of one run
    setting    a figure of summary.json, efficiency unless said, against a setting
    losses     what rescaling, preemption, variability and horizon cost
    fragments  how long nodes stay idle
    energy     energy of tuned tasks against the time to their targets
    """  # noqa: D301
    from bftrainer.cli._shared.usage import refuse_figure, write_figure
    from bftrainer.report.drawing import figure_of
    from bftrainer.runs.finished import read_summary

    other = kind != "setting" and "of the kind setting alone"
    refuse_unused({"against": other, "figure": other})
    for run in runs:
        read_summary(run)  # what is no run is told before what is wrong with the figure's place
    refuse_inputs(output)
    refuse_figure(output, force=force)
    if kind == "gantt" and len(runs) > 1:
        raise click.UsageError(f"Expected one run for a Gantt chart, got {len(runs)}.")
    write_figure(output, figure_of(_drawn(kind, runs, against, figure)))
    click.echo(f"Figure: {output}")


def _drawn(kind: str, paths: tuple[Path, ...], against: str, figure: str) -> Axes:
    from bftrainer.report import run_figures
    from bftrainer.runs.finished import read_runs
    from bftrainer.runs.page import fragment_curves

    runs = read_runs(paths)
    if kind == "pool":
        return run_figures.plot_pool(runs)
    if kind == "gantt":
        return run_figures.plot_allocation(runs[0])
    if kind == "setting":
        return run_figures.plot_setting(runs, against, figure)
    if kind == "losses":
        return run_figures.plot_losses(runs)
    if kind == "energy":
        return run_figures.plot_energy(runs)
    return run_figures.plot_fragments(fragment_curves(paths, runs))
