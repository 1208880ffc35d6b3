"""The product replays small random worlds as the reference does, and any difference is found."""

import ast
import os
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from bftrainer.nodelogs import write_node_log
from bftrainer.runs import run_replay, write_run
from bftrainer.runs.audit import audit
from bftrainer.tasksets import write_task_set
from tests.reference import replayer
from tests.reference.comparison import compare, describe, play_product, play_reference
from tests.reference.random_worlds import KINDS, draw_world
from tests.reference.replayer import Replay

SEED = int(os.environ.get("BFTRAINER_REFERENCE_SEED", "20260101"))
WORLDS = int(os.environ.get("BFTRAINER_REFERENCE_WORLDS", "300"))


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
def test_worlds_are_replayed_alike(kind, tmp_path):
    """Events, decisions, moves of nodes, books of tasks, runs, energy and ledger are the reference's, of 50 worlds."""
    for case in range(kind, WORLDS, len(KINDS)):
        world = draw_world(SEED, case)
        result = play_product(world, tmp_path)
        assert compare(world, result, play_reference(world, result)) == [], f"seed {SEED}, case {case}"


def test_worlds_have_all_that_can_happen(tmp_path):
    """Of 300 worlds at least 45 are of each kind that matters, and all that may happen to tasks happens in some."""
    kinds, seen = Counter(), Counter()
    for case in range(WORLDS):
        world = draw_world(SEED, case)
        kinds.update(world.kinds)
        if case % 6 in (2, 5):
            seen.update(describe(play_reference(world, play_product(world, tmp_path))))
    for kind in ("saving", "tuned", "capped", "offered late", "decides on all", "decides on nodes"):
        assert kinds[kind] >= 45, kind
    assert min(kinds["plain"], kinds["startup cost"], kinds["initially random"], kinds["initially empty"]) >= 20
    assert [name for name, number in seen.items() if not number and name != "ties under a cap"] == []


def book(reference: Replay, number: int, figure: str, more: float) -> None:
    """Let a task have done or drawn a little more."""
    reference.accounts[number].totals[figure] += more


def complete_later(reference: Replay) -> None:
    """Let a task complete a moment later."""
    account = next(account for account in reference.accounts if account.completed_s is not None)
    account.completed_s += 1e-5


@pytest.mark.parametrize(
    "change",
    [
        lambda reference: book(reference, 0, "work_done", 0.01),
        lambda reference: book(reference, -1, "energy_j", 1.0),
        lambda reference: reference.moves.__setitem__(0, (*reference.moves[0][:2], reference.moves[0][2] + 1)),
        lambda reference: reference.decisions[-1].update(after=(9, *reference.decisions[-1]["after"][1:])),
        lambda reference: reference.events.pop(),
        complete_later,
    ],
    ids=["progress", "energy", "owner of a node", "decision", "event", "completion"],
)
def test_any_difference_is_found(change, tmp_path):
    """A reference that says anything else differs."""
    world = draw_world(SEED, 2)
    result = play_product(world, tmp_path)
    reference = play_reference(world, result)
    change(reference)
    assert compare(world, result, reference) != []


@pytest.mark.long
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
def test_the_audit_agrees(kind, tmp_path):
    """It finds nothing wrong in runs of these worlds that are played from files."""
    for case in range(kind, WORLDS, len(KINDS)):
        world, folder = draw_world(SEED, case), tmp_path / str(case)
        (folder / "run").mkdir(parents=True)
        options = world.options(folder)
        write_node_log(folder / "idle.parquet", world.log)
        write_task_set(folder / "tasks.toml", options.pop("tasks"))
        write_run(run_replay(folder / "idle.parquet", folder / "tasks.toml", **options), folder / "run")
        assert audit(folder / "run").wrong == [], f"seed {SEED}, case {case}"


def test_the_reference_stands_alone():
    """It imports nothing of the product but its data classes, and has at most 700 lines."""
    parts = {"tests.reference.rules", "tests.reference.tuning", "tests.reference.recurring"}
    for name in (*parts, "tests.reference.replayer"):
        tree = ast.parse(Path(import_module(name).__file__).read_text())
        # What is imported for types alone stands in a condition.
        inner = [each for part in tree.body if not isinstance(part, ast.If) for each in ast.walk(part)]
        modules = {each.module for each in inner if isinstance(each, ast.ImportFrom)}
        modules |= {alias.name for each in inner if isinstance(each, ast.Import) for alias in each.names}
        ours = {each for each in modules if each.split(".")[0] in ("bftrainer", "solvers", "tests")}
        assert ours <= {"bftrainer.model", *parts}
    assert len(Path(replayer.__file__).read_text().splitlines()) <= 700
