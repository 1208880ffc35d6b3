"""`bftrainer import` from the command line: files in, node log, data quality and one table out."""

import json

import pyarrow.parquet as pq
import pytest

from bftrainer.nodelogs import read_node_log
from bftrainer.schedulers.import_settings import LOG_FORMATS
from bftrainer.schedulers.reading import get_importer
from tests.cli.conftest import check_refusal

SACCT = """\
JobIDRaw|Partition|Start|End|NNodes|NodeList|JobName
1|batch|2026-09-01T08:00:00|2026-09-01T09:00:00|2|n[1-2]|a|b
2|batch|2026-09-01T10:00:00|Unknown|1|n1|c
3|batch|Unknown|Unknown|0|None assigned|d
"""
SWF = "; MaxNodes: 4\n; UnixStartTime: 1788220800\n1 0 0 600 2 -1 -1 2 -1 -1 1 1 1 1 1 1 -1 -1\n"
WINDOW = ("--start", "2026-09-01", "--end", "2026-09-02", "--tz", "Europe/Berlin", "--window", "asked")


@pytest.fixture
def files(here):
    """A log of each kind in the working directory."""
    (here / "sacct.txt").write_text(SACCT)
    (here / "log.swf").write_text(SWF)
    (here / "events.txt").write_text("NodeName|TimeStart|TimeEnd\nn2|2026-09-01T20:00:00|Unknown\n")
    return here


def test_import_slurm(call, files):
    """An administrator's command gives a node log, a table, and the table's figures beside the log."""
    words = ("import", "--format", "slurm", "sacct.txt", "--nodes", "n[1-3]", "--downtimes", "events.txt", *WINDOW)
    done = call(*words, "-o", "idle.parquet")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "Import of slurm: 3 records read, 2 kept"
    assert "dropped                1 no nodes" in lines
    assert "window                 2026-08-31T22:00:00 to 2026-09-01T22:00:00 UTC, 24.00 h" in lines
    assert "nodes                  2, of them 2 named by the log; 1 that it never names are absent" in lines
    assert "busy                   41.67 % (node-hours: down 4.0, jobs 16.0)" in lines
    assert lines[-1] == "idle.parquet: node log of 2 nodes; idle.quality.json: the figures above"
    log = read_node_log(files / "idle.parquet")
    assert [(time_s / 3600, joined, left) for time_s, joined, left in log.rows()] == [
        (0.0, [0, 1], []),
        (8.0, [], [0, 1]),
        (9.0, [0, 1], []),
        (10.0, [], [0]),
        (20.0, [], [1]),
    ]
    meta = {key.decode(): value for key, value in pq.read_schema(files / "idle.parquet").metadata.items()}
    story = json.loads(meta["bftrainer.provenance"])
    assert story["command"] == f"bftrainer {' '.join(words)} -o idle.parquet".replace("n[1-3]", "'n[1-3]'")
    assert json.loads((files / "idle.quality.json").read_text())["busy_node_s"] == {"down": 4 * 3600, "job": 16 * 3600}


def test_the_zone_of_times_is_told(call, here):
    """Without one, local times are taken for UTC, and the table says so."""
    (here / "counts.txt").write_text("2026-09-01, 00:03:41, 4\n2026-09-01, 02:03:26, 3\n")
    for zone, said in (((), "none given (--tz): times without one are UTC"), (("--tz", "+02:00"), "+02:00")):
        done = call("import", "--format", "counts", "counts.txt", *zone, "-o", "a.parquet", "--force")
        assert f"zone                   {said}" in done.out.splitlines()


def test_auto(call, files):
    """Auto says which format it took, and refuses options that this format does not take."""
    done = call("import", "log.swf", "--window", "asked", "-o", "a.parquet")
    assert done.err == "Format: swf (Standard Workload Format)\n"
    done = call("import", "sacct.txt", *WINDOW, "--suspended", "idle", "-o", "b.parquet")
    assert (done.status, done.err) == (0, "Format: slurm (rows of sacct -P, or Slurm's JSON)\n")
    refused = call("import", "log.swf", "--columns", "a,b", "-o", "c.parquet")
    assert (refused.status, (files / "c.parquet").exists()) == (2, False)
    assert refused.err.endswith("no effect: --columns (not of the format swf).\n")


