"""What a scheduler prints of its nodes tells which are idle, and why the others are not."""

import json
import os
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.cli.terminal import Signalled, endable
from bftrainer.errors import PollError, SettingsError
from bftrainer.files.writing import seal_line
from bftrainer.harvest import scheduler_polls as polls
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.node_states import CAUSES, KIND, poll_line, session_line
from bftrainer.schedulers.import_log import import_log
from tests.waiting import alive, until

# What sinfo of Slurm 22.05 printed of nodes in these states: all flags, and its own word.
SEEN = {
    "idle idle": None,
    "allocated allocated": BusyKind.JOB,
    "mixed mixed": BusyKind.JOB,
    "idle+completing completing": BusyKind.JOB,
    "allocated+drain draining": BusyKind.JOB,
    "idle+drain drained": BusyKind.DRAIN,
    "down down": BusyKind.DOWN,
    "down+drain drained*": BusyKind.DRAIN,
    "down+not_responding down*": BusyKind.DOWN,
    "idle+not_responding idle*": BusyKind.DOWN,
    "idle+fail fail": BusyKind.DOWN,
    "idle+reboot_requested idle@": BusyKind.DOWN,
    "unknown unknown*": BusyKind.UNKNOWN,
    "idle+planned planned": BusyKind.PLANNED,
    "idle+reserved+planned reserved": BusyKind.RESERVED,
    "idle+maintenance+reserved+planned maint": BusyKind.MAINTENANCE,
    "idle+cloud+powered_down idle~": BusyKind.POWERED_DOWN,
    "idle+cloud+powering_up idle#": BusyKind.POWERED_DOWN,
    "idle+cloud idle": None,
    "idle+dynamic_norm idle": None,
    "idle+blocked blocked": BusyKind.RESERVED,
    "confused confused": BusyKind.UNKNOWN,
}
# Short forms, as sinfo prints them in columns that are narrow.
SHORT = {
    **dict.fromkeys(("alloc", "mix-", "comp"), BusyKind.JOB),
    **dict.fromkeys(("drain*", "drng"), BusyKind.DRAIN),
    **dict.fromkeys(("plnd", "idle-"), BusyKind.PLANNED),
    "resv": BusyKind.RESERVED,
    **dict.fromkeys(("pow_dn", "idle%"), BusyKind.POWERED_DOWN),
    "idle$": BusyKind.MAINTENANCE,
    **dict.fromkeys(("boot^", "inval", "futr"), BusyKind.DOWN),
}


def test_rows_of_sinfo():
    """A job comes before all else, then what is wrong with the node, then for whom it is kept; short or long."""
    rows = {f"n{number}": states for number, states in enumerate(SEEN)}
    answer = "".join(f"{name:64}{states:41}{'':20}\n" for name, states in rows.items())
    assert polls.slurm_pool(answer) == {name: SEEN[states] for name, states in rows.items()}
    assert {state: polls.slurm_cause(state) for state in SHORT} == SHORT
    assert {state: polls.slurm_cause(state.upper()) for state in SHORT} == SHORT
    # Of several partitions, a node is idle only if each says so; of states that nobody knows it is unknown.
    answer = "n1 idle idle\nn1 idle idle\nn2 idle idle\nn2 down down\nn2 idle idle\nn3 sleeping sleeping\n"
    assert polls.slurm_pool(answer) == {"n1": None, "n2": BusyKind.DOWN, "n3": BusyKind.UNKNOWN}


LONG = "down+cloud+drain+dynamic_norm+invalid_reg+not_responding+powering_down"


@pytest.mark.parametrize("width", [64, 256])
def test_state_that_fills_its_column_loses_no_other_node(width):
    """Nodes of the rows beside one that is cut off are read; that one is out of service, or unknown."""
    rows = (("n1", "idle", "idle"), ("n2", LONG, "inval"), ("n3", "idle+" + 60 * "x", "idle"), ("n[", "idle", "idle"))
    answer = "".join(f"{name:{width}.{width}}{states:{width}.{width}}{word:24}\n" for name, states, word in rows)
    pool = polls.slurm_pool(answer)
    assert pool["n1"] is None
    assert pool["n2"] == BusyKind.POWERED_DOWN
    assert pool["n3"] == (BusyKind.UNKNOWN if width == 64 else None)
    assert pool["n["] == BusyKind.UNKNOWN


@pytest.mark.parametrize(
    ("states", "cause"),
    [
        ("allocated allocated", None),
        ("mixed mixed", None),
        ("allocated+drain draining", BusyKind.DRAIN),
        ("allocated+reserved allocated", BusyKind.RESERVED),
        ("down+completing down*", BusyKind.DOWN),
    ],
)
def test_nodes_that_carriers_hold(states, cause):
    """They are idle, unless something else is the matter; others are not."""
    answer = f"n1 {states}\nn2 {states}\n"
    assert polls.slurm_pool(answer, {"n1"}) == {"n1": cause, "n2": BusyKind.JOB}


