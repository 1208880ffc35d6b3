"""`bftrainer zeus groups`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.usage import LARGE_TOTAL, check_size, large_option, size_option
from bftrainer.cli.zeus.options import (
    FILE,
    job_choice,
    job_options,
    knob_options,
    knobs,
    output_options,
    policy_options,
    seed_options,
    server_costs_option,
    trace_options,
    with_options,
)

if TYPE_CHECKING:
    from bftrainer.zeus import Group, Job
    from bftrainer.zeus.simulation.campaign import Simulation
    from bftrainer.zeus.simulation.compare import GroupTotals

__all__ = ["groups"]

_group_options = with_options(
    click.option(
        "--groups",
        "groups_file",
        type=FILE,
        help="Groups: CSV, also packed by xz, gzip or bzip2.  [default: embedded]",
    ),
    click.option("--group", "names", metavar="NAME", multiple=True, help="Simulate this group alone; repeatable."),
    click.option("--dataset", "datasets", metavar="NAME", multiple=True, help="Groups of this dataset; repeatable."),
)
_correction_options = with_options(
    click.option(
        "--group-never-ran-cost",
        is_flag=True,
        help="Correct what is published: a run whose bound allows for no epoch is observed at 100 times the bound, not "
        "at 0.",
    ),
    click.option(
        "--group-min-cost-accumulates",
        is_flag=True,
        help="Correct what is published: bounds follow the cost of all tries of a job, not the last one's.",
    ),
    server_costs_option,
    size_option(
        "--max-retries",
        kind=click.IntRange(min=0),
        help="Times that a job is run again before its group gives up.  [default: 100]",
    ),
)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@_group_options
@trace_options
@job_options
@knob_options
@policy_options
@_correction_options
@seed_options(1)
@output_options
@large_option
def groups(
    groups_file: Path | None,
    names: tuple[str, ...],
    datasets: tuple[str, ...],
    train: Path | None,
    power: Path | None,
    seeds: int,
    workers: int | None,
    output: Path | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Simulate groups of recurring jobs that may overlap, each job a recurrence of the one that has its dataset.

    Energy, time and cost are those of the traced jobs times each job's runtime_ratio. Every group draws from a seed of
    its own, made of --seed and its name.
    """
    from bftrainer.cli.zeus.output import check_output, finish, finite, simulated
    from bftrainer.zeus.simulation.compare import group_totals
    from bftrainer.zeus.simulation.inputs import choose_groups, choose_jobs, load_groups, load_traces

    check_output(output, force=force)
    inputs = load_traces(train, power)
    known, source = load_groups(groups_file)
    chosen = choose_groups(known, choose_jobs(inputs, job_choice(options)), names, datasets)
    simulations = _simulations(chosen, seeds, options)
    check_size("groups of all seeds", len(simulations), LARGE_TOTAL)
    results = simulated("Simulating", simulations, inputs, workers, output, groups=source)
    by_seed = [results[start : start + len(chosen)] for start in range(0, len(results), len(chosen))]
    rows = group_totals(by_seed)
    if as_json:
        about = {"seeds": seeds, **finite(knobs(options)), **inputs.about(groups=source)}
        click.echo(json.dumps(about | {"totals": [row.to_dict() for row in rows]}, indent=2, allow_nan=False))
    else:
        _print(rows)
    finish(results)


def _simulations(chosen: Sequence[tuple[Group, Job]], seeds: int, options: dict[str, Any]) -> list[Simulation]:
    """All groups with the first seed, then all with the next."""
    from bftrainer.zeus import Corrections
    from bftrainer.zeus.simulation.campaign import Simulation, group_seed
    from bftrainer.zeus.simulation.groups import MAX_GROUP_RETRIES

    corrections = Corrections(
        group_never_ran_cost=options["group_never_ran_cost"],
        group_min_cost_accumulates=options["group_min_cost_accumulates"],
        server_costs=options["server_costs"],
    )
    retries = options["max_retries"]
    settings = knobs(options) | {
        "policy": options["policy"],
        "power_policy": options["power_policy"],
        "corrections": corrections,
        "max_group_retries": MAX_GROUP_RETRIES if retries is None else retries,
    }
    first = settings.pop("seed")
    return [
        Simulation(job, None, group, seed=group_seed(seed, group.name), **settings)
        for seed in range(first, first + seeds)
        for group, job in chosen
    ]


def _print(rows: Sequence[GroupTotals]) -> None:
    from bftrainer.cli._shared.stdio import print_table
    from bftrainer.cli.zeus.output import amount

    headings = ("dataset", "groups", "jobs", "retries", "energy (J)", "time (s)", "cost (J)")
    failures = any(row.failed for row in rows)
    lines = [
        (
            row.dataset or "all",
            f"{row.groups:,}",
            f"{row.jobs:,}",
            *map(amount, (row.retries, row.energy_j, row.time_s, row.cost_j)),
            *((f"{row.failed:,}",) if failures else ()),
        )
        for row in rows
    ]
    print_table((*headings, *(("failed",) if failures else ())), lines)
