"""Accounting logs of PBS and LSF: what lines of each type tell of runs and of their hosts."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from tests.examples import examples
from tests.importing import OPEN_END, idle_of, import_text, read_text

MIDNIGHT, HOUR = 1788220800, 3600  # 2026-09-01 UTC
JOB = BusyKind.JOB


def entry(kind, job="1.pbs", at=0, **fields):
    """A line written `at` seconds after midnight in UTC; times among the fields count from midnight."""
    hours, minutes = divmod(at // 60, 60)
    for key in {"start", "end"} & {key for key, value in fields.items() if isinstance(value, int)}:
        fields[key] += MIDNIGHT
    text = " ".join(f"{key}={value}" for key, value in fields.items())
    return f"09/01/2026 {hours:02}:{minutes:02}:{at % 60:02};{kind};{job};{text}\n"


def run(job="1.pbs", start=0, end=3600, host="c1/0"):
    """Both lines of a run."""
    begins = entry("S", job, start, start=start, exec_host=host)
    return begins, entry("E", job, end, start=start, end=end, exec_host=host)


def read(tmp_path, *lines, **given):
    """The reading of some lines, and its runs as (nodes, start, end, kind), seconds from midnight."""
    return read_text("pbs", tmp_path / "20260901", "".join(lines), MIDNIGHT, **given)


START, END = run()
ALTERED = entry("a", at=600, **{"Resource_List.walltime": "00:30:00"})
LIMITED = START.rstrip("\n") + " Resource_List.walltime=01:00:00\n"
SUSPENDED = entry("z", at=600), entry("z", at=700), entry("r", at=1200)
BOTH_HOSTS = run(host="c1/0+c2/0")
SHRUNK = entry("u", at=600, start=0, exec_host="c1/0+c2/0"), entry("c", at=600, exec_host="c1/0")
VNODES = "(c1[0]:ncpus=2+c1[1]:ncpus=2)+(c2:mem=4gb:ncpus=4)"


@pytest.mark.parametrize(
    ("lines", "runs"),
    [
        ((START, END), [("c1", 0, 3600)]),
        # An end tells the start of a run that began before the log; a run without an end goes on.
        (run(start=-500, end=100)[1:], [("c1", -500, 100)]),
        ((START,), [("c1", 0, OPEN_END)]),
        # It ends when its limit says so, which may be altered, and waits while it is suspended.
        ((LIMITED,), [("c1", 0, 3600)]),
        ((LIMITED, ALTERED), [("c1", 0, 1800)]),
        ((LIMITED, entry("z", at=60), entry("r", at=160), ALTERED), [("c1", 0, 1900)]),
        ((LIMITED, entry("c", at=600, exec_host="c2/0")), [("c1", 0, 600), ("c2", 600, 3600)]),
        # A start that is repeated changes nothing; another one means that the first run was over.
        ((START, START, END), [("c1", 0, 3600)]),
        ((START, *run(start=600, host="c2/0")), [("c1", 0, 600), ("c2", 600, 3600)]),
        # A request to delete a job ends nothing.
        ((START, entry("D", at=60, requestor="root"), END), [("c1", 0, 3600)]),
        # A checkpoint, and the run that goes on from it.
        ((START, entry("C", at=600), entry("T", at=1200, exec_host="c2/0"), END), [("c1", 0, 600), ("c2", 1200, 3600)]),
        # A run gives back nodes, and its end does not take them again.
        ((BOTH_HOSTS[0], *SHRUNK, entry("e", at=3600), BOTH_HOSTS[1]), [("c1,c2", 0, 600), ("c1", 600, 3600)]),
        # The same if its start is not in the log: another job's lines tell the zone.
        ((*run("0.pbs", 0, 60, "c9/0"), *SHRUNK, BOTH_HOSTS[1]), [("c9", 0, 60), ("c1,c2", 0, 600), ("c1", 600, 3600)]),
        # A run that starts without nodes that failed never had them.
        ((BOTH_HOSTS[0], entry("s", at=5, start=0, exec_host="c1/0"), END), [("c1", 0, 3600)]),
        # A suspended run keeps its nodes.
        ((START, *SUSPENDED, END), [("c1", 0, 3600)]),
        # A rerun tells start and nodes again, also of a run that began before the files.
        ((entry("R", at=7200, start=0, end=1800, exec_host="c2/0-3", run_count=1),), [("c2", 0, 1800)]),
        # Without hosts, virtual nodes tell them.
        ((entry("E", at=60, start=0, end=60, exec_vnode=VNODES),), [("c1,c2", 0, 60)]),
        ((entry("E", at=60, start=0, end=60, exec_host="h1/0", exec_vnode="(v1:ncpus=2)"),), [("h1", 0, 60)]),
        # What stands in quotes is no field of its own.
        ((entry("E", at=60, jobname='"my end=5 job"', x="", start=0, exec_host="c1/0", end=60),), [("c1", 0, 60)]),
    ],
)
def test_runs(tmp_path, lines, runs):
    """What lines of all types make of runs."""
    reading, records = read(tmp_path, *lines)
    assert records == [(*row, JOB) for row in runs]
    assert reading.tally.bad == 0


@pytest.mark.parametrize(
    ("host", "more", "nodes", "kind"),
    [
        # What stands after a slash are slots, commas among them; each host is one node.
        ("c1/0+c1/1+c2/0", {}, "c1,c2", JOB),
        ("c1/0*13+c2/0*13", {}, "c1,c2", JOB),
        ("c4/0-2,5+c5/1", {}, "c4,c5", JOB),
        ("c4:15002/0*8", {}, "c4", JOB),
        ("[host_2]/0*0", {}, "[host_2]", JOB),
        ("i02n33-ib/7", {}, "i02n33-ib", JOB),
        # A list that was cut off, or of another length than told, makes the state of its hosts unknown.
        ("c1/0+c2/0+", {}, "c1,c2", BusyKind.UNKNOWN),
        ("c1/0+c2/0", {"unique_node_count": 3}, "c1,c2", BusyKind.UNKNOWN),
    ],
)
def test_hosts(tmp_path, host, more, nodes, kind):
    """Hosts of a run, and whether they can be trusted."""
    assert read(tmp_path, entry("E", at=60, start=0, end=60, exec_host=host, **more))[1] == [(nodes, 0, 60, kind)]


@pytest.mark.parametrize("kind", ["R", "A", "C"])
def test_interrupted_runs(tmp_path, kind):
    """A run that is run again, aborted or held is over; its time is in the zone of the lines before it."""
    again = run(start=1800, host="c2/0")
    reading, runs = read(tmp_path, START, entry(kind, at=900), *again)
    assert runs == [("c1", 0, 900, JOB), ("c2", 1800, 3600, JOB)]
    assert "no --tz" in reading.notes[0]
    reading, runs = read(tmp_path, START, entry(kind, at=900, end=800), *again)
    assert runs[0] == ("c1", 0, 800, JOB)
    assert not reading.notes  # a time of its own needs no zone


@pytest.mark.parametrize("date", ["09/01", "02/30"])
def test_interruptions_that_nothing_dates(tmp_path, date):
    """If nothing tells the zone, or there is no such date, nothing ends the run; that is counted and not fatal."""
    # Seven minutes late: no clock is that far off a zone.
    lines = entry("S", at=420, start=0, exec_host="c1/0"), entry("R", at=900).replace("09/01", date)
    reading, runs = read(tmp_path, *lines, max_bad=0.0)
    assert runs == [("c1", 0, OPEN_END, JOB)]
    assert dict(reading.tally.dropped) == {"change at an unknown time": 1}
    if date == "09/01":
        assert read(tmp_path, *lines, zone="UTC")[1] == [("c1", 0, 900, JOB)]


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_the_hour_that_comes_twice(tmp_path, zone):
    """Lines before that tell both times say which pass of the hour a local time is of, with a zone as without."""
    first = 1792882800  # 2026-10-25T01:00 in Berlin
    lines = (
        f"10/25/2026 01:00:00;S;1.pbs;start={first} exec_host=c1/0\n",
        f"10/25/2026 02:30:00;S;2.pbs;start={first + 9000} exec_host=c2/0\n",
        "10/25/2026 02:40:00;R;1.pbs;\n",
    )
    assert ("c1", first - MIDNIGHT, first + 9600 - MIDNIGHT, JOB) in read(tmp_path, *lines, zone=zone)[1]
    late = f"10/25/2026 02:50:00;S;1.pbs;start={first + 6600} exec_host=c1/0\n", "10/25/2026 02:10:00;R;1.pbs;\n"
    if zone:  # two in the morning in Berlin is midnight in UTC
        assert read(tmp_path, START, entry("R", at=7260), zone=zone)[1] == [("c1", 0, 60, JOB)]
        # A local time that would lie before the line above it is of the hour's second pass.
        assert read(tmp_path, *late, zone=zone)[1] == [("c1", first + 6600 - MIDNIGHT, first + 7800 - MIDNIGHT, JOB)]


HALVES = [("c1", 0, 600, JOB), ("c1", 1200, 3600, JOB)]


@pytest.mark.parametrize(
    ("lines", "runs"),
    [
        ((START, *SUSPENDED, END), HALVES),
        ((START, SUSPENDED[0], END), HALVES[:1]),
        ((START, SUSPENDED[0]), HALVES[:1]),
        # The end of a phase resumes nothing.
        ((START, SUSPENDED[0], entry("u", at=900, exec_host="c1/0"), SUSPENDED[2], END), HALVES),
    ],
)
def test_suspended_runs_that_give_up_their_nodes(tmp_path, lines, runs):
    """If it is said that suspended jobs are idle, they are from each suspension to the next resumption."""
    assert read(tmp_path, *lines, suspended="idle")[1] == runs


def test_reservations(tmp_path):
    """Reserved nodes are busy if it is wished: from begin to end, deletion, or the end that was planned."""
    begins = entry("B", "R1", start=600, end=1200, nodes="(c2[0]:ncpus=4)")
    assert read(tmp_path, START, begins, END)[1] == [("c1", 0, 3600, JOB)]
    for ends, end in ((entry("F", "R1", at=1200), 1200), (entry("k", "R1", at=900), 900), ("", 1200)):
        runs = read(tmp_path, *run(end=60), begins, ends, reserved_busy=True)[1]
        assert runs == [("c1", 0, 60, JOB), ("c2", 600, end, BusyKind.RESERVED)]


def test_an_unreadable_end_leaves_its_run_busy(tmp_path):
    """Better busy too long than wrongly idle."""
    assert read(tmp_path, START, END.replace("end=", "end=?"))[1] == [("c1", 0, OPEN_END, JOB)]


@settings(examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(range(8)))
def test_lines_in_any_order(tmp_path, order):
    """Lines in any order give the runs that they give in order of time, and that is said."""
    starts = [6 * HOUR + at * 1800 for at in range(4)]
    lines = [line for start in starts for line in run(f"{start}.s", start=start, end=start + 7000)]
    lines.sort(key=lambda line: line[:19])
    reading, runs = read(tmp_path, *(lines[at] for at in order))
    assert sorted(runs) == [("c1", start, start + 7000, JOB) for start in starts]
    assert [note.split(" ", 1)[1] for note in reading.notes] == (
        [] if order == sorted(order) else ["lines are out of order: they were sorted by their times."]
    )


def test_submissions_are_told_by_starts_and_ends(tmp_path):
    """When a job was queued is what its lines say, of jobs that are still running as well."""
    lines = (
        entry("R", "3.pbs", 950, qtime=MIDNIGHT + 30, start=200, exec_host="c2/0"),
        entry("S", "4.pbs", 1000, qtime=MIDNIGHT + 40, start=1000, exec_host="c1/0"),  # has no end
    )
    records = read(tmp_path, *lines)[0].rows.records()
    assert ((records["submit_ns"] // 10**9) - MIDNIGHT).tolist() == [30, 40]
    assert records["is_open"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("hosts", "told", "idle_h"),
    [
        ("c1/4+c2/4", "total_execution_slots=8", 0),
        ("c1/4+c2/4", "Resource_List.nodes=2:ppn=4", 0),
        ("c1/4+c2/2", "Resource_List.nodes=1:fast:ppn=4+1:ppn=2", 8),
        ("c1/3", "total_execution_slots=1", 12),
        # No node has so many: what else the list says counts.
        ("c1/0*99999999999999999", "total_execution_slots=1", 12),
        ("c1/1+c1/2+c1/3", "total_execution_slots=3", 4),
        ("c1/2+c2/2", "", 24),
    ],
)
def test_counts_of_slots(tmp_path, hosts, told, idle_h):
    """`node/4` is four slots of TORQUE where the job's total says so, else slot 4."""
    text = entry("E", at=4 * HOUR, start=0, exec_host=f"{hosts} {told}", end=4 * HOUR)
    window = {"start": str(MIDNIGHT), "end": str(MIDNIGHT + 4 * HOUR), "window": "asked"}
    done = import_text(tmp_path / "log", "pbs", text, unit="core", cores_per_node=4, **window)
    assert done.quality.idle_node_s == idle_h * HOUR


