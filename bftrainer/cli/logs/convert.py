"""`bftrainer convert`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrainer.cli._shared.places import refuse_inputs
from bftrainer.cli._shared.stdio import tell

if TYPE_CHECKING:
    from bftrainer.nodelogs.convert import TraceForm

__all__ = ["convert"]

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("source", type=FILE)
@click.argument("target", type=FILE)
@click.option("-scfn", "--scalability", type=FILE, help="Legacy scalability of a legacy task set.")
@click.option("--scaling", metavar="linear|amdahl:F", help="Scaling of legacy tasks that come without.")
@click.option(
    "--to",
    type=click.Choice(["spot", "counts", "terminations"]),
    help="Write a node log as a trace of preemptible nodes (.csv, .csv.gz).",
)
@click.option("--force", is_flag=True, help="Replace an existing TARGET.")
def convert(
    source: Path, target: Path, scalability: Path | None, scaling: str | None, to: TraceForm | None, force: bool
) -> None:
    """Convert a node log or task set between its legacy and native forms.

    What SOURCE is, it says itself, be it a spot event trace or a count trace; what TARGET becomes, its name says:
    .parquet, .csv, .csv.gz or .pkl for node logs, .toml, .csv, .csv.gz or .pkl (with Jbnd in its name; scalability
    goes to the sibling with JNPs) for task sets.
    """
    from bftrainer.files.writing import refuse_existing
    from bftrainer.nodelogs.convert import convert as convert_file
    from bftrainer.nodelogs.native import metadata_path
    from bftrainer.tasksets.pickled import scalability_path

    # What may be written beside it is as precious.
    beside = [metadata_path(target)] if ".csv" in target.suffixes and to is None else []
    places = [path for path in (target, *beside, scalability_path(target)) if path is not None]
    refuse_inputs(*places)
    for path in places:
        refuse_existing(path, force=force)
    done = convert_file(source, target, scalability, scaling, to)
    for warning in done.warnings:
        tell(f"Note: {warning}")
    click.echo(f"{target}: {done.summary()}")
