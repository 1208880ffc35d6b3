"""`bftrainer replay`, also installed as `bftrainer-replay`, and `bftrainer solvers`."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
from click.core import ParameterSource

from bftrainer._version import __version__
from bftrainer.cli import usage
from bftrainer.cli.terminal import (
    KILLED_BY,
    Signalled,
    duration,
    interruptible,
    moving_bar,
    note,
    print_table,
    write_rows,
)
from bftrainer.cli.usage import DURATION, FILE
from bftrainer.errors import RunFailedError, SolverError
from bftrainer.files.directories import JOURNAL, check_free, is_free, is_unfinished, result_directory
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.report import glossary
from bftrainer.report.glossary import ASSUMED, Summary, format_value, mark_assumed, scaling_note
from bftrainer.runs.config import OPTIONS, SECTIONS, Option, ReplayConfig

if TYPE_CHECKING:
    from bftrainer.files.directories import ResultDirectory
    from bftrainer.replay import Cluster, ClusterChange, Observer
    from bftrainer.runs import Inputs, RunResult


# --- Options, as `ReplayConfig` declares them; defaults as published


def _quantity(units: Mapping[str, float], text: str) -> float | Path:
    """The number in the base unit, or the file that the text names."""
    match = re.fullmatch(r"\s*([0-9.][0-9.eE+-]*)\s*([a-zA-Z]*)\s*", text)
    if match and match[2] in units:
        try:
            return float(match[1]) * units[match[2]]
        except ValueError:
            pass  # such as 1.2.3, which may still be a file's name
    if not Path(text).is_file():
        raise ValueError(text)
    return Path(text)


_RANGES: dict[str, click.ParamType[Any]] = {
    "forward_time_s": usage.POSITIVE,
    "time_limit_s": usage.POSITIVE,
    "mip_gap": click.FloatRange(0, 1, max_open=True),
}
"""Ranges of numbers that may not be what bounds them."""


def declared_option(name: str, option: Option, defaults: Mapping[str, Any] | None = None) -> usage.Decorator:
    """The option of a field, for a command that may have other `defaults`."""
    text = option.text + (f"  [default: {option.unset}]" if option.unset else "")
    if option.kind is bool:
        turns = (lambda _, __, value: not value) if option.default else None
        return click.option(*option.flags, name, is_flag=True, callback=turns, help=text)
    kind: Any = _RANGES.get(name) or {Path: FILE, datetime: usage.INSTANT}.get(option.kind, option.kind)
    if option.units:
        kind = usage.Parsed("VALUE|FILE", partial(_quantity, option.units), f"{option.expected}, or a CSV file")
    elif get_origin(option.kind) is Literal:
        kind = click.Choice(get_args(option.kind))
    elif option.least is not None:
        kind = (click.IntRange if option.kind is int else click.FloatRange)(min=option.least)
    default = (defaults or {}).get(name, option.default)
    metavar = option.metavar or ("NAME" if option.kind is str else None)
    return click.option(*option.flags, name, type=kind, default=default, metavar=metavar, help=text)


# What stands for others, after which of these it stands in help.
_SHORTCUTS: dict[str, usage.Decorator] = {
    "tasks": click.option(
        "--sample", type=click.Choice(["plain", "tuned"]), default="plain", help="Embedded tasks without -bdfn."
    ),
    "max_tasks": click.option(
        "-mip", "mip", type=bool, default=None, help="false: --solver equal-share, as published."
    ),
}


def _options_of(*sections: str) -> Iterator[usage.Decorator]:
    for section in sections:
        for name, option in OPTIONS.items():
            if option.section == section:
                yield declared_option(name, option)
                if name in _SHORTCUTS:
                    yield _SHORTCUTS[name]


replay_options = usage.with_options(
    *_options_of(*(section for section in SECTIONS if section != "figures")),
    click.option("-name", "--name", "name", default="debug", help="Results go to NAME-itrOut."),
    click.option("-o", "--output-dir", type=FILE, help="Where results go.  [default: NAME-itrOut, or one beside it]"),
    usage.report_option,
    usage.force_option,
    click.option("-print", "--print", "print_", type=bool, default=True, help="false: print to iter-prints.log there."),
    click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON instead of a table."),
    *_options_of("figures"),
    click.option("--checkpoint-every", type=DURATION, default="60s", help="Keep decisions so often; 0: none."),
    click.option("--resume", type=FILE, metavar="DIR", help="Go on with the unfinished run in DIR, as it was begun."),
    click.option(
        "--from-harvest", type=FILE, metavar="DIR", help="Replay the harvest in DIR, and say how far apart both are."
    ),
    click.option("--dry-run", is_flag=True, help="Validate the inputs, print what is in them, and stop."),
)

COMMON = ("node_log", "tasks", "forward_time_s", "max_tasks", "solver", "objective", "since", "until")
LIKE = ("node_log", "tasks", "scalability", *COMMON[2:])
"""Options of a replay that commands with `like_options` have themselves."""
like_options = usage.with_options(
    click.option(
        "--like", type=FILE, metavar="RUN|TOML", help="Take what is not given here from a run, or a sweep's [base]."
    ),
    *(declared_option(name, OPTIONS[name]) for name in LIKE),
)
"""The most common options of a replay; the others are those of a run or a file."""


def config_of(ctx: click.Context, options: dict[str, Any]) -> ReplayConfig:
    """The configuration that options of `replay_options` ask for."""
    mip, sample, harvest = options.pop("mip"), options.pop("sample"), options.pop("from_harvest", None)
    if harvest is not None:
        from bftrainer.harvest.fidelity import harvest_inputs

        options |= harvest_inputs(harvest) | _pick_given(ctx, options, options)
    if ctx.get_parameter_source("solver") is ParameterSource.DEFAULT and harvest is None:
        if mip is False or options["strict_published"]:
            options["solver"] = "equal-share"
    elif mip is not None:
        raise click.UsageError("Give either -mip or --solver, not both.", ctx)
    if options["strict_published"] and options["solver"] != "equal-share":
        raise click.UsageError(f"Expected --strict-published with --solver equal-share, got {options['solver']}.", ctx)
    names_tasks = options["tasks"] is not None and "-bdfn names the tasks"
    if sample == "tuned" and not names_tasks:
        options["tasks"] = sample_path(SAMPLE_TUNED_TASKS)
    config = ReplayConfig(**options)
    usage.refuse_unused({"sample": names_tasks})
    return config


def _pick_given(ctx: click.Context, options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Options of these names that are not left at their defaults."""
    return {name: options[name] for name in names if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT}


