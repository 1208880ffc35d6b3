"""The Standard Workload Format: what a line means, and what has to be told beside it."""

from __future__ import annotations

import pytest

from bftrainer.errors import LogError, SettingsError
from bftrainer.schedulers import idle_spans
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.swf import SwfImporter
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Reading

HEADER = "; Version: 2.2\n; UnixStartTime: 1000\n; MaxNodes: 8\n; MaxProcs: 16\n"


def line(number=1, submit=0, wait=0, run=10, used=4, asked=-1, status=1, queue=-1, partition=-1, more=""):
    """One line of 18 fields, and what may follow them."""
    return (
        f" {number} {submit} {wait} {run} {used} -1 -1 {asked} -1 -1 {status} 1 1 1 {queue} {partition} -1 -1{more}\n"
    )


def read(tmp_path, text, **settings):
    """The reading of a text, and its jobs as (start, end, nodes) in seconds."""
    (tmp_path / "log.swf").write_text(text)
    reading = Reading.begun(ImportSettings(**({"max_bad": 1.0} | settings)))
    SwfImporter().read([tmp_path / "log.swf"], reading)
    demand = reading.demand
    if demand is None:
        return reading, []
    columns = (demand.start_ns / 1e9, demand.end_ns / 1e9, demand.nodes)
    return reading, list(zip(*(column.tolist() for column in columns), strict=True))


def test_a_job(tmp_path):
    """A job runs from the log's start, its submission and its wait on, on as many nodes as its processors fill."""
    reading, jobs = read(tmp_path, HEADER + line(submit=5, wait=2.5, run=10, used=5))
    assert jobs == [(1007.5, 1017.5, 3)]
    assert reading.capacity == 8
    assert reading.window_ns == (1_007_500_000_000, 1_017_500_000_000)


@pytest.mark.parametrize(("used", "asked", "nodes"), [(4, 8, 2), (-1, 8, 4), (0, 8, 4), (1, -1, 1)])
def test_processors(tmp_path, used, asked, nodes):
    """Processors that were used count, else those that were asked for."""
    assert read(tmp_path, HEADER + line(used=used, asked=asked))[1] == [(1000, 1010, nodes)]


@pytest.mark.parametrize("status", [0, 1, 5, -1])
def test_every_status_counts(tmp_path, status):
    """Whatever became of a job, it was on its nodes as long as it ran."""
    assert len(read(tmp_path, HEADER + line(status=status))[1]) == 1


def test_parts_of_jobs(tmp_path):
    """Parts of a job count unless a line tells of the whole, wherever it stands."""
    text = line(1, run=10, status=2) + line(1, run=30, status=1) + line(1, submit=20, run=10, status=3)
    text += line(2, run=5, status=2) + line(2, submit=9, run=6, status=4)
    reading, jobs = read(tmp_path, HEADER + text)
    assert [job[:2] for job in jobs] == [(1000, 1030), (1000, 1005), (1009, 1015)]
    assert dict(reading.tally.dropped) == {"part of a job that has a summary line": 2}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (line(2, run=-1), "never ran"),
        (line(2, run=0), "zero length"),
        (line(2, run=1e-10), "zero length"),
        (line(2, used=-1, asked=-1), "no processors"),
    ],
)
def test_lines_that_say_nothing(tmp_path, text, reason):
    """Jobs that held nothing are dropped and counted, and are not bad."""
    reading, jobs = read(tmp_path, HEADER + line() + text, max_bad=0.0)
    assert len(jobs) == 1
    assert dict(reading.tally.dropped) == {reason: 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (line(2, wait=-1), "no waiting time"),
        (line(2, submit=-5), "impossible time"),
        (line(2, run=1e12), "impossible time"),
        ("1 2 3\n", "wrong number of fields"),
        (line(2).replace(" 10 ", " ten "), "wrong number of fields"),
        (line(2).replace(" 10 ", " nan "), "wrong number of fields"),
        ("2 0 0", "last line cut off"),
    ],
)
def test_lines_that_are_unusable(tmp_path, text, reason):
    """Malformed lines are counted with their place, and stop the import when they are too many."""
    reading, jobs = read(tmp_path, HEADER + line() + text)
    assert len(jobs) == 1
    assert dict(reading.tally.dropped) == {reason: 1}
    assert "log.swf:6: Expected" in reading.tally.examples[0]
    with pytest.raises(LogError, match=r"log.swf:6: Expected .*1 of 2 records are unusable"):
        read(tmp_path, HEADER + line() + text, max_bad=0.1)[0].tally.check(at_end=True)


