"""`bftrainer bso token`: who may do what on a batch-size server."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import click

from bftrainer.cli._shared.group import LazyGroup
from bftrainer.cli._shared.stdio import print_table, tell
from bftrainer.cli.zeus.zeus_options import FILE, SETTINGS
from bftrainer.errors import SettingsError

_MOST_DAYS = 36_525  # a century
_HERE = "bftrainer.cli.zeus.bso_token"
_COMMANDS = {
    "add": (_HERE, "add", "Let a user in."),
    "list": (_HERE, "list_tokens", "List who is let in."),
    "revoke": (_HERE, "revoke", "Let a user in no more."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, epilog="Example: bftrainer bso token add alice --role trainer")
def token() -> None:
    """Say who may do what on a server: who looks, runs trials, registers jobs, administers.

    A running server notices changes by itself.
    """


_file_option = click.option(
    "--token-file",
    "path",
    type=FILE,
    metavar="FILE",
    help="File of the server's tokens and users.  [default: that of your own servers]",
)


def _file(path: Path | None) -> Path:
    from bftrainer.zeus.server.access import own_file

    return own_file() if path is None else path


@click.command(context_settings=SETTINGS, epilog="Example: bftrainer bso token add alice --role trainer --days 90")
@click.argument("user", metavar="USER")
@click.option(
    "--role",
    metavar="ROLE",
    default="owner",
    help="reader: looks; trainer: runs trials too; owner: registers, changes and deletes own jobs too; admin: all.",
)
@click.option(
    "--days", type=click.FloatRange(min=0, min_open=True), help="Days that it is good for.  [default: for ever]"
)
@_file_option
def add(user: str, role: str, days: float | None, path: Path | None) -> None:
    """Let USER in: print a new token, which is kept nowhere but in its digest."""
    from bftrainer.zeus.server.access import add_user, find_role

    if days is not None and not days <= _MOST_DAYS:
        raise SettingsError(f"--days: Expected at most {_MOST_DAYS:,}, got {days:g}; without it, tokens hold for ever.")
    created = add_user(_file(path), user, find_role(role), days)
    click.echo(f"{user} is let in as {role} ({created.id}){'' if days is None else f' for {days:g} days'}.", err=True)
    click.echo(created.token)
    mode = os.fstat(1).st_mode
    if stat.S_ISREG(mode) and mode & 0o077:
        tell(f"Note: Others may read the file that has the token (mode {stat.S_IMODE(mode):04o}): chmod 600 it.")


@click.command("list", context_settings=SETTINGS, epilog="Example: bftrainer bso token list")
@_file_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def list_tokens(path: Path | None, as_json: bool) -> None:
    """List who is let in, as what, and until when; tokens are shown by their ids."""
    from bftrainer.zeus.server.access import read_users

    found = [
        (user.id, user.name or "", user.role.name.lower(), user.expires, user.is_valid)
        for user in read_users(_file(path))
    ]
    if as_json:
        names = ("id", "user", "role", "expires", "valid")
        click.echo(json.dumps([dict(zip(names, row, strict=True)) for row in found], indent=2))
        return
    rows = [(*row[:3], _until(row[3]) + ("" if row[4] else " (over)")) for row in found]
    print_table(("id", "user", "role", "until"), rows, left=None)


def _until(expires: float | None) -> str:
    return "-" if expires is None else time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(expires))


@click.command(context_settings=SETTINGS, epilog="Example: bftrainer bso token revoke alice")
@click.argument("which", metavar="USER_OR_ID")
@_file_option
def revoke(which: str, path: Path | None) -> None:
    """Let nobody in any more by the tokens of a user, or by the one of an id."""
    from bftrainer.zeus.server.access import revoke as take_out

    for user in take_out(_file(path), which):
        click.echo(f"Revoked {user.id} of {user.name}, {user.role.name.lower()}.")
