"""What is left out of a chart does not change the picture."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.report.thinning import TaskSpans, join_spans, thin_steps


def test_few_points_stay():
    """What a screen can show is shown."""
    assert thin_steps(np.arange(10.0), [np.arange(10)], 10.0, 5).tolist() == list(range(10))


def test_by_hand():
    """Of each of two pieces stay the first row, the last, the smallest and the largest."""
    values = np.array([5, 9, 1, 4, 4, 4, 7, 7, 0, 8, 8, 8])
    assert thin_steps(np.arange(12.0), [values], 12.0, 2).tolist() == [0, 1, 2, 5, 6, 8, 11]


@given(st.integers(0, 2**31), st.integers(2, 40), st.integers(1, 2000))
def test_outline_stays(seed, width, count):
    """In each piece the extremes of every column are those of all rows, and no more than six rows a piece are left."""
    rng = np.random.default_rng(seed)
    time_s = np.sort(rng.uniform(0, 100, count))
    columns = [rng.integers(0, 50, count), rng.normal(size=count)]
    rows = thin_steps(time_s, columns, 100.0, width)
    assert (np.diff(rows) > 0).all()
    assert rows[0] == 0
    assert rows[-1] == count - 1
    assert rows.size <= max(2 * width, 6 * width)
    piece = (time_s / 100.0 * width).astype(int)
    for values in columns:
        for each in np.unique(piece):
            mine, left = values[piece == each], values[rows][piece[rows] == each]
            assert (left.min(), left.max()) == (mine.min(), mine.max())


def node_s(spans):
    """Node-seconds of each span."""
    return (spans.end_s - spans.begin_s) * spans.nodes


@given(st.integers(0, 2**31), st.integers(1, 400), st.integers(5, 50))
def test_joined_spans_keep_node_time(seed, count, most):
    """As few as asked for, or one a task; each task's node-time and extent are the same."""
    rng = np.random.default_rng(seed)
    tasks = np.sort(rng.integers(0, 4, count))
    begin = np.concatenate([np.sort(rng.uniform(0, 90, (tasks == task).sum())) for task in range(4)])
    same = np.append(tasks[1:] == tasks[:-1], False)
    following = np.where(same, np.append(begin[1:], 100.0), 100.0)
    end = begin + (following - begin) * rng.uniform(0.1, 1.0, count)
    before = TaskSpans(begin, end, tasks, rng.integers(1, 9, count).astype(float))
    after = join_spans(before, most, 100.0)
    assert after.begin_s.size <= max(most, 4)
    for task in np.unique(tasks):
        mine, left = before.task == task, after.task == task
        assert (after.begin_s[left].min(), after.end_s[left].max()) == (begin[mine].min(), end[mine].max())
        node_s = [
            ((each.end_s - each.begin_s) * each.nodes)[mask].sum() for each, mask in ((before, mine), (after, left))
        ]
        assert node_s[0] == pytest.approx(node_s[1])
