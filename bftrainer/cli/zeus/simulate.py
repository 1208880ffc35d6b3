"""`bftrainer zeus simulate`, `compare` and `groups`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared import usage
from bftrainer.cli._shared.stdio import print_json, print_table, write_rows
from bftrainer.cli._shared.usage import FILE
from bftrainer.cli.zeus.zeus_options import (
    SECTIONS,
    amount,
    figures_option,
    job_choice,
    job_options,
    knob_options,
    number,
    output_options,
    percent,
    policy_names,
    policy_options,
    recurrences_option,
    seed_options,
    setting,
    trace_options,
)

if TYPE_CHECKING:
    from bftrainer.report.intervals import Estimate
    from bftrainer.zeus import Group, Job
    from bftrainer.zeus.simulation.campaign import Simulation, SimulationResult
    from bftrainer.zeus.simulation.inputs import ZeusInputs
    from bftrainer.zeus.simulation.optimum import GroupTotals, PolicyComparison, ZeusSummary

_COMMAND: dict[str, Any] = {"cls": usage.Sectioned, "sections": SECTIONS, "context_settings": usage.SETTINGS}


def _load(options: dict[str, Any]) -> ZeusInputs:
    """Read the traces that the options name, after checks of the files to write."""
    from bftrainer.zeus.simulation.files import check_suffix
    from bftrainer.zeus.simulation.inputs import load_traces

    output = options["output"]
    usage.refuse_unused({"force": output is options.get("figures") is None and "nothing is written"})
    if output is not None:
        check_suffix(output)
        usage.refuse_files(output, force=options["force"])
    return load_traces(options["train"], options["power"])


def _simulate(
    simulations: Sequence[Simulation],
    inputs: ZeusInputs,
    options: dict[str, Any],
    *,
    fronts: bool = False,
    **sources: Any,
) -> list[SimulationResult]:
    """Simulate, showing how far it is, then write and draw what the options ask for."""
    from bftrainer.cli._shared.progress import counting
    from bftrainer.zeus.simulation.campaign import simulate_all
    from bftrainer.zeus.simulation.figures import draw_figures, plan_figures
    from bftrainer.zeus.simulation.files import write_results

    figures = None
    if options.get("figures") is not None:
        figures = plan_figures(options["figures"], "svg", simulations, fronts=fronts, force=options["force"])
    with counting("Simulating", len(simulations)) as count:
        results = simulate_all(inputs.trace, simulations, options["workers"], count)
    if options["output"] is not None:
        write_results(options["output"], results, inputs.about(**sources))
    if figures is not None:
        draw_figures(figures, inputs.trace, results)
    return results


def _knobs(options: dict[str, Any]) -> dict[str, Any]:
    """A simulation's knobs and seed from the options, by their names in `Simulation`."""
    return {"eta_knob": options["eta"], "beta_knob": options["beta"], "seed": options["seed"]}


def _describe(options: dict[str, Any], inputs: ZeusInputs, **more: Any) -> dict[str, Any]:
    """Knobs and inputs for JSON, where infinity, a beta that never stops a run, is null."""
    knobs = {name: None if value == math.inf else value for name, value in _knobs(options).items()}
    return {"seeds": options["seeds"], **knobs, **inputs.about(**more)}


def _finish(results: Sequence[SimulationResult]) -> None:
    """End a command with the error of simulations that ended early, if any."""
    from bftrainer.errors import TuningError

    failures = [result.failure for result in results if result.failure is not None]
    if failures and len(results) > 1:
        raise TuningError(f"{len(failures):,} of {len(results):,} simulations failed; the first: {failures[0]}")
    if failures:
        raise TuningError(failures[0])


@click.command(**_COMMAND, epilog="Example: bftrainer zeus simulate --recurrences 20 -o runs.json")
@trace_options
@job_options
@recurrences_option
@knob_options
@policy_options
@click.option(
    "--server-costs",
    is_flag=True,
    help="Costs as the server counts them: bounds follow the cheapest run, arms start from explorations alone.",
)
@seed_options(1)
@figures_option
@output_options
def simulate(recurrences: int, as_json: bool, **options: Any) -> None:
    """Simulate the recurrences of a job whose batch size and power limit are tuned from run to run.

    One job and seed are shown run by run; several, a line each. The setting that a simulation converged to is the most
    frequent one of the last tenth of its recurrences (at least five). Regret is what recurrences cost beyond the mean
    cost of the traces' cheapest setting; the final one is the mean of those last recurrences.
    """
    from bftrainer.zeus import Corrections
    from bftrainer.zeus.simulation.campaign import Simulation, with_seeds
    from bftrainer.zeus.simulation.inputs import choose_jobs
    from bftrainer.zeus.simulation.optimum import summarise

    inputs = _load(options)
    jobs = choose_jobs(inputs, job_choice(options), one=True)
    settings = {name: options[name] for name in ("policy", "power_policy")} | _knobs(options)
    corrections = Corrections(server_costs=options["server_costs"])
    first = [Simulation(job, recurrences, corrections=corrections, **settings) for job in jobs]
    simulations = [each for simulation in first for each in with_seeds(simulation, options["seeds"])]
    results = _simulate(simulations, inputs, options, fronts=True)
    summaries = [summarise(inputs.trace, result) for result in results]
    if as_json:
        from bftrainer.zeus.simulation.files import results_document

        document = results_document(results, inputs.about())
        for each, summary in zip(document["simulations"], summaries, strict=True):
            each["summary"] = summary.to_dict()
        print_json(document)
    elif len(results) == 1:
        _print_runs(results[0])
        _print_summary(summaries[0])
    else:
        _print_simulations(results, summaries)
    _finish(results)


