"""`bftrainer sweep`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrainer.cli._shared.stdio import tell
from bftrainer.cli._shared.usage import LARGE_PROCESSES, check_size, large_option, refuse_unused, size_option
from bftrainer.cli.replay.options import USUAL
from bftrainer.report.glossary import ASSUMED, MARK
from bftrainer.runs.config import OPTIONS

if TYPE_CHECKING:
    from bftrainer.campaigns.engines import Engine
    from bftrainer.campaigns.sweep import PointResult
    from bftrainer.campaigns.sweep_file import SweepSpec

__all__ = ["sweep"]

FILE = click.Path(path_type=Path)
SHOWN = ("efficiency", "occupancy", "work_done", "tasks_completed", "makespan_s")
MOST_ROWS = 50


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("file", metavar="SWEEP.toml", type=FILE)
@click.option("-o", "--output-dir", "directory", type=FILE, help="Where runs and table go.  [default: <file>-sweep]")
@click.option("--engine", type=click.Choice(["local", "dask"]), help="What computes.  [default: local]")
@size_option(
    "--workers",
    usual=LARGE_PROCESSES,
    kind=click.IntRange(min=1),
    help="Processes of the engine local.  [default: one a processor]",
)
@click.option(
    "--scheduler", metavar="ADDRESS", help="Of a Dask cluster: tcp://host:8786. Its workers see the same files."
)
@click.option("--dask-jobqueue", "jobqueue", type=FILE, help="A TOML file: a Dask cluster of a batch system's jobs.")
@click.option("--resume", is_flag=True, help="Go on in an existing directory: finished points are not run again.")
@click.option("--force", is_flag=True, help="Compute an existing sweep anew: its runs are replaced one by one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.pass_context
@large_option
def sweep(
    ctx: click.Context, file: Path, directory: Path | None, engine: str | None, workers: int | None,
    scheduler: str | None, jobqueue: Path | None, resume: bool, force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Replay a grid or list of settings, and put the figures of all into one table.

    Each run is kept under runs/, and the table is sweep.parquet: a row a point. A point that fails is reported and does
    not end the others; the exit status is 1 then.
    """
    from bftrainer.campaigns.sweep import run_sweep
    from bftrainer.campaigns.sweep_file import read_sweep
    from bftrainer.cli._shared.progress import counting
    from bftrainer.runs.run import SAMPLE_TASKS_USED

    refuse_unused({"force": resume and "--resume goes on with what is there"})
    spec = read_sweep(file)
    _check_sizes(spec)
    place = Path(f"{file.stem}-sweep") if directory is None else directory
    chosen = _engine(engine, workers, scheduler, jobqueue, place)
    try:
        with counting("Replaying", len(spec.points)) as count:
            result = run_sweep(spec, place, chosen, count, resume=resume, force=force)
    except KeyboardInterrupt:
        if place.is_dir():
            tell(f"Finished points are kept; --resume goes on in {place}.")
        raise
    if any(
        "tasks" not in {**spec.base, **point} and {"node_log", "trace_seed"} & {*spec.base, *point}
        for point in spec.points
    ):
        tell(f"Note: {SAMPLE_TASKS_USED}")
    if as_json:
        click.echo(json.dumps([_as_json(point) for point in result.points], indent=2, allow_nan=False))
    else:
        _print(result.points)
        click.echo(f"Table: {place / 'sweep.parquet'}")
    for point in result.failed:
        tell(f"Point {point.point.number} failed: {point.error}")
    ctx.exit(1 if result.failed else 0)


def _check_sizes(spec: SweepSpec) -> None:
    """Have sizes in the file confirmed as those that are typed."""
    for name, option in OPTIONS.items():
        if option.sized:
            given = [point.get(name, spec.base.get(name, 0)) for point in spec.points]
            check_size(f"{name} of {spec.path}", max(given, default=0), USUAL[option.sized])


def _engine(name: str | None, workers: int | None, scheduler: str | None, jobqueue: Path | None, place: Path) -> Engine:
    from bftrainer.campaigns.engines import DaskEngine, LocalEngine
    from bftrainer.campaigns.sweep_directory import JOB_LOGS

    on_dask = name == "dask" or (name is None and (scheduler is not None or jobqueue is not None))
    locally = not on_dask and "of the engine dask alone"
    refuse_unused(
        {"workers": on_dask and "a Dask cluster has its own", "scheduler": locally, "jobqueue": locally},
    )
    return DaskEngine(scheduler, jobqueue, place / JOB_LOGS) if on_dask else LocalEngine(workers)


def _as_json(result: PointResult) -> dict[str, object]:
    from bftrainer.campaigns.sweep import told_value

    varied = {name: told_value(value) for name, value in result.point.varied}
    told = {"point": result.point.number, "options": varied, "error": result.error, "figures": dict(result.figures)}
    return told if result.assumed is None else told | {"assumed_scaling": result.assumed.note}


def _print(results: Sequence[PointResult]) -> None:
    from bftrainer.campaigns.sweep import told_value
    from bftrainer.cli._shared.stdio import print_table
    from bftrainer.report.glossary import GLOSSARY, shown

    if not results:
        return
    varied = [name for name, _ in results[0].point.varied]
    keys = [key for key in SHOWN if any(result.figures.get(key) is not None for result in results)]
    rows = []
    for result in results[:MOST_ROWS]:
        cells = ["-" if value is None else str(told_value(value)) for _, value in result.point.varied]
        figures = [_marked(result, key) + shown(result.figures.get(key), GLOSSARY[key].unit) for key in keys]
        rows.append([str(result.point.number), *cells, *(figures if result.error is None else ["failed"] * len(keys))])
    print_table(["point", *varied, *(GLOSSARY[key].label for key in keys)], rows)
    if len(results) > MOST_ROWS:
        click.echo(f"... and {len(results) - MOST_ROWS:,} more in the table.")
    for note in dict.fromkeys(result.assumed.note for result in results if result.assumed):
        click.echo(f"{MARK} {ASSUMED}: {note}")


def _marked(result: PointResult, key: str) -> str:
    return f"{MARK} " if result.assumed and result.figures.get(key) is not None and result.assumed.bears(key) else ""
