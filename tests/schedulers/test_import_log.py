"""The rules that all formats share, on Slurm's rows as they are easiest to write; and parts of nodes."""

from __future__ import annotations

import hashlib
import re
from functools import partial
from importlib.metadata import EntryPoint
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bftrainer import plugins
from bftrainer.errors import LogError, SettingsError
from bftrainer.nodelogs.hostlist import expand_hostlist
from bftrainer.schedulers import IMPORTERS
from bftrainer.schedulers.clock import BAD
from bftrainer.schedulers.import_log import import_log, quality_path
from bftrainer.schedulers.import_settings import LOG_FORMATS, ImportSettings
from bftrainer.schedulers.reading import Importer, Reading, get_importer, recognise
from tests.importing import idle_of, import_text

HEADER = "JobIDRaw|Partition|Start|End|NNodes|NodeList"
NS = 10**9
WINDOW = {"start": "1970-01-01T00:01:40", "end": "1970-01-01T00:03:20", "window": "asked"}  # 100 s to 200 s


def rows(*jobs):
    """Text of jobs: start, end, nodes, and perhaps partition and GPUs, each with eight cores."""
    lines = [HEADER + "|AllocTRES" * (len(jobs[0]) > 4)]
    for number, (start, end, nodes, *more) in enumerate(jobs, start=1):
        held = [f"cpu={8 * gpus},gres/gpu={gpus},node=1" for gpus in more[1:]]
        cells = number, "".join(more[:1]), start, end, len(expand_hostlist(nodes)), nodes, *held
        lines.append("|".join(map(str, cells)))
    return "\n".join(lines) + "\n"


@pytest.fixture
def imported(tmp_path):
    """`imported(text, **settings)` imports rows of sacct seen from 100 s to 200 s."""
    return partial(import_text, tmp_path / "sacct.txt", "slurm", **WINDOW)


JOBS = rows((90, 120, "n[1-2]"), (150, 250, "n2"), (10, 20, "n3"))


def test_window(imported):
    """Only what is inside the window counts; what goes on beyond its ends fills it up to them."""
    done = imported(JOBS)
    assert idle_of(done.log) == {"n1": [(120, 200)], "n2": [(120, 150)], "n3": [(100, 200)]}
    assert (done.log.start_ns, done.log.end_ns) == (100 * NS, 200 * NS)
    quality = done.quality
    assert (quality.records, quality.kept, quality.outside_window, dict(quality.dropped)) == (3, 3, 1, {})
    assert (quality.idle_node_s, quality.idle_share) == (80 + 30 + 100, 0.7)
    assert quality.busy_node_s == {"job": 20 + 20 + 50}
    # Times of the window are those of the zone.
    other = imported(JOBS, zone="+01:00", start="1970-01-01T01:01:40", end="1970-01-01T01:03:20")
    assert (idle_of(other.log), other.quality.zone) == (idle_of(done.log), "+01:00")
    # A window in which nothing ran is one in which everything was idle.
    assert idle_of(imported(rows((10, 20, "n1"), (500, 600, "n1"))).log) == {"n1": [(100, 200)]}
    # Rows of sacct are chosen by their end: their span is the window of who insists on it.
    quality = imported(JOBS, start=None, end=None).quality
    assert (quality.window_start, quality.window_end) == ("1970-01-01T00:00:10Z", "1970-01-01T00:04:10Z")


def test_records_add_up(imported):
    """What is read is kept or dropped by one reason; jobs that share a node are a union, never a sum."""
    text = JOBS + "1||90|120|2|n[1-2]\n9||90|120|0|\n8.0||90|120|1|n1\n7||0|0|1|n1\n6||7\n"
    quality = imported(text, max_bad=0.2).quality
    assert quality.records == quality.kept + sum(quality.dropped.values()) == 8
    reasons = ("duplicate", "no nodes", "job step", "zero length", "wrong number of columns")
    assert quality.dropped == dict.fromkeys(reasons, 1)
    assert (quality.duplicates, quality.bad, quality.kept) == (1, 1, 3)
    assert quality.bad_examples[0].endswith("sacct.txt:9: Expected 6 columns, got 3")
    with pytest.raises(LogError, match=r"sacct.txt:9: Expected 6 columns, got 3 \(1 of 8 records are unusable"):
        imported(text, max_bad=0.1)
    shared = imported(rows((100, 140, "n1"), (120, 160, "n1")))
    assert (idle_of(shared.log), shared.quality.overlap_factor) == ({"n1": [(160, 200)]}, 80 / 60)


