"""The cluster that other tests run on."""

from __future__ import annotations

import os

import pytest

from tests.harvest.slurm import NODES
from tests.waiting import until


@pytest.mark.slow
def test_what_a_test_breaks_is_whole_again(slurm):
    """Jobs run on nodes of their own; jobs, drained nodes, reservations and killed daemons do not outlast a test."""
    assert slurm.states() == dict.fromkeys(NODES, "idle")
    job = slurm.submit("sleep 600", "-N3")
    until(lambda: slurm.jobs()[job] == "RUNNING")
    assert list(slurm.states().values()).count("allocated") == 3
    slurm.told("scontrol", "update", "nodename=n8", "state=drain", "reason=test")
    user = "root" if os.geteuid() == 0 else str(os.geteuid())
    slurm.told("scontrol", "create", "reservation", "starttime=now", "duration=10", f"users={user}", "nodes=n7")
    slurm.kill("n6")
    slurm.kill("slurmctld")
    slurm.clean()
    assert slurm.states() == dict.fromkeys(NODES, "idle")
    assert not slurm.jobs()


@pytest.mark.slow
def test_ordinary_jobs_come_first(slurm):
    """A job of the preemptible partition gives its node to an ordinary one, its step being asked to end at once."""
    script = "exec srun -n1 sh -c 'trap \"exit 0\" TERM; while :; do sleep 0.1; done'"
    carriers = [slurm.submit(script, "-N1", "-p", "scavenge", "--no-requeue") for _ in NODES]
    until(lambda: [slurm.jobs().get(job) for job in carriers] == ["RUNNING"] * len(NODES))
    job = slurm.submit("true", "-N8")
    until(lambda: job not in slurm.jobs())
    assert not set(carriers) & set(slurm.jobs())
