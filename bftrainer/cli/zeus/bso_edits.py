"""`bftrainer bso void`: change jobs of a server that live on."""

from __future__ import annotations

import click

from bftrainer.cli.zeus.bso import asking, find_job, server_options
from bftrainer.cli.zeus.zeus_options import SETTINGS


@click.command(context_settings=SETTINGS, epilog="Example: bftrainer bso void my-job 17 --reason 'broken meter'")
@click.argument("job_id", metavar="JOB")
@click.argument("trial", metavar="TRIAL", type=click.IntRange(min=1))
@click.option("--reason", required=True, help="Why; the job's history keeps it.")
@server_options
def void(job_id: str, trial: int, reason: str, server: str, token_file: str | None) -> None:
    """Have a trial of a job count for nothing: what is known of the job is learned anew from its other trials."""
    from bftrainer.files.opening import one_line

    with asking(server, token_file) as client:
        find_job(client, job_id)
        job = client.void_trial(job_id, trial, reason)
    click.echo(f"Voided trial {trial} of {one_line(job_id)}, which is in stage {job.stage} now.")
