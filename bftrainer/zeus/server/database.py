"""Run database transactions: functions of a connection, run as a whole and retried where the database asks for it.

SQLite allows one writer at a time, so its transactions run in a thread of their own, uninterrupted from lock to
commit. Other databases lock rows, and are driven asynchronously.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from bftrainer.extras import require_extra, requiring

with requiring("The server needs", "server", "sqlalchemy"):
    from sqlalchemy import Connection, Engine, create_engine, event, exc
    from sqlalchemy.engine import URL, make_url
    from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, NoSuchModuleError, SQLAlchemyError
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import ConnectionPoolEntry, QueuePool, StaticPool

from bftrainer.errors import SettingsError, StoreUnavailableError, UnusableRequestError
from bftrainer.zeus.server.settings import DEFAULT_URL

T = TypeVar("T")
Work = Callable[[Connection], T]

# Asynchronous drivers, by the scheme of the URL.
_DRIVERS = {"postgresql": "asyncpg", "mysql": "aiomysql", "mariadb": "aiomysql"}
_EXTRAS = {"asyncpg": "postgresql", "aiomysql": "mysql"}
_PLAIN = {"sqlite": "sqlite+aiosqlite", "postgres": "postgresql+asyncpg"} | {
    name: f"{name}+{driver}" for name, driver in _DRIVERS.items()
}

# Number of attempts for a transaction; each failure means that another transaction succeeded.
ATTEMPTS = 10
BUSY_TIMEOUT_S = 20.0
# Readers of SQLite, and connections to other databases.
READERS, CONNECTIONS = 4, 20
# No wait for the disk at each commit: acknowledged changes survive a crash of the server, but not a power failure.
_PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON")
# PostgreSQL: serialisation failure, deadlock. MySQL: lock wait timeout, deadlock.
_CONTENDED = frozenset({"40001", "40P01", 1205, 1213})


def _nothing(_: Any) -> None:
    pass


def _identity(path: str) -> tuple[int, int] | None:
    """Which file there is at a path; None: none, as of a database in memory."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class SqliteDatabase:
    """SQLite, in write-ahead mode: readers don't wait, writers take turns.

    Parameters
    ----------
    url : URL
        ``sqlite+aiosqlite:///FILE``; without a file the database is in memory.
    read_only, create : bool
        Never change the file, and whether to make it: else it must exist.
    """

    def __init__(self, url: URL, *, read_only: bool = False, create: bool = True) -> None:
        self.url, self._read_only = url, read_only
        self.in_memory = in_memory = not url.database or ":memory:" in url.database or url.query.get("mode") == "memory"
        if not in_memory and (place := Path(str(url.database))).exists() and not place.is_file():
            raise SettingsError(f"{without_password(url)}: Expected a file for the database, found something else.")
        if not (create or in_memory or "uri" in url.query or place.exists()):
            raise SettingsError(f"{without_password(url)}: Expected a database, found none; run without --no-migrate.")
        if not (in_memory or "uri" in url.query or place.parent.is_dir()):
            raise SettingsError(f"{without_password(url)}: No such directory: {place.parent}.")
        self._must_exist = read_only or not (create or in_memory or "uri" in url.query)
        self._writer = self._engine("BEGIN IMMEDIATE", None if not in_memory else StaticPool)
        self._reader = self._writer if in_memory else self._engine("BEGIN", None)
        self._write_thread = ThreadPoolExecutor(1, thread_name_prefix="bso-write")
        # A database in memory has only one connection, so only one thread.
        self._read_threads = (
            self._write_thread if in_memory else ThreadPoolExecutor(READERS, thread_name_prefix="bso-read")
        )

    def _engine(self, begin: str, pool: type[StaticPool] | None) -> Engine:
        options = {"check_same_thread": False, "timeout": BUSY_TIMEOUT_S}
        url = self.url.set(drivername="sqlite")
        if self._must_exist and url.database:
            query = {"mode": "ro" if self._read_only else "rw", "uri": "true"}
            url = url.set(database=Path(url.database).absolute().as_uri(), query=query)
        engine = create_engine(url, poolclass=pool or QueuePool, connect_args=options, hide_parameters=True)
        pragmas = () if self._read_only else _PRAGMAS

        def connected(connection: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
            """Keep the driver from starting transactions; this module does."""
            connection.isolation_level = None
            for pragma in pragmas:
                connection.execute(f"PRAGMA {pragma}").close()
            record.info["file"] = opened = connection.execute("PRAGMA database_list").fetchone()[2]
            record.info["identity"] = _identity(opened)

        def checked_out(_: object, record: ConnectionPoolEntry, __: object) -> None:
            """Have a connection made anew whose file was removed or replaced: what is written there is lost."""
            if _identity(record.info["file"]) != record.info["identity"]:
                raise exc.DisconnectionError(f"{record.info['file']} is another file now")

        event.listen(engine, "connect", connected)
        event.listen(engine, "checkout", checked_out)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
        return engine

    async def write(self, work: Work[T], committed: Callable[[T], None] = _nothing) -> T:
        """Run `work` in a transaction, then call `committed` with its result before another one may begin."""
        return await self._run(self._writer, self._write_thread, work, committed)

    async def read(self, work: Work[T]) -> T:
        """Run `work`, which only reads, on a consistent view and without waiting for the writer."""
        return await self._run(self._reader, self._read_threads, work, _nothing)

    async def _run(
        self, engine: Engine, threads: ThreadPoolExecutor, work: Work[T], committed: Callable[[T], None]
    ) -> T:
        def _once() -> T:
            with engine.begin() as connection:
                result = work(connection)
            committed(result)
            return result

        loop = asyncio.get_running_loop()
        return await _tried(lambda: loop.run_in_executor(threads, _once))

    async def close(self) -> None:
        """Wait for transactions to end, then close the file."""
        for pool in {self._write_thread, self._read_threads}:
            await asyncio.to_thread(pool.shutdown)
        self._writer.dispose()
        self._reader.dispose()


class ServerDatabase:
    """PostgreSQL, MySQL or MariaDB: transactions of different jobs don't wait for one another.

    Parameters
    ----------
    url : URL
        URL with an asynchronous driver.
    """

    in_memory = False

    def __init__(self, url: URL) -> None:
        self.url = url
        # Transactions lock the rows that they need, so they may safely see changes committed since they began.
        self._engine = create_async_engine(
            url,
            pool_size=CONNECTIONS,
            max_overflow=0,
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",
            hide_parameters=True,
        )
        event.listen(self._engine.sync_engine, "do_connect", connect)

    async def write(self, work: Work[T], committed: Callable[[T], None] = _nothing) -> T:
        """Run `work` in a transaction, then call `committed` with its result."""

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


# Runs transactions: functions of a connection.
Database: TypeAlias = SqliteDatabase | ServerDatabase


def connect(dialect: Any, _: object, words: Any, options: Any) -> Any:
    """Connect with SQLAlchemy's arguments.

    Raises
    ------
    SettingsError
        If the URL has options that the driver does not know.
    ConnectionError
        If the server refuses the connection.
    """
    try:
        return dialect.connect(*words, **options)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"Expected a database URL with options of its driver, got: {error}.") from None
    except Exception as error:  # asyncpg's errors have no base class that can be named without importing it
        # SQLAlchemy 2.0 does not wrap asyncpg's errors from connecting, such as that the server is starting up.
        if type(error).__module__.startswith("asyncpg."):
            raise ConnectionError(str(error)) from error
        raise