def test_who_holds_nodes():
    """A node that somebody else holds too is not ours; jobs without nodes hold none."""
    answer = "1|scavenge|n[1-3]\n2_7|scavenge|n5\n3|batch|n3\n4|scavenge|\n5|scavenge|(null)\n"
    assert polls.nodes_of_carriers(answer, lambda _, partition: partition == "scavenge") == {"n1", "n2", "n5"}
    assert polls.nodes_of_carriers(answer, lambda job, _: job == "3") == set()
    assert polls.nodes_of_carriers("", lambda *_: True) == set()
    with pytest.raises(PollError, match="Expected a job, its partition and its nodes in each line, got 'x'"):
        polls.nodes_of_carriers("x\n", lambda *_: True)


@pytest.mark.parametrize(
    "document",
    [
        {"nodes": [{"name": "n1", "state": ["IDLE"]}, {"name": "n2", "state": "idle", "state_flags": ["DRAIN"]}]},
        {
            "sinfo": [
                {"node": {"state": ["IDLE"]}, "nodes": {"nodes": ["n1"]}},
                {"node": {"state": ["IDLE", "DRAIN"]}, "nodes": {"nodes": ["n2"]}},
            ]
        },
    ],
    ids=["scontrol, slurmrestd, older sinfo", "newer sinfo"],
)
def test_json(document):
    """As rows, in all versions."""
    wanted = {"n1": None, "n2": BusyKind.DRAIN}
    assert polls.slurm_pool(json.dumps(document)) == polls.read_pool(json.dumps(document, indent=1)) == wanted


def test_lines_of_any_program():
    """A node or a hostlist, and a state of ours or of Slurm's."""
    answer = "n[1-2] idle\n\n  n3\tjob\nn4 powered-down\nn5 powered_down\nn6 Unknown\nn7 drained*\n"
    found = {"n1": None, "n2": None, "n3": BusyKind.JOB, "n6": BusyKind.UNKNOWN, "n7": BusyKind.DRAIN}
    assert polls.read_pool(answer) == found | dict.fromkeys(("n4", "n5"), BusyKind.POWERED_DOWN)
    with pytest.raises(PollError, match="Expected a state such as idle, job or down, got 'sleeping'"):
        polls.read_pool("n1 sleeping")


@pytest.mark.parametrize("read", [polls.slurm_pool, polls.read_pool])
@pytest.mark.parametrize(
    "answer",
    [
        "",
        "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\nbatch up infinite 8 idle n[1-8]\n",
        "<html><body>502 Bad Gateway</body></html>",
        "n1",
        "n[1- idle idle",
        "{",
        "{" + '"nodes":[' * 20_000,
        '{"nodes": []}',
        '{"nodes": [{"hostname": "n1"}]}',
        '{"jobs": [{"name": "x"}]}',
    ],
)
def test_nonsense(read, answer):
    """It is refused in one line."""
    with pytest.raises(PollError) as caught:
        read(answer)
    assert "\n" not in str(caught.value)


names = st.text(st.characters(codec="utf-8", exclude_characters="[],", exclude_categories=("Z", "C")), min_size=1)


@given(st.lists(st.tuples(names, st.sampled_from([name for name in CAUSES if name != "unknown"])), min_size=1))
def test_names_of_any_kind_come_back(tmp_path_factory, rows):
    """What any program calls its nodes is what the node log calls them."""
    pool = polls.read_pool("".join(f"{name} {state}\n" for name, state in rows))
    assert set(pool) == {name for name, _ in rows}
    path = tmp_path_factory.mktemp("names") / "idle.watch"
    lines = [f"{KIND}: x", session_line(1e9, 30.0), poll_line(1e9, pool), poll_line(1e9 + 30, {})]
    path.write_bytes(b"".join(seal_line(line) + b"\n" for line in lines))
    done = import_log("watch", [path])
    assert set(done.log.nodes) == set(pool)
    assert {done.log.nodes[node] for node in done.log.node} == {name for name, cause in pool.items() if cause is None}


@pytest.mark.parametrize("read", [polls.slurm_pool, polls.read_pool])
@given(answer=st.text() | st.text("n1[],- \n\tidle{}:\"'"))
def test_any_answer(read, answer):
    """It tells of nodes, or is refused."""
    with suppress(PollError):
        assert read(answer)


