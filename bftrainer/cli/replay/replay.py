"""`bftrainer replay`, also installed as `bftrainer-replay`, and `bftrainer solvers`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import chdir
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from bftrainer._version import __version__
from bftrainer.cli._shared import usage
from bftrainer.cli._shared.signals import KILLED_BY, Signalled, interruptible
from bftrainer.cli._shared.stdio import note, print_json, print_table, write_rows
from bftrainer.cli.replay.options import COMMON, config_of, replay_options
from bftrainer.errors import RunFailedError, SolverError

if TYPE_CHECKING:
    from bftrainer.files.directories import ResultDirectory
    from bftrainer.runs import Inputs, RunResult


@usage.command(
    cls=usage.Brief,
    shown=(*COMMON, "sample", "output_dir", "resume", "report", "open", "force", "as_json"),
    epilog="Example: bftrainer replay -ndmap idle.csv -bdfn tasks.toml -maxJ 30 --solver dp -o my-run",
)
@replay_options
@click.version_option(__version__, prog_name="bftrainer")
@click.pass_context
def replay(
    ctx: click.Context, /, name: str, output_dir: Path | None, report: Path | None, as_json: bool, dry_run: bool,
    force: bool, resume: Path | None, **options: Any,
) -> None:  # fmt: skip
    """Replay node idle/preempt events and allocate the idle nodes to malleable training tasks.

    Without arguments an embedded sample is replayed. Results go to NAME-itrOut: step-logs.csv, decisions.parquet,
    tasks.parquet, allocation.parquet, summary.json; power.parquet and attempts.parquet where tasks are tuned.
    """
    from bftrainer.files.directories import check_free, result_directory
    from bftrainer.runs import load_inputs

    if resume is not None:
        ctx.exit(_resume(ctx, resume))
    del options["print_"], options["checkpoint_every"]  # which are taken from the context
    config = config_of(ctx, options)
    place = output_dir or _named_directory(ctx, name, force=force)
    if not dry_run:
        check_free(place, force=force)
    usage.check_report(None if dry_run else report, force=force)
    if report is not None and report.resolve().is_relative_to(place.resolve()):
        raise click.UsageError(f"Expected --report outside {place}, which holds results alone, got {report}.")
    inputs = load_inputs(config)
    for text in inputs.notes:
        note(text)
    usage.refuse_unused(config.list_ineffective(tuned=inputs.make_tuner is not None, learned=bool(inputs.learned)))
    if dry_run:
        _print_inputs(inputs, as_json)
        return
    with interruptible() as received, result_directory(place, force=force) as directory:
        result = _replay(inputs, directory, received, _arguments(), ctx.params)
    ctx.exit(_print_and_report(result, directory.path, ctx.params, received))


def _named_directory(ctx: click.Context, name: str, *, force: bool) -> Path:
    """``<name>-itrOut`` as published if a name is given; else the first free one of the default's or the sample's."""
    from bftrainer.files.directories import is_free

    is_default = {
        option: ctx.get_parameter_source(option) is ParameterSource.DEFAULT
        for option in ("node_log", "tasks", "name", "from_harvest")
    }
    first = Path(f"{name}-itrOut")
    if all(is_default.values()):
        return next(filter(is_free, (Path(f"sample-{number}-itrOut") for number in count(1))))
    if is_default["name"] and not force and not is_free(first):
        return next(filter(is_free, (Path(f"{name}-{number}-itrOut") for number in count(2))))
    return first


def _print_inputs(inputs: Inputs, as_json: bool) -> None:
    log = inputs.log
    counts = {
        "nodes": len(log.nodes),
        "rows": sum(1 for _ in log.rows()),
        "transitions": int(log.node.size),
        "window_s": log.window_s,
        "tasks": len(inputs.tasks),
    }
    if as_json:
        click.echo(json.dumps(counts))
    else:
        write_rows(None, [(key, f"{value:,}") for key, value in counts.items()], indent=13)


def _resume(ctx: click.Context, place: Path) -> int:
    """Go on with an unfinished run by the options that it was begun with; return the exit status."""
    from bftrainer.files.directories import result_directory
    from bftrainer.runs import load_inputs
    from bftrainer.runs.run import find_unfinished

    usage.refuse_unused(dict.fromkeys(set(ctx.params) - {"resume"}, "--resume goes on as the run was begun"))
    with interruptible() as received, result_directory(place, resume=True) as directory:
        beginning = find_unfinished(directory)
        begun_in = Path(beginning.directory)
        if begun_in != Path.cwd():
            gone = "" if begun_in.is_dir() else ", which is gone: they are looked for here"
            note(f"{place}: Inputs are those of {begun_in}, where the run was begun{gone}.")
        with (
            chdir(begun_in if begun_in.is_dir() else "."),
            replay.make_context("bftrainer-replay", [*beginning.arguments]) as begun,
        ):
            options = {name: value for name, value in begun.params.items() if name not in _OF_OUTPUT}
            inputs = load_inputs(config_of(begun, options))
            result = _replay(inputs, directory, received, beginning.arguments, begun.params)
    return _print_and_report(result, place, begun.params, received)


_OF_OUTPUT = (*("name", "output_dir", "report", "print_", "as_json", "dry_run", "force", "resume", "checkpoint_every"),)


def _replay(
    inputs: Inputs,
    directory: ResultDirectory,
    received: list[int],
    arguments: Sequence[str],
    options: Mapping[str, Any],
) -> RunResult:
    """Replay, and write the results; signals are held until these are in place, so that they are not lost meanwhile."""
    from bftrainer.campaigns.bound import try_more_tasks
    from bftrainer.cli._shared.progress import show_replay
    from bftrainer.runs import run_replay, write_run
    from bftrainer.runs.run import keep_decisions

    every_s = options["checkpoint_every"]
    journal = keep_decisions(directory, arguments, inputs, every_s) if every_s else None
    with show_replay(inputs.log.window_s, len(inputs.tasks), wanted=options["print_"]) as observers:
        if journal is not None and journal.recorded:
            note(f"{directory.path}: Resumed after {len(journal.recorded):,} decisions.")
        try:
            result = run_replay(
                inputs=inputs,
                observers=observers,
                interrupted=lambda: bool(received),
                command=shlex.join(["bftrainer-replay", *arguments]),
                journal=journal,
                scratch=directory.working.parent,  # not among the results: on NFS the file shows until it is closed
            )
        except SolverError:
            if received:  # it was asked to end while the solver did not answer
                raise Signalled(received[0]) from None
            raise
        except RunFailedError as error:
            if error.result is None:
                raise
            result = error.result
        if journal is not None and (result.is_partial or journal.path.exists()):
            journal.write()
    result = try_more_tasks(result, lambda: bool(received))
    if not result.is_partial:
        directory.is_finished = True  # the journal goes when the results are whole: writing these may fail, too
    write_run(result, directory.working)
    if not options["print_"]:
        with (directory.working / "iter-prints.log").open("w", encoding="utf-8", errors="backslashreplace") as log:
            _print_result(result, directory.path, options["as_json"], log)
    return result


def _print_and_report(result: RunResult, place: Path, options: Mapping[str, Any], received: Sequence[int]) -> int:
    """Print what was found, and make the page; return the exit status."""
    from bftrainer.files.directories import JOURNAL

    harvest, report = options["from_harvest"], options["report"]
    is_table = options["print_"] and not options["as_json"]
    if options["print_"]:
        _print_result(result, place, options["as_json"], sys.stdout)
    if harvest is not None and is_table:
        print_fidelity(harvest, place)
    if report is not None:
        from bftrainer.report.run_page import write_page
        from bftrainer.runs.run_files import read_runs

        write_page(read_runs([place] if harvest is None else [harvest, place]), report, force=options["force"])
        usage.show_page(report, quiet=options["as_json"])
    elif is_table and sys.stdout.isatty():
        click.echo(f"Page: bftrainer report {shlex.quote(str(place))} makes one.")
    if not result.is_partial:
        return 0
    if (place / JOURNAL).exists():
        why = "Not finished" if result.failure else "Interrupted"
        note(f"{why}; bftrainer replay --resume {shlex.quote(str(place))} goes on.")
    if result.failure and not received:
        raise RunFailedError(str(result.failure), result)
    return KILLED_BY + received[0]


def print_fidelity(harvest: Path, place: Path) -> None:
    """Set what was replayed beside what really happened."""
    from bftrainer.harvest.fidelity import fidelity

    rows = [figure.row() for figure in fidelity(harvest, place)]
    print_table(("of the harvest", "predicted", "measured", "apart"), rows)


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


@usage.command(epilog="Example: bftrainer solvers")
@usage.json_option
def solvers(as_json: bool) -> None:
    """List the solvers: installed, licensed, exact, version; and whether the compiled core is in use."""
    from bftrainer._core import core, why_not
    from solvers.registry import catalogue

    rows = list(catalogue())
    if as_json:
        print_json(rows)
        return
    headings = ("solver", "installed", "licence", "exact", "extra rows", "capacities", "floor", "version")
    words = {True: "yes", False: "no", "": "-"}
    print_table(headings, [[words.get(cell, cell) for cell in row.values()] for row in rows], left=None)
    click.echo(f"core: {'compiled' if core else f'NumPy ({why_not})'}")
