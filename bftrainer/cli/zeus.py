"""`bftrainer zeus`: batch sizes and power limits of recurring training jobs, tuned in simulation from traces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli import usage
from bftrainer.cli.group import CommandGroup
from bftrainer.cli.terminal import cell, counting, print_figures, print_records
from bftrainer.cli.usage import FILE, PROCESSES, SIZE, Decorator, json_option, with_options
from bftrainer.errors import TuningError

if TYPE_CHECKING:
    from bftrainer.zeus.simulation.campaign import JobChoice, Simulation, SimulationResult, ZeusInputs
    from bftrainer.zeus.simulation.optimum import ZeusSummary


@click.group(cls=CommandGroup, epilog="Example: bftrainer zeus simulate --recurrences 20")
def zeus() -> None:
    """Tune batch sizes and GPU power limits of recurring training jobs, simulated from traces.

    Without --train and --power, embedded synthetic traces are used.
    """


# --- Options


trace_options = with_options(
    click.option("--train", type=FILE, help="Epochs to target by batch size (CSV).  [default: embedded]"),
    click.option("--power", type=FILE, help="Time and power by batch size and power limit (CSV).  [default: embedded]"),
)
job_options = with_options(
    click.option("--jobs", "jobs_file", type=FILE, help="Jobs (TOML); all of them unless --job picks some."),
    click.option(
        "--job", "job_names", metavar="DATASET,NETWORK,OPTIMIZER", multiple=True, help="A job to use; repeatable."
    ),
    click.option("--target", type=float, help="Metric that runs aim at; for all jobs, as the next two."),
    click.option("--max-epochs", type=SIZE, help="Epochs after which a run gives up.  [default: 100]"),
    click.option("--default-bs", type=int, help="Batch size that is used when nothing is known."),
)
ETA = "Weight of energy in costs, 0 (only time counts) to 1 (only energy counts)."
eta_option = click.option("--eta", type=float, default=0.5, help=ETA)
knob_options = with_options(
    eta_option,
    click.option("--beta", default=2.0, help="A run stops before it costs this many times the cheapest; inf: never."),
)
recurrences_option = click.option("--recurrences", type=SIZE, default=100, help="Times that each job recurs.")
policy_options = with_options(
    click.option(
        "--policy", default="zeus", help="Chooses batch sizes: zeus, gts, default, grid, oracle or module:callable."
    ),
    click.option("--power-policy", default="jit", help="Power limits: jit, max-power, oracle, ..."),
)


def seed_options(seeds: int) -> Decorator:
    """Make the options for seeds and processes, with `seeds` seeds by default."""
    return with_options(
        click.option("--seed", type=click.IntRange(min=0), default=123456, help="First seed, of draws and policies."),
        click.option("--seeds", type=SIZE, default=seeds, help="How many seeds, from --seed on."),
        click.option(
            "--workers", type=PROCESSES, help="Processes; results don't depend on it.  [default: as many as save time]"
        ),
    )


output_options = with_options(
    click.option("-o", "--output", type=FILE, help="Write all runs to this file, .json or .parquet."),
    usage.force_option,
    json_option,
)


def job_choice(options: dict[str, Any]) -> JobChoice:
    """Remove the values of `job_options` from a command's options, and return them as a choice of jobs."""
    from bftrainer.zeus.simulation.campaign import JobChoice

    values = {"target_metric": "target", "max_epochs": "max_epochs", "default_bs": "default_bs"}
    changes = {name: options.pop(option, None) for name, option in values.items()}
    chosen = {name: value for name, value in changes.items() if value is not None}
    return JobChoice(options.pop("jobs_file"), options.pop("job_names"), chosen)


# --- Simulations

_COMPARED = (
    *("policies", "cost_j", "energy_j", "time_s", "regret_j", "cost_share", "energy_share", "time_share", "failed"),
)
_TOTALS = ("dataset", "groups", "jobs", "retries", "energy_j", "time_s", "cost_j", "failed")
_FRONT = ("batch_size", "power_limit_w", "energy_j", "time_s", "cost_j", "success_share")


def _load(options: dict[str, Any]) -> ZeusInputs:
    """Read the traces that the options name, after checks of the files to write."""
    from bftrainer.zeus.simulation.campaign import check_suffix, load_traces

    output = options["output"]
    if output is not None:
        check_suffix(output)
        usage.refuse_files(output, force=options["force"])
    return load_traces(options["train"], options["power"])


