"""Rows of busy nodes, records of them in columns, and the spans they stand for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model import NS_PER_S as NS
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS, NodeSpans, Window
from bftrainer.schedulers import busy_records
from bftrainer.schedulers.busy_records import BusyKind, BusyRows, extent_ns

NODES = [f"n{number}" for number in range(6)]


@st.composite
def row(draw):
    """Start, end, nodes, kind."""
    start = draw(st.integers(0, 50))
    nodes = draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=4))
    return start, start + draw(st.integers(1, 50)), nodes, draw(st.sampled_from(list(BusyKind)))


def rows_of(rows):
    """Rows that are written down."""
    written = BusyRows()
    for number, (start, end, nodes, kind) in enumerate(rows):
        written.add(start, end, written.lists.parse(",".join(nodes)), number, kind)
    return written


@given(
    st.lists(row(), max_size=12),
    st.permutations(NODES),
    st.integers(1, 6),
    st.integers(1, 10),
    st.sampled_from([1, 2**40]),
)
def test_unions_by_blocks(rows, offered, kept, at_a_time, unit):
    """However little fits in memory at a time, each kind's union holds what any record of it does, node by node."""
    records = rows_of([(start * unit, end * unit, *rest) for start, end, *rest in rows]).records()
    index = {name: at for at, name in enumerate(offered[:kept])}
    place = np.array([index.get(name, -1) for name in records.names], dtype=np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(busy_records, "SPANS_AT_A_TIME", at_a_time)
        blocks = list(records.unions(place))
    found, last = [], -1
    for block in blocks:
        nodes = [node for spans in block.values() for node in spans.node.tolist()]
        assert min(nodes, default=last + 1) > last
        last = max(nodes, default=last)
        for kind, spans in block.items():
            found += [(kind, *some) for some in zip(spans.node.tolist(), spans.start_ns, spans.end_ns, strict=True)]
    wanted = []
    for kind in BusyKind:
        some = [(start, end, nodes) for start, end, nodes, of in rows if of == kind]
        each = [(index[name], start, end) for start, end, nodes in some for name in set(nodes) if name in index]
        merged = NodeSpans(*(np.array(column, np.int64) for column in zip(*each, strict=True))).union() if each else ()
        if each:
            columns = merged.node.tolist(), (merged.start_ns * unit).tolist(), (merged.end_ns * unit).tolist()
            wanted += [(kind, *span) for span in zip(*columns, strict=True)]
    assert sorted(found) == sorted(wanted)


@given(st.lists(row(), max_size=12), st.integers(0, 6), st.integers(0, 60), st.integers(1, 60))
def test_node_seconds_of_jobs(rows, kept, begin, length):
    """Jobs count in the window and on the chosen nodes, once for each job that holds a node."""
    records = rows_of([(start * NS, end * NS, *rest) for start, end, *rest in rows]).records()
    chosen = set(NODES[:kept])
    place = np.array([NODES.index(name) if name in chosen else -1 for name in records.names], dtype=np.int32)
    wanted = sum(
        len(chosen.intersection(nodes)) * max(0, min(end, begin + length) - max(start, begin))
        for start, end, nodes, kind in rows
        if kind is BusyKind.JOB
    )
    assert records.job_node_s(Window(begin * NS, (begin + length) * NS), place) == wanted


def test_frames():
    """Rows of a frame are written down like single ones; malformed lists are named by their place."""
    rows = BusyRows()
    frame = pd.DataFrame({"start_ns": [0, 1, 2], "end_ns": [5, OPEN_END_NS, 6], "nodes": ["n[1-2]", "n3", "n["]})
    assert list(rows.extend(frame.assign(partition=["a", "", "a"], job=["x", "y", "x"]))) == [2]
    records = rows.records()
    assert (records.names, records.partitions) == (("n1", "n2", "n3"), ("a",))
    assert records["partition"].tolist() == [0, -1]
    assert records["is_open"].tolist() == [0, 1]
    assert records.sizes().tolist() == [2, 1]


def test_extent():
    """The extent of a log is that of the times it names; open ends name none."""
    rows = BusyRows()
    assert extent_ns(rows.frame()) is None
    rows.add(OPEN_START_NS, OPEN_END_NS, rows.lists.add("a"), 0)
    assert extent_ns(rows.frame()) is None
    rows.add(7, OPEN_END_NS, rows.lists.add("a"), 0)
    assert extent_ns(rows.frame()) == (7, 7)
    rows.add(OPEN_START_NS, 3, rows.lists.add("a"), 0)
    assert extent_ns(rows.frame()) == (3, 7)
