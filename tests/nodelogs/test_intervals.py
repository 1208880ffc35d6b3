"""The shared sweep against a machine held second by second."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bftrainer.errors import LogError
from bftrainer.nodelogs.node_spans import (
    OPEN_END_NS,
    OPEN_START_NS,
    NodeSpans,
    Window,
    idle_spans,
    last_changes,
    log_of_idle,
    nanoseconds,
)
from tests.strategies import node_logs

NODES = 3
LENGTH = 20
NS = 10**9


def spans(*rows, unit=NS):
    """Spans from rows of (node, start, end) in seconds."""
    node, start, end = (
        (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    )
    return NodeSpans(np.asarray(node, np.int32), np.asarray(start, np.int64) * unit, np.asarray(end, np.int64) * unit)


def rows(given, unit=NS):
    """The rows again."""
    columns = (given.node.tolist(), (given.start_ns // unit).tolist(), (given.end_ns // unit).tolist())
    return list(zip(*columns, strict=True))


@st.composite
def busy_rows(draw):
    """Rows within and around the window, in any order, some of them repeated."""
    row = st.tuples(st.integers(0, NODES - 1), st.integers(-5, LENGTH + 5), st.integers(1, 12))
    return [(node, start, start + length) for node, start, length in draw(st.lists(row, max_size=12))]


def by_second(given, gap=0):
    """Which seconds of the window each node is busy, gaps between two stretches shorter than `gap` closed."""
    wide = np.zeros((NODES, LENGTH + 60), dtype=bool)
    for node, start, end in given:
        wide[node, start + 30 : end + 30] = True
    for cells in wide:
        for before, after in itertools.pairwise(np.flatnonzero(cells)):
            if 0 < after - before - 1 < gap:
                cells[before:after] = True
    return wide[:, 30 : 30 + LENGTH]


def dense(given):
    """The same for spans within the window."""
    cells = np.zeros((NODES, LENGTH), dtype=bool)
    for node, start, end in rows(given):
        assert not cells[node, start:end].any(), "spans of a node overlap"
        cells[node, start:end] = True
    return cells


def swept(given, gap=0):
    """What the sweep makes of rows: busy and idle spans."""
    margin = gap * NS
    busy = spans(*given).within(-margin, LENGTH * NS + margin).union(margin).within(0, LENGTH * NS)
    return busy, busy.gaps(NODES, Window(0, LENGTH * NS))


@given(busy_rows(), st.integers(0, 4))
def test_union_and_gaps(given, gap):
    """Busy is the union of what covers a node, idle the rest of the window, second by second."""
    busy, idle = swept(given, gap)
    wanted = by_second(given, gap)
    np.testing.assert_array_equal(dense(busy), wanted)
    np.testing.assert_array_equal(dense(idle), ~wanted)
    assert busy.node_s + idle.node_s == NODES * LENGTH


@given(busy_rows(), st.integers(0, 4), st.integers(0, 10**9 - 1))
def test_fractions_of_seconds(given, gap, fraction):
    """Times between whole seconds take another way through the sort, to the same end."""
    moved = spans(*sorted(given))  # and rows in another order, which does not matter
    moved = NodeSpans(moved.node, moved.start_ns + fraction * moved.node, moved.end_ns + fraction * moved.node)
    merged = moved.union(gap * NS)
    back = NodeSpans(merged.node, merged.start_ns - fraction * merged.node, merged.end_ns - fraction * merged.node)
    assert rows(back) == rows(spans(*given).union(gap * NS))


@given(busy_rows(), st.integers(0, 8))
def test_log_and_back(given, least):
    """A log of idle spans tells the same spans, and none that is shorter than asked for."""
    idle = swept(given)[1].lasting(least * NS)
    names = tuple(f"n{number}" for number in range(NODES))
    log = log_of_idle(names, Window(0, LENGTH * NS), idle, {})
    assert rows(idle_spans(log)) == rows(idle)
    assert all(end - start >= least for _, start, end in rows(idle))


@given(node_logs())
def test_any_log_is_its_idle_spans(log):
    """Rebuilt from its idle spans and its last changes, a log has the same rows."""
    assume(log.start_ns < log.end_ns)
    window = Window(log.start_ns, log.end_ns)
    again = log_of_idle(log.nodes, window, idle_spans(log), {}, log.unchanged_ns, last_changes(log))
    ours, theirs = (
        [(time, joined, left) for time, joined, left in one.rows() if joined or left] for one in (again, log)
    )
    assert ours == theirs


@given(busy_rows(), st.integers(1, 5))
def test_blocks(given, at_a_time):
    """All spans are in one block each, and blocks follow one another by node."""
    whole = spans(*given)
    blocks = list(whole.split_blocks(NODES, at_a_time))
    assert sorted(rows(NodeSpans.concatenate(blocks))) == sorted(rows(whole))
    reach = [(min(nodes), max(nodes)) for nodes in (block.node.tolist() for block in blocks) if nodes]
    assert all(one[1] < other[0] for one, other in itertools.pairwise(reach))


def test_edges():
    """Gaps at the window's ends stay, as do those as long as the limit; what is open is cut; no jobs, all idle."""
    busy, idle = swept([(0, 2, 18)], gap=4)
    assert rows(busy) == [(0, 2, 18)]
    assert (0, 0, 2) in rows(idle)
    assert rows(spans((0, 0, 5), (0, 8, 9)).union(3 * NS)) == [(0, 0, 5), (0, 8, 9)]
    assert rows(spans((0, 0, 5), (0, 7, 9)).union(3 * NS)) == [(0, 0, 9)]
    open_ended = NodeSpans(np.array([0], np.int32), np.array([OPEN_START_NS]), np.array([OPEN_END_NS]))
    assert rows(open_ended.within(0, LENGTH * NS).union()) == [(0, 0, LENGTH)]
    busy, idle = swept([])
    assert len(busy) == len(NodeSpans.concatenate([])) == 0
    assert rows(idle) == [(node, 0, LENGTH) for node in range(NODES)]
    assert (nanoseconds(1.5), nanoseconds(0.1)) == (1_500_000_000, 100_000_000)


@pytest.mark.parametrize(("start", "end"), [(5, 5), (6, 5), (0, OPEN_END_NS), (OPEN_START_NS, 0)])
def test_impossible_windows(start, end):
    """A window has a start before its end, in years that can be told; times that are said have their zone."""
    with pytest.raises(LogError, match=r"Expected the window to start before its end.*, got .*Z to .*Z\.$"):
        Window(start, end)