def test_epoch_submissions(tmp_path):
    """Submissions as large as epochs are epochs, whatever the header says of the log's start."""
    for start in ("; UnixStartTime: 0\n", "; UnixStartTime: 1640995200\n", ""):
        text = f"{start}; MaxNodes: 8\n{line(submit=1641021254, wait=10)}"
        assert read(tmp_path, text)[1] == [(1641021264, 1641021274, 4)]


def test_relative_submissions(tmp_path):
    """Without a start in the header times count from the settings' start, or from 1970, which is noted."""
    reading, jobs = read(tmp_path, f"; MaxNodes: 8\n{line(submit=5)}")
    assert jobs == [(5, 15, 4)]
    assert any("count from 1970-01-01" in note for note in reading.notes)
    reading, jobs = read(tmp_path, f"; MaxNodes: 8\n{line(submit=5)}", start="2026-09-01", zone="Europe/Berlin")
    assert jobs == [(1788213605, 1788213615, 4)]


def test_headers_may_be_indented_or_absent(tmp_path):
    """Comments may stand anywhere; without a header the settings tell the machine."""
    text = f"  ;  MaxNodes: 8 (of 10)\n;MaxProcs:16\n; just words\n;\n\n{line()}; UnixStartTime: 1000\n"
    reading, jobs = read(tmp_path, text)
    assert (reading.capacity, jobs) == (8, [(1000, 1010, 2)])
    reading, jobs = read(tmp_path, line(), nodes="6")
    assert (reading.capacity, jobs) == (6, [(0, 10, 4)])
    assert "each processor counts as a node" in " ".join(reading.notes)
    with pytest.raises(SettingsError, match=r"--nodes.* MaxNodes nor MaxProcs"):
        read(tmp_path, line())


def test_processors_of_a_node(tmp_path):
    """Processors of a node are told by the header if they are whole, else by the settings."""
    uneven = "; MaxNodes: 7\n; MaxProcs: 16\n"
    with pytest.raises(SettingsError, match="--procs-per-node: MaxProcs 16 is no multiple of MaxNodes 7"):
        read(tmp_path, uneven + line())
    assert read(tmp_path, uneven + line(), procs_per_node=3)[1] == [(0, 10, 2)]
    reading, jobs = read(tmp_path, f"; MaxProcs: 16\n{line()}", procs_per_node=4)
    assert (reading.capacity, jobs) == (4, [(0, 10, 1)])


def test_the_zone(tmp_path):
    """TimeZoneString is the zone of times in the settings; TimeZone is not."""
    reading, _ = read(tmp_path, HEADER + "; TimeZone: 3600\n; TimeZoneString: Europe/Stockholm\n" + line())
    assert reading.clock.zone == "Europe/Stockholm"
    assert read(tmp_path, HEADER + "; TimeZone: 3600\n" + line())[0].clock.zone is None
    reading, _ = read(tmp_path, HEADER + "; TimeZoneString: Far/Away\n" + line())
    assert "'Far/Away' is no zone" in reading.notes[0]
    assert read(tmp_path, HEADER + "; TimeZoneString: Europe/Paris\n" + line(), zone="UTC")[0].clock.zone == "UTC"


