"""LSF's lsb.acct: fields by their place, behind lists of hosts of any length."""

from __future__ import annotations

import pytest

from bftrainer.errors import LogError
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.lsf import LsfImporter
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Reading
from tests.importing import records_of, which_repeated


def finish(hosts=("h1",), asked=(), start=100, end=200, job=1, name="a job", queue="normal"):
    """One record of a finished job."""
    lists = [[str(len(some)), *(f'"{host}"' for host in some)] for some in (asked, hosts)]
    words = [
        *('"JOB_FINISH" "10.1"', str(end), str(job), "22025 33882739", str(len(hosts)), "50 0 0", str(start)),
        *('"user"', f'"{queue}"', '"span[ptile=16]" "" "" "login" "/home/a b" "" "%J.out" ""', f'"50.{job}"'),
        *(word for some in lists for word in some),
        *("64 60.0", f'"{name}"', '"#BSUB -R ""x""" 1.0 2.0'),
    ]
    return " ".join(words) + "\n"


def read(tmp_path, *lines, **settings):
    """The reading of some lines, and its jobs as (nodes, start, end, kind)."""
    (tmp_path / "lsb.acct").write_text("".join(lines))
    reading = Reading.begun(ImportSettings(**({"max_bad": 1.0} | settings)))
    LsfImporter().read([tmp_path / "lsb.acct"], reading)
    return reading, records_of(reading)


@pytest.mark.parametrize(
    ("hosts", "nodes"),
    [
        (("h1", "h1", "h2"), "h1,h2"),
        (("16*h1-ib", "2*h2-ib"), "h1-ib,h2-ib"),
        (("h1.cluster.org",), "h1.cluster.org"),
    ],
)
@pytest.mark.parametrize("asked", [(), ("h7",), ("h7", "group 1")])
def test_hosts(tmp_path, hosts, nodes, asked):
    """Hosts stand there once a slot, or with the number of slots, behind those that were asked for."""
    assert read(tmp_path, finish(hosts, asked))[1] == [(nodes, 100, 200, BusyKind.JOB)]


def test_quotes(tmp_path):
    """Quotes within texts are doubled, and separate nothing."""
    reading, jobs = read(tmp_path, finish(name='say ""h2"" 3 ""x"'))
    assert jobs == [("h1", 100, 200, BusyKind.JOB)]
    assert reading.rows.records().partitions == ("normal",)


def test_members_of_arrays_and_copies(tmp_path):
    """Members of an array have one number and are told apart; a record that comes twice is one job."""
    one, other = finish(name="a[1]"), finish(name="a[2]")
    reading, _ = read(tmp_path, one, other, one)
    assert which_repeated(reading.rows.records()) == [False, False, True]


@pytest.mark.parametrize(
    ("line", "reason", "is_bad"),
    [
        ('"JOB_NEW" "10.1" 100 1\n', "about no finished job", False),
        (finish(start=0), "never started", False),
        (finish(hosts=()), "no nodes", False),
        (finish(start=200), "zero length", False),
        (finish(start=300), "end before start", False),
        (finish(start=10**12, end=10**12 + 1), "impossible time", True),
        ('"JOB_FINISH" "10.1" 200\n', "malformed line", True),
        (finish(("h1", "h2")).partition('"h2"')[0] + "\n", "malformed line", True),
        (finish(("h1", "h2")).partition('"h2"')[0], "last line cut off", True),
        (finish().replace("200", "soon", 1), "malformed line", True),
    ],
)
def test_records_that_give_no_job(tmp_path, line, reason, is_bad):
    """Each record gives a job, or is dropped for a reason; malformed ones are bad."""
    reading, jobs = read(tmp_path, finish(), line)
    assert len(jobs) == 1
    assert dict(reading.tally.dropped) == {reason: 1}
    assert reading.tally.bad == is_bad


def test_numbered_members_of_arrays(tmp_path):
    """Records since LSF 7 tell which member of an array a job was, far behind its hosts."""
    tail = " " + " ".join(["0"] * 19 + ['"" "" 0 1 "" ""'])
    lines = [finish().replace(' "#BSUB -R ""x""" 1.0 2.0', f' "#BSUB"{tail} {index} 0') for index in (1, 2, 1)]
    reading, _ = read(tmp_path, *lines)
    assert which_repeated(reading.rows.records()) == [False, False, True]


def test_blank_files(tmp_path):
    """A file of blank lines does not make its neighbours another format, and is a log without records."""
    (tmp_path / "a.log").write_text("\n")
    with pytest.raises(LogError, match=r"No records of busy nodes in the log: no record at all\."):
        import_log("lsf", [tmp_path])
    (tmp_path / "b.log").write_text(finish())
    day = ImportSettings(window="asked", start="1970-01-01", end="1970-01-02")
    assert import_log("lsf", [tmp_path], day).quality.kept == 1


def test_samples(sample_logs):
    """Real records: 16 slots a host, a host a slot, and texts in UTF-8."""
    window = ImportSettings(start="2014-01-13", end="2014-01-15", window="asked")
    for name, records, nodes in (("accounting-logs.log", 2, 12), ("utf8-multibyte-chars.log", 1, 8)):
        quality = import_log("lsf", [sample_logs / "lsf" / name], window).quality
        assert (quality.records, quality.kept, quality.nodes) == (records, records, nodes)
        assert quality.busy_node_s["job"] == nodes * (1389683139 - 1389642771)
