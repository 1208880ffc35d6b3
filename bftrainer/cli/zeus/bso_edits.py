"""`bftrainer bso change`, `clone`, `note`, `reset` and `void`: change jobs of a server that live on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.stdio import counted
from bftrainer.cli.zeus.bso import asking, confirm, find_job, server_options
from bftrainer.cli.zeus.zeus_options import SETTINGS, with_options
from bftrainer.errors import SettingsError, nearest, suggestion

if TYPE_CHECKING:
    from bftrainer.zeus.server.state_messages import JobEdited

_SIZE = click.IntRange(min=1)
_settings_option = click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="New value of a setting, such as max_epochs=50 or beta_knob=null.",
)


def _parsed(settings: Sequence[str]) -> dict[str, Any]:
    """Read settings: values are JSON, or else text."""
    from bftrainer.zeus.server import BatchSizeClient, JobSpec

    asked = (BatchSizeClient.change_job, BatchSizeClient.clone_job)
    taken = {name for method in asked for name in signature(method).parameters}  # and so cannot be settings beside
    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise SettingsError(f"--set: Expected NAME=VALUE, got {setting!r}.")
        if name in taken:
            near = suggestion(name, [each for each in JobSpec.model_fields if each not in taken])
            raise SettingsError(f"--set {setting}: Expected a setting that can change, got {name!r}.{near}")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


def _print_edited(what: str, edited: JobEdited) -> None:
    from bftrainer.files.opening import one_line

    name = one_line(edited.job.spec.job_id or "")
    if not edited.changed:
        click.echo(f"Nothing was done: {name} is so already.")
        return
    archived = f", {edited.archived:,} archived" if edited.archived else ""
    click.echo(f"{what} {name}: {counted(edited.kept, 'result')} kept{archived}; stage {edited.job.stage}.")
    if edited.stuck:
        click.echo(f"Note: {one_line(edited.stuck)}", err=True)


@click.command(context_settings=SETTINGS, epilog="Example: bftrainer bso change my-job --add 256 --set max_epochs=50")
@click.argument("job_id", metavar="JOB")
@_settings_option
@click.option("--add", "add_batch_sizes", metavar="BATCH_SIZE", type=_SIZE, multiple=True, help="Batch size to add.")
@click.option("--remove", metavar="BATCH_SIZE", type=_SIZE, multiple=True, help="Batch size to remove.")
@server_options
def change(
    job_id: str,
    settings: tuple[str, ...],
    add_batch_sizes: tuple[int, ...],
    remove: tuple[int, ...],
    server: str,
    token_file: str | None,
) -> None:
    """Change the settings of a job. What is known and still true is kept; other results are archived.

    --set, --add and --remove may be given several times.
    """
    values = _parsed(settings)
    if not (values or add_batch_sizes or remove):
        raise SettingsError("Expected a change: --set, --add or --remove.")
    with asking(server, token_file) as client:
        spec = find_job(client, job_id).spec
        known, default = spec.batch_sizes, values.get("default_batch_size", spec.default_batch_size)
        for size in remove:
            if size not in known:
                raise SettingsError(f"--remove: Expected a batch size of {job_id!r}, got {size}.{nearest(size, known)}")
            if size == default:
                raise SettingsError(f"--remove: Expected another size than the default_batch_size, {size}.")
        _print_edited("Changed", client.change_job(job_id, add=add_batch_sizes, remove=remove, **values))


@click.command(
    context_settings=SETTINGS,
    epilog="Example: bftrainer bso clone my-job my-job-a100 --set gpu_model=A100 --time-ratio 0.4",
)
@click.argument("job_id", metavar="JOB")
@click.argument("new_job_id", metavar="NEW")
@_settings_option
@with_options(
    click.option(
        "--time-ratio",
        type=float,
        metavar="RATIO",
        help="Begin with what JOB knows: time of an epoch on NEW's GPUs, as a multiple of that on JOB's.",
    ),
    click.option(
        "--energy-ratio",
        type=float,
        metavar="RATIO",
        help="Likewise its energy.  [default: the time's, times the ratio of the powers]",
    ),
)
@server_options
def clone(
    job_id: str,
    new_job_id: str,
    settings: tuple[str, ...],
    time_ratio: float | None,
    energy_ratio: float | None,
    server: str,
    token_file: str | None,
) -> None:
    """Make a job NEW that is like JOB but for some settings, as for other GPUs.

    With --time-ratio it begins with what JOB knows, its costs translated. --set may be given several times.
    """
    if energy_ratio is not None and time_ratio is None:
        raise SettingsError("--energy-ratio: Expected --time-ratio beside it.")
    values = _parsed(settings)
    with asking(server, token_file) as client:
        find_job(client, job_id)
        edited = client.clone_job(job_id, new_job_id, time_ratio=time_ratio, energy_ratio=energy_ratio, **values)
    _print_edited("Made", edited)


@click.command(context_settings=SETTINGS, epilog="Example: bftrainer bso reset my-job")
@click.argument("job_id", metavar="JOB")
@click.option("--yes", is_flag=True, help="Don't ask.")
@server_options
def reset(job_id: str, yes: bool, server: str, token_file: str | None) -> None:
    """Have a job begin again, knowing nothing, as when none of its batch sizes converged; its results are archived."""
    from bftrainer.files.opening import one_line

    with asking(server, token_file) as client:
        job = find_job(client, job_id)
        if not yes:
            count = job.observations if job.counted is None else job.counted
            confirm(f"Have {one_line(job_id)} begin again, and archive its {counted(count, 'result')}?")
        _print_edited("Reset", client.reset_job(job_id))


@click.command(context_settings=SETTINGS, epilog="Example: bftrainer bso void my-job 17 --reason 'broken meter'")
@click.argument("job_id", metavar="JOB")
@click.argument("trial_number", metavar="TRIAL", type=click.IntRange(min=1))
@click.option("--reason", required=True, help="Why; the job's history keeps it.")
@server_options
def void(job_id: str, trial_number: int, reason: str, server: str, token_file: str | None) -> None:
    """Have a trial of a job count for nothing: what is known of the job is learned anew from its other trials."""
    from bftrainer.files.opening import one_line
    from bftrainer.zeus.server.messages import few

    with asking(server, token_file) as client:
        find_job(client, job_id)
        job = client.void_trial(job_id, trial_number, reason)
    if not job.changed:
        click.echo(f"Nothing was done: trial {trial_number} of {one_line(job_id)} is voided already.")
        return
    click.echo(f"Voided trial {trial_number} of {one_line(job_id)}, which is in stage {job.stage} now.")
    if job.stopped:
        click.echo(
            f"Perhaps stopped by its cost alone, still taken to have missed the target: trial {few(job.stopped)}."
        )


@click.command(
    "note", context_settings=SETTINGS, epilog="Example: bftrainer bso note my-job 'Ask Ann before changing the target.'"
)
@click.argument("job_id", metavar="JOB")
@click.argument("note", metavar="TEXT")
@server_options
def note_job(job_id: str, note: str, server: str, token_file: str | None) -> None:
    """Put a note on a job, which its page shows, in place of the one before; an empty one removes it."""
    from bftrainer.files.opening import one_line

    with asking(server, token_file) as client:
        find_job(client, job_id)
        if not client.note_job(job_id, note):
            click.echo(f"Nothing was done: {one_line(job_id)} is so already.")
            return
    click.echo(f"{'Noted on' if note.strip() else 'Removed the note on'} {one_line(job_id)}.")
