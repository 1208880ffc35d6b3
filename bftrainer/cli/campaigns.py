"""Commands that replay many times: `bftrainer forecast`, `advise`, `bound`, `sweep` and `reproduce`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli import usage
from bftrainer.cli.replay import config_like, like_options
from bftrainer.cli.terminal import cell, counting, note, print_records, print_table, tell, write_rows
from bftrainer.cli.usage import DATE, FILE, MOMENT
from bftrainer.errors import escape_text
from bftrainer.files.writing import replacing
from bftrainer.plugins import require_extra
from bftrainer.report.glossary import ASSUMED, MARK, check_metrics, format_value, is_assumed
from bftrainer.terms import GLOSSARY

if TYPE_CHECKING:
    from bftrainer.campaigns.studies import Forecast
    from bftrainer.campaigns.sweep import Engine, PairedChange, PointResult

_answer_options = usage.with_options(
    usage.report_option, usage.force_option, usage.json_option, like_options, click.pass_context
)
"""Of commands that print by `_is_printed`, and end with `show_page`."""


def _is_printed(
    document: dict[str, Any], options: Mapping[str, Any], make_page: Callable[[dict[str, Any], str], bytes]
) -> bool:
    """Write the page, if one is asked for; print the document, if JSON is asked for, and return whether it was."""
    if (report := options["report"]) is not None:
        with replacing(report) as stream:
            stream.write(make_page(document, usage.command_line()))
    return usage.print_json_if_asked(lambda: document)


_Moment = datetime | float | tuple[int, float]
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


@usage.value_type("TIME", "an ISO time, seconds, a length such as 36h or 5d, or a weekday")
def deadline_moment(text: str) -> _Moment:
    """A weekday's number and seconds into that day, if the text names one, else a moment."""
    name, _, clock = text.strip().lower().partition(" ")
    if name not in _WEEKDAYS:
        return usage.moment_or_length(text)
    at = time.fromisoformat(clock.strip().rjust(5, "0") if clock.strip() else "18:00")
    if at.tzinfo is not None:
        raise ValueError(text)  # which day would it be?
    return _WEEKDAYS.index(name), 3600.0 * at.hour + 60.0 * at.minute + at.second


@usage.command(epilog="Example: bftrainer forecast --deadline 36h -ndmap idle.parquet -bdfn tasks.toml")
@click.option(
    "--deadline",
    type=deadline_moment,
    required=True,
    help='ISO time (2026-12-01: its 0:00), the next friday (18:00) or "friday 12:00", or 36h, 5d after the start. UTC.',
)
@click.option("--start", type=DATE, help="When the tasks would start.  [default: the log's end]")
@click.option("--horizon", type=MOMENT, help="How far to look, likewise.  [default: twice as far as the deadline]")
@click.option("--stretches", type=int, default=100, help="Replays, 100,000 at most.")
@usage.workers_option
@_answer_options
def forecast(
    ctx: click.Context, /, deadline: _Moment, start: datetime | None, horizon: datetime | float | None,
    stretches: int, workers: int | None, **options: Any,
) -> None:  # fmt: skip
    """How probable is it that all tasks are done by a deadline?

    The tasks are replayed on many stretches of the log. Tasks with dates are submitted as long
    after a stretch's start as they would be after --start; the others count from it anyway.
    """
    from bftrainer.campaigns.studies import ForecastPlan
    from bftrainer.campaigns.studies import forecast as foretell
    from bftrainer.model import instant_ns
    from bftrainer.report.campaign_pages import forecast_page, note_of_few
    from bftrainer.runs.run_inputs import SAMPLE_TASKS_USED, load_inputs

    config = config_like(ctx, options)
    usage.check_report(options["report"], force=options["force"])
    start_ns = instant_ns(start) if start is not None else None
    if start_ns is None and (not isinstance(deadline, float) or isinstance(horizon, datetime)):
        start_ns = load_inputs(config).log.end_ns
    deadline_s = _seconds(deadline, start_ns)
    horizon_s = 2 * deadline_s if horizon is None else _seconds(horizon, start_ns)
    plan = ForecastPlan(config, deadline_s, horizon_s, stretches, start_ns)
    with counting("Replaying", stretches) as count:
        answer = foretell(plan, workers, count)
    if config.node_log is not None and config.tasks is None:
        note(SAMPLE_TASKS_USED)
    if not _is_printed(answer.to_dict(), options, forecast_page):
        write_rows(None, _forecast_rows(answer), indent=20)
        if (few := note_of_few(len(answer.completion_s))) is not None:
            note(few)
        if answer.overlap > 1.5:
            cover = f"{answer.overlap:.1f} cover each moment"
            note(f"stretches overlap, {cover}: they tell less than as many independent ones.")
    usage.show_page(options["report"])


