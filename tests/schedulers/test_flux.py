"""Flux: events of ranks and lists of jobs."""

from __future__ import annotations

import json

import pytest

from bftrainer.errors import SettingsError
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.flux import FluxImporter
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Reading
from tests.importing import OPEN_END, OPEN_START, idle_of, records_of


def event(time, name, **context):
    """A line of an eventlog."""
    return json.dumps({"timestamp": time, "name": name, "context": context}) + "\n"


def job(start=None, end=None, **told):
    """A job as `flux jobs` tells it."""
    times = {key: value for key, value in (("t_run", start), ("t_cleanup", end)) if value is not None}
    return {"id": 1, "t_submit": 1.0} | times | told


def read(tmp_path, events=(), jobs=(), *, lines=False, **settings):
    """The reading of events and jobs, and its records sorted by node."""
    paths = []
    if events:
        paths.append(tmp_path / "events")
        paths[-1].write_text("".join(events))
    if jobs:
        paths.append(tmp_path / "jobs")
        text = "".join(json.dumps(one) + "\n" for one in jobs) if lines else json.dumps({"jobs": list(jobs)}, indent=1)
        paths[-1].write_text(text)
    reading = Reading.begun(ImportSettings(**({"max_bad": 1.0} | settings)))
    FluxImporter().read(list(reversed(paths)), reading)
    return reading, sorted(records_of(reading))


START = event(100, "resource-init", restart=False, drain={}, online="", exclude="")


def test_events_without_ranks(tmp_path):
    """An event that names no ranks is refused, not taken for one of none; so is a start without a context."""
    lost = [event(120, "drain", reason="x"), event(121, "drain", idset=[])]
    lost += ['{"timestamp": 122, "name": "offline"}\n', '{"timestamp": 123, "name": "restart", "context": 7}\n']
    reading, _ = read(tmp_path, (START, event(110, "online", idset="0-1"), *lost))
    assert dict(reading.tally.dropped) == {"unreadable set of ranks": 4}
    assert "events:3: Expected a context with the ranks that go drain, got" in reading.tally.examples[0]


@pytest.mark.parametrize("lost", [{"exclude": 5.5}, {"ranks": "0", "nodelist": "n["}])
def test_an_unreadable_event_changes_nothing(tmp_path, lost):
    """What of an event can be read is not applied if the rest cannot."""
    events = (START, event(110, "restart", online="0", **lost), event(120, "drain", idset="1"))
    reading, records = read(tmp_path, events)
    assert reading.tally.dropped.total() == 1
    assert records == [("rank1", OPEN_START, OPEN_END, BusyKind.DOWN)]


def test_a_first_line_that_is_damaged(tmp_path):
    """An eventlog is one although its first line is malformed; that is counted."""
    reading, records = read(tmp_path, ("{\n", START, event(110, "online", idset="0"), event(120, "offline", idset="0")))
    assert dict(reading.tally.dropped) == {"malformed line": 1}
    assert ("rank0", 120, OPEN_END, BusyKind.DOWN) in records


def test_times_that_are_none(tmp_path):
    """Jobs without an end are counted; what stands for a time and is none is refused, and numbered in a document."""
    ran = {"nodelist": "n1"}
    jobs = [job(10, **ran), job(10, 0, **ran), job([], 20, **ran), job(10, "", **ran), job(10, {}, **ran)]
    reading, records = read(tmp_path, jobs=jobs)
    assert records == [("n1", 10, OPEN_END, BusyKind.JOB)] * 2
    assert int(reading.rows.records()["is_open"].sum()) == 2
    assert dict(reading.tally.dropped) == {"malformed job": 3}
    assert "jobs:3: Expected a job" in reading.tally.examples[0]


def test_a_reversed_eventlog(tmp_path):
    """An eventlog that was reversed gives what it gives in order of time, and how much was out of order is said."""
    events = (
        START,
        event(110.5, "online", idset="0-1"),
        event(120, "offline", idset="1"),
        event(130, "online", idset="1"),
    )
    forwards, backwards = read(tmp_path, events), read(tmp_path, events[::-1])
    assert forwards[1] == backwards[1]
    assert forwards[0].window_ns == backwards[0].window_ns
    assert "3 events are out of order: they were sorted by their times." in backwards[0].notes


