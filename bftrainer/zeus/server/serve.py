"""Run the server until it is told to stop; it logs to standard error, one JSON object a line."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bftrainer.errors import SettingsError
from bftrainer.files.permissions import readable_by_others
from bftrainer.files.writing import changing_alone
from bftrainer.zeus.server.access import AccessFile, Grant, own_path
from bftrainer.zeus.server.connections import Connection, tls_context
from bftrainer.zeus.server.database import database_files
from bftrainer.zeus.server.local_server import SOCKET_SCHEME
from bftrainer.zeus.server.settings import ENVIRONMENT, ServerSettings, is_loopback

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


def configure(level: str) -> None:
    """Make this process's server log to standard error, from a lowest level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in ("bftrainer", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler] if name != "uvicorn.error" else []
        logger.propagate = name == "uvicorn.error"
        logger.setLevel(level.upper())
    logging.getLogger("bftrainer.zeus.server.guard.audit").setLevel(logging.INFO)


# Time for open requests to end at a shutdown, and connections that the kernel keeps until they are taken.
SHUTDOWN_S, _WAITING = 10, 2048
_STDERR = 2
_LONGEST_PATH = 107  # of a Unix socket, as sun_path of <sys/un.h> has its end in 108
_LOOK_S = 0.05  # between two looks whether it listens


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


def serve(
    host: str,
    port: int,
    settings: ServerSettings,
    *,
    workers: int,
    migrate: bool,
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until a signal ends it.

    Parameters
    ----------
    host : str
        Address or name to listen on, unless the settings name a socket.
    port : int
        Port to listen on; 0: any free port.
    settings : ServerSettings
        Settings of the server.
    workers, migrate : int and bool
        Number of processes that answer requests; whether the database's tables may be created and changed.
    ready : callable
        Called with the address, once connections are accepted there.

    Raises
    ------
    SettingsError
        If the tokens, the certificate or the database cannot be used, or the port or socket is taken.
    """
    grants = {} if settings.token_file is None else AccessFile(settings.token_file).grants()
    tls_context(settings)
    with ExitStack() as stack:
        stack.callback(os.umask, os.umask(0o077))  # nobody else reads what is made from here on
        place, where = _place(stack, host, port, settings, grants)
        asyncio.run(_prepare(settings, migrate=migrate))

        import uvicorn

        os.environ[ENVIRONMENT] = json.dumps(asdict(settings))
        configure(settings.log_level)
        told = where, settings, grants.values(), ready
        threading.Thread(target=_tell_once_open, args=told, daemon=True).start()  # workers do not say when they listen
        # Being told to stop is how a server ends. Not all versions of uvicorn keep that signal to themselves.
        stack.enter_context(suppress(KeyboardInterrupt))
        if workers > 1:
            stack.enter_context(_shared_counters())
        uvicorn.run(
            "bftrainer.zeus.server.app:from_environment",
            factory=True,
            **place,
            http=Connection,
            ws="none",
            workers=workers,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.proxies),
            forwarded_allow_ips=list(settings.proxies),
            timeout_graceful_shutdown=SHUTDOWN_S,
        )


def _place(
    stack: ExitStack, host: str, port: int, settings: ServerSettings, keys: Iterable[str]
) -> tuple[dict[str, Any], str]:
    """Where to listen, as uvicorn takes it and as clients do; a socket is removed as the stack ends."""
    if settings.socket is not None:
        # Where others are let in, it is by their number that the socket knows who they are.
        mode = 0o666 if any(key.startswith("uid:") for key in keys) else 0o600
        return {"fd": stack.enter_context(_listening(settings.socket, mode))}, f"unix:{settings.socket}"
    place = {"host": host, "port": _free_port(host, port)}
    name = f"[{host}]" if ":" in host else host
    return place, f"{'http' if settings.tls_cert is None else 'https'}://{name}:{place['port']}"


def _tell_once_open(
    where: str, settings: ServerSettings, grants: Iterable[Grant], ready: Callable[[str], None]
) -> None:
    """Wait until connections are accepted, then say so."""
    while not _accepts(where):
        time.sleep(_LOOK_S)
    try:
        _announce(where, settings, grants)
    finally:  # whoever waits for it goes on
        ready(where)


def _accepts(where: str) -> bool:
    """Whether connections are accepted at an address."""
    path, parts = where.removeprefix(SOCKET_SCHEME), urlsplit(where)
    try:
        if path == where:
            socket.create_connection((parts.hostname, parts.port)).close()
        else:
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(path)
    except OSError:
        return False
    return True


def _announce(where: str, settings: ServerSettings, grants: Iterable[Grant]) -> None:
    """Log where the server is, who is let in, and what more people could read than should."""
    fields = {"address": where, "token_file": settings.token_file}
    logger.info("serving", extra={"fields": {name: value for name, value in fields.items() if value is not None}})
    if settings.published and (settings.token_file or settings.socket):
        logger.warning("clients of Zeus know no token: --open or --insecure lets them in")
    if settings.token_file is None and settings.socket is None:
        logger.warning("nobody is asked for a token: whoever reaches %s may do everything", where)
    elif settings.token_file != str(own_path()) and any(grant.token for grant in grants):
        whose = "a token that stands alone in %s makes an administrator; `bftrainer bso token add` gives other roles"
        logger.warning(whose, settings.token_file)
    files = [*database_files(settings.database_url), *filter(None, (settings.token_file, settings.tls_key))]
    for each in readable_by_others(map(Path, files)):
        logger.warning("other users may read or write %s; chmod 600 keeps them out", each)
    if settings.socket is not None and os.stat(settings.socket).st_mode & stat.S_IWOTH:
        for folder in Path(settings.socket).absolute().parents:
            if not folder.stat().st_mode & stat.S_IXOTH:
                logger.warning("users who come by the socket cannot reach it: %s is closed to others", folder)
    with suppress(OSError):  # nobody reads a log that is closed
        mode = os.fstat(_STDERR).st_mode
        if stat.S_ISREG(mode) and mode & 0o077:
            logger.warning("other users may read or write this log (mode %04o)", stat.S_IMODE(mode))


@contextmanager
def _listening(path: str, mode: int) -> Iterator[int]:
    """Listen at a Unix socket, which is removed at the end; yields its descriptor.

    Raises
    ------
    SettingsError
        If another server listens there, or it cannot be made.
    """
    if (length := len(os.fsencode(path))) > _LONGEST_PATH:
        raise SettingsError(f"--socket {path}: Expected a path of at most {_LONGEST_PATH} bytes, got {length}.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Of two that find what a killed server has left, the second finds the first.
            with changing_alone(Path(path).parent):
                _remove_left(path)
                listener.bind(path)  # readable by this user alone, by the umask
                listener.listen(_WAITING)
                made = os.stat(path)
                os.chmod(path, mode)
        except OSError as error:
            raise SettingsError(f"{path}: cannot listen there ({error.strerror or error}).") from None
        try:
            yield listener.fileno()
        finally:
            with suppress(OSError):
                if os.stat(path).st_ino == made.st_ino:  # else another server's
                    os.unlink(path)


def _remove_left(path: str) -> None:
    """Remove a Unix socket at which nobody listens, as a server that was killed leaves it."""
    if not os.path.exists(path):
        return
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        raise SettingsError(f"--socket {path}: Expected a socket, or a path where nothing is, got a file.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        try:
            trial.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)


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
