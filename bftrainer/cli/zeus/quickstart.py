"""`bftrainer bso quickstart`: a real job, from nothing to a chosen batch size."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from bftrainer.cli._shared.stdio import print_table
from bftrainer.cli._shared.usage import LARGE_RUNS, refuse_unused, size_option
from bftrainer.cli.zeus.bso import asking
from bftrainer.cli.zeus.zeus_options import SETTINGS
from bftrainer.extras import require_extra

if TYPE_CHECKING:
    from bftrainer.zeus.server.pages.savings import SizeFigures

_QUANTITIES = ("time", "energy", "cost")
_HEADINGS = ("batch size", "runs", "reached", "time (s)", "energy (J)", "cost (J)")


@click.command(context_settings=SETTINGS, epilog="Example: bftrainer bso quickstart")
@size_option("--runs", usual=LARGE_RUNS, kind=click.IntRange(min=1), default=20, help="Times that the job recurs.")
@click.option(
    "--max-power", "max_power_w", type=float, default=45.0, metavar="W", help="Highest power of this machine."
)
@click.option("--measure", default="model", help="Measure energy by rapl or model; auto: the first that is there.")
@click.option(
    "--seed",
    type=click.IntRange(0, 4_000_000_000),
    default=1,
    help="Seed of the first run; each later one has the next.",
)
@click.option("--server", metavar="URL", help="Let the batch-size server there decide, not one of this command's own.")
@click.option("--token-file", metavar="FILE", help="File whose first token is the one to give.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def quickstart(
    runs: int,
    max_power_w: float,
    measure: str,
    seed: int,
    server: str | None,
    token_file: str | None,
    as_json: bool,
) -> None:
    """Train a small network on handwritten digits, again and again, and see a batch size being chosen.

    Each run asks a batch-size server for its batch size, trains to an accuracy of 0.95, and reports what it took. It
    takes less than a minute, and leaves nothing behind; see `bftrainer.zeus.integrations.sample_digits`.
    """
    refuse_unused({"token_file": server is None and "there is no --server"})
    require_extra("The sample training needs", "sample")
    require_extra("The server needs", "server")
    from bftrainer.zeus.integrations.sample_digits import JOB, chosen, private_client, recurrences
    from bftrainer.zeus.server.pages.savings import figures_by_size

    job_id = JOB.job_id or ""
    with private_client() if server is None else asking(server, token_file) as client:
        training = recurrences(client, runs, max_power_w=max_power_w, measure=measure, seed=seed)
        for number, run in enumerate(training, start=1):
            missed = "missed the target" if run.epochs_done == run.max_epochs else "stopped, as it cost too much"
            click.echo(
                f"run {number:3}: batch size {run.batch_size:3}, {run.epochs_done:2} epochs, {run.time_s:6.2f} s, "
                f"{run.energy_j:7.1f} J: {'reached the target' if run.reached else missed}",
                err=True,
            )
        job = client.job(job_id)
        by_size, size = figures_by_size(client.trials(job_id)), chosen(job)
    if as_json:
        found = [asdict(each) for each in by_size.values()]
        document = {"chosen": size, "default": JOB.default_batch_size, "batch_sizes": found}
        click.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    print_table(_HEADINGS, map(_row, by_size.values()), left=0)
    what = "Cheapest so far" if job.stage == "Pruning" else "Chosen"
    click.echo(f"{what}: batch size {size}, {_mean(by_size[size])} a run that reaches the target; ", nl=False)
    click.echo(f"the default, {JOB.default_batch_size}, takes {_mean(by_size[JOB.default_batch_size])}.")


def _row(size: SizeFigures) -> tuple[str, ...]:
    means = (f"{size.means[name].mean:.2f}" if size.means else "-" for name in _QUANTITIES)
    return (f"{size.batch_size}", f"{size.results}", f"{size.converged}", *means)


def _mean(size: SizeFigures) -> str:
    energy, time = (size.means[name].mean if size.means else math.nan for name in ("energy", "time"))
    return f"{energy:.1f} J and {time:.2f} s"
