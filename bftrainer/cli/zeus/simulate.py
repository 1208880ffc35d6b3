"""`bftrainer zeus simulate`, `compare` and `groups`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.stdio import print_table
from bftrainer.cli._shared.usage import Sectioned, size_option
from bftrainer.cli.zeus.zeus_options import (
    FILE,
    SECTIONS,
    SETTINGS,
    figure_options,
    job_choice,
    job_options,
    knob_options,
    knobs,
    output_options,
    policy_names,
    policy_options,
    seed_options,
    server_costs_option,
    trace_options,
    with_options,
)

if TYPE_CHECKING:
    from bftrainer.report.intervals import Estimate
    from bftrainer.zeus import Group, Job
    from bftrainer.zeus.simulation.campaign import Simulation, SimulationResult
    from bftrainer.zeus.simulation.inputs import ZeusInputs
    from bftrainer.zeus.simulation.optimum import GroupTotals, PolicyComparison, ZeusSummary


@click.command(
    cls=Sectioned,
    sections=SECTIONS,
    context_settings=SETTINGS,
    epilog="Example: bftrainer zeus simulate --recurrences 20 -o runs.json",
)
@trace_options
@job_options
@size_option("--recurrences", kind=click.IntRange(min=1), default=100, help="Times that the job recurs.")
@knob_options
@policy_options
@server_costs_option
@seed_options(1)
@figure_options
@output_options
def simulate(recurrences: int, seeds: int, as_json: bool, **options: Any) -> None:
    """Simulate the recurrences of a job whose batch size and power limit are tuned from run to run.

    One job and seed are shown run by run; several, a line each. The setting that a simulation converged to is the most
    frequent one of the last tenth of its recurrences (at least five). Regret is what recurrences cost beyond the mean
    cost of the traces' cheapest setting; the final one is the mean of those last recurrences.
    """
    from bftrainer.cli.zeus.output import finish, opened, print_runs, print_simulations, print_summary, simulated
    from bftrainer.zeus import Corrections
    from bftrainer.zeus.simulation.campaign import Simulation, with_seeds
    from bftrainer.zeus.simulation.inputs import choose_jobs
    from bftrainer.zeus.simulation.optimum import summarise

    inputs = opened(options)
    jobs = choose_jobs(inputs, job_choice(options), one=True)
    settings = {name: options[name] for name in ("policy", "power_policy")} | knobs(options)
    corrections = Corrections(server_costs=options["server_costs"])
    first = [Simulation(job, recurrences, corrections=corrections, **settings) for job in jobs]
    simulations = [each for simulation in first for each in with_seeds(simulation, seeds)]
    size = ("recurrences of all jobs and seeds", recurrences * len(simulations))
    results = simulated("Simulating", simulations, inputs, options, size, fronts=True)
    summaries = [summarise(inputs.trace, result) for result in results]
    if as_json:
        _print_json(results, summaries, inputs)
    elif len(results) == 1:
        print_runs(results[0])
        print_summary(summaries[0])
    else:
        print_simulations(results, summaries)
    finish(results)


def _print_json(results: Sequence[SimulationResult], summaries: Sequence[ZeusSummary], inputs: ZeusInputs) -> None:
    from bftrainer.zeus.simulation.files import results_document

    document = results_document(results, inputs.about())
    for each, summary in zip(document["simulations"], summaries, strict=True):
        each["summary"] = summary.to_dict()
    click.echo(json.dumps(document, indent=2, allow_nan=False))


POLICIES = ("grid", "ucb", "zeus", "oracle")


@click.command(
    cls=Sectioned,
    sections=SECTIONS,
    context_settings=SETTINGS,
    epilog="Example: bftrainer zeus compare --policy zeus --recurrences 20 --seeds 2",
)
@trace_options
@job_options
@click.option(
    "--policy",
    "policies",
    metavar="NAME[+NAME]",
    multiple=True,
    default=POLICIES,
    shell_complete=policy_names,
    help="Policy for batch sizes and, after a +, for power limits (jit unless said); repeatable.",
)
@size_option("--recurrences", kind=click.IntRange(min=1), default=100, help="Times that each job recurs.")
@knob_options
@seed_options(10)
@figure_options
@output_options
def compare(policies: tuple[str, ...], recurrences: int, seeds: int, as_json: bool, **options: Any) -> None:
    """Compare policies on jobs: what a recurrence takes, as means over seeds with 95 % intervals.

    The baseline, the default batch size at the highest power limit (default+max-power), is always among them; what the
    others take is also given relative to it, of several jobs as geometric mean.
    """
    from bftrainer.cli.zeus.output import finish, finite, opened, simulated
    from bftrainer.zeus.simulation.inputs import choose_jobs
    from bftrainer.zeus.simulation.optimum import PolicyPair, compare_all, compare_policies, simulations_of

    pairs = [PolicyPair.parse(text) for text in policies]
    inputs = opened(options)
    jobs = choose_jobs(inputs, job_choice(options))
    simulations = simulations_of(jobs, pairs, seeds, recurrences=recurrences, **knobs(options))
    size = ("recurrences of all jobs and seeds", recurrences * len(simulations))
    results = simulated("Comparing", simulations, inputs, options, size)
    rows = compare_policies(inputs.trace, results)
    if len(jobs) > 1:
        rows += compare_all(results)
    if as_json:
        about = {"seeds": seeds, "recurrences": recurrences, **finite(knobs(options)), **inputs.about()}
        comparisons = {"comparisons": [row.to_dict() for row in rows]}
        click.echo(json.dumps(about | comparisons, indent=2, allow_nan=False))
    else:
        _print_comparisons(rows, seeds)
    finish(results)


def _print_comparisons(rows: Sequence[PolicyComparison], seeds: int) -> None:
    from bftrainer.cli.zeus.output import amount

    absolute = ("cost (J)", "energy (J)", "time (s)", "cumulative regret (J)")
    for job in dict.fromkeys(row.job for row in rows):
        own = [row for row in rows if row.job == job]
        click.echo(f"{job or 'all jobs'}, {seeds} seeds; cost, energy and time relative to default+max-power")
        lines = []
        for row in own:
            amounts = () if job is None else map(amount, (row.cost_j, row.energy_j, row.time_s, row.regret_j))
            lines.append((str(row.policies), *amounts, *map(_format_change, row.relative.values())))
        _print_rows(("policies", *(() if job is None else absolute), "cost", "energy", "time"), lines, own)
        click.echo()


def _format_change(ratio: Estimate | None) -> str:
    if ratio is None:
        return "-"
    spread = "" if ratio.half_width is None else f" ± {100 * ratio.half_width:.2f}"
    return f"{100 * (ratio.mean - 1):+.2f}{spread} %"


def _print_rows(
    headings: tuple[str, ...], lines: Sequence[tuple[str, ...]], rows: Sequence[PolicyComparison | GroupTotals]
) -> None:
    """Print a table, with a column of failed simulations if there are any."""
    if any(row.failed for row in rows):
        headings = (*headings, "failed")
        lines = [(*line, f"{row.failed:,}") for line, row in zip(lines, rows, strict=True)]
    print_table(headings, lines)


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


@click.command(
    cls=Sectioned,
    sections=SECTIONS,
    context_settings=SETTINGS,
    epilog="Example: bftrainer zeus groups --group group-00",
)
@_group_options
@trace_options
@job_options
@knob_options
@policy_options
@_correction_options
@seed_options(1)
@output_options
def groups(
    groups_file: Path | None,
    names: tuple[str, ...],
    datasets: tuple[str, ...],
    seeds: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Simulate groups of recurring jobs that may overlap, each job a recurrence of the one that has its dataset.

    Energy, time and cost are those of the traced jobs times each job's runtime_ratio. Every group draws from a seed of
    its own, made of --seed and its name.
    """
    from bftrainer.cli.zeus.output import finish, finite, opened, simulated
    from bftrainer.zeus.simulation.inputs import choose_groups, choose_jobs, load_groups
    from bftrainer.zeus.simulation.optimum import group_totals

    inputs = opened(options)
    known, source = load_groups(groups_file)
    chosen = choose_groups(known, choose_jobs(inputs, job_choice(options)), names, datasets)
    simulations = _simulations(chosen, seeds, options)
    size = ("groups of all seeds", len(simulations))
    results = simulated("Simulating", simulations, inputs, options, size, groups=source)
    by_seed = [results[start : start + len(chosen)] for start in range(0, len(results), len(chosen))]
    rows = group_totals(by_seed)
    if as_json:
        about = {"seeds": seeds, **finite(knobs(options)), **inputs.about(groups=source)}
        click.echo(json.dumps(about | {"totals": [asdict(row) for row in rows]}, indent=2, allow_nan=False))
    else:
        _print_totals(rows)
    finish(results)