def _seconds(when: _Moment, start_ns: int | None) -> float:
    """How long after the start a moment is."""
    from bftrainer.model import instant_ns

    if isinstance(when, tuple):
        from bftrainer.campaigns.studies import next_weekday

        return (next_weekday(start_ns or 0, *when) - (start_ns or 0)) / 1e9
    return (instant_ns(when) - (start_ns or 0)) / 1e9 if isinstance(when, datetime) else float(when)


def _forecast_rows(answer: Forecast) -> list[tuple[str, str | None]]:
    from bftrainer.campaigns.studies import quantile
    from bftrainer.objectives import name_of_objective
    from bftrainer.report.campaign_pages import note_of_few, when_text

    def hours(level: float) -> str:
        """Time by which all tasks are done in this share of stretches, or that it is beyond the horizon."""
        time_s, beyond = quantile(answer.completion_s, level), f"more than {format_value(answer.plan.horizon_s, 's')}"
        return format_value(time_s, "s") if math.isfinite(time_s) else beyond

    config = answer.plan.config
    settings = f"{name_of_objective(config.objective)}, -Tfwd {config.forward_time_s:g}, -maxJ {config.max_tasks}"
    chance, few = answer.probability, note_of_few(len(answer.completion_s))
    span = f"{hours(0.1)} to {hours(0.9)} ({'80 %' if few is None else 'earliest and latest'})"
    return [
        ("deadline", when_text(answer.to_dict()["start"], answer.plan.deadline_s)),
        ("all done by then", f"{100 * chance.share:.0f} % ({100 * chance.low:.0f} to {100 * chance.high:.0f} %)"),
        ("tasks done by then", f"{100 * math.fsum(answer.done_shares) / len(answer.done_shares):.0f} % on average"),
        ("all done after", f"{span}, median {hours(0.5)}"),
        ("from", f"{len(answer.completion_s)} stretches of the log"),
        ("with", f"{settings}, start-up {config.startup_cost}"),
        (ASSUMED, answer.assumed_scaling),
    ]


@usage.command(epilog="Example: bftrainer advise -ndmap idle.csv -bdfn tasks.toml --solver dp --trials 5")
@click.option("--metric", type=usage.FIGURE, default="efficiency", help="Figure to improve: see `plot --list`.")
@click.option("--train-share", type=click.FloatRange(0.1, 0.9), default=0.6, help="Share of the log to search on.")
@click.option("--trials", type=usage.SIZE, default=40, help="Number of settings to try.")
@click.option("--objectives", metavar="A,B,...", help="Try these objectives too.  [default: only that of --objective]")
@_answer_options
def advise(
    ctx: click.Context, /, metric: str, train_share: float, trials: int, objectives: str | None, **options: Any
) -> None:
    """Search -Tfwd, -maxJ and, if you like, objectives on the log's first part; prove the best ones on the rest."""
    from bftrainer.campaigns.studies import AdvicePlan
    from bftrainer.campaigns.studies import advise as search
    from bftrainer.report.campaign_pages import advice_page

    config = config_like(ctx, options)
    usage.check_report(options["report"], force=options["force"])
    choices = tuple(name.strip() for name in objectives.split(",") if name.strip()) if objectives else ()
    plan = AdvicePlan(config, metric, train_share, trials, choices, config.seed)
    with counting("Searching", trials) as count:
        answer = search(plan, count)
    if not _is_printed(answer.to_dict(), options, advice_page):
        term, mark = GLOSSARY[metric], f"{MARK} " if answer.assumed_scaling else ""
        rows = []
        for name, settings, place in (("given", plan.current, 0), ("best", answer.best, 1)):
            values = (mark + format_value(pair[place], term.unit) for pair in (answer.trained, answer.held_out))
            chosen = (f"{settings.forward_time_s:g}", str(settings.max_tasks), settings.to_dict()["objective"])
            rows.append([name, *chosen, *values])
        print_table(["", "-Tfwd", "-maxJ", "objective", f"{term.label} on training part", "on the rest"], rows)
        click.echo(answer.sentence())
        if answer.assumed_scaling:
            click.echo(f"{MARK} {ASSUMED}: {answer.assumed_scaling}")
    usage.show_page(options["report"])


