"""`bftrainer bso quickstart`: a real job, from nothing to a chosen batch size."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from bftrainer.cli._shared import usage
from bftrainer.cli._shared.stdio import counted, print_json, print_records
from bftrainer.cli.zeus.bso import open_client
from bftrainer.extras import require_extra

if TYPE_CHECKING:
    from bftrainer.zeus.server.messages import JobSummary


MAX_POWER_W = 45.0
_COLUMNS = ("batch_size", "results", "converged", "time", "energy", "cost")


@usage.command(epilog="Example: bftrainer bso quickstart")
@click.option("--runs", type=usage.SIZE, default=20, help="Times that the job recurs.")
@click.option("--server", metavar="URL", help="Let the batch-size server there decide, not one of this command's own.")
@click.option("--token-file", metavar="FILE", help="File whose first token is the one to give.")
@usage.json_option
def quickstart(runs: int, server: str | None, token_file: str | None, as_json: bool) -> None:
    """Train a small network on handwritten digits, again and again, and see a batch size being chosen.

    Each run asks a batch-size server for its batch size, trains to an accuracy of 0.95, and reports what it took: time
    on the processor, and energy that is modelled from it. It takes less than a minute, and leaves nothing behind; see
    `bftrainer.zeus.integrations.sample_digits`.
    """
    require_extra("The sample training needs", "sample")
    require_extra("The server needs", "server")
    from bftrainer.zeus.integrations.sample_digits import JOB_ID, make_served_runs, open_private_client
    from bftrainer.zeus.server.job_figures import figures_by_size

    with open_private_client() if server is None else open_client(server, token_file) as client:
        for number, run in enumerate(make_served_runs(client, runs, max_power_w=MAX_POWER_W, seed=1), start=1):
            missed = "missed the target" if run.epochs_done == run.max_epochs else "stopped, as it cost too much"
            epochs = counted(run.epochs_done, "epoch")
            click.echo(
                f"run {number:3}: batch size {run.batch_size:3}, {epochs:>9}, {run.time_s:6.2f} s, "
                f"{run.energy_j:7.1f} J: {'reached the target' if run.reached else missed}",
                err=True,
            )
        job, sizes = client.job(JOB_ID), figures_by_size(client.trials(JOB_ID))
    if as_json:
        chosen = {"chosen": find_chosen(job), "default": job.spec.default_batch_size}
        print_json(chosen | {"batch_sizes": [asdict(size) for size in sizes.values()]})
        return
    print_records([asdict(size) | size.means for size in sizes.values()], _COLUMNS)
    word = "Cheapest so far" if job.stage == "Pruning" else "Chosen"
    click.echo(f"{word}: batch size {find_chosen(job)}; the default is {job.spec.default_batch_size}.")
    click.echo(f"Time is that of the processor; energy is modelled from it, for a machine of {MAX_POWER_W:g} W.")


def find_chosen(job: JobSummary) -> int:
    """Find the batch size believed to be the cheapest; while batch sizes are pruned, that of the cheapest run."""
    means = {arm.batch_size: arm.mean for arm in job.arms if arm.mean is not None}
    return max(means, key=means.__getitem__) if means else job.min_cost_batch_size
