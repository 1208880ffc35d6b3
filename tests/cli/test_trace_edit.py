"""`bftrainer trace edit`: windows, nodes, several logs, pseudonyms."""

from __future__ import annotations

import json

from bftrainer.nodelogs import read_node_log
from tests.importing import idle_of

START = 1612915200  # of evt.pkl: a and b are idle from 0 s to 30 s, c and d from 10 s to the end at 40 s


def idle(path):
    """Idle intervals of a node log, in seconds from the small world's start."""
    return idle_of(read_node_log(path), START)


def test_cut(call, here):
    """A window is cut out; the command is noted in the log."""
    done = call("trace", "edit", "evt.pkl", "--start", "2021-02-10T00:00:05", "--end", START + 20, "-o", "cut.parquet")
    assert (done.status, done.out) == (0, "cut.parquet: node log of 4 nodes, 0.00 h\n")
    assert idle(here / "cut.parquet") == {"a": [(5, 20)], "b": [(5, 20)], "c": [(10, 20)], "d": [(10, 20)]}
    (command,) = read_node_log(here / "cut.parquet").provenance["edits"]
    assert command.startswith("bftrainer trace edit evt.pkl --start")


def test_filter(call, here):
    """Nodes and idle intervals are picked."""
    words = ("--nodes", "a,b,c", "--exclude-nodes", "b", "--min-hole", "31s")
    done = call("trace", "edit", "evt.pkl", *words, "-o", "f.csv")
    assert done.status == 0
    assert idle(here / "f.csv") == {"a": [], "c": []}


def test_merge(call, here):
    """Parts are put together, and what is missing is said."""
    call("trace", "edit", "evt.pkl", "--end", START + 10, "-o", "one.csv")
    call("trace", "edit", "evt.pkl", "--start", START + 20, "-o", "two.csv")
    done = call("trace", "edit", "two.csv", "one.csv", "-o", "whole.parquet")
    assert done.status == 0
    assert done.err == "Note: 0.01 node-hours are told by no log, and count as busy.\n"
    assert idle(here / "whole.parquet")["a"] == [(0, 10), (20, 30)]
    assert idle(here / "whole.parquet")["c"] == [(20, 40)]


def test_anonymise(call, here):
    """Names become pseudonyms by a key that is made once."""
    done = call("trace", "edit", "evt.pkl", "--anonymise", "key", "-o", "shared.parquet")
    assert (done.status, done.out) == (0, "shared.parquet: node log of 4 nodes, 0.01 h\n")
    assert done.err == "Note: key: a new key; keep it to yourself, and for the next log.\n"
    again = call("trace", "edit", "evt.pkl", "--anonymise", "key", "-o", "again.parquet")
    assert again.err == ""
    shared = read_node_log(here / "shared.parquet")
    assert shared.nodes == read_node_log(here / "again.parquet").nodes
    assert sorted(idle_of(shared, START).values()) == sorted(idle(here / "evt.pkl").values())


def test_existing_files_are_spared(call, here):
    """Metadata beside a table are as precious as the table."""
    (here / "x.json").write_text("precious")
    assert call("trace", "edit", "evt.pkl", "--end", START + 10, "-o", "x.csv").status == 2
    assert call("trace", "edit", "evt.pkl", "--end", START + 10, "-o", "x.csv", "--force").status == 0
    assert json.loads((here / "x.json").read_text())["nodes"] == ["a", "b", "c", "d"]
