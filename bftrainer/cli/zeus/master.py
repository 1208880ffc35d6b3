"""`bftrainer master`: recurring training jobs, tuned from run to run."""

from __future__ import annotations

import click

from bftrainer.cli._shared.lazy import LateGroup

__all__ = ["master"]

_COMMANDS = {
    "resume": ("bftrainer.cli.zeus.master_resume", "resume", "Go on with a job that was interrupted."),
    "run": ("bftrainer.cli.zeus.master_run", "run", "Run the recurrences of a job."),
    "status": ("bftrainer.cli.zeus.master_resume", "status", "Tell where a job stands."),
}


@click.group(cls=LateGroup, late=_COMMANDS)
def master() -> None:
    """Drive a training script through the recurrences of its job, batch size and power limit tuned from run to run."""
