"""Groups whose commands are imported when they are called, so that help answers at once."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from bftrainer.errors import suggestion

__all__ = ["HelpfulGroup", "LateCommands", "LateGroup"]

LateCommands = Mapping[str, tuple[str, str, str]]
"""Command: module, attribute, one line of help; nothing else of it is needed for its group's help."""


class HelpfulGroup(click.Group):
    """A group that names the closest command where there is none of the name that was typed."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names; if there is none, the closest is named."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}.{suggestion(args[0], names)}")
        return super().resolve_command(ctx, args)


class LateGroup(HelpfulGroup):
    """A group whose commands are imported when they are called.

    Parameters
    ----------
    late : mapping of str to (str, str, str)
        Of each command its module, the attribute there, and one line of help.
    """

    def __init__(self, *args: Any, late: LateCommands, **options: Any) -> None:
        options.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*args, **options)
        self._late = late

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without a command, say what there is, and end well."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names of the commands, sorted, none of them imported."""
        return sorted(self._late)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the module of the command that is called; None if there is none of that name."""
        if cmd_name not in self._late:
            return None
        module, attribute, _ = self._late[cmd_name]
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and what they do, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._late[name][2]) for name in self.list_commands(ctx)])
