"""`bftrainer spot`: simulate checkpointed training on preemptible nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli import usage
from bftrainer.cli.group import CommandGroup
from bftrainer.cli.terminal import note, print_figures, print_records, tell
from bftrainer.cli.usage import FILE
from bftrainer.files.directories import check_free, result_directory

if TYPE_CHECKING:
    from bftrainer.spot.checkpointing import CheckpointedTraining
    from bftrainer.spot.run import Prices


@click.group(cls=CommandGroup, epilog="Example: bftrainer spot simulate --trace idle.csv")
def spot() -> None:
    """Simulate checkpointed pipeline-parallel training on preemptible nodes."""


_spot_options = usage.with_options(
    click.option("--profile", type=FILE, help="Measured times (TOML).  [default: a sample]"),
    click.option("--depth", type=int, default=16, help="Nodes per pipeline."),
    click.option("--max-world-size", type=int, default=64, help="Maximum number of active nodes."),
    click.option("--preparation", "preparation_s", default=180.0, help="Seconds from a node's arrival to standby."),
    click.option("--load-on-reconfigure", is_flag=True, help="Let reconfigurations load a checkpoint."),
    click.option(
        "--on-loss-during-reconfigure",
        type=click.Choice(["restart", "extend"]),
        default="restart",
        help="A loss then restarts it, or adds one.",
    ),
    click.option("--tick", "tick_s", type=float, help="Notice events only at multiples of this many seconds."),
    click.option("--cold-start", is_flag=True, help="Let the first nodes prepare and form pipelines, too."),
    click.option("--price", type=float, help="Price of a node-hour, in any currency."),
    click.option("--on-demand-price", type=float, help="Price of an on-demand node-hour, to compare with."),
    click.option("-o", "--output-dir", type=FILE, help="Write the results to this directory."),
    usage.json_option,
    usage.force_option,
)


@dataclass(frozen=True)
class _Request:
    """What the options that both commands have ask for."""

    settings: CheckpointedTraining
    prices: Prices | None
    profile: dict[str, str]
    output_dir: Path | None
    force: bool

    @classmethod
    def read(cls, options: dict[str, Any], figure: Path | None = None) -> _Request:
        """Take what both commands have out of their options; refuse places of results that cannot be used."""
        from bftrainer.spot.checkpointing import CheckpointedTraining
        from bftrainer.spot.run import Prices, load_profile, profile_source

        directory, force = options.pop("output_dir"), options.pop("force")
        if directory is not None:
            check_free(directory, force=force)
        usage.refuse_figure(figure, force=force)
        path = options.pop("profile")
        profile, source = load_profile(path), profile_source(path)
        usage.refuse_unused(
            {
                "load_on_reconfigure": not profile.load_s and "the profile has no time to load a checkpoint",
                "on_demand_price": options["price"] is None and "without --price nothing is compared",
            }
        )
        names = [field.name for field in fields(CheckpointedTraining) if field.name != "profile"]
        settings = CheckpointedTraining(profile, **{name: options.pop(name) for name in names})
        price, on_demand = options.pop("price"), options.pop("on_demand_price")
        prices = None if price is None else Prices(price, on_demand)
        return cls(settings, prices, source, directory, force)

    def write(self, write: Callable[[Path], None]) -> None:
        """Have the files written where that was asked for, and say where they are."""
        if self.output_dir is not None:
            with result_directory(self.output_dir, force=self.force) as place:
                write(place.working)
            tell(f"Results: {self.output_dir}")


def _parse_figure(text: str) -> tuple[str, float]:
    """Parameter of a model of nodes, and its value."""
    from bftrainer.spot.generation import MINUTE_OPTIONS
    from bftrainer.spot.supercomputer import HOLE_OPTIONS

    name, _, value = text.partition("=")
    names = {option.removesuffix("_s").replace("_", "-"): option for option in (*MINUTE_OPTIONS, *HOLE_OPTIONS)}
    return names[name], float(value)


def model_options(figures: str, before: str = "") -> Callable[[Any], Any]:
    """Options of a model of nodes, whose `figures` its help names, and bounds of the minutes, `before` their help."""
    kind = usage.Parsed("NAME=VALUE", _parse_figure, f"NAME=VALUE, with a name of {figures}")
    return usage.with_options(
        click.option("--set", "model_figures", type=kind, multiple=True, help=f"Figure of the model: {figures}."),
        click.option(
            "--initial-nodes", type=usage.SIZE, help=f"{before}Nodes at first.  [default: 32, or the trace's mean]"
        ),
        click.option("--max-nodes", type=usage.SIZE, help=f"{before}Most nodes.  [default: 64, or the trace's most]"),
    )


MINUTES = "preemption-chance, -mean, -std, addition-chance, -mean, -std, big-addition-share"
"""Names of the figures of the model of minutes."""


@spot.command(epilog="Example: bftrainer spot simulate --trace idle.csv --depth 2 -o training")
@click.option("--trace", type=FILE, required=True, help="Node log, spot event trace or count trace.")
@click.option("--additions", type=FILE, help="Additions that belong to the preemptions that --trace names then.")
@click.option("--initial-nodes", type=usage.SIZE, help="With --additions: nodes at the start.  [default: 32]")
@click.option("--figure", type=FILE, help="Draw the results: .png, .svg or .pdf.")
@_spot_options
def simulate(
    trace: Path, additions: Path | None, initial_nodes: int | None, figure: Path | None, **options: Any
) -> None:
    """Simulate a training run on a trace of preemptible nodes. It is pipeline-parallel, and saves checkpoints."""
    from bftrainer.spot.checkpointing import simulate as simulate_training
    from bftrainer.spot.run import load_log, run_figures, summarise_run, write_spot

    request = _Request.read(options, figure)
    log, sources = load_log(trace, additions, initial_nodes, note)
    run = simulate_training(log, request.settings)
    summary = summarise_run(run, request.prices, sources | {"profile": request.profile})

    if not usage.print_json_if_asked(lambda: summary):
        title = f"Checkpointed training on {summary['nodes']:,} nodes over {summary['span_s'] / 3600:,.2f} h"
        print_figures(title, run_figures(run, request.prices))
    request.write(lambda directory: write_spot(run, summary, directory))
    if figure is not None:
        from bftrainer.spot.run import run_figure

        usage.write_figure(figure, run_figure(run, summary))
        tell(f"Figure: {figure}")


_COLUMNS = (
    *("preemption_scale", "addition_scale", "iterations_per_hour", "iterations_per_hour_ci95", "iterations_lost"),
    *("training_s", "redoing_s", "reconfiguring_s", "stalled_s", "iterations_per_currency"),
)
_LEVELS = usage.Parsed("LEVELS", lambda text: tuple(map(float, text.split(","))), "numbers separated by commas")


@spot.command(epilog="Example: bftrainer spot sweep --preemption-scale 0.5,1,2 --days 0.1 --repeats 2")
@click.option("--like", type=FILE, help="Fit preemptions and additions to this trace.  [default: 64 spot instances]")
@click.option("--preemption-scale", type=_LEVELS, default="0.5,1,2", help="Levels of preemption.")
@click.option("--addition-scale", type=_LEVELS, default="1", help="Levels of addition.")
@click.option("--days", type=usage.POSITIVE, default=1.0, help="Length of each trace.")
@click.option("--repeats", type=usage.SIZE, default=10, help="Traces of each pair of levels.")
@click.option("--seed", type=int, default=0, help="The same one gives the same results.")
@model_options(MINUTES)
@click.option("--jobs", type=usage.PROCESSES, help="Processes.  [default: one per processor]")
@_spot_options
def sweep(
    like: Path | None, preemption_scale: tuple[float, ...], addition_scale: tuple[float, ...], days: float,
    repeats: int, seed: int, jobs: int | None, model_figures: tuple[tuple[str, float], ...],
    **options: Any,
) -> None:  # fmt: skip
    """Simulate over levels of preemption and addition. Each pair of levels is simulated many times."""
    from bftrainer.nodelogs.availability import read_availability
    from bftrainer.spot.generation import fit_minutes
    from bftrainer.spot.sweep import SpotSweep, sweep_spot, write_sweep

    request = _Request.read(options)
    trace = None if like is None else read_availability(like, note)
    changes = {key: value for key, value in options.items() if value is not None} | dict(model_figures)
    model = fit_minutes(trace, like).adjust(**changes)
    plan = SpotSweep(model, request.settings, preemption_scale, addition_scale, days, repeats, seed, request.prices)
    result = sweep_spot(plan, jobs)

    if not usage.print_json_if_asked(result.summary):
        print_records(result.rows, [name for name in _COLUMNS if result.rows[0][name] is not None])
    request.write(lambda directory: write_sweep(result, directory))