@usage.value_type("S,S,...", "seconds above 0 such as 60,120")
def notice_times(text: str) -> tuple[float, ...]:
    """Seconds above 0, with commas between them."""
    answer = tuple(map(float, text.split(",")))
    if not all(0 < notice_s < math.inf for notice_s in answer):
        raise ValueError
    return answer


@usage.command(epilog="Example: bftrainer bound -Tfwd 120 --solver dp --until 20000")
@click.option(
    "--notices",
    "notices_s",
    type=notice_times,
    default="30,120,300",
    help="How long before nodes leave decisions know it.",
)
@_answer_options
def bound(ctx: click.Context, /, notices_s: tuple[float, ...], **options: Any) -> None:
    """How much more work would choice of nodes that leave, notice of it, or free changes bring?"""
    from bftrainer.campaigns.studies import bound_work
    from bftrainer.report.campaign_pages import bounds_page
    from bftrainer.runs import load_inputs

    config = config_like(ctx, options)
    usage.check_report(options["report"], force=options["force"])
    inputs = load_inputs(replace(config, baseline=False))
    with counting("Replaying", len(notices_s) + 5) as count:
        answer = bound_work(inputs, notices_s, count)
    if not _is_printed(answer, options, bounds_page):
        names = {"name": "granted", "work": "work_done", "against_named": "gain_share"}
        print_records([{names.get(key, key): value for key, value in row.items()} for row in answer["bounds"]])
        click.echo(f"Work done in {answer['time_s'] / 3600:.1f} h, when the first of them is done or the log ends.")
        for text in answer["notes"]:
            note(text)
    usage.show_page(options["report"])


SHOWN = ("efficiency", "occupancy", "work_done", "tasks_completed", "makespan_s")
MOST_ROWS = 50
CHANGE_HEADINGS = ("value", "against", "figure", "change share", "verdict", "pairs", "unpaired")


