"""`bftrainer replay`, also installed as `bftrainer-replay`, and `bftrainer solvers`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from bftrainer._version import __version__
from bftrainer.cli._shared.signals import KILLED_BY, Signalled, interruptible
from bftrainer.cli._shared.stdio import tell
from bftrainer.cli._shared.usage import WIDE, Sectioned, refuse_inputs, refuse_unused, show_page
from bftrainer.cli.replay.options import COMMON, HELP_SECTIONS, config_of, replay_options
from bftrainer.errors import RunDirectoryError, RunFailedError, SolverError

if TYPE_CHECKING:
    from bftrainer.files.directories import ResultDirectory
    from bftrainer.replay import Observer
    from bftrainer.runs import Inputs, RunResult


@click.command(
    cls=Sectioned,
    context_settings=WIDE,
    sections={"Common options": (*COMMON, "output_dir", "report"), **HELP_SECTIONS},
    epilog="Example: bftrainer replay -ndmap idle.csv -bdfn tasks.toml -maxJ 30 --solver dp -o my-run",
)
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
    checkpoint_every: float,
    resume: Path | None,
    **options: Any,
) -> None:
    """Replay node idle/preempt events and allocate the idle nodes to malleable training tasks.

    Without arguments an embedded sample is replayed. Results go to NAME-itrOut: step-logs.csv, decisions.parquet,
    tasks.parquet, allocation.parquet, summary.json; power.parquet and attempts.parquet where tasks are tuned.
    """
    from bftrainer.files.directories import check_free, result_directory
    from bftrainer.runs import load_inputs

    if resume is not None:
        ctx.exit(_resumed(resume))
    config = config_of(ctx, options)
    places = [output_dir] if output_dir else _named_directories(ctx, name, force=force)
    target = places[0] if isinstance(places, list) else None
    on_sample = target is report is None and "runs of the sample go to the next free directory"
    refuse_unused({"force": on_sample, "open": report is None and "there is no --report"})
    if target is not None and not dry_run:
        check_free(target, force=force)
    if report is not None and not dry_run:
        check_page(report, force=force)
        if target is not None and report.resolve().is_relative_to(target.resolve()):
            raise click.UsageError(f"Expected --report outside {target}, which holds results alone, got {report}.")
    inputs = load_inputs(config)
    for note in inputs.notes:
        tell(f"Note: {note}")
    refuse_unused(config.without_effect(tuned=inputs.make_tuner is not None, learned=bool(inputs.learned)))
    if dry_run:
        _print_inputs(inputs, as_json)
        return
    with interruptible() as received, result_directory(places, force=force and target is not None) as directory:
        result = _replayed(
            inputs, directory, received, _arguments(), checkpoint_every, printing=print_, as_json=as_json
        )
    ctx.exit(_told(result, directory.path, ctx.params, received))


def check_page(path: Path, *, force: bool) -> None:
    """Refuse a page that could not be made or written, before the run."""
    from bftrainer.files.writing import refuse_existing
    from bftrainer.report.page import check_pages

    check_pages()
    refuse_inputs(path)
    if path.suffix not in ("", ".html", ".htm"):
        raise click.UsageError(f"Expected --report to name a page, such as {path.stem}.html, got {path.name}.")
    refuse_existing(path, force=force)


def _named_directories(ctx: click.Context, name: str, *, force: bool) -> list[Path] | Iterator[Path]:
    """``<name>-itrOut`` as published if a name is given; else the first free one of the default's or the sample's."""
    from bftrainer.files.directories import numbered

    is_default = {
        option: ctx.get_parameter_source(option) is ParameterSource.DEFAULT
        for option in ("node_log", "tasks", "name", "from_harvest")
    }
    if all(is_default.values()):
        return numbered("sample")
    first = Path(f"{name}-itrOut")
    return chain([first], islice(numbered(name), 1, None)) if is_default["name"] and not force else [first]


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
        for key, value in counts.items():
            click.echo(f"{key:12} {value:,}")


def _resumed(place: Path) -> int:
    """Go on with an unfinished run; return the exit status."""
    from bftrainer.files.directories import result_directory
    from bftrainer.runs import load_inputs
    from bftrainer.runs.run import find_unfinished

    with interruptible() as received, result_directory([place], resume=True) as directory:
        beginning = find_unfinished(directory)
        arguments, begun_in = beginning.arguments, Path(beginning.directory)
        given = _without_resume(_arguments())
        if begun_in != Path.cwd():
            gone = "" if begun_in.is_dir() else ", which is gone: they are looked for here"
            tell(f"Note: {place}: Inputs are those of {begun_in}, where the run was begun{gone}.")
        with (
            chdir(begun_in if begun_in.is_dir() else "."),
            replay.make_context("bftrainer-replay", [*arguments]) as ctx,
        ):
            if given:
                _refuse_other_options(given, ctx.params)
            options = dict(ctx.params)
            told, every_s = {name: options.pop(name) for name in _OF_OUTPUT}, options.pop("checkpoint_every")
            told["from_harvest"] = options["from_harvest"]
            inputs = load_inputs(config_of(ctx, options))
            form = {"printing": told["print_"], "as_json": told["as_json"]}
            result = _replayed(inputs, directory, received, arguments, every_s, **form)
    return _told(result, place, told, received)


_NAMED = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
_OF_OUTPUT = ("name", "output_dir", "report", "print_", "as_json", "dry_run", "force", "resume")


def _refuse_other_options(arguments: Sequence[str], begun: Mapping[str, Any]) -> None:
    """Refuse options that are named and differ from those of the run that is resumed."""
    with replay.make_context("bftrainer-replay", [*arguments]) as ctx:
        named = [each for each in replay.params if ctx.get_parameter_source(each.name or "") in _NAMED]
        odd = sorted(max(each.opts, key=len) for each in named if ctx.params[each.name] != begun[each.name])
    if odd:
        raise RunDirectoryError(
            f"Expected the options that the run was begun with, or none; these differ: {', '.join(odd)}."
        )


def _without_resume(arguments: list[str]) -> list[str]:
    """Arguments but for ``--resume DIR``, and ``--open``, which is of the terminal and not of the run."""
    place = next(number for number, word in enumerate(arguments) if word.startswith("--resume"))
    others = arguments[:place] + arguments[place + (1 if "=" in arguments[place] else 2) :]
    return [word for word in others if word != "--open"]


def _replayed(
    inputs: Inputs,
    directory: ResultDirectory,
    received: list[int],
    arguments: Sequence[str],
    every_s: float,
    *,
    printing: bool,
    as_json: bool,
) -> RunResult:
    """Replay, and write the results; signals are held until these are in place, so that they are not lost meanwhile."""
    from bftrainer.campaigns.bound import try_more_tasks
    from bftrainer.runs import run_replay, write_run
    from bftrainer.runs.run import keep_decisions

    journal = keep_decisions(directory, arguments, inputs, every_s) if every_s else None
    with _progress(inputs, printing) as observers:
        if journal is not None and journal.known:
            tell(f"Note: {directory.path}: Resumed after {len(journal.known):,} decisions.")
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
    if not printing:
        with (directory.working / "iter-prints.log").open("w", encoding="utf-8", errors="backslashreplace") as log:
            _print_result(result, directory.path, as_json, log)
    return result


def _told(result: RunResult, place: Path, options: Mapping[str, Any], received: Sequence[int]) -> int:
    """Print what was found, and make the page; return the exit status."""
    from bftrainer.files.directories import JOURNAL

    harvest = options["from_harvest"]
    if options["print_"]:
        _print_result(result, place, options["as_json"], sys.stdout)
        if harvest is not None and not options["as_json"]:
            print_fidelity(harvest, place)
    if options["report"] is None and options["print_"] and not options["as_json"] and sys.stdout.isatty():
        click.echo(f"Page: bftrainer report {shlex.quote(str(place))} makes one.")
    if options["report"] is not None:
        from bftrainer.report.run_page import write_page
        from bftrainer.runs.run_files import read_runs

        runs = read_runs([place] if harvest is None else [harvest, place])
        write_page(runs, options["report"], force=options["force"])
        show_page(options["report"], quiet=options["as_json"])
    if not result.is_partial:
        return 0
    if (place / JOURNAL).exists():
        tell(_how_to_go_on("Not finished" if result.failure else "Interrupted", place))
    if result.failure and not received:
        raise RunFailedError(str(result.failure), result)
    return KILLED_BY + received[0]


def print_fidelity(harvest: Path, place: Path) -> None:
    """Set what was replayed beside what really happened."""
    from bftrainer.cli._shared.stdio import print_table
    from bftrainer.harvest.fidelity import fidelity, fidelity_rows

    found = fidelity(harvest, place)
    print_table(("of the harvest", "predicted", "measured", "apart"), fidelity_rows(found))
    for reason in found["reasons"]:
        click.echo(f"Besides: {reason}.")


def _how_to_go_on(why: str, place: Path) -> str:
    return f"Note: {why}; bftrainer replay --resume {shlex.quote(str(place))} goes on."


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
def _progress(inputs: Inputs, printing: bool) -> Iterator[list[Observer]]:
    """A progress bar on stderr, where that is a terminal."""
    if not (printing and sys.stderr.isatty()):
        yield []
        return
    from bftrainer.cli._shared.progress import ProgressBar

    with ProgressBar(inputs.log.window_s, len(inputs.tasks)) as bar:
        yield [bar]


@click.command(epilog="Example: bftrainer solvers")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def solvers(as_json: bool) -> None:
    """List the solvers: installed, licensed, exact, version; and whether the compiled core is in use."""
    from bftrainer._core import core, why_not
    from solvers.registry import catalogue

    rows = list(catalogue())
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    from bftrainer.cli._shared.stdio import print_table

    headings = ("solver", "installed", "licence", "exact", "extra rows", "capacities", "floor", "version")
    words = {True: "yes", False: "no", "": "-"}
    print_table(headings, [[words.get(cell, cell) for cell in row.values()] for row in rows], left=None)
    click.echo(f"core: {'compiled' if core else f'NumPy ({why_not})'}")
