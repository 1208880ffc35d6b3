"""Busy records in columns, and the spans they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model import NS_PER_S as NS
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS, NodeSpans, Window
from bftrainer.schedulers import busy_book, busy_records
from bftrainer.schedulers.busy_book import BusyBook
from bftrainer.schedulers.busy_records import BusyKind

NODES = [f"n{number}" for number in range(6)]


@st.composite
def row(draw):
    """Start, end, nodes, kind."""
    start = draw(st.integers(0, 50))
    nodes = draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=4))
    return start, start + draw(st.integers(1, 50)), nodes, draw(st.sampled_from(list(BusyKind)))


def book_of(rows):
    """A book with these rows."""
    book = BusyBook()
    for number, (start, end, nodes, kind) in enumerate(rows):
        book.add(start, end, book.nodes(",".join(nodes), lambda text: text.split(",")), number, kind)
    return book


@given(
    st.lists(row(), max_size=12),
    st.permutations(NODES),
    st.integers(1, 6),
    st.integers(1, 10),
    st.sampled_from([1, 2**40]),
)
def test_unions_by_blocks(rows, offered, kept, at_a_time, unit):
    """However little fits in memory at a time, each kind's union holds what any record of it does, node by node."""
    records = book_of([(start * unit, end * unit, *rest) for start, end, *rest in rows]).records()
    index = {name: at for at, name in enumerate(offered[:kept])}
    place = np.array([index.get(name, -1) for name in records.names], dtype=np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(busy_records, "SPANS_AT_A_TIME", at_a_time)
        patch.setattr(busy_records, "_NODES_AT_A_TIME", at_a_time)
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
        merged = NodeSpans(*(np.array(column, np.int64) for column in zip(*each, strict=True))).merged() if each else ()
        if each:
            columns = merged.node.tolist(), (merged.start_ns * unit).tolist(), (merged.end_ns * unit).tolist()
            wanted += [(kind, *span) for span in zip(*columns, strict=True)]
    assert sorted(found) == sorted(wanted)


@given(st.lists(row(), max_size=12), st.integers(0, 6), st.integers(0, 60), st.integers(1, 60))
def test_node_seconds_of_jobs(rows, kept, begin, length):
    """Jobs count in the window and on the chosen nodes, once for each job that holds a node."""
    records = book_of([(start * NS, end * NS, *rest) for start, end, *rest in rows]).records()
    chosen = set(NODES[:kept])
    place = np.array([NODES.index(name) if name in chosen else -1 for name in records.names], dtype=np.int32)
    wanted = sum(
        len(chosen.intersection(nodes)) * max(0, min(end, begin + length) - max(start, begin))
        for start, end, nodes, kind in rows
        if kind is BusyKind.JOB
    )
    assert records.job_node_s(Window(begin * NS, (begin + length) * NS), place) == wanted


def test_lists_are_read_once(monkeypatch):
    """A node list that comes again is not expanded again, as long as there is room to remember it."""
    monkeypatch.setattr(busy_book, "_LISTS_KNOWN", 2)
    read = []

    def names(text):
        read.append(text)
        return text.split(",")

    book = BusyBook()
    numbers = [book.nodes(text, names) for text in ("a,b", "a,b", "b,b,a", "c", "c", "a,b")]
    assert read == ["a,b", "b,b,a", "c", "a,b"]
    assert [book.size(number) for number in numbers] == [2, 2, 2, 1, 1, 2]
    assert book.records().names == ("a", "b", "c")


def test_repeated_records():
    """A record repeats another one if key and times are the same."""
    book = BusyBook()
    for start, end, key in ((0, 5, 1), (0, 5, 2), (0, 6, 1), (0, 5, 1), (1, 5, 1), (0, 5, 1)):
        book.add(start, end, book.node_set("a"), key)
    assert book.records().is_repeated().tolist() == [False, False, False, True, False, True]


def test_extent():
    """The extent of a log is that of the times it names; open ends name none."""
    book = BusyBook()
    assert book.records().extent_ns() is None
    book.add(OPEN_START_NS, OPEN_END_NS, book.node_set("a"), 0)
    assert book.records().extent_ns() is None
    book.add(7, OPEN_END_NS, book.node_set("a"), 0)
    assert book.records().extent_ns() == (7, 7)
    book.add(OPEN_START_NS, 3, book.node_set("a"), 0)
    assert book.records().extent_ns() == (3, 7)


def test_partitions():
    """Nodes of a partition are those that ran its jobs; too many partitions are none."""
    book = BusyBook()
    for nodes, partition in ((["a", "b"], "batch"), (["b", "c"], "gpu"), (["b"], "batch"), (["d"], "")):
        book.add(0, 1, book.node_set(nodes), 0, partition=book.partition(partition))
    assert book.records().partition_nodes(2) == {"batch": ("a", "b"), "gpu": ("b", "c")}
    assert book.records().partition_nodes(1) == {}
    assert BusyBook().records().partition_nodes(9) == {}
