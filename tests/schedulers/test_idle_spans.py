"""The sweep by kinds: node-seconds add up, and only gaps between two busy spans are closed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.nodelogs.node_spans import NodeSpans, Window
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.idle_spans import line_sweep
from tests.nodelogs.test_intervals import LENGTH, NODES, NS, busy_rows, by_second, dense, spans

WINDOW = Window(0, LENGTH * NS)


@given(busy_rows(), busy_rows(), st.integers(0, 4), st.integers(0, 4))
def test_kinds_are_united(jobs, downs, gap, hole):
    """A node is idle when nothing covers it; each kind's union is counted apart, and jobs once each."""
    blocks = [{BusyKind.JOB: spans(*jobs).union(), BusyKind.DOWN: spans(*downs).union()}]
    swept = line_sweep(blocks, NODES, WINDOW, gap * NS, hole * NS)
    everything = by_second(jobs + downs, gap)
    idle = dense(swept.idle)
    assert not (idle & everything).any()
    if hole <= 1:
        np.testing.assert_array_equal(idle, ~everything)
    assert swept.busy_node_s["job"] == by_second(jobs).sum()
    assert swept.busy_node_s["down"] == by_second(downs).sum()


@given(busy_rows())
def test_blocks_of_nodes_make_no_difference(jobs):
    """Swept node by node, a machine gives what it gives at once."""
    whole = line_sweep([{BusyKind.JOB: spans(*jobs).union()}], NODES, WINDOW)
    parts = line_sweep(
        ({BusyKind.JOB: spans(*(row for row in jobs if row[0] == node)).union()} for node in range(NODES)),
        NODES,
        WINDOW,
    )
    np.testing.assert_array_equal(dense(whole.idle), dense(parts.idle))
    assert parts.busy_node_s == whole.busy_node_s


def test_overlap():
    """Two jobs that share a node for half their time count one and a half times."""
    jobs = spans((0, 0, 10), (0, 5, 15))
    swept = line_sweep([{BusyKind.JOB: jobs.union()}], NODES, WINDOW, job_node_s=jobs.node_s)
    assert swept.overlap_factor == 20 / 15
    assert line_sweep([{BusyKind.JOB: NodeSpans.none()}], NODES, WINDOW).overlap_factor is None
    assert line_sweep([], NODES, WINDOW).idle.node_s == NODES * LENGTH


def test_gaps_at_the_window_belong_to_jobs_beyond_it():
    """A gap that the window's start cuts is clean-up if it is short as a whole."""
    swept = line_sweep([{BusyKind.JOB: spans((0, -9, -1), (0, 2, 9))}], 1, WINDOW, 4 * NS)
    assert swept.idle.start_ns.tolist() == [9 * NS]
