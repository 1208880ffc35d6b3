"""The rules of the sweep that all formats share, on Slurm's rows as they are easiest to write."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from bftrainer.errors import LogError, SettingsError
from bftrainer.nodelogs.hostlist import expanded
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import get_importer, importer_names, recognise
from tests.importing import idle_of

HEADER = "JobIDRaw|Partition|Start|End|NNodes|NodeList"
NS = 10**9
WINDOW = {"start": "1970-01-01T00:01:40", "end": "1970-01-01T00:03:20", "window": "asked"}  # 100 s to 200 s


def rows(*jobs):
    """Text of jobs (start, end, nodes) or (start, end, nodes, partition)."""
    lines = [HEADER]
    for number, (start, end, nodes, *partition) in enumerate(jobs, start=1):
        lines.append(f"{number}|{''.join(partition)}|{start}|{end}|{len(expanded(nodes))}|{nodes}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def imported(tmp_path):
    """`imported(text, **settings)` imports rows of sacct seen from 100 s to 200 s."""

    def run(text, **settings):
        (tmp_path / "sacct.txt").write_text(text)
        for name in ("downtimes", "reservations", "nodes"):
            if "\n" in str(settings.get(name, "")):
                (tmp_path / name).write_text(settings[name])
                path = tmp_path / name
                settings[name] = str(path) if name == "nodes" else (path,)
        return import_log("slurm", [tmp_path / "sacct.txt"], ImportSettings(**(WINDOW | settings)))

    return run


def idle(done):
    """Idle intervals by node, in seconds."""
    return idle_of(done.log)


JOBS = rows((90, 120, "n[1-2]"), (150, 250, "n2"), (10, 20, "n3"))


def test_window(imported):
    """Only what is inside the window counts; what goes on beyond its ends fills it up to them."""
    done = imported(JOBS)
    assert idle(done) == {"n1": [(120, 200)], "n2": [(120, 150)], "n3": [(100, 200)]}
    assert (done.log.start_ns, done.log.end_ns) == (100 * NS, 200 * NS)
    quality = done.quality
    assert (quality.records, quality.kept, quality.outside_window, dict(quality.dropped)) == (3, 3, 1, {})
    assert quality.idle_node_s == 80 + 30 + 100
    assert quality.busy_node_s == {"job": 20 + 20 + 50}
    assert quality.idle_share == 0.7


def test_records_add_up(imported):
    """What is read is kept or dropped by one reason."""
    done = imported(JOBS + "1||90|120|2|n[1-2]\n9||90|120|0|\n8.0||90|120|1|n1\n7||0|0|1|n1\n6||7\n", max_bad=0.2)
    quality = done.quality
    assert quality.records == quality.kept + sum(quality.dropped.values()) == 8
    assert dict(quality.dropped) == {
        "duplicate": 1, "no nodes": 1, "job step": 1, "zero length": 1, "wrong number of columns": 1,
    }  # fmt: skip
    assert (quality.duplicates, quality.bad, quality.kept) == (1, 1, 3)
    assert quality.bad_examples[0].endswith("sacct.txt:9: Expected 6 columns, got 3")


def test_shared_nodes(imported):
    """Jobs that share a node are a union, never a sum."""
    done = imported(rows((100, 140, "n1"), (120, 160, "n1")))
    assert idle(done) == {"n1": [(160, 200)]}
    assert done.quality.overlap_factor == 80 / 60


def test_a_window_that_is_not_asked_for(imported):
    """Rows of sacct are chosen by their end: their span is not the window, and the message tells it."""
    for missing in ("start", "end"):
        with pytest.raises(LogError, match=r"Nothing of the log can be trusted: .* from 1970-01-01T00:00:10Z to 1970-"):
            imported(JOBS, window="trusted", **{missing: None})
    done = imported(JOBS, start=None, end=None)
    assert (done.quality.window_start, done.quality.window_end) == ("1970-01-01T00:00:10Z", "1970-01-01T00:04:10Z")


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        ("1970-01-01T00:03:20", "1970-01-01T00:01:40", "Expected the window to start before its end"),
        ("1970-01-01T00:03:20", "1970-01-01T00:03:20", "Expected the window to start before its end"),
        ("2026-01-01", "2026-02-01", r"Expected a window within the log, got 2026-.* from 1970-01-01T00:00:10Z"),
        ("1970-01-01", "1970-01-01T00:00:10", r"Expected a window within the log"),
        ("yesterday", "2026-02-01", r"Expected a time such as 2026-09-01T08:00, got 'yesterday'"),
    ],
)
def test_impossible_windows(imported, start, end, message):
    """A window that ends before it starts, or lies outside the log, is refused."""
    with pytest.raises((LogError, SettingsError), match=message):
        imported(JOBS, start=start, end=end)


def test_an_idle_window_within_the_log(imported):
    """A window in which nothing ran is one in which everything was idle."""
    done = imported(rows((10, 20, "n1"), (500, 600, "n1")))
    assert idle(done) == {"n1": [(100, 200)]}


def test_zone_of_the_window(imported):
    """Times of the window are those of the zone."""
    done = imported(JOBS, zone="+01:00", start="1970-01-01T01:01:40", end="1970-01-01T01:03:20")
    assert idle(done) == idle(imported(JOBS))
    assert done.quality.zone == "+01:00"


# --- inventory ---------------------------------------------------------------------------------------------------


def test_nodes_seen(imported):
    """By default the nodes are those that the log names, in the order of their numbers, and that is noted."""
    done = imported(rows((100, 110, "n[9-11]"), (100, 110, "login")))
    assert done.log.nodes == ("login", "n9", "n10", "n11")
    assert any("no --nodes" in note for note in done.quality.notes)
    assert not any("no --nodes" in note for note in imported(JOBS, nodes="seen").quality.notes)


def test_unseen_nodes(imported):
    """Nodes that the log never names are absent unless they are said to be idle."""
    absent = imported(JOBS, nodes="n[0-4]")
    assert absent.log.nodes == ("n1", "n2", "n3")
    idle_ones = imported(JOBS, nodes="n[0-4]", unseen="idle")
    assert idle_ones.log.nodes == ("n0", "n1", "n2", "n3", "n4")
    assert idle(idle_ones)["n4"] == [(100, 200)]
    for done in (absent, idle_ones):
        assert (done.quality.nodes_seen, done.quality.nodes_unseen) == (3, 2)


def test_unseen_nodes_that_were_out_of_service(imported):
    """A node that takes no jobs when the inventory is taken, and never ran one, was not idle."""
    done = imported(JOBS, nodes="n1 idle\nn2 down*\nn3 idle\nn4 drained\nn5 idle\n", unseen="idle")
    assert done.log.nodes == ("n1", "n2", "n3", "n5")
    assert any(note.startswith("1 of the nodes that the log never names") for note in done.quality.notes)


def test_nodes_outside_the_inventory(imported):
    """Nodes of the log that the inventory does not have are left out, counted, and named up to ten."""
    done = imported(rows((100, 110, "n[1-20]")), nodes="n[1-5]")
    assert done.log.nodes == ("n1", "n2", "n3", "n4", "n5")
    assert done.quality.nodes_outside == 15
    assert done.quality.outside_examples == tuple(f"n{number}" for number in range(6, 16))
    with pytest.raises(LogError, match=r"nodes of the log \(n1, .*n10 and 10 more\), got others \(m1, m2\)"):
        imported(rows((100, 110, "n[1-20]")), nodes="m[1-2]")


def test_partitions(imported):
    """Nodes of a partition are those of the inventory, or else those that ran its jobs, whatever else ran there."""
    text = rows((100, 110, "n1", "gpu"), (120, 130, "n[1-2]", "batch"), (140, 150, "n3", "batch"))
    done = imported(text, partitions=("gpu",))
    assert idle(done) == {"n1": [(110, 120), (130, 200)]}
    assert done.log.provenance["partitions"] == {"batch": "n1", "gpu": "n1"}
    assert any("ran its jobs" in note for note in done.quality.notes)
    done = imported(text, partitions=("big",), nodes="n1|big|idle\nn3|big|idle\nn2|small|idle\n")
    assert done.log.nodes == ("n1", "n3")
    assert imported(text).log.provenance["partitions"] == {"batch": "n[1-3]", "gpu": "n1"}
    with pytest.raises(SettingsError, match=r"partition 'gqu'\. Did you mean 'gpu'\?"):
        imported(text, partitions=("gqu",))
    with pytest.raises(SettingsError, match=r"'gpu'\. No partitions"):
        imported(rows((100, 110, "n1")), partitions=("gpu",))


def test_partitions_of_jobs_outside_the_window(imported):
    """A node that ran a partition's jobs before the window is of that partition within it, idle or not."""
    text = rows((10, 20, "n1", "a"), (110, 120, "n2", "a"), (90, 120, "n3", "b"))
    assert idle(imported(text, partitions=("a",))) == {"n1": [(100, 200)], "n2": [(100, 110), (120, 200)]}


