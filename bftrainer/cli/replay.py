"""`bftrainer replay`, also installed as `bftrainer-replay`."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from bftrainer import __version__
from bftrainer.cli.group import INTERRUPTED
from bftrainer.cli.replay_options import replay_options

if TYPE_CHECKING:
    from bftrainer.experiment import Inputs, ReplayConfig, RunResult
    from bftrainer.replay import Observer


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@replay_options
@click.version_option(__version__, prog_name="bftrainer")
@click.pass_context
def replay(
    ctx: click.Context,
    /,
    name: str,
    output_dir: Path | None,
    print_: bool,
    as_json: bool,
    dry_run: bool,
    force: bool,
    **options: Any,
) -> None:
    """Replay node idle/preempt events and allocate the idle nodes to malleable training tasks.

    Without arguments an embedded sample is replayed. Results go to NAME-itrOut: step-logs.csv, decisions.parquet,
    tasks.parquet, allocation.parquet, summary.json.
    """
    from bftrainer.experiment import load_inputs
    from bftrainer.experiment.files import check_free

    config = _config(ctx, options)
    target = output_dir or _default_directory(ctx, name)
    check_free(target, force=force)
    inputs = load_inputs(config)
    for note in inputs.notes:
        click.echo(f"Note: {note}", err=True)
    if dry_run:
        _print_inputs(inputs, as_json)
        return
    result = _run(config, inputs, target, force=force, printing=print_, as_json=as_json)
    if result.is_partial:
        ctx.exit(INTERRUPTED)


def _config(ctx: click.Context, options: dict[str, Any]) -> ReplayConfig:
    from bftrainer.experiment import ReplayConfig

    mip = options.pop("mip")
    solver = options.pop("solver")
    if mip is not None and solver is not None:
        raise click.UsageError("Expected either -mip or --solver, got both.", ctx)
    if solver is None:
        solver = "equal-share" if mip is False or options["strict_published"] else "cbc"
    if options["strict_published"] and solver != "equal-share":
        raise click.UsageError(f"Expected --strict-published with --solver equal-share, got {solver}.", ctx)
    options["prune"] = not options.pop("no_prune")
    options["baseline"] = not options.pop("no_baseline")
    return ReplayConfig(solver=solver, **options)


def _default_directory(ctx: click.Context, name: str) -> Path:
    """``<name>-itrOut`` as published; a run of the sample alone takes the next free ``sample-<k>-itrOut``."""
    from bftrainer.experiment import next_free

    given = ("node_log", "tasks", "name")
    if any(ctx.get_parameter_source(option) is not ParameterSource.DEFAULT for option in given):
        return Path(f"{name}-itrOut")
    return next_free("sample", Path())


def _print_inputs(inputs: Inputs, as_json: bool) -> None:
    log = inputs.log
    counts = {
        "nodes": len(log.nodes),
        "rows": sum(1 for _ in log.rows()),
        "transitions": int(log.time_ns.size),
        "window_s": log.window_s,
        "tasks": len(inputs.tasks),
    }
    if as_json:
        click.echo(json.dumps(counts))
    else:
        for key, value in counts.items():
            click.echo(f"{key:12} {value:,}")


def _run(
    config: ReplayConfig, inputs: Inputs, target: Path, *, force: bool, printing: bool, as_json: bool
) -> RunResult:
    from bftrainer.cli.summary import render_summary
    from bftrainer.experiment import result_directory, run_replay, write_run

    command = shlex.join(["bftrainer-replay", *_arguments()])
    with result_directory(target, force=force) as directory:
        with _interruptible() as interrupted, _progress(inputs, printing) as observers:
            result = run_replay(config, inputs=inputs, observers=observers, interrupted=interrupted, command=command)
        write_run(result, directory)
        if not printing:
            with (directory / "iter-prints.log").open("w", encoding="utf-8") as log:
                _say(result, target, as_json, log, render_summary)
    if printing:
        _say(result, target, as_json, sys.stdout, render_summary)
    return result


def _arguments() -> list[str]:
    arguments = sys.argv[1:]
    return arguments[1:] if arguments[:1] == ["replay"] else arguments


def _say(
    result: RunResult, target: Path, as_json: bool, out: IO[str], render: Callable[[dict[str, Any], IO[str]], None]
) -> None:
    if as_json:
        out.write(json.dumps(result.summary() | {"output_dir": str(target)}, indent=2) + "\n")
        return
    render(result.summary(), out)
    out.write(f"Results: {target}\n")


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a flag, so that what was replayed is still written; a second one interrupts."""
    pressed = False

    def on_interrupt(number: int, frame: Any) -> None:
        nonlocal pressed
        if pressed:
            signal.default_int_handler(number, frame)
        pressed = True

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def _progress(inputs: Inputs, printing: bool) -> Iterator[list[Observer]]:
    """A progress bar on stderr, where that is a terminal."""
    if not (printing and sys.stderr.isatty()):
        yield []
        return
    from bftrainer.cli.progress import ProgressBar

    with ProgressBar(inputs.log.window_s, len(inputs.tasks)) as bar:
        yield [bar]