def test_nodes_seen(imported):
    """By default the nodes are those that the log names, in the order of their numbers, and that is noted."""
    done = imported(rows((100, 110, "n[9-11]"), (100, 110, "login")))
    assert done.log.nodes == ("login", "n9", "n10", "n11")
    assert any("no --nodes" in note for note in done.quality.notes)
    assert not any("no --nodes" in note for note in imported(JOBS, nodes="seen").quality.notes)


def test_unseen_nodes(imported):
    """Nodes that the log never names are absent unless they are said to be idle, and were not out of service."""
    absent, idle_ones = imported(JOBS, nodes="n[0-4]"), imported(JOBS, nodes="n[0-4]", unseen="idle")
    assert absent.log.nodes == ("n1", "n2", "n3")
    assert idle_ones.log.nodes == ("n0", "n1", "n2", "n3", "n4")
    assert idle_of(idle_ones.log)["n4"] == [(100, 200)]
    for done in (absent, idle_ones):
        assert (done.quality.nodes_seen, done.quality.nodes_unseen) == (3, 2)
    done = imported(JOBS, nodes="n1 idle\nn2 down*\nn3 idle\nn4 drained\nn5 idle\n", unseen="idle")
    assert done.log.nodes == ("n1", "n2", "n3", "n5")
    assert any(note.startswith("1 of the nodes that the log never names") for note in done.quality.notes)


def test_nodes_outside_the_inventory(imported):
    """Nodes of the log that the inventory does not have are left out, counted, and named up to ten."""
    assert imported(JOBS, exclude_nodes="n[2-3],m7").log.nodes == ("n1",)  # as those are that are excluded
    done = imported(rows((100, 110, "n[1-20]")), nodes="n[1-5]")
    assert done.log.nodes == ("n1", "n2", "n3", "n4", "n5")
    assert done.quality.nodes_outside == 15
    assert done.quality.outside_examples == tuple(f"n{number}" for number in range(6, 16))


def test_partitions(imported):
    """Nodes of a partition are those of the inventory, or else those that ran its jobs, also outside the window."""
    text = rows((10, 20, "n1", "gpu"), (120, 130, "n[1-2]", "batch"), (140, 150, "n3", "batch"))
    done = imported(text, partitions=("gpu",))
    assert idle_of(done.log) == {"n1": [(100, 120), (130, 200)]}
    assert done.log.provenance["partitions"] == {"batch": "n1", "gpu": "n1"}
    assert any("ran its jobs" in note for note in done.quality.notes)
    done = imported(text, partitions=("big",), nodes="n1|big|idle\nn3|big|idle\nn2|small|idle\n")
    assert done.log.nodes == ("n1", "n3")
    assert imported(text).log.provenance["partitions"] == {"batch": "n[1-3]", "gpu": "n1"}


def test_downtimes(imported):
    """A node that is down is not idle; without downtimes idle time is an upper bound, and that is noted."""
    done = imported(JOBS, downtimes="node,start,end\nn1,130,140\nn3,180,None\nn9.site.org,0,900\n")
    assert idle_of(done.log) == {"n1": [(120, 130), (140, 200)], "n2": [(120, 150)], "n3": [(100, 180)]}
    assert done.quality.busy_node_s == {"job": 90, "down": 30}
    assert not any("upper bound" in note for note in done.quality.notes)
    assert any("upper bound" in note for note in imported(JOBS).quality.notes)
    # Nodes that the machine does not have are told: their names may be of another form.
    (note,) = [note for note in done.quality.notes if note.startswith("1 nodes that downtimes")]
    assert note.endswith("n9.site.org.")


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        # Events of sacctmgr, of which those of the cluster are none; open ones go on.
        ("NodeName|TimeStart|TimeEnd|State|Reason\nn3|150|160|DOWN*|a | b\n|100|Unknown||count\n", [(150, 160)]),
        ("NodeName|TimeStart|TimeEnd|State\nn[3-4]|150|Unknown|DRAIN\n", [(150, 200)]),
        # Reservations name their columns in another way.
        ("Cluster|Name|TimeStart|TimeEnd|NodeNames\n|maint|150|160|n[1,3]\n", [(150, 160)]),
        # A table may have hostlists in brackets or quotes, in any order of columns, and open starts.
        ('start,end,node,why\nNone,160,"n3,n4",x\n\n180,190,n[2,3],x\n170,170,n3,x\n', [(100, 160), (180, 190)]),
    ],
)
def test_forms_of_downtimes(imported, text, spans):
    """Tables of downtimes and of reservations as schedulers print them."""
    busy = sorted({100, 200}.union(*spans))
    wanted = [(low, high) for low, high in pairwise(busy) if (low, high) not in spans]
    for setting, cause in (("downtimes", "down"), ("reservations", "reserved")):
        done = imported(JOBS, **{setting: text})
        assert (idle_of(done.log)["n3"], cause in done.quality.busy_node_s) == (wanted, "DRAIN" not in text)


