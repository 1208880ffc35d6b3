"""kill -9 of what a harvest on this machine consists of; of one on Slurm, see `test_harvest_on_slurm`."""

from __future__ import annotations

import pytest

from benchmarks.harvest.kills import KINDS, killed


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_killed_goes_on(tmp_path, kind):
    """Three kills of one kind: tasks go on from their checkpoints, nothing is left, the journal replays."""
    assert killed(tmp_path, 5, 3, work=8_000.0, kinds=[kind]) == [kind] * 3