@pytest.mark.parametrize("text", ["a" * 1_000_000, "a." * 500_000 + "=", '"' * 1_000_000, "x=" + '"' * 500_000])
def test_hostile_lines_take_linear_time(tmp_path, text):
    """A word of a megabyte is looked at once, not once a letter."""
    begin = time.process_time()
    read(tmp_path, f"09/01/2026 00:01:00;E;1;{text}\n")
    assert time.process_time() - begin < 5


WINDOW = {"start": "1970-01-01T00:01:40", "end": "1970-01-01T00:08:20", "window": "asked"}
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


def read_lsf(tmp_path, *lines):
    """The reading of some lines, and its jobs as (nodes, start, end, kind)."""
    return read_text("lsf", tmp_path / "lsb.acct", "".join(lines))


@pytest.mark.parametrize(
    ("hosts", "nodes"),
    [(("h1", "h1", "h2"), "h1,h2"), (("16*h1-ib", "2*h2-ib"), "h1-ib,h2-ib"), (("h1.cluster.org",), "h1.cluster.org")],
)
@pytest.mark.parametrize("asked", [(), ("h7", "group 1")])
def test_hosts_lsf(tmp_path, hosts, nodes, asked):
    """Hosts stand there once a slot, or with the number of slots, behind those that were asked for."""
    reading, jobs = read_lsf(tmp_path, finish(hosts, asked, name='say ""h2"" 3 ""x"'))
    assert jobs == [(nodes, 100, 200, BusyKind.JOB)]
    assert reading.rows.records().partitions == ("normal",)


