"""Node logs: their rows as arrays, cut, selected and checked, against plain Python; their zone."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import LogError
from bftrainer.model import NodeLog, node_log

NS = 10**9
Change = tuple[int, int, bool]


@st.composite
def shuffled_logs(draw: st.DrawFn) -> NodeLog:
    """Nodes that flip at a few instants, some before the window; those of one instant in any order."""
    names = tuple(f"n{number}" for number in range(draw(st.integers(1, 6))))
    flips = [sorted(draw(st.sets(st.integers(-3, 12), max_size=8))) for _ in names]
    changes = [(time, node, k % 2 == 0) for node, times in enumerate(flips) for k, time in enumerate(times)]
    by_time = sorted(draw(st.permutations(changes)), key=lambda change: change[0])
    start_ns = draw(st.sampled_from([0, -NS, 10**18 + 7]))
    time, node, idle = map(list, zip(*by_time, strict=True)) if by_time else ([], [], [])
    return NodeLog(
        nodes=names,
        start_ns=start_ns,
        end_ns=start_ns + 12 * NS,
        time_ns=np.array(time, dtype=np.int64) * NS + start_ns,
        node=np.array(node, dtype=np.int32),
        idle=np.array(idle, dtype=np.bool_),
    )


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the smallest logs span blocks."""
    monkeypatch.setattr(node_log, "BLOCK", 3)
    monkeypatch.setattr(node_log, "_CHUNK", 3)


def changes(log: NodeLog) -> list[Change]:
    """Transitions as tuples."""
    return list(zip(log.time_ns.tolist(), log.node.tolist(), log.idle.tolist(), strict=True))


def opened(found: list[Change], start_ns: int) -> list[Change]:
    """Transitions with those up to an instant replaced by the nodes that are idle then."""
    state = {node: idle for time, node, idle in found if time <= start_ns}
    return [(start_ns, node, True) for node in sorted(state) if state[node]] + [c for c in found if c[0] > start_ns]


def plain_rows(log: NodeLog) -> Iterator[tuple[float, list[int], list[int]]]:
    """Rows, one transition after another."""
    found = changes(log)
    if found and found[0][0] < log.start_ns:
        found = opened(found, log.start_ns)
    for time, group in itertools.groupby(sorted(found), key=lambda change: change[0]):
        states = [(node, idle) for _, node, idle in group]
        joined, left = ([node for node, idle in states if idle == state] for state in (True, False))
        yield (time - log.start_ns) / NS, joined, left


@given(shuffled_logs())
def test_rows_are_those_of_plain_python(log: NodeLog) -> None:
    """Whatever the order within an instant, a row has its nodes in order; a log made of rows has the same ones."""
    assert list(log.rows()) == list(plain_rows(log))
    again = NodeLog.from_rows(
        node_log.Rows.from_times(log.time_ns), provenance={}, unchanged_ns=log.unchanged_ns,
        nodes=log.nodes, start_ns=log.start_ns, end_ns=log.end_ns, node=log.node, idle=log.idle,
    )  # fmt: skip
    assert list(again.rows()) == list(log.rows())
    assert changes(again) == changes(log)


@given(shuffled_logs(), st.integers(0, 11))
def test_parts_are_those_of_plain_python(log: NodeLog, at: int) -> None:
    """A log from an instant on, up to it, and of some nodes has the transitions that it should."""
    instant = log.start_ns + at * NS
    expected = opened(changes(log), instant) if at else changes(log)
    assert changes(log.since(instant)) == expected
    assert changes(log.ending(instant + NS)) == [c for c in changes(log) if c[0] <= instant + NS]
    assert changes(log.select_nodes(0, 1)) == [c for c in changes(log) if c[1] == 0]


@given(shuffled_logs(), st.data())
def test_the_first_fault_is_found(log: NodeLog, data: st.DataObject) -> None:
    """A transition repeated, or turned round, is refused by its place, whatever comes before it."""
    found = changes(log)
    if not found:
        return
    place = data.draw(st.integers(0, len(found) - 1))
    time, node, idle = found[place]
    repeated = [*found[: place + 1], (time, node, not idle), *found[place + 1 :]]
    with pytest.raises(LogError, match=rf"^transition {place + 1}: Expected one transition per node and time"):
        made(log, repeated)
    kept = [c for number, c in enumerate(found) if c[1] != node or number <= place]
    kept[kept.index((time, node, idle))] = (time, node, not idle)
    had = [c for c in kept if c[1] == node]
    what = "a node's first transition to be to idle" if len(had) == 1 else "every transition to change the state"
    with pytest.raises(LogError, match=rf"^transition {kept.index(had[-1])}: Expected {what}"):
        made(log, kept)


def made(log: NodeLog, found: list[Change]) -> NodeLog:
    """The log with other transitions."""
    columns: list[Any] = [np.array(column) for column in zip(*found, strict=True)]
    return NodeLog(log.nodes, log.start_ns, log.end_ns, columns[0], columns[1].astype(np.int32), columns[2])


@given(st.integers(-(2**63), 2**63 - 1), st.sets(st.integers(0, 2**64 - 1)))
def test_seconds_are_rounded_once(start_ns: int, since: set[int]) -> None:
    """Seconds are those of Python's division of whole numbers, whatever the span."""
    times = [time for each in sorted(since) if (time := start_ns + each) < 2**63]
    idle = np.arange(len(times)) % 2 == 0
    log = NodeLog(("a",), start_ns, 2**63 - 1, np.array(times, dtype=np.int64), np.zeros(len(times), np.int32), idle)
    assert [time_s for time_s, _, _ in log.rows()] == [(time - start_ns) / NS for time in times]


def empty(nodes=("a",), **provenance):
    """A log in which no node is ever idle."""
    none = np.array([], dtype=np.int64)
    return NodeLog(nodes, 0, 10, none, none.astype(np.int32), none.astype(np.bool_), provenance)


def test_log_without_transitions_has_no_rows():
    """A window in which no node is ever idle is a log all the same, with no rows; its nodes have names."""
    assert list(empty().rows()) == []
    with pytest.raises(LogError, match=r"nodes to be names, got ''"):
        empty(("a", ""))


def test_selected_nodes_keep_the_rows():
    """A log seen through some of its nodes skips the rows that change nothing, as it did."""
    times = np.array([0, 5], dtype=np.int64)
    log = NodeLog(("a", "b"), 0, 9, times, np.array([0, 1], np.int32), np.array([True, True]), {}, np.array([2, 3]))
    assert log.select_nodes(0, 1).skip_rows(2).start_ns == log.skip_rows(2).start_ns == 3


def test_the_zone_is_the_one_that_was_given():
    """Of merged logs, if it is one; what is no text, or differs, is unknown."""
    oslo = {"zone": "Europe/Oslo"}
    assert empty(**oslo).zone == empty(merged=[oslo, {"zone": None}]).zone == "Europe/Oslo"
    others = empty(), empty(zone=[1]), empty(merged=[oslo, {"zone": "UTC"}])
    assert [log.zone for log in others] == [None, None, None]
