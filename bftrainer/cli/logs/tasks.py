"""`bftrainer tasks`: make task sets and scalability curves."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from bftrainer.cli._shared import usage
from bftrainer.cli._shared.group import LazyGroup
from bftrainer.cli._shared.stdio import note, print_json

_COMMANDS = {
    "fit": ("logs.tasks:fit", "Turn measured throughput into a scaling section."),
    "generate": ("logs.tasks:generate", "Make a task set, hpo or nas."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, epilog="Example: bftrainer tasks fit measured.csv")
def tasks() -> None:
    """Make task sets and scalability curves."""


@usage.command(epilog="Example: bftrainer tasks generate --scenario hpo --count 20 -o trials.toml")
@click.option(
    "--scenario", type=click.Choice(["hpo", "nas"]), required=True, help="Equal trials of one model, or a mix."
)
@click.option("--count", type=usage.SIZE, required=True, help="Number of tasks.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="For rescale costs and the mix of models.")
@click.option("--model", default="shufflenet", help="Model of the trials (hpo).")
@click.option("--work", type=float, help="Images to train on, each task.  [default: 1.3e8, 100 epochs of ImageNet]")
@click.option("--min-nodes", type=usage.SIZE, default=1, help="Fewest nodes a task runs on.")
@click.option("--max-nodes", type=usage.SIZE, default=64, help="Most nodes a task runs on.")
@click.option("--interval", "interval_s", type=float, default=36.0, help="Seconds between submissions.")
@click.option(
    "--start", type=click.DateTime(), metavar="DATE", help="First submission, UTC.  [default: the window's start]"
)
@click.option("--user", help="Owner of the tasks.")
@click.option("--checkpoint-s", type=float, help="Seconds that saving takes a task; its changes then cost as much.")
@click.option("--restart-s", type=float, help="Seconds that loading and warming up take it, with --checkpoint-s.")
@usage.output_option("Task set to write: .toml or .pkl.")
@usage.force_option
def generate(
    scenario: Any, count: int, seed: int, work: float | None, start: datetime | None, output: Path, force: bool,
    checkpoint_s: float | None, restart_s: float | None, **options: Any,
) -> None:  # fmt: skip
    """Make a task set: trials of hyper-parameter optimisation (hpo) or architecture search (nas)."""
    import numpy as np

    from bftrainer.cli.logs.trace import checked_instant
    from bftrainer.tasksets import write_task_set
    from bftrainer.tasksets.task_generator import DEFAULT_WORK, generate_tasks

    options["start_ns"] = None if start is None else checked_instant(start)
    options["work"] = DEFAULT_WORK if work is None else work
    usage.refuse_unused({"model": scenario == "nas" and "nas is a mix of all models"})
    usage.refuse_files(output, force=force)
    generated = generate_tasks(scenario, count, np.random.default_rng(seed), **options)
    made = tuple(replace(task, checkpoint_s=checkpoint_s, restart_s=restart_s) for task in generated)
    for warning in write_task_set(output, made):
        note(warning)
    click.echo(f"{output}: {count:,} tasks")


@usage.command(epilog="Example: bftrainer tasks fit measured.csv")
@click.argument("throughput", type=usage.FILE)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of TOML.")
def fit(throughput: Path, as_json: bool) -> None:
    """Turn measured rows of THROUGHPUT, a CSV file with columns nodes and throughput, into a scaling section."""
    from bftrainer.tasksets.measurements import read_throughput_csv, scaling_section

    curve = read_throughput_csv(throughput)
    if as_json:
        print_json({"nodes": curve.nodes, "throughput": curve.throughput})
    else:
        click.echo(scaling_section(curve), nl=False)