async def _tried(once: Callable[[], Awaitable[T]]) -> T:
    """Run a transaction, repeat it while it conflicts with others, and return its result.

    Raises
    ------
    StoreUnavailableError
        If the database cannot be used, or every attempt conflicted with other transactions.
    UnusableRequestError
        If a column cannot hold a value: a name that is too long or has a NUL, a number that is too large.
    """
    for attempt in range(ATTEMPTS):
        try:
            return await once()
        except (SQLAlchemyError, OSError, OverflowError) as error:
            if _holds_not(error):
                raise UnusableRequestError("Expected names and numbers that the database can hold.") from error
            if not _contended(error) or attempt == ATTEMPTS - 1:
                raise StoreUnavailableError(_reason(error)) from error
        # Random waits keep the same transactions from colliding again; they change no result.
        await asyncio.sleep(secrets.randbelow(1000) * 1e-5 * 2**attempt)
    raise AssertionError("unreachable")


def _contended(error: BaseException) -> bool:
    """Whether a transaction may succeed when it is repeated."""
    if isinstance(error, IntegrityError):
        return True  # another transaction inserted the same row first
    if not isinstance(error, DBAPIError) or error.orig is None:
        return False
    original = error.orig
    if isinstance(original, sqlite3.OperationalError):
        return original.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    code = getattr(original, "sqlstate", None) or (original.args[0] if original.args else None)
    return code in _CONTENDED


