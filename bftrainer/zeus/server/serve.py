"""Run the server until it is told to stop; it logs to standard error, one JSON object a line."""

from __future__ import annotations

import json
import logging
import os
import resource
import socket
import stat
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from bftrainer.errors import SettingsError
from bftrainer.zeus.server.access import is_loopback
from bftrainer.zeus.server.app import ServerSettings, audit_logger, create_app
from bftrainer.zeus.server.store import database_url, open_store, sqlite_path

logger = logging.getLogger(__name__)


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


def log_to_stderr(level: str) -> None:
    """Make this process's server log to standard error, from a lowest level on; who changed what, always."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    for name in ("bftrainer", "uvicorn"):
        parent = logging.getLogger(name)
        parent.addHandler(handler)
        parent.propagate = False
        parent.setLevel(level.upper())
    audit_logger.setLevel(logging.INFO)


def serve(
    host: str,
    port: int,
    settings: ServerSettings,
    *,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    log_level: str = "info",
) -> None:
    """Serve at an address and port (0: any free one) until a signal ends it; https with certificate and key (PEM).

    `SettingsError` if other machines could use the server without a token; if the tokens, the certificate or the
    database cannot be used, or the port is taken.
    """
    if settings.token_file is None and not is_loopback(host):
        raise SettingsError(f"Serving other machines at {host} needs --token-file; clients without one need a proxy.")
    url = database_url(settings.database_url)
    path = sqlite_path(url)
    if url.get_backend_name() == "sqlite" and path is None:
        raise SettingsError("Expected a database that is kept, got one in memory; try sqlite:///FILE.")

    def announce() -> None:
        name, number = f"[{host}]" if ":" in host else host, listener.getsockname()[1]
        address = f"{'http' if tls_cert is None else 'https'}://{name}:{number}"
        logger.info("serving", extra={"fields": {"address": address, "token_file": settings.token_file}})
        warn_of_exposure(settings, path, tls_key)

    config = _configure(create_app(settings, announce), tls_cert, tls_key)
    with ExitStack() as stack:
        stack.callback(os.umask, os.umask(0o077))  # nobody else reads what is made from here on
        listener = stack.enter_context(_listen(host, port))
        with open_store(settings.database_url):  # before requests come, so that an error is one line
            pass
        # Half-sent requests keep their descriptors.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        log_to_stderr(log_level)
        # Being told to stop is how a server ends. Not all versions of uvicorn keep that signal to themselves.
        stack.enter_context(suppress(KeyboardInterrupt))
        uvicorn.Server(config).run([listener])


def _configure(app: FastAPI, tls_cert: str | None, tls_key: str | None) -> uvicorn.Config:
    """Configure uvicorn, and have it load the certificate, so that one that it cannot use is refused in one line."""
    if (tls_cert is None) != (tls_key is None):
        raise SettingsError("Expected a certificate and its key, got one of them.")
    config = uvicorn.Config(
        app,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
        ssl_keyfile_password="",  # no question at a terminal, if it is encrypted
        timeout_graceful_shutdown=10,  # seconds for open requests to end
    )
    try:
        config.load()
    except (OSError, ValueError) as error:  # SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        files = f"--tls-cert {tls_cert}, --tls-key {tls_key}"
        raise SettingsError(f"{files}: Expected a certificate and its key (PEM): {reason}.") from None
    return config


def _listen(host: str, port: int) -> socket.socket:
    """Take an address, or refuse it; what connects before the server has started waits for it."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, *_, address = min(addresses, key=lambda each: each[0])  # of a name that has both, IPv4
        is_dual = host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, dualstack_ipv6=is_dual)
    except (OSError, UnicodeError) as error:  # also of a name that is none
        raise SettingsError(f"{host}:{port}: cannot listen there ({getattr(error, 'strerror', error)}).") from None


def warn_of_exposure(settings: ServerSettings, database: Path | None, tls_key: str | None) -> None:
    """Log who is let in without a token, and which files more people may read than should."""
    if settings.token_file is None:
        logger.warning("nobody is asked for a token: whoever reaches this server may do everything")
    elif settings.compat == "zeus":
        logger.warning("clients of Zeus know no token: --open lets them in")
    files = [] if database is None else [Path(f"{database}{suffix}") for suffix in ("", "-wal", "-shm")]
    files += map(Path, filter(None, (settings.token_file, tls_key)))
    for file in files:
        with suppress(OSError):  # one that is not there yet
            if (mode := stat.S_IMODE(file.stat().st_mode)) & 0o077:
                logger.warning("other users may read or write %s (mode %04o); chmod 600 keeps them out", file, mode)
