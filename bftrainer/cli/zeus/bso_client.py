"""What the commands that ask a batch-size server have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli.zeus.options import with_options
from bftrainer.errors import ServerRequestError, SettingsError, suggestion

if TYPE_CHECKING:
    from bftrainer.zeus.server import BatchSizeClient, JobSummary

__all__ = ["asking", "find_job", "server_options"]

server_options = with_options(
    click.option(
        "--server",
        metavar="URL",
        default="http://127.0.0.1:8000",
        show_default=True,
        envvar="BFTRAINER_BSO_SERVER",
        show_envvar=True,
        help="Where the server is.",
    ),
    click.option("--token-file", metavar="FILE", help="File whose first line that is no comment is the token to give."),
)


@contextmanager
def asking(server: str, token_file: str | None, **options: Any) -> Iterator[BatchSizeClient]:
    """A client of the server that the options name.

    Raises
    ------
    SettingsError
        If the address is none, or the token cannot be read.
    """
    from bftrainer.zeus.server import BatchSizeClient
    from bftrainer.zeus.server.tokens import read_tokens

    tokens = read_tokens(token_file)
    with BatchSizeClient(server, tokens[0] if tokens else None, retries=1, **options) as client:
        yield client


def find_job(client: BatchSizeClient, job_id: str) -> JobSummary:
    """A job by its name.

    Raises
    ------
    SettingsError
        If there is none, with the closest name.
    """
    try:
        return client.job(job_id)
    except ServerRequestError as error:
        if error.status != 404:
            raise
        known = [job.spec.job_id or "" for job in client.jobs()]
        close = suggestion(job_id, known) if known else " None are registered."
        raise SettingsError(f"Expected a registered job, got {job_id!r}.{close}") from None
