"""`bftrainer bound`: how much better a replay's decisions could be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.stdio import print_table
from bftrainer.cli._shared.usage import WIDE, Parsed, Sectioned
from bftrainer.cli.replay.options import COMMON, HELP_SECTIONS, config_of, setting_options

if TYPE_CHECKING:
    from bftrainer.runs.bounds import WorkBounds


def _horizons(text: str) -> tuple[float, ...]:
    """Seconds above 0, with commas between them."""
    found = tuple(map(float, text.split(",")))
    if not all(0 < each < float("inf") for each in found):
        raise ValueError
    return found


@click.command(
    cls=Sectioned,
    context_settings=WIDE,
    sections={"Options": ("horizons_s", "as_json"), "Common options of its replays": COMMON, **HELP_SECTIONS},
    epilog="Example: bftrainer bound -Tfwd 120 --solver dp --max-events 100",
)
@click.option(
    "--horizons",
    "horizons_s",
    type=Parsed("S,S,...", _horizons, "seconds above 0 such as 60,600"),
    default="60,600,3600",
    show_default=True,
    help="Clairvoyant decisions leave nodes alone that leave within one of these; the best counts.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@setting_options
@click.pass_context
def bound(ctx: click.Context, /, horizons_s: tuple[float, ...], as_json: bool, **options: Any) -> None:
    """How much work could the same nodes do if decisions knew when nodes leave, or if changes were free?"""
    from dataclasses import replace

    from bftrainer.cli._shared.progress import counting
    from bftrainer.runs import load_inputs, run_replay
    from bftrainer.runs.bounds import bounds

    config = replace(config_of(ctx, options), baseline=False, bounds=True)
    inputs = load_inputs(config)
    with counting("Replaying", len(horizons_s) + 3 + (config.foresight != "none")) as count:
        found = bounds(inputs, lambda given: run_replay(inputs=given).recording, None, horizons_s, count)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    else:
        _print_bounds(found)


def _print_bounds(found: WorkBounds) -> None:
    rows = []
    for each in found.bounds:
        gain = "" if each.name == "blind" or each.against_blind is None else f"{100 * each.against_blind:+.1f} %"
        losses = (f"{100 * share:.1f} %" for share in (each.preemption_share, each.rescale_share))
        horizon = each.settings.get("foresight_horizon_s")
        name = each.name if horizon is None else f"{each.name}, {horizon:g} s"
        rows.append([name, f"{each.work:.4g}", gain, *losses])
    print_table(["decisions", "work done", "against blind", "lost to departures", "to own changes"], rows)
    click.echo(f"Work done in {found.time_s / 3600:.1f} h, when the first of them is done or the log ends.")
    for note in found.notes():
        click.echo(f"Note: {note}", err=True)