def _print_runs(result: SimulationResult) -> None:
    """Print for each run the chosen settings and the result."""
    simulation = result.simulation
    click.echo(f"{simulation}, eta {simulation.eta_knob:g}, beta {simulation.beta_knob:g}")
    click.echo("recurrence  try  batch size  power limit (W)     epochs       energy (J)        time (s)  reached")
    for run in result.runs:
        # A star marks runs whose first epoch tried all limits.
        limit = f"{run.power_limit_w}{'*' if run.profiled else ' '}"
        reached = ("yes" if run.reached else "no") if run.started else "never ran"
        click.echo(
            f"{run.recurrence:10}  {run.attempt:3}  {run.batch_size:10}  {limit:>15}  {run.epochs:9g}"
            f"  {number(run.energy_j):>15} {number(run.time_s):>15}  {reached}"
        )
    if any(run.profiled for run in result.runs):
        click.echo("* after profiling all power limits in its first epoch")
    click.echo()


def _print_summary(summary: ZeusSummary) -> None:
    """Print totals, the setting converged to, and its distance from the optimum."""
    used, best, found, regret_j = summary.used, summary.optimum, summary.converged, summary.final_regret_j
    optimum, converged, total, final = "none: nothing in the traces reaches the target", "-", "-", "-"
    if best is not None:
        optimum = f"batch size {setting(best.batch_size, best.power_limit_w)}, {number(best.cost_j)} J a recurrence"
        total = f"{number(summary.cumulative_regret_j)} J"
    if found is not None:
        converged = f"batch size {setting(found.batch_size, found.power_limit_w)} ({found.share:.0%} of the last runs)"
        if found.expected is not None:
            converged += f", {number(found.expected.cost_j)} J a recurrence"
    if regret_j is not None and best is not None:
        share = f" ({percent(regret_j / best.cost_j)})" if best.cost_j else ""
        final = f"{number(regret_j)} J a recurrence{share}"
    rows = [
        ("runs", f"{used.runs:,}, {used.recurrences:,} reached the target"),
        ("energy", f"{number(used.energy_j)} J"),
        ("time", f"{number(used.time_s)} s"),
        ("cost", f"{number(used.cost_j)} J"),
        ("converged to", converged),
        ("optimum", optimum),
        ("regret, cumulative", total),
        ("regret, final", final),
    ]
    write_rows(None, rows, indent=20)


def _print_simulations(results: Sequence[SimulationResult], summaries: Sequence[ZeusSummary]) -> None:
    """Print a line for each simulation."""
    headings = ("job", "seed", "runs", "energy (J)", "time (s)", "cost (J)", "converged to", "its cost over optimum")
    rows = []
    for result, summary in zip(results, summaries, strict=True):
        used, found = summary.used, summary.converged
        seed = f"{result.simulation.seed}{' (failed)' if result.is_partial else ''}"
        converged = "-" if found is None else setting(found.batch_size, found.power_limit_w)
        amounts = map(number, (used.energy_j, used.time_s, used.cost_j))
        regrets = map(number, (summary.cumulative_regret_j, summary.final_regret_j))
        row = (str(result.simulation.job), seed, f"{used.runs:,}", *amounts, converged, percent(summary.excess))
        rows.append((*row, *regrets))
    print_table((*headings, "cumulative regret (J)", "final regret (J)"), rows)


