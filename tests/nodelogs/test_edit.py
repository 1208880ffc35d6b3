"""Cutting, filtering and merging node logs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bftrainer.errors import LogError, SettingsError
from bftrainer.model import NodeLog
from bftrainer.nodelogs.edit import filter_log, merge_logs, partitions_of, record_command, select_window
from bftrainer.nodelogs.node_spans import NodeSpans, Window, log_of_idle
from tests.importing import idle_of
from tests.strategies import node_logs

NS = 10**9


def log_of(start, end, idle, nodes="abc", **provenance):
    """A log of nodes and their idle intervals in seconds."""
    rows = sorted((nodes.index(name), first, last) for name, spans in idle.items() for first, last in spans)
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    spans = NodeSpans(np.array(columns[0], np.int32), *(np.array(column, np.int64) * NS for column in columns[1:]))
    return log_of_idle(nodes, Window(start * NS, end * NS), spans, provenance)


LOG = log_of(0, 100, {"a": [(0, 100)], "b": [(10, 20), (40, 90)], "c": [(95, 100)]}, partitions={"p": "a,b", "q": "c"})


def test_cut():
    """A cut log has what was idle within its window, and no row beyond it."""
    log = select_window(LOG, 15 * NS, 50 * NS)
    assert (log.start_ns, log.end_ns, log.nodes) == (15 * NS, 50 * NS, LOG.nodes)
    assert idle_of(log) == {"a": [(15, 50)], "b": [(15, 20), (40, 50)], "c": []}
    assert idle_of(select_window(LOG, None, 50 * NS))["b"] == [(10, 20), (40, 50)]
    assert idle_of(select_window(LOG, None, None)) == idle_of(LOG)
    with pytest.raises(SettingsError, match=r"Expected a start within the log's window, 1970-.*00Z to 1970-.*40Z, got"):
        select_window(LOG, -1, None)
    with pytest.raises(SettingsError, match="Expected an end within the log's window"):
        select_window(LOG, 50 * NS, 50 * NS)


def test_notes_of_a_part():
    """Notes of a part of a log say, once, that they are of the whole; those of a log that is left whole stay."""
    log = log_of(0, 100, {"a": [(0, 100)], "b": [(10, 20)]}, notes=["for 9 days no job starts."])
    said = ("for 9 days no job starts. (Said of the log that this is a part of.)",)
    assert select_window(log, None, 50 * NS).notes == said
    assert select_window(select_window(log, None, 50 * NS), 10 * NS, None).notes == said
    assert filter_log(log, ["a"]).notes == said
    assert select_window(merge_logs([log, log]).log, None, 50 * NS).notes == said
    assert select_window(log, None, None).notes == filter_log(log, min_hole_ns=1).notes == log.notes


def test_filter():
    """A filtered log has the nodes that are wanted, in their order, and partitions of them."""
    assert idle_of(filter_log(LOG, nodes=("c", "a"))) == {"a": [(0, 100)], "c": [(95, 100)]}
    log = filter_log(LOG, exclude=("a",))
    assert log.nodes == ("b", "c")
    assert log.provenance["partitions"] == {"p": "b", "q": "c"}
    assert filter_log(LOG, partitions=("p",)).nodes == ("a", "b")
    assert filter_log(LOG, nodes=("b", "c"), partitions=("p",)).nodes == ("b",)
    assert idle_of(filter_log(LOG, min_hole_ns=10 * NS)) == {"a": [(0, 100)], "b": [(10, 20), (40, 90)], "c": []}
    assert idle_of(filter_log(LOG, min_hole_ns=10 * NS + 1))["b"] == [(40, 90)]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"nodes": ("a", "x", "y")}, r"Expected nodes of the log \(a, b, c\), got x, y\."),
        ({"exclude": ("x",)}, r"Expected nodes of the log \(a, b, c\), got x\."),
        ({"exclude": ("a", "b", "c")}, r"No nodes are left\."),
        ({"partitions": ("r",)}, r"'r'\. Known: p, q\."),
        ({"nodes": ("a",), "partitions": ("q",)}, r"No nodes are left\."),
    ],
)
def test_filters_that_leave_nothing(asked, message):
    """Names that are not in the log, and filters that leave nothing, are refused."""
    with pytest.raises(SettingsError, match=message):
        filter_log(LOG, **asked)


def test_partitions_that_are_none():
    """Provenance is free: what it calls partitions may be something else."""
    with pytest.raises(LogError, match="Expected the provenance's partitions to be hostlists"):
        partitions_of(log_of(0, 9, {}, partitions=["a"]))
    assert partitions_of(log_of(0, 9, {})) == {}


def test_merging_in_time():
    """Two months are one log; between them no node is idle."""
    early = log_of(0, 50, {"a": [(0, 50)], "b": [(20, 30)]}, "ab")
    late = log_of(60, 100, {"a": [(60, 70)], "c": [(60, 100)]}, "ac")
    done = merge_logs([late, early])
    assert (done.log.start_ns, done.log.end_ns) == (0, 100 * NS)
    assert idle_of(done.log) == {"a": [(0, 50), (60, 70)], "c": [(60, 100)], "b": [(20, 30)]}
    assert (done.disputed_node_s, done.untold_node_s) == (0, 10 + 50 + 60)
    adjacent = merge_logs([early, log_of(50, 60, {"a": [(50, 55)]}, "a")])
    assert idle_of(adjacent.log)["a"] == [(0, 55)]


def test_merging_machines():
    """Two machines are one log of both."""
    one = log_of(0, 50, {"a": [(0, 9)]}, "a", partitions={"p": "a"})
    done = merge_logs([one, log_of(0, 50, {"b": [(5, 50)]}, "b", partitions={"p": "b"})])
    assert idle_of(done.log) == {"a": [(0, 9)], "b": [(5, 50)]}
    assert done.log.provenance["partitions"] == {"p": "a,b"}
    assert len(done.log.provenance["merged"]) == 2
    assert (done.disputed_node_s, done.untold_node_s) == (0, 0)


def test_merging_logs_that_disagree():
    """Where logs overlap a node is idle if all of them say so; the rest is counted."""
    done = merge_logs([log_of(0, 50, {"a": [(10, 40)]}, "a"), log_of(20, 100, {"a": [(30, 60)]}, "a")])
    assert idle_of(done.log) == {"a": [(10, 20), (30, 40), (50, 60)]}
    assert done.disputed_node_s == 10 + 10


@given(node_logs())
def test_merging_a_log_with_itself(log):
    """Nothing new is learnt from a log that is read twice."""
    assume(log.start_ns < log.end_ns)
    done = merge_logs([log, log])
    assert idle_of(done.log) == idle_of(log)
    assert (done.disputed_node_s, done.untold_node_s) == (0, 0)


@given(node_logs(), st.floats(0.1, 0.9))
def test_cut_and_merged_again(log, share):
    """The two parts of a log make the whole one."""
    assume(log.end_ns - log.start_ns > 10)
    middle = log.start_ns + int((log.end_ns - log.start_ns) * share)
    done = merge_logs([select_window(log, None, middle), select_window(log, middle, None)])
    assert idle_of(done.log) == idle_of(log)
    assert (done.log.nodes, done.log.start_ns, done.log.end_ns) == (log.nodes, log.start_ns, log.end_ns)


@given(node_logs())
def test_nothing_left_out(log):
    """A log of which all is kept is the same, to the changes in its last instant."""
    assume(log.start_ns < log.end_ns)
    for again in (select_window(log, None, None), filter_log(log, log.nodes)):
        assert [(time, *map(list, rest)) for time, *rest in again.rows() if any(map(len, rest))] == [
            (time, *map(list, rest)) for time, *rest in log.rows() if any(map(len, rest))
        ]


def test_edits_are_noted():
    """What was done to a log stands in its provenance, in order."""
    assert record_command(record_command(LOG, "one"), "two").provenance["edits"] == ["one", "two"]
    assert isinstance(record_command(LOG, "one"), NodeLog)
