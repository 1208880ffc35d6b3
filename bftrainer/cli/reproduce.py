"""`bftrainer reproduce`: the evaluation of a paper made again, as one page and its data."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click

from bftrainer.cli._shared.stdio import print_table
from bftrainer.cli._shared.usage import (
    LARGE_PROCESSES,
    WIDE,
    large_option,
    open_option,
    refuse_inputs,
    refuse_unused,
    show_page,
    size_option,
)
from bftrainer.cli.zeus.zeus_options import FILE


@click.command(context_settings=WIDE, epilog="Example: bftrainer reproduce bamboo --quick")
@click.argument("paper", type=click.Choice(["bftrainer", "zeus", "bamboo"]))
@click.option("--quick", is_flag=True, help="Few settings and windows, minutes on two processors.")
@click.option("--log", type=FILE, help="The published node log, folder of traces, or spot trace.")
@click.option("-o", "--output-dir", "directory", type=FILE, help="Where results go.  [default: reproduce-<paper>]")
@click.option("--resume", is_flag=True, help="bftrainer: finished replays are not computed again.")
@click.option("--force", is_flag=True, help="Replace the results that are there.")
@size_option(
    "--workers", usual=LARGE_PROCESSES, kind=click.IntRange(min=1), help="Processes.  [default: one per processor]"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@large_option
def reproduce(
    paper: str, quick: bool, log: Path | None, directory: Path | None, resume: bool, force: bool, workers: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Make the evaluation of PAPER again: one page, with what the paper reports beside it, and its data.

    bftrainer: efficiency against Tfwd, maxJ, Jmax and rescaling cost, objectives, task sets, solvers, event modes.
    zeus: energy and time over eta, regret of policies, groups. bamboo: throughput and value over preemption.

    Without --quick the published log is needed; --quick takes data that ship with bftrainer unless --log names others.
    Results are page.html, data.csv and summary.json; of bftrainer also all runs, as `bftrainer sweep` keeps them.
    """
    from bftrainer.campaigns.reproduce import check_log, reproduced, steps
    from bftrainer.cli._shared.progress import counting
    from bftrainer.extras import require_extra

    alone = paper != "bftrainer" and "of bftrainer alone"
    refuse_unused({"resume": alone or (force and "--force computes all anew")})
    check_log(paper, log, quick=quick)
    require_extra("Its page needs", "report", "jinja2", "matplotlib")
    refuse_inputs(directory)
    place = Path(f"reproduce-{paper}") if directory is None else directory
    words = ["bftrainer", "reproduce", paper, *["--quick"] * quick, *(["--log", log.name] if log else [])]
    with counting("Simulating", steps(paper, quick=quick)) as count:
        found = reproduced(
            paper, log, place, shlex.join(words), count, workers, quick=quick, resume=resume, force=force
        )
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    else:
        rows = [[claim.what, claim.paper, claim.here] for claim in found.reported]
        print_table(["figure", "the paper reports", "here"], rows)
        click.echo("\n".join(f"{claim.what}: {claim.comparable}" for claim in found.reported))
        click.echo(f"Results: {place}")
    show_page(place / "page.html", quiet=True)


open_option(reproduce)
