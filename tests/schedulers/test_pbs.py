"""PBS accounting: runs from starts and ends, and what happens to them on the way."""

from __future__ import annotations

import shutil
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.pbs import PbsImporter
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Reading
from tests.examples import examples
from tests.importing import OPEN_END, idle_of, records_of

MIDNIGHT = 1788220800  # 2026-09-01 UTC


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


def read(tmp_path, *lines, **settings):
    """The reading of some lines, and its runs as (nodes, start, end, kind), seconds from midnight."""
    (tmp_path / "20260901").write_text("".join(lines))
    reading = Reading.begun(ImportSettings(**({"max_bad": 1.0} | settings)))
    PbsImporter().read([tmp_path / "20260901"], reading)
    return reading, records_of(reading, MIDNIGHT)


def test_a_run(tmp_path):
    """A start and an end are one run."""
    reading, runs = read(tmp_path, *run())
    assert runs == [("c1", 0, 3600, BusyKind.JOB)]
    assert (reading.tally.records, reading.tally.dropped.total()) == (2, 0)
    assert reading.window_ns == (MIDNIGHT * 10**9, (MIDNIGHT + 3600) * 10**9)


@pytest.mark.parametrize(
    ("host", "nodes"),
    [
        ("c1/0+c1/1+c2/0", "c1,c2"),
        ("c1/0*13+c2/0*13", "c1,c2"),
        ("c4/0-7", "c4"),
        ("c4/0-2,5+c5/1", "c4,c5"),
        ("c4:15002/0*8", "c4"),
        ("[host_2]/0*0", "[host_2]"),
        ("i02n33-ib/7", "i02n33-ib"),
    ],
)
def test_hosts(tmp_path, host, nodes):
    """What stands after a slash are slots, commas among them; each host is one node."""
    assert [name for name, *_ in read(tmp_path, *run(host=host))[1]] == [nodes]


def test_virtual_nodes(tmp_path):
    """Without hosts the virtual nodes tell them; parts of a host are that host."""
    lines = entry("E", at=60, start=0, end=60, exec_vnode="(c1[0]:ncpus=2+c1[1]:ncpus=2)+(c2:mem=4gb:ncpus=4)")
    assert read(tmp_path, lines)[1] == [("c1,c2", 0, 60, BusyKind.JOB)]
    both = entry("E", at=60, start=0, end=60, exec_host="h1/0", exec_vnode="(v1:ncpus=2)")
    assert read(tmp_path, both)[1] == [("h1", 0, 60, BusyKind.JOB)]


def test_an_end_alone(tmp_path):
    """An end tells the start of a run that began before the log."""
    assert read(tmp_path, run(start=-500, end=100)[1])[1] == [("c1", -500, 100, BusyKind.JOB)]


def test_a_start_alone(tmp_path):
    """A run without an end goes on to the end of any window, and that is noted."""
    reading, runs = read(tmp_path, run()[0])
    assert runs == [("c1", 0, OPEN_END, BusyKind.JOB)]
    assert int(reading.rows.records()["is_open"].sum()) == 1


def test_altered_limits(tmp_path):
    """A run without an end goes on for the time limit that it has last, also after it was suspended."""
    start = run()[0].rstrip("\n") + " Resource_List.walltime=01:00:00\n"
    altered = entry("a", at=600, **{"Resource_List.walltime": "00:30:00"})
    assert read(tmp_path, start)[1] == [("c1", 0, 3600, BusyKind.JOB)]
    assert read(tmp_path, start, altered)[1] == [("c1", 0, 1800, BusyKind.JOB)]
    later = entry("z", at=60), entry("r", at=160)
    assert read(tmp_path, start, *later, altered)[1] == [("c1", 0, 1900, BusyKind.JOB)]


def test_deleting_is_not_ending(tmp_path):
    """A request to delete a job ends nothing."""
    start, end = run()
    reading, runs = read(tmp_path, start, entry("D", at=60, requestor="root"), end)
    assert runs == [("c1", 0, 3600, BusyKind.JOB)]
    assert dict(reading.tally.dropped) == {"about no run": 1}


def test_a_start_told_twice(tmp_path):
    """The same start again changes nothing; another one means that the first run was over."""
    start, end = run()
    assert read(tmp_path, start, start, end)[1] == [("c1", 0, 3600, BusyKind.JOB)]
    again = run(start=600, host="c2/0")
    assert read(tmp_path, start, *again)[1] == [("c1", 0, 600, BusyKind.JOB), ("c2", 600, 3600, BusyKind.JOB)]


