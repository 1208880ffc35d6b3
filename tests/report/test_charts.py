"""Charts hold what runs recorded, and what is left out of them does not change the picture."""

import base64
import json
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.report import run_figures
from bftrainer.report.finished_run import FinishedRun, Holdings, TaskSpans, thin_steps
from bftrainer.report.run_figures import pool_lines, timeline_of


def roster(count):
    """A run of so many tasks, of which number i holds i + 1 nodes for 10 s from second 20 i on."""
    numbers = np.arange(count)
    tasks = {"name": np.array([f"J{number}" for number in numbers], dtype=object)}
    summary = {"nodes_total": 9, "window_s": 20.0 * count, "window_start": "2026-01-01T00:00:00Z"}
    time_s = np.column_stack((20.0 * numbers, 20.0 * numbers + 10.0)).ravel()
    holdings = Holdings(time_s, np.repeat(numbers, 2), np.column_stack((numbers + 1, 0 * numbers)).ravel())
    steps = dict.fromkeys(("time_s", "idle", "used"), np.zeros(1))
    return FinishedRun("made-up", summary, steps, {}, tasks, holdings)


def lines(runs):
    """Lines of idle and used nodes, by name."""
    return {line["name"]: line for line in pool_lines(runs)}


def test_pool_is_the_step_log(run):
    """Idle and used nodes at each event, the last ones until the end; of several runs, names say whose they are."""
    pool = lines([run])
    assert pool["idle"]["value"].tolist() == [*run.steps["idle"].tolist(), int(run.steps["idle"][-1])]
    assert pool["used"]["value"][:-1].tolist() == run.steps["used"].tolist()
    assert pool["idle"]["time"][-1] == run.window_s
    both = [replace(run, name=name) for name in "ab"]
    assert list(lines(both)) == ["a: idle", "b: idle", "a: used", "b: used"]


@pytest.mark.parametrize("count", [3, 10_000])
def test_spans_by_hand(count):
    """Each task has its name, and its interval begins and ends with its holding, and has its nodes."""
    data = json.loads(zlib.decompress(base64.b64decode(timeline_of([roster(count)]).data)))["runs"][0]
    numbers = list(range(count))
    assert data["tasks"] == [f"J{number}" for number in numbers]
    spans = {"begin": [20 * number for number in numbers], "length": [10] * count, "task": numbers}
    assert data["spans"] == spans | {"nodes": [number + 1 for number in numbers]}


def test_long_runs_are_thinned(run, monkeypatch):
    """Of more points than are visible fewer are left, the largest among them; a note tells of joined intervals."""
    monkeypatch.setattr(run_figures, "MOST_POINTS", 1)
    monkeypatch.setattr(run_figures, "MOST_SPANS", 40)
    (note,) = timeline_of([run]).notes
    assert note.startswith("plain: for the screen, ")
    assert "intervals of tasks are joined to" in note
    long = np.linspace(0.0, run.window_s, 100_000)
    steps = {"time_s": long, "idle": np.arange(long.size), "used": np.zeros(long.size)}
    idle = lines([replace(run, steps=steps)])["idle"]["value"]
    assert idle.size < 5_000
    assert idle.max() == long.size - 1


@given(st.integers(0, 2**31), st.integers(2, 40), st.integers(1, 2000))
def test_thinned_steps_have_the_same_outline(seed, width, count):
    """In each piece the extremes of every column are those of all rows, and no more than six rows a piece are left."""
    rng = np.random.default_rng(seed)
    time_s = np.sort(rng.uniform(0, 100, count))
    columns = [rng.integers(0, 50, count), rng.normal(size=count)]
    rows = thin_steps(time_s, columns, 100.0, width)
    assert (np.diff(rows) > 0).all()
    assert (rows[0], rows[-1]) == (0, count - 1)
    assert rows.size <= 6 * width
    piece = (time_s / 100.0 * width).astype(int)
    for values in columns:
        for number in np.unique(piece):
            every, shown = values[piece == number], values[rows][piece[rows] == number]
            assert (shown.min(), shown.max()) == (every.min(), every.max())


@given(st.integers(0, 2**31), st.integers(1, 400), st.integers(5, 50))
def test_joined_spans_keep_node_time(seed, count, most):
    """As few as asked for, or one a task; each task's node-time and extent are the same."""
    rng = np.random.default_rng(seed)
    tasks = np.sort(rng.integers(0, 4, count))
    begin = np.concatenate([np.sort(rng.uniform(0, 90, (tasks == task).sum())) for task in range(4)])
    following = np.where(np.append(tasks[1:] == tasks[:-1], False), np.append(begin[1:], 100.0), 100.0)
    end = begin + (following - begin) * rng.uniform(0.1, 1.0, count)
    before = TaskSpans(begin, end, tasks, rng.integers(1, 9, count).astype(float))
    after = before.join(most, 100.0)
    assert after.begin_s.size <= max(most, 4)

    def outline(spans, task):
        """Begin, end and node-time of a task."""
        rows = spans.task == task
        node_s = ((spans.end_s - spans.begin_s) * spans.nodes)[rows].sum()
        return spans.begin_s[rows].min(), spans.end_s[rows].max(), pytest.approx(node_s)

    for task in np.unique(tasks):
        assert outline(after, task) == outline(before, task)