def test_strangers_among_the_downtimes(imported):
    """Nodes of downtimes that the machine does not have are told: their names may be of another form."""
    down = "node,start,end\nn1.site.org,100,150\nn2,100,150\n"
    notes = imported(JOBS, downtimes=down).quality.notes
    assert any(note.startswith("1 nodes that downtimes") and note.endswith("n1.site.org.") for note in notes)
    assert not any("alone name" in note for note in imported(JOBS, downtimes="node,start,end\nn2,1,9\n").quality.notes)


def test_excluded_nodes(imported):
    """Nodes that are excluded are not offered; at least one has to be left."""
    assert imported(JOBS, exclude_nodes="n[2-3],m7").log.nodes == ("n1",)
    with pytest.raises(LogError, match="left after --partition and --exclude-nodes"):
        imported(JOBS, exclude_nodes="n[1-3]")
    with pytest.raises(LogError, match="--exclude-nodes: Expected a list of nodes"):
        imported(JOBS, exclude_nodes="n[1-")


# --- what else keeps a node busy ---------------------------------------------------------------------------------


def test_downtimes(imported):
    """A node that is down is not idle; without downtimes idle time is an upper bound, and that is noted."""
    done = imported(JOBS, downtimes="node,start,end\nn1,130,140\nn3,180,None\nn9,0,900\n")
    assert idle(done) == {"n1": [(120, 130), (140, 200)], "n2": [(120, 150)], "n3": [(100, 180)]}
    assert done.quality.busy_node_s == {"job": 90, "down": 30}
    assert not any("upper bound" in note for note in done.quality.notes)
    assert any("upper bound" in note for note in imported(JOBS).quality.notes)