def test_online_and_offline(tmp_path):
    """A rank is down until it is first online, and whenever it is offline."""
    events = (
        START,
        event(110.5, "online", idset="0-1"),
        event(120, "offline", idset="1"),
        event(130, "online", idset="1"),
    )
    reading, runs = read(tmp_path, events)
    assert runs == [
        ("rank0", OPEN_START, 110.5, BusyKind.DOWN),
        ("rank1", OPEN_START, 110.5, BusyKind.DOWN),
        ("rank1", 120, 130, BusyKind.DOWN),
    ]
    assert reading.window_ns == (100 * 10**9, 130 * 10**9)
    assert any("no jobs among the files" in note for note in reading.notes)


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
        ("rank0", OPEN_START, 100, BusyKind.DOWN),
        ("rank0", 110, 140, BusyKind.DOWN),
        ("rank1", OPEN_START, 100, BusyKind.DOWN),
        ("rank1", 110, 130, BusyKind.DOWN),
        ("rank2", OPEN_START, 130, BusyKind.DOWN),
        ("rank3", OPEN_START, OPEN_END, BusyKind.DOWN),
    ]
    assert dict(reading.tally.dropped) == {"no change of availability": 1}


def test_restarts(tmp_path):
    """A restart takes all ranks offline; drained ones stay drained."""
    events = (
        START,
        event(110, "online", idset="0-1"),
        event(120, "drain", idset="1"),
        event(130, "resource-init", restart=True, drain={}, online="", exclude=""),
        event(140, "online", idset="0-1"),
        event(150, "undrain", idset="1"),
    )
    assert read(tmp_path, events)[1] == [
        ("rank0", OPEN_START, 110, BusyKind.DOWN),
        ("rank0", 130, 140, BusyKind.DOWN),
        ("rank1", OPEN_START, 110, BusyKind.DOWN),
        ("rank1", 120, 150, BusyKind.DOWN),
    ]


@pytest.mark.parametrize("lines", [False, True])
def test_jobs(tmp_path, lines):
    """Jobs come in one document or one a line; nodes are free when a job is inactive, else when it is cleaned up."""
    jobs = (
        job(10.5, 20, nodelist="n[1-2]", ranks="0-1", queue="batch"),
        job(30, 40, nodelist="n1", t_inactive=41.25),
        job(50, None, nodelist="n2"),
        job(None, 60, nodelist="n2"),
        job(70, 80),
        job(90, 90, nodelist="n2"),
        job(100, 90, nodelist="n2"),
        job(100, 110, nodelist="n[1-"),
        job("soon", 110, nodelist="n1"),
    )
    reading, runs = read(tmp_path, (), jobs, lines=lines)
    assert runs == [
        ("n1", 30, 41.25, BusyKind.JOB),
        ("n1,n2", 10.5, 20, BusyKind.JOB),
        ("n2", 50, OPEN_END, BusyKind.JOB),
    ]
    assert reading.rows.records().partitions == ("batch",)
    assert dict(reading.tally.dropped) == {
        "never started": 1, "no nodes": 1, "zero length": 1, "end before start": 1, "malformed job": 2,
    }  # fmt: skip
    assert (reading.tally.records, reading.tally.bad) == (9, 2)


def test_names_of_ranks(tmp_path):
    """Ranks get the names of the inventory, of jobs that tell both, or of events that do."""
    events = (START, event(110, "online", idset="0-1"))
    _, runs = read(tmp_path, events, (job(120, 130, ranks="1"),), nodes="a,b")
    assert runs == [
        ("a", OPEN_START, 110, BusyKind.DOWN),
        ("b", OPEN_START, 110, BusyKind.DOWN),
        ("b", 120, 130, BusyKind.JOB),
    ]
    _, runs = read(tmp_path, events, (job(120, 130, ranks="0-1", nodelist="c[1-2]"),))
    assert [name for name, *_ in runs] == ["c1", "c1,c2", "c2"]
    told = (START, event(110, "online", idset="0-1", nodelist="d[1-2]"))
    _, runs = read(tmp_path, told, (job(120, 130, nodelist="d1"),))
    assert [name for name, *_ in runs] == ["d1", "d1", "d2"]
    with pytest.raises(SettingsError, match="--nodes with all names in order of rank"):
        read(tmp_path, events, (job(120, 130, nodelist="d1"),))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{\n", "malformed line"),
        ('{"timestamp": "x", "name": "online", "context": {}}\n', "malformed line"),
        ('{"timestamp": 1e300, "name": "online", "context": {}}\n', "malformed line"),
        ('{"timestamp": 120, "name": "online", "context": {"idset": "x"}}\n', "unreadable set of ranks"),
        ('{"timestamp": 120, "name": "online", "context": {"idset": "0-1000000000"}}\n', "unreadable set of ranks"),
        ('{"timestamp": 120, "na', "last line cut off"),
    ],
)
def test_events_that_are_unusable(tmp_path, line, reason):
    """Malformed events are counted with their lines."""
    reading, runs = read(tmp_path, (START, event(110, "online", idset="0"), line))
    assert runs == [("rank0", OPEN_START, 110, BusyKind.DOWN)]
    assert dict(reading.tally.dropped) == {reason: 1}
    assert "events:3: " in reading.tally.examples[0]


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ([START.strip()], True),
        (['{"jobs": []}'], True),
        (["{", ' "jobs": ['], True),
        ([json.dumps(job(1, 2))], True),
        (['{"a": 1}'], False),
        (["x"], False),
        ([], False),
    ],
)
def test_recognition(lines, wanted):
    """A log is known by its events or jobs."""
    assert FluxImporter().recognises(lines) is wanted


