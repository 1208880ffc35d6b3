"""Databases that the store is tested with."""

from __future__ import annotations

import pytest

from tests.zeus.server.databases import running_mariadb, running_postgresql


@pytest.fixture(scope="session")
def postgresql():
    """The URL of a PostgreSQL database."""
    with running_postgresql() as server:
        yield server.url


@pytest.fixture(scope="session")
def mariadb():
    """The URL of a MariaDB database."""
    with running_mariadb() as url:
        yield url


@pytest.fixture(params=["sqlite", "memory", "postgresql", pytest.param("mariadb", marks=pytest.mark.slow)])
def database_url(request, tmp_path):
    """The URL of a database of each kind; jobs of other tests may be in it."""
    if request.param == "memory":
        return "sqlite+aiosqlite://"
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'bso.db'}"
    return request.getfixturevalue(request.param)