@pytest.mark.parametrize("kind", ["R", "A", "C"])
def test_interrupted_runs(tmp_path, kind):
    """A run that is run again, aborted or held is over; its time is in the zone of the lines before it."""
    start, _ = run()
    reading, runs = read(tmp_path, start, entry(kind, at=900), *run(start=1800, host="c2/0"))
    assert runs == [("c1", 0, 900, BusyKind.JOB), ("c2", 1800, 3600, BusyKind.JOB)]
    assert "no --tz" in reading.notes[0]
    _, runs = read(tmp_path, start, entry(kind, at=900, end=800), *run(start=1800, host="c2/0"))
    assert runs[0] == ("c1", 0, 800, BusyKind.JOB)


def test_interruptions_that_nothing_dates(tmp_path):
    """If nothing tells the zone, the next start ends the run; that is counted and not fatal."""
    late = entry("S", at=7 * 60, start=0, exec_host="c1/0")  # seven minutes late: no clock is that far off a zone
    reading, runs = read(tmp_path, late, entry("R", at=900), entry("R", "9.pbs", at=901), max_bad=0.0)
    assert runs == [("c1", 0, OPEN_END, BusyKind.JOB)]
    assert dict(reading.tally.dropped) == {"change at an unknown time": 1, "about no run": 1}
    reading, runs = read(tmp_path, late, entry("R", at=900), zone="UTC")
    assert runs == [("c1", 0, 900, BusyKind.JOB)]


def test_zones(tmp_path):
    """Local times alone are those of the zone, if one is given."""
    start, _ = run(start=0)
    _, runs = read(tmp_path, start, entry("R", at=7200), zone="Europe/Berlin")
    assert runs == []  # two in the morning in Berlin is midnight in UTC: of no length
    _, runs = read(tmp_path, start, entry("R", at=7260), zone="Europe/Berlin")
    assert runs == [("c1", 0, 60, BusyKind.JOB)]


def test_the_note_on_zones(tmp_path):
    """It is there only where a line's local time dates something: an end of its own needs none."""
    start, end = run()
    for change, is_noted in ((entry("R", at=900), True), (entry("R", at=900, end=900), False), (end, False)):
        assert any("no --tz" in note for note in read(tmp_path, start, change)[0].notes) == is_noted
    assert not read(tmp_path, start, entry("k", "R1", at=900), end)[0].notes  # of a reservation that is not asked for


def test_restarts_from_checkpoints(tmp_path):
    """A run that goes on from a checkpoint has its nodes from then on."""
    start, end = run()
    lines = (start, entry("C", at=600), entry("T", at=1200, exec_host="c2/0"), end)
    assert read(tmp_path, *lines)[1] == [("c1", 0, 600, BusyKind.JOB), ("c2", 1200, 3600, BusyKind.JOB)]


def test_phases(tmp_path):
    """A run that gives back nodes holds the others on; its end does not take them again."""
    start, end = run(host="c1/0+c2/0")
    shrunk = (
        entry("u", at=600, start=0, exec_host="c1/0+c2/0"),
        entry("c", at=600, exec_host="c1/0"),
        entry("e", at=3600),
    )
    wanted = [("c1,c2", 0, 600, BusyKind.JOB), ("c1", 600, 3600, BusyKind.JOB)]
    assert read(tmp_path, start, *shrunk, end)[1] == wanted
    # The same if its start is not in the log: another job's lines tell the zone.
    assert read(tmp_path, *run("0.pbs", 0, 60, "c9/0"), *shrunk, end)[1][1:] == wanted


@pytest.mark.parametrize("kind", ["T", "c"])
def test_changes_without_nodes(tmp_path, kind):
    """A run goes on with its nodes where a line that it changes names none."""
    start, end = run()
    held = [("c1", 0, 600, BusyKind.JOB), ("c1", 600, 3600, BusyKind.JOB)]
    assert read(tmp_path, start, entry(kind, at=600), end, suspended="idle")[1] == held


def test_pruned_starts(tmp_path):
    """A run that starts without the nodes that failed never had them."""
    start, _ = run(host="c1/0+c2/0")
    lines = (start, entry("s", at=5, start=0, exec_host="c1/0"), entry("E", at=60, start=0, end=60))
    assert read(tmp_path, *lines)[1] == [("c1", 0, 60, BusyKind.JOB)]