def _simulations(chosen: Sequence[tuple[Group, Job]], seeds: int, options: dict[str, Any]) -> list[Simulation]:
    """List simulations of all groups with the first seed, then of all with the next."""
    from bftrainer.zeus import Corrections
    from bftrainer.zeus.simulation.campaign import Simulation, group_seed

    settings = knobs(options) | {name: options[name] for name in ("policy", "power_policy")}
    settings["corrections"] = Corrections(**{field.name: options[field.name] for field in fields(Corrections)})
    if options["max_retries"] is not None:
        settings["max_group_retries"] = options["max_retries"]
    first = settings.pop("seed")
    return [
        Simulation(job, None, group, seed=group_seed(seed, group.name), **settings)
        for seed in range(first, first + seeds)
        for group, job in chosen
    ]


def _print_totals(rows: Sequence[GroupTotals]) -> None:
    from bftrainer.cli.zeus.output import amount

    lines = [
        (
            row.dataset or "all",
            f"{row.groups:,}",
            f"{row.jobs:,}",
            *map(amount, (row.retries, row.energy_j, row.time_s, row.cost_j)),
        )
        for row in rows
    ]
    _print_rows(("dataset", "groups", "jobs", "retries", "energy (J)", "time (s)", "cost (J)"), lines, rows)
