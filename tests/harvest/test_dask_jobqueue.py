"""A sweep on a real Slurm: its jobs compute what processes of this machine do, and one that is killed costs nothing."""

import os
import signal
import subprocess

import pytest

from tests.tiny import installed
from tests.waiting import until

SWEEP = """\
schema = 1
[base]
solver = "dp"
[grid]
forward_time_s = [30.0, 60.0, 120.0, 240.0]
max_tasks = [3, 5, 8, 10]
"""
JOBS = """\
system = "slurm"
jobs = 3
cores = 1
processes = 1
memory = "900MB"
queue = "batch"
walltime = "00:20:00"
interface = "lo"
job_extra_directives = ["-N1", "--exclusive"]
"""


@pytest.mark.slow
@pytest.mark.no_cover
def test_a_job_is_killed(tmp_path, slurm):
    """Of three jobs one is killed at the first points: the table is that of one process, and no job is left."""
    (tmp_path / "sweep.toml").write_text(SWEEP)
    (tmp_path / "slurm.toml").write_text(JOBS)
    words = [installed("bftrainer"), "sweep", "sweep.toml"]
    local = subprocess.run([*words, "-o", "local"], cwd=tmp_path, capture_output=True, text=True, check=True)
    environ = slurm.environ | {"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}
    process = subprocess.Popen(
        [*words, "-o", "out", "--dask-jobqueue", "slurm.toml"],
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def done():
        """Points that are done."""
        return [*tmp_path.glob("out/runs/*/summary.json")]

    try:
        until(lambda: process.poll() is not None or done())
        assert process.poll() is None, process.communicate()
        running = sorted(job for job, state in slurm.jobs().items() if state == "RUNNING")
        assert len(running) == 3
        slurm.told("scancel", "--full", f"--signal={signal.SIGKILL.value}", str(running[0]))
        until(lambda: running[0] not in slurm.jobs())
        assert len(done()) < 16
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    # A result that was lost with the job is computed again.
    assert process.returncode == 0, err
    assert [line for line in err.splitlines() if "Couldn't gather keys" not in line] == []
    assert out.splitlines()[:-1] == local.stdout.splitlines()[:-1]
    assert len(out.splitlines()) == 2 + 16
    until(lambda: not slurm.jobs())
