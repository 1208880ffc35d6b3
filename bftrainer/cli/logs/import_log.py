"""`bftrainer import`: one command a format of scheduler logs, and one that tells the format by itself."""

from __future__ import annotations

import json
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from bftrainer.cli._shared.lazy import HelpfulGroup
from bftrainer.cli._shared.places import refuse_inputs
from bftrainer.cli._shared.stdio import tell
from bftrainer.cli._shared.unused import refuse_unused
from bftrainer.cli.logs.import_options import COUNTING, FORMATS, all_options, own_options

__all__ = ["import_log"]

_AUTO = "auto"
_AUTO_HELP = "Tell the format by the first records, and say which it is."


class _Formats(HelpfulGroup):
    """One command a format; its options are made when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """`auto` and the formats."""
        return [_AUTO, *sorted(FORMATS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of a format, made of the options that it takes."""
        if cmd_name not in (_AUTO, *FORMATS):
            return None
        if cmd_name == _AUTO:
            own = tuple(dict.fromkeys(option for name in FORMATS for option in own_options(name)))
            text = _AUTO_HELP
        else:
            own, text = own_options(cmd_name), FORMATS[cmd_name][0]
        return click.Command(
            cmd_name,
            params=all_options(own),
            callback=partial(_import, cmd_name),
            short_help=text,
            help=f"{text}\n\nFILES may be packed, or directories of files; they are read in order.",
        )


@click.group("import", cls=_Formats, invoke_without_command=True)
@click.pass_context
def import_log(ctx: click.Context) -> None:
    """Turn a scheduler's log into a node log, and say what became of its records."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _import(name: str, /, files: tuple[Path, ...], output: Path, force: bool, as_json: bool, **options: Any) -> None:
    """Import FILES and write the node log and its data quality."""
    from bftrainer.cli.logs.import_report import write_quality
    from bftrainer.files.log_files import log_paths
    from bftrainer.files.writing import refuse_clash, refuse_existing
    from bftrainer.nodelogs.store import node_log_files, refuse_node_log, write_node_log
    from bftrainer.schedulers.import_log import import_log as import_files
    from bftrainer.schedulers.import_report import quality_path, write_quality_json
    from bftrainer.schedulers.reading import ImportSettings

    account = quality_path(output)
    places = (*node_log_files(output), account)
    refuse_inputs(*places)
    refuse_clash(places, {path: str(path) for path in log_paths(files)})  # those of directories too
    refuse_node_log(output, force=force)
    refuse_existing(account, force=force)
    if name == _AUTO:
        name = _recognised(files)
    settings = ImportSettings(**options)
    named = settings.nodes in (None, "seen") and "without an inventory the nodes are those that the log names"
    refuse_unused({"unseen": named or (name in COUNTING and f"{name} names no nodes")})
    command = shlex.join(["bftrainer", *sys.argv[1:]])
    done = import_files(name, files, settings, command)
    write_node_log(output, done.log)
    write_quality_json(account, done.quality)
    if as_json:
        click.echo(json.dumps(done.quality.summary() | {"output": str(output)}, indent=2))
        return
    write_quality(done.quality, sys.stdout)
    click.echo(f"{output}: node log of {len(done.log.nodes):,} nodes; {account}: the figures above")


def _recognised(files: tuple[Path, ...]) -> str:
    """Name of the format of the first file; options that it does not take are refused."""
    from bftrainer.files.log_files import head, log_paths
    from bftrainer.schedulers.reading import recognised

    first = log_paths(files)[0]
    name = recognised(head(first), str(first)).name
    tell(f"Format: {name} ({FORMATS[name][0].removesuffix('.')})")
    refuse_unused(dict.fromkeys(_others(name), f"not of the format {name}"))
    return name


def _others(name: str) -> set[str]:
    """Settings that other formats take, and this one does not."""
    return {option for other in FORMATS for option in own_options(other)} - set(own_options(name))
