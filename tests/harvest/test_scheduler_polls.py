"""A scheduler is asked within limits of time and size, whatever answers in its place."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

from bftrainer.cli._shared.signals import Signalled, endable
from bftrainer.errors import PollError, SettingsError
from bftrainer.harvest.scheduler_polls import CommandPoll, SlurmPoll, run_command
from bftrainer.schedulers.busy_records import BusyKind
from tests.waiting import alive, until


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
    """One partition or all of them, in columns of ours; a user's own settings of sinfo do not matter."""
    sinfo(f'echo "$@" >> {tmp_path}/asked; env | grep SINFO_ >> {tmp_path}/asked; echo n1 idle idle')
    monkeypatch.setenv("SINFO_PARTITION", "other")
    assert SlurmPoll("batch")() == SlurmPoll()() == {"n1": None}
    columns = "-O NodeList:256,StateComplete:256,StateLong:64"
    assert (tmp_path / "asked").read_text().splitlines() == [f"-h -N -p batch {columns}", f"-h -N -a {columns}"]
    assert (SlurmPoll("batch").source, SlurmPoll().source) == ("sinfo -p batch", "sinfo")
    assert SlurmPoll("batch", carriers="scavenge").source == "sinfo -p batch, without jobs of scavenge"


def test_carriers_make_room(sinfo):
    """Their nodes are idle, those of other jobs are not."""
    sinfo("printf 'n1 allocated allocated\\nn2 allocated allocated\\nn3 idle idle\\n'")
    poll = SlurmPoll(is_carrier=lambda _, partition: partition == "scavenge")
    assert poll() == {"n1": None, "n2": BusyKind.JOB, "n3": None}
    assert SlurmPoll(is_carrier=lambda job, _: job == "2")() == {"n1": BusyKind.JOB, "n2": None, "n3": None}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'slurm_load_node: Unable to contact' >&2; exit 1", r"sinfo: slurm_load_node: Unable to contact\."),
        (
            "echo 'sinfo: error: x' >&2; echo 'sinfo: fatal: No configuration.' >&2; exit 1",
            r"sinfo: fatal: No conf\w+\.$",
        ),
        ("exit 3", r"sinfo: Failed with status 3\."),
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
        SlurmPoll("batch")()
    assert "\n" not in str(caught.value)


def test_no_answer(tmp_path):
    """A command that hangs is killed with all that it started, when the time is over or a signal comes."""
    script = f"sleep 600 & echo $! > {tmp_path}/pid; wait"
    with pytest.raises(PollError, match=r"sh: No answer within 0\.5 s\."):
        run_command(["sh", "-c", script], 0.5)
    until(lambda: not alive(int((tmp_path / "pid").read_text())))
    with endable(), pytest.raises(Signalled):
        run_command(["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; kill -TERM {os.getpid()}; wait"])
    until(lambda: not alive(int((tmp_path / "pid").read_text())))


def test_commands_that_are_not_there(monkeypatch, tmp_path):
    """They are refused before anything is written; one that goes away later is a poll that failed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for make in (SlurmPoll, lambda: CommandPoll(("sinfo", "-x"))):
        with pytest.raises(SettingsError, match=r"sinfo: No such command\."):
            make()
    with pytest.raises(PollError, match=r"sinfo: No such file or directory\."):
        run_command(["sinfo"])


def test_a_command_of_ones_own():
    """Its output counts, and it is named where that is nonsense."""
    poll = CommandPoll((sys.executable, "-c", "print('n[1-2] idle\\nn3 down')"))
    assert poll() == {"n1": None, "n2": None, "n3": BusyKind.DOWN}
    assert poll.source.startswith(f"{shlex.quote(sys.executable)} -c 'print(")
    with pytest.raises(PollError, match="echo: Expected a node and its state in each line, got 'x'"):
        CommandPoll(("echo", "x"))()


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
