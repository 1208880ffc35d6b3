"""Commands that replay a log many times: `bftrainer forecast`, `advise` and `bound`."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared import usage
from bftrainer.cli._shared.stdio import note, print_json, print_table, write_rows
from bftrainer.cli.replay.options import DATE, LIKE, MOMENT, config_like, like_options
from bftrainer.report.glossary import ASSUMED, GLOSSARY, MARK, format_value

if TYPE_CHECKING:
    from bftrainer.campaigns.advice import Advice
    from bftrainer.campaigns.bound import WorkBounds
    from bftrainer.campaigns.forecast import Forecast
    from bftrainer.runs import ReplayConfig

_page_force = click.option("--force", is_flag=True, help="Replace an existing page.")


def _settings(*own: str) -> dict[str, Any]:
    """Settings of a command that has options of its own and those of replays."""
    sections = {"Common options": (*own, "like", "node_log", "tasks", "solver"), "What it replays": LIKE}
    return {"cls": usage.Sectioned, "context_settings": usage.WIDE, "sections": sections}


def _prepare(ctx: click.Context, options: dict[str, Any], report: Path | None, *, force: bool) -> ReplayConfig:
    """The configuration to replay, after checks of the page."""
    config = config_like(ctx, options)
    usage.refuse_unused({"force": report is None and "there is no page to replace"})
    usage.check_report(report, force=force)
    return config


def _show(
    found: Forecast | Advice,
    report: Path | None,
    make_page: Callable[[dict[str, Any], str], bytes],
    printing: Callable[[Any], None] | None,
) -> None:
    """Write the page, if one is asked for, and print JSON, or what `printing` prints."""
    from bftrainer.files.writing import replacing

    if report is not None:
        with replacing(report) as stream:
            stream.write(make_page(found.to_dict(), usage.command_line()))
    if printing is None:
        print_json(found.to_dict())
    else:
        printing(found)
    usage.show_page(report, quiet=printing is None)


_Moment = datetime | float | tuple[int, float]
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _deadline(text: str) -> _Moment:
    """A weekday's number and seconds into that day, if the text names one, else what it says of a moment."""
    name, _, clock = text.strip().lower().partition(" ")
    if name not in _WEEKDAYS:
        with contextlib.suppress(click.BadParameter):
            return MOMENT.convert(text, None, None)  # type: ignore[no-any-return]
        raise ValueError(text)
    at = time.fromisoformat(clock.strip().rjust(5, "0") if clock.strip() else "18:00")
    if at.tzinfo is not None:
        raise ValueError(text)  # which day would it be?
    return _WEEKDAYS.index(name), 3600.0 * at.hour + 60.0 * at.minute + at.second