@pytest.mark.parametrize(
    "changes", [[{"name": f"a[{at}]"} for at in (1, 2, 1)], [{"tail": f"{TAIL} {at} 0"} for at in (1, 2, 1)]]
)
def test_members_of_arrays_and_copies(tmp_path, changes):
    """Members of an array have one number, and another name or index; a record that comes twice is one job."""
    text = "".join(finish(**some) for some in changes)
    quality = import_text(tmp_path / "log", "lsf", text, **WINDOW).quality
    assert (quality.dropped, quality.kept) == ({"duplicate": 1}, 2)


@pytest.mark.parametrize(
    ("lines", "idle"),
    [
        ((resize(200, 100, "h1"), finish(("h1", "h2"), end=400)), {"h1": [(400, 500)], "h2": [(100, 200), (400, 500)]}),
        (
            (resize(200, 100, "h1", "h2"), resize(300, 200, "h2"), finish(("h1",), end=400)),
            {"h1": [(200, 300), (400, 500)], "h2": [(300, 500)]},
        ),
        ((resize(200, 100, "h1", "h2"),), {"h1": [(200, 500)], "h2": [(200, 500)]}),
    ],
)
def test_resized_job_holds_what_it_had(tmp_path, lines, idle):
    """Each record of a change tells the hosts before it, the end the last ones."""
    done = import_text(tmp_path / "log", "lsf", "".join(lines), nodes="h[1-2]", unseen="idle", **WINDOW)
    assert idle_of(done.log) == idle


def test_blank_files(tmp_path):
    """A file of blank lines does not make its neighbours another format."""
    (tmp_path / "a.log").write_text("\n")
    (tmp_path / "b.log").write_text(finish())
    day = ImportSettings(window="asked", start="1970-01-01", end="1970-01-02")
    assert import_log("lsf", [tmp_path], day).quality.kept == 1
