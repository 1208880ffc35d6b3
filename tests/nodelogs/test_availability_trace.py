"""Counts, changes, and the logs they amount to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import NodeLogError
from bftrainer.nodelogs.availability_trace import AvailabilityTrace, ChangeTrace, CountTrace, churned
from tests.strategies import node_logs

S = 10**9


def counts(*rows: tuple[int, int]) -> CountTrace:
    """A count trace of (second, count) rows."""
    times, values = zip(*rows, strict=True)
    return CountTrace(np.array(times, dtype=np.int64) * S, np.array(values, dtype=np.int64))


def test_counts_become_nodes_last_in_first_out():
    """Of two nodes the one that came last leaves first; a row without change is kept as such."""
    log = counts((0, 1), (10, 2), (20, 2), (30, 1), (40, 3)).log()
    assert log.nodes == ("n0001", "n0002", "n0003")
    rows = [(time_s, joined, left) for time_s, joined, left in log.rows()]
    assert rows == [(0.0, [0], []), (10.0, [1], []), (30.0, [], [1]), (40.0, [1, 2], [])]
    assert log.unchanged_ns.tolist() == [20 * S]
    assert (log.start_ns, log.end_ns) == (0, 40 * S)


def test_of_one_time_the_last_count_holds():
    """Several rows of one time are allowed, and the log has what the last one says."""
    log = counts((0, 2), (0, 1), (10, 4), (10, 0)).log()
    assert [(time_s, joined, left) for time_s, joined, left in log.rows()] == [
        (0.0, [0], []),
        (10.0, [], [0]),
    ]


rows = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), min_size=1, max_size=12)


@given(rows)
def test_counts_survive_the_log(drawn):
    """From counts to nodes and back the counts are the same at all times."""
    drawn.sort(key=lambda row: row[0])
    trace = counts(*drawn)
    back = CountTrace.of(trace.log())
    held = dict(drawn)
    assert dict(zip((back.time_ns // S).tolist(), back.count.tolist(), strict=True)) == held


@given(node_logs())
def test_counts_of_a_log_are_those_of_its_rows(log):
    """The count trace of a log counts its nodes row by row."""
    live = 0
    expected = {}
    for time_s, joined, left in log.rows():
        live += len(joined) - len(left)
        expected[log.start_ns + round(time_s * S)] = live
    trace = CountTrace.of(log)
    found = dict(zip(trace.time_ns.tolist(), trace.count.tolist(), strict=True))
    assert {time: found[time] for time in expected} == expected
    assert (found[log.start_ns], found[log.end_ns]) == (expected.get(log.start_ns, 0), live)


def test_additions_carry_the_earlier_time_and_falls_the_later():
    """A rise is dated by the row before it, a fall by the row that shows it."""
    trace = counts((0, 1), (10, 4), (20, 2), (30, 2))
    assert (trace.additions().time_ns // S).tolist() == [0]
    assert trace.additions().number.tolist() == [3]
    assert (trace.falls().time_ns // S).tolist() == [20]
    assert trace.falls().number.tolist() == [2]


def test_events_of_each_kind():
    """A spot trace counts single nodes, a count trace its rows, a node log its instants, wherever they are kept."""
    changes = [(10 * S, 0, 2), (20 * S, 1, 0)]
    spot = churned((0, 30 * S), 1, changes, provenance={"availability": "spot"})
    plain = churned((0, 30 * S), 1, changes)
    assert (AvailabilityTrace.of_log(spot).kind, AvailabilityTrace.of_log(spot).events) == ("spot", 4)
    assert (AvailabilityTrace.of_log(plain).kind, AvailabilityTrace.of_log(plain).events) == ("nodes", 4)
    rows = counts((0, 1), (10, 2), (20, 2))
    assert AvailabilityTrace.of_counts(rows).events == AvailabilityTrace.of_log(rows.log()).events == 3


def test_recorded_terminations_stand_before_falls():
    """Beside a count trace, what was recorded as taken counts; else its falls do."""
    rows = counts((0, 5), (10, 4))
    recorded = ChangeTrace(np.array([5 * S]), np.array([3]))
    assert AvailabilityTrace.of_counts(rows).terminations.number.tolist() == [1]
    assert AvailabilityTrace.of_counts(rows, recorded).terminations.number.tolist() == [3]


def test_churn_gives_names_back():
    """At one time nodes are taken first; those that come get other names, and free ones are used again later."""
    log = churned((0, 9 * S), 2, [(1 * S, 2, 1), (2 * S, 0, 2)])
    rows = [(time_s, joined, left) for time_s, joined, left in log.rows()]
    assert rows == [(0.0, [0, 1], []), (1.0, [2], [0, 1]), (2.0, [0, 1], [])]


def test_churn_takes_what_there_is():
    """More nodes than there are cannot be taken."""
    with pytest.raises(NodeLogError, match=r"00:00:01Z: Expected to take at most the 2 nodes there are, got 3\."):
        churned((0, 9 * S), 2, [(1 * S, 3, 0)])


@given(st.data())
def test_churn_keeps_count(data):
    """Whoever is picked, as many nodes are there as the numbers say."""
    live = data.draw(st.integers(0, 4))
    initial, changes, expected = live, [], []
    for step in range(1, data.draw(st.integers(0, 8)) + 1):
        taken = data.draw(st.integers(0, live))
        added = data.draw(st.integers(0, 3))
        live += added - taken
        changes.append((step * S, taken, added))
        expected.append(live)
    log = churned((0, 10 * S), initial, changes, lambda there: data.draw(st.integers(0, there - 1)))
    found = CountTrace.of(log)
    at = np.searchsorted(found.time_ns, [time for time, _, _ in changes], side="right") - 1
    assert found.count[at].tolist() == expected