@click.command(
    **_settings("deadline", "start", "horizon", "report", "open", "force", "stretches", "as_json"),
    epilog="Example: bftrainer forecast --deadline 36h -ndmap idle.parquet -bdfn tasks.toml",
)
@click.option(
    "--deadline",
    type=usage.Parsed("TIME", _deadline, "an ISO time, seconds, a length such as 36h or 5d, or a weekday"),
    required=True,
    help='ISO time (2026-12-01: its 0:00), the next friday (18:00) or "friday 12:00", or 36h, 5d after the start. UTC.',
)
@click.option("--start", type=DATE, help="When the tasks would start.  [default: the log's end]")
@click.option("--horizon", type=MOMENT, help="How far to look, likewise.  [default: twice as far as the deadline]")
@usage.report_option
@_page_force
@click.option("--stretches", type=int, default=100, show_default=True, help="Replays, 100,000 at most.")
@click.option("--generated", is_flag=True, help="Replay logs generated like the given one instead of parts of it.")
@usage.workers_option
@usage.json_option
@like_options
@click.pass_context
def forecast(
    ctx: click.Context, /, deadline: _Moment, start: datetime | None, horizon: datetime | float | None,
    report: Path | None, force: bool, stretches: int, generated: bool, workers: int | None, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """How probable is it that all tasks are done by a deadline?

    The tasks are replayed on many stretches of the log, or on logs like it. Tasks with dates are submitted as long
    after a stretch's start as they would be after --start; the others count from it anyway.
    """
    from bftrainer.campaigns.engines import LocalEngine
    from bftrainer.campaigns.forecast import ForecastPlan
    from bftrainer.campaigns.forecast import forecast as foretell
    from bftrainer.cli._shared.progress import counting
    from bftrainer.report.campaign_pages import forecast_page
    from bftrainer.runs.run_inputs import SAMPLE_TASKS_USED, load_inputs

    config = _prepare(ctx, options, report, force=force)
    start_ns = _instant(start) if start is not None else None
    is_dated = not isinstance(deadline, float) or isinstance(horizon, datetime)
    if not (generated or is_dated or start is None):
        dated = any(task.submit_ns is not None for task in load_inputs(config).tasks)
        usage.refuse_unused({"start": not dated and "no task has a date, and --deadline counts from it anyway"})
    if start_ns is None and is_dated:
        start_ns = load_inputs(config).log.end_ns
    deadline_s = _seconds(deadline, start_ns)
    horizon_s = 2 * deadline_s if horizon is None else _seconds(horizon, start_ns)
    plan = ForecastPlan(config, deadline_s, horizon_s, stretches, generated, start_ns, config.seed)
    with counting("Replaying", stretches) as count:
        found = foretell(plan, LocalEngine(workers), count)
    if config.node_log is not None and config.tasks is None:
        note(SAMPLE_TASKS_USED)
    _show(found, report, forecast_page, None if as_json else _print_forecast)


def _seconds(when: _Moment, start_ns: int | None) -> float:
    from bftrainer.campaigns.forecast import next_weekday
    from bftrainer.model import NS_PER_S

    if isinstance(when, tuple):
        return (next_weekday(start_ns or 0, *when) - (start_ns or 0)) / NS_PER_S
    if isinstance(when, datetime):
        return (_instant(when) - (start_ns or 0)) / NS_PER_S
    return float(when)


def _instant(when: datetime) -> int:
    from bftrainer.errors import SettingsError
    from bftrainer.model import instant_ns

    try:
        return instant_ns(when)
    except OverflowError as error:
        raise SettingsError(str(error)) from None


def _print_forecast(found: Forecast) -> None:
    from bftrainer.campaigns.forecast import quantile
    from bftrainer.report.campaign_pages import note_of_few, when_text

    def hours(time_s: float) -> str:
        """A completion time, or that it is beyond the horizon."""
        beyond = f"more than {format_value(found.plan.horizon_s, 's')}"
        return format_value(time_s, "s") if math.isfinite(time_s) else beyond

    chance, (low, high), few = found.probability, found.interval(), note_of_few(len(found.completion_s))
    span = f"{hours(low)} to {hours(high)} ({'80 %' if few is None else 'earliest and latest'})"
    rows = [
        ("deadline", when_text(found.to_dict()["start"], found.plan.deadline_s)),
        ("all done by then", f"{100 * chance.share:.0f} % ({100 * chance.low:.0f} to {100 * chance.high:.0f} %)"),
        ("tasks done by then", f"{100 * math.fsum(found.done) / len(found.done):.0f} % on average"),
        ("all done after", f"{span}, median {hours(quantile(found.completion_s, 0.5))}"),
        ("from", f"{len(found.completion_s)} {'generated logs' if found.plan.generated else 'stretches of the log'}"),
        (ASSUMED, found.assumed_scaling),
    ]
    write_rows(None, rows, indent=20)
    if few is not None:
        note(few)
    if found.overlap > 1.5:
        note(
            f"stretches overlap, {found.overlap:.1f} cover each moment: they tell less than as many independent ones; "
            "--generated draws those."
        )


@click.command(
    **_settings("metric", "train_share", "trials", "objectives", "report", "open", "force", "as_json"),
    epilog="Example: bftrainer advise -ndmap idle.csv -bdfn tasks.toml --solver dp --trials 5",
)
@click.option(
    "--metric", type=usage.FIGURE, default="efficiency", show_default=True, help="Figure to improve: see `plot --list`."
)
@click.option(
    "--train-share",
    type=click.FloatRange(0.1, 0.9),
    default=0.6,
    show_default=True,
    help="Share of the log to search on.",
)
@click.option("--trials", type=usage.SIZE, default=40, show_default=True, help="Number of settings to try.")
@usage.report_option
@_page_force
@click.option("--objectives", metavar="A,B,...", help="Try these objectives too.  [default: only that of --objective]")
@usage.json_option
@like_options
@click.pass_context
def advise(
    ctx: click.Context, /, metric: str, train_share: float, trials: int, report: Path | None, force: bool,
    objectives: str | None, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Search -Tfwd, -maxJ and, if you like, objectives on the log's first part; prove the best ones on the rest."""
    from bftrainer.campaigns.advice import AdvicePlan
    from bftrainer.campaigns.advice import advise as search
    from bftrainer.cli._shared.progress import counting
    from bftrainer.report.campaign_pages import advice_page

    config = _prepare(ctx, options, report, force=force)
    choices = tuple(name.strip() for name in objectives.split(",") if name.strip()) if objectives else ()
    plan = AdvicePlan(config, metric, train_share, trials, choices, config.seed)
    with counting("Searching", trials) as count:
        found = search(plan, count)
    _show(found, report, advice_page, None if as_json else _print_advice)


def _print_advice(found: Advice) -> None:
    term, mark = GLOSSARY[found.plan.metric], f"{MARK} " if found.assumed_scaling else ""
    rows = []
    for name, settings, place in (("given", found.plan.given, 0), ("best", found.best, 1)):
        values = (mark + format_value(part[place], term.unit) for part in (found.trained, found.held_out))
        rows.append(
            [name, f"{settings.forward_time_s:g}", str(settings.max_tasks), settings.to_dict()["objective"], *values]
        )
    print_table(["", "-Tfwd", "-maxJ", "objective", f"{term.label} on training part", "on the rest"], rows)
    click.echo(found.sentence())
    if found.assumed_scaling:
        click.echo(f"{MARK} {ASSUMED}: {found.assumed_scaling}")


def _notices(text: str) -> tuple[float, ...]:
    """Seconds above 0, with commas between them."""
    found = tuple(map(float, text.split(",")))
    if not all(0 < each < math.inf for each in found):
        raise ValueError
    return found


@click.command(
    **_settings("notices_s", "as_json"), epilog="Example: bftrainer bound -Tfwd 120 --solver dp --until 20000"
)
@click.option(
    "--notices",
    "notices_s",
    type=usage.Parsed("S,S,...", _notices, "seconds above 0 such as 60,120"),
    default="30,120,300",
    show_default=True,
    help="How long before nodes leave decisions know it.",
)
@usage.json_option
@like_options
@click.pass_context
def bound(ctx: click.Context, /, notices_s: tuple[float, ...], as_json: bool, **options: Any) -> None:
    """How much more work would choice of nodes that leave, notice of it, or free changes bring?"""
    from bftrainer.campaigns.bound import bound_work
    from bftrainer.cli._shared.progress import counting
    from bftrainer.runs import load_inputs

    inputs = load_inputs(replace(config_like(ctx, options), baseline=False))
    with counting("Replaying", len(notices_s) + 5) as count:
        found = bound_work(inputs, notices_s, count)
    if as_json:
        print_json(found.to_dict())
    else:
        _print_bounds(found)


def _print_bounds(found: WorkBounds) -> None:
    from bftrainer.campaigns.bound import NAMED

    rows = []
    for each in found.bounds:
        gain = (
            ""
            if each.name == NAMED or each.against_named is None
            else f"{round(100 * each.against_named, 1) + 0.0:+.1f} %"
        )
        losses = (f"{round(100 * share, 1) + 0.0:.1f} %" for share in (each.departure_share, each.rescale_share))
        rows.append([each.name, f"{each.work:.4g}", gain, *losses])
    print_table(["granted", "work done", "against named", "lost to departures", "to own changes"], rows)
    click.echo(f"Work done in {found.time_s / 3600:.1f} h, when the first of them is done or the log ends.")
    for text in found.notes():
        note(text)
