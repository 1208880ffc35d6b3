"""`bftrainer import` from the command line: files in, node log, data quality and one table out."""

from __future__ import annotations

import json
import resource

import pyarrow.parquet as pq
import pytest

from bftrainer.nodelogs import read_node_log
from bftrainer.schedulers.import_settings import LOG_FORMATS
from bftrainer.schedulers.reading import importer_names
from tests.cli.conftest import assert_matches
from tests.tiny import contents, spawn

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
    assert [entry["path"] for entry in story["inputs"]] == ["sacct.txt", "events.txt"]
    assert story["zone"] == "Europe/Berlin"
    figures = json.loads((files / "idle.quality.json").read_text())
    assert (figures["records"], figures["kept"], figures["nodes_unseen"]) == (3, 2, 1)
    assert figures["busy_node_s"] == {"down": 4 * 3600, "job": 16 * 3600}


def test_what_is_imported_can_be_replayed(call, files):
    """A node log from a scheduler's log is an input of a replay."""
    assert call("import", "--format", "slurm", "sacct.txt", *WINDOW, "-o", "idle.csv.gz").status == 0
    done = call("replay", "-ndmap", "idle.csv.gz", "-bdfn", "tasks.toml", "--solver", "dp", "--json")
    assert done.status == 0
    assert (done.json["nodes_total"], done.json["tasks_completed"]) == (2, 2)
    assert (files / "idle.quality.json").exists()


def test_json(call, files):
    """With --json the figures are all that is printed, and they are those of the file."""
    done = call("import", "--format", "swf", "log.swf", "--window", "asked", "-o", "idle.parquet", "--json")
    figures = done.json
    assert figures.pop("output") == "idle.parquet"
    assert figures == json.loads((files / "idle.quality.json").read_text())
    assert figures["over_capacity_share"] == 0.0


def test_auto(call, files):
    """Auto says which format it took, and refuses options that this format does not take."""
    done = call("import", "log.swf", "--window", "asked", "-o", "a.parquet")
    assert done.err == "Format: swf (Standard Workload Format)\n"
    done = call("import", "sacct.txt", *WINDOW, "--suspended", "idle", "-o", "b.parquet")
    assert (done.status, done.err) == (0, "Format: slurm (rows of sacct -P, or Slurm's JSON)\n")
    refused = call("import", "log.swf", "--columns", "a,b", "-o", "c.parquet")
    assert refused.status == 2
    assert refused.err.endswith("no effect: --columns (not of the format swf).\n")
    assert not (files / "c.parquet").exists()


def test_existing_files_are_spared(call, files):
    """Neither a node log nor its figures are replaced unless told to."""
    for name in ("idle.parquet", "idle.quality.json"):
        (files / name).write_text("precious")
        refused = call("import", "--format", "swf", "log.swf", "--window", "asked", "-o", "idle.parquet")
        assert refused.status == 2
        assert_matches(f"{name}: .*--force", refused.err)
        assert (files / name).read_text() == "precious"
        (files / name).unlink()
    (files / "idle.parquet").write_text("old")
    assert (
        call("import", "--format", "swf", "log.swf", "--window", "asked", "-o", "idle.parquet", "--force").status == 0
    )


@pytest.mark.long
def test_bytes_are_deterministic(files):
    """The same command gives the same bytes, in another process and with other hashes."""
    words = ("import", "--format", "slurm", "sacct.txt", *WINDOW, "-o", "idle.parquet", "--force")
    written = []
    for seed in ("1", "2"):
        done = spawn("bftrainer", *words, cwd=files, env={"PYTHONHASHSEED": seed})
        assert done.status == 0, done
        written.append([(files / name).read_bytes() for name in ("idle.parquet", "idle.quality.json")])
    assert written[0] == written[1]


