"""`bftrainer bso`: the batch-size server and what it keeps."""

from __future__ import annotations

import click

from bftrainer.cli._shared.lazy import LateGroup

__all__ = ["bso"]

_COMMANDS = {
    "delete": ("bftrainer.cli.zeus.bso_jobs", "delete", "Have a server forget a job."),
    "export": ("bftrainer.cli.zeus.bso_move", "export", "Write a job's trials to a file."),
    "import": ("bftrainer.cli.zeus.bso_move", "import_zeus", "Move the jobs of a Zeus database over."),
    "jobs": ("bftrainer.cli.zeus.bso_jobs", "jobs", "List a server's jobs."),
    "serve": ("bftrainer.cli.zeus.bso_serve", "serve", "Serve batch sizes to recurring training jobs."),
    "show": ("bftrainer.cli.zeus.bso_jobs", "show", "Show a job of a server."),
}


@click.group(cls=LateGroup, late=_COMMANDS)
def bso() -> None:
    """Tune the batch sizes of recurring training jobs: a server that they ask, and what it keeps of them."""
