"""A harvest on a real Slurm of its own: who pays for it, and what is left when parts of it are killed.

Versions of `benchmarks.harvest` that take three minutes at most.
"""

import numpy as np
import pytest

from benchmarks.harvest import kills
from benchmarks.harvest.live_harvest import harvest_slurm
from benchmarks.harvest.sealed_workload import compare, draw_jobs
from tests.harvest.slurm import GRACE_S


@pytest.mark.slow
@pytest.mark.parametrize(("give_way", "mode", "jobs"), [("named", "CANCEL", 12), ("chosen", "OFF", 6)])
def test_ordinary_jobs_come_first(slurm, tmp_path, give_way, mode, jobs):
    """None fails, is lost, or waits for longer than the grace time and the scheduler's round; idle nodes are used."""
    slurm.told("scontrol", "update", "partitionname=scavenge", f"preemptmode={mode}")
    try:
        comparison = compare(slurm, draw_jobs(jobs, 5.0 * jobs, seed=3), tmp_path, give_way=give_way)
    finally:
        slurm.told("scontrol", "update", "partitionname=scavenge", "preemptmode=CANCEL")
    print(comparison)
    assert {*comparison.jobs.state_without, *comparison.jobs.state_with} == {"COMPLETED"}
    assert comparison.jobs.extra_s.max() <= GRACE_S + 5
    assert comparison.share > 0.5
    assert kills.list_faults(comparison.harvest) == []


@pytest.mark.slow
def test_parts_of_it_are_killed(slurm, tmp_path, monkeypatch):
    """By kill -9 at some instant: the controller, a carrier, a rank, a node's daemon, and that of the cluster.

    Tasks go on from their checkpoints; no job, process or work is left or lost, and the journal replays.
    """
    monkeypatch.setattr(kills, "_NODE_IS_DOWN_S", 0.0)
    rng = np.random.default_rng(7)
    harvest = harvest_slurm(slurm, tmp_path)
    try:
        assert kills.disturb(harvest, rng.permutation(kills.KINDS_ON_SLURM).tolist(), rng) == []
    finally:
        harvest.process.kill()
