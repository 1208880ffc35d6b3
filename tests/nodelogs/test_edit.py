"""Cutting, filtering and merging node logs, and hiding their names."""

import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bftrainer.errors import LogError, SettingsError
from bftrainer.model import NodeLog
from bftrainer.nodelogs import edit, read_node_log, write_node_log
from bftrainer.nodelogs.edit import (
    anonymous_log,
    filter_log,
    merge_logs,
    partitions_of,
    pseudonyms,
    select_window,
)
from bftrainer.nodelogs.node_spans import Window, log_of_idle
from tests.importing import idle_of
from tests.nodelogs.test_intervals import spans
from tests.strategies import node_logs

NS = 10**9
KEY = b"k" * 32


def log_of(start, end, idle, nodes="abc", **provenance):
    """A log of nodes and their idle intervals in seconds."""
    rows = sorted((nodes.index(name), first, last) for name, spans in idle.items() for first, last in spans)
    return log_of_idle(nodes, Window(start * NS, end * NS), spans(*rows), provenance)


LOG = log_of(0, 100, {"a": [(0, 100)], "b": [(10, 20), (40, 90)], "c": [(95, 100)]}, partitions={"p": "a,b", "q": "c"})


def test_windows():
    """A cut log has what was idle within its window, and no row beyond it."""
    log = select_window(LOG, 15 * NS, 50 * NS)
    assert (log.start_ns, log.end_ns, log.nodes) == (15 * NS, 50 * NS, LOG.nodes)
    assert idle_of(log) == {"a": [(15, 50)], "b": [(15, 20), (40, 50)], "c": []}
    assert idle_of(select_window(LOG, None, 50 * NS))["b"] == [(10, 20), (40, 50)]
    with pytest.raises(SettingsError, match=r"Expected a start within the log's window, 1970-.*00Z to 1970-.*40Z, got"):
        select_window(LOG, -1, None)
    with pytest.raises(SettingsError, match="Expected an end within the log's window"):
        select_window(LOG, 50 * NS, 50 * NS)


def test_notes():
    """Notes of a part of a log say, once, that they are of the whole."""
    log = log_of(0, 100, {"a": [(0, 100)], "b": [(10, 20)]}, notes=["for 9 days no job starts."])
    said = ["for 9 days no job starts. (Said of the log that this is a part of.)"]
    cut = select_window(log, None, 50 * NS)
    assert cut.notes == select_window(cut, 10 * NS, None).notes == said
    assert filter_log(log, ["a"]).notes == select_window(merge_logs([log, log]).log, None, 50 * NS).notes == said
    strange = log_of(0, 100, {"a": [(0, 100)]}, notes=3, merged=[7])  # provenance is free
    assert select_window(strange, 10 * NS, None).notes == strange.notes == []
    assert select_window(log, None, None).notes == filter_log(log, min_hole_ns=1).notes == log.notes


def test_filter():
    """A filtered log has the nodes that are asked for, in their order, and partitions of them."""
    assert idle_of(filter_log(LOG, nodes=("c", "a"))) == {"a": [(0, 100)], "c": [(95, 100)]}
    log = filter_log(LOG, exclude=("a",))
    assert (log.nodes, log.provenance["partitions"]) == (("b", "c"), {"p": "b", "q": "c"})
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


def test_merging():
    """Months are one log, and so are machines; where logs disagree a node is busy, which is counted."""
    early = log_of(0, 50, {"a": [(0, 50)], "b": [(20, 30)]}, "ab", partitions={"p": "a"})
    late = log_of(60, 100, {"a": [(60, 70)], "c": [(60, 100)]}, "ac", partitions={"p": "c"})
    done = merge_logs([late, early])
    assert (done.log.start_ns, done.log.end_ns) == (0, 100 * NS)
    assert idle_of(done.log) == {"a": [(0, 50), (60, 70)], "c": [(60, 100)], "b": [(20, 30)]}
    assert (done.disputed_node_s, done.untold_node_s) == (0, 10 + 50 + 60)
    assert (done.log.provenance["partitions"], len(done.log.provenance["merged"])) == ({"p": "a,c"}, 2)
    assert idle_of(merge_logs([early, log_of(50, 60, {"a": [(50, 55)]}, "a")]).log)["a"] == [(0, 55)]
    done = merge_logs([log_of(0, 50, {"a": [(10, 40)]}, "a"), log_of(20, 100, {"a": [(30, 60)]}, "a")])
    assert idle_of(done.log) == {"a": [(10, 20), (30, 40), (50, 60)]}
    assert done.disputed_node_s == 10 + 10