def _holds_not(error: BaseException) -> bool:
    """Whether a column cannot hold a value, so that another attempt would fail too."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, OverflowError)  # from Python's SQLite driver
    # PostgreSQL: data exceptions, and values that its driver cannot send. MySQL: too long, out of range.
    code, cause = getattr(error.orig, "sqlstate", None), error.orig and error.orig.__cause__
    return str(code or "").startswith("22") or isinstance(cause, ValueError) or isinstance(error, DataError)


def _reason(error: BaseException) -> str:
    """Say in one line why a database cannot be used, without SQL statements or secrets."""
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    text = " ".join(str(original).split())
    return f"The database cannot be used: {text or type(original).__name__}."


def open_database(text: str, *, read_only: bool = False, create: bool = True) -> Database:
    """Make the database object for a URL, without connecting yet.

    Parameters
    ----------
    text : str
        URL of the database.
    read_only : bool
        Never create or change an SQLite file.
    create : bool
        Whether an SQLite file may be made.

    Raises
    ------
    SettingsError
        If the text is not a URL, or its driver is unknown, missing or not asynchronous.
    """
    try:
        url = make_url(text)
        url.get_backend_name()
    except (ArgumentError, ValueError):  # ValueError: an invalid port
        raise SettingsError(
            f"Expected a database URL such as {DEFAULT_URL} or postgresql+asyncpg://host/name, got {_masked(text)!r}."
        ) from None
    name = url.drivername
    if name == "sqlite+aiosqlite":
        if url.query and "uri" not in url.query:
            raise SettingsError(
                f"{without_password(url)}: Expected no options without uri=true, got {', '.join(sorted(url.query))}."
            )
        return SqliteDatabase(url, read_only=read_only, create=create)
    if name in _PLAIN:
        raise SettingsError(
            f"Expected a database URL with an asynchronous driver, got {name}://; try {_PLAIN[name]}://."
        )
    backend = url.get_backend_name()
    if backend not in _DRIVERS:
        known = ", ".join(sorted(set(_PLAIN.values())))
        raise SettingsError(f"Expected a database URL of {known}, got {name}://.")
    try:
        return ServerDatabase(url)
    except (ImportError, NoSuchModuleError) as error:
        if name.endswith(f"+{_DRIVERS[backend]}"):
            require_extra(f"{name}:// needs", _EXTRAS[_DRIVERS[backend]])
        raise SettingsError(f"The driver of {name}:// is not installed: {error}.") from None
    except SQLAlchemyError:
        raise SettingsError(
            f"Expected a database URL with an asynchronous driver, got {name}://; try {backend}+{_DRIVERS[backend]}://."
        ) from None


def database_files(text: str) -> list[str]:
    """Files of an SQLite database, whether they are there or not; none of another one."""
    url = make_url(text)
    if url.get_backend_name() != "sqlite" or not url.database or ":memory:" in url.database:
        return []
    name = url.database.removeprefix("file:") if "uri" in url.query else url.database
    return [f"{name}{suffix}" for suffix in ("", "-wal", "-shm")]


def without_password(url: URL) -> str:
    """Return a URL without anything that may be a password; its options may hold one too."""
    return url.set(query={}).render_as_string(hide_password=True)


def _masked(text: str) -> str:
    """Return text that should be a URL, without anything that may be a password."""
    head, at, tail = text.partition("?")[0].rpartition("@")
    return f"...@{tail}" if at else head + tail
