"""`bftrainer advise`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.usage import size_option
from bftrainer.cli.replay.options import config_of, setting_options

if TYPE_CHECKING:
    from bftrainer.campaigns.advice import Advice

__all__ = ["advise"]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--metric", default="efficiency", show_default=True, help="What is improved, as summary.json names it.")
@click.option("--train-share", type=float, default=0.6, show_default=True, help="Part of the log that is searched on.")
@size_option("--trials", default=40, show_default=True, help="Settings that are tried.")
@click.option("--objectives", metavar="A,B,...", help="Try these objectives too.  [default: only that of --objective]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@setting_options
@click.pass_context
def advise(
    ctx: click.Context,
    /,
    metric: str,
    train_share: float,
    trials: int,
    objectives: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Search -Tfwd, -maxJ and, if you like, objectives on the log's first part; prove the best ones on the rest."""
    from bftrainer.campaigns.advice import AdvicePlan
    from bftrainer.campaigns.advice import advise as search
    from bftrainer.cli._shared.progress import counting

    config = config_of(ctx, options)
    choices = tuple(name.strip() for name in objectives.split(",") if name.strip()) if objectives else ()
    plan = AdvicePlan(config, metric, train_share, trials, choices, config.seed)
    with counting("Searching", trials) as count:
        found = search(plan, count)
    click.echo(json.dumps(found.to_dict(), indent=2, allow_nan=False)) if as_json else _print(found)


def _print(found: Advice) -> None:
    from bftrainer.cli._shared.stdio import print_table
    from bftrainer.report.glossary import ASSUMED, GLOSSARY, MARK, shown

    term, mark = GLOSSARY[found.plan.metric], f"{MARK} " if found.assumed_scaling else ""
    rows = []
    for name, settings, place in (("given", found.plan.given, 0), ("best", found.best, 1)):
        values = (mark + shown(part[place], term.unit) for part in (found.trained, found.held_out))
        rows.append(
            [name, f"{settings.forward_time_s:g}", str(settings.max_tasks), settings.to_dict()["objective"], *values]
        )
    print_table(["", "-Tfwd", "-maxJ", "objective", f"{term.label} on training part", "on the rest"], rows)
    click.echo(found.sentence())
    if found.assumed_scaling:
        click.echo(f"{MARK} {ASSUMED}: {found.assumed_scaling}")
