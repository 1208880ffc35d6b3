"""`bftrainer spot`: simulate checkpointed training on preemptible nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.group import LazyGroup
from bftrainer.cli._shared.stdio import tell
from bftrainer.cli._shared.usage import (
    LARGE_DAYS,
    LARGE_PROCESSES,
    Parsed,
    Sectioned,
    check_size,
    refuse_figure,
    refuse_inputs,
    refuse_unused,
    size_option,
    write_figure,
)
from bftrainer.cli.zeus.zeus_options import FILE, with_options

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bftrainer.spot.checkpointing import CheckpointedTraining
    from bftrainer.spot.run import Prices

_COMMANDS = {
    "simulate": ("bftrainer.cli.spot", "simulate", "Simulate a training run on a trace of nodes."),
    "sweep": ("bftrainer.cli.spot", "sweep", "Simulate over levels of preemption and addition."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, epilog="Example: bftrainer spot simulate --trace idle.csv")
def spot() -> None:
    """Simulate checkpointed pipeline-parallel training on preemptible nodes."""


_spot_options = with_options(
    click.option(
        "--profile",
        type=FILE,
        help="Measured times of the run: TOML, or a directory with raw CSVs.  [default: an embedded sample]",
    ),
    click.option("--depth", type=int, default=16, help="Nodes per pipeline."),
    click.option("--max-world-size", type=int, default=64, help="Maximum number of active nodes."),
    click.option(
        "--preparation",
        "preparation_s",
        type=float,
        default=180.0,
        help="Seconds from a node's arrival until it is on standby.",
    ),
    click.option("--load-on-reconfigure", is_flag=True, help="Let reconfigurations load a checkpoint."),
    click.option(
        "--on-loss-during-reconfigure",
        type=click.Choice(["restart", "extend"]),
        default="restart",
        help="What a loss during a reconfiguration does: restart it, or add one.",
    ),
    click.option("--tick", "tick_s", type=float, help="Notice events only at multiples of this many seconds."),
    click.option("--cold-start", is_flag=True, help="Let the first nodes prepare and form pipelines, too."),
    click.option("--samples-per-iteration", type=float, help="To tell samples per second.  [default: the profile's]"),
    click.option("--price", type=float, help="Price of a node-hour, in any currency."),
    click.option("--on-demand-price", type=float, help="Price of an on-demand node-hour, to compare with."),
    click.option("-o", "--output-dir", type=FILE, help="Write the results to this directory."),
    click.option("--figure", type=FILE, help="Draw the results: .png, .svg or .pdf."),
    click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON instead of a table."),
    click.option("--force", is_flag=True, help="Replace existing results."),
)
_SPOT_COMMAND: dict[str, Any] = {
    "cls": Sectioned,
    "sections": {
        "Common options": (
            *("trace", "like", "preemption_scale", "addition_scale", "days", "repeats", "profile", "depth"),
            *("max_world_size", "price", "output_dir", "figure", "as_json"),
        )
    },
    "context_settings": {"show_default": True},
}


@dataclass(frozen=True)
class _Asked:
    """What the options that both commands have ask for."""

    settings: CheckpointedTraining
    prices: Prices | None
    profile: dict[str, str]
    output_dir: Path | None
    figure: Path | None
    force: bool

    @classmethod
    def of(cls, options: dict[str, Any]) -> _Asked:
        """Take what both commands have out of their options; refuse places of results that cannot be used."""
        from bftrainer.files.directories import check_free
        from bftrainer.spot.checkpointing import CheckpointedTraining
        from bftrainer.spot.run import Prices, load_profile

        directory, figure, force = (options.pop(name) for name in ("output_dir", "figure", "force"))
        refuse_unused({"force": directory is figure is None and "nothing is written"})
        if directory is not None:
            check_free(directory, force=force)
        refuse_inputs(figure)
        refuse_figure(figure, force=force)
        profile, source = load_profile(options.pop("profile"))
        if (samples := options.pop("samples_per_iteration")) is not None:
            profile = replace(profile, samples_per_iteration=samples)
        refuse_unused({"load_on_reconfigure": not profile.load_s and "the profile has no time to load a checkpoint"})
        names = [each.name for each in fields(CheckpointedTraining) if each.name != "profile"]
        settings = CheckpointedTraining(profile, **{name: options.pop(name) for name in names})
        price, on_demand = options.pop("price"), options.pop("on_demand_price")
        refuse_unused({"on_demand_price": price is None and "without --price nothing is compared"})
        prices = None if price is None else Prices(price, on_demand)
        return cls(settings, prices, source, directory, figure, force)

    def write(self, write: Callable[[Path], None], draw: Callable[[], Axes | Figure]) -> None:
        """Have the files written and the figure drawn where that was asked for, and say where they are."""
        from bftrainer.files.directories import result_directory

        if self.output_dir is not None:
            with result_directory([self.output_dir], force=self.force) as place:
                write(place.working)
            tell(f"Results: {self.output_dir}")
        if self.figure is not None:
            write_figure(self.figure, draw())
            tell(f"Figure: {self.figure}")


def minute_options(before: str = "") -> tuple[Callable[[Any], Any], ...]:
    """Options of the minute model without the levels; each line of help begins with `before`."""
    figures = (
        ("preemption-chance", "Chance that a minute sees a preemption", "0.16338"),
        ("preemption-mean", "Mean number of nodes of a preemption", "2.4138"),
        ("preemption-std", "Its standard deviation", "2.0862"),
        ("addition-chance", "Chance that a minute sees an addition", "0.14366"),
        ("addition-mean", "Mean number of nodes of a regular addition", "2.5417"),
        ("addition-std", "Its standard deviation", "1.9456"),
        ("big-addition-share", "Share of additions of 11 to 31 nodes", "0.0588"),
    )
    return (
        *(
            click.option(
                f"--{name}",
                type=float,
                help=f"{before}{what}.  [default: {usual}, or that of the trace it is like]",
            )
            for name, what, usual in figures
        ),
        size_option("--initial-nodes", help=f"{before}Nodes at the start.  [default: 32, or the trace's mean]"),
        size_option("--max-nodes", help=f"{before}Nodes at most.  [default: 64, or the trace's largest number]"),
    )


@click.command(**_SPOT_COMMAND, epilog="Example: bftrainer spot simulate --trace idle.csv --depth 2 -o training")
@click.option("--trace", type=FILE, required=True, help="Node log, spot event trace or count trace.")
@click.option("--additions", type=FILE, help="Additions that belong to the preemptions that --trace names then.")
@size_option("--initial-nodes", help="With --additions: nodes at the start.  [default: 32]")
@_spot_options
def simulate(trace: Path, additions: Path | None, initial_nodes: int | None, as_json: bool, **options: Any) -> None:
    """Simulate a checkpointed pipeline-parallel training run on a trace of preemptible nodes."""
    from bftrainer.spot.checkpointing import simulate as simulate_training
    from bftrainer.spot.run import load_log, summarise_run, write_spot

    asked = _Asked.of(options)
    log, sources = load_log(trace, additions, initial_nodes, lambda note: tell(f"Note: {note}"))
    run = simulate_training(log, asked.settings)
    summary = summarise_run(run, asked.prices, sources | {"profile": asked.profile})

    def draw() -> Figure:
        from bftrainer.spot.run_plots import run_figure

        return run_figure(run, summary)

    click.echo(json.dumps(summary, indent=2) if as_json else "\n".join(_table(summary)))
    asked.write(lambda directory: write_spot(run, summary, directory), draw)


_INDENT = 23


def _table(summary: Mapping[str, Any]) -> list[str]:
    """Headline figures, one a line."""
    figures = {name: 0 if value is None else value for name, value in summary.items()}
    span_h = figures["span_s"] / 3600.0
    rows = {
        "iterations": "{iterations_done:,} done, {iterations_executed:,} executed, {iterations_lost:,} lost",
        "throughput": "{iterations_per_hour:,.1f} iterations/h",
        "reconfigurations": "{reconfigurations:,}, {reconfiguration_restarts:,} drawn out",
        "checkpoints": "{checkpoints:,}, {checkpoints_lost:,} lost on the way",
        "preemptions": "{preemptions:,} nodes, {active_preemptions:,} of them active",
        "node-hours": "{node_hours_held:,.1f} held, {node_hours_used:,.1f} used",
        "world size": "{mean_world_size:.1f} mean, {largest_world_size} largest",
        "cost": "{cost:,.2f}",
        "on demand": (
            "{on_demand_cost:,.2f}, {on_demand_iterations_per_currency:,.2f} iterations per unit on "
            "{on_demand_nodes} nodes"
        ),
    }
    more = {
        "throughput": ("samples_per_s", ", {samples_per_s:,.2f} samples/s"),
        "cost": ("iterations_per_currency", ", {iterations_per_currency:,.2f} iterations per unit"),
        "on demand": ("value_against_on_demand", "; spot is worth {value_against_on_demand:.2f} times that"),
    }
    lines = [f"Checkpointed training on {figures['nodes']:,} nodes over {span_h:,.2f} h"]
    for label, text in rows.items():
        needed, rest = more.get(label, ("nodes", ""))
        if label not in ("cost", "on demand") or summary["cost" if label == "cost" else "on_demand_cost"] is not None:
            lines.append(f"{label:{_INDENT}}{(text + rest * (summary[needed] is not None)).format(**figures)}")
    times = [(name, figures[f"{name}_s"]) for name in ("training", "redoing", "reconfiguring", "stalled")]
    share = 100.0 / figures["span_s"] if figures["span_s"] else 0.0
    lines[3:3] = [f"{name:{_INDENT}}{time_s / 3600.0:,.2f} h, {share * time_s:.1f} %" for name, time_s in times]
    return lines


_LEVELS = Parsed("LEVELS", lambda text: tuple(map(float, text.split(","))), "numbers separated by commas")


@click.command(
    **_SPOT_COMMAND, epilog="Example: bftrainer spot sweep --preemption-scale 0.5,1,2 --days 0.1 --repeats 2"
)
@click.option("--like", type=FILE, help="Fit preemptions and additions to this trace.  [default: 64 spot instances]")
@click.option("--preemption-scale", type=_LEVELS, default="0.5,1,2", help="Levels of preemption.")
@click.option("--addition-scale", type=_LEVELS, default="1", help="Levels of addition.")
@size_option("--days", usual=LARGE_DAYS, kind=click.FLOAT, default=1.0, help="Length of each trace.")
@size_option("--repeats", default=10, help="Traces of each pair of levels.")
@click.option("--seed", type=int, default=0, help="The same one gives the same results.")
@with_options(*minute_options())
@size_option("--jobs", usual=LARGE_PROCESSES, help="Processes.  [default: one per processor]")
@_spot_options
def sweep(
    like: Path | None, preemption_scale: tuple[float, ...], addition_scale: tuple[float, ...], days: float,
    repeats: int, seed: int, jobs: int | None, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Simulate training over levels of preemption and addition, many times each."""
    from bftrainer.nodelogs.availability import read_availability
    from bftrainer.spot.generation import fit_minutes
    from bftrainer.spot.sweep import SpotSweep, sweep_spot, write_sweep

    asked = _Asked.of(options)
    trace = None if like is None else read_availability(like, lambda note: tell(f"Note: {note}"))
    model = fit_minutes(trace, like).changed(**{key: value for key, value in options.items() if value is not None})
    made = SpotSweep(model, asked.settings, preemption_scale, addition_scale, days, repeats, seed, asked.prices)
    check_size("traces", len(made.levels) * repeats)
    result = sweep_spot(made, jobs)

    def draw() -> Axes:
        from bftrainer.spot.run_plots import plot_sweep

        return plot_sweep(result.rows)

    click.echo(json.dumps(result.summary(), indent=2) if as_json else "\n".join(_levels_table(result.rows)))
    asked.write(lambda directory: write_sweep(result, directory), draw)


def _levels_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line per pair of levels: means, with half the width of their 95 % confidence intervals."""
    columns = {
        "iterations_per_hour": "iter./hour",
        "iterations_lost": "iter._lost",
        "training_s": "training h",
        "redoing_s": "redoing h",
        "reconfiguring_s": "reconfiguring h",
        "stalled_s": "stalled h",
    }
    if rows[0]["iterations_per_currency"] is not None:
        columns["iterations_per_currency"] = "iter./currency"
    lines = [f"{'preempt.':>8} {'add.':>6}" + "".join(f"{title:>20}" for title in columns.values())]
    for row in rows:
        levels = f"{row['preemption_scale']:>8g} {row['addition_scale']:>6g}"
        lines.append(levels + "".join(f"{_cell(row, name):>20}" for name in columns))
    return lines


def _cell(row: Mapping[str, Any], name: str) -> str:
    unit = 3600.0 if name.endswith("_s") else 1.0
    mean, width = row[name], row[f"{name}_ci95"]
    if mean is None:
        return "-"
    return f"{mean / unit:,.2f}" + ("" if width is None else f" +- {width / unit:,.2f}")
