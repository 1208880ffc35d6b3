"""`bftrainer zeus`: batch sizes and power limits of recurring training jobs, tuned in simulation."""

from __future__ import annotations

import click

from bftrainer.cli._shared.lazy import LateGroup

__all__ = ["zeus"]

_COMMANDS = {
    "compare": ("bftrainer.cli.zeus.compare", "compare", "Compare policies on jobs over seeds."),
    "groups": ("bftrainer.cli.zeus.groups", "groups", "Simulate groups of jobs that overlap, from a cluster's trace."),
    "simulate": ("bftrainer.cli.zeus.simulate", "simulate", "Simulate the recurrences of a job, run by run."),
    "traces": ("bftrainer.cli.zeus.traces", "traces", "List what the traces hold: jobs, optimum, Pareto front."),
}


@click.group(cls=LateGroup, late=_COMMANDS)
def zeus() -> None:
    """Tune batch sizes and GPU power limits of recurring training jobs, simulated from traces.

    Without --train and --power, embedded synthetic traces are used.
    """
