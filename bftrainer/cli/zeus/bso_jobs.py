"""`bftrainer bso jobs`, `show` and `delete`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from bftrainer.cli.zeus.bso_client import asking, find_job, server_options

if TYPE_CHECKING:
    from bftrainer.zeus.server import JobSummary

__all__ = ["delete", "jobs", "show"]

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.command(context_settings=_SETTINGS)
@server_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def jobs(server: str, token_file: str | None, as_json: bool) -> None:
    """List the jobs of a server: stage, trials, cheapest run."""
    from bftrainer.cli._shared.tables import print_table

    with asking(server, token_file) as client:
        found = client.jobs()
    if as_json:
        click.echo(json.dumps([job.model_dump() for job in found], indent=2, allow_nan=False))
        return
    headings = ("job", "stage", "trials", "results", "batch sizes left", "cheapest", "cost (J)")
    print_table(headings, map(_row, found), left=2)


def _row(job: JobSummary) -> tuple[str, ...]:
    cheapest = ("-", "-") if job.min_cost is None else (f"{job.min_cost_batch_size}", f"{job.min_cost:,.6g}")
    from bftrainer.files.opening import one_line
    from bftrainer.zeus.server.wording import few

    left = few(job.remaining, " ")
    return (one_line(job.spec.job_id or ""), job.stage, f"{job.trials:,}", f"{job.observations:,}", left, *cheapest)


@click.command(context_settings=_SETTINGS)
@click.argument("job_id", metavar="JOB")
@server_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def show(job_id: str, server: str, token_file: str | None, as_json: bool) -> None:
    """Show a job of a server: its settings, and what is believed of each batch size."""
    with asking(server, token_file) as client:
        job = find_job(client, job_id)
    if as_json:
        click.echo(job.model_dump_json(indent=2))
        return
    _print_job(job)


def _print_job(job: JobSummary) -> None:
    from bftrainer.cli._shared.tables import print_table
    from bftrainer.files.opening import one_line
    from bftrainer.zeus.server.wording import few

    spec = job.spec
    waiting = "" if job.exploring is None else f", exploring batch size {job.exploring}"
    beta = "never" if spec.beta_knob is None else f"{spec.beta_knob:g} times the cheapest run"
    side = "at least" if spec.higher_is_better_metric else "at most"
    facts = (
        ("job", one_line(spec.job_id or "")),
        ("stage", f"{job.stage}{waiting}"),
        ("batch sizes", few(spec.batch_sizes, " ")),
        ("left", few(job.remaining, " ") or "none"),
        ("default", f"{spec.default_batch_size}"),
        ("target", f"{side} {spec.target_metric:g} within {spec.max_epochs} epochs"),
        ("stops at", beta),
        ("trials", f"{job.trials:,}, {job.observations:,} with a result"),
        ("cheapest", "-" if job.min_cost is None else f"{job.min_cost:,.6g} J, batch size {job.min_cost_batch_size}"),
    )
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        click.echo(f"{name:<{width}}  {value}")
    if job.arms:
        click.echo()
        rows = [
            (
                f"{arm.batch_size}",
                "unknown" if arm.mean is None or arm.precision == 0 else f"{-arm.mean:,.6g}",
                "0" if arm.precision is None else "-" if arm.precision == 0 else f"{arm.precision**-0.5:,.4g}",
                f"{arm.observations:,}",
            )
            for arm in job.arms
        ]
        print_table(("batch size", "mean cost (J)", "give or take (J)", "results"), rows, left=0)


@click.command(context_settings=_SETTINGS)
@click.argument("job_id", metavar="JOB")
@server_options
@click.option("--yes", is_flag=True, help="Don't ask.")
def delete(job_id: str, server: str, token_file: str | None, yes: bool) -> None:
    """Have a server forget a job with all its trials."""
    from bftrainer.files.opening import one_line

    with asking(server, token_file) as client:
        job = find_job(client, job_id)
        if not yes:
            click.confirm(f"Delete {one_line(job_id)} with its {job.trials:,} trials?", abort=True, err=True)
        client.delete_job(job_id)
    click.echo(f"Deleted {one_line(job_id)}.")
