"""Flux: events of ranks and lists of jobs."""

from __future__ import annotations

import json

import pytest

from bftrainer.errors import SettingsError
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.node_states import FluxImporter
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Reading
from tests.importing import OPEN_END, OPEN_START, idle_of, records_of

JOB, DOWN = BusyKind.JOB, BusyKind.DOWN


def event(time, name, **context):
    """A line of an eventlog."""
    return json.dumps({"timestamp": time, "name": name, "context": context}) + "\n"


def job(start=None, end=None, **fields):
    """A job as `flux jobs` tells it."""
    times = {key: value for key, value in (("t_run", start), ("t_cleanup", end)) if value is not None}
    return {"id": 1, "t_submit": 1.0} | times | fields


def read(tmp_path, events=(), jobs=(), *, lines=False, **settings):
    """The reading of events and jobs, and its records sorted by node."""
    paths = []
    if jobs:
        paths.append(tmp_path / "jobs")
        text = "".join(json.dumps(one) + "\n" for one in jobs) if lines else json.dumps({"jobs": list(jobs)}, indent=1)
        paths[-1].write_text(text)
    if events:
        paths.append(tmp_path / "events")
        paths[-1].write_text("".join(events))
    reading = Reading(ImportSettings(**({"max_bad": 1.0} | settings)))
    FluxImporter().read(paths, reading)
    rows = [([names] if row[-1] is JOB else names.split(","), row) for names, *row in records_of(reading)]
    return reading, sorted((name, *row) for names, row in rows for name in names)


START = event(100, "resource-init", restart=False, drain={}, online="", exclude="")
ONLINE = event(110, "online", idset="0-1")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{\n", "malformed line"),
        ('{"timestamp": "x", "name": "online", "context": {}}\n', "malformed line"),
        ('{"timestamp": 1e300, "name": "online", "context": {}}\n', "malformed line"),
        ('{"timestamp": 120, "na', "last line cut off"),
        (event(120, "online", idset="x"), "unreadable set of ranks"),
        (event(120, "online", idset="0-1000000000"), "unreadable set of ranks"),
        # An event that names no ranks is not one of none; what can be read of an event is not applied alone.
        (event(120, "drain", reason="x"), "unreadable set of ranks"),
        (event(120, "drain", idset=[]), "unreadable set of ranks"),
        ('{"timestamp": 120, "name": "restart", "context": 7}\n', "unreadable set of ranks"),
        (event(120, "restart", online="0", exclude=5.5), "unreadable set of ranks"),
        (event(120, "restart", online="0", ranks="0", nodelist="n["), "unreadable set of ranks"),
    ],
)
def test_events_that_are_unusable(tmp_path, line, reason):
    """Malformed events are counted with their lines, and change nothing; one may be the first."""
    reading, runs = read(tmp_path, (START, ONLINE, line))
    assert runs == [(f"rank{rank}", OPEN_START, 110, DOWN) for rank in (0, 1)]
    assert dict(reading.tally.dropped) == {reason: 1}
    assert "events:3: " in reading.tally.examples[0]
    assert reason == "last line cut off" or read(tmp_path, (line, START, ONLINE))[1] == runs


def test_online_and_offline(tmp_path):
    """A rank is down until it is first online, and whenever it is offline, in whatever order lines stand."""
    events = (START, ONLINE, event(120, "offline", idset="1"), event(130, "online", idset="1"))
    for some in (events, events[::-1]):
        reading, runs = read(tmp_path, some)
        assert runs == [
            ("rank0", OPEN_START, 110, DOWN),
            ("rank1", OPEN_START, 110, DOWN),
            ("rank1", 120, 130, DOWN),
        ]
        assert reading.window_ns == (100 * 10**9, 130 * 10**9)
        assert any("no jobs among the files" in note for note in reading.notes)
    assert "3 events are out of order: they were sorted by their times." in reading.notes


def test_drained_and_excluded(tmp_path):
    """A rank that is drained or excluded is down, whether it is online or not."""
    events = (
        event(100, "resource-init", restart=False, drain={"2": {"timestamp": 90.0}}, online="0-3", exclude="3"),
        event(110, "drain", idset="0-1", reason="disk", overwrite=0),
        event(120, "offline", idset="0"),
        event(130, "undrain", idset="0-2"),
        event(140, "online", idset="0"),
        event(150, "resource-define", method="configuration"),
    )
    reading, runs = read(tmp_path, events)
    assert runs == [
        ("rank0", OPEN_START, 100, DOWN),
        ("rank0", 110, 140, DOWN),
        ("rank1", OPEN_START, 100, DOWN),
        ("rank1", 110, 130, DOWN),
        ("rank2", OPEN_START, 130, DOWN),
        ("rank3", OPEN_START, OPEN_END, DOWN),
    ]
    assert dict(reading.tally.dropped) == {"no change of availability": 1}


