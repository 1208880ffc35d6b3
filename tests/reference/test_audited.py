"""The audit finds nothing in what the product does in the worlds that the reference judges."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.nodelogs import write_node_log
from bftrainer.runs import run_replay, write_run
from bftrainer.runs.audit import audit
from bftrainer.tasksets import write_task_set
from tests.reference.random_worlds import KINDS, World, draw_world
from tests.reference.test_replayer import SEED, WORLDS


def audit_world(world: World, folder: Path) -> list[str]:
    """Replay a world from files and audit the run; what is wrong in it."""
    options = world.options(folder)
    write_node_log(folder / "idle.parquet", world.log)
    write_task_set(folder / "tasks.toml", options.pop("tasks"))
    result = run_replay(folder / "idle.parquet", folder / "tasks.toml", **options)
    (folder / "run").mkdir()
    write_run(result, folder / "run")
    return audit(folder / "run").wrong


@pytest.mark.long
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
def test_the_audit_agrees(kind, tmp_path):
    """Fifty worlds of a kind."""
    for case in range(kind, WORLDS, len(KINDS)):
        (tmp_path / str(case)).mkdir()
        assert audit_world(draw_world(SEED, case), tmp_path / str(case)) == [], f"--seed {SEED} --case {case}"