BERLIN = ("slurm", "sacct.txt", *WINDOW)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("slurm", "absent.txt"), "absent.txt: No such file."),
        (("slurm", "sacct.txt"), "Missing --tz: times such as 2026-09-01T08:00:00 are local"),
        (("slurm", "sacct.txt", "--tz", "Europe/Berln"), "got 'Europe/Berln'. Did you mean 'Europe/Berlin'?"),
        (("slurm", "sacct.txt", "--tz", "UTC"), "Nothing of the log can be trusted: it has too few jobs"),
        (("slurm", "sacct.txt", "--tz", "UTC"), "still run; --window asked takes it all the same."),
        ((*BERLIN, "--nodes", "n[1-999999999]"), "--nodes: Expected at most 1,000,000 nodes"),
        ((*BERLIN, "--nodes", "m1"), "Expected an inventory with nodes of the log (n1, n2)"),
        ((*BERLIN, "--nodes", "empty"), "empty: Expected an inventory of nodes, got an empty one."),
        ((*BERLIN, "--max-bad", "much"), "Expected a share such as 1% or 0.01, got 'much'."),
        ((*BERLIN, "--max-bad", "101%"), "Expected --max-bad between 0 and 100 %, got 101 %."),
        (("slurm", "log.swf", *WINDOW), "log.swf:1: Expected columns between bars (sacct -P), got '; MaxNodes: 4'."),
        (("slurm", "noise", *WINDOW), "noise:1: Expected text, got binary data."),
        (("slurm", "short.gz", *WINDOW), "short.gz: Expected a whole archive, got a damaged one"),
        (("swf", "sacct.txt"), "sacct.txt:1: Expected 18 numbers separated by blanks"),
        (("auto", "tasks.toml"), "tasks.toml: Expected a log of a format that is known"),
    ],
)  # fmt: skip
def test_bad_input(call, files, words, message):
    """Bad input is one line, exit status 2, and nothing is written."""
    import gzip

    (files / "noise").write_bytes(b"\x00\x01\x02")
    (files / "empty").write_text("# nothing\n")
    (files / "short.gz").write_bytes(gzip.compress(SACCT.encode())[:-10])
    before = contents(files)
    done = call("import", "--format", *words, "-o", "idle.parquet")
    assert done.status == 2, done
    assert done.out == ""
    error = done.err.splitlines()[-1]
    assert error.startswith("Error: ")
    assert message in error
    assert "Traceback" not in done.err
    assert contents(files) == before


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("place", [".", "/", "..", "idle.txt"])
def test_output_must_promise_a_form(call, place):
    """The output's name is looked at before the log is read."""
    refused = call("import", "--format", "swf", "absent.swf", "-o", place)
    assert refused.status == 2
    assert refused.err == f"Error: {place}: Expected a name ending in .parquet, .csv, .csv.gz or .pkl.\n"


def test_help_names_every_format(call):
    """Formats and importers are the same, and help lists them without importing them; unknown ones are refused."""
    assert tuple(sorted(LOG_FORMATS)) == importer_names()
    out = call("import", "--help").out
    assert [name for name in LOG_FORMATS if f"  {name} " not in out] == []
    refused = call("import", "--format", "slrum", "x", "-o", "x.csv")
    assert refused.status == 2


def test_help_is_quick(files):
    """Help of `bftrainer` and of an import answers in a fraction of a second."""
    for words in (("--help",), ("import", "--help")):
        took = []
        for _ in range(3):
            began = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert spawn("bftrainer", *words, cwd=files).status == 0
            ended = resource.getrusage(resource.RUSAGE_CHILDREN)
            took.append(ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime)
        assert min(took) < 1.0


@pytest.mark.parametrize(("text", "status"), [("12x26,80x18", 0), ("2", 0), ("12x", 2), ("0", 2), ("x", 2)])
@pytest.mark.usefixtures("files")
def test_processors_of_nodes(call, text, status):
    """Processors of a node are a number, or one for each kind of node."""
    done = call(
        "import", "--format", "swf", "log.swf", "--procs-per-node", text, "--window", "asked", "-o", "some.parquet"
    )
    assert done.status == status
    assert ("--procs-per-node" in done.err) == (status == 2)


HEADER = "JobIDRaw|Start|End|NNodes|NodeList\n"
GOOD = "".join(f"{number}|{number}00|{number}50|1|n1\n" for number in range(1, 10))


