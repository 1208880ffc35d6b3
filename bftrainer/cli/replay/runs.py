"""`bftrainer runs`: list, verify and clean up what runs have left; `bftrainer solve`: the problems among that."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrainer.cli._shared.group import LazyGroup
from bftrainer.cli._shared.stdio import print_table, tell
from bftrainer.cli.zeus.zeus_options import FILE

if TYPE_CHECKING:
    from bftrainer.runs.config import Isolate
    from bftrainer.runs.kept import KeptRun

DAMAGED = 1

_HERE = "bftrainer.cli.replay.runs"
_COMMANDS = {
    "list": (_HERE, "list_", "List results in a directory, and whether they are finished."),
    "verify": (_HERE, "verify", "Check results against the checksums they were written with."),
    "clean": (_HERE, "clean", "Delete what killed runs have left."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, epilog="Example: bftrainer runs list .")
def runs() -> None:
    """List, verify and clean up what runs have left."""


_PLACE = click.argument("place", type=FILE, default=Path())
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


@click.command("list", epilog="Example: bftrainer runs list .")
@_PLACE
@_JSON
def list_(place: Path, as_json: bool) -> None:
    """List the results in PLACE, the current directory unless said.

    A run is finished; partial or unfinished, which can be resumed; left over by a killed process; in use by one; or,
    unless it is finished, another's, whose user alone can do something about it.
    """
    from bftrainer.runs.kept import kept_runs

    found = kept_runs(place)
    if as_json:
        click.echo(_document(found))
    elif found:
        rows = [(str(run.path), run.state, run.writer, f"{run.files:,}", f"{run.size:,}") for run in found]
        print_table(("run", "state", "writer", "files", "bytes"), rows, left=3)
    else:
        tell(f"{place}: No runs.")


def _document(found: Sequence[KeptRun]) -> str:
    return json.dumps([asdict(run) | {"path": str(run.path)} for run in found], indent=2)


@click.command(epilog="Example: bftrainer runs verify a-itrOut")
@click.argument("paths", metavar="RUN...", type=FILE, nargs=-1, required=True)
@_JSON
@click.pass_context
def verify(ctx: click.Context, paths: tuple[Path, ...], as_json: bool) -> None:
    """Check that results are as they were written. Exit status: 0 they are, 1 they are not, 2 they are no results."""
    from bftrainer.runs.kept import faults

    damaged = [fault for path in paths for fault in faults(path)]
    for line in [json.dumps({"faults": damaged}, indent=2)] if as_json else damaged:
        click.echo(line)
    ctx.exit(DAMAGED if damaged else 0)


@click.command(epilog="Example: bftrainer runs clean .")
@_PLACE
@click.option("--unfinished", is_flag=True, help="Delete runs that could be resumed as well.")
@_JSON
def clean(place: Path, unfinished: bool, as_json: bool) -> None:
    """Delete what killed runs have left in PLACE, the current directory unless said; whole results are put in place."""
    from bftrainer.runs.kept import clean as cleaned

    gone = cleaned(place, unfinished=unfinished)
    if as_json:
        click.echo(_document(gone))
        return
    for run in gone:
        click.echo(f"{run.path}: {run.state}, {run.files:,} files, {run.size:,} bytes")


@click.command("solve", epilog="Example: bftrainer solve problem.json --solver dp")
@click.argument("path", metavar="FILE", type=FILE)
@click.option("--solver", metavar="NAME", help="See `bftrainer solvers`.  [default: the one that failed]")
@click.option(
    "--isolate",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Solvers that answer in a process of their own: other packages', all that call a library, or none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def solve_kept(path: Path, solver: str | None, isolate: Isolate, as_json: bool) -> None:
    """Solve the problem in FILE again, which a run has kept because a solver failed on it.

    Exit status: 0 there is an answer, 1 the solver failed again, 2 FILE is no problem.
    """
    from bftrainer.runs.kept import kept_problem
    from solvers.isolation import isolated
    from solvers.registry import get_solver, solve

    problem, limits, failed = kept_problem(path)
    asked = isolated(solver or failed, isolate, lambda *_: "")
    result = solve(get_solver(asked) if isinstance(asked, str) else asked, problem, limits)
    shown = ("solver", "stop_reason", "held", "decided_by", "objective", "bound", "counts", "choices", "solve_s")
    found = {name: getattr(result, name) for name in shown}
    if as_json:
        click.echo(json.dumps(found))
        return
    for key, value in found.items():
        click.echo(f"{key:12} {value if not isinstance(value, tuple) else ' '.join(map(str, value))}")
