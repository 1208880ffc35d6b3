"""Transactions: functions of a connection, run whole, repeated where the database asks for it.

SQLite takes one writer at a time, so its transactions run in a thread of their own, from lock to commit without giving
way to anything. Other databases lock rows, and are driven asynchronously.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import QueuePool, StaticPool

from bftrainer.errors import SettingsError, StoreUnavailableError

__all__ = ["DEFAULT_URL", "Database", "ServerDatabase", "SqliteDatabase", "open_database"]

T = TypeVar("T")
Work = Callable[[Connection], T]

DEFAULT_URL = "sqlite+aiosqlite:///bftrainer-bso.db"
# Drivers that don't block, by what the URL begins with.
_DRIVERS = {"postgresql": "asyncpg", "mysql": "aiomysql", "mariadb": "aiomysql"}
_PLAIN = {"sqlite": "sqlite+aiosqlite", "postgres": "postgresql+asyncpg"} | {
    name: f"{name}+{driver}" for name, driver in _DRIVERS.items()
}

# Times that a transaction is tried; each failure means that another one got through.
ATTEMPTS = 10
BUSY_TIMEOUT_S = 20.0
READERS = 4
# Without a wait for the disk at each commit: what was acknowledged outlives the server, though not the machine's power.
_PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON")
# PostgreSQL: serialisation failure, deadlock. MySQL: lock wait timeout, deadlock.
_CONTENDED = frozenset({"40001", "40P01", 1205, 1213})


class Database(Protocol):
    """Where transactions run."""

    url: URL

    async def write(self, work: Work[T], committed: Callable[[T], None] = ...) -> T:
        """Run `work` in a transaction of its own, then `committed` on its result."""

    async def read(self, work: Work[T]) -> T:
        """Run `work`, which changes nothing, on a consistent view."""

    async def close(self) -> None:
        """Give all connections back."""


def _nothing(_: Any) -> None:
    pass


class SqliteDatabase:
    """One file, in write-ahead mode: readers don't wait, writers take turns.

    Parameters
    ----------
    url : URL
        ``sqlite+aiosqlite:///FILE``; without a file the database is in memory.
    read_only : bool
        Leave the file as it is; there must be one.
    """

    def __init__(self, url: URL, *, read_only: bool = False) -> None:
        self.url, self._read_only = url, read_only
        in_memory = not url.database or url.database == ":memory:"
        self._writer = self._engine("BEGIN IMMEDIATE", None if not in_memory else StaticPool)
        self._reader = self._writer if in_memory else self._engine("BEGIN", None)
        self._write_thread = ThreadPoolExecutor(1, thread_name_prefix="bso-write")
        # A database in memory has one connection, hence one thread.
        self._read_threads = (
            self._write_thread if in_memory else ThreadPoolExecutor(READERS, thread_name_prefix="bso-read")
        )

    def _engine(self, begin: str, pool: type[StaticPool] | None) -> Engine:
        options = {"check_same_thread": False, "timeout": BUSY_TIMEOUT_S}
        url = self.url.set(drivername="sqlite")
        if self._read_only and url.database:
            url = url.set(database=Path(url.database).absolute().as_uri(), query={"mode": "ro", "uri": "true"})
        engine = create_engine(url, poolclass=pool or QueuePool, connect_args=options, hide_parameters=True)
        pragmas = () if self._read_only else _PRAGMAS

        def connected(connection: sqlite3.Connection, _: object) -> None:
            """Leave transactions to the statements of this module."""
            connection.isolation_level = None
            for pragma in pragmas:
                connection.execute(f"PRAGMA {pragma}").close()

        event.listen(engine, "connect", connected)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
        return engine

    async def write(self, work: Work[T], committed: Callable[[T], None] = _nothing) -> T:
        """Run `work` under the lock, and `committed` before the next one gets it."""

        def _once() -> T:
            with self._writer.begin() as connection:
                result = work(connection)
            committed(result)
            return result

        loop = asyncio.get_running_loop()
        return await _tried(lambda: loop.run_in_executor(self._write_thread, _once))

    async def read(self, work: Work[T]) -> T:
        """Run `work` beside the writer."""

        def _once() -> T:
            with self._reader.begin() as connection:
                return work(connection)

        loop = asyncio.get_running_loop()
        return await _tried(lambda: loop.run_in_executor(self._read_threads, _once))

    async def close(self) -> None:
        """Let transactions end, then close the file."""
        for pool in {self._write_thread, self._read_threads}:
            await asyncio.to_thread(pool.shutdown)
        self._writer.dispose()
        self._reader.dispose()


class ServerDatabase:
    """PostgreSQL, MySQL or MariaDB: transactions of different jobs don't wait for one another.

    Parameters
    ----------
    url : URL
        With an asynchronous driver.
    connections : int
        Connections at most.
    """

    def __init__(self, url: URL, connections: int = 20) -> None:
        self.url = url
        # What a transaction needs is locked by name, so it may see what was committed since it began.
        self._engine = create_async_engine(
            url,
            pool_size=connections,
            max_overflow=0,
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",
            hide_parameters=True,
        )

    async def write(self, work: Work[T], committed: Callable[[T], None] = _nothing) -> T:
        """Run `work` in a transaction."""

        async def _once() -> T:
            async with self._engine.begin() as connection:
                result = await connection.run_sync(work)
            committed(result)
            return result

        return await _tried(_once)

    async def read(self, work: Work[T]) -> T:
        """Run `work` in a transaction."""
        return await self.write(work)

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()


async def _tried(once: Callable[[], Awaitable[T]]) -> T:
    """What a transaction gives, repeated while it loses to others.

    Raises
    ------
    StoreUnavailableError
        If the database cannot be used, or other transactions always came first.
    """
    for attempt in range(ATTEMPTS):
        try:
            return await once()
        except (SQLAlchemyError, OSError) as error:
            if not _contended(error) or attempt == ATTEMPTS - 1:
                raise StoreUnavailableError(_reason(error)) from error
        # Those who lost to one another don't meet again; this decides when, never what.
        await asyncio.sleep(secrets.randbelow(1000) * 1e-5 * 2**attempt)
    raise AssertionError("unreachable")


def _contended(error: BaseException) -> bool:
    """Whether a transaction may succeed when it is repeated."""
    if isinstance(error, IntegrityError):
        return True  # another one inserted the same row first
    if not isinstance(error, DBAPIError) or error.orig is None:
        return False
    original = error.orig
    if isinstance(original, sqlite3.OperationalError):
        return original.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    code = getattr(original, "sqlstate", None) or (original.args[0] if original.args else None)
    return code in _CONTENDED


def _reason(error: BaseException) -> str:
    """Why a database cannot be used, in a line that tells neither statements nor secrets."""
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    text = " ".join(str(original).split())
    return f"Expected a database that can be used, got: {text or type(original).__name__}."


def open_database(text: str, *, read_only: bool = False) -> Database:
    """The database that a URL names; nothing is connected yet.

    Parameters
    ----------
    text : str
        The URL.
    read_only : bool
        Make sure that an SQLite file is neither made nor changed.

    Raises
    ------
    SettingsError
        If it is no URL, or its driver is unknown, missing or not asynchronous.
    """
    try:
        url = make_url(text)
        url.get_backend_name()
    except ArgumentError:
        raise SettingsError(
            f"Expected a database URL such as {DEFAULT_URL} or postgresql+asyncpg://host/name, got {_shown(text)!r}."
        ) from None
    name = url.drivername
    if name == "sqlite+aiosqlite":
        return SqliteDatabase(url, read_only=read_only)
    if name in _PLAIN:
        raise SettingsError(
            f"Expected a database URL with an asynchronous driver, got {name}://; try {_PLAIN[name]}://."
        )
    backend = url.get_backend_name()
    if backend not in _DRIVERS:
        known = ", ".join(sorted(value for value in _PLAIN.values()))
        raise SettingsError(f"Expected a database URL of {known}, got {name}://.")
    try:
        return ServerDatabase(url)
    except (ImportError, NoSuchModuleError) as error:
        raise SettingsError(f"Expected the driver of {name}:// to be installed, got: {error}.") from None
    except SQLAlchemyError:
        raise SettingsError(
            f"Expected a database URL with an asynchronous driver, got {name}://; try {backend}+{_DRIVERS[backend]}://."
        ) from None


def _shown(text: str) -> str:
    """A URL without what may be a password."""
    head, at, tail = text.rpartition("@")
    return f"...@{tail}" if at else head + tail