@pytest.mark.parametrize(("listed", "nodes"), [("[01-02]", ("01", "02")), ("10-03", ("10-03", "10-04"))])
def test_downtimes_of_names_that_are_numbers(imported, listed, nodes):
    """Leading zeros, and numbers of racks, are parts of names."""
    text = rows(*((90, 110, node) for node in nodes))
    down = imported(text, downtimes=f"node|start|end\n{listed}|150|160\n")
    assert idle_of(down.log)[nodes[0]] == [(110, 150), (160, 200)]


def test_downtimes_in_local_times(imported):
    """Of an hour that the clock shows twice both passes count; a time of 1970 is unset where the other is of today."""
    window = {"start": "2026-10-25T00:00", "end": "2026-10-25T06:00", "zone": "Europe/Berlin", "nodes": "n1"}
    text = f"{HEADER}\n1||1792800000|1892800000|1|n2\n2||1792800000|1792800001|1|n1\n"
    down = "node|start|end\nn1|2026-10-25T02:30:00|2026-10-25T02:30:00\nn1|2026-10-25T05:00:00|0\n"
    assert imported(text, downtimes=down, **window).quality.busy_node_s["down"] == 2 * 3600


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("n1|150\n", "Expected 3 columns or more, got 2"),
        ("n1|160|150\n", "Expected a start before the end, got '160' and '150'"),
        ("n1|noon|170\n", "Expected times such as .*, got 'noon'"),
        ("n[1-|150|160\n", "Expected "),
    ],
)
def test_bad_rows_of_downtimes_count_against_max_bad(imported, row, message):
    """A row that cannot be read is an error if such rows are too many, else a note; the others count."""
    text = f"node|start|end\nn1|150|160\n{row}"
    with pytest.raises(LogError, match=rf"downtimes:3: {message}.* \(1 of 2 records are unusable"):
        imported(JOBS, downtimes=text)
    done = imported(JOBS, downtimes=text, max_bad=0.5)
    assert idle_of(done.log)["n1"] == [(120, 150), (160, 200)]
    assert any("1 of 2 rows of" in note and "are unusable" in note for note in done.quality.notes)


def test_nodes_of_a_list_that_cannot_be_trusted(imported):
    """They are not idle, and counted, where a list names fewer nodes than the job had."""
    done = imported(f"{HEADER}\n1||110|150|7|n1\n2||100|110|1|n1\n")
    assert (idle_of(done.log), done.quality.unknown) == ({"n1": [(150, 200)]}, 1)
    assert done.quality.busy_node_s == {"job": 10, "unknown": 40}


@pytest.mark.parametrize(
    ("spans", "settings", "left"),
    [
        (((105, 110), (113, 120), (140, 195)), {}, [(100, 105), (110, 113), (120, 140), (195, 200)]),
        (((105, 110), (113, 120), (140, 195)), {"min_gap_s": 4.0}, [(100, 105), (120, 140), (195, 200)]),
        (((105, 110), (113, 120), (140, 195)), {"min_hole_s": 5.0}, [(100, 105), (120, 140), (195, 200)]),
        (((105, 110), (113, 120), (140, 195)), {"min_hole_s": 6.0}, [(120, 140)]),
        # What a job before the window and one within it leave between them is clean-up too; likewise at the end.
        (((90, 98), (101, 198), (201, 210)), {"min_gap_s": 4.0}, []),
        (((90, 98), (101, 198), (201, 210)), {"min_gap_s": 3.0}, [(100, 101), (198, 200)]),
        # By default a node is idle for a whole second or not at all.
        (((100, 150), (151, 200)), {}, [(150, 151)]),
        (((100, 150), (151, 200)), {"min_gap_s": 1.5}, []),
    ],
)
def test_gaps_and_holes(imported, spans, settings, left):
    """Short gaps between jobs are clean-up; short idle intervals anywhere are not offered if so wished."""
    assert idle_of(imported(rows(*((*span, "n1") for span in spans)), **settings).log) == {"n1": left}