@click.command(**_COMMAND, epilog="Example: bftrainer zeus compare --policy zeus --recurrences 20 --seeds 2")
@trace_options
@job_options
@click.option(
    "--policy",
    "policies",
    metavar="NAME[+NAME]",
    multiple=True,
    default=("grid", "ucb", "zeus", "oracle"),
    shell_complete=policy_names,
    help="Policy for batch sizes and, after a +, for power limits (jit unless said); repeatable.",
)
@recurrences_option
@knob_options
@seed_options(10)
@figures_option
@output_options
def compare(policies: tuple[str, ...], recurrences: int, as_json: bool, **options: Any) -> None:
    """Compare policies on jobs: what a recurrence takes, as means over seeds with 95 % intervals.

    The baseline, the default batch size at the highest power limit (default+max-power), is always among them; what the
    others take is also given relative to it, of several jobs as geometric mean.
    """
    from bftrainer.zeus.simulation.inputs import choose_jobs
    from bftrainer.zeus.simulation.optimum import PolicyPair, compare_all, compare_policies, simulations_of

    pairs = [PolicyPair.parse(text) for text in policies]
    inputs, seeds = _load(options), options["seeds"]
    jobs = choose_jobs(inputs, job_choice(options))
    simulations = simulations_of(jobs, pairs, seeds, recurrences=recurrences, **_knobs(options))
    results = _simulate(simulations, inputs, options)
    rows = compare_policies(inputs.trace, results)
    if len(jobs) > 1:
        rows += compare_all(results)
    if as_json:
        about = {"recurrences": recurrences, **_describe(options, inputs)}
        print_json(about | {"comparisons": [row.to_dict() for row in rows]})
    else:
        _print_comparisons(rows, seeds)
    _finish(results)


def _print_comparisons(rows: Sequence[PolicyComparison], seeds: int) -> None:
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


@click.command(**_COMMAND, epilog="Example: bftrainer zeus groups --group group-00")
@click.option(
    "--groups", "groups_file", type=FILE, help="Groups: CSV, also packed (xz, gzip, bzip2).  [default: embedded]"
)
@click.option("--group", "names", metavar="NAME", multiple=True, help="Simulate this group alone; repeatable.")
@click.option("--dataset", "datasets", metavar="NAME", multiple=True, help="Groups of this dataset; repeatable.")
@trace_options
@job_options
@knob_options
@policy_options
@click.option(
    "--correct",
    "corrections",
    type=click.Choice(["never-ran-cost", "min-cost-accumulates", "server-costs"]),
    multiple=True,
    help="Correct what is published: a run that may not start costs 100 times its bound, not 0; bounds follow all "
    "tries of a job, not its last one; costs as the batch-size server counts them. Repeatable.",
)
@click.option("--max-retries", type=click.IntRange(min=0), help="Retries before a group gives up.  [default: 100]")
@seed_options(1)
@output_options
def groups(
    groups_file: Path | None, names: tuple[str, ...], datasets: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """Simulate groups of recurring jobs that may overlap, each job a recurrence of the one that has its dataset.

    Energy, time and cost are those of the traced jobs times each job's runtime_ratio. Every group draws from a seed of
    its own, made of --seed and its name.
    """
    from bftrainer.zeus.simulation.inputs import choose_groups, choose_jobs, load_groups
    from bftrainer.zeus.simulation.optimum import group_totals

    inputs = _load(options)
    known, source = load_groups(groups_file)
    chosen = choose_groups(known, choose_jobs(inputs, job_choice(options)), names, datasets)
    simulations = _group_simulations(chosen, options)
    results = _simulate(simulations, inputs, options, groups=source)
    by_seed = [results[start : start + len(chosen)] for start in range(0, len(results), len(chosen))]
    rows = group_totals(by_seed)
    if as_json:
        print_json(_describe(options, inputs, groups=source) | {"totals": [asdict(row) for row in rows]})
    else:
        lines = []
        for row in rows:
            amounts = map(amount, (row.retries, row.energy_j, row.time_s, row.cost_j))
            lines.append((row.dataset or "all", f"{row.groups:,}", f"{row.jobs:,}", *amounts))
        _print_rows(("dataset", "groups", "jobs", "retries", "energy (J)", "time (s)", "cost (J)"), lines, rows)
    _finish(results)


def _group_simulations(chosen: Sequence[tuple[Group, Job]], options: dict[str, Any]) -> list[Simulation]:
    """Simulations of all groups with the first seed, then of all with the next."""
    from bftrainer.zeus import Corrections
    from bftrainer.zeus.simulation.campaign import Simulation, group_seed

    corrected = [name.replace("-", "_") for name in options["corrections"]]
    fields = {name if name == "server_costs" else f"group_{name}": True for name in corrected}
    settings = _knobs(options) | {name: options[name] for name in ("policy", "power_policy")}
    settings["corrections"] = Corrections(**fields)
    if options["max_retries"] is not None:
        settings["max_group_retries"] = options["max_retries"]
    first = settings.pop("seed")
    return [
        Simulation(job, None, group, seed=group_seed(seed, group.name), **settings)
        for seed in range(first, first + options["seeds"])
        for group, job in chosen
    ]
