"""`bftrainer zeus`: batch sizes and power limits of recurring training jobs, tuned in simulation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.group import LazyGroup
from bftrainer.cli._shared.stdio import print_table
from bftrainer.cli._shared.usage import large_option
from bftrainer.cli.zeus.zeus_options import SETTINGS, eta_option, job_choice, job_options, trace_options

if TYPE_CHECKING:
    from bftrainer.zeus import Job

_SIMULATING = "bftrainer.cli.zeus.simulate"
_COMMANDS = {
    "compare": (_SIMULATING, "compare", "Compare policies on jobs over seeds."),
    "groups": (_SIMULATING, "groups", "Simulate groups of jobs that overlap, from a cluster's trace."),
    "simulate": (_SIMULATING, "simulate", "Simulate the recurrences of a job, run by run."),
    "traces": ("bftrainer.cli.zeus.zeus", "traces", "List what the traces hold: jobs, optimum, Pareto front."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, epilog="Example: bftrainer zeus simulate --recurrences 20")
def zeus() -> None:
    """Tune batch sizes and GPU power limits of recurring training jobs, simulated from traces.

    Without --train and --power, embedded synthetic traces are used.
    """


@click.command(context_settings=SETTINGS, epilog="Example: bftrainer zeus traces")
@trace_options
@job_options
@eta_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables; it has all Pareto fronts.")
@large_option
def traces(train: Path | None, power: Path | None, eta: float, as_json: bool, **options: Any) -> None:
    """List what the traces hold: jobs, target metrics, batch sizes, power limits, optimum and Pareto front.

    Jobs that are given with their target are shown with their Pareto front; without one, with the optimum for each
    target that their runs aim at. Figures are the mean of a recurrence, failed tries included, nothing stopped early.
    """
    from bftrainer.zeus.simulation.inputs import described_jobs, load_traces
    from bftrainer.zeus.simulation.optimum import describe_job, describe_target

    inputs = load_traces(train, power)
    chosen, with_front = described_jobs(inputs, job_choice(options))
    keys = dict.fromkeys((job.dataset, job.network, job.optimizer) for job in chosen)
    jobs = [describe_job(inputs.trace, key) for key in keys]
    targets = [describe_target(inputs.trace, job, eta) for job in chosen]
    if as_json:
        click.echo(json.dumps({"jobs": jobs, "targets": targets} | inputs.about(), indent=2, allow_nan=False))
        return
    _print_jobs(jobs)
    click.echo()
    _print_optima(chosen, targets)
    if with_front:
        for job, target in zip(chosen, targets, strict=True):
            click.echo()
            _print_front(job, target)


def _print_jobs(jobs: Sequence[Mapping[str, Any]]) -> None:
    headings = ("job", "batch sizes", "power limits (W)", "target metrics")
    rows = [
        (
            ",".join(job[name] for name in ("dataset", "network", "optimizer")),
            *(
                " ".join(f"{value:.10g}" for value in job[name])
                for name in ("batch_sizes", "power_limits_w", "target_metrics")
            ),
        )
        for job in jobs
    ]
    print_table(headings, rows, left=None)


def _print_optima(jobs: Sequence[Job], targets: Sequence[Mapping[str, Any]]) -> None:
    from bftrainer.cli.zeus.output import number, setting

    headings = ("job", "reaching", "optimum", "energy (J)", "time (s)", "cost (J)", "settings on the front")
    rows = []
    for job, target in zip(jobs, targets, strict=True):
        best = target["optimum"]
        figures: tuple[str, ...] = ("none", "-", "-", "-")
        if best is not None:
            costs = (number(best[name]) for name in ("energy_j", "time_s", "cost_j"))
            figures = (setting(best["batch_size"], best["power_limit_w"]), *costs)
        rows.append((str(job), f"{len(target['reaching'])} batch sizes", *figures, str(len(target["front"]))))
    print_table(headings, rows)


def _print_front(job: Job, target: Mapping[str, Any]) -> None:
    from bftrainer.cli.zeus.output import number

    click.echo(f"{job}, eta {target['eta_knob']:g}: energy-time Pareto front")
    rows = [
        (
            f"{each['batch_size']}",
            f"{each['power_limit_w']:g}",
            *(number(each[name]) for name in ("energy_j", "time_s", "cost_j")),
            f"{each['success_share']:.0%}",
            "optimum" if each == target["optimum"] else "",
        )
        for each in target["front"]
    ]
    print_table(
        ("batch size", "power limit (W)", "energy (J)", "time (s)", "cost (J)", "runs that reach the target", ""),
        rows,
        left=0,
    )