def test_suspended_runs(tmp_path):
    """A suspended run keeps its nodes, unless it is said that they are idle."""
    start, end = run()
    lines = (start, entry("z", at=600), entry("z", at=700), entry("r", at=1200), end)
    assert read(tmp_path, *lines)[1] == [("c1", 0, 3600, BusyKind.JOB)]
    idle_ones = read(tmp_path, *lines, suspended="idle")[1]
    assert idle_ones == [("c1", 0, 600, BusyKind.JOB), ("c1", 1200, 3600, BusyKind.JOB)]
    assert read(tmp_path, start, entry("z", at=600), end, suspended="idle")[1] == [("c1", 0, 600, BusyKind.JOB)]
    assert read(tmp_path, start, entry("z", at=600), suspended="idle")[1] == [("c1", 0, 600, BusyKind.JOB)]
    shrunk = (start, entry("z", at=600), entry("u", at=900, exec_host="c1/0"), entry("r", at=1200), end)
    assert read(tmp_path, *shrunk, suspended="idle")[1] == idle_ones  # a phase's end resumes nothing


def test_reservations(tmp_path):
    """Reserved nodes are busy if it is wished: from begin to end, deletion, or the end that was planned."""
    begins = entry("B", "R1", start=600, end=1200, nodes="(c2[0]:ncpus=4)")
    assert read(tmp_path, *run(), begins)[1] == [("c1", 0, 3600, BusyKind.JOB)]
    for ends, end in ((entry("F", "R1", at=1200), 1200), (entry("k", "R1", at=900), 900), ("", 1200)):
        runs = read(tmp_path, *run(end=60), begins, ends, reserved_busy=True)[1]
        assert runs == [("c1", 0, 60, BusyKind.JOB), ("c2", 600, end, BusyKind.RESERVED)]


@pytest.mark.parametrize(
    ("line", "reason", "is_bad"),
    [
        (entry("E", at=60, start=0, end=60), "no nodes", False),
        (entry("E", at=60, end=60, exec_host="c1/0"), "never started", False),
        (entry("E", at=60, start=60, end=60, exec_host="c1/0"), "zero length", False),
        (entry("E", at=60, start=70, end=60, exec_host="c1/0"), "end before start", False),
        (entry("E", at=60, start=0, exec_host="c1/0"), "impossible time", True),
        (entry("E", at=60, start=0, end="soon", exec_host="c1/0"), "impossible time", True),
        (entry("E", at=60, start=0, end="1e300", exec_host="c1/0"), "impossible time", True),
        (entry("u", "2.pbs", start=0, exec_host="c2/0").replace("2026", "9999"), "change at an unknown time", False),
        (entry("S", exec_host="c1/0"), "start without a time", False),
        (entry("S", start=0), "start without nodes", False),
        ("09/01/2026 00:00:00\n", "malformed line", True),
        ("2026-09-01 00:00:00;E;1;\n", "malformed line", True),
        ("09/01/2026 00:00:00;E;1;start=1\n", "never started", False),
        (entry("S", "2.pbs", start=0, exec_host="c2/0").rstrip(), "last line cut off", False),
        (entry("E", "2.pbs", start=0, exec_host="c2/0", end=1).rstrip()[:-5], "last line cut off", True),
        ("09/01/2026 00:00:0", "last line cut off", True),
    ],
)
def test_lines_that_give_no_run(tmp_path, line, reason, is_bad):
    """Each line is used, or dropped for a reason; malformed ones are bad."""
    line = line.replace("E;1;start=1", "E;1;exec_host=c1/0 end=60")
    reading, runs = read(tmp_path, *run(), line)
    assert runs == [("c1", 0, 3600, BusyKind.JOB)]
    assert dict(reading.tally.dropped) == {reason: 1}
    assert reading.tally.bad == is_bad
    if is_bad:
        assert "20260901:3: Expected" in reading.tally.examples[0]
    if reason == "impossible time":
        got = line.partition("end=")[2].partition(" ")[0]
        assert f"Expected end=SECONDS, got {f'end={got}' if got else 'none'}" in reading.tally.examples[0]


