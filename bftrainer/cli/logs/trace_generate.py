"""`bftrainer trace generate`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.outputs import refuse_inputs
from bftrainer.cli._shared.stdio import tell
from bftrainer.cli._shared.usage import LARGE_DAYS, large_option, size_option
from bftrainer.cli.spot.options import minute_options

if TYPE_CHECKING:
    from bftrainer.spot.generation import Figure

__all__ = ["generate"]

FILE = click.Path(path_type=Path)

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
    click.option("--hole-mean", type=float, help="supercomputer: mean number of nodes of a hole, log-normal."),
    click.option("--hole-median", type=float, help="supercomputer: its median."),
    click.option("--daily-amplitude", type=float, help="supercomputer: of the daily cycle, 0 to 1.  [default: 0.375]"),
    click.option("--peak-hour", type=float, help="supercomputer: peak of the daily cycle, UTC.  [default: 16.4]"),
    click.option(
        "--drains", "drains_per_day", type=float, help="supercomputer: let large holes come in so many drains a day."
    ),
)


def _model_options(command: Any) -> Any:
    for option in reversed((*_LEVELS, *minute_options("minutes: "), *_HOLES)):
        command = option(command)
    return command


@click.command()
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
@_model_options
@click.option("-o", "--output", type=FILE, required=True, help="Node log to write: .parquet, .csv, .csv.gz or .pkl.")
@click.option("--spot", is_flag=True, help="Write a spot event trace beside it: x.parquet has x-spot.csv.")
@click.option("--counts", is_flag=True, help="Write x-preemptions.csv and x-additions.csv beside it.")
@click.option("--force", is_flag=True, help="Replace existing files.")
@large_option
def generate(
    like: Path | None, days: float, seed: int, start: datetime, output: Path, spot: bool, counts: bool, force: bool,
    model: str | None, **options: Any,
) -> None:  # fmt: skip
    """Generate a trace of nodes, which `bftrainer replay` and `bftrainer spot simulate` take as it is."""
    from bftrainer.files.writing import refuse_existing
    from bftrainer.model import instant_ns
    from bftrainer.nodelogs.availability import write_spot_trace
    from bftrainer.nodelogs.store import node_log_files, refuse_node_log, write_node_log
    from bftrainer.spot.generation import GenerationConfig, HoleOptions, generate_trace, sibling, write_pair
    from bftrainer.spot.minute_model import MinuteOptions

    if not 1678 <= start.year < 2262:
        raise click.BadParameter(f"Expected a date between the years 1678 and 2262, got {start:%Y-%m-%d}.")
    refuse_node_log(output, force=force)
    beside = [sibling(output, "spot")] if spot else []
    beside += [sibling(output, what) for what in ("preemptions", "additions")] if counts else []
    refuse_inputs(*node_log_files(output), *beside)
    for path in beside:
        refuse_existing(path, force=force)
    minutes = MinuteOptions(**{key: options.pop(key) for key in MinuteOptions.__dataclass_fields__})
    config = GenerationConfig(days, seed, model, like, instant_ns(start), minutes, HoleOptions(**options))  # type: ignore[arg-type]
    made = generate_trace(config, lambda note: tell(f"Note: {note}"))
    write_node_log(output, made.log)
    click.echo(f"{output}: node log of {len(made.log.nodes):,} nodes, {made.log.time_ns.size:,} transitions")
    if spot:
        write_spot_trace(sibling(output, "spot"), made.log)
        click.echo(f"{sibling(output, 'spot')}: spot event trace")
    if counts:
        for path in write_pair(output, made.log):
            click.echo(f"{path}: {path.stem.rpartition('-')[2]}")
    click.echo("\n".join(_table(made.figures)))


def _table(figures: tuple[Figure, ...]) -> list[str]:
    """What was asked for, beside what came of it."""
    names = ("asked", "expected", "drawn", "realised")
    lines = [f"{'':24}" + "".join(f"{name:>12}" for name in names)]
    for figure in figures:
        values = (getattr(figure, name) for name in names)
        cells = ("" if value is None else f"{value:.5g}" for value in values)
        lines.append(f"{figure.name:24}" + "".join(f"{cell:>12}" for cell in cells))
    return lines
