"""`bftrainer harvest run --engine slurm`, on a toy of Slurm: from options to the files of a run."""

from __future__ import annotations

import json
import sys

import pytest

from tests.cli.conftest import assert_matches, call, check_refusal, here
from tests.harvest.toy_slurm import toy

__all__ = ["call", "here", "toy"]

SCRIPT = """
import time
from bftrainer.harvest import training
with training(lambda path: path.touch(), lambda path: None) as run:
    for step in run:
        time.sleep(0.05)
        run.report(run.world_size)
"""
SLURM = ("--engine", "slurm", "--partition", "scavenge", "--poll-every", "0.2s", "--address", "127.0.0.1")


@pytest.fixture(autouse=True)
def tasks(here):
    """One task of forty steps on two nodes."""
    (here / "train.py").write_text(SCRIPT)
    rows = (
        f'name = "a"\nmin_nodes = 1\nmax_nodes = 2\nwork = 40\ncommand = {json.dumps([sys.executable, "train.py"])}\n'
    )
    (here / "live.toml").write_text(f"schema = 1\n[[task]]\n{rows}")


@pytest.mark.long
def test_tasks_are_trained_on_nodes_of_slurm(call, here, toy):
    """Two nodes are held as long as the task lasts, and no job is left; it is a run that the audit accepts."""
    done = call("harvest", "run", "live.toml", *SLURM, "--i-know", "-o", "h", "--json")
    assert done.status == 0, done.err
    assert (done.json["tasks_completed"], done.json["work_done"], done.json["engine"]) == (1, 40.0, "live")
    assert toy.jobs() == {}
    assert [line.split()[0] for line in toy.asked() if line.startswith("sbatch")] == ["sbatch"] * 3
    assert not list((here / "h").glob("carrier-*.sh"))
    assert call("audit", "h").status == 0


@pytest.mark.long
def test_a_dry_run_starts_nothing(call, toy):
    """It looks at the nodes as they are, and says what it would do."""
    toy.put("nodes", "n1 idle", "n2 drain", "n3 idle")
    done = call("harvest", "run", "live.toml", *SLURM, "--dry-run", "-o", "h")
    assert done.status == 0
    assert "would take n1 n3" in done.out
    assert not any(line.startswith(("sbatch", "scancel")) for line in toy.asked())


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "slurm"], r"Expected --partition with --engine slurm\."),
        (["--give-way", "chosen"], r"Options that have no effect: --give-way \(--engine is not slurm\)"),
        ([*SLURM, "--give-way", "chosen"], r"but Slurm names who makes room before the harvest can"),
        (["--partition", "scavenge"], r"Options that have no effect: --partition \(--engine is not slurm\)"),
        ([*SLURM, "--grace", "5s"], r"Options that have no effect: --grace \(--engine slurm takes"),
        ([*SLURM, "--partition", "batch"], r"partition batch: Expected one whose jobs make room, but its PreemptMode"),
        (
            [*SLURM, "--i-know", "--address", "192.0.2.1"],
            r"--address of this machine, got '192\.0\.2\.1' \(",
        ),
    ],
)
def test_what_is_refused(call, here, words, message):
    """In one line, before anything is made."""
    done = call("harvest", "run", "live.toml", *words, "-o", "h")
    check_refusal(done)
    assert_matches(message, done.err)
    assert not (here / "h").exists()
