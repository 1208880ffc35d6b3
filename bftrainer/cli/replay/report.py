"""`bftrainer report`."""

from __future__ import annotations

from pathlib import Path

import click

from bftrainer.cli._shared.usage import refuse_inputs

__all__ = ["report"]

FILE = click.Path(path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("runs", metavar="RUN_DIR...", nargs=-1, required=True, type=FILE)
@click.option("-o", "--output", type=FILE, default=Path("report.html"), show_default=True, help="Where the page goes.")
@click.option("--force", is_flag=True, help="Replace an existing page.")
def report(runs: tuple[Path, ...], output: Path, force: bool) -> None:
    """Make one page of finished runs, which needs no network; several are set side by side."""
    from bftrainer.runs.finished import read_summary
    from bftrainer.runs.page import write_page

    for run in runs:
        read_summary(run)  # what is no run is told before what is wrong with the page's place
    refuse_inputs(output)
    write_page(runs, output, force=force)
    click.echo(f"Page: {output}")