def test_what_changed():
    """Nodes in other states, new ones, and those that are gone, once."""
    first = {"n1": None, "n2": BusyKind.JOB, "n3": None}
    second = {"n1": BusyKind.JOB, "n2": BusyKind.JOB, "n4": None}
    assert polls.changes(first, second) == {"n1": BusyKind.JOB, "n3": BusyKind.AWAY, "n4": None}
    assert polls.changes(second, second) == {}
    assert polls.changes({}, first) == first


# --- what is asked, and within which limits ---------------------------------------------------------------------------


@pytest.fixture
def sinfo(tmp_path, monkeypatch):
    """`sinfo(script)` puts a sinfo on PATH that does what the script says, and a squeue that lists two jobs."""

    def make(script):
        squeue = "printf '1|scavenge|n1\\n2|batch|n2\\n'"
        for name, text in (("sinfo", script), ("squeue", squeue)):
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return make


def test_what_sinfo_is_asked(sinfo, tmp_path, monkeypatch):
    """One partition or all of them, in columns of ours; a user's own settings of sinfo do not matter.

    Nodes of carriers, which make room, are idle.
    """
    sinfo(f'echo "$@" >> {tmp_path}/asked; env | grep SINFO_ >> {tmp_path}/asked; echo n1 idle idle')
    monkeypatch.setenv("SINFO_PARTITION", "other")
    assert polls.SlurmPoll("batch")() == polls.SlurmPoll()() == {"n1": None}
    columns = "-O NodeList:256,StateComplete:256,StateLong:64"
    assert (tmp_path / "asked").read_text().splitlines() == [f"-h -N -p batch {columns}", f"-h -N -a {columns}"]
    assert (polls.SlurmPoll("batch").source, polls.SlurmPoll().source) == ("sinfo -p batch", "sinfo")
    assert polls.SlurmPoll("batch", carriers="scavenge").source == "sinfo -p batch, without jobs of scavenge"
    sinfo("printf 'n1 allocated allocated\\nn2 allocated allocated\\nn3 idle idle\\n'")
    poll = polls.SlurmPoll(is_carrier=lambda _, partition: partition == "scavenge")
    assert poll() == {"n1": None, "n2": BusyKind.JOB, "n3": None}
    assert polls.SlurmPoll(is_carrier=lambda job, _: job == "2")() == {"n1": BusyKind.JOB, "n2": None, "n3": None}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'slurm_load_node: Unable to contact' >&2; exit 1", r"sinfo: slurm_load_node: Unable to contact\."),
        (
            "echo 'sinfo: error: x' >&2; echo 'sinfo: fatal: No configuration.' >&2; exit 1",
            r"sinfo: fatal: No conf\w+\.$",
        ),
        ("kill -SEGV $$", r"sinfo: Ended by signal 11\."),
        ("echo nonsense", "sinfo -p batch: Expected nodes and states of Slurm, got 'nonsense'"),
        ("exec yes", r"sinfo: Ended by signal 25\."),
        ("rm $0; exec no-such-program-at-all", "sinfo: .*no-such-program-at-all"),
    ],
)
def test_other_answers(sinfo, script, message):
    """One line says what came instead."""
    sinfo(script)
    with pytest.raises(PollError, match=message) as caught:
        polls.SlurmPoll("batch")()
    assert "\n" not in str(caught.value)


def test_no_answer(tmp_path):
    """A command that hangs is killed with all that it started, when the time is over or a signal comes."""
    script = f"sleep 600 & echo $! > {tmp_path}/pid; wait"
    with pytest.raises(PollError, match=r"sh: No answer within 0\.5 s\."):
        polls.run_command(["sh", "-c", script], 0.5)
    until(lambda: not alive(int((tmp_path / "pid").read_text())))
    with endable(), pytest.raises(Signalled):
        polls.run_command(["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; kill -TERM {os.getpid()}; wait"])
    until(lambda: not alive(int((tmp_path / "pid").read_text())))


def test_commands_that_are_not_there(monkeypatch, tmp_path):
    """They are refused before anything is written; one that goes away later is a poll that failed."""
    assert polls.CommandPoll(("echo", "a b")).source == "echo 'a b'"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match=r"sinfo: No such command\."):
        polls.SlurmPoll()
    with pytest.raises(PollError, match=r"sinfo: No such file or directory\."):
        polls.run_command(["sinfo"])


def test_many_files_for_carriers_and_the_usual_limit_for_commands():
    """Else the thousandth carrier could not connect; jobs, to which Slurm hands limits on, have those of the user."""
    script = """
import resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (128, most))
from bftrainer.harvest.scheduler_polls import allow_many_files, run_command
allow_many_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 128)
print(run_command(["sh", "-c", "ulimit -n"]), end="")
"""
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "True\n128\n"
