"""Slurm's sacct: every shape of row that it prints, and what is read of it."""

from __future__ import annotations

import re

import pytest

from bftrainer.errors import LogError, SettingsError
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.slurm import SlurmImporter
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Reading
from tests.importing import OPEN_END, idle_of, records_of

HEADER = "JobIDRaw|State|Start|End|NNodes|NodeList|JobName"


def read(tmp_path, text, **settings):
    """What the importer makes of a text: the reading, and its records as (nodes, start, end, kind)."""
    path = tmp_path / "sacct.txt"
    path.write_text(text)
    reading = Reading.begun(ImportSettings(**({"max_bad": 1.0} | settings)))
    SlurmImporter().read([path], reading)
    return reading, records_of(reading)


def one(tmp_path, row, **settings):
    """The records of one row under the usual header."""
    return read(tmp_path, f"{HEADER}\n{row}\n", **settings)[1]


@pytest.mark.parametrize("job", ["123", "123_4", "123_[1-3]", "123+0"])
def test_jobs_of_any_kind(tmp_path, job):
    """Plain jobs, members of arrays and parts of heterogeneous jobs are busy."""
    assert one(tmp_path, f"{job}|COMPLETED|100|200|2|n[1-2]|x") == [("n1,n2", 100, 200, BusyKind.JOB)]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("123.batch|COMPLETED|100|200|1|n1|x", "job step"),
        ("123.extern|COMPLETED|100|200|1|n1|x", "job step"),
        ("123_4.0|COMPLETED|100|200|1|n1|x", "job step"),
        ("123+1.0|COMPLETED|100|200|1|n1|x", "job step"),
        ("123|CANCELLED by 7|None|200|0|None assigned|x", "no nodes"),
        ("123|CANCELLED by 7|100|200|0||x", "no nodes"),
        ("123|PENDING|Unknown|Unknown|1|n1|x", "never started"),
        ("123|PENDING|Unknown|200|1|n1|x", "never started"),
        ("123|FAILED|200|200|1|n1|x", "zero length"),
        ("123|COMPLETED|200|100|1|n1|x", "end before start"),
    ],
)
def test_rows_that_say_nothing(tmp_path, row, reason):
    """Steps and jobs that never held a node are dropped, counted, and not bad."""
    reading, rows = read(tmp_path, f"{HEADER}\n{row}\n", max_bad=0.0)
    assert rows == []
    assert dict(reading.tally.dropped) == {reason: 1}
    assert (reading.tally.records, reading.tally.bad) == (1, 0)


@pytest.mark.parametrize(
    ("row", "reason", "message"),
    [
        ("123|COMPLETED|2026-02-30T00:00:00|200|1|n1|x", "impossible time", "sacct.txt:2: Expected times"),
        ("123|COMPLETED|100|soon|1|n1|x", "impossible time", "sacct.txt:2: Expected times"),
        ("123|COMPLETED|100|200|n1|x", "wrong number of columns", "sacct.txt:2: Expected 7 columns, got 6"),
        ("123|COMPLETED|100|200|1|n[1-999999999]|x", "unreadable node list", "sacct.txt:2: Expected at most"),
        ("123|COMPLETED|100|200|1|n1]|x", "unreadable node list", "sacct.txt:2: Expected a list"),
    ],
)
def test_rows_that_are_unusable(tmp_path, row, reason, message):
    """Malformed rows are counted with their reason and line, and stop the import when they are too many."""
    reading, rows = read(tmp_path, f"{HEADER}\n{row}\n")
    assert rows == []
    assert dict(reading.tally.dropped) == {reason: 1}
    assert message in reading.tally.examples[0]
    with pytest.raises(LogError, match=f"{re.escape(message)}.*1 of 1 records are unusable, more than --max-bad 1 %"):
        read(tmp_path, f"{HEADER}\n{row}\n", max_bad=0.01)[0].tally.check(at_end=True)


def test_a_last_line_that_was_cut_off(tmp_path):
    """The last line of a file that lacks its end and its columns was cut off."""
    reading, rows = read(tmp_path, f"{HEADER}\n1|FAILED|100|200|1|n1|x\n2|FAILED|100|2")
    assert len(rows) == 1
    assert dict(reading.tally.dropped) == {"last line cut off": 1}