def test_provenance(imported, tmp_path):
    """The node log says where it comes from and how it was made; equal inputs give equal logs."""
    settings = {"nodes": "n1\nn2\nn3\n", "zone": "UTC", "min_hole_s": 3.0}
    done, again = imported(JOBS, **settings), imported(JOBS, **settings)
    story, data = done.log.provenance, (tmp_path / "sacct.txt").read_bytes()
    assert story["tool"].startswith("bftrainer ")
    assert [entry["path"] for entry in story["inputs"]] == [str(tmp_path / "sacct.txt"), str(tmp_path / "nodes")]
    assert (story["inputs"][0]["sha256"], story["inputs"][0]["bytes"]) == (hashlib.sha256(data).hexdigest(), len(data))
    assert (story["format"], story["window"]) == ("slurm", ["1970-01-01T00:01:40Z", "1970-01-01T00:03:20Z"])
    assert (story["zone"], story["inventory"], story["unseen"]) == ("UTC", str(tmp_path / "nodes"), "absent")
    assert (story["min_gap_s"], story["min_hole_s"]) == (1.0, 3.0)
    assert (again.quality, again.log.provenance) == (done.quality, story)
    assert np.array_equal(again.log.time_ns, done.log.time_ns)


def test_account_is_called_like_the_log():
    """The figures lie beside the node log, under its name, whatever its form."""
    for name in ("idle.parquet", "idle.csv", "idle.csv.gz"):
        assert quality_path(Path("a") / name) == Path("a/idle.quality.json")


def test_unusable_records_are_shown_in_a_line(imported):
    """The first ten are named; what stands in a log cannot break the line in which it is shown."""
    text = f"{HEADER}\n" + "".join(f"{at}||a\x1b[31mb|200|1|n1\n" for at in range(20))
    done = imported(f"{text}99||100|200|1|n1\n", max_bad=1.0)
    assert (done.quality.bad, len(done.quality.bad_examples)) == (20, 10)
    with pytest.raises(LogError) as caught:
        imported(text)
    assert str(caught.value).isprintable()


CLUSTERS = """\
JobIDRaw|Cluster|Partition|Start|End|NNodes|NodeList
1|east|batch|100|120|2|n[1-2]
1|west|batch|100|120|2|n[1-2]
2|west|gpu|150|160|1|n1
2|west|gpu|150|160|1|n1
"""
EVENTS = """\
Cluster|NodeName|TimeStart|TimeEnd|State
east|n2|130|140|MAINT
west|n2|150|200|POWERED_DOWN
"""


def test_two_clusters(imported):
    """Nodes of one name on two clusters are two nodes, jobs of one number two jobs; a repeated row is one."""
    done = imported(CLUSTERS, downtimes=EVENTS)
    assert idle_of(done.log) == {
        "east/n1": [(120, 200)],
        "east/n2": [(120, 130), (140, 200)],
        "west/n1": [(120, 150), (160, 200)],
        "west/n2": [(120, 150)],
    }
    quality = done.quality
    assert (quality.records, quality.kept, quality.duplicates) == (4, 3, 1)
    assert quality.busy_node_s == {"job": 90, "maintenance": 10, "powered_down": 50}
    assert set(done.log.provenance["partitions"]) == {"east/batch", "west/batch", "west/gpu"}
    assert any("2 clusters (east, west)" in note for note in quality.notes)


def test_one_of_two_clusters(imported):
    """A cluster that is picked has nodes of its own names; rows of the other are counted. Causes can be offered."""
    done = imported(CLUSTERS, downtimes=EVENTS, cluster="west")
    assert idle_of(done.log) == {"n1": [(120, 150), (160, 200)], "n2": [(120, 150)]}
    assert done.quality.dropped == {"of another cluster": 1, "duplicate": 1}
    offered = imported(CLUSTERS, downtimes=EVENTS, cluster="west", offer=("powered-down",))
    assert idle_of(offered.log)["n2"] == [(120, 200)]