def test_logs_without_waits(tmp_path):
    """Without waits submission is start, if the machine could have done that."""
    fits = line(1, wait=-1, used=16) + line(2, submit=10, wait=-1, used=16)
    reading, jobs = read(tmp_path, HEADER + fits)
    assert jobs == [(1000, 1010, 8), (1010, 1020, 8)]
    assert "jobs are taken to start when they are submitted" in reading.notes[0]
    with pytest.raises(
        LogError, match=r"log.swf: Expected waiting times .* more than the 8 nodes for 5 % of the time\."
    ):
        read(tmp_path, HEADER + fits + line(3, submit=19, wait=-1, run=1, used=1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (line().strip().replace(" ", ";"), r"log.swf:1: Expected 18 numbers separated by blanks, got '1;0"),
        (line().strip().replace(" ", ","), r"log.swf:1: Expected 18 numbers separated by blanks, got '1,0"),
        ("; UnixStartTime: 0\nJobID|Start|End\n", r"log.swf:2: Expected 18 numbers separated by blanks, got 'JobID"),
        (HEADER, r"No job ran among 0 records\."),
        (HEADER + line(run=-1), r"No job ran among 1 records\."),
    ],
)
def test_files_that_are_none(tmp_path, text, message):
    """Another separator, another format, and logs in which nothing ran are refused with the reason."""
    with pytest.raises(LogError, match=message):
        read(tmp_path, text + "\n")


def test_node_ids_that_are_empty(tmp_path):
    """An id that is missing leaves the others, which are not to be trusted; a list without any is refused."""
    text = HEADER + line(1, used=2, more=" {4,}") + line(2, used=1, more=" {,}")
    reading, _ = read(tmp_path, text)
    records = reading.rows.records()
    assert records.names == ("4",)
    assert records["kind"].tolist() == [BusyKind.UNKNOWN]
    assert dict(reading.tally.dropped) == {"no node ids": 1}


def test_node_ids(tmp_path):
    """An extension names a node for each core: then nodes are known by name."""
    text = line(1, used=3, more=" {4,4,7}", queue=2) + line(2, used=1, more=" { 5 }", partition=1)
    text += line(3, used=2, more=" {6}") + line(4)
    reading, jobs = read(tmp_path, HEADER + text)
    records = reading.rows.records()
    assert jobs == []
    assert records.names == ("4", "7", "5", "6")
    assert records["kind"].tolist() == [BusyKind.JOB, BusyKind.JOB, BusyKind.UNKNOWN]
    assert records.partitions == ("2", "1")
    assert dict(reading.tally.dropped) == {"no node ids": 1}


def test_rows_may_be_unsorted(tmp_path):
    """The window reaches from the first start to the last end, wherever they stand."""
    reading, _ = read(tmp_path, HEADER + line(1, submit=50) + line(2, submit=0) + line(3, submit=20))
    assert reading.window_ns == (1000 * 10**9, 1060 * 10**9)


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (["; Version: 2.2", "; MaxNodes: 5"], True),
        ([line().strip()], True),
        (["; a comment", line().strip()], True),
        (["1 2 3"], False),
        (["; a comment"], False),
        ([], False),
        (["1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;17;18"], True),
        (["1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;17"], False),
        (["a;b;c;d;e;f;g;h;i;j;k;l;m;n;o;p;q;r"], False),
    ],
)
def test_recognition(lines, wanted):
    """A log is known by the keys of its header, or by 18 numbers."""
    assert SwfImporter().recognises(lines) is wanted


