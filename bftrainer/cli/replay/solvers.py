"""`bftrainer solvers`."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

__all__ = ["solvers"]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def solvers(as_json: bool) -> None:
    """List the solvers: installed, licensed, exact, version."""
    from solvers.registry import catalogue

    rows = list(catalogue())
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    from bftrainer.cli._shared.stdio import print_table

    headings = ("solver", "installed", "licence", "exact", "extra rows", "capacities", "floor", "version")
    lines = []
    for row in rows:
        takes = [_yes(answer) for answer in (row.exact, row.extra_rows, row.capacities, row.floor)]
        lines.append((row.name, _yes(row.installed), row.licensed or "-", *takes, row.version or "-"))
    print_table(headings, lines, left=None)


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"