class Diary(Importer):
    """Reads nothing."""

    name = "diary"

    def recognises(self, lines):
        """Any that begins as diaries do, or as PBS's logs."""
        return lines[0].startswith(("Dear", "09/"))

    def read(self, paths, reading):  # noqa: ARG002
        """One node was busy."""
        reading.tally.records += 1
        reading.rows.add(120 * NS, 150 * NS, reading.rows.add_list(["n1"]))


class Broken(Diary):
    """An importer that fails while it reads."""

    def read(self, paths, reading):  # noqa: ARG002
        """Fail."""
        raise ValueError("oops")


def test_importers_of_other_packages(tmp_path, monkeypatch):
    """An importer is found by the name it is registered under, by `module:callable`, and by its logs, before others."""
    point = EntryPoint("dear", f"{__name__}:Diary", IMPORTERS.group)
    monkeypatch.setattr(plugins, "entries_of", lambda _: {"dear": (point,)})
    (tmp_path / "a").write_text("09/01/2026 08:00:00;Q;1;\n")
    for name in ("dear", f"{__name__}:Diary", "auto"):
        done = import_log(name, [tmp_path], ImportSettings(**WINDOW))
        assert (done.quality.format, idle_of(done.log)) == ("diary", {"n1": [(100, 120), (150, 200)]})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ImportSettings", "Expected a subclass of Importer, got ImportSettings."),
        ("Broken", "importer Broken: raised ValueError: oops (test_import_log.py, line"),
    ],
)
def test_a_plug_in_that_fails_is_named(tmp_path, name, message):
    """One line says which importer failed, and how."""
    (tmp_path / "log").write_text("dear diary\n")
    with pytest.raises((LogError, SettingsError), match=re.escape(message)):
        import_log(f"{__name__}:{name}", [tmp_path / "log"])


@pytest.mark.parametrize(
    "change",
    [
        {"start_ns": [1.0, float("nan")]},
        {"end_ns": [float("nan"), 6.0]},
        {"nodes": ["n1", None]},
        *({f"{name}_ns": [BAD, 3]} for name in ("start", "end")),
    ],
)
def test_rows_without_times_or_nodes_are_counted(change):
    """What a plug-in's frame does not say, or cannot read, is no idle time: such rows are unusable, whatever labels."""
    reading = Reading(ImportSettings(max_bad=1.0))
    frame = {"start_ns": [1.0, 2.0], "end_ns": [5.0, 6.0], "nodes": ["n1", "n2"]}
    reading.take(pd.DataFrame(frame | change, index=[7, 7]))
    assert (reading.tally.bad, len(reading.rows)) == (1, 1)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["09/01/2026 08:00:00;Q;7;", "09/01/2026 08:00:00;ND;n1;"], "Cobalt.*plug-in"),
        (["09/01/2026 08:00:00;S;7;queue=q start=1 exec_host=1-2"], "Cobalt.*plug-in"),
        ([":".join("qhguj1a0123" + "x" * 30)], "Expected a log .*--format table"),
        (["start,end,nodes", "1,2,n1"], "Expected a log .*--format table --map start=COLUMN"),
        (["", "Dear diary"], r"Expected a log of a format that is known \(.*\), got .* 'Dear diary'"),
    ],
)
def test_formats_without_an_importer(lines, message):
    """What to do with a log of a format that is not read is said in a line; PBS's lines stay PBS's."""
    with pytest.raises(LogError, match=f"^x: {message}"):
        recognise(lines, "x")
    assert recognise(["09/01/2026 08:00:00;S;7;exec_host=a/1", "09/01/2026 08:00:00;E;7;"], "x").name == "pbs"


@pytest.mark.parametrize(
    ("name", "lines", "wanted"),
    [
        *((name, [], False) for name in LOG_FORMATS),
        ("slurm", ["JobIDRaw|Start|End|NodeList|"], True),
        ("slurm", ["JobIDRaw|JobID|Start|NodeList|State"], True),  # which column is missing is told when it is read
        ("slurm", ["1|a|2026-03-29T01:30:00|2026-03-29T03:30:00|n1"], True),
        ("slurm", ["70_1|batch|CANCELLED by 5|1788242400|1788249600|00:00:00|4|cn-[01-02]|a job"], True),
        *(("slurm", [line], False) for line in ("1|a|b|c|d", "1788242400|1788249600|b|c|d", "node|start|end")),
        ("flux", ['{"id": 1, "t_submit": 1.0, "t_run": 1}'], True),
        *(("flux", [line], False) for line in ('{"a": 1}', "x")),
        ("swf", ["; a comment", " ".join(map(str, range(18)))], True),
        ("swf", [";".join(map(str, range(18)))], True),  # it is refused with the reason
        *(("swf", [line], False) for line in ("1 2 3", "; a comment", "a;b;c;d;e;f;g;h;i;j;k;l;m;n;o;p;q;r")),
    ],
)
def test_recognition(name, lines, wanted):
    """A log is known by its header or its first rows."""
    assert get_importer(name).recognises(lines) is wanted