def config_like(ctx: click.Context, options: dict[str, Any]) -> ReplayConfig:
    """The configuration that `like_options` ask for: that of a run or a file, and the options given beside it."""
    from bftrainer.campaigns.sweep_file import merge_options, read_sweep
    from bftrainer.objectives.modifiers import names_code
    from bftrainer.runs.run_files import load_options, read_summary
    from bftrainer.runs.run_inputs import LEARNED

    like, typed = options["like"], _pick_given(ctx, options, LIKE)
    if like is None:
        return ReplayConfig(**typed)
    if like.is_dir():
        base = load_options(like, read_summary(like))
        for name in ("objective", "solver", "fallback", "policy", "power_policy"):
            if name not in typed and names_code(base.get(name)):  # a run may be somebody else's
                raise click.UsageError(f"{like}: its {name} is code, {base[name]}, which is not run unasked.", ctx)
    else:
        spec = read_sweep(like)
        if spec.axes:
            raise click.UsageError(
                f"{like}: Expected settings of one run in [base], got a sweep over {spec.axes[0]}.", ctx
            )
        base = dict(spec.resolve_points()[0].options)
    if "tasks" in typed:  # which have curves of their own
        base |= {"scalability": None, "scaling": LEARNED if base.get("scaling") == LEARNED else None}
    return ReplayConfig(**merge_options(base, typed))


# --- Commands


