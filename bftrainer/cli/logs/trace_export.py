"""`bftrainer trace export`."""

from __future__ import annotations

from pathlib import Path

import click

from bftrainer.cli._shared.places import refuse_inputs
from bftrainer.cli._shared.stdio import tell

__all__ = ["export"]

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("node_log", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="File to write: .pkl (legacy), .parquet, .csv, .csv.gz.")
@click.option("--batsim", is_flag=True, help="Write busy intervals as jobs of Batsim and evalys (.csv).")
@click.option("--force", is_flag=True, help="Replace an existing file.")
def export(node_log: Path, output: Path, batsim: bool, force: bool) -> None:
    """Write NODE_LOG in the form that the output's name ends in, or as jobs of Batsim."""
    from bftrainer.files.opening import Form, suffix_form
    from bftrainer.nodelogs.store import node_log_files, read_node_log, refuse_node_log, write_node_log
    from bftrainer.schedulers.formats.batsim import write_batsim_jobs

    refuse_inputs(*node_log_files(output))
    refuse_node_log(output, force=force)
    if batsim and suffix_form(output) is not Form.CSV:
        raise click.UsageError(f"Expected a name ending in .csv or .csv.gz for jobs of Batsim, got {output.name}.")
    log = read_node_log(node_log, warn=lambda text: tell(f"Note: {text}"))
    if batsim:
        write_batsim_jobs(output, log)
    else:
        write_node_log(output, log)
    click.echo(f"{output}: {'jobs' if batsim else 'node log'} of {len(log.nodes):,} nodes")