SHOWN = "NodeName={} CPUTot=64 Gres=gpu:a100:4(S:0-1) State=IDLE\n   CfgTRES=cpu=64,mem=1T,gres/gpu=4\n\n"
UNITS = {"nodes": SHOWN.format("n1") + SHOWN.format("n2"), "unseen": "idle"}
GPUS = UNITS | {"unit": "gpu"}
ONE = rows((100, 200, "n1", "batch", 1)).replace("gpu=", "gpu:a100=")


def busy_units(done):
    """Idle intervals of each unit that is not idle all the time."""
    return {name: some for name, some in idle_of(done.log).items() if some != [(100, 200)]}


def test_one_gpu_of_four(imported):
    """A node of four GPUs with a job on one of them: 75 % of its GPU-time is idle, none of its node-time."""
    done = imported(ONE, **GPUS, exclude_nodes="n2")
    assert done.log.nodes == ("n1/gpu0", "n1/gpu1", "n1/gpu2", "n1/gpu3")
    assert (done.quality.idle_share, done.quality.whole_idle_share, done.quality.nodes) == (0.75, 0.0, 4)
    assert busy_units(done) == {"n1/gpu0": []}
    assert imported(ONE, **UNITS, unit="core", exclude_nodes="n2").quality.idle_share == 1 - 8 / 64
    # Without an inventory the settings tell how many there are.
    assert imported(ONE, nodes="n1", unit="gpu", gpus_per_node=2).quality.idle_share == 0.5


def test_the_lowest_free_gpus(imported):
    """Jobs take the lowest GPUs that are free, keep them, and get one more on their first nodes."""
    jobs = (100, 150, "n1", "", 2), (125, 175, "n1", "", 1), (150, 200, "n[1-2]", "", 3)
    idle = {"n1/gpu0": [], "n1/gpu1": [], "n1/gpu2": [(100, 125), (175, 200)], "n2/gpu0": [(100, 150)]}
    assert busy_units(imported(rows(*jobs), **GPUS)) == idle
    # A job that asks for more than a node has free takes what there is, and that is said.
    done = imported(rows(*[(100, 200, "n1", "", 3)] * 2), **GPUS)
    assert busy_units(done) == {f"n1/gpu{at}": [] for at in range(4)}
    assert any("1 times a job held more gpus" in note for note in done.quality.notes)


@pytest.mark.parametrize(("unit", "busy"), [("core", {"n1": 2, "n2": 3}), ("gpu", {"n1": 1, "n2": 2})])
def test_slots_of_pbs(tmp_path, unit, busy):
    """Slots are cores, ngpus of virtual nodes are GPUs; each host has its own number."""
    text = "01/01/1970 00:02:30;E;1.s;start=100 end=150 exec_host=n1/0*2+n2/0-1,4 "
    text += "exec_vnode=(n1[0]:ncpus=2:ngpus=1)+(n2:ncpus=3:ngpus=2)\n"
    done = import_text(tmp_path / "log", "pbs", text, unit=unit, **WINDOW, **UNITS)
    names = [f"{node}/{unit}{at}" for node, count in busy.items() for at in range(count)]
    assert busy_units(done) == {name: [(150, 200)] for name in names}


def test_by_partition_and_type(imported):
    """Idle share and intervals are told for each partition, or for each type of nodes, also of their GPUs."""
    text = rows((125, 150, "n1", "batch", 2))
    figures = {"nodes": 1, "idle_share": 0.75, "idle_node_s": 75, "holes": 2}
    lengths = {"hole_mean_s": 37.5, "hole_median_s": 37.5}
    assert imported(text, by="partition", **UNITS).quality.by == {"batch": figures | lengths}
    kinds = imported(text, by="node-type", **GPUS).quality.by
    shares = {kind: (some["nodes"], some["idle_share"]) for kind, some in kinds.items()}
    assert shares == {"64 cores, 4 GPUs": (8, 1 - 50 / 800)}
