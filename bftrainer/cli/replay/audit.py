"""`bftrainer audit`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.stdio import tell

if TYPE_CHECKING:
    from bftrainer.audit import Audit, Part

__all__ = ["audit"]

SHOWN = 10
WRONG, UNUSABLE = 1, 2


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("runs", metavar="RUN_DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--objective",
    metavar="MODULE:CALLABLE",
    help="An objective of yours, to check decisions of runs that have it: this runs its code.",
)
@click.option("--json", "as_json", is_flag=True, help="All parts and what is wrong as JSON.")
@click.pass_context
def audit(ctx: click.Context, runs: tuple[Path, ...], objective: str | None, as_json: bool) -> None:
    """Check finished runs by independent code: solve every decision again, and book all progress and power again.

    Reads each run's files and the inputs that its summary names (relative paths: from the current directory, else from
    the one that the run's directory stands in). Each part of a run is checked, failed, or not checkable, and then says
    why. Exit status: 0 nothing is wrong, 1 something is, 2 a run cannot be audited.
    """
    from bftrainer.audit import UnusableError
    from bftrainer.audit import audit as audited

    own = None if objective is None else _own(objective)
    status, found = 0, []
    for run in runs:
        try:
            result = audited(run, own)
        except UnusableError as fault:
            status = UNUSABLE
            found.append({"run": str(run), "error": str(fault)})
            tell(f"Error: {run}: {fault}.")
            continue
        status = max(status, WRONG if result.failed else 0)
        found.append(result.to_dict())
        if not as_json:
            _print(result)
    if as_json:
        click.echo(json.dumps({"runs": found}, indent=2))
    ctx.exit(status)


def _own(name: str) -> Callable[..., Any]:
    """The user's objective, whose code is run from here on."""
    from bftrainer.objectives import get_objective

    if ":" not in name:
        raise click.UsageError(f"--objective: Expected MODULE:CALLABLE, got {name!r}.")
    tell(f"Note: {name} is code of yours, which this runs.")
    return get_objective(name)


def _print(result: Audit) -> None:
    click.echo(f"{result.run}")
    for part in result.parts:
        click.echo(f"  {part.status:14} {part.claim}{_counted(part)}")
        for problem in part.problems[:SHOWN]:
            click.echo(f"                   wrong: {problem}")
        if len(part.problems) > SHOWN:
            click.echo(f"                   and {len(part.problems) - SHOWN:,} more")
        for why, items in part.left_out.items():
            click.echo(f"                   not checked: {why}" + (f" ({items:,} times)" if items > 1 else ""))
    counts = result.to_dict()
    left = len(result.unchecked) - counts["not_checkable"]
    rest = f"; in {left} others not all items could be checked" if left else ""
    kinds = ("checked", "failed", "not_checkable")
    text = ", ".join(f"{counts[kind]} {kind.replace('_', ' ')}" for kind in kinds)
    click.echo(f"{result.run}: {text}{rest}")


def _counted(part: Part) -> str:
    if not part.looked:
        return ""
    wrong = f", {len(part.problems):,} wrong" if part.problems else ""
    return f": {part.looked:,} {'item' if part.looked == 1 else 'items'}{wrong}"
