"""`bftrainer replay`, also installed as `bftrainer-replay`, and `bftrainer solvers`."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from bftrainer._version import __version__
from bftrainer.cli._shared.stdio import tell
from bftrainer.cli._shared.usage import WIDE, refuse_inputs, refuse_unused
from bftrainer.cli.replay.options import config_of, replay_options

if TYPE_CHECKING:
    from bftrainer.replay import Observer
    from bftrainer.runs import Inputs, RunResult


KILLED_BY = 128  # a shell's exit status for a program that a signal ended is this plus its number


@click.command(context_settings=WIDE)
@replay_options
@click.version_option(__version__, prog_name="bftrainer")
@click.pass_context
def replay(
    ctx: click.Context,
    /,
    name: str,
    output_dir: Path | None,
    report: Path | None,
    print_: bool,
    as_json: bool,
    dry_run: bool,
    force: bool,
    **options: Any,
) -> None:
    """Replay node idle/preempt events and allocate the idle nodes to malleable training tasks.

    Without arguments an embedded sample is replayed. Results go to NAME-itrOut: step-logs.csv, decisions.parquet,
    tasks.parquet, allocation.parquet, summary.json; power.parquet and attempts.parquet where tasks are tuned.
    """
    from bftrainer.files.writing import check_free, numbered
    from bftrainer.runs import load_inputs

    config = config_of(ctx, options)
    target = output_dir or _named_directory(ctx, name)
    refuse_unused({"force": target is report is None and "runs of the sample go to the next free directory"})
    if target is not None and not dry_run:
        check_free(target, force=force)
    if report is not None and not dry_run:
        _check_page(report, force=force)
    inputs = load_inputs(config)
    for note in inputs.notes:
        tell(f"Note: {note}")
    refuse_unused(config.without_effect(tuned=inputs.tuning is not None))
    if dry_run:
        _print_inputs(inputs, as_json)
        return
    places = numbered("sample") if target is None else [target]
    status, place = _run(inputs, places, force=force and target is not None, printing=print_, as_json=as_json)
    if report is not None:
        from bftrainer.runs.finished import write_page

        write_page([place], report, force=force)
        if not as_json:
            click.echo(f"Page: {report}")
    ctx.exit(status)


def _check_page(path: Path, *, force: bool) -> None:
    """Refuse a page that could not be made or written, before the run."""
    from bftrainer.files.writing import refuse_existing
    from bftrainer.runs.finished import check_pages

    check_pages()
    refuse_inputs(path)
    refuse_existing(path, force=force)


def _named_directory(ctx: click.Context, name: str) -> Path | None:
    """``<name>-itrOut`` as published; None for a run of the sample only, which gets the next free number."""
    given = ("node_log", "tasks", "name")
    is_sample = all(ctx.get_parameter_source(option) is ParameterSource.DEFAULT for option in given)
    return None if is_sample else Path(f"{name}-itrOut")


def _print_inputs(inputs: Inputs, as_json: bool) -> None:
    log = inputs.log
    counts = {
        "nodes": len(log.nodes),
        "rows": log.row_arrays().time_s.size,
        "transitions": int(log.node.size),
        "window_s": log.window_s,
        "tasks": len(inputs.tasks),
    }
    if as_json:
        click.echo(json.dumps(counts))
    else:
        for key, value in counts.items():
            click.echo(f"{key:12} {value:,}")


def _run(inputs: Inputs, places: Iterable[Path], *, force: bool, printing: bool, as_json: bool) -> tuple[int, Path]:
    """Replay, write, print; return the exit status and where the results are."""
    from bftrainer.files.writing import result_directory
    from bftrainer.runs import run_replay, write_run

    command = shlex.join(["bftrainer-replay", *_arguments()])
    # The signals are held until the results are in place: a finished replay is not lost while it is written.
    with _interruptible() as received, result_directory(places, force=force) as directory:
        with _progress(inputs, printing) as observers:
            result = run_replay(inputs=inputs, observers=observers, interrupted=lambda: bool(received), command=command)
        write_run(result, directory.working)
        if not printing:
            with (directory.working / "iter-prints.log").open("w", encoding="utf-8", errors="backslashreplace") as log:
                _print_result(result, directory.path, as_json, log)
    if printing:
        _print_result(result, directory.path, as_json, sys.stdout)
    return KILLED_BY + received[0] if result.is_partial else 0, directory.path


def _arguments() -> list[str]:
    arguments = sys.argv[1:]
    return arguments[1:] if arguments[:1] == ["replay"] else arguments


def _print_result(result: RunResult, target: Path, as_json: bool, out: IO[str]) -> None:
    if as_json:
        out.write(json.dumps(result.summary() | {"output_dir": str(target)}, indent=2) + "\n")
        return
    from bftrainer.cli.replay.result_table import render_summary

    render_summary(result.summary(), out)
    out.write(f"Results: {target}\n")


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """Record the first Ctrl-C or SIGTERM, so that what was replayed is still written; a second one interrupts."""
    received: list[int] = []

    def on_signal(number: int, frame: Any) -> None:
        """Remember the first signal; stop at once at the second."""
        if received:
            signal.default_int_handler(number, frame)
        received.append(number)

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _progress(inputs: Inputs, printing: bool) -> Iterator[list[Observer]]:
    """A progress bar on stderr, where that is a terminal."""
    if not (printing and sys.stderr.isatty()):
        yield []
        return
    from bftrainer.cli._shared.progress import ProgressBar

    with ProgressBar(inputs.log.window_s, len(inputs.tasks)) as bar:
        yield [bar]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def solvers(as_json: bool) -> None:
    """List the solvers: installed, licensed, exact, version; and whether the compiled core is in use."""
    from bftrainer._core import core, why_not
    from solvers.registry import catalogue

    rows = list(catalogue())
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    from bftrainer.cli._shared.stdio import print_table

    headings = ("solver", "installed", "licence", "exact", "extra rows", "capacities", "floor", "version")
    lines = []
    for row in rows:
        takes = [_yes_or_no(answer) for answer in (row.exact, row.extra_rows, row.capacities, row.floor)]
        lines.append((row.name, _yes_or_no(row.installed), row.licensed or "-", *takes, row.version or "-"))
    print_table(headings, lines, left=None)
    click.echo(f"core: {'compiled' if core else f'NumPy ({why_not})'}")


def _yes_or_no(answer: bool) -> str:
    return "yes" if answer else "no"
