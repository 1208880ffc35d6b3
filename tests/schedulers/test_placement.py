"""Jobs without node names: whatever the placement, the number of busy nodes is that of the log."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.nodelogs.node_spans import Window
from bftrainer.schedulers import idle_spans
from bftrainer.schedulers.idle_spans import choose_block, over_capacity_share, place_jobs

NS = 10**9
END = 40


def demand_of(rows):
    """Demand from rows of (start, end, nodes) in seconds."""
    start, end, nodes = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return pd.DataFrame({"start_ns": start * NS, "end_ns": end * NS, "nodes": nodes})


def spans_of(rows, capacity):
    """Spans of the placement as rows of (node, start, end) in seconds."""
    spans = place_jobs(demand_of(rows), capacity)
    return sorted(zip(spans.node.tolist(), (spans.start_ns // NS).tolist(), (spans.end_ns // NS).tolist(), strict=True))


job_rows = st.lists(
    st.tuples(st.integers(0, 25), st.integers(1, 15), st.integers(1, 7)).map(lambda r: (r[0], r[0] + r[1], r[2])),
    max_size=10,
)


@given(job_rows, st.integers(1, 6))
def test_counts_are_exact(rows, capacity):
    """At every second as many nodes are busy as jobs want, or all of them; no node twice."""
    wanted = np.zeros(END, dtype=int)
    for start, end, nodes in rows:
        wanted[start:end] += nodes
    busy = np.zeros((capacity, END), dtype=int)
    for node, start, end in spans_of(rows, capacity):
        busy[node, start:end] += 1
    assert busy.max(initial=0) <= 1
    np.testing.assert_array_equal(busy.sum(axis=0), np.minimum(wanted, capacity))
    share = over_capacity_share(demand_of(rows), capacity, Window(0, END * NS))
    assert share == pytest.approx((wanted > capacity).mean())


def test_first_fit_is_stable():
    """Jobs take the lowest-numbered free nodes, and keep them to their end."""
    assert spans_of([(0, 10, 2), (0, 5, 1), (5, 20, 2), (10, 12, 3)], 5) == [
        (0, 0, 10), (0, 10, 12), (1, 0, 10), (1, 10, 12), (2, 0, 5), (2, 5, 20), (3, 5, 20), (4, 10, 12),
    ]  # fmt: skip


def test_a_job_that_finds_too_few_nodes_gets_more_later():
    """With more demand than nodes none is idle: what falls free goes to the job that came first."""
    assert spans_of([(0, 4, 2), (1, 9, 3), (2, 9, 1)], 3) == [
        (0, 0, 4), (0, 4, 9), (1, 0, 4), (1, 4, 9), (2, 1, 9),
    ]  # fmt: skip


def test_what_ends_frees_nodes_for_what_starts():
    """At one instant ends come before starts, in whatever order they are written."""
    rows = [(5, 9, 2), (0, 5, 2)]
    assert spans_of(rows, 2) == [(0, 0, 5), (0, 5, 9), (1, 0, 5), (1, 5, 9)]
    assert over_capacity_share(demand_of(rows), 2, Window(0, 9 * NS)) == 0.0


def test_the_share_is_that_of_the_window():
    """Demand outside the window does not count, nor does that which only starts in it count from before."""
    rows = [(0, 10, 3), (10, 30, 1)]
    assert over_capacity_share(demand_of(rows), 2, Window(0, 20 * NS)) == 0.5
    assert over_capacity_share(demand_of(rows), 2, Window(5 * NS, 15 * NS)) == 0.5
    assert over_capacity_share(demand_of(rows), 2, Window(12 * NS, 15 * NS)) == 0.0
    assert over_capacity_share(demand_of([]), 2, Window(0, NS)) == 0.0


def test_blocks(monkeypatch):
    """Where jobs hold very many nodes, they are placed in the largest blocks that divide nearly all requests."""
    window = Window(0, END * NS)
    sizes = [64, 128, 192] * 100
    demand = demand_of([(0, 10, size) for size in sizes])
    assert choose_block(demand, 1280, window) == 1
    monkeypatch.setattr(idle_spans, "_MOST_SPANS", 1000)
    assert choose_block(demand, 1280, window) == 64
    assert choose_block(demand_of([(0, 10, size) for size in [*sizes, 127]]), 1280, window) == 64
    for others, block in (([1] * 9, 1), ([129], 2)):  # too many of other sizes, and one that lasts
        rows = [(0, 1, size) for size in sizes] + [(0, 30, size) for size in others]
        assert choose_block(demand_of(rows), 1280, window) == block
    assert choose_block(demand_of([(0, 10, 64)] * 300), 1250, window) == 2


def test_nodes_of_several_sizes():
    """A job fills the lowest-numbered free nodes until they have what it demands."""
    rows = [(0, 10, 13), (1, 5, 80), (2, 9, 1)]
    spans = place_jobs(demand_of(rows), np.array([12, 12, 12, 80]))
    found = sorted(
        zip(spans.node.tolist(), (spans.start_ns // NS).tolist(), (spans.end_ns // NS).tolist(), strict=True)
    )
    assert found == [(0, 0, 10), (1, 0, 10), (2, 1, 5), (2, 5, 9), (3, 1, 5)]
