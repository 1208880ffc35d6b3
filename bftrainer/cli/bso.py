"""`bftrainer bso`: run the batch-size server, manage the jobs that it keeps, and say who may use it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli import usage
from bftrainer.cli.group import CommandGroup
from bftrainer.cli.terminal import counted, print_records, write_rows
from bftrainer.cli.usage import FILE
from bftrainer.errors import BatchSizeServerError, SettingsError, suggestion
from bftrainer.files.opening import one_line
from bftrainer.plugins import require_extra

if TYPE_CHECKING:
    from bftrainer.zeus.server import BatchSizeClient, JobSummary
    from bftrainer.zeus.server.messages import TrialRow


@click.group(cls=CommandGroup, epilog="Example: bftrainer bso jobs")
def bso() -> None:
    """Tune the batch sizes of recurring training jobs: a server that they ask, and what it keeps of them."""


server_options = usage.with_options(
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
_database_option = click.option(
    "--database",
    "database_url",
    metavar="URL",
    envvar="BFTRAINER_BSO_DATABASE",
    show_envvar=True,
    help="Where jobs are kept.  [default: sqlite:///bftrainer-bso.db]",
)


# Statuses of answers to what was given: something unknown, another job's name, a value that cannot be.
_REFUSED = (404, 409, 422)


@contextmanager
def open_client(server: str | None, token_file: str | None) -> Iterator[BatchSizeClient]:
    """Open a client of the server that the options name; what it refuses of what was typed is a `SettingsError`."""
    from bftrainer.zeus.server import BatchSizeClient
    from bftrainer.zeus.server.access import first_token

    token = None if token_file is None else first_token(token_file)
    with BatchSizeClient(server, token, retries=1) as client:
        try:
            yield client
        except BatchSizeServerError as error:
            if error.status is None and server is None:
                raise BatchSizeServerError(f"{error} `bftrainer bso serve` starts one.") from None
            if error.status not in _REFUSED or not error.reason:
                raise
            raise SettingsError(error.reason) from None


@bso.command(epilog="Example: bftrainer bso jobs my-job")
@click.argument("job_id", metavar="[JOB]", required=False)
@server_options
@usage.json_option
@click.option("-o", "--output", type=FILE, help="Write the trials of JOB: .json (with the job) or .csv.")
@usage.force_option
@click.option("--delete", "deletes", is_flag=True, help="Forget JOB with all its trials.")
@click.option("--yes", is_flag=True, help="Delete indeed, which --delete takes.")
@click.option(
    "--void", "trial", type=click.IntRange(1, 2**31 - 1), metavar="TRIAL", help="Have a trial of JOB count for nothing."
)
@click.option("--reason", help="Why, with --void; the server's log keeps it.")
@click.option("--import", "source", metavar="URL", help="Copy the jobs of Zeus's server: its ZEUS_BSO_DATABASE_URL.")
@_database_option
def jobs(
    job_id: str | None, server: str | None, token_file: str | None, output: Path | None, force: bool,
    deletes: bool, yes: bool, trial: int | None, reason: str | None, source: str | None, database_url: str | None,
) -> None:  # fmt: skip
    """List the jobs of a server, or show one. Of JOB: its settings, and what is believed of each batch size.

    With an option: write the trials of JOB, void one of them, delete JOB, or move the jobs of a Zeus database, with
    their trials and what was learned, into one of this server's; no server should be writing to it then.
    """
    from bftrainer.zeus.server import job_figures

    actions = {"-o": output is not None, "--delete": deletes, "--void": trial is not None, "--import": bool(source)}
    chosen = [action for action, is_given in actions.items() if is_given]
    if len(chosen) > 1:
        raise click.UsageError(f"Expected one of {' and '.join(chosen)}.")
    if source is not None:
        if job_id is not None:
            raise click.UsageError("Expected no JOB with --import, which moves all jobs.")
        require_extra("The server needs", "server")
        from bftrainer.zeus.server.store import DEFAULT_URL, import_jobs, open_store, read_published

        published = read_published(source)
        with open_store(database_url or DEFAULT_URL) as store:
            import_jobs(store, published)
        click.echo(f"Moved {counted(len(published), 'job')}.")
        return
    if chosen and job_id is None:
        raise click.UsageError(f"Expected JOB with {chosen[0]}.")
    if trial is not None and reason is None:
        raise click.UsageError("Expected --reason with --void.")
    if output is not None:
        job_figures.check_form(output)
        usage.refuse_files(output, force=force)
    with open_client(server, token_file) as client:
        if job_id is None:
            _list_jobs(client.jobs())
            return
        job, name = _find_job(client, job_id), one_line(job_id)
        if deletes:
            if not yes:
                raise click.UsageError(f"Expected --yes to delete {name} with its {counted(job.trials, 'trial')}.")
            client.delete_job(job_id)
            click.echo(f"Deleted {name}.")
        elif trial is not None:
            stage = client.void_trial(job_id, trial, reason or "").stage
            click.echo(f"Voided trial {trial} of {name}, which is in stage {stage} now.")
        elif output is not None:
            number = job_figures.write_job(output, job, client.trials(job_id))
            click.echo(f"Wrote {counted(number, 'trial')} to {output}.")
        elif not usage.print_json_if_asked(job.model_dump):
            _show_job(job, list(client.trials(job_id)))


def _find_job(client: BatchSizeClient, job_id: str) -> JobSummary:
    """Find a job by its name; if there is none, the error names the closest."""
    try:
        return client.job(job_id)
    except BatchSizeServerError as error:
        if error.status != 404:
            raise
        names = [job.spec.job_id or "" for job in client.jobs()]
        close = suggestion(job_id, names) if names else " None are registered."
        raise SettingsError(f"Unknown job {job_id!r}.{close}") from None


_ARMS = ("batch_size", "mean_j", "deviation_j", "observations")
_LISTED = ("job", "stage", "trials", "results", "batch_sizes_left", "cheapest", "cost_j")


def _list_jobs(jobs: list[JobSummary]) -> None:
    from bftrainer.zeus.server.messages import abbreviate

    if usage.print_json_if_asked(lambda: [job.model_dump() for job in jobs]):
        return
    records = []
    for job in jobs:
        cheapest = None if job.min_cost is None else job.min_cost_batch_size
        counts = {"job": job.spec.job_id or "", "stage": job.stage, "trials": job.trials, "results": job.observations}
        sizes = {"batch_sizes_left": abbreviate(job.remaining, " "), "cheapest": cheapest}
        records.append(counts | sizes | {"cost_j": job.min_cost})
    print_records(records, _LISTED)


def _show_job(job: JobSummary, trials: list[TrialRow]) -> None:
    from bftrainer.zeus.server import job_figures

    facts = {"job": job.spec.job_id or "", **job_figures.job_facts(job, trials)}
    write_rows(None, [(name.lower(), value) for name, value in facts.items()])
    if job.arms:
        click.echo()
        print_records([dict(arm) | {"mean_j": arm.mean_j, "deviation_j": arm.deviation_j} for arm in job.arms], _ARMS)


@bso.command(epilog="Example: bftrainer bso serve --port 8000 --database sqlite:///jobs.db")
@click.option("--host", default="127.0.0.1", help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, help="Port to listen at; 0: any free one.")
@_database_option
@click.option("--compat", metavar="zeus|none", help="zeus: answer as published, defects included.  [default: none]")
@click.option("--token-file", metavar="FILE", help="Tokens and users (`bftrainer bso token`).  [default: one of yours]")
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
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="What is logged.  [default: info]"
)
def serve(host: str, port: int, opened: bool, **options: Any) -> None:
    """Serve batch sizes to recurring training jobs. A signal ends it.

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
    usage.refuse_unused({"opened": "token_file" in chosen and "requests have to carry a token"})
    if "token_file" not in chosen and is_loopback(host) and not opened:
        chosen["token_file"] = str(own_file())
    if chosen.get("compat") == "zeus":
        chosen.setdefault("trial_timeout_s", 0.0)
    # Without a token, another site whose name resolves to this machine could make a browser send requests.
    hosts = () if "token_file" in chosen else (*LOOPBACK_NAMES, host)
    run_server(host, port, ServerSettings(**chosen, hosts=hosts), **tls)


