"""Opens what jobs are kept in, ready for use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bftrainer.zeus.server.database import open_database
from bftrainer.zeus.server.schema import make_ready
from bftrainer.zeus.server.store import JobStore

__all__ = ["open_store"]


@asynccontextmanager
async def open_store(url: str, *, migrate: bool = True) -> AsyncIterator[JobStore]:
    """The store at a database URL, closed with the block.

    Parameters
    ----------
    url : str
        Where jobs are kept.
    migrate : bool
        Whether tables may be created and brought up to date.

    Raises
    ------
    SettingsError
        If the database cannot be used, or its tables are not up to date.
    """
    database = open_database(url)
    try:
        await make_ready(database, migrate=migrate)
        yield JobStore(database)
    finally:
        await database.close()