def test_reservations(imported):
    """Reserved nodes are not idle either."""
    done = imported(JOBS, reservations="NodeList|StartTime|EndTime\nn[1,3]|150|160\n")
    assert idle(done)["n3"] == [(100, 150), (160, 200)]
    assert done.quality.busy_node_s["reserved"] == 20


def test_unknown_intervals(imported):
    """Nodes of a list that cannot be trusted are not idle, and counted."""
    done = imported(f"{HEADER}\n1||110|150|7|n1\n2||100|110|1|n1\n")
    assert idle(done) == {"n1": [(150, 200)]}
    assert done.quality.unknown == 1
    assert done.quality.busy_node_s == {"job": 10, "unknown": 40}


def test_gaps_and_holes(imported):
    """Short gaps between jobs are clean-up; short idle intervals anywhere are not offered if so wished."""
    text = rows((105, 110, "n1"), (113, 120, "n1"), (140, 195, "n1"))
    assert idle(imported(text)) == {"n1": [(100, 105), (110, 113), (120, 140), (195, 200)]}
    assert idle(imported(text, min_gap_s=4.0)) == {"n1": [(100, 105), (120, 140), (195, 200)]}
    assert idle(imported(text, min_hole_s=5.0)) == {"n1": [(100, 105), (120, 140), (195, 200)]}
    assert idle(imported(text, min_hole_s=6.0)) == {"n1": [(120, 140)]}


