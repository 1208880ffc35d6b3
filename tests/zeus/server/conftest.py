"""Databases that the store is tested with."""

from __future__ import annotations

import pytest

from tests.zeus.server.databases import running_postgresql


@pytest.fixture(scope="session")
def postgresql():
    """The URL of a PostgreSQL database."""
    with running_postgresql() as server:
        yield server.url


@pytest.fixture(params=["sqlite", "memory", "postgresql"])
def database_url(request, tmp_path):
    """The URL of a database of each kind; jobs of other tests may be in it."""
    if request.param == "memory":
        return "sqlite://"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'bso.db'}"
    return request.getfixturevalue(request.param)