def test_existing_files_are_spared(call, files):
    """Neither a node log nor its figures are replaced unless told to."""
    words = ("import", "--format", "swf", "log.swf", "--window", "asked", "-o", "idle.parquet")
    for name in ("idle.quality.json", "idle.parquet"):
        (files / name).write_text("precious")
        check_refusal(call(*words), f"{name}: ", "--force")
        assert (files / name).read_text() == "precious"
        (files / name).rename(files / "old")
    (files / "old").rename(files / "idle.parquet")
    assert call(*words, "--force").status == 0


def test_help_names_every_format(call):
    """Formats and importers are the same, and help lists them without importing them; unknown ones are refused."""
    assert [get_importer(name).name for name in LOG_FORMATS] == list(LOG_FORMATS)
    out = call("import", "--help").out
    assert [name for name in LOG_FORMATS if f"  {name} " not in out] == []


def test_unusable_records(call, here):
    """A bad record is dropped and counted where that is allowed, and named and refused where there are too many."""
    good = "".join(f"{number}|{number}00|{number}50|1|n1\n" for number in range(1, 10))
    window = ("--start", "1970-01-01T00:01:40", "--end", "1970-01-01T00:20:00", "--tz", "UTC", "--window", "asked")
    words = ("import", "--format", "slurm", "sacct.txt", *window, "-o", "x.parquet")
    for row, reason, message in (
        ("10|1000|1050|1\n", "wrong number of columns", "sacct.txt:11: Expected 5 columns, got 4"),
        ("10|1000|1050|1|n[1-999999999]\n", "unreadable node list", "sacct.txt:11: Expected at most 1,000,000 nodes"),
    ):
        (here / "sacct.txt").write_text(f"JobIDRaw|Start|End|NNodes|NodeList\n{good}{row}")
        check_refusal(call(*words), message, "1 of 10 records are unusable, more than --max-bad 1 %")
        assert not (here / "x.parquet").exists()
        done = call(*words, "--max-bad", "10%", "--force")
        assert f"dropped                1 {reason}" in done.out
        assert "unusable               1 (10.00 %), the first: sacct.txt:11: Expected" in done.out
        for name in ("x.parquet", "x.quality.json"):
            (here / name).unlink()


JOBS = """\
JobIDRaw|Start|End|NNodes|NodeList
1|1788220800|1788224400|2|n[1-2]
2|1788228000|1788229000|1|n1
3|1788232000|1788240000|2|n[1-2]
"""


def test_offer_after_is_the_same_everywhere(call, here):
    """An import, an edit and a replay that wait an hour offer the same; what was not checked is said in the table."""
    (here / "sacct.txt").write_text(JOBS)
    words = ("sacct.txt", "--start", 1788220800, "--end", 1788240000, "--window", "asked", "-o")
    late = ("--offer-after", 3600)
    assert call("import", *words, "idle.parquet").status == call("import", *words, "late.parquet", *late).status == 0
    assert call("trace", "edit", "idle.parquet", *late, "-o", "edited.parquet").status == 0
    imported, edited = (list(read_node_log(here / name).rows()) for name in ("late.parquet", "edited.parquet"))
    # n2 is idle from 3600 s to 11200 s; n1 twice, for less than an hour each time.
    assert imported == [(7200, [1], []), (11_200, [], [1])]
    assert str(imported) == str(edited)
    replay = ("replay", "-bdfn", "tasks.toml", "--solver", "dp", "--json", "-ndmap")
    given = call(*replay, "idle.parquet", *late, "-o", "run").json
    assert given["idle_node_s"] == call(*replay, "late.parquet", "-o", "other").json["idle_node_s"] > 0
    assert given["settings"]["offer_after_s"] == 3600
    assert call("audit", "run").status == 0
    shown = call(*(word for word in replay if word != "--json"), "idle.parquet").out
    assert any("cannot be trusted" in note for note in given["node_log_notes"])
    assert all(note in shown for note in given["node_log_notes"])
