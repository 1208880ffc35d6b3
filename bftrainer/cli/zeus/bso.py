"""`bftrainer bso`: run the batch-size server, and manage the jobs that it keeps."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.group import LazyGroup
from bftrainer.cli._shared.stdio import counted, print_table
from bftrainer.cli._shared.usage import chosen_output, refuse_inputs, refuse_unused
from bftrainer.cli.zeus.zeus_options import FILE, SETTINGS, given_token, with_options
from bftrainer.errors import ServerRequestError, SettingsError, suggestion
from bftrainer.extras import require_extra

if TYPE_CHECKING:
    from bftrainer.zeus.server import BatchSizeClient, JobSummary, TrialRow

_COMMANDS = {
    "delete": ("bftrainer.cli.zeus.bso", "delete", "Have a server forget a job."),
    "export": ("bftrainer.cli.zeus.bso", "export", "Write a job's trials to a file."),
    "import": ("bftrainer.cli.zeus.bso", "import_zeus", "Move the jobs of a Zeus database over."),
    "jobs": ("bftrainer.cli.zeus.bso", "jobs", "List a server's jobs."),
    "quickstart": ("bftrainer.cli.zeus.quickstart", "quickstart", "Train a sample job, and see a batch size chosen."),
    "serve": ("bftrainer.cli.zeus.bso", "serve", "Serve batch sizes to recurring training jobs."),
    "token": ("bftrainer.cli.zeus.bso_token", "token", "Say who may do what on a server."),
    "show": ("bftrainer.cli.zeus.bso", "show", "Show a job of a server."),
    "void": ("bftrainer.cli.zeus.bso", "void", "Have a trial count for nothing."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, epilog="Example: bftrainer bso jobs")
def bso() -> None:
    """Tune the batch sizes of recurring training jobs: a server that they ask, and what it keeps of them."""


server_options = with_options(
    click.option(
        "--server",
        metavar="URL",
        envvar="BFTRAINER_BSO_SERVER",
        show_envvar=True,
        help="Where the server is.  [default: yours on this machine]",
    ),
    click.option(
        "--token-file",
        metavar="FILE",
        envvar="BFTRAINER_BSO_TOKEN_FILE",
        show_envvar=True,
        help="File whose first token is the one to give.  [default: yours, to a server of yours on this machine]",
    ),
)


def _database_option(what: str) -> Callable[[Any], Any]:
    return click.option(
        "--database",
        "database_url",
        metavar="URL",
        envvar="BFTRAINER_BSO_DATABASE",
        show_envvar=True,
        help=f"{what}  [default: sqlite:///bftrainer-bso.db]",
    )


@contextmanager
def asking(server: str | None, token_file: str | None) -> Iterator[BatchSizeClient]:
    """Open a client of the server that the options name.

    Raises
    ------
    SettingsError
        If the server refuses what was given.
    """
    from bftrainer.zeus.server import BatchSizeClient

    with BatchSizeClient(server, given_token(token_file), retries=1) as client:
        try:
            yield client
        except ServerRequestError as error:
            if error.status is None and server is None:
                raise ServerRequestError(f"{error} `bftrainer bso serve` starts one.") from None
            if error.status not in _REFUSED or not error.reason:
                raise
            raise SettingsError(error.reason) from None


# Statuses of answers to what was given: something unknown, another job's name, a value that cannot be.
_REFUSED = (404, 409, 422)


def confirm(question: str) -> None:
    """Go on if whoever is at the terminal agrees; refuse where nobody is."""
    try:
        click.confirm(question, abort=True, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)  # after the question
        raise click.UsageError("Expected a yes at a terminal, or --yes.") from None


def find_job(client: BatchSizeClient, job_id: str) -> JobSummary:
    """Find a job by its name; if there is none, the error names the closest."""
    try:
        return client.job(job_id)
    except ServerRequestError as error:
        if error.status != 404:
            raise
        known = [job.spec.job_id or "" for job in client.jobs()]
        close = suggestion(job_id, known) if known else " None are registered."
        raise SettingsError(f"Unknown job {job_id!r}.{close}") from None


@click.command(context_settings=SETTINGS, epilog="Example: bftrainer bso jobs")
@server_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def jobs(server: str | None, token_file: str | None, as_json: bool) -> None:
    """List the jobs of a server: stage, trials, cheapest run."""
    with asking(server, token_file) as client:
        found = client.jobs()
    if as_json:
        click.echo(json.dumps([job.model_dump() for job in found], indent=2, allow_nan=False))
        return
    headings = ("job", "stage", "trials", "results", "batch sizes left", "cheapest", "cost (J)")
    print_table(headings, map(_row, found), left=2)


def _row(job: JobSummary) -> tuple[str, ...]:
    from bftrainer.files.opening import one_line
    from bftrainer.zeus.server.messages import abbreviate

    cheapest = ("-", "-") if job.min_cost is None else (f"{job.min_cost_batch_size}", f"{job.min_cost:,.6g}")
    left = abbreviate(job.remaining, " ")
    return (one_line(job.spec.job_id or ""), job.stage, f"{job.trials:,}", f"{job.observations:,}", left, *cheapest)


@click.command(context_settings=SETTINGS, epilog="Example: bftrainer bso show my-job")
@click.argument("job_id", metavar="JOB")
@server_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def show(job_id: str, server: str | None, token_file: str | None, as_json: bool) -> None:
    """Show a job of a server: its settings, and what is believed of each batch size."""
    with asking(server, token_file) as client:
        job = find_job(client, job_id)
        if as_json:
            click.echo(job.model_dump_json(indent=2))
            return
        trials = list(client.trials(job_id))
    _print_job(job, trials)


def _print_job(job: JobSummary, trials: list[TrialRow]) -> None:
    from bftrainer.files.opening import one_line
    from bftrainer.zeus.server.job_figures import format_si, job_facts

    facts = {"job": job.spec.job_id or "", **job_facts(job, trials)}
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{name.lower():<{width}}  {one_line(value)}")
    if job.arms:
        click.echo()
        rows = [
            (
                f"{arm.batch_size}",
                *(f"{format_si(cost)}J" for cost in (arm.mean_j, arm.deviation_j)),
                f"{arm.observations:,}",
            )
            for arm in job.arms
        ]
        print_table(("batch size", "mean cost", "give or take", "results"), rows, left=0)


@click.command(context_settings=SETTINGS, epilog="Example: bftrainer bso delete my-job")
@click.argument("job_id", metavar="JOB")
@server_options
@click.option("--yes", is_flag=True, help="Don't ask.")
def delete(job_id: str, server: str | None, token_file: str | None, yes: bool) -> None:
    """Have a server forget a job with all its trials."""
    from bftrainer.files.opening import one_line

    with asking(server, token_file) as client:
        job = find_job(client, job_id)
        if not yes:
            confirm(f"Delete {one_line(job_id)} with its {counted(job.trials, 'trial')}?")
        client.delete_job(job_id)
    click.echo(f"Deleted {one_line(job_id)}.")


@click.command(context_settings=SETTINGS, epilog="Example: bftrainer bso export my-job trials.csv")
@click.argument("job_id", metavar="JOB")
@click.argument("place", metavar="[OUTPUT]", type=FILE, required=False)
@click.option("-o", "--output", type=FILE, help="OUTPUT, as other commands take it.")
@server_options
@click.option("--force", is_flag=True, help="Replace an existing file.")
def export(
    job_id: str, place: Path | None, output: Path | None, server: str | None, token_file: str | None, force: bool
) -> None:
    """Write the trials of a job to OUTPUT: .json (with the job) or .csv."""
    from bftrainer.files.writing import refuse_existing
    from bftrainer.zeus.server.job_figures import check_form, write_job

    output = chosen_output(place, output)
    check_form(output)
    refuse_inputs(output)
    refuse_existing(output, force=force)
    with asking(server, token_file) as client:
        number = write_job(output, find_job(client, job_id), client.trials(job_id))
    click.echo(f"Wrote {counted(number, 'trial')} to {output}.")


@click.command(context_settings=SETTINGS, epilog="Example: bftrainer bso void my-job 17 --reason 'broken meter'")
@click.argument("job_id", metavar="JOB")
@click.argument("trial_number", metavar="TRIAL", type=click.IntRange(1, 2**31 - 1))
@click.option("--reason", required=True, help="Why; the server's log keeps it.")
@server_options
def void(job_id: str, trial_number: int, reason: str, server: str | None, token_file: str | None) -> None:
    """Have a trial of a job count for nothing: what is known of the job is learned anew from its other trials."""
    from bftrainer.files.opening import one_line

    with asking(server, token_file) as client:
        find_job(client, job_id)
        job = client.void_trial(job_id, trial_number, reason)
    click.echo(f"Voided trial {trial_number} of {one_line(job_id)}, which is in stage {job.stage} now.")


@click.command("import", context_settings=SETTINGS, epilog="Example: bftrainer bso import sqlite:///zeus.db")
@click.argument("source", metavar="URL")
@_database_option("Where jobs are kept from now on.")
def import_zeus(source: str, database_url: str | None) -> None:
    """Move the jobs of a database of Zeus's server, with their trials and what was learned, into one of this server's.

    URL is what ZEUS_BSO_DATABASE_URL was. Nothing is changed there, and no server should be writing to it.
    """
    require_extra("The server needs", "server")
    from bftrainer.zeus.server.store import DEFAULT_URL, open_store
    from bftrainer.zeus.server.zeus_database import import_jobs, read_published

    published = read_published(source)
    with open_store(database_url or DEFAULT_URL) as store:
        import_jobs(store, published)
    click.echo(f"Moved {counted(len(published), 'job')}.")


@click.command(
    context_settings=SETTINGS, epilog="Example: bftrainer bso serve --port 8000 --database sqlite:///jobs.db"
)
@click.option("--host", default="127.0.0.1", help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, help="Port to listen at; 0: any free one.")
@_database_option("Where jobs are kept.")
@click.option(
    "--compat",
    metavar="zeus|none",
    help="zeus: answer as the published server does, defects included.  [default: none]",
)
@click.option(
    "--token-file",
    metavar="FILE",
    help="Tokens and users (`bftrainer bso token`).  [default: one of yours, made at the first start]",
)
@click.option("--open", "opened", is_flag=True, help="Let every user of this machine in, without a token.")
@click.option("--tls-cert", metavar="FILE", help="Certificate (PEM), to serve https.")
@click.option("--tls-key", metavar="FILE", help="Its key (PEM).")
@click.option(
    "--trial-timeout",
    "trial_timeout_s",
    type=float,
    metavar="SECONDS",
    help="A trial that nothing was heard of for so long has failed; 0: never.  [default: 86400; with --compat zeus 0]",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Least level that is logged; info has a line for each request. Who changed what is always logged.  "
    "[default: info]",
)
def serve(host: str, port: int, opened: bool, **options: Any) -> None:
    """Serve batch sizes to recurring training jobs until a signal ends it.

    Clients of this user on this machine find server and token by themselves. Clients of Zeus, which know no token, need
    --open. Logs go to standard error, a JSON object a line.
    """
    require_extra("The server needs", "server")
    from bftrainer.zeus.server.access import LOOPBACK_NAMES, is_loopback, own_file
    from bftrainer.zeus.server.app import ServerSettings
    from bftrainer.zeus.server.serve import serve as run_server

    host = host.removeprefix("[").removesuffix("]")  # of an IPv6 address
    chosen = {name: value for name, value in options.items() if value is not None}
    tls = {name: chosen.pop(name) for name in ("tls_cert", "tls_key", "log_level") if name in chosen}
    refuse_unused({"opened": "token_file" in chosen and "requests have to carry a token"})
    if "token_file" not in chosen and is_loopback(host) and not opened:
        chosen["token_file"] = str(own_file())
    if chosen.get("compat") == "zeus":
        chosen.setdefault("trial_timeout_s", 0.0)
    # Without a token, another site whose name resolves to this machine could make a browser send requests.
    hosts = () if "token_file" in chosen else (*LOOPBACK_NAMES, host)
    run_server(host, port, ServerSettings(**chosen, hosts=hosts), **tls)