@bso.command(epilog="Example: bftrainer bso token add alice --role trainer --days 90")
@click.argument("action", type=click.Choice(["list", "add", "revoke"]), default="list")
@click.argument("user", metavar="[USER]", required=False)
@click.option(
    "--role",
    type=click.Choice(["reader", "trainer", "owner", "admin"]),
    default="owner",
    help="reader: looks; trainer: runs trials; owner: has jobs; admin: all.",
)
@click.option("--days", type=click.IntRange(1, 36_525), help="Days that a new token holds.  [default: for ever]")
@click.option("--token-file", "path", type=FILE, help="File of tokens.  [default: that of your own servers]")
@usage.json_option
def token(action: str, user: str | None, role: str, days: int | None, path: Path | None) -> None:
    """Say who may do what on a server. List who is let in, add USER and print a new token, or revoke by USER or id.

    A token is kept nowhere but in its digest. A running server notices changes by itself.
    """
    from bftrainer.zeus.server import access

    file = path or access.own_file()
    if path is not None and not path.parent.is_dir():
        raise SettingsError(f"--token-file {path}: No such directory: {path.parent}.")
    if (user is None) != (action == "list"):
        raise click.UsageError("Expected USER with add and revoke, and without another word after list.")
    if action == "list":
        rows: list[dict[str, Any]] = []
        for known in access.read_users(file):
            row: dict[str, Any] = {"id": known.id, "user": known.name or "", "role": known.role.name.lower()}
            rows.append(row | {"expires": known.expires, "valid": known.is_valid})
        if usage.print_json_if_asked(lambda: rows):
            return
        for row in rows:
            if row["expires"] is not None:
                row["expires"] = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(row["expires"]))
        print_records(rows)
    elif action == "add":
        created = access.add_user(file, user or "", access.Role[role.upper()], days)
        until = "" if days is None else f" for {days} days"
        click.echo(f"{user} is let in as {role} ({created.id}){until}.", err=True)
        click.echo(created.token)
    else:
        for revoked in access.revoke(file, user or ""):
            click.echo(f"Revoked {revoked.id} of {revoked.name}, {revoked.role.name.lower()}.")


