"""`bftrainer zeus`: batch sizes and power limits of recurring training jobs, tuned in simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.group import LazyGroup
from bftrainer.cli._shared.stdio import print_json, print_table
from bftrainer.cli._shared.usage import SETTINGS, json_option
from bftrainer.cli.zeus.zeus_options import eta_option, job_choice, job_options, number, setting, trace_options

if TYPE_CHECKING:
    from bftrainer.zeus import Job

_COMMANDS = {
    "compare": ("zeus.simulate:compare", "Compare policies on jobs over seeds."),
    "groups": ("zeus.simulate:groups", "Simulate groups of jobs that overlap, from a cluster's trace."),
    "simulate": ("zeus.simulate:simulate", "Simulate the recurrences of a job, run by run."),
    "traces": ("zeus.zeus:traces", "List what the traces hold: jobs, optimum, Pareto front."),
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
@json_option
def traces(train: Path | None, power: Path | None, eta: float, as_json: bool, **options: Any) -> None:
    """List what the traces hold: jobs, target metrics, batch sizes, power limits, optimum and Pareto front.

    Jobs that are given with their target are shown with their Pareto front, without one, with the optimum for each
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
        print_json({"jobs": jobs, "targets": targets} | inputs.about())
        return
    _print_jobs(jobs)
    click.echo()
    _print_optima(chosen, targets)
    if with_front:
        for job, target in zip(chosen, targets, strict=True):
            click.echo()
            _print_front(job, target)


def _print_jobs(jobs: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for job in jobs:
        lists = (job[name] for name in ("batch_sizes", "power_limits_w", "target_metrics"))
        key = ",".join(job[name] for name in ("dataset", "network", "optimizer"))
        rows.append((key, *(" ".join(f"{value:.10g}" for value in values) for values in lists)))
    print_table(("job", "batch sizes", "power limits (W)", "target metrics"), rows, left=None)


def _amounts(figures: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(number(figures[name]) for name in ("energy_j", "time_s", "cost_j"))


def _print_optima(jobs: Sequence[Job], targets: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for job, target in zip(jobs, targets, strict=True):
        best = target["optimum"]
        figures: tuple[str, ...] = ("none", "-", "-", "-")
        if best is not None:
            figures = (setting(best["batch_size"], best["power_limit_w"]), *_amounts(best))
        rows.append((str(job), f"{len(target['reaching'])} batch sizes", *figures, str(len(target["front"]))))
    headings = ("job", "reaching", "optimum", "energy (J)", "time (s)", "cost (J)", "settings on the front")
    print_table(headings, rows)


def _print_front(job: Job, target: Mapping[str, Any]) -> None:
    click.echo(f"{job}, eta {target['eta_knob']:g}: energy-time Pareto front")
    rows = []
    for each in target["front"]:
        mark = "optimum" if each == target["optimum"] else ""
        values = (f"{each['batch_size']}", f"{each['power_limit_w']:g}", *_amounts(each))
        rows.append((*values, f"{each['success_share']:.0%}", mark))
    headings = ("batch size", "power limit (W)", "energy (J)", "time (s)", "cost (J)", "runs that reach the target", "")
    print_table(headings, rows, left=0)