@usage.command(epilog="Example: bftrainer sweep sweep.toml -o sweep")
@click.argument("file", metavar="SWEEP.toml", type=FILE)
@click.option("-o", "--output-dir", "directory", type=FILE, help="Place of runs and table.  [default: <file>-sweep]")
@click.option("--engine", type=click.Choice(["local", "dask"]), help="Where to compute.  [default: local]")
@usage.workers_option
@click.option("--scheduler", metavar="ADDRESS", help="Dask cluster that sees the same files, as tcp://host:8786.")
@click.option("--dask-jobqueue", "jobqueue", type=FILE, help="A TOML file: a Dask cluster of a batch system's jobs.")
@click.option("--resume", is_flag=True, help="Continue in an existing directory: finished points are not run again.")
@click.option("--force", is_flag=True, help="Compute an existing sweep anew: its runs are deleted first.")
@usage.report_option
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    type=usage.FIGURE,
    help="Figure by which page and --paired judge settings (see `plot --list`); a second one is weighed against it.",
)
@click.option("--paired", metavar="OPTION", help="Compare this option's values with its first one, pair by pair.")
@usage.json_option
@click.pass_context
def sweep(
    ctx: click.Context, /, file: Path, directory: Path | None, resume: bool, force: bool, report: Path | None,
    metrics: tuple[str, ...], paired: str | None, **options: Any,
) -> None:  # fmt: skip
    """Replay a grid or list of settings, and put the figures of all into one table.

    Each run is kept under runs/, and the table is sweep.parquet: a row a point. A point that fails is reported and does
    not end the others; the exit status is 1 then. Of a finished sweep, --resume makes the page of --report without
    running anything again.
    """
    from bftrainer.campaigns.sweep import check_pairing, paired_changes, run_sweep
    from bftrainer.campaigns.sweep_file import read_sweep
    from bftrainer.report.campaign_pages import sweep_page
    from bftrainer.report.page import PageTable
    from bftrainer.runs.run_inputs import SAMPLE_TASKS_USED

    usage.refuse_unused({"force": resume and "--resume keeps finished points"})
    spec = read_sweep(file)
    judged = metrics or ("work_done",)
    if paired is not None:
        check_pairing(spec.axes, paired, judged)
    place = Path(f"{file.stem}-sweep") if directory is None else directory
    chosen = _engine(**options)
    usage.check_report(report, force=resume or force)
    check_metrics(metrics)
    if report is not None:
        results = {path: f"the sweep in {place}" for path in place.glob("*") if path.is_file()}
        usage.refuse_clash([report], spec.inputs | results)
    try:
        with counting("Replaying", len(spec.points)) as count:
            result = run_sweep(spec, place, chosen, count, resume=resume, force=force)
    except KeyboardInterrupt:
        if any(place.glob("runs/*/summary.json")):
            tell(f"Finished points are kept; --resume continues in {place}.")
        raise
    names = [{*spec.base, *point} for point in spec.points]
    if any("node_log" in options and not {"tasks", "sample"} & options for options in names):
        note(SAMPLE_TASKS_USED)
    changes = [] if paired is None else paired_changes(result.table(), paired, judged)
    changed = [_change_cells(one) for one in changes]
    notes = [escape_text(f"{one.value}: {one.note}.") for one in changes if one.note]
    if report is not None:
        rows, text = result.table().to_pylist(), spec.text.decode(errors="backslashreplace")
        table = PageTable(f"Changes by {paired}, pair by pair", CHANGE_HEADINGS, changed, texts=notes)
        with replacing(report) as stream:
            stream.write(sweep_page(file.name, rows, spec.axes, text, metrics, table))
    points, compared = [_describe(point) for point in result.points], [one.to_dict() for one in changes]
    document = points if paired is None else {"points": points, "paired": compared}
    if not usage.print_json_if_asked(lambda: document):
        _print_points(result.points, metrics)
        if changes:
            print_table(CHANGE_HEADINGS, changed, text_columns=3)
            click.echo("".join(f"{text}\n" for text in notes), nl=False)
        click.echo(f"Table: {place / 'sweep.parquet'}")
    usage.show_page(report)
    for point in result.failures:
        tell(f"Point {point.point.number} failed: {point.error}")
    ctx.exit(1 if result.failures else 0)


def _engine(engine: str | None, workers: int | None, scheduler: str | None, jobqueue: Path | None) -> Engine:
    from bftrainer.campaigns.sweep import DaskEngine, local_engine

    if engine == "dask" or (engine is None and (scheduler is not None or jobqueue is not None)):
        return DaskEngine(scheduler, jobqueue)
    usage.refuse_unused(dict.fromkeys(("scheduler", "jobqueue"), "of the engine dask alone"))
    return local_engine(workers)


def _describe(result: PointResult) -> dict[str, object]:
    """A point for JSON."""
    from bftrainer.campaigns.sweep_file import plain_value

    varied = {name: plain_value(value) for name, value in result.point.varied.items()}
    entry = {"point": result.point.number, "options": varied, "error": result.error, "figures": dict(result.figures)}
    return entry | ({"assumed_scaling": result.assumed_scaling["note"]} if result.assumed_scaling else {})