def test_the_state_filters_nothing(tmp_path):
    """Whatever has a start and nodes was busy, in whatever state it ended."""
    states = ["COMPLETED", "CANCELLED by 1234", "CANCELLED+", "NODE_FAIL", "REQUEUED", "RESIZING", "FOO"]
    text = "\n".join(f"{at}|{state}|{at}|99|1|n1|x" for at, state in enumerate(states, start=1))
    assert len(read(tmp_path, f"{HEADER}\n{text}\n")[1]) == len(states)


@pytest.mark.parametrize(
    "row",
    [
        "1|RUNNING|100|Unknown|1|n1|x",
        "1|RUNNING|100|100|1|n1|x",
        "1|SUSPENDED|100|Unknown|1|n1|x",
        "1|?|100||1|n1|x",
    ],
)
def test_jobs_that_go_on(tmp_path, row):
    """A job without an end, or that runs and ends when it starts, is busy to the end of any window."""
    assert one(tmp_path, row) == [("n1", 100, OPEN_END, BusyKind.JOB)]


def test_suspended_jobs(tmp_path):
    """A suspended job keeps its nodes, or gives them up after the time for which it ran."""
    header = "JobIDRaw|State|Start|End|Elapsed|Suspended|NNodes|NodeList"
    rows = "1|SUSPENDED|100|Unknown|00:01:00|00:02:00|1|n1\n2|COMPLETED|100|300|00:02:30|00:00:50|1|n2"
    reading, found = read(tmp_path, f"{header}\n{rows}\n")
    assert [row[2] for row in found] == [OPEN_END, 300]
    assert "suspended for a while" in reading.notes[0]
    assert [row[2] for row in read(tmp_path, f"{header}\n{rows}\n", suspended="idle")[1]] == [160, 300]
    # Without an elapsed time nothing tells when it was suspended: better busy too long than idle while it was not.
    reading, found = read(tmp_path, f"{HEADER}\n1|SUSPENDED|100|Unknown|1|n1|x\n", suspended="idle")
    assert [row[2] for row in found] == [OPEN_END]
    assert "without an elapsed time count as busy" in reading.notes[0]


def test_headers_in_the_middle(tmp_path):
    """Exports that were put one after the other are read each by its own header."""
    text = "JobID|Start|End|NodeList\n1|100|160|n1\nNodeList|JobID|End|Start|JobName\nn2|2|300|200|a|b\n"
    reading, found = read(tmp_path, text)
    assert [row[:3] for row in found] == [("n1", 100, 160), ("n2", 200, 300)]
    assert (reading.tally.records, reading.tally.dropped.total()) == (2, 0)


def test_faults_below_a_second_header_name_their_line(tmp_path):
    """A row is told by its line in the file, and a time by what stands there."""
    text = "JobID|Start|End|NodeList\n1|100|160|n1\n\nJobID|Start|End|NodeList\n2|100|2026-02-30T00:00:00|n1\n"
    reading, _ = read(tmp_path, text, zone="UTC", max_bad=1.0)
    assert "sacct.txt:5: Expected times" in reading.tally.examples[0]
    assert "got '2026-02-30T00:00:00'" in reading.tally.examples[0]


def test_a_running_job_with_an_impossible_end(tmp_path):
    """It is unusable as any other row with such a time, not one without an end."""
    reading, found = read(tmp_path, f"{HEADER}\n1|RUNNING|100|soon|1|n1|x\n", max_bad=1.0)
    assert (found, dict(reading.tally.dropped)) == ([], {"impossible time": 1})


@pytest.mark.parametrize(
    ("count", "nodes", "found"),
    [
        ("2", "n1", ("n1", BusyKind.UNKNOWN)),
        ("1", "n[1-2]", ("n1,n2", BusyKind.UNKNOWN)),
        ("9", "n[1-2,5", ("n1,n2", BusyKind.UNKNOWN)),
        ("2", "n[1-2]", ("n1,n2", BusyKind.JOB)),
        ("2", "n[1-2],n1", ("n1,n2", BusyKind.JOB)),
        ("", "n[1-2]", ("n1,n2", BusyKind.JOB)),
        ("1K", "n[1-2]", ("n1,n2", BusyKind.JOB)),
    ],
)
def test_lists_that_cannot_be_trusted(tmp_path, count, nodes, found):
    """A node list that was cut off, or is of another length than told, makes its nodes' state unknown."""
    ((names, _, _, kind),) = one(tmp_path, f"1|COMPLETED|100|200|{count}|{nodes}|x")
    assert (names, kind) == found


