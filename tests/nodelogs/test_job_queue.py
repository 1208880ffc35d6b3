"""Queues of a scheduler beside node logs: what files hold, and what is known of jobs at an instant."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import SettingsError
from bftrainer.model.lifetime import JobQueue
from bftrainer.nodelogs.job_queue import queue_path, read_queue, write_queue

HEAD = "submit,start,end,nodes,limit_s\n"
jobs = st.tuples(st.integers(0, 90), st.integers(0, 50), st.integers(1, 50), st.integers(1, 8), st.integers(0, 60))


def queue_of(rows: list[tuple[int, int, int, int, int]]) -> JobQueue:
    """Jobs of submission, wait, length, nodes and limit (0: unknown)."""
    table = np.array(sorted(rows), dtype=np.float64).reshape(-1, 5)
    start_s = table[:, 0] + table[:, 1]
    limits_s = np.where(table[:, 4] > 0, table[:, 4], np.inf)
    return JobQueue(table[:, 0], start_s, start_s + table[:, 2], table[:, 3].astype(np.int64), limits_s)


def test_a_queue_is_read_as_it_was_written(tmp_path):
    """Times, sizes and limits come back, an unknown limit as infinity."""
    queue = queue_of([(0, 5, 10, 2, 60), (3, 0, 1, 1, 0)])
    path = queue_path(tmp_path / "idle.csv.gz")
    assert path.name == "idle.queue.csv"
    write_queue(path, queue)
    again = read_queue(path)
    for name in ("submit_s", "start_s", "end_s", "nodes", "limit_s"):
        assert getattr(again, name).tolist() == getattr(queue, name).tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("submit,start,end,nodes\n0,1,2,3\n", r"queue.csv:1: Expected columns submit, start, end, nodes, limit_s"),
        (HEAD + "5,1,9,1,60\n", r"queue.csv:2: Expected submit <= start <= end, got 5, 1, 9"),
        (HEAD + "0,1,2,1,60\n0,9,2,1,60\n", r"queue.csv:3: Expected submit <= start <= end, got 0, 9, 2"),
        (HEAD + "0,1,2,0,60\n", r"queue.csv:2, column nodes: Expected a number of nodes above 0, got '0'"),
        (HEAD + "0,x,2,1,60\n", r"queue.csv:2, column start: Expected a number, got 'x'"),
        (HEAD + "0,1,2,1,-5\n", r"queue.csv:2, column limit_s: Expected seconds above 0, got '-5'"),
        (HEAD + "0,1,nan,1,5\n", r"queue.csv:2: Expected submit <= start <= end"),
    ],
)
def test_a_queue_that_is_none_is_refused_in_one_line(tmp_path, text, message):
    """The line and the column that are wrong are named."""
    path = tmp_path / "queue.csv"
    path.write_text(text)
    with pytest.raises(SettingsError, match=message) as caught:
        read_queue(path)
    assert "\n" not in str(caught.value)


@given(rows=st.lists(jobs, max_size=12), others=st.lists(jobs, max_size=6), time_s=st.integers(0, 120))
def test_what_is_known_depends_on_the_past_alone(rows, others, time_s):
    """Later submissions, and when waiting jobs will start or running ones end, change nothing that is known."""
    future = []
    for submit, wait, length, nodes, limit in rows:
        if submit > time_s:
            continue
        if submit + wait > time_s:
            wait, length = wait + 17, length + 3
        elif submit + wait + length > time_s:
            length += 29
        future.append((submit, wait, length, nodes, limit))
    future += [(submit + time_s + 1, *rest) for submit, *rest in others]
    known, other = (queue_of(each).known_at(time_s) for each in (rows, future))
    for name in ("waiting", "waiting_limits_s", "running", "running_limits_s", "elapsed_s"):
        assert sorted(getattr(known, name).tolist()) == sorted(getattr(other, name).tolist())
    assert known.used_share == pytest.approx(other.used_share)
