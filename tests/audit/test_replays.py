"""The audit finds nothing in what the replay does, whatever the log, the tasks and the options."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.audit import audit
from bftrainer.model import NodeLog, ScalingCurve, TaskSpec
from bftrainer.model.records import Recording
from bftrainer.nodelogs import write_node_log
from bftrainer.runs import run_replay, write_run
from bftrainer.tasksets import write_task_set
from tests.examples import examples
from tests.worlds import NS, World, saving_worlds, worlds


def problems(folder: Path, log: NodeLog, tasks: tuple[TaskSpec, ...], **options: Any) -> list[tuple[str, str]]:
    """Claims of the audit that do not hold of a replay, each with its first problem."""
    replayed(folder, log, tasks, **options)
    return [(part.claim, part.problems[0]) for part in audit(folder / "run").failed]


def replayed(folder: Path, log: NodeLog, tasks: tuple[TaskSpec, ...], **options: Any) -> Recording:
    """Write the inputs, replay them from there, and write the run."""
    write_node_log(folder / "idle.parquet", log)
    write_task_set(folder / "tasks.toml", tasks)
    files = {"node_log": folder / "idle.parquet", "tasks": folder / "tasks.toml"}
    result = run_replay(**files, **({"solver": "dp", "baseline": False} | options))
    (folder / "run").mkdir()
    write_run(result, folder / "run")
    return result.recording


def log(*rows: tuple[int, int, bool]) -> NodeLog:
    """100 s of two nodes; rows of (second, node, idle)."""
    time, node, idle = (np.array(column) for column in zip(*rows, strict=True))
    return NodeLog(("n0", "n1"), 0, 100 * NS, time * NS, node.astype(np.int32), idle)


def task(name: str, submit_s: float = 0.0, work: float = 200.0, **changes: Any) -> TaskSpec:
    """10 work/s on one node, 20 on two."""
    return TaskSpec(name, **({"min_nodes": 1, "max_nodes": 2, "scaling": TWO} | changes), work=work, submit_s=submit_s)


TWO = ScalingCurve((0, 1, 2), (0.0, 10.0, 20.0))
IDLE_FOR_NOTHING = ScalingCurve((0, 1, 2), (0.0, 0.0, 10.0), credit=(0.0, 5.0, 6.0))
ROWS_ONLY = {"decide_on": "nodes"}
CORNERS = {
    "no decision at all": ([(0, 0, True)], [task("J0")], {"initial": "empty", "max_events": 1}),
    "no event at all": ([(99, 0, True)], [task("J0", 99.5)], {"until": 50.0}),
    "no admission before the first row": (
        [(20, 0, True), (60, 1, True)],
        [task("J0", 10.0, work=1e6), task("J1", -5.0)],
        ROWS_ONLY | {"max_tasks": 1},
    ),
    "completion noticed by the window's end": ([(0, 0, True)], [task("J0")], ROWS_ONLY),
    "completion noticed where the run is stopped": (
        [(0, 0, True), (50, 1, True), (60, 1, False)],
        [task("J0")],
        ROWS_ONLY | {"max_events": 1},
    ),
    "completion due where the run is stopped": ([(0, 0, True), (20, 1, True)], [task("J0")], {"max_events": 1}),
    "completion as the node leaves": ([(0, 0, True), (20, 0, False)], [task("J0")], {}),
    "a row at the window's end": ([(0, 0, True), (100, 1, True)], [task("J0", 10.0, work=1e6)], {}),
    "a part of the log": (
        [(0, 0, True), (20, 1, True), (50, 1, False), (70, 1, True)],
        [task("J0", work=1e6), task("J1", 10.0)],
        {"since": 40.0, "until": 45.0},
    ),
    "nodes that give no work": ([(0, 0, True), (50, 1, True)], [task("J0", scaling=IDLE_FOR_NOTHING)], {}),
    "nodes drawn that give no work": (
        [(0, 0, True), (50, 1, True)],
        [task("J0", scaling=IDLE_FOR_NOTHING)],
        {"initial": "random"},
    ),
}


@pytest.mark.parametrize(("rows", "tasks", "options"), CORNERS.values(), ids=CORNERS.keys())
def test_corners_are_clean(tmp_path, rows, tasks, options):
    """What is rare in a log is booked by the audit as by the replay."""
    assert problems(tmp_path, log(*rows), tuple(tasks), **options) == []


def test_what_the_corners_are(tmp_path):
    """They are what their names say: when tasks start and complete, by hand."""

    def outcome(corner: str) -> list[tuple[float | None, float | None]]:
        rows, tasks, options = CORNERS[corner]
        (tmp_path / corner).mkdir()
        recording = replayed(tmp_path / corner, log(*rows), tuple(tasks), **options)
        return [(each.started_s, each.completed_s) for each in recording.tasks]

    assert outcome("no decision at all") == [(None, None)]
    assert outcome("no admission before the first row") == [(20.0, None), (None, None)]
    assert outcome("completion noticed by the window's end") == [(0.0, 100.0)]
    assert outcome("completion noticed where the run is stopped") == [(0.0, 50.0)]
    assert outcome("completion due where the run is stopped") == [(0.0, 20.0)]
    assert outcome("nodes that give no work") == [(50.0, 70.0)]


OPTIONS = st.fixed_dictionaries(
    {
        "initial": st.sampled_from(["solve", "empty", "random"]),
        "startup_cost": st.sampled_from(["none", "full"]),
        "objective": st.sampled_from(["as-given", "throughput"]),
        "solver": st.sampled_from(["dp", "dp", "equal-share"]),
        "forward_time_s": st.sampled_from([1.0, 60.0, 600.0]),
        "max_events": st.none() | st.integers(1, 12),
        "scaling": st.sampled_from([None, None, "learned"]),
    }
)


def check_any_replay(world: World, options: dict[str, Any]) -> None:
    """Decisions, moves, books and sums all hold."""
    chosen = options | {"decide_on": world.decide_on, "max_tasks": world.max_tasks}
    with tempfile.TemporaryDirectory() as folder:
        assert problems(Path(folder), world.log, world.tasks, **chosen) == []


@examples(40)
@given(worlds() | saving_worlds(), OPTIONS)
def test_any_replay_is_clean(world, options):
    """Random logs, tasks and options leave nothing to find."""
    check_any_replay(world, options)


def test_forged_beliefs_are_found(tmp_path):
    """Another throughput where a task runs, one that is no number, and a belief at no decision are found."""
    tasks = tuple(task(name, work=1e6, shrink_cost_s=4.0) for name in ("J0", "J1"))
    rows = ((0, 0, True), (10, 1, True), (30, 0, False), (40, 0, True))
    recording = replayed(tmp_path, log(*rows), tasks, scaling="learned", forward_time_s=60.0)
    run, path = tmp_path / "run", tmp_path / "run" / "beliefs.parquet"
    assert audit(run).failed == []
    whole = pq.read_table(path)
    events, nodes = (whole[name].to_pylist() for name in ("event", "nodes"))
    last = recording.decisions[len(recording.decisions) - 1]
    names = [recording.tasks[number].spec.name for number in last.tasks]
    held = next((name, after) for name, after in zip(names, last.after, strict=True) if after)
    place = max(row for row, name in enumerate(whole["task"].to_pylist()) if (name, nodes[row]) == held)
    for column, value in (("throughput", 1e3), ("throughput", -1.0), ("event", max(events) + 1), ("nodes", 0)):
        cells = whole[column].to_pylist()
        cells[place] = value
        kind = whole.schema.field(column).type
        pq.write_table(whole.set_column(whole.schema.get_field_index(column), column, pa.array(cells, kind)), path)
        assert audit(run).failed != [], column


@pytest.mark.slow
@examples(250)
@given(worlds() | saving_worlds(), OPTIONS)
def test_many_replays_are_clean(world, options):
    """The same on many more."""
    check_any_replay(world, options)
