"""The product replays small random worlds as the reference does, which is judged here by hand."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bftrainer.model import NodeLog, ScalingCurve, TaskSpec
from bftrainer.nodelogs import write_node_log
from bftrainer.runs import run_replay, write_run
from bftrainer.runs.audit import audit
from bftrainer.tasksets import write_task_set
from tests.reference.comparison import compare, describe, play_product, play_reference
from tests.reference.random_worlds import KINDS, draw_world
from tests.reference.replayer import Replay
from tests.reference.rules import NS, Rules

HERE = Path(__file__).parent
SEED, WORLDS = 20_260_101, 300
LINEAR = ScalingCurve((0, 4), (0.0, 40.0))


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
def test_worlds_are_replayed_alike(kind, tmp_path):
    """Events, decisions, moves of nodes, books of tasks, runs, energy and ledger are the reference's, of 50 worlds."""
    for case in range(kind, WORLDS, len(KINDS)):
        world = draw_world(SEED, case)
        result = play_product(world, tmp_path)
        assert compare(world, result, play_reference(world, result)) == [], f"--seed {SEED} --case {case}"


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


def book(number: int, figure: str, more: float) -> Callable[[Replay], None]:
    """Let a task have done or drawn a little more."""

    def change(reference: Replay) -> None:
        reference.accounts[number].totals[figure] += more

    return change


def complete_later(reference: Replay) -> None:
    """Let a task complete a moment later."""
    account = next(account for account in reference.accounts if account.completed_s is not None)
    account.completed_s += 1e-5


@pytest.mark.parametrize(
    "change",
    [
        lambda reference: reference.accounts[0].totals.update(
            work_done=reference.accounts[0].totals["work_done"] + 0.01
        ),
        lambda reference: reference.accounts[-1].totals.update(
            energy_j=reference.accounts[-1].totals["energy_j"] + 1.0
        ),
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
        assert audit(folder / "run").wrong == [], f"--seed {SEED} --case {case}"


def log_of(*rows: tuple[int, int, bool], end_s: int = 100) -> NodeLog:
    """A log of three nodes; rows of (second, node, idle)."""
    time, node, idle = (np.array(column) for column in zip(*rows, strict=True))
    return NodeLog(("n0", "n1", "n2"), 0, end_s * NS, time * NS, node.astype(np.int32), idle)


def play(log: NodeLog, *tasks: TaskSpec, **rules: object) -> Replay:
    """Replay by the reference alone."""
    return Replay(log, tasks, Rules(**rules), {}).run()


def task(name: str = "J0", **changes: object) -> TaskSpec:
    """10 work/s and node on up to four nodes."""
    fields = {"min_nodes": 1, "max_nodes": 4, "work": 1e6, "scaling": LINEAR, "shrink_cost_s": 3.0, "grow_cost_s": 5.0}
    return TaskSpec(name, **(fields | changes))


def test_losing_several_nodes_costs_once():
    """A task on three nodes that loses two at 50 s pays 3 s of 30 work/s, and keeps the third."""
    replayed = play(log_of((0, 0, True), (0, 1, True), (0, 2, True), (50, 0, False), (50, 2, False)), task())
    assert replayed.accounts[0].totals["preemption_cost"] == 90.0
    assert replayed.moves == [(0.0, 0, 0), (0.0, 1, 0), (0.0, 2, 0), (50.0, 0, -1), (50.0, 2, -1)]
    assert replayed.accounts[0].totals["work_done"] == 50 * 30.0 - 90.0 + 50 * 10.0


def test_growing_is_paid_at_the_next_event():
    """A task that grows from one node to two at 20 s, and completes: 5 s of 10 work/s come off after that."""
    replayed = play(log_of((0, 0, True), (20, 1, True)), task(work=1000.0))
    assert [event["rescale_booked"] for event in replayed.events] == [0.0, 0.0, 50.0]
    assert replayed.accounts[0].completed_s == 20.0 + (1000.0 - 200.0 + 50.0) / 20.0


def test_equal_tasks_keep_what_they_have_then_the_first_gets_most():
    """Two equal tasks on two nodes: the first gets both; when a third node comes, nobody has to change but it."""
    replayed = play(log_of((0, 0, True), (0, 1, True), (40, 2, True)), task(max_nodes=2), task("J1", max_nodes=2))
    assert [decision["after"] for decision in replayed.decisions] == [(2, 0), (2, 1)]


def test_nodes_are_offered_late_and_not_at_all_if_they_leave_before():
    """With 30 s of delay a node that is idle from 0 s on comes at 30 s; one that stays for 30 s does not come."""
    log = log_of((0, 0, True), (10, 1, True), (40, 1, False), (90, 0, False))
    replayed = play(log, task(), offer_after_s=30.0)
    assert replayed.moves == [(30.0, 0, 0), (90.0, 0, -1)]


@pytest.mark.parametrize(
    ("second_row", "decide_on", "completed_s", "cost"),
    [
        # A task of 25 s completes then, or at the next row.
        ((60, 1, True), "all", 25.0, 0.0),
        ((60, 1, True), "nodes", 60.0, 0.0),
        # One whose node leaves as its work is done loses nothing; where rows alone count, it pays first.
        ((25, 0, False), "all", 25.0, 0.0),
        ((25, 0, False), "nodes", None, 30.0),
    ],
)
def test_completions_are_events_or_noticed(second_row, decide_on, completed_s, cost):
    """A completion comes before departures of its instant, unless it is noticed at a row."""
    replayed = play(log_of((0, 0, True), second_row), task(work=250.0), decide_on=decide_on)
    assert (replayed.accounts[0].completed_s, replayed.accounts[0].totals["preemption_cost"]) == (completed_s, cost)


def test_a_hit_loses_what_is_not_saved():
    """A task that trains 20 s and saves 5 s, hit after 53 s, loses its third training of 3 s, and a restart of 7 s."""
    saving = task(checkpoint_s=5.0, restart_s=7.0, checkpoint_interval_s=20.0, max_nodes=1)
    replayed = play(log_of((0, 0, True), (53, 0, False)), saving)
    totals = replayed.accounts[0].totals
    assert (totals["saving_cost"], totals["preemption_cost"]) == (2 * 5 * 10.0, (3 + 7) * 10.0)


def test_the_reference_stands_alone():
    """It imports nothing of the product but its data classes, and has at most 700 lines."""
    for name in ("replayer.py", "rules.py", "tuning.py"):
        tree = ast.parse((HERE / name).read_text())
        modules = {each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
        modules |= {alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names}
        ours = {each for each in modules if each.split(".")[0] in ("bftrainer", "solvers", "tests")}
        assert ours <= {"bftrainer.model", "tests.reference.rules", "tests.reference.tuning"}
    assert len((HERE / "replayer.py").read_text().splitlines()) <= 700


def test_a_world_is_the_same_each_time():
    """A seed and a case make one world, so that a difference can be looked at again."""
    one, again = draw_world(1, 17), draw_world(1, 17)
    assert (one.tasks, one.rules) == (again.tasks, again.rules)
    assert np.array_equal(one.log.time_ns, again.log.time_ns)
