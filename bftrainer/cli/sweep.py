"""`bftrainer sweep`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrainer.cli.streams import tell

if TYPE_CHECKING:
    from bftrainer.experiment.engines import Engine
    from bftrainer.experiment.sweep import PointResult

__all__ = ["sweep"]

FILE = click.Path(path_type=Path)
SHOWN = ("efficiency", "occupancy", "work_done", "tasks_completed", "makespan_s")
MOST_ROWS = 50


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("file", metavar="SWEEP.toml", type=FILE)
@click.option("-o", "--output-dir", "directory", type=FILE, help="Where runs and table go.  [default: <file>-sweep]")
@click.option("--engine", type=click.Choice(["local", "dask"]), help="What computes.  [default: local]")
@click.option(
    "--workers", type=click.IntRange(min=1), help="Processes of the engine local.  [default: one a processor]"
)
@click.option(
    "--scheduler", metavar="ADDRESS", help="Of a Dask cluster: tcp://host:8786. Its workers see the same files."
)
@click.option("--dask-jobqueue", "jobqueue", type=FILE, help="A TOML file: a Dask cluster of a batch system's jobs.")
@click.option("--resume", is_flag=True, help="Go on in an existing directory: finished points are not run again.")
@click.option("--force", is_flag=True, help="Delete an existing sweep and start anew.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.pass_context
def sweep(
    ctx: click.Context, file: Path, directory: Path | None, engine: str | None, workers: int | None,
    scheduler: str | None, jobqueue: Path | None, resume: bool, force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Replay a grid or list of settings, and put the figures of all into one table.

    Each run is kept under runs/, and the table is sweep.parquet: a row a point. A point that fails is reported and does
    not end the others; the exit status is 1 then.
    """
    from bftrainer.cli.counting import counting
    from bftrainer.experiment.sweep import prepare_directory, run_sweep
    from bftrainer.experiment.sweep_file import read_sweep

    spec = read_sweep(file)
    place = Path(f"{file.stem}-sweep") if directory is None else directory
    chosen = _engine(engine, workers, scheduler, jobqueue)
    prepare_directory(place, spec, resume=resume, force=force)
    try:
        with counting("Replaying", len(spec.points)) as count:
            result = run_sweep(spec, place, chosen, count)
    except KeyboardInterrupt:
        tell(f"Finished points are kept; --resume goes on in {place}.")
        raise
    if as_json:
        click.echo(json.dumps([_as_json(point) for point in result.points], indent=2, allow_nan=False))
    else:
        _print(result.points)
        click.echo(f"Table: {place / 'sweep.parquet'}")
    for point in result.failed:
        tell(f"Point {point.point.number} failed: {point.error}")
    ctx.exit(1 if result.failed else 0)


def _engine(name: str | None, workers: int | None, scheduler: str | None, jobqueue: Path | None) -> Engine:
    from bftrainer.experiment.engines import DaskEngine, LocalEngine

    on_dask = scheduler is not None or jobqueue is not None
    if name == "dask" or (name is None and on_dask):
        if workers is not None:
            raise click.UsageError("Expected --workers with the engine local only; a Dask cluster has its own.")
        return DaskEngine(scheduler, jobqueue)
    if on_dask:
        raise click.UsageError("Expected --scheduler and --dask-jobqueue with the engine dask only.")
    return LocalEngine(workers)


def _as_json(result: PointResult) -> dict[str, object]:
    from bftrainer.experiment.sweep import told_value

    varied = {name: told_value(value) for name, value in result.point.varied}
    return {"point": result.point.number, "options": varied, "error": result.error, "figures": dict(result.figures)}


def _print(results: Sequence[PointResult]) -> None:
    from bftrainer.cli.tables import print_table
    from bftrainer.experiment.sweep import told_value
    from bftrainer.report.glossary import GLOSSARY, shown

    if not results:
        return
    varied = [name for name, _ in results[0].point.varied]
    keys = [key for key in SHOWN if any(result.figures.get(key) is not None for result in results)]
    rows = []
    for result in results[:MOST_ROWS]:
        cells = ["-" if value is None else str(told_value(value)) for _, value in result.point.varied]
        figures = [shown(result.figures.get(key), GLOSSARY[key].unit) for key in keys]
        rows.append([str(result.point.number), *cells, *(figures if result.error is None else ["failed"] * len(keys))])
    print_table(["point", *varied, *(GLOSSARY[key].label for key in keys)], rows)
    if len(results) > MOST_ROWS:
        click.echo(f"... and {len(results) - MOST_ROWS:,} more in the table.")
