"""`bftrainer trace anonymise`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.places import refuse_inputs
from bftrainer.cli._shared.stdio import tell
from bftrainer.cli._shared.unused import refuse_unused
from bftrainer.cli.logs.import_options import Names
from bftrainer.cli.logs.trace_edit import narrowed, narrows

if TYPE_CHECKING:
    from bftrainer.nodelogs.edit import Pseudonyms

__all__ = ["anonymise"]

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("log", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="File to write.")
@click.option(
    "--key-file",
    type=FILE,
    required=True,
    help="Secret key of the pseudonyms; made if there is none. With it equal names become equal pseudonyms.",
)
@click.option("--shift", "shift_s", type=int, default=0, metavar="SECONDS", help="Add this to all times.")
@narrows
@click.option("--columns", type=Names(), metavar="NAMES", help="Names of sacct's columns, if there is no header.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
def anonymise(
    log: Path,
    output: Path,
    key_file: Path,
    shift_s: int,
    columns: tuple[str, ...] | None,
    force: bool,
    **narrowing: Any,
) -> None:
    """Replace all names in LOG, a node log or rows of sacct, by pseudonyms, so that it can be shared.

    Node logs lose what their metadata say of the site, and the nodes and holes that are left out. Rows of sacct lose
    columns of which nothing is known.
    """
    from bftrainer.files.writing import refuse_existing
    from bftrainer.model import NS_PER_S
    from bftrainer.nodelogs.edit import anonymous_log
    from bftrainer.nodelogs.store import node_log_files, read_node_log, refuse_node_log, write_node_log

    if _is_node_log(log):
        refuse_inputs(*node_log_files(output))
        refuse_node_log(output, force=force)
        refuse_unused({"columns": "a node log names its columns"})
        whole = narrowed(read_node_log(log), **narrowing)
        write_node_log(output, anonymous_log(whole, _pseudonyms(key_file), shift_s * NS_PER_S))
        click.echo(f"{output}: node log of {len(whole.nodes):,} nodes")
        return
    refuse_inputs(output)
    refuse_existing(output, force=force)
    refuse_unused(dict.fromkeys(narrowing, "of node logs alone: import the rows first"))
    _anonymise_rows(log, output, _pseudonyms(key_file), shift_s, columns)


def _is_node_log(path: Path) -> bool:
    """Whether a file is a node log by its name; a table with bars is none, whatever its name."""
    from bftrainer.files.log_files import head, log_paths
    from bftrainer.files.opening import Form, suffix_form

    log_paths([path])
    form = suffix_form(path)
    return form is not None and not (form is Form.CSV and "|" in head(path)[0])


def _pseudonyms(key_file: Path) -> Pseudonyms:
    from bftrainer.nodelogs.edit import Pseudonyms, read_or_make_key

    key, is_new = read_or_make_key(key_file)
    if is_new:
        tell(f"Note: {key_file}: a new key; keep it to yourself, and for the next log.")
    return Pseudonyms(key)


def _anonymise_rows(
    source: Path, output: Path, names: Pseudonyms, shift_s: int, columns: tuple[str, ...] | None
) -> None:
    from bftrainer.schedulers.anonymise_sacct import anonymise_sacct

    done = anonymise_sacct(source, output, names, shift_s, columns)
    if done.columns:
        tell(f"Note: left out: {', '.join(done.columns)}")
    if done.dropped:
        tell(f"Note: {done.dropped:,} malformed rows left out")
    click.echo(f"{output}: {done.rows:,} rows")
