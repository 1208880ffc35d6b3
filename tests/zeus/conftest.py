"""What all tests of recurring jobs share."""

import pytest

from tests.zeus.master.driven import plug


@pytest.fixture(autouse=True)
def _no_gpus(monkeypatch):
    """No GPU is in the machine, unless a test plugs some in."""
    plug(monkeypatch)