def test_a_cut_off_time_is_not_believed(tmp_path):
    """The last digits of a time may lack where a file breaks off: it makes no run, and no window from 1970."""
    begins = entry("S", "2.pbs", at=60, exec_host="c2/0", start=60)
    reading, runs = read(tmp_path, *run(), begins.rstrip()[:-4])
    assert runs == [("c1", 0, 3600, BusyKind.JOB)]
    assert reading.window_ns == (MIDNIGHT * 10**9, (MIDNIGHT + 3600) * 10**9)
    whole = entry("E", "2.pbs", at=60, start=0, end=60, exec_host="c2/0", Exit_status=271).rstrip()
    assert read(tmp_path, whole)[1] == [("c2", 0, 60, BusyKind.JOB)]


def test_a_rerun_of_what_began_before_the_files(tmp_path):
    """R tells start and nodes again, as E does, so that its run counts without the line that began it."""
    again = entry("R", "2.pbs", at=7200, start=0, end=1800, exec_host="c2/0-3", run_count=1)
    reading, runs = read(tmp_path, *run(), again)
    assert ("c2", 0, 1800, BusyKind.JOB) in runs
    assert reading.tally.dropped.total() == 0


def test_the_hour_that_comes_twice(tmp_path):
    """Lines before that tell both times say which pass of the hour a local time is of, with a zone as without."""
    first = 1792882800  # 2026-10-25T01:00 in Berlin
    lines = (
        f"10/25/2026 01:00:00;S;1.pbs;start={first} exec_host=c1/0\n",
        f"10/25/2026 02:30:00;S;2.pbs;start={first + 9000} exec_host=c2/0\n",
        "10/25/2026 02:40:00;R;1.pbs;\n",
    )
    for zone in (None, "Europe/Berlin"):
        _, runs = read(tmp_path, *lines, zone=zone)
        assert ("c1", first - MIDNIGHT, first + 9600 - MIDNIGHT, BusyKind.JOB) in runs


def test_the_first_line_after_clocks_went_back(tmp_path):
    """A local time that would lie before the line above it is of the hour's second pass."""
    first = 1792882800  # 2026-10-25T01:00 in Berlin
    lines = (
        f"10/25/2026 02:50:00;S;1.pbs;start={first + 6600} exec_host=c1/0\n",
        "10/25/2026 02:10:00;R;1.pbs;\n",
    )
    _, runs = read(tmp_path, *lines, zone="Europe/Berlin")
    assert runs == [("c1", first + 6600 - MIDNIGHT, first + 7800 - MIDNIGHT, BusyKind.JOB)]


def test_hosts_that_cannot_be_trusted(tmp_path):
    """A list of hosts that was cut off, or of another length than told, makes their state unknown."""
    cut = entry("E", at=60, start=0, end=60, exec_host="c1/0+c2/0+")
    short = entry("E", "2", at=60, start=0, end=60, exec_host="c3/0", unique_node_count=2)
    assert [kind for *_, kind in read(tmp_path, cut, short)[1]] == [BusyKind.UNKNOWN, BusyKind.UNKNOWN]


def test_files_are_read_in_their_order(tmp_path):
    """Days are put in order by their first lines, whatever they are called."""
    start, end = run()
    (tmp_path / "b").write_text(start)
    (tmp_path / "a").write_text(entry("Q", at=1) + end)
    reading = Reading.begun(ImportSettings())
    PbsImporter().read([tmp_path / "a", tmp_path / "b"], reading)
    assert records_of(reading, MIDNIGHT) == [("c1", 0, 3600, BusyKind.JOB)]


