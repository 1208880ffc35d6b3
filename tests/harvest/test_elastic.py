"""Elastic tasks in earnest: ranks on nodes that stay go on while others come and go."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from bftrainer.model import NodeLog
from bftrainer.nodelogs import write_node_log
from tests.cli.conftest import call, here

__all__ = ["call", "here"]

SCRIPT = """
import os, pathlib, signal, sys, time
place = pathlib.Path(os.environ["BFTRAINER_CHECKPOINT_DIR"])
rank, size, generation = (os.environ[name] for name in ("RANK", "WORLD_SIZE", "BFTRAINER_GENERATION"))
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
with (place / "history").open("a") as history:
    history.write(f"{generation} {rank} {size} {os.environ['MASTER_PORT']}\\n")
state, done = place / "state", place / "done"
work = float(state.read_text()) if state.exists() else 0.0
while not done.exists():
    time.sleep(0.05)
    if rank == "0":
        work += 1
        (place / "new").write_text(str(work))
        (place / "new").replace(state)  # others that start may read it just now
        if work >= float(os.environ["BFTRAINER_WORK"]):
            done.touch()
"""
STATES = (
    *((0.0, node, True) for node in range(3)),
    *((1.5, 1, False), (3.0, 1, True), (5.0, 2, False)),  # others than the first one go and come
    (6.5, 0, False),
)


@pytest.mark.slow
def test_ranks_on_nodes_that_stay_go_on(call, here):
    """One generation for as long as the first node stays, at which ranks meet; what it reports counts throughout."""
    (here / "train.py").write_text(SCRIPT)
    command = json.dumps([sys.executable, "train.py"])
    fields = 'rescale = "elastic"\nprogress = "file:../h/checkpoints/a/state"\ngrace_s = 2\n'
    (here / "task").mkdir()
    (here / "task" / "live.toml").write_text(
        f'schema = 1\n[[task]]\nname = "a"\nmin_nodes = 1\nmax_nodes = 3\nwork = 200\ncommand = {command}\n{fields}'
    )
    (here / "train.py").rename(here / "task" / "train.py")
    times, nodes, idle = zip(*STATES, strict=True)
    start = 1_700_000_000 * 10**9
    log = NodeLog(
        ("n1", "n2", "n3"),
        start,
        start + 60 * 10**9,
        start + (np.array(times) * 1e9).astype(np.int64),
        np.array(nodes, dtype=np.int32),
        np.array(idle),
    )
    write_node_log(here / "idle.parquet", log)
    done = call("harvest", "run", "task/live.toml", "--pool", "idle.parquet", "-o", "h", "--json")
    assert (done.status, done.err.splitlines()[1:]) == (0, ["a is done."])
    history = [line.split() for line in (here / "h" / "checkpoints" / "a" / "history").read_text().splitlines()]
    first = [(rank, size) for generation, rank, size, _ in history if generation == "1"]
    assert sorted(first) == [("0", "3"), ("1", "3"), ("2", "3"), ("2", "3")]
    assert len({port for generation, *_, port in history if generation == "1"}) == 1
    assert {generation for generation, *_ in history} == {"1", "2"}
    assert done.json["work_done"] == 200.0
    assert call("audit", "h").status == 0