@pytest.mark.parametrize(
    "text",
    [
        "jobidraw|start|end|nodelist|jobname\n1|100|200|n1|a|b|c\n",
        "Start|End|NodeList|JobIDRaw|JobName|\n100|200|n1|1|a|b|\n",
        "Start|End|NodeList|JobIDRaw|JobName\n\n100|200|n1|1|a\nStart|End|NodeList|JobIDRaw|JobName\n",
        "JobIDRaw|Start|End|NodeList\r\n1|100|200|n1\r\n",
        "JobIDRaw|Start|End|NodeList|JobName\n1|1970-01-01T00:01:40|200|n1|aàb\n",
    ],
)
def test_headers(tmp_path, text):
    """Columns are found by name in any order; names of jobs may hold bars; headers come again when files are joined."""
    assert read(tmp_path, text, zone="UTC")[1] == [("n1", 100, 200, BusyKind.JOB)]


def test_columns_beside_a_header(tmp_path):
    """Columns that are named where every file names its own are refused, not passed over."""
    text, columns = "JobIDRaw|Start|End|NodeList\n1|100|200|n1\n", ("JobIDRaw", "Start", "End", "NodeList")
    with pytest.raises(SettingsError, match="--columns"):
        read(tmp_path, text, columns=columns)
    assert read(tmp_path, "2|100|200|n2\n" + text, columns=columns)[0].tally.bad == 0


def test_columns_without_a_header(tmp_path):
    """Without a header the settings name the columns, with and without a bar at the end."""
    columns = ("JobIDRaw", "Start", "End", "NodeList", "JobName")
    assert read(tmp_path, "1|100|200|n1|a|b\n", columns=columns)[1] == [("n1", 100, 200, BusyKind.JOB)]
    assert read(tmp_path, "1|100|200|n1|a|\n2|100|200|n1|b|\n", columns=columns)[0].tally.bad == 0
    with pytest.raises(SettingsError, match=r"sacct.txt:1: Expected a header, or --columns"):
        read(tmp_path, "1|100|200|n1|a\n")
    with pytest.raises(LogError, match=r"--columns: Expected a column NodeList, got none\. Did you mean 'NodeLis'\?"):
        read(tmp_path, "1|100|200|n1|a\n", columns=("JobIDRaw", "Start", "End", "NodeLis", "JobName"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("JobID|Start|End|Nodes\n", r"sacct.txt:1: Expected a column NodeList, got none\."),
        ("       JobID      Start\n------------ ----------\n", r"Expected columns between bars \(sacct -P\), got '"),
    ],
)
def test_files_that_are_none(tmp_path, text, message):
    """The default output of sacct, and one without nodes, are refused."""
    with pytest.raises(LogError, match=message):
        read(tmp_path, text)


def test_local_times(tmp_path):
    """Local times are those of the zone, without one they are refused."""
    row = "1|COMPLETED|2026-07-01T02:00:00|2026-07-01T04:00:00|1|n1|x"
    ((_, start, end, _),) = one(tmp_path, row, zone="Europe/Berlin")
    assert (start, end) == (1782864000, 1782864000 + 7200)
    with pytest.raises(SettingsError, match="--tz"):
        one(tmp_path, row)


AUTUMN = 1792886400  # 2026-10-25T00:00:00Z, when Berlin shows 02:00 for the first time


