"""A Slurm of one's own, which all tests of a process share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harvest.slurm import Slurm, missing, running_slurm


@pytest.fixture(scope="session")
def _own_slurm() -> Iterator[Slurm]:
    """Daemons that run until the last test has ended."""
    if fault := missing():
        pytest.skip(fault)
    with running_slurm() as slurm:
        yield slurm


@pytest.fixture
def slurm(_own_slurm: Slurm) -> Iterator[Slurm]:
    """A cluster of eight idle nodes without jobs, whose daemons a test may kill."""
    yield _own_slurm
    _own_slurm.clean()
