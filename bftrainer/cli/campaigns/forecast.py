"""`bftrainer forecast`."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.stdio import tell
from bftrainer.cli._shared.usage import LARGE_PROCESSES, refuse_unused, size_option
from bftrainer.cli.replay.options import config_of, moment, setting_options

if TYPE_CHECKING:
    from bftrainer.campaigns.forecast import Forecast

__all__ = ["forecast"]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--deadline", type=moment(), required=True, help="ISO time, or seconds after the start: 36h, 5d.")
@click.option("--start", type=moment(dates_only=True), help="When the tasks would start.  [default: the log's end]")
@click.option("--horizon", type=moment(), help="How far to look, likewise.  [default: twice as far as the deadline]")
@click.option("--stretches", type=int, default=100, show_default=True, help="Replays, 100,000 at most.")
@click.option("--generated", is_flag=True, help="Replay logs generated like the given one instead of parts of it.")
@size_option(
    "--workers", usual=LARGE_PROCESSES, kind=click.IntRange(min=1), help="Processes.  [default: one a processor]"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@setting_options
@click.pass_context
def forecast(
    ctx: click.Context, /, deadline: datetime | float, start: datetime | None, horizon: datetime | float | None,
    stretches: int, generated: bool, workers: int | None, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """How probable is it that all tasks are done by a deadline?

    The tasks are replayed on many stretches of the log, or on logs like it. Tasks with dates are submitted as long
    after a stretch's start as they would be after --start; the others count from it anyway.
    """
    from bftrainer.campaigns.engines import LocalEngine
    from bftrainer.campaigns.forecast import ForecastPlan
    from bftrainer.campaigns.forecast import forecast as foretell
    from bftrainer.cli._shared.progress import counting
    from bftrainer.runs.run import SAMPLE_TASKS_USED, load_inputs

    config = config_of(ctx, options)
    start_ns = _instant(start) if start is not None else None
    if not (generated or isinstance(deadline, datetime) or isinstance(horizon, datetime) or start is None):
        dated = any(task.submit_ns is not None for task in load_inputs(config).tasks)
        refuse_unused({"start": not dated and "no task has a date, and --deadline counts from it anyway"})
    if start_ns is None and (isinstance(deadline, datetime) or isinstance(horizon, datetime)):
        start_ns = load_inputs(config).log.end_ns
    deadline_s = _seconds(deadline, start_ns)
    horizon_s = 2 * deadline_s if horizon is None else _seconds(horizon, start_ns)
    plan = ForecastPlan(config, deadline_s, horizon_s, stretches, generated, start_ns, config.seed)
    with counting("Replaying", stretches) as count:
        found = foretell(plan, LocalEngine(workers), count)
    if config.node_log is not None and config.tasks is None:
        tell(f"Note: {SAMPLE_TASKS_USED}")
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    else:
        _print(found)


def _seconds(when: datetime | float, start_ns: int | None) -> float:
    from bftrainer.model import NS_PER_S

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


def _print(found: Forecast) -> None:
    from bftrainer.campaigns.forecast import FOR_INTERVAL, quantile
    from bftrainer.report.glossary import ASSUMED, shown

    def told(time_s: float) -> str:
        """A completion time, if it was within the horizon."""
        beyond = f"more than {shown(found.plan.horizon_s, 's')}"
        return shown(time_s, "s") if math.isfinite(time_s) else beyond

    chance, (low, high) = found.probability, found.interval()
    rows = (
        ("deadline", f"{shown(found.plan.deadline_s, 's')} after the start"),
        ("all done by then", f"{100 * chance.share:.0f} % ({100 * chance.low:.0f} to {100 * chance.high:.0f} %)"),
        ("tasks done by then", f"{100 * math.fsum(found.done) / len(found.done):.0f} % on average"),
        ("all done after", f"{told(low)} to {told(high)} (80 %), median {told(quantile(found.completion_s, 0.5))}"),
        ("from", f"{len(found.completion_s)} {'generated logs' if found.plan.generated else 'stretches of the log'}"),
    )
    for label, text in rows:
        click.echo(f"{label:20}{text}")
    if found.assumed_scaling is not None:
        click.echo(f"{ASSUMED:20}{found.assumed_scaling}")
    number = len(found.completion_s)
    if number < FOR_INTERVAL:
        click.echo(
            f"Note: {number} stretches are too few for the 80 %, which take {FOR_INTERVAL} or more: told is the "
            "earliest completion and the latest.",
            err=True,
        )
    if found.overlap > 1.5:
        click.echo(
            f"Note: stretches overlap, {found.overlap:.1f} cover each moment: they tell less than as many independent "
            "ones; --generated draws those.",
            err=True,
        )
