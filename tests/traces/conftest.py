"""Files that the tests of readers share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """Small frames pickled by several versions of pandas (scripts/make_pickle_fixtures)."""
    return Path(__file__).parent / "fixtures"