def test_gaps_across_the_ends_of_the_window(imported):
    """What a job before the window and one within it leave between them is clean-up too; likewise at the end."""
    text = rows((90, 98, "n1"), (101, 198, "n1"), (201, 210, "n1"))
    assert idle(imported(text, min_gap_s=4.0)) == {"n1": []}
    assert idle(imported(text, min_gap_s=3.0)) == {"n1": [(100, 101), (198, 200)]}
    assert imported(text, min_gap_s=4.0).quality.outside_window == 2


def test_default_gap_is_a_second(imported):
    """A node is idle for a whole second or not at all."""
    text = rows((100, 150, "n1"), (151, 200, "n1"))
    assert idle(imported(text)) == {"n1": [(150, 151)]}
    assert idle(imported(text, min_gap_s=1.5)) == {"n1": []}


# --- what is refused, and what is kept beside the log ------------------------------------------------------------


def test_too_many_unusable_records(imported):
    """Above the limit the first unusable record is named; at the limit the import goes through."""
    text = JOBS + "8||9\n"
    assert imported(text, max_bad=0.25).quality.bad == 1
    with pytest.raises(LogError, match=r"sacct.txt:5: Expected 6 columns, got 3 \(1 of 4 records are unusable"):
        imported(text, max_bad=0.24)


def test_a_log_without_jobs(imported):
    """A log in which nothing ran gives no node log, and says why."""
    with pytest.raises(LogError, match=r"no record at all\."):
        imported(f"{HEADER}\n")
    with pytest.raises(LogError, match=r"1 records \(1 no nodes\)"):
        imported(f"{HEADER}\n1||100|200|0|None assigned\n")


def test_provenance(imported, tmp_path):
    """The node log says where it comes from and how it was made."""
    done = imported(JOBS, nodes="n[1-3]", zone="UTC", min_hole_s=3.0)
    story = done.log.provenance
    assert story["tool"].startswith("bftrainer ")
    assert story["format"] == "slurm"
    assert [entry["path"] for entry in story["inputs"]] == [str(tmp_path / "sacct.txt")]
    data = (tmp_path / "sacct.txt").read_bytes()
    assert (story["inputs"][0]["sha256"], story["inputs"][0]["bytes"]) == (hashlib.sha256(data).hexdigest(), len(data))
    assert story["window"] == ["1970-01-01T00:01:40Z", "1970-01-01T00:03:20Z"]
    assert (story["zone"], story["inventory"], story["unseen"]) == ("UTC", "n[1-3]", "absent")
    assert (story["min_gap_s"], story["min_hole_s"]) == (1.0, 3.0)


def test_provenance_of_the_inventory(imported, tmp_path):
    """What an inventory's file held is told by its checksum, as of all files."""
    story = imported(JOBS, nodes="n1\nn2\n").log.provenance
    assert [entry["path"] for entry in story["inputs"]] == [str(tmp_path / "sacct.txt"), str(tmp_path / "nodes")]


def test_equal_inputs_give_equal_logs(imported):
    """Nothing of an import depends on anything but its inputs."""
    one, other = imported(JOBS), imported(JOBS)
    assert one.quality == other.quality
    assert one.log.provenance == other.log.provenance
    assert np.array_equal(one.log.time_ns, other.log.time_ns)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_gap_s": -1}, "Expected 0 <= --min-gap"),
        ({"min_hole_s": float("nan")}, "Expected 0 <= --min-hole"),
        ({"max_bad": 1.5}, r"Expected --max-bad between 0 and 100 %, got 150 %"),
        ({"max_overcommit": -0.1}, "Expected --max-overcommit between"),
        ({"procs_per_node": 0}, "Expected --procs-per-node >= 1"),
        ({"nodes": ""}, "Expected --nodes to be"),
    ],
)
def test_settings_out_of_range(settings, message):
    """Settings are checked when they are made."""
    with pytest.raises(SettingsError, match=message):
        ImportSettings(**settings)


