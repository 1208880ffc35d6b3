"""What a journal of polls says of nodes: a state holds until the next poll, and what nobody saw is not idle."""

from __future__ import annotations

from itertools import chain

import pytest

from bftrainer.errors import LogError
from bftrainer.files.writing import seal_line
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.node_states import KIND, missed_line, poll_line, session_line, time_of
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from tests.importing import idle_of

DAY = 1788220800
JOB, DOWN = BusyKind.JOB, BusyKind.DOWN
NODES = {"n1": None, "n2": JOB, "n3": DOWN}


def session(second, every=30, **states):
    """A session and its first poll."""
    return [session_line(DAY + second, every), poll_line(DAY + second, states or NODES)]


def poll(second, **changed):
    """A poll."""
    return [poll_line(DAY + second, changed)]


def missed(second):
    """A poll that was not answered."""
    return [missed_line(DAY + second, "slurm_load_node: Unable to contact slurm controller")]


@pytest.fixture
def imported(tmp_path):
    """`imported(lines, ...)` imports a journal of these lines."""

    def read(*parts, **settings):
        path = tmp_path / "idle.watch"
        path.write_bytes(b"".join(b"%s\n" % seal_line(line) for line in (f"{KIND}: sinfo", *chain(*parts))))
        return import_log("watch", [path], ImportSettings(**settings))

    return read


def idle(done):
    """Idle spans of each node, seconds of the day."""
    return idle_of(done.log, DAY)


def busy(done):
    """Node-seconds by cause; with the idle ones they are all that there are."""
    quality = done.quality
    assert sum(quality.busy_node_s.values()) + quality.idle_node_s == quality.nodes * quality.window_s
    return dict(quality.busy_node_s)


def test_a_state_holds_until_the_next_poll(imported):
    """From poll to poll, from the first to the last; half an interval late is no gap."""
    late = imported(session(0), poll(45, n1=JOB), poll(60))
    assert (idle(late)["n1"], busy(late)) == ([(0, 45)], {"job": 15 + 60, "down": 60})
    done = imported(session(0), poll(30), poll(60, n1=JOB, n2=None), poll(90, n2=DOWN))
    assert idle(done) == {"n1": [(0, 60)], "n2": [(60, 90)], "n3": []}
    assert busy(done) == {"job": 60 + 30, "down": 90}
    assert done.quality.notes[0] == "nodes were looked at every 30 s: what was idle for less may be missing."
    assert len(done.log.notes) == 2


@pytest.mark.parametrize("between", [missed(60), [], session(90)], ids=["missed", "late", "began again"])
def test_what_nobody_saw_is_not_idle(imported, between):
    """A state is known for one interval more than it was seen, however the next poll was prevented."""
    done = imported(session(0), poll(30), between, [] if between == session(90) else poll(90), poll(120, n2=None))
    assert idle(done) == {"n1": [(0, 60), (90, 120)], "n2": [], "n3": []}
    assert busy(done) == {"job": 90, "down": 90, "unknown": 90}
    missing = int(between == missed(60))
    assert f"of 30 s nothing is known, so no node is idle: {missing} polls were missed" in done.log.notes[1]


def test_nodes_come_and_go(imported):
    """A node is away before it was first named, and since a session does not name it; renaming is both."""
    done = imported(session(0), poll(30, n4=None, n1=BusyKind.AWAY), session(60, n2=JOB, n4=None, n5=None), poll(90))
    assert idle(done) == {"n1": [(0, 30)], "n2": [], "n3": [], "n4": [(30, 90)], "n5": [(60, 90)]}
    assert busy(done) == {"job": 90, "down": 60, "away": 60 + 30 + 30 + 60}
    # A gap is about nodes that were there.
    done = imported(session(0), poll(30, n1=BusyKind.AWAY), missed(60), poll(90), poll(120, n1=None))
    assert busy(done) == {"job": 90, "down": 90, "away": 90, "unknown": 60}


def test_nothing_is_known_beyond_the_polls(imported):
    """Of a window that is longer than the journal, as of gaps."""
    done = imported(session(0), poll(30), start=str(DAY - 10), end=str(DAY + 50))
    assert idle(done)["n1"] == [(0, 30)]
    assert busy(done) == {"job": 30, "down": 30, "unknown": 90}


def test_damage(tmp_path):
    """A damaged line is counted; nothing is known from there until all nodes are told again."""
    lines = [*session(0), *poll(30), *poll(60, n1=JOB), *poll(90, n1=None), *session(120), *poll(150)]
    data = bytearray(b"".join(b"%s\n" % seal_line(line) for line in (f"{KIND}: sinfo", *lines)))
    data[data.index(b" + job n1") + 3] ^= 1
    path = tmp_path / "idle.watch"
    path.write_bytes(data)
    with pytest.raises(LogError, match=r"idle\.watch:5: Expected a line and its checksum, got .* .1 of 8 records"):
        import_log("watch", [path])
    done = import_log("watch", [path], ImportSettings(max_bad=0.5))
    assert idle(done)["n1"] == [(0, 60), (120, 150)]
    assert done.quality.bad == 1


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([session(0)], "Expected two polls or more, got one"),
        ([session(0), poll(30), poll(30)], r":5: Expected a time after those above, got '1788220830\.000'"),
        ([session(0), ["1788220830.000 + asleep n1"]], ":4: Expected states of nodes"),
        ([session(0), ["1788220830.000 ! x"]], ":4: Expected states of nodes"),
        ([[f"{DAY}.0 = often"]], ":2: Expected states of nodes"),
        ([session(0), ["1788220830.000 + idle n[1-"]], ":4: Expected"),
    ],
)
def test_what_no_watch_writes(imported, parts, message):
    """One line says where it stands."""
    with pytest.raises(LogError, match=message):
        imported(*parts)


def test_times_of_lines():
    """To the millisecond; the first line of a journal is older than all."""
    assert time_of(poll_line(DAY + 0.25, {})) == DAY + 0.25
    assert time_of(f"{KIND}: sinfo") < 0
