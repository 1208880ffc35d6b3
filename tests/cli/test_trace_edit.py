"""`bftrainer trace edit`: windows, nodes, several logs, pseudonyms."""

from __future__ import annotations

import json

import pytest

from bftrainer.nodelogs import read_node_log, write_node_log
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from tests.importing import idle_of
from tests.tiny import contents

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


def test_cut_in_a_zone(call, here):
    """Times are those of the zone."""
    words = ("--start", "2021-02-10T01:00:20", "--tz", "Europe/Berlin")
    assert call("trace", "edit", "evt.pkl", *words, "-o", "x.csv").status == 0
    assert idle(here / "x.csv")["a"] == [(20, 30)]


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


def test_round_trip_of_an_import(call, here):
    """An imported log goes to the legacy pickle and back: nodes, window, rows and intervals are the same."""
    rows = "1|1970-01-01T00:01:30|1970-01-01T00:02:00|n1\n2|1970-01-01T00:02:30|1970-01-01T00:03:00|n2\n"
    (here / "sacct.txt").write_text(f"JobID|Start|End|NodeList\n{rows}")
    given = ImportSettings(start="1970-01-01T00:01:40", end="1970-01-01T00:03:20", zone="UTC", window="asked")
    log = import_log("slurm", [here / "sacct.txt"], given).log
    write_node_log(here / "log.parquet", log)
    for source, target in (("log.parquet", "log.pkl"), ("log.pkl", "again.parquet")):
        assert call("convert", source, target).status == 0
    again = read_node_log(here / "again.parquet")
    assert (again.nodes, again.start_ns, again.end_ns) == (log.nodes, log.start_ns, log.end_ns)
    assert again.time_ns.tolist() == log.time_ns.tolist()
    assert again.node.tolist() == log.node.tolist()
    assert again.idle.tolist() == log.idle.tolist()


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


def test_anonymise_a_part(call, here):
    """What is not to be shared is left out on the way."""
    words = ("edit", "evt.pkl", "--anonymise", "key", "--exclude-nodes", "a,c", "--min-hole", 30)
    assert call("trace", *words, "-o", "x.csv").out == "x.csv: node log of 2 nodes, 0.01 h\n"
    assert sorted(idle(here / "x.csv").values()) == [[(0, 30)], [(10, 40)]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("edit", "evt.pkl", "--tz", "UTC", "-o", "x.csv"), "--tz (there is no --start or --end)"),
        (("edit", "evt.pkl", "--start", "2026-01-01", "-o", "x.csv"), "Expected a start within the log's window"),
        (("edit", "evt.pkl", "--start", "noon", "-o", "x.csv"), "--start: Expected a time such as"),
        (("edit", "absent.pkl", "--start", "2026-01-01", "-o", "x.csv"), "absent.pkl: No such file."),
        (("edit", "evt.pkl", "--nodes", "z", "-o", "x.csv"), "Expected nodes of the log (a, b, c, d), got z."),
        (("edit", "evt.pkl", "--partition", "p", "-o", "x.csv"), "Unknown partition 'p'"),
        (
            ("edit", "evt.pkl", "--min-hole", "10x", "-o", "x.csv"),
            "length of time such as 90s, 10min or 2h, got '10x'",
        ),
        (("edit", "evt.pkl", "-o", "x.txt"), "x.txt: Expected a name ending in .parquet"),
        (("edit", "evt.pkl", "-o", "tasks.toml"), "tasks.toml: Expected a name ending in .parquet"),
        (("edit", "evt.pkl", "--end", "2021-02-11", "-o", "evt.pkl"), "evt.pkl: Would overwrite NODE_LOGS evt.pkl"),
        (("edit", "evt.pkl", "--anonymise", "evt.pkl", "-o", "x.csv"), "evt.pkl: Expected a key"),
        (("edit", "evt.pkl", "--anonymise", "key", "-o", "x.txt"), "x.txt: Expected a name ending in .parquet"),
        (("edit", "absent.csv", "--anonymise", "key", "-o", "x.csv"), "absent.csv: No such file."),
        (("edit", "evt.pkl", "--anonymise", "key", "--partition", "p", "-o", "x.csv"), "Unknown partition 'p'"),
        (("export", "evt.pkl", "-o", "x.csv"), "use `bftrainer convert`"),
        (("edit", "tasks.toml", "--anonymise", "key", "-o", "x.csv"), "tasks.toml: Expected a node log"),
    ],
)
def test_bad_input(call, here, words, message):
    """Bad input is one line, exit status 2, and nothing is written."""
    before = contents(here)
    done = call("trace", *words)
    assert (done.status, done.out) == (2, "")
    error = done.err.splitlines()[-1]
    assert error.startswith("Error: ")
    assert message in error
    assert contents(here) == before


def test_existing_files_are_spared(call, here):
    """Metadata beside a table are as precious as the table."""
    (here / "x.json").write_text("precious")
    assert call("trace", "edit", "evt.pkl", "--end", START + 10, "-o", "x.csv").status == 2
    assert call("trace", "edit", "evt.pkl", "--end", START + 10, "-o", "x.csv", "--force").status == 0
    assert json.loads((here / "x.json").read_text())["nodes"] == ["a", "b", "c", "d"]
