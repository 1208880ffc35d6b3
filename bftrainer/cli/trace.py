"""`bftrainer trace`: measure and generate traces of nodes."""

from __future__ import annotations

import click

from bftrainer.cli.late import LateGroup

__all__ = ["trace"]

_COMMANDS = {
    "generate": ("bftrainer.cli.trace_generate", "generate", "Generate a trace by a model, fitted to another or not."),
    "stats": ("bftrainer.cli.trace_stats", "stats", "Print the figures of a trace."),
}


@click.group(cls=LateGroup, late=_COMMANDS, invoke_without_command=True)
@click.pass_context
def trace(ctx: click.Context) -> None:
    """Measure and generate traces of nodes."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