def test_registry():
    """Formats are known by name; a wrong name is answered with the nearest."""
    for name in importer_names():
        assert get_importer(name).name == name
    with pytest.raises(
        SettingsError, match=r"Expected a known log format or module:callable, got 'slrum'\. Did you mean 'slurm'\?"
    ):
        get_importer("slrum")
    with pytest.raises(LogError, match=r"x: Expected a log of a format that is known \(.*\), got .* 'Dear diary'"):
        recognise(["", "Dear diary"], "x")


def test_auto(tmp_path):
    """Without a format's name the first file tells it."""
    (tmp_path / "a").write_text(JOBS)
    done = import_log("auto", [tmp_path], ImportSettings(**WINDOW))
    assert done.quality.format == "slurm"


# --- logs without node names -------------------------------------------------------------------------------------


def counted(tmp_path, *jobs, capacity=3, **settings):
    """Import jobs (start, end, nodes) written in SWF."""
    lines = [f"{n} {start} 0 {end - start} {nodes}" + " -1" * 13 for n, (start, end, nodes) in enumerate(jobs, 1)]
    (tmp_path / "log.swf").write_text(f"; MaxNodes: {capacity}\n" + "\n".join(lines) + "\n")
    return import_log("swf", [tmp_path / "log.swf"], ImportSettings(**({"window": "asked"} | settings)))


def test_counts(tmp_path):
    """Jobs are placed on anonymous nodes from the lowest number on, and the log says so."""
    done = counted(tmp_path, (0, 10, 2), (5, 20, 1), (10, 20, 1))
    assert done.log.nodes == ("n0001", "n0002", "n0003")
    assert idle(done) == {"n0001": [], "n0002": [(10, 20)], "n0003": [(0, 5)]}
    assert done.log.provenance["placement"].startswith("first fit")
    assert done.quality.over_capacity_share == 0.0
    assert any("lengths of idle fragments are not" in note for note in done.quality.notes)
    assert done.quality.nodes_seen == 0


def test_names_for_counts(tmp_path):
    """An inventory gives the nodes their names, a number tells how many there are."""
    assert counted(tmp_path, (0, 10, 2), nodes="a[1-4]").log.nodes == ("a1", "a2", "a3", "a4")
    assert len(counted(tmp_path, (0, 10, 2), nodes="12").log.nodes) == 12
    with pytest.raises(LogError, match="Expected 1 to 1,000,000 nodes, got 0"):
        counted(tmp_path, (0, 10, 2), nodes="0")


def test_over_capacity(tmp_path):
    """More demand than nodes is cut down to them for a while, and refused above the limit."""
    jobs = ((0, 100, 3), (96, 100, 1))
    done = counted(tmp_path, *jobs)
    assert done.quality.over_capacity_share == 0.04
    assert done.quality.idle_node_s == 0
    with pytest.raises(LogError, match=r"at most 3 nodes at a time, got more for 4 % of the window, above --max-overc"):
        counted(tmp_path, *jobs, max_overcommit=0.03)


@pytest.mark.parametrize(
    ("settings", "flag"),
    [
        ({"partitions": ("a",)}, "--partition"),
        ({"exclude_nodes": "n0001"}, "--exclude-nodes"),
        ({"downtimes": ("x",), "reservations": ("x",)}, "--downtimes and --reservations"),
    ],
)
def test_counts_have_no_names(tmp_path, settings, flag):
    """What is said by node's name cannot be said of nodes without names; the options that were given are named."""
    with pytest.raises(SettingsError, match=f"^{flag} cannot be used: the log names no nodes"):
        counted(tmp_path, (0, 10, 2), **settings)


def test_bad_row_of_downtimes_counts_against_max_bad(imported):
    """A row that cannot be read is an error if such rows are too many, else a note; the others count."""
    downtimes = "node,start,end\nn1,150,160\nn1,noon,170\n"
    with pytest.raises(LogError, match=r"downtimes:3: Expected a time .* \(1 of 2 records are unusable"):
        imported(JOBS, downtimes=downtimes)
    done = imported(JOBS, downtimes=downtimes, max_bad=0.5)
    assert idle(done)["n1"] == [(120, 150), (160, 200)]
    assert any("1 of 2 rows of" in note and "are unusable" in note for note in done.quality.notes)
