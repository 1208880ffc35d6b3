"""Run the server until it is told to stop; it logs to standard error, one JSON object a line."""

from __future__ import annotations

import json
import logging
import logging.config
import os
import resource
import socket
import ssl
import stat
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bftrainer.errors import SettingsError
from bftrainer.zeus.server.access import AccessFile, own_path
from bftrainer.zeus.server.guard import audit_logger
from bftrainer.zeus.server.settings import ServerSettings, is_loopback
from bftrainer.zeus.server.store import database_url, open_store, sqlite_path

logger = logging.getLogger(__name__)

# Time for open requests to end at a shutdown.
SHUTDOWN_S = 10
_STDERR = 2


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
    """Make this process's server log to standard error, from a lowest level on; who changed what, always."""
    to_stderr = {"handlers": ["stderr"], "level": level.upper(), "propagate": False}
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"json": {"()": JsonFormatter}},
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
            "loggers": {"bftrainer": to_stderr, "uvicorn": to_stderr, audit_logger.name: {"level": "INFO"}},
        }
    )


def check_exposure(host: str, token_file: str | None) -> None:
    """Refuse to serve other machines without a token.

    Raises
    ------
    SettingsError
        If other machines could use the server without a token.
    """
    if token_file is None and not is_loopback(host):
        raise SettingsError(f"Serving other machines at {host} needs --token-file; clients without one need a proxy.")


def serve(host: str, port: int, settings: ServerSettings, *, migrate: bool) -> None:
    """Serve until a signal ends it.

    Parameters
    ----------
    host : str
        Address or name to listen on.
    port : int
        Port to listen on; 0: any free port.
    settings : ServerSettings
        Settings of the server.
    migrate : bool
        Whether the database's tables may be created and changed.

    Raises
    ------
    SettingsError
        If the tokens, the certificate or the database cannot be used, or the port is taken.
    """
    access = None if settings.token_file is None else AccessFile(settings.token_file)
    check_certificate(settings)
    url = database_url(settings.database_url)
    if url.get_backend_name() == "sqlite" and sqlite_path(url) is None:
        raise SettingsError("Expected a database that is kept, got one in memory; try sqlite:///FILE.")
    with ExitStack() as stack:
        stack.callback(os.umask, os.umask(0o077))  # nobody else reads what is made from here on
        listener = stack.enter_context(_listen(host, port))
        with open_store(settings.database_url, migrate=migrate):  # before requests come, so that an error is one line
            pass
        # Half-sent requests keep their descriptors.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        configure(settings.log_level)
        # Being told to stop is how a server ends. Not all versions of uvicorn keep that signal to themselves.
        stack.enter_context(suppress(KeyboardInterrupt))
        _run(host, listener, settings, access, migrate=migrate)


def _run(
    host: str, listener: socket.socket, settings: ServerSettings, access: AccessFile | None, *, migrate: bool
) -> None:
    import uvicorn

    from bftrainer.zeus.server.app import create_app

    class Server(uvicorn.Server):
        """Says where it serves once connections are accepted."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Start to accept connections."""
            await super().startup(sockets)
            if not self.should_exit:
                name, number = f"[{host}]" if ":" in host else host, listener.getsockname()[1]
                scheme = "http" if settings.tls_cert is None else "https"
                _announce(f"{scheme}://{name}:{number}", settings, access)

    config = uvicorn.Config(
        create_app(settings, migrate=migrate),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    Server(config).run([listener])


def check_certificate(settings: ServerSettings) -> None:
    """Load the certificate and its key, if there are any, as uvicorn will.

    Raises
    ------
    SettingsError
        If they cannot be read, or don't go together; it names the options and files.
    """
    if settings.tls_cert is None or settings.tls_key is None:
        return
    for option, file in (("--tls-cert", settings.tls_cert), ("--tls-key", settings.tls_key)):
        if not os.access(file, os.R_OK):
            raise SettingsError(f"{option} {file}: cannot be read.")
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password=_refuse_password)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        reason = getattr(error, "reason", None) or str(error)
        files = f"--tls-cert {settings.tls_cert}, --tls-key {settings.tls_key}"
        raise SettingsError(f"{files}: Expected a certificate and its key (PEM): {reason}.") from None


def _refuse_password() -> str:
    """Refuse a key that is encrypted, rather than ask a terminal for its password."""
    raise ValueError("the key is encrypted")


def _listen(host: str, port: int) -> socket.socket:
    """Listen at an address, or refuse it."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise SettingsError(f"Expected an address of this machine to listen at, got {host!r}.") from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise SettingsError(f"{host}:{port}: cannot listen there ({error.strerror}).") from None
    return listener


def _announce(where: str, settings: ServerSettings, access: AccessFile | None) -> None:
    """Log where the server is, who is let in, and what more people could read than should."""
    fields: dict[str, Any] = {"address": where, "token_file": settings.token_file}
    logger.info("serving", extra={"fields": {name: value for name, value in fields.items() if value is not None}})
    if access is None:
        logger.warning("nobody is asked for a token: whoever reaches %s may do everything", where)
    else:
        if settings.published:
            logger.warning("clients of Zeus know no token: --open lets them in")
        if settings.token_file != str(own_path()) and any(grant.token for grant in access.grants().values()):
            whose = (
                "a token that stands alone in %s makes an administrator; `bftrainer bso token add` gives other roles"
            )
            logger.warning(whose, settings.token_file)
    path = sqlite_path(database_url(settings.database_url))
    files = [] if path is None else [Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")]
    files += map(Path, filter(None, (settings.token_file, settings.tls_key)))
    for file in files:
        with suppress(OSError):  # one that is not there yet
            if (mode := stat.S_IMODE(file.stat().st_mode)) & 0o077:
                logger.warning("other users may read or write %s (mode %04o); chmod 600 keeps them out", file, mode)
    with suppress(OSError):  # nobody reads a log that is closed
        mode = os.fstat(_STDERR).st_mode
        if stat.S_ISREG(mode) and mode & 0o077:
            logger.warning("other users may read or write this log (mode %04o)", stat.S_IMODE(mode))