def _simulate(
    simulations: Sequence[Simulation], inputs: ZeusInputs, options: dict[str, Any], **more: Any
) -> list[SimulationResult]:
    """Simulate, showing how far it is, then write the runs where the options ask for that."""
    from bftrainer.zeus.simulation.campaign import simulate_all, write_results

    with counting("Simulating", len(simulations)) as count:
        results = simulate_all(inputs.trace, simulations, options["workers"], count)
    if options["output"] is not None:
        write_results(options["output"], results, inputs.about(**more))
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
    failures = [result.failure for result in results if result.failure is not None]
    if failures and len(results) > 1:
        raise TuningError(f"{len(failures):,} of {len(results):,} simulations failed; the first: {failures[0]}")
    if failures:
        raise TuningError(failures[0])


@zeus.command(epilog="Example: bftrainer zeus simulate --recurrences 20 -o runs.json")
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
@output_options
def simulate(recurrences: int, **options: Any) -> None:
    """Simulate the recurrences of a job. Batch size and power limit are tuned from run to run.

    One job and seed are shown run by run; several, a line each. The setting that a simulation converged to is the most
    frequent one of the last tenth of its recurrences (at least five). Regret is what recurrences cost beyond the mean
    cost of the traces' cheapest setting; the final one is the mean of those last recurrences.
    """
    from bftrainer.zeus import Corrections
    from bftrainer.zeus.simulation.campaign import Simulation, choose_jobs, results_document, with_seeds
    from bftrainer.zeus.simulation.optimum import summarise

    inputs = _load(options)
    jobs = choose_jobs(inputs, job_choice(options), one=True)
    settings = {name: options[name] for name in ("policy", "power_policy")} | _knobs(options)
    corrections = Corrections(server_costs=options["server_costs"])
    first = [Simulation(job, recurrences, corrections=corrections, **settings) for job in jobs]
    simulations = [seeded for simulation in first for seeded in with_seeds(simulation, options["seeds"])]
    results = _simulate(simulations, inputs, options)
    summaries = [summarise(inputs.trace, result) for result in results]

    def make_document() -> dict[str, Any]:
        """All runs, and of each simulation its summary."""
        document = results_document(results, inputs.about())
        for entry, summary in zip(document["simulations"], summaries, strict=True):
            entry["summary"] = summary.to_dict()
        return document

    if not usage.print_json_if_asked(make_document):
        records = [_summary_record(result, summary) for result, summary in zip(results, summaries, strict=True)]
        if len(records) == 1:
            _print_runs(results[0])
            print_figures(None, {name: cell(value, name) for name, value in records[0].items()})
        else:
            print_records(records)
    _finish(results)


def _print_runs(result: SimulationResult) -> None:
    """Print for each run the chosen settings and the result."""
    simulation = result.simulation
    click.echo(f"{simulation}, eta {simulation.eta_knob:g}, beta {simulation.beta_knob:g}")
    records = []
    for run in result.runs:
        limit = f"{run.power_limit_w}*" if run.profiled else f"{run.power_limit_w} "
        reached = ("yes" if run.reached else "no") if run.started else "never ran"
        choice = {
            "recurrence": run.recurrence,
            "try": run.attempt,
            "batch_size": run.batch_size,
            "power_limit_w": limit,
        }
        took = {"epochs": run.epochs, "energy_j": run.energy_j, "time_s": run.time_s, "reached": reached}
        records.append(choice | took)
    print_records(records)
    if any(run.profiled for run in result.runs):
        click.echo("* after profiling all power limits in its first epoch")
    click.echo()


def _summary_record(result: SimulationResult, summary: ZeusSummary) -> dict[str, Any]:
    """Totals of a simulation, the setting converged to, and its distance from the optimum."""
    best, chosen = summary.optimum, summary.converged
    return {
        "job": str(result.simulation.job),
        "seed": f"{result.simulation.seed}{' (failed)' if result.is_partial else ''}",
        **asdict(summary.used),
        "converged_to": None if chosen is None else f"{chosen.batch_size} at {chosen.power_limit_w:g} W",
        "optimum": "none reaches it" if best is None else f"{best.batch_size} at {best.power_limit_w:g} W",
        "optimum_j": None if best is None else best.cost_j,
        "excess_share": summary.excess,
        "cumulative_regret_j": summary.cumulative_regret_j,
        "final_regret_j": summary.final_regret_j,
    }