@usage.command(
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
        log = inputs.log
        counts: dict[str, float] = {"nodes": len(log.nodes), "rows": sum(1 for _ in log.rows())}
        counts |= {"transitions": int(log.node.size), "window_s": log.window_s, "tasks": len(inputs.tasks)}
        if as_json:
            click.echo(json.dumps(counts))
        else:
            write_rows(None, [(key, f"{value:,}") for key, value in counts.items()], indent=13)
        return
    with interruptible() as received, result_directory(place, force=force) as directory:
        is_named = output_dir is None and ctx.get_parameter_source("name") is not ParameterSource.DEFAULT
        if is_named and place.name != f"{name}-itrOut":
            note(f"{name}-itrOut exists; results go to {place}.")
        arguments = sys.argv[2:] if sys.argv[1:2] == ["replay"] else sys.argv[1:]
        result = _replay(inputs, directory, received, arguments, ctx.params)
    ctx.exit(_print_and_report(result, directory.path, ctx.params, received))


def _named_directory(ctx: click.Context, name: str, *, force: bool) -> Path:
    """``<name>-itrOut`` as published, or the first free one beside it; of the sample the first free one."""
    options = ("node_log", "tasks", "name", "from_harvest")
    if all(ctx.get_parameter_source(option) is ParameterSource.DEFAULT for option in options):
        return next(filter(is_free, (Path(f"sample-{number}-itrOut") for number in count(1))))
    first = Path(f"{name}-itrOut")
    is_named = ctx.get_parameter_source("name") is not ParameterSource.DEFAULT
    if force or is_free(first) or (is_named and is_unfinished(first)):  # which is refused, as it can be resumed
        return first
    return next(filter(is_free, (Path(f"{name}-{number}-itrOut") for number in count(2))))


def _resume(ctx: click.Context, place: Path) -> int:
    """Go on with an unfinished run by the options that it was begun with; return the exit status."""
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
            replay.make_context("bftrainer-replay", [*beginning.arguments]) as first_ctx,
        ):
            options = {name: value for name, value in first_ctx.params.items() if name not in _OF_OUTPUT}
            inputs = load_inputs(config_of(first_ctx, options))
            result = _replay(inputs, directory, received, beginning.arguments, first_ctx.params)
    return _print_and_report(result, place, first_ctx.params, received)


_OF_OUTPUT = (*("name", "output_dir", "report", "print_", "as_json", "dry_run", "force", "resume", "checkpoint_every"),)


def _replay(
    inputs: Inputs,
    directory: ResultDirectory,
    received: list[int],
    arguments: Sequence[str],
    options: Mapping[str, Any],
) -> RunResult:
    """Replay, and write the results; signals are held until these are in place, so that they are not lost meanwhile."""
    from bftrainer.campaigns.studies import try_more_tasks
    from bftrainer.runs import run_replay, write_run
    from bftrainer.runs.run import keep_decisions

    every_s = options["checkpoint_every"]
    journal = keep_decisions(directory, arguments, inputs, every_s) if every_s else None
    with _show_progress(inputs.log.window_s, is_shown=options["print_"]) as observers:
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


@contextmanager
def _show_progress(window_s: float, *, is_shown: bool) -> Iterator[list[Observer]]:
    """Show on a terminal how much of the window has passed."""
    from bftrainer.replay import Observer

    if not (is_shown and sys.stderr.isatty()):
        yield []
        return
    with moving_bar("Replaying", max(window_s, 1e-9), "{task.percentage:>3.0f}%") as move:

        class ReplayBar(Observer):
            shown_s = 0.0

            def on_event(self, cluster: Cluster, change: ClusterChange) -> None:  # noqa: ARG002
                if time.monotonic() - self.shown_s >= _REFRESH_S:
                    self.shown_s = time.monotonic()
                    move(change.time_s)

        yield [ReplayBar()]


_REFRESH_S = 0.1


def _print_and_report(result: RunResult, place: Path, options: Mapping[str, Any], received: Sequence[int]) -> int:
    """Print what was found, and make the page; return the exit status."""
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


def _print_result(result: RunResult, target: Path, as_json: bool, out: IO[str]) -> None:
    if as_json:
        out.write(json.dumps(result.summary() | {"output_dir": str(target)}, indent=2) + "\n")
        return
    render_summary(result.summary(), out)
    out.write(f"Results: {target}\n")


@usage.command(epilog="Example: bftrainer solvers")
@usage.json_option
def solvers() -> None:
    """List the solvers: installed, licensed, exact, version; and whether the compiled core is in use."""
    from bftrainer._core import core, why_not
    from solvers.registry import catalogue

    rows = list(catalogue())
    if usage.print_json_if_asked(lambda: rows):
        return
    headings = ("solver", "installed", "licence", "exact", "extra rows", "capacities", "floor", "version")
    words = {True: "yes", False: "no", "": "-"}
    print_table(headings, [[words.get(cell, cell) for cell in row.values()] for row in rows], text_columns=None)
    click.echo(f"core: {'compiled' if core else f'NumPy ({why_not})'}")


# --- Headline figures as a table for people