def test_sample(sample_logs):
    """A year of a real eventlog: 43 ranks, of which the three excluded ones are never up."""
    done = import_log("flux", [sample_logs / "flux" / "resource.eventlog.thing2"])
    quality = done.quality
    assert (quality.records, quality.bad, quality.nodes) == (4611, 0, 43)
    assert dict(quality.dropped) == {"no change of availability": 44}
    excluded = {"rank0", "rank1", "rank2"}
    changing = {done.log.nodes[node] for node in done.log.node.tolist()}
    assert changing == set(done.log.nodes) - excluded


EIGHT, HOUR = 1788249600, 3600  # 2026-09-01 08:00 UTC


def down_and_away(tmp_path, *events, nodes="c[0-2]", **settings):
    """Idle hours by node, and node-hours of each cause, in four hours of an eventlog: hour, name and context."""
    lines = [
        json.dumps({"timestamp": EIGHT + hour * HOUR, "name": name, "context": told}) for hour, name, told in events
    ]
    (tmp_path / "events").write_text("\n".join([*lines, ""]))
    window = {"start": str(EIGHT), "end": str(EIGHT + 4 * HOUR), "window": "asked"}
    done = import_log("flux", [tmp_path / "events"], ImportSettings(nodes=nodes, **(window | settings)))
    causes = {kind: node_s / HOUR for kind, node_s in done.quality.busy_node_s.items()}
    return idle_of(done.log, EIGHT, HOUR), causes


def test_eventlog_that_never_says_online_has_all_nodes_up(tmp_path):
    """Since flux-core 0.62 only drained ranks are told; what is never reported is no evidence of its opposite."""
    rank = {"idset": "1", "nodelist": "c1"}
    events = ((0, "resource-define", {}), (1, "drain", rank), (2, "undrain", rank), (4, "resource-define", {}))
    idle, causes = down_and_away(tmp_path, *events)
    assert idle == {"c0": [(0, 4)], "c1": [(0, 1), (2, 4)], "c2": [(0, 4)]}
    assert causes == {"down": 1}
    idle, _ = down_and_away(tmp_path, (1, "offline", {"idset": "1"}), (4, "resource-define", {}))
    assert idle == {"c0": [(0, 4)], "c1": [(0, 1)], "c2": [(0, 4)]}


@pytest.mark.parametrize("nodes", [None, "c[0-2]"])
def test_ranks_are_those_of_the_latest_list_of_nodes(tmp_path, nodes):
    """After a change of configuration rank 1 is another node; one that has no rank any more is away."""
    events = (
        (0, "restart", {"ranks": "0-2", "online": "0-2", "nodelist": "c[0-2]"}),
        (1, "restart", {"ranks": "0-1", "online": "0-1", "nodelist": "c[0,2]"}),
        (2, "drain", {"idset": "1", "nodelist": "c2", "reason": "fan", "overwrite": 0}),
        (4, "undrain", {"idset": "1", "nodelist": "c2"}),
    )
    idle, causes = down_and_away(tmp_path, *events, nodes=nodes)
    assert idle == {"c0": [(0, 4)], "c1": [(0, 1)], "c2": [(0, 2)]}
    assert causes == {"away": 3, "down": 2}
