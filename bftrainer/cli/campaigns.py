"""Commands that replay a log many times: `bftrainer forecast`, `advise` and `bound`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared import usage
from bftrainer.cli._shared.stdio import counting, note, print_json, print_records, print_table, write_rows
from bftrainer.cli.replay.options import DATE, MOMENT, config_like, like_options
from bftrainer.errors import SettingsError
from bftrainer.report.glossary import ASSUMED, GLOSSARY, MARK, format_value

if TYPE_CHECKING:
    from bftrainer.campaigns.advice import Advice
    from bftrainer.campaigns.forecast import Forecast

_page_force = click.option("--force", is_flag=True, help="Replace an existing page.")


def _show(
    found: Forecast | Advice,
    options: Mapping[str, Any],
    make_page: Callable[[dict[str, Any], str], bytes],
    print_for_people: Callable[[Any], None],
) -> None:
    """Write the page, if one is asked for, and print what was found."""
    from bftrainer.files.writing import replacing

    report, as_json = options["report"], options["as_json"]
    if report is not None:
        with replacing(report) as stream:
            stream.write(make_page(found.to_dict(), usage.command_line()))
    if as_json:
        print_json(found.to_dict())
    else:
        print_for_people(found)
    usage.show_page(report, quiet=as_json)


@usage.command(
    epilog="Example: bftrainer forecast --deadline 36h -ndmap idle.parquet -bdfn tasks.toml",
)
@click.option(
    "--deadline",
    type=MOMENT,
    required=True,
    help="ISO time (UTC; 2026-12-01: its 0:00), or seconds, 36h or 5d after the start.",
)
@click.option("--start", type=DATE, help="When the tasks would start.  [default: the log's end]")
@click.option("--horizon", type=MOMENT, help="How far to look, likewise.  [default: twice as far as the deadline]")
@usage.report_option
@_page_force
@click.option("--stretches", type=int, default=100, help="Replays, 100,000 at most.")
@click.option("--generated", is_flag=True, help="Replay logs generated like the given one instead of parts of it.")
@usage.workers_option
@usage.json_option
@like_options
@click.pass_context
def forecast(
    ctx: click.Context, /, deadline: datetime | float, start: datetime | None, horizon: datetime | float | None,
    stretches: int, generated: bool, workers: int | None, **options: Any,
) -> None:  # fmt: skip
    """How probable is it that all tasks are done by a deadline?

    The tasks are replayed on many stretches of the log, or on logs like it. Tasks with dates are submitted as long
    after a stretch's start as they would be after --start; the others count from it anyway.
    """
    from bftrainer.campaigns.engines import LocalEngine
    from bftrainer.campaigns.forecast import ForecastPlan
    from bftrainer.campaigns.forecast import forecast as foretell
    from bftrainer.report.campaign_pages import forecast_page
    from bftrainer.runs.run_inputs import SAMPLE_TASKS_USED, load_inputs

    config = config_like(ctx, options)
    usage.check_report(options["report"], force=options["force"])
    start_ns = _instant(start) if start is not None else None
    if start_ns is None and (isinstance(deadline, datetime) or isinstance(horizon, datetime)):
        start_ns = load_inputs(config).log.end_ns
    deadline_s = _seconds(deadline, start_ns)
    horizon_s = 2 * deadline_s if horizon is None else _seconds(horizon, start_ns)
    plan = ForecastPlan(config, deadline_s, horizon_s, stretches, generated, start_ns, config.seed)
    with counting("Replaying", stretches) as count:
        found = foretell(plan, LocalEngine(workers), count)
    if config.node_log is not None and config.tasks is None:
        note(SAMPLE_TASKS_USED)
    _show(found, options, forecast_page, _print_forecast)


def _seconds(when: datetime | float, start_ns: int | None) -> float:
    """How long after the start a moment is."""
    return (_instant(when) - (start_ns or 0)) / 1e9 if isinstance(when, datetime) else float(when)


def _instant(when: datetime) -> int:
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


@usage.command(
    epilog="Example: bftrainer advise -ndmap idle.csv -bdfn tasks.toml --solver dp --trials 5",
)
@click.option("--metric", type=usage.FIGURE, default="efficiency", help="Figure to improve: see `plot --list`.")
@click.option(
    "--train-share",
    type=click.FloatRange(0.1, 0.9),
    default=0.6,
    help="Share of the log to search on.",
)
@click.option("--trials", type=usage.SIZE, default=40, help="Number of settings to try.")
@usage.report_option
@_page_force
@click.option("--objectives", metavar="A,B,...", help="Try these objectives too.  [default: only that of --objective]")
@usage.json_option
@like_options
@click.pass_context
def advise(
    ctx: click.Context, /, metric: str, train_share: float, trials: int, objectives: str | None, **options: Any
) -> None:
    """Search -Tfwd, -maxJ and, if you like, objectives on the log's first part; prove the best ones on the rest."""
    from bftrainer.campaigns.advice import AdvicePlan
    from bftrainer.campaigns.advice import advise as search
    from bftrainer.report.campaign_pages import advice_page

    config = config_like(ctx, options)
    usage.check_report(options["report"], force=options["force"])
    choices = tuple(name.strip() for name in objectives.split(",") if name.strip()) if objectives else ()
    plan = AdvicePlan(config, metric, train_share, trials, choices, config.seed)
    with counting("Searching", trials) as count:
        found = search(plan, count)
    _show(found, options, advice_page, _print_advice)


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


@usage.command(epilog="Example: bftrainer bound -Tfwd 120 --solver dp --until 20000")
@click.option(
    "--notices",
    "notices_s",
    type=usage.Parsed("S,S,...", _notices, "seconds above 0 such as 60,120"),
    default="30,120,300",
    help="How long before nodes leave decisions know it.",
)
@usage.json_option
@like_options
@click.pass_context
def bound(ctx: click.Context, /, notices_s: tuple[float, ...], as_json: bool, **options: Any) -> None:
    """How much more work would choice of nodes that leave, notice of it, or free changes bring?"""
    from bftrainer.campaigns.bound import bound_work
    from bftrainer.runs import load_inputs

    inputs = load_inputs(replace(config_like(ctx, options), baseline=False))
    with counting("Replaying", len(notices_s) + 5) as count:
        found = bound_work(inputs, notices_s, count)
    if as_json:
        print_json(found.to_dict())
    else:
        records = []
        for each in found.bounds:
            record = {"granted": each.name, "work_done": each.work, "gain_share": each.against_named}
            records.append(record | {"departure_share": each.departure_share, "rescale_share": each.rescale_share})
        print_records(records)
        click.echo(f"Work done in {found.time_s / 3600:.1f} h, when the first of them is done or the log ends.")
        for text in found.notes():
            note(text)