def render_summary(summary: Summary, out: IO[str]) -> None:
    """Write a run's headline figures to `out`, one a line; a terminal's width is respected."""
    start, end = summary["window_start"][:19], summary["window_end"][:19]
    title = f"Replay of {summary['nodes_total']:,} nodes, {start} to {end} UTC"
    if summary["partial"]:
        title += " (partial: failed)" if summary["end_reason"] == "failed" else " (partial: interrupted)"
    cells = {key: _Cell(value) for key, value in summary.items()}
    rows = []
    for label, key, show in _ROWS:
        text = None
        if key not in _WHERE_KNOWN or summary.get(key) not in (None, []):
            text = show.format_map(cells) if isinstance(show, str) else show(summary)
        rows.append((label, None if text is None else text + mark_assumed(summary, key)))
        if key == "eq_nodes":
            rows += [("" if at else "  of the log", note) for at, note in enumerate(summary["node_log_notes"])]
            rows.append((ASSUMED, scaling_note(summary)))
    write_rows(title, rows, out)


class _Cell:
    """A value that is formatted as ``h``, a length of time, as ``kWh``, by a unit of the glossary, or as a number."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __format__(self, form: str) -> str:
        if form == "h":
            return duration(self._value)
        if form in ("share", "node_s"):
            return format_value(self._value, form)  # type: ignore[arg-type]
        if form == "amount":  # one decimal, unless that would round away what a short replay used
            return f"{self._value:,.1f}" if self._value >= 10 or not self._value else f"{self._value:,.3g}"
        return format(self._value or 0, form)


def _efficiency(summary: Summary) -> str:
    return (
        f"{format_value(summary['efficiency'], 'share')} of {summary['efficiency_eq_nodes']:.1f} dedicated nodes, "
        f"until {duration(summary['efficiency_horizon_s'])} "
        f"(decisions on {summary['settings'].get('decide_on', 'unknown')})"
    )


def _energy(summary: Summary) -> str:
    tasks, idle = (_Cell(summary[name] / 3.6e6) for name in ("energy_j", "idle_energy_j"))
    mean, peak = ((summary[f"{name}_power_w"] or 0.0) / 1e3 for name in ("average", "peak"))
    return f"{tasks:amount} kWh by tuned tasks, {idle:amount} kWh idle; {mean:,.2f} kW on average, {peak:,.2f} kW peak"


# Rows that are left out without these figures.
_WHERE_KNOWN = (
    *("efficiency", "makespan_s", "turnaround_mean_s", "wait_mean_s", "tasks_reached", "failures", "energy_j"),
    *("give_backs", "emissions_gco2"),
)
# Label, the figure that it tells of first, and what it tells.
_ROWS: tuple[tuple[str, str, str | Callable[[Summary], str | None]], ...] = (
    ("events", "events", "{events:,} in {window_s:h}"),
    ("idle nodes", "eq_nodes", "{eq_nodes:,.1f} on average, {idle_node_s:node_s}"),
    ("occupancy", "occupancy", "{occupancy:share}"),
    ("  below large idle", "occupancy", glossary.few_idle_in_words),
    ("work done", "work_done", "{work_done:.6g}"),
    ("efficiency U", "efficiency", _efficiency),
    ("ledger", "occupancy", glossary.ledger_in_words),
    ("  limited by", "limited_by", glossary.limit_in_words),
    ("  tasks at once", "", glossary.more_tasks_in_words),
    ("learned", "", glossary.learning_in_words),
    ("return on investment", "return_on_investment", "{return_on_investment:share}"),
    ("tasks", "tasks_completed", "{tasks_completed:,} completed, {tasks_started:,} started, of {tasks_total:,}"),
    ("makespan", "makespan_s", "{makespan_s:h}"),
    ("turnaround", "turnaround_mean_s", "{turnaround_mean_s:h} mean, {turnaround_p90_s:h} p90"),
    ("waiting", "wait_mean_s", "{wait_mean_s:h} mean"),
    ("preemptions, rescales", "preemptions", "{preemptions:,}, {rescales:,}"),
    ("given back", "give_backs", "{give_backs:,} times, as decisions chose"),
    ("tuning", "tasks_reached", glossary.tuning_in_words),
    ("  given up", "failures", glossary.failures_in_words),
    ("energy", "energy_j", _energy),
    ("emissions", "emissions_gco2", lambda s: f"{_Cell(s['emissions_gco2'] / 1e3):amount} kg CO2 (PUE {s['pue']:g})"),
    ("optimality", "decisions_optimal", glossary.optimality_in_words),
    ("  asked", "decisions_optimal", glossary.solver_use_in_words),
    ("  fallback", "decisions_fallback", glossary.fallback_in_words),
    ("decision time", "solve_s_median", glossary.decision_times_in_words),
    ("wall time", "wall_s", "{wall_s:.2f} s: {load_s:.2f} load, {replay_s:.2f} replay, {baseline_s:.2f} baseline"),
)
