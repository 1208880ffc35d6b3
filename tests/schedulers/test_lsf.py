"""LSF's lsb.acct: fields by their place, behind lists of hosts of any length."""

from __future__ import annotations

import pytest

from bftrainer.errors import LogError
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.accounting import LsfImporter
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from tests.importing import idle_of, read_text, records_of, which_repeated

TAIL = ' "#BSUB" ' + " ".join(["0"] * 19 + ['"" "" 0 1 "" ""'])


def finish(hosts=("h1",), asked=(), start=100, end=200, job=1, name="a job", tail=' "#BSUB -R ""x""" 1.0 2.0'):
    """One record of a finished job."""
    lists = [[str(len(some)), *(f'"{host}"' for host in some)] for some in (asked, hosts)]
    words = [
        *('"JOB_FINISH" "10.1"', str(end), str(job), "22025 33882739", str(len(hosts)), "50 0 0", str(start)),
        *('"user"', '"normal"', '"span[ptile=16]" "" "" "login" "/home/a b" "" "%J.out" ""', f'"50.{job}"'),
        *(word for some in lists for word in some),
        *("64 60.0", f'"{name}"{tail}'),
    ]
    return " ".join(words) + "\n"


def resize(at, since, *hosts):
    """A record of a job that started at 100 s and has these hosts from `since` until `at`."""
    names = " ".join(f'"{host}"' for host in hosts)
    return f'"JOB_RESIZE" "10.1" {at} 1 0 100 501 "ann" 1 {since} {len(hosts)} {names} 1 "h2" 0 ""\n'


def read(tmp_path, *lines):
    """The reading of some lines, and its jobs as (nodes, start, end, kind)."""
    reading = read_text(LsfImporter(), tmp_path / "lsb.acct", "".join(lines))
    return reading, records_of(reading)


@pytest.mark.parametrize(
    ("hosts", "nodes"),
    [(("h1", "h1", "h2"), "h1,h2"), (("16*h1-ib", "2*h2-ib"), "h1-ib,h2-ib"), (("h1.cluster.org",), "h1.cluster.org")],
)
@pytest.mark.parametrize("asked", [(), ("h7", "group 1")])
def test_hosts(tmp_path, hosts, nodes, asked):
    """Hosts stand there once a slot, or with the number of slots, behind those that were asked for."""
    reading, jobs = read(tmp_path, finish(hosts, asked, name='say ""h2"" 3 ""x"'))
    assert jobs == [(nodes, 100, 200, BusyKind.JOB)]
    assert reading.rows.records().partitions == ("normal",)


@pytest.mark.parametrize(
    "changes", [[{"name": f"a[{at}]"} for at in (1, 2, 1)], [{"tail": f"{TAIL} {at} 0"} for at in (1, 2, 1)]]
)
def test_members_of_arrays_and_copies(tmp_path, changes):
    """Members of an array have one number, and another name or index; a record that comes twice is one job."""
    reading, _ = read(tmp_path, *(finish(**some) for some in changes))
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
        ("JobID|Start|End\n", "malformed line", True),
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
    assert (dict(reading.tally.dropped), reading.tally.bad) == ({reason: 1}, is_bad)


@pytest.mark.parametrize(
    ("lines", "idle"),
    [
        ((resize(200, 100, "h1", "h2"), finish(("h1",), end=400)), {"h1": [(400, 500)], "h2": [(200, 500)]}),
        (
            (resize(200, 100, "h1"), finish(("h1", "h2"), end=400)),
            {"h1": [(400, 500)], "h2": [(100, 200), (400, 500)]},
        ),
        (
            (resize(200, 100, "h1", "h2"), resize(300, 200, "h2"), finish(("h1",), end=400)),
            {"h1": [(200, 300), (400, 500)], "h2": [(300, 500)]},
        ),
        ((resize(200, 100, "h1", "h2"),), {"h1": [(200, 500)], "h2": [(200, 500)]}),
    ],
)
def test_resized_job_holds_what_it_had(tmp_path, lines, idle):
    """Each record of a change tells the hosts before it, the end the last ones."""
    (tmp_path / "lsb.acct").write_text("".join(lines))
    window = {"start": "1970-01-01T00:01:40", "end": "1970-01-01T00:08:20", "window": "asked"}
    done = import_log("lsf", [tmp_path / "lsb.acct"], ImportSettings(nodes="h[1-2]", unseen="idle", **window))
    assert idle_of(done.log) == idle


def test_blank_files(tmp_path):
    """A file of blank lines does not make its neighbours another format, and is a log without records."""
    (tmp_path / "a.log").write_text("\n")
    with pytest.raises(LogError, match=r"No records of busy nodes in the log: no record at all\."):
        import_log("lsf", [tmp_path])
    (tmp_path / "b.log").write_text(finish())
    day = ImportSettings(window="asked", start="1970-01-01", end="1970-01-02")
    assert import_log("lsf", [tmp_path], day).quality.kept == 1
