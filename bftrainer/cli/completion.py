"""`bftrainer completion`: the script that makes a shell complete our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL, to be sourced by it.

    For bash: eval "$(bftrainer completion bash)".
    """
    from bftrainer.cli._shared.group import cli
    from bftrainer.cli.replay.replay import replay

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"Expected a shell that click completes for, got {shell}.")
    for command, program in ((cli, "bftrainer"), (replay, "bftrainer-replay")):
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        click.echo(kind(command, {}, program, variable).source())
