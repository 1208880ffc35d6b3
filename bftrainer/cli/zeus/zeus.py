"""`bftrainer zeus`: batch sizes and power limits of recurring training jobs, tuned in simulation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.group import LazyGroup
from bftrainer.cli._shared.stdio import print_table
from bftrainer.cli.zeus.zeus_options import SETTINGS, eta_option, job_choice, job_options, trace_options

if TYPE_CHECKING:
    from bftrainer.zeus.simulation.optimum import TargetFacts, TracedJob

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
def traces(train: Path | None, power: Path | None, eta: float, as_json: bool, **options: Any) -> None:
    """List what the traces hold: jobs, target metrics, batch sizes, power limits, optimum and Pareto front.

    Jobs that are given with their target are shown with their Pareto front; without one, with the optimum for each
    target that their runs aim at. Figures are the mean of a recurrence, failed tries included, nothing stopped early.
    """
    from bftrainer.zeus.simulation.inputs import described_jobs, load_traces
    from bftrainer.zeus.simulation.optimum import target_facts, traced_jobs

    inputs = load_traces(train, power)
    jobs, with_front = described_jobs(inputs, job_choice(options))
    keys = dict.fromkeys((job.dataset, job.network, job.optimizer) for job in jobs)
    traced = traced_jobs(inputs.trace, keys)
    facts = [target_facts(inputs.trace, job, eta) for job in jobs]
    if as_json:
        document = {"jobs": [asdict(each) for each in traced], "targets": [asdict(each) for each in facts]}
        click.echo(json.dumps(document | inputs.about(), indent=2, allow_nan=False))
        return
    _print_jobs(traced)
    click.echo()
    _print_optima(facts)
    if with_front:
        for each in facts:
            click.echo()
            _print_front(each)


def _print_jobs(traced: Sequence[TracedJob]) -> None:
    headings = ("job", "batch sizes", "power limits (W)", "target metrics")
    listed = ((each.batch_sizes, each.power_limits_w, each.target_metrics) for each in traced)
    rows = [
        (job.name, *(" ".join(f"{value:.10g}" for value in values) for values in columns))
        for job, columns in zip(traced, listed, strict=True)
    ]
    print_table(headings, rows, left=None)


def _print_optima(facts: Sequence[TargetFacts]) -> None:
    from bftrainer.cli.zeus.output import number, setting

    headings = ("job", "reaching", "optimum", "energy (J)", "time (s)", "cost (J)", "settings on the front")
    rows = []
    for each in facts:
        best = each.optimum
        figures = ("none", "-", "-", "-")
        if best is not None:
            costs = (number(best.energy_j), number(best.time_s), number(best.cost_j))
            figures = (setting(best.batch_size, best.power_limit_w), *costs)
        reaching = f"{len(each.reaching)} batch sizes"
        rows.append((str(each.job), reaching, *figures, str(len(each.front))))
    print_table(headings, rows)


def _print_front(facts: TargetFacts) -> None:
    from bftrainer.cli.zeus.output import number

    click.echo(f"{facts.job}, eta {facts.eta_knob:g}: energy-time Pareto front")
    rows = [
        (
            f"{each.batch_size}",
            f"{each.power_limit_w:g}",
            number(each.energy_j),
            number(each.time_s),
            number(each.cost_j),
            f"{each.success_share:.0%}",
            "optimum" if each == facts.optimum else "",
        )
        for each in facts.front
    ]
    print_table(
        ("batch size", "power limit (W)", "energy (J)", "time (s)", "cost (J)", "runs that reach the target", ""),
        rows,
        left=0,
    )
