"""What tests of a harvest share: commands, task files, a toy of Slurm, and a Slurm of one's own."""

import json
import sys
from collections.abc import Iterator

import pytest

from tests.cli.conftest import call, here
from tests.harvest.slurm import Slurm, missing, running_slurm
from tests.harvest.toy_slurm import toy

__all__ = ["TRAIN", "call", "here", "table_text", "toy"]

TRAIN = """
import sys
import time
from bftrainer.harvest import training
most = int(sys.argv[1]) if sys.argv[1:] else None
with training(lambda path: path.touch(), lambda path: None) as run:
    for step in run:
        if step == most:
            break
        time.sleep(0.02)
        run.report(1)
"""
"""Trains at up to 50 steps a second, to its end or so many of them."""


def table_text(name, work, *words):
    """A task's table: a name, an amount of work, and what Python is told; by default to train."""
    command = json.dumps([sys.executable, *(words or ["train.py"])])
    return f'[[task]]\nname = "{name}"\nmin_nodes = 1\nmax_nodes = 2\nwork = {work}\ncommand = {command}\n'


@pytest.fixture
def tasks(here):
    """`tasks(("a", 25), ("b", 20, "-c", "pass"))` writes a task file; further keys of the last one are `more`."""
    (here / "train.py").write_text(TRAIN)

    def write(*rows, name="live.toml", more=""):
        (here / name).write_text("schema = 1\n" + "".join(table_text(*row) for row in rows) + more)
        return name

    return write


@pytest.fixture
def run(call):
    """`run("live.toml", "--for", "1s")` harvests on one node, in the directory h unless told otherwise."""

    def run(file, *options, nodes=1, directory="h"):
        return call("harvest", "run", file, "--max-nodes", nodes, "-o", directory, *options)

    return run


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
