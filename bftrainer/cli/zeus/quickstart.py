"""`bftrainer bso quickstart`: a real job, from nothing to a chosen batch size."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from bftrainer.cli._shared.stdio import print_table
from bftrainer.cli._shared.usage import LARGE_RUNS, large_option, refuse_unused, size_option
from bftrainer.cli.zeus.zeus_options import SETTINGS, given_token
from bftrainer.extras import require_extra

if TYPE_CHECKING:
    from bftrainer.zeus.server.client import BatchSizeClient

_HEADINGS = ("batch size", "runs", "reached", "time (s)", "energy (J)", "cost (J)")


@click.command(context_settings=SETTINGS, epilog="Example: bftrainer bso quickstart")
@size_option("--runs", usual=LARGE_RUNS, kind=click.IntRange(min=1), default=20, help="Times that the job recurs.")
@click.option(
    "--max-power", "max_power_w", type=float, default=45.0, metavar="W", help="Highest power of this machine."
)
@click.option("--measure", default="model", help="Measure energy by rapl or model; auto: the first that is there.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, help="Seed of the first run; each later one has the next."
)
@click.option("--server", metavar="URL", help="Let the batch-size server there decide, not one of this command's own.")
@click.option("--token-file", metavar="FILE", help="File whose first line that is no comment is the token to give.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@large_option
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

    Each run asks a batch-size server for its batch size, trains to an accuracy of 0.94, and reports what it took. It
    takes less than a minute, and leaves nothing behind; see `bftrainer.zeus.integrations.sample_digits`.
    """
    refuse_unused({"token_file": server is None and "there is no --server"})
    require_extra("The sample training needs", "sample")
    from bftrainer.zeus.integrations.sample_digits import JOB, chosen, private_client, recurrences, used
    from bftrainer.zeus.server.client import BatchSizeClient

    opening: AbstractContextManager[BatchSizeClient] = (
        private_client() if server is None else BatchSizeClient(server, given_token(token_file))
    )
    job_id = JOB.job_id or ""
    with opening as client:
        training = recurrences(client, runs, max_power_w=max_power_w, measure=measure, seed=seed)
        for number, run in enumerate(training, start=1):
            missed = "missed the target" if run.epochs_done == run.max_epochs else "stopped, as it cost too much"
            click.echo(
                f"run {number:3}: batch size {run.batch_size:3}, {run.epochs_done:2} epochs, {run.time_s:6.2f} s, "
                f"{run.energy_j:7.1f} J: {'reached the target' if run.reached else missed}",
                err=True,
            )
        by_size, size = used(client.trials(job_id)), chosen(client.job(job_id))
    if as_json:
        found = [{"batch_size": at, **asdict(of)} for at, of in by_size.items()]
        document = {"chosen": size, "default": JOB.default_batch_size, "batch_sizes": found}
        click.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    rows = [
        (f"{at}", f"{of.runs}", f"{of.reached}", f"{of.time_s:.2f}", f"{of.energy_j:.1f}", f"{of.cost_j:.1f}")
        for at, of in by_size.items()
    ]
    print_table(_HEADINGS, rows, left=0)
    default, best = by_size[JOB.default_batch_size], by_size[size]
    click.echo(
        f"Chosen: batch size {size}, {best.energy_j:.1f} J and {best.time_s:.2f} s a run; the default, "
        f"{JOB.default_batch_size}, takes {default.energy_j:.1f} J and {default.time_s:.2f} s."
    )