MAX_POWER_W = 45.0
_COLUMNS = ("batch_size", "results", "converged", "time", "energy", "cost")


@bso.command(epilog="Example: bftrainer bso quickstart")
@click.option("--runs", type=usage.SIZE, default=20, help="Times that the job recurs.")
@usage.json_option
def quickstart(runs: int) -> None:
    """Train a sample job, and see a batch size chosen.

    Each run asks a batch-size server for its batch size, trains a small network on handwritten digits to an accuracy of
    0.95, and reports what it took: time on the processor, and energy that is modelled from it. It takes less than a
    minute, and leaves nothing behind; see `bftrainer.zeus.integrations.sample_digits`.
    """
    require_extra("The sample training needs", "sample")
    require_extra("The server needs", "server")
    from bftrainer.zeus.integrations.sample_digits import JOB_ID, make_served_runs
    from bftrainer.zeus.server.job_figures import figures_by_size
    from bftrainer.zeus.server.service import BatchSizeService
    from bftrainer.zeus.server.store import open_store

    with open_store("sqlite://") as store:
        service = BatchSizeService(store)
        for number, run in enumerate(make_served_runs(service, runs, max_power_w=MAX_POWER_W, seed=1), start=1):
            missed = "missed the target" if run.epochs_done == run.max_epochs else "stopped, as it cost too much"
            epochs = counted(run.epochs_done, "epoch")
            click.echo(
                f"run {number:3}: batch size {run.batch_size:3}, {epochs:>9}, {run.time_s:6.2f} s, "
                f"{run.energy_j:7.1f} J: {'reached the target' if run.reached else missed}",
                err=True,
            )
        job, sizes = service.job(JOB_ID), figures_by_size(service.trials(JOB_ID))
    chosen = {"chosen": find_chosen(job), "default": job.spec.default_batch_size}
    if usage.print_json_if_asked(lambda: chosen | {"batch_sizes": [asdict(size) for size in sizes.values()]}):
        return
    print_records([dict.fromkeys(_COLUMNS) | asdict(size) | size.means for size in sizes.values()], _COLUMNS)
    word = "Cheapest so far" if job.stage == "Pruning" else "Chosen"
    click.echo(f"{word}: batch size {chosen['chosen']}; the default is {chosen['default']}.")
    click.echo(f"Time is that of the processor; energy is modelled from it, for a machine of {MAX_POWER_W:g} W.")


def find_chosen(job: JobSummary) -> int:
    """Find the batch size believed to be the cheapest; while batch sizes are pruned, that of the cheapest run."""
    means = {arm.batch_size: arm.mean for arm in job.arms if arm.mean is not None}
    return max(means, key=means.__getitem__) if means else job.min_cost_batch_size
