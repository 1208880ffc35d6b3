"""A harvest on a real Slurm of its own: who pays for it, and what is left when parts of it are killed.

Versions of `benchmarks.harvest` that take three minutes at most.
"""

import numpy as np
import pytest

from benchmarks.harvest import slurm_kills
from benchmarks.harvest.live_harvest import LiveHarvest
from benchmarks.harvest.sealed_workload import compare, drawn_jobs
from benchmarks.harvest.slurm_kills import KINDS, remains, torment
from tests.harvest.slurm import GRACE_S


@pytest.mark.slow
@pytest.mark.parametrize(("give_way", "mode", "jobs"), [("named", "CANCEL", 12), ("chosen", "OFF", 6)])
def test_ordinary_jobs_come_first(slurm, tmp_path, give_way, mode, jobs):
    """None fails, is lost, or waits for longer than the grace time and the scheduler's round; idle nodes are used."""
    slurm.told("scontrol", "update", "partitionname=scavenge", f"preemptmode={mode}")
    try:
        comparison, harvest = compare(slurm, drawn_jobs(jobs, 5.0 * jobs, seed=3), tmp_path, give_way=give_way)
    finally:
        slurm.told("scontrol", "update", "partitionname=scavenge", "preemptmode=CANCEL")
    print(comparison)
    assert not comparison.without.failures
    assert not comparison.harvested.failures
    assert max(comparison.extra_s) <= GRACE_S + 5
    assert comparison.share > 0.5
    assert remains(harvest) == []


@pytest.mark.slow
def test_parts_of_it_are_killed(slurm, tmp_path, monkeypatch):
    """By kill -9 at some instant: the controller, a carrier, a rank, a node's daemon, and that of the cluster.

    Tasks go on from their checkpoints; no job, process or work is left or lost, and the journal replays.
    """
    monkeypatch.setattr(slurm_kills, "_NODE_IS_DOWN_S", 0.0)
    rng = np.random.default_rng(7)
    harvest = LiveHarvest(slurm, tmp_path)
    try:
        harvest.wait_until_whole()
        kills = torment(harvest, rng.permutation(KINDS).tolist(), rng)
        print(*kills, sep="\n")
        assert harvest.stop() == 0
    finally:
        harvest.process.kill()
    assert [fault for each in kills for fault in each.faults] == []
    assert remains(harvest) == []
