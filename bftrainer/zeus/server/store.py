"""Store jobs and trials in a database: run transactions on them, those on one job in turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar
from weakref import WeakValueDictionary

from bftrainer.extras import requiring
from bftrainer.zeus.server.books.transaction import CachedRewards, Transaction
from bftrainer.zeus.server.database import Database, open_database
from bftrainer.zeus.server.job_tables import make_ready

with requiring("The server needs", "server", "sqlalchemy"):
    from sqlalchemy import Connection

T = TypeVar("T")


class JobStore:
    """Runs transactions on jobs and trials in a database.

    Parameters
    ----------
    database : Database
        Holds the jobs and trials.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._cache: OrderedDict[str, CachedRewards] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def change(self, work: Callable[[Transaction], T], job_id: str | None = None) -> T:
        """Run `work`, and return its result once its changes are on disk.

        Parameters
        ----------
        work : callable
            The changes to make.
        job_id : str, optional
            The job that is changed. Requests for one job take turns here rather than in the database, where each would
            hold a connection while it waits, until none is left for other jobs.

        Raises
        ------
        StoreUnavailableError
            If the database cannot be used; then nothing has changed.
        """

        def _once(connection: Connection) -> tuple[Transaction, T]:
            transaction = Transaction(connection, self._cache)
            return transaction, work(transaction)

        turn = contextlib.nullcontext() if job_id is None else self._turns.setdefault(job_id, asyncio.Lock())
        async with turn:
            _, result = await self.database.write(_once, lambda done: done[0].committed())
        return result

    async def look(self, work: Callable[[Transaction], T]) -> T:
        """Run `work`, which only reads, and return its result."""
        return await self.database.read(lambda connection: work(Transaction(connection, self._cache)))


@asynccontextmanager
async def open_store(url: str, *, migrate: bool = True) -> AsyncIterator[JobStore]:
    """Open the store at a database URL; it is closed at the end of the `with` block.

    Parameters
    ----------
    url : str
        URL of the database.
    migrate : bool
        Whether tables may be created or updated.

    Raises
    ------
    SettingsError
        If the database cannot be used, or its tables are not up to date.
    """
    database = open_database(url, create=migrate)
    try:
        await make_ready(database, migrate=migrate)
        yield JobStore(database)
    finally:
        await database.close()