@given(node_logs(), st.floats(0.1, 0.9))
def test_what_is_edited_and_undone_is_the_same(log, share):
    """So are a log merged with itself, one that is cut and merged again, and one of which all is kept."""
    assume(log.end_ns - log.start_ns > 10)
    middle = log.start_ns + int((log.end_ns - log.start_ns) * share)
    for logs in ([log, log], [select_window(log, None, middle), select_window(log, middle, None)]):
        done = merge_logs(logs)
        assert (done.disputed_node_s, done.untold_node_s) == (0, 0)
        assert (done.log.nodes, done.log.start_ns, done.log.end_ns) == (log.nodes, log.start_ns, log.end_ns)
        assert idle_of(done.log) == idle_of(log)
    before, *after = (
        [(time, *map(list, changes)) for time, *changes in one.rows() if any(map(len, changes))]
        for one in (log, select_window(log, None, None), filter_log(log, log.nodes))
    )
    assert after == [before, before]  # to the changes in its last instant


def test_pseudonyms(monkeypatch):
    """They depend on kind, name and key, and on nothing else; two names of one log never get the same one."""
    names = pseudonyms(KEY, "node", ["a", "b"])
    assert names == pseudonyms(KEY, "node", ["b", "a"])
    others = {pseudonyms(KEY, "name", "a")["a"], names["b"], pseudonyms(b"l" * 32, "node", "a")["a"]}
    assert names["a"] not in others
    monkeypatch.setattr(edit, "_DIGITS", 1)
    with pytest.raises(LogError, match="take another key"):
        pseudonyms(KEY, "node", (f"n{number}" for number in range(100)))


@given(node_logs())
def test_an_anonymous_log_keeps_its_story(log):
    """Under other names the nodes are idle at the same times."""
    hidden = anonymous_log(log, KEY)
    assert hidden.nodes == tuple(sorted(hidden.nodes))
    names = pseudonyms(KEY, "node", log.nodes)
    assert {names[name]: spans for name, spans in idle_of(log).items()} == idle_of(hidden)
    assert (hidden.start_ns, hidden.end_ns) == (log.start_ns, log.end_ns)


def test_nothing_of_the_site_is_left(tmp_path):
    """Neither names nor paths, commands, checksums or zones are in what is written."""
    story = {
        "command": "bftrainer import --format slurm /secret/path",
        "inputs": [{"path": "/secret/path", "sha256": "secret"}],
        "zone": "Secret/Zone",
        "inventory": "secret[1-2]",
        "partitions": {"secretive": "secret1"},
        "edits": ["secret"],
        "format": "slurm",
        "min_gap_s": 1.0,
    }
    log = NodeLog(("secret1", "secret2"), 0, 100, np.array([0]), np.array([1], np.int32), np.array([True]), story)
    write_node_log(tmp_path / "shared.csv", anonymous_log(log, KEY))
    written = (tmp_path / "shared.csv").read_text() + (tmp_path / "shared.json").read_text()
    assert "secret" not in written.lower()
    names = pseudonyms(KEY, "node", log.nodes)
    story = json.loads((tmp_path / "shared.json").read_text())["provenance"]
    assert (story["anonymised"], story["format"], story["min_gap_s"]) == (True, "slurm", 1.0)
    assert list(story["partitions"].values()) == [names["secret1"]]
    assert read_node_log(tmp_path / "shared.csv").nodes == tuple(sorted(names.values()))