@pytest.mark.parametrize(
    ("start", "end", "elapsed", "wanted"),
    [
        ("02:10:00", "02:50:00", "00:40:00", [(600, 3000)]),
        ("02:10:00", "02:50:00", "01:40:00", [(600, 6600)]),
        ("02:50:00", "02:10:00", "00:20:00", [(3000, 4200)]),
        ("01:30:00", "02:10:00", "00:40:00", [(-1800, 600)]),
        ("01:30:00", "02:10:00", "01:40:00", [(-1800, 4200)]),
        ("02:10:00", "03:10:00", "01:00:00", [(4200, 7800)]),
        ("02:10:00", "03:10:00", "02:00:00", [(600, 7800)]),
        ("02:10:00", "02:50:00", "", [(600, 6600)]),
        ("02:50:00", "02:10:00", "", [(3000, 4200)]),
    ],
)
def test_the_repeated_hour(tmp_path, start, end, elapsed, wanted):
    """When clocks go back the elapsed time tells which pass was meant; without it a job is as long as it can be."""
    header = "JobIDRaw|Start|End|Elapsed|NodeList"
    row = f"1|2026-10-25T{start}|2026-10-25T{end}|{elapsed}|n1"
    _, rows = read(tmp_path, f"{header}\n{row}\n", zone="Europe/Berlin")
    assert [(first - AUTUMN, last - AUTUMN) for _, first, last, _ in rows] == wanted


def test_the_skipped_hour(tmp_path):
    """When clocks go forward a job over the missing hour is as long as it ran; times within it are noted."""
    header = "JobIDRaw|Start|End|NodeList"
    row = "1|2026-03-29T01:30:00|2026-03-29T03:30:00|n1"
    reading, ((_, start, end, _),) = read(tmp_path, f"{header}\n{row}\n", zone="Europe/Berlin")
    assert end - start == 3600
    assert reading.notes == []
    reading, _ = read(tmp_path, f"{header}\n{row.replace('01:30', '02:30')}\n", zone="Europe/Berlin")
    assert "clocks in Europe/Berlin never showed" in reading.notes[0]


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (["JobIDRaw|Start|End|NodeList"], True),
        (["JobIDRaw|Start|End|NodeList|"], True),
        (["JobIDRaw|JobID|Start|NodeList|State"], True),  # which column is missing is told when it is read
        (["1|a|2026-03-29T01:30:00|2026-03-29T03:30:00|n1"], True),
        (["70_1|batch|CANCELLED by 5|1788242400|1788249600|00:00:00|4|cn-[01-02]|a job"], True),
        (["1|a|b|c|d"], False),
        (["1788242400|1788249600|b|c|d"], False),
        (["node|start|end"], False),
        ([], False),
    ],
)
def test_recognition(lines, wanted):
    """A log is known by its header, or by rows with two times behind a job's number."""
    assert SlurmImporter().recognises(lines) is wanted


def test_a_day(fixtures):
    """A day of sacct with steps, arrays, requeues, heterogeneous jobs and a cut-off list, and its node events."""
    logs = fixtures / "logs"
    day = ImportSettings(
        start="2026-09-01",
        end="2026-09-02",
        window="asked",
        zone="Europe/Berlin",
        nodes="cn-[01-02]-[001-004],gpu[1-3]",
        unseen="idle",
        downtimes=(logs / "sacctmgr-events.txt",),
    )
    done = import_log("slurm", [logs / "sacct-2026-09-01.txt"], day)
    hours = idle_of(done.log, 1788213600, 3600)
    assert hours == {
        "cn-01-001": [(0, 1), (3, 10), (11, 12), (18, 21), (22, 24)],
        "cn-01-002": [(0, 1), (2.5, 12), (18, 21), (22, 24)],
        "cn-01-003": [(3.5, 4), (5, 12), (18, 24)],
        "cn-01-004": [(0, 1), (2, 4), (5, 12), (18, 21), (22, 24)],
        "cn-02-001": [(0.5, 6), (7, 12), (18, 24)],
        "cn-02-002": [(0, 6), (7, 12), (18, 24)],
        "cn-02-003": [(0, 8), (9, 12), (18, 24)],
        "cn-02-004": [(0, 8), (9, 12), (19, 24)],
        "gpu1": [(0, 10), (11, 20)],
        "gpu2": [(0, 10), (11, 15)],
        "gpu3": [(0, 24)],
    }
    quality = done.quality
    assert (quality.records, quality.kept, quality.bad, quality.unknown, quality.duplicates) == (18, 12, 0, 1, 0)
    assert dict(quality.dropped) == {"job step": 3, "no nodes": 2, "zero length": 1}
    assert quality.overlap_factor == 1.0
    assert quality.busy_node_s == {"down": 2 * 3600, "drain": (9 + 3.5) * 3600, "job": 67 * 3600, "unknown": 3 * 3600}
