"""Run the server until it is told to stop; it logs to standard error, one JSON object a line."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from datetime import UTC, datetime

from bftrainer.errors import SettingsError
from bftrainer.zeus.server.settings import ServerSettings, is_loopback, read_tokens


class JsonFormatter(logging.Formatter):
    """Formats log records as JSON objects, with a record's extra fields beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry = {"time": moment, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        entry |= getattr(record, "fields", {})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def configure(level: str) -> None:
    """Make this process's server log to standard error, from a lowest level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in ("bftrainer", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler] if name != "uvicorn.error" else []
        logger.propagate = name == "uvicorn.error"
        logger.setLevel(level.upper())


# Time for open requests to end at a shutdown.
SHUTDOWN_S = 10


def check_exposure(host: str, token_file: str | None, *, insecure: bool) -> None:
    """Refuse to serve other machines without a token.

    Raises
    ------
    SettingsError
        If other machines could use the server without a token, and `insecure` is false.
    """
    if token_file is None and not insecure and not is_loopback(host):
        raise SettingsError(
            f"Serving other machines at {host} needs --token-file; --insecure lets everyone in who reaches it."
        )


def serve(host: str, port: int, settings: ServerSettings, *, workers: int, migrate: bool) -> None:
    """Serve until a signal ends it.

    Parameters
    ----------
    host : str
        Address or name to listen on.
    port : int
        Port to listen on; 0: any free port.
    settings : ServerSettings
        Settings of the server.
    workers : int
        Number of processes that answer requests.
    migrate : bool
        Whether the database's tables may be created and changed.

    Raises
    ------
    SettingsError
        If the tokens or the database cannot be used, or the port is taken.
    """
    read_tokens(settings.token_file)
    port = _free_port(host, port)
    asyncio.run(_prepare(settings, migrate=migrate))

    import uvicorn

    from bftrainer.zeus.server.app import ENVIRONMENT

    os.environ[ENVIRONMENT] = json.dumps(asdict(settings))
    configure(settings.log_level)
    # Being told to stop is how a server ends. Not all versions of uvicorn keep that signal to themselves.
    with _shared_counters() if workers > 1 else nullcontext(), suppress(KeyboardInterrupt):
        uvicorn.run(
            "bftrainer.zeus.server.app:from_environment",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )


@contextmanager
def _shared_counters() -> Iterator[None]:
    """Give workers a directory for shared counters."""
    with tempfile.TemporaryDirectory(prefix="bftrainer-bso-") as counters:
        # The metrics library reads it when it is imported, in each worker.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = counters
        yield


async def _prepare(settings: ServerSettings, *, migrate: bool) -> None:
    """Check the database before the server accepts requests."""
    from bftrainer.zeus.server.store import open_store

    async with open_store(settings.database_url, migrate=migrate) as store:
        if store.database.in_memory:
            raise SettingsError(
                "Expected a database that workers share, got one in memory; try sqlite+aiosqlite:///FILE."
            )


def _free_port(host: str, port: int) -> int:
    """Check that a port can be listened on, and return it; for 0, return any free port."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise SettingsError(f"Expected an address of this machine to listen at, got {host!r}.") from None
    with socket.socket(family, kind, protocol) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(address)
        except OSError as error:
            raise SettingsError(f"{host}:{port}: cannot listen there ({error.strerror}).") from None
        number: int = trial.getsockname()[1]
        return number