def test_restarts(tmp_path):
    """A restart takes all ranks offline; drained ones stay drained."""
    events = (
        START,
        ONLINE,
        event(120, "drain", idset="1"),
        event(130, "resource-init", restart=True, drain={}, online="", exclude=""),
        event(140, "online", idset="0-1"),
        event(150, "undrain", idset="1"),
    )
    assert read(tmp_path, events)[1] == [
        ("rank0", OPEN_START, 110, DOWN),
        ("rank0", 130, 140, DOWN),
        ("rank1", OPEN_START, 110, DOWN),
        ("rank1", 120, 150, DOWN),
    ]


@pytest.mark.parametrize("lines", [False, True])
def test_jobs(tmp_path, lines):
    """Jobs come in one document or one a line; nodes are free when a job is inactive, else when it is cleaned up."""
    jobs = (
        job(10.5, 20, nodelist="n[1-2]", ranks="0-1", queue="batch"),
        job(30, 40, nodelist="n1", t_inactive=41.25),
        job(50, 0, nodelist="n2"),
        job(None, 60, nodelist="n2"),
        job(70, 80),
        job(90, 90, nodelist="n2"),
        job(100, 90, nodelist="n2"),
        job(100, 110, nodelist="n[1-"),
        job("soon", 110, nodelist="n1"),
        job([], 110, nodelist="n1"),
        job(100, "", nodelist="n1"),
    )
    reading, runs = read(tmp_path, (), jobs, lines=lines)
    assert runs == [("n1", 30, 41.25, JOB), ("n1,n2", 10.5, 20, JOB), ("n2", 50, OPEN_END, JOB)]
    assert sorted(reading.rows.records()["is_open"].tolist()) == [0, 0, 1]
    assert reading.rows.records().partitions == ("batch",)
    assert dict(reading.tally.dropped) == {
        "never started": 1,
        "no nodes": 1,
        "zero length": 1,
        "end before start": 1,
        "malformed job": 3,
        "unreadable node list": 1,
    }
    assert (reading.tally.records, reading.tally.bad) == (11, 4)
    assert "jobs:9: Expected a job" in reading.tally.examples[0]


def test_names_of_ranks(tmp_path):
    """Ranks get the names of the inventory, of jobs that tell both, or of events that do."""
    _, runs = read(tmp_path, (START, ONLINE), (job(120, 130, ranks="1"),), nodes="a,b")
    assert runs == [("a", OPEN_START, 110, DOWN), ("b", OPEN_START, 110, DOWN), ("b", 120, 130, JOB)]
    _, runs = read(tmp_path, (START, ONLINE), (job(120, 130, ranks="0-1", nodelist="c[1-2]"),))
    assert [name for name, *_ in runs] == ["c1", "c1,c2", "c2"]
    named = (START, event(110, "online", idset="0-1", nodelist="d[1-2]"))
    _, runs = read(tmp_path, named, (job(120, 130, nodelist="d1"),))
    assert [name for name, *_ in runs] == ["d1", "d1", "d2"]
    with pytest.raises(SettingsError, match="--nodes with all names in order of rank"):
        read(tmp_path, (START, ONLINE), (job(120, 130, nodelist="d1"),))


RANK = {"idset": "1", "nodelist": "c1"}
REMAPPED = (
    event(0, "restart", ranks="0-2", online="0-2", nodelist="c[0-2]"),
    event(1, "restart", ranks="0-1", online="0-1", nodelist="c[0,2]"),
    event(2, "drain", idset="1", nodelist="c2", reason="fan", overwrite=0),
    event(4, "undrain", idset="1", nodelist="c2"),
)


@pytest.mark.parametrize(
    ("events", "nodes", "idle", "causes"),
    [
        # Since flux-core 0.62 only drained ranks are told; what is never reported is no evidence of its opposite.
        (
            (event(0, "define"), event(1, "drain", **RANK), event(2, "undrain", **RANK), event(4, "define")),
            "c[0-2]",
            {"c0": [(0, 4)], "c1": [(0, 1), (2, 4)], "c2": [(0, 4)]},
            {"down": 1},
        ),
        (
            (event(0, "define"), event(1, "offline", idset="1"), event(4, "define")),
            "c[0-2]",
            {"c0": [(0, 4)], "c1": [(0, 1)], "c2": [(0, 4)]},
            {"down": 3},
        ),
        # After a change of configuration rank 1 is another node; one that has no rank any more is away.
        (REMAPPED, None, {"c0": [(0, 4)], "c1": [(0, 1)], "c2": [(0, 2)]}, {"away": 3, "down": 2}),
        (REMAPPED, "c[0-2]", {"c0": [(0, 4)], "c1": [(0, 1)], "c2": [(0, 2)]}, {"away": 3, "down": 2}),
    ],
)
def test_vocabulary_that_changed(tmp_path, events, nodes, idle, causes):
    """Eventlogs that never say online, and ranks that are those of the latest list of nodes."""
    (tmp_path / "events").write_text("".join(events))
    window = {"start": "1970-01-01", "end": "1970-01-01T00:00:04", "window": "asked"}
    done = import_log("flux", [tmp_path / "events"], ImportSettings(nodes=nodes, **window))
    assert (idle_of(done.log), done.quality.busy_node_s) == (idle, causes)