def test_nodes_of_several_kinds(tmp_path):
    """Jobs fill nodes of several kinds in their order; the inventory has to have as many."""
    jobs = "".join(
        f"{number} 0 0 60 {used} -1 -1 {used} -1 -1 1 1 1 1 1 1 -1 -1\n" for number, used in ((1, 13), (2, 81))
    )
    (tmp_path / "log.swf").write_text(f"; UnixStartTime: 1788249600\n{jobs}")
    kinds = ((12, 3), (80, 1))
    done = import_log("swf", [tmp_path / "log.swf"], ImportSettings(procs_per_node=kinds, window="asked"))
    assert len(done.log.nodes) == 4
    assert done.quality.idle_node_s == 0
    assert "jobs fill whole nodes, of several sizes, in order" in " ".join(done.quality.notes)
    with pytest.raises(SettingsError, match=r"Expected --nodes with 4 nodes, as --procs-per-node says, got 5\."):
        import_log("swf", [tmp_path / "log.swf"], ImportSettings(procs_per_node=kinds, nodes="5", window="asked"))
    with pytest.raises(SettingsError, match="Expected --procs-per-node >= 1"):
        ImportSettings(procs_per_node=((12, 0),))


def test_blocks(tmp_path, monkeypatch):
    """A large machine's log has blocks as nodes; node-seconds remain those of the machine."""
    text = "; UnixStartTime: 1788249600\n; MaxNodes: 1024\n; MaxProcs: 1024\n"
    text += "1 0 0 60 512 -1 -1 512 -1 -1 1 1 1 1 1 1 -1 -1\n2 0 0 30 256 -1 -1 256 -1 -1 1 1 1 1 1 1 -1 -1\n"
    (tmp_path / "log.swf").write_text(text)
    given = ImportSettings(window="asked")
    whole = import_log("swf", [tmp_path / "log.swf"], given).quality
    monkeypatch.setattr(idle_spans, "_MOST_SPANS", 500)
    done = import_log("swf", [tmp_path / "log.swf"], given)
    assert (whole.nodes, done.quality.nodes, done.quality.nodes_per_block) == (1024, 4, 256)
    assert (done.quality.idle_node_s, done.quality.busy_node_s) == (whole.idle_node_s, whole.busy_node_s)
    assert (done.quality.idle_share, done.log.provenance["nodes_per_block"]) == (whole.idle_share, 256)
    named = import_log("swf", [tmp_path / "log.swf"], ImportSettings(nodes="c[1-1024]", window="asked"))
    assert named.log.nodes[0] == "c1"


def test_thousands_between_commas(tmp_path):
    """`1,024` is a number of nodes, not one."""
    header = "; UnixStartTime: 1000\n; MaxNodes: 1,024\n; MaxProcs: 2,048\n"
    reading, jobs = read(tmp_path, header + line(used=4))
    assert (reading.capacity, jobs[0][2]) == (1024, 2)


def test_processors_per_node_of_a_header_that_counts_processors(tmp_path):
    """Where MaxNodes is MaxProcs, two processors a node make half as many nodes, not twice the machine."""
    header = "; UnixStartTime: 1000\n; MaxNodes: 16\n; MaxProcs: 16\n"
    reading, jobs = read(tmp_path, header + line(used=5), procs_per_node=2)
    assert (reading.capacity, jobs[0][2]) == (8, 3)


def test_parts_that_wait_from_the_end_of_the_part_before(tmp_path):
    """Of a job without a summary line, later parts have no time of submission: they wait since the part before."""
    text = (
        "; UnixStartTime: 1788220800\n; MaxNodes: 4\n; MaxProcs: 4\n"
        "1 10 5 100 2 -1 -1 2 -1 -1 2 1 1 1 1 1 -1 -1\n1 -1 50 30 2 -1 -1 2 -1 -1 3 1 1 1 1 1 -1 -1\n"
    )
    (tmp_path / "log.swf").write_text(text)
    reading = Reading.begun(ImportSettings())
    SwfImporter().read([tmp_path / "log.swf"], reading)
    assert reading.demand is not None
    assert ((reading.demand.start_ns // 10**9) - 1788220800).tolist() == [15, 165]
    assert ((reading.demand.end_ns // 10**9) - 1788220800).tolist() == [115, 195]
