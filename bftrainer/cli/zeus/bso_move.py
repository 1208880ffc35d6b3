"""`bftrainer bso export` and `import`."""

from __future__ import annotations

from pathlib import Path

import click

from bftrainer.cli._shared.places import refuse_inputs
from bftrainer.cli.zeus.bso_client import asking, find_job, server_options

__all__ = ["export", "import_zeus"]

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.command(context_settings=_SETTINGS)
@click.argument("job_id", metavar="JOB")
@click.argument("output", type=click.Path(path_type=Path))
@server_options
@click.option("--force", is_flag=True, help="Replace an existing file.")
def export(job_id: str, output: Path, server: str, token_file: str | None, force: bool) -> None:
    """Write the trials of a job to OUTPUT: .json (with the job), .csv or .parquet."""
    from bftrainer.files.writing import refuse_existing
    from bftrainer.zeus.server.export import check_form, write_job

    check_form(output)
    refuse_inputs(output)
    refuse_existing(output, force=force)
    with asking(server, token_file) as client:
        number = write_job(output, find_job(client, job_id), client.trials(job_id))
    click.echo(f"Wrote {number:,} trials to {output}.")


@click.command("import", context_settings=_SETTINGS)
@click.argument("source", metavar="URL")
@click.option(
    "--database",
    metavar="URL",
    envvar="BFTRAINER_BSO_DATABASE",
    show_envvar=True,
    help="Where jobs are kept from now on.  [default: sqlite+aiosqlite:///bftrainer-bso.db]",
)
def import_zeus(source: str, database: str | None) -> None:
    """Move the jobs of a database of Zeus's server, with their trials and what was learned, into one of this server's.

    URL is what ZEUS_BSO_DATABASE_URL was. Nothing is changed there, and no server should be writing to it.
    """
    import asyncio

    from bftrainer.zeus.server.serve import check_installed

    check_installed()
    from bftrainer.zeus.server.database import open_database
    from bftrainer.zeus.server.opening import open_store
    from bftrainer.zeus.server.published import import_jobs, read_published
    from bftrainer.zeus.server.settings import DEFAULT_URL

    async def move() -> int:
        """Read all, then write all."""
        old = open_database(source, read_only=True)
        try:
            jobs = await read_published(old)
        finally:
            await old.close()
        async with open_store(database or DEFAULT_URL) as store:
            return await import_jobs(store, jobs)

    click.echo(f"Moved {asyncio.run(move()):,} jobs.")
