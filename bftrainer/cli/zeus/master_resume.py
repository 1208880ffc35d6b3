"""`bftrainer master resume` and `bftrainer master status`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bftrainer.cli.zeus.master_output import output_options, token_option

__all__ = ["resume", "status"]

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_LOGDIR = click.argument("logdir", type=click.Path(path_type=Path))


@click.command(context_settings=_SETTINGS)
@_LOGDIR
@token_option
@output_options
def resume(logdir: Path, token_file: str | None, pause_after: int | None, quiet: bool, as_json: bool) -> None:
    """Go on with the job whose logs are in LOGDIR, from the run that was interrupted, with the same decisions."""
    from bftrainer.cli.zeus.master_output import drive, read_token
    from bftrainer.zeus.master.driver import Driver

    drive(Driver.resumed(logdir, token=read_token(token_file)), pause_after=pause_after, quiet=quiet, as_json=as_json)


@click.command(context_settings=_SETTINGS)
@_LOGDIR
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def status(logdir: Path, as_json: bool) -> None:
    """Tell where the job stands whose logs are in LOGDIR: each run, and what comes next."""
    from bftrainer.cli.zeus.master_output import as_document, print_status
    from bftrainer.zeus.master.journal import read_journal

    journal = read_journal(logdir)
    if as_json:
        click.echo(json.dumps(as_document(logdir, journal), indent=2, allow_nan=False))
    else:
        print_status(logdir, journal)