def _print_points(results: Sequence[PointResult], metrics: Sequence[str]) -> None:
    from bftrainer.campaigns.sweep_file import plain_value

    named = {key for result in results for key, value in result.figures.items() if value is not None}
    keys = [key for key in dict.fromkeys((*SHOWN, *metrics)) if key in named]
    rows = []
    for result in results[:MOST_ROWS]:
        cells = ["-" if value is None else str(plain_value(value)) for value in result.point.varied.values()]
        for key in keys:
            value, assumed = result.figures.get(key), {"assumed_scaling": result.assumed_scaling}
            mark = f"{MARK} " if value is not None and is_assumed(assumed, key) else ""
            cells.append("failed" if result.error is not None else mark + format_value(value, GLOSSARY[key].unit))
        rows.append([str(result.point.number), *cells])
    print_table(["point", *results[0].point.varied, *(GLOSSARY[key].label for key in keys)], rows)
    if len(results) > MOST_ROWS:
        click.echo(f"... and {len(results) - MOST_ROWS:,} more in the table.")
    for text in dict.fromkeys(result.assumed_scaling["note"] for result in results if result.assumed_scaling):
        click.echo(f"{MARK} {ASSUMED}: {text}")


def _change_cells(one: PairedChange) -> list[str]:
    """Cells of a change under `CHANGE_HEADINGS`."""
    names = (escape_text(str(one.value)), escape_text(str(one.against)), GLOSSARY[one.metric].label)
    counts = (f"{one.points - one.lone_points:,}", f"{one.lone_points:,}")
    return [*names, cell(one.to_dict()["change"], "change_share"), one.verdict, *counts]


@usage.command(epilog="Example: bftrainer reproduce bamboo --quick")
@click.argument("paper", type=click.Choice(["bftrainer", "zeus", "bamboo"]))
@click.option("--quick", is_flag=True, help="Few settings and windows, minutes on two processors.")
@click.option("--log", type=FILE, help="The published node log, folder of traces, or spot trace.")
@click.option("-o", "--output-dir", "directory", type=FILE, help="Where results go.  [default: reproduce-<paper>]")
@click.option("--resume", is_flag=True, help="bftrainer: finished replays are not computed again.")
@usage.force_option
@usage.workers_option
@usage.json_option
@usage.open_option
def reproduce(
    paper: str, quick: bool, log: Path | None, directory: Path | None, resume: bool, force: bool, workers: int | None,
) -> None:  # fmt: skip
    """Make the evaluation of PAPER again: one page, with what the paper reports beside it, and its data.

    bftrainer: efficiency against Tfwd, maxJ, Jmax and rescaling cost, objectives, task sets, solvers, event modes.
    zeus: energy and time over eta, regret of policies. bamboo: throughput and value over preemption.

    Without --quick the published log is needed; --quick takes data that ship with bftrainer unless --log names others.
    Results are page.html, data.csv and summary.json; of bftrainer also all runs, as `bftrainer sweep` keeps them.
    """
    from bftrainer.campaigns.reproduce import count_steps, reproduce_paper

    alone = paper != "bftrainer" and "of bftrainer alone"
    usage.refuse_unused({"resume": alone or (force and "--force computes all anew")})
    require_extra("Its page needs", "report", "jinja2", "matplotlib")
    usage.refuse_inputs(directory)
    place = Path(f"reproduce-{paper}") if directory is None else directory
    words = ["bftrainer", "reproduce", paper, *["--quick"] * quick, *(["--log", log.name] if log else [])]
    with counting("Simulating", count_steps(paper, quick=quick)) as count:
        answer = reproduce_paper(
            paper, log, place, shlex.join(words), count, workers, quick=quick, resume=resume, force=force
        )
    if not usage.print_json_if_asked(lambda: answer):
        rows = [[claim["what"], claim["paper"], claim["here"]] for claim in answer["reported"]]
        print_table(["figure", "the paper reports", "here"], rows)
        click.echo("\n".join(f"{claim['what']}: {claim['comparable']}" for claim in answer["reported"]))
        click.echo(f"Results: {place}")
    usage.show_page(place / "page.html", quiet=True)
