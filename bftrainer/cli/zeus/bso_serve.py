"""`bftrainer bso serve`."""

from __future__ import annotations

import click

from bftrainer.cli._shared.sizes import LARGE_PROCESSES, large_option, size_option
from bftrainer.cli._shared.unused import refuse_unused

__all__ = ["serve"]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port to listen at; 0: any free one."
)
@click.option(
    "--database",
    metavar="URL",
    envvar="BFTRAINER_BSO_DATABASE",
    show_envvar=True,
    help="Where jobs are kept.  [default: sqlite+aiosqlite:///bftrainer-bso.db]",
)
@click.option(
    "--compat",
    metavar="zeus|none",
    default="none",
    show_default=True,
    help="zeus: answer as the published server does, defects included.",
)
@size_option(
    "--workers",
    usual=LARGE_PROCESSES,
    kind=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes that answer.",
)
@click.option("--token-file", metavar="FILE", help="Bearer tokens, one a line; requests must carry one of them.")
@click.option("--insecure", is_flag=True, help="Serve others than this machine without a token.")
@click.option("--no-migrate", is_flag=True, help="Refuse a database whose tables are not up to date.")
@click.option(
    "--trial-timeout",
    type=float,
    metavar="SECONDS",
    help="A trial that nothing was heard of for so long has failed; 0: never.  [default: 86400; with --compat zeus 0]",
)
@click.option("--max-body", type=int, default=1 << 20, show_default=True, help="Longest request in bytes.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Least level that is logged; info has a line for each request.",
)
@large_option
def serve(
    host: str,
    port: int,
    database: str | None,
    compat: str,
    workers: int,
    token_file: str | None,
    insecure: bool,
    no_migrate: bool,
    trial_timeout: float | None,
    max_body: int,
    log_level: str,
) -> None:
    """Serve batch sizes to recurring training jobs until a signal ends it.

    Clients of Zeus need nothing but this server's address. Logs go to standard error, a JSON object a line.
    """
    from bftrainer.zeus.server.serve import check_exposure, check_installed

    check_installed()
    from bftrainer.zeus.server import serve as serving
    from bftrainer.zeus.server.settings import DEFAULT_URL, LOOPBACK_NAMES, TRIAL_TIMEOUT_S, ServerSettings, is_loopback

    refuse_unused({"insecure": token_file is not None and "requests have to carry a token"})
    host = host.removeprefix("[").removesuffix("]")  # of an IPv6 address
    check_exposure(host, token_file, insecure=insecure)
    default_s = 0.0 if compat == "zeus" else TRIAL_TIMEOUT_S
    # Without a token a page of another site, by a name that leads here, could have a browser ask.
    alone = is_loopback(host) and token_file is None and not insecure
    settings = ServerSettings(
        database_url=database or DEFAULT_URL,
        compat=compat,
        trial_timeout_s=default_s if trial_timeout is None else trial_timeout,
        token_file=token_file,
        max_body_bytes=max_body,
        hosts=(*LOOPBACK_NAMES, host) if alone else (),
    )
    serving.serve(host, port, settings, workers=workers, migrate=not no_migrate, log_level=log_level)
