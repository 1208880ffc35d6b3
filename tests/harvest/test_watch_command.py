"""`bftrainer watch` as it is typed: it prints the pool, writes a node log, and ends when it is told to."""

import os
import signal
import subprocess

import pytest

from bftrainer.harvest.scheduler_polls import SINFO_FIELDS, slurm_pool
from bftrainer.nodelogs import read_node_log
from bftrainer.schedulers.import_log import import_log
from tests.cli.conftest import check_refusal
from tests.harvest.slurm import NODES
from tests.tiny import installed
from tests.waiting import until

NOW = ["command", "--", "printf", "n[1-3] idle\nn4 drained\nn9 job\n"]


@pytest.fixture
def started(here):
    """`started(words, env)` starts a watch that writes idle.parquet, and waits for its first polls."""
    processes = []

    def start(*words, **options):
        process = subprocess.Popen(
            [installed("bftrainer"), "watch", *words], cwd=here, stdout=-1, stderr=-1, text=True, **options
        )
        processes.append(process)
        until(lambda: process.poll() is not None or journal(here).count(" + ") > 1)
        assert process.poll() is None, process.communicate()
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def journal(folder):
    """Text of the journal; empty if there is none."""
    path = folder / "idle.watch"
    return path.read_text() if path.exists() else ""


def test_how_the_nodes_are_now(call, here):
    """A table by state, or JSON; nothing is written."""
    before = [*here.iterdir()]
    rows = [line.split() for line in call("watch", *NOW[:1], "--once", *NOW[1:]).out.splitlines()]
    assert rows == [["state", "names", "nodes"], ["idle", "n[1-3]", "3"], ["job", "n9", "1"], ["drain", "n4", "1"]]
    found = call("watch", *NOW[:1], "--once", "--json", *NOW[1:]).json
    assert (found["nodes"], found["idle"]) == (5, 3)
    assert found["states"]["drain"] == {"nodes": 1, "names": "n4"}
    assert [*here.iterdir()] == before


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["command", "-o", "idle.parquet", "--", "no-such-command"], 2, "no-such-command: No such command."),
        (["command", "-o", "idle.parquet", "--", "false"], 1, "false: Failed with status 1."),
        (["command", "--once", "--", "echo", "x"], 1, "echo: Expected a node and its state in each line"),
        (["command", "-o", "idle.txt", "--", "true"], 2, "idle.txt: "),
        (["command", "-o", "idle.parquet", "--every", "0s", "--", "true"], 2, "Expected --every of 1 s or more"),
        (["command", "--", "true"], 2, "'-o' / '--output', or --once"),
        (["command", "--once", "-o", "x.csv", "--", "true"], 2, "--output (--once only looks)"),
        (["command", "-o", "x.csv", "--json", "--", "true"], 2, "--json (of --once)"),
    ],
)
def test_what_cannot_be(call, here, words, status, message):
    """One line, and no journal without a poll in it."""
    refused = call("watch", *words)
    assert (refused.status, refused.out) == (status, "")
    assert message in refused.err.splitlines()[-1]
    assert "Traceback" not in refused.err
    assert journal(here).count("\n") <= 1


def test_told_to_end(call, here, started):
    """It ends as a server does, with all written; a second one is refused while it goes on; killed, it goes on."""
    words, before = ("command", "-o", "idle.parquet", "--every", "1s", *NOW[1:]), {each.name for each in here.iterdir()}
    process = started(*words)
    second = call("watch", *words)
    check_refusal(second)
    assert second.err == "Error: idle.watch: Another process is writing there.\n"
    process.kill()
    process.wait()
    process = started(*words)
    # After the next poll the first one of this watch is on the disk; an interrupt before that leaves nothing of it.
    until(lambda: journal(here).partition(" = ")[2].partition(" = ")[2].count(" + ") >= 2)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    assert (process.returncode, "Ctrl-C ends the watch." in err, "Error" in err) == (0, True, False), err
    assert out.startswith("idle.parquet: node log of 5 nodes, ")
    log = read_node_log(here / "idle.parquet")
    assert log.nodes == ("n1", "n2", "n3", "n4", "n9")
    assert log.window_s >= 0.9
    assert {each.name for each in here.iterdir()} - before == {"idle.parquet", "idle.quality.json", "idle.watch"}


@pytest.mark.slow
def test_a_real_slurm(call, here, started, slurm):
    """Jobs, a drained node and a controller that is killed stand in the log as what they are; `assess` takes it."""
    env = slurm.environ
    words = ("slurm", "-o", "idle.parquet", "--every", "1s", "--partition", "batch", "--carriers", "scavenge")
    process = started(*words, env=env)
    slurm.submit("sleep 600", "-N2", "-p", "scavenge")
    slurm.submit("sleep 600", "-N3")
    until(lambda: " job n" in journal(here))
    slurm.told("scontrol", "update", "nodename=n8", "state=drain", "reason=a test")
    until(lambda: "drain n8" in journal(here))
    slurm.kill("slurmctld")
    until(lambda: " ? sinfo: slurm_load_" in journal(here))
    slurm.start_controller()
    until(lambda: journal(here).rpartition(" ? ")[2].count(" + ") > 1)
    process.send_signal(signal.SIGTERM)
    err = process.communicate()[1]
    assert process.returncode == 0, err
    assert "Unable to contact slurm controller" in err
    quality = import_log("watch", [here / "idle.watch"]).quality
    assert set(quality.busy_node_s) == {"job", "drain", "unknown"}, journal(here)
    assert sum(quality.busy_node_s.values()) + quality.idle_node_s == pytest.approx(8 * quality.window_s)
    log = read_node_log(here / "idle.parquet")
    assert log.nodes == NODES
    assert log.idle[log.node == NODES.index("n8")][:2].tolist() == [True, False]
    done = call("assess", "idle.parquet", "--least-window", "1s")
    assert done.status == 0, done.err
    assert "Coverage was not checked" not in done.out
    if os.geteuid() == 0:  # as which nobody has to watch
        words = ("sinfo", "-h", "-N", "-a", "-O", SINFO_FIELDS)
        until(lambda: slurm_pool(slurm.run(*words, user="nobody").stdout) == slurm_pool(slurm.told(*words)))
