"""`bftrainer solvers`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click

__all__ = ["solvers"]

FILE_WIDTH = 400


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def solvers(as_json: bool) -> None:
    """List the solvers: installed, licensed, exact, version."""
    from solvers.registry import catalogue

    rows = list(catalogue())
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("solver", "installed", "licence", "exact", "extra rows", "version"):
        table.add_column(heading)
    for row in rows:
        installed, exact, extra_rows = (_yes(answer) for answer in (row.installed, row.exact, row.extra_rows))
        table.add_row(row.name, installed, row.licensed or "-", exact, extra_rows, row.version or "-")
    # Elsewhere than on a terminal nothing is folded: one line a solver.
    console = Console() if sys.stdout.isatty() else Console(width=FILE_WIDTH)
    console.print(table)


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"