@zeus.command(epilog="Example: bftrainer zeus compare --policy zeus --recurrences 20 --seeds 2")
@trace_options
@job_options
@click.option(
    "--policy",
    "policies",
    metavar="NAME[+NAME]",
    multiple=True,
    default=("grid", "zeus", "oracle"),
    help="Policy for batch sizes and, after a +, for power limits (jit unless said); repeatable.",
)
@recurrences_option
@knob_options
@seed_options(10)
@output_options
def compare(policies: tuple[str, ...], recurrences: int, **options: Any) -> None:
    """Compare policies on jobs over seeds. Figures are what a recurrence takes: means with 95 % intervals.

    The baseline, the default batch size at the highest power limit (default+max-power), is always among them; what the
    others take is also given relative to it.
    """
    from bftrainer.zeus.simulation.campaign import choose_jobs
    from bftrainer.zeus.simulation.optimum import PolicyPair, compare_policies, simulations_of

    pairs = [PolicyPair.parse(text) for text in policies]
    inputs, seeds = _load(options), options["seeds"]
    jobs = choose_jobs(inputs, job_choice(options))
    simulations = simulations_of(jobs, pairs, seeds, recurrences=recurrences, **_knobs(options))
    results = _simulate(simulations, inputs, options)
    rows = compare_policies(inputs.trace, results)
    about = {"recurrences": recurrences, **_describe(options, inputs)}
    if not usage.print_json_if_asked(lambda: about | {"comparisons": [row.to_dict() for row in rows]}):
        for job in dict.fromkeys(row.job for row in rows):
            click.echo(f"{job}, {seeds} seeds; shares are of what default+max-power takes")
            records = [row.to_dict() for row in rows if row.job == job]
            shares = [{f"{name}_share": share for name, share in record["relative"].items()} for record in records]
            print_records([record | share for record, share in zip(records, shares, strict=True)], _COMPARED)
            click.echo()
    _finish(results)


@zeus.command(epilog="Example: bftrainer zeus groups --group group-00")
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
def groups(groups_file: Path | None, names: tuple[str, ...], datasets: tuple[str, ...], **options: Any) -> None:
    """Simulate groups of recurring jobs that may overlap. A job is a recurrence of the one that has its dataset.

    Energy, time and cost are those of the traced jobs times each job's runtime_ratio. Every group draws from a seed of
    its own, made of --seed and its name.
    """
    from bftrainer.zeus import Corrections
    from bftrainer.zeus.simulation.campaign import Simulation, choose_groups, choose_jobs, group_seed, load_groups
    from bftrainer.zeus.simulation.optimum import group_totals

    inputs = _load(options)
    groups, source = load_groups(groups_file)
    chosen = choose_groups(groups, choose_jobs(inputs, job_choice(options)), names, datasets)
    corrected = [name.replace("-", "_") for name in options["corrections"]]
    settings = _knobs(options) | {name: options[name] for name in ("policy", "power_policy")}
    settings["corrections"] = Corrections(
        **{name if name == "server_costs" else f"group_{name}": True for name in corrected}
    )
    if options["max_retries"] is not None:
        settings["max_group_retries"] = options["max_retries"]
    first = settings.pop("seed")
    simulations = [
        Simulation(job, None, group, seed=group_seed(seed, group.name), **settings)
        for seed in range(first, first + options["seeds"])
        for group, job in chosen
    ]
    results = _simulate(simulations, inputs, options, groups=source)
    by_seed = [results[start : start + len(chosen)] for start in range(0, len(results), len(chosen))]
    rows = group_totals(by_seed)
    about = _describe(options, inputs, groups=source)
    if not usage.print_json_if_asked(lambda: about | {"totals": [asdict(row) for row in rows]}):
        print_records([asdict(row) | {"dataset": row.dataset or "all"} for row in rows], _TOTALS)
    _finish(results)


# --- Traces


@zeus.command(epilog="Example: bftrainer zeus traces")
@trace_options
@job_options
@eta_option
@json_option
def traces(train: Path | None, power: Path | None, eta: float, **options: Any) -> None:
    """List what the traces hold. That is jobs, target metrics, batch sizes, limits, optimum and Pareto front.

    Jobs that are given with their target are shown with their Pareto front, without one, with the optimum for each
    target that their runs aim at. Figures are the mean of a recurrence, failed tries included, nothing stopped early.
    """
    from bftrainer.zeus.policies.trace import JobKey
    from bftrainer.zeus.simulation.campaign import jobs_to_describe, load_traces
    from bftrainer.zeus.simulation.optimum import describe_job, describe_target

    inputs = load_traces(train, power)
    chosen, with_front = jobs_to_describe(inputs, job_choice(options))
    keys = dict.fromkeys(JobKey(job.dataset, job.network, job.optimizer) for job in chosen)
    jobs = [describe_job(inputs.trace, key) for key in keys]
    targets = [describe_target(inputs.trace, job, eta) for job in chosen]
    if usage.print_json_if_asked(lambda: {"jobs": jobs, "targets": targets} | inputs.about()):
        return
    print_records(jobs)
    click.echo()
    optima = []
    for job, target in zip(chosen, targets, strict=True):
        best = target["optimum"] or dict.fromkeys(_FRONT)
        optima.append({"job": str(job), "reaching": target["reaching"]} | {name: best[name] for name in _FRONT})
    print_records(optima)
    if with_front:
        for job, target in zip(chosen, targets, strict=True):
            click.echo(f"\n{job}, eta {eta:g}: energy-time Pareto front")
            print_records(target["front"], _FRONT)
