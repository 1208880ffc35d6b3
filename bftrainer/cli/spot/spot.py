"""`bftrainer spot`: simulate checkpointed training on preemptible nodes."""

from __future__ import annotations

import click

from bftrainer.cli._shared.lazy import LateGroup

__all__ = ["spot"]

_COMMANDS = {
    "simulate": ("bftrainer.cli.spot.simulate", "simulate", "Simulate a training run on a trace of nodes."),
    "sweep": ("bftrainer.cli.spot.sweep", "sweep", "Simulate over levels of preemption and addition."),
}


@click.group(cls=LateGroup, late=_COMMANDS)
def spot() -> None:
    """Simulate checkpointed pipeline-parallel training on preemptible nodes."""
