"""The run made by hand, and small runs of the replay to be changed."""

from __future__ import annotations

import pytest

from tests.audit.handmade import Run


@pytest.fixture
def run(tmp_path):
    """The hand-made run, not yet written."""
    return Run(tmp_path)