def test_a_full_day(tmp_path, fixtures):
    """A day of PBS Pro: phases, a rerun, an array, a pruned start, a suspension, a reservation, provisioning."""
    shutil.copy(fixtures / "logs" / "20260901", tmp_path / "20260901")
    day = {"start": "2026-09-01", "end": "2026-09-02", "zone": "America/Chicago", "nodes": "c[1-5]", "window": "asked"}
    done = import_log("pbs", [tmp_path], ImportSettings(**day, reserved_busy=True, suspended="idle", unseen="idle"))
    hours = idle_of(done.log, MIDNIGHT + 5 * 3600, 3600)
    assert hours == {
        "c1": [(1, 2), (5, 8), (9, 24)],
        "c2": [(1, 2), (3, 10), (10.5, 11), (12, 24)],
        "c3": [(0, 4), (5, 10), (10.5, 11), (12, 17), (pytest.approx(17 + 1 / 6), pytest.approx(17 + 1 / 3))],
        "c4": [(0, 6), (7, 14), (15, 24)],
        "c5": [(0, 24)],
    }
    quality = done.quality
    assert (quality.records, quality.bad) == (33, 0)
    assert dict(quality.dropped) == {"about no run": 8, "no nodes": 1}
    assert quality.busy_node_s["reserved"] == 3600
    # Taken as it is by default, suspended and reserved time is what the job and the scheduler make of it.
    plain = import_log("pbs", [tmp_path], ImportSettings(**day))
    assert (plain.quality.nodes, plain.quality.nodes_unseen) == (4, 1)
    assert plain.quality.busy_node_s["job"] - quality.busy_node_s["job"] == pytest.approx(3600)


@settings(examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(range(8)))
def test_lines_in_any_order(tmp_path, order):
    """Days in any order, forwards or backwards, give the runs that they give in order of time, and that is said."""
    starts = [6 * 3600 + at * 1800 for at in range(4)]
    lines = [line for start in starts for line in run(f"{start}.s", start=start, end=start + 7000)]
    lines.sort(key=lambda line: line[:19])
    (tmp_path / "log").write_text("".join(lines[at] for at in order))
    reading = Reading.begun(ImportSettings())
    PbsImporter().read([tmp_path / "log"], reading)
    assert sorted(records_of(reading, MIDNIGHT)) == [("c1", start, start + 7000, BusyKind.JOB) for start in starts]
    assert int(reading.rows.records()["is_open"].sum()) == 0
    assert [note.split(" ", 1)[1] for note in reading.notes] == (
        [] if order == sorted(order) else ["lines are out of order: they were sorted by their times."]
    )


def test_a_run_without_an_end(tmp_path):
    """A run without an end is busy for the time that it may take: ten hours, also if its nodes change."""
    start = run()[0].rstrip("\n") + " Resource_List.walltime=10:00:00\n"
    reading, runs = read(tmp_path, start)
    assert runs == [("c1", 0, 36_000, BusyKind.JOB)]
    assert int(reading.rows.records()["is_open"].sum()) == 1
    _, runs = read(tmp_path, start, entry("c", at=600, exec_host="c2/0"))
    assert runs == [("c1", 0, 600, BusyKind.JOB), ("c2", 600, 36_000, BusyKind.JOB)]


def test_submissions_are_told_by_starts_and_ends(tmp_path):
    """When a job was queued is what its lines say, of jobs that are still running as well."""
    lines = (
        entry("R", "3.pbs", 950, qtime=MIDNIGHT + 30, start=200, exec_host="c2/0"),
        entry("S", "4.pbs", 1000, qtime=MIDNIGHT + 40, start=1000, exec_host="c1/0"),  # has no end
    )
    reading, _ = read(tmp_path, *lines)
    assert ((reading.rows.records()["submit_ns"] // 10**9) - MIDNIGHT).tolist() == [30, 40]


def test_values_in_quotes_hold_blanks(tmp_path):
    """What stands in quotes is no field of its own, nor is a word without a value."""
    told = f"""jobname="my end=5 job" project='a b' alone x= start={MIDNIGHT} exec_host=c1/0 end={MIDNIGHT + 60}"""
    assert read(tmp_path, f"09/01/2026 00:01:00;E;1[7].m;{told}\n")[1] == [("c1", 0, 60, BusyKind.JOB)]


@pytest.mark.parametrize("text", ["a" * 1_000_000, "a." * 500_000 + "=", '"' * 1_000_000, "x=" + '"' * 500_000])
def test_hostile_lines_take_linear_time(tmp_path, text):
    """A word of a megabyte is looked at once, not once a letter."""
    begin = time.process_time()
    read(tmp_path, f"09/01/2026 00:01:00;E;1;{text}\n")
    assert time.process_time() - begin < 5


def test_impossible_dates_date_nothing(tmp_path):
    """A line of a date that no calendar has changes no run."""
    rerun = entry("R", at=900).replace("09/01", "02/30")
    reading, runs = read(tmp_path, *run()[:1], rerun)
    assert runs == [("c1", 0, OPEN_END, BusyKind.JOB)]
    assert dict(reading.tally.dropped) == {"change at an unknown time": 1}
