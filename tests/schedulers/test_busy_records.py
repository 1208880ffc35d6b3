"""Rows of busy nodes, records of them in columns, the spans they stand for, and the sweep that finds idle ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model import NS_PER_S as NS
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS, Window
from bftrainer.schedulers import busy_records
from bftrainer.schedulers.busy_records import BusyKind, BusyRows, extent_ns, line_sweep
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Reading
from bftrainer.schedulers.selected_nodes import places

NODES = [f"n{number}" for number in range(6)]
END = 110


@st.composite
def rows(draw):
    """Rows of start, end, nodes and kind."""
    found = []
    for start, length in draw(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), max_size=12)):
        nodes = draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=4))
        found.append((start, start + length, nodes, draw(st.sampled_from(list(BusyKind)))))
    return found


def records_of(some):
    """Rows that are written down, as records."""
    written = BusyRows()
    for number, (start, end, nodes, kind) in enumerate(some):
        written.add(start * NS, end * NS, written.add_list(nodes), job=number, kind=kind)
    return written.records()


def cells_of(some, chosen, kind=None):
    """Which seconds each of the chosen nodes is busy, for one reason or for any."""
    cells = np.zeros((len(chosen), END), dtype=bool)
    for start, end, nodes, of in some:
        for at, name in enumerate(chosen):
            cells[at, start:end] |= name in nodes and kind in (None, of)
    return cells


def dense(spans, nodes):
    """The same of spans."""
    cells = np.zeros((nodes, END), dtype=bool)
    for node, start, end in zip(spans.node.tolist(), spans.start_ns // NS, spans.end_ns // NS, strict=True):
        cells[node, start:end] = True
    return cells


@given(rows(), st.permutations(NODES), st.integers(1, 6), st.integers(1, 10), st.integers(0, 9), st.integers(0, 9))
def test_sweep_over_blocks(some, offered, count, at_a_time, gap, hole):
    """Idle is what nothing covers, without short gaps between spans and short holes, whatever the blocks."""
    records, chosen = records_of(some), offered[:count]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(busy_records, "SPANS_AT_A_TIME", at_a_time)
        swept = line_sweep(
            records.unions(places(records.names, chosen)), count, Window(0, END * NS), gap * NS, min_hole_ns=hole * NS
        )
    wanted = np.zeros((count, END), dtype=bool)
    for node, cells in enumerate(cells_of(some, chosen)):
        edges = np.flatnonzero(np.diff(np.concatenate(([True], cells, [True])).astype(int))).reshape(-1, 2)
        for start, end in edges.tolist():
            is_between = start > 0 and end < END
            wanted[node, start:end] = end - start >= max(hole, gap if is_between else 0)
    np.testing.assert_array_equal(dense(swept.idle, count), wanted)
    for kind in BusyKind:
        assert swept.busy_node_s.get(kind.name.lower(), 0) == cells_of(some, chosen, kind).sum()


@given(rows(), st.integers(0, 6), st.integers(0, 60), st.integers(1, 60))
def test_node_seconds_of_jobs(some, count, begin, length):
    """Jobs count in the window and on the chosen nodes, once for each job that holds a node."""
    records, chosen = records_of(some), NODES[:count]
    wanted = sum(
        len(set(chosen).intersection(nodes)) * max(0, min(end, begin + length) - max(start, begin))
        for start, end, nodes, kind in some
        if kind is BusyKind.JOB
    )
    window = Window(begin * NS, (begin + length) * NS)
    assert records.job_node_s(window, places(records.names, chosen)) == wanted


def test_frames():
    """Rows of a frame are written down like single ones; malformed lists are named by their place."""
    reading = Reading(ImportSettings())
    frame = pd.DataFrame({"start_ns": [0, 1, 2], "end_ns": [5, OPEN_END_NS, 6], "nodes": ["n[1-2]", "n3", "n["]})
    reading.take(frame.assign(partition=["a", "", "a"], job=["x", "y", "x"]))
    # A column `row` of a plug-in's own, which holds no rows of the log, names none.
    Reading(ImportSettings()).take(frame.assign(row=[7, 8, 9]))
    assert reading.tally.examples[0].startswith("row:2: ")
    records = reading.rows.records()
    assert (records.names, records.partitions) == (("n1", "n2", "n3"), ("a",))
    assert records["partition"].tolist() == [0, -1]
    assert records["is_open"].tolist() == [0, 1]
    assert records.sizes().tolist() == [2, 1]


def test_extent():
    """The extent of a log is that of the times it names; open ends name none."""
    written = BusyRows()
    for start, end, extent in (
        (OPEN_START_NS, OPEN_END_NS, None),
        (7, OPEN_END_NS, (7, 7)),
        (OPEN_START_NS, 3, (3, 7)),
    ):
        written.add(start, end, written.add_list("a"))
        assert extent_ns(written.records().rows.copy()) == extent
