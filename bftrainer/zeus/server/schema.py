"""The schema of the server's database: brought up to date, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bftrainer.extras import requiring

with requiring("The server needs", "server", "alembic", "sqlalchemy"):
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory
    from sqlalchemy import Connection, inspect, text

from bftrainer.errors import SettingsError, StoreUnavailableError
from bftrainer.zeus.server.database import Database, shown

__all__ = ["latest_revision", "make_ready"]

# Not Alembic's default, so that other applications may have their tables in the same database.
# Of the lock under which it is changed; any number that no other application takes.
LOCK_KEY = 7_305_148_021
VERSION_TABLE = "bso_schema_version"
# A table that only a database of the published server has.
PUBLISHED_TABLE = "GaussianTsArmState"


def latest_revision() -> str:
    """Revision that this version of the server works with."""
    revision = _scripts()[1].get_current_head()
    assert revision is not None
    return revision


async def make_ready(database: Database, *, migrate: bool) -> None:
    """Bring the schema up to date, or refuse it.

    Parameters
    ----------
    database : Database
        Where the tables are, or will be.
    migrate : bool
        Whether tables may be created and changed.

    Raises
    ------
    SettingsError
        If the database cannot be used, its schema is of a later version, or one of an earlier version is not to be
        changed.
    """
    name = shown(database.url)
    try:
        await database.write(lambda connection: _upgrade(connection, name, migrate=migrate))
    except StoreUnavailableError as error:
        raise SettingsError(f"{name}: {error}") from None


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def _scripts() -> tuple[Config, ScriptDirectory]:
    config = Config()
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config, ScriptDirectory(folder, version_locations=[folder])


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """Keep other servers from changing the schema too; SQLite's transactions do so by themselves."""
    name = connection.dialect.name
    if name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
    if name not in ("mysql", "mariadb"):
        yield
        return
    # There, each change of a table ends the transaction, and the lock is the connection's.
    key = {"key": f"bftrainer-{LOCK_KEY}"}
    connection.execute(text("SELECT GET_LOCK(:key, 600)"), key)
    try:
        yield
    finally:
        connection.execute(text("SELECT RELEASE_LOCK(:key)"), key)


def _upgrade(connection: Connection, name: str, *, migrate: bool) -> None:
    if _revision(connection) == latest_revision():
        return
    with _alone(connection):
        _upgrade_alone(connection, name, migrate=migrate)


def _upgrade_alone(connection: Connection, name: str, *, migrate: bool) -> None:
    config, scripts = _scripts()
    current, head = _revision(connection), scripts.get_current_head()
    if current == head:
        return
    if current is None and inspect(connection).has_table(PUBLISHED_TABLE):
        raise SettingsError(
            f"{name}: Expected a database of this server, found one of Zeus's; "
            "`bftrainer bso import` moves its jobs to another one."
        )
    if current is not None and current not in {script.revision for script in scripts.walk_revisions()}:
        raise SettingsError(
            f"{name}: Expected schema {head} or an earlier one, found {current}; a later version of bftrainer made it."
        )
    if not migrate:
        raise SettingsError(f"{name}: Expected schema {head}, found {current or 'none'}; run without --no-migrate.")

    def steps(revision: Any, _: object) -> Any:
        """The migrations from here on."""
        return scripts._upgrade_revs("head", revision)

    with EnvironmentContext(config, scripts, fn=steps, destination_rev="head") as environment:
        environment.configure(connection=connection, version_table=VERSION_TABLE)
        # Within the transaction of the caller.
        environment.run_migrations()