@pytest.mark.parametrize(
    ("row", "reason", "message"),
    [
        ("10|1000|1050|1", "last line cut off", "sacct.txt:11: Expected 5 columns, got 4"),
        ("10|1000|1050|1\n", "wrong number of columns", "sacct.txt:11: Expected 5 columns, got 4"),
        ("10|2026-02-30T00:00:00|1050|1|n1\n", "impossible time", "sacct.txt:11: Expected times such as"),
        ("10|1000|1e99|1|n1\n", "impossible time", "sacct.txt:11: Expected times such as"),
        ("10|1000|1050|1|n[1-999999999]\n", "unreadable node list", "sacct.txt:11: Expected at most 1,000,000 nodes"),
    ],
)
def test_unusable_records(call, here, row, reason, message):
    """A bad record is dropped and counted where that is allowed, and named and refused where there are too many."""
    (here / "sacct.txt").write_text(HEADER + GOOD + row)
    window = ("--start", "1970-01-01T00:01:40", "--end", "1970-01-01T00:20:00", "--tz", "UTC", "--window", "asked")
    words = ("import", "--format", "slurm", "sacct.txt", *window, "-o", "x.parquet")
    refused = call(*words)
    assert (refused.status, refused.out) == (2, "")
    assert message in refused.err
    assert "1 of 10 records are unusable, more than --max-bad 1 %" in refused.err
    assert not (here / "x.parquet").exists()
    done = call(*words, "--max-bad", "10%")
    assert done.status == 0
    assert f"dropped                1 {reason}" in done.out
    assert "unusable               1 (10.00 %), the first: sacct.txt:11: Expected" in done.out


def test_end_before_start(call, here):
    """A record that ends before it starts is dropped and counted, and stops nothing."""
    (here / "sacct.txt").write_text(HEADER + "1|100|150|1|n1\n2|150|100|1|n1\n")
    window = ("--start", "1970-01-01T00:01:40", "--end", "1970-01-01T00:20:00", "--window", "asked")
    done = call("import", "--format", "slurm", "sacct.txt", *window, "-o", "x.parquet")
    assert done.status == 0
    assert "dropped                1 end before start" in done.out


def test_nodes_outside_the_inventory(call, here):
    """Nodes of the log that the inventory has not are named, at most ten of them, and the rest is imported."""
    (here / "sacct.txt").write_text(HEADER + "1|100|200|20|n[1-20]\n")
    words = (
        "import",
        "--format",
        "slurm",
        "sacct.txt",
        "--start",
        "1970-01-01",
        "--end",
        "1970-01-02",
        "--nodes",
        "n[1-5]",
    )
    done = call(*words, "--window", "asked", "-o", "x.parquet")
    assert done.status == 0
    assert "15 nodes, left out: n6, n7, n8, n9, n10, n11, n12, n13, n14, n15 and 5 more" in done.out


def test_windows_outside_the_log(call, here):
    """A window in which the log cannot tell anything is refused, and the log's own times are told."""
    (here / "sacct.txt").write_text(HEADER + GOOD)
    refused = call(
        "import", "--format", "slurm", "sacct.txt", "--start", "2026-01-01", "--end", "2026-02-01", "-o", "x.parquet"
    )
    assert refused.status == 2
    assert refused.err.startswith("Error: Expected a window within the log, got 2026-01-01T00:00:00Z to 2026-02-01")
    assert "from 1970-01-01T00:01:40Z to 1970-01-01T00:15:50Z." in refused.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("slurm", "sacct.txt"), "use `bftrainer import --format slurm FILES`"),
        (("my.module:Importer", "sacct.txt"), "use `bftrainer import --format my.module:Importer FILES`"),
        (("sge", "accounting"), "Logs of sge make a table"),
        (("--format", "cobalt", "sacct.txt"), "--format table"),
        (("--unseen", "idle", "sacct.txt"), "--unseen (without an inventory"),
    ],
)
def test_former_calls_say_what_replaces_them(call, files, words, message):
    """A format where the first file belongs, one that is gone, and an option without effect."""
    del files
    done = call("import", *words, "-o", "idle.parquet")
    assert done.status == 2
    assert message in done.err
