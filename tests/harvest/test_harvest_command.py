"""`bftrainer harvest`: real processes on this machine, what it refuses, and what is asked of it."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest

from bftrainer.files import writing
from bftrainer.files.directories import LOCK
from bftrainer.files.writing import lock_file, lock_holder
from bftrainer.harvest import harvest_directory
from bftrainer.harvest.harvest_directory import REQUESTS, ask, requests
from bftrainer.harvest.harvest_events import Asked, Submitted, event_row
from bftrainer.model import NodeLog
from bftrainer.nodelogs import write_node_log
from tests.cli.conftest import assert_matches, call, check_refusal, here
from tests.waiting import until

__all__ = ["call", "here"]

SCRIPT = """
import time
from bftrainer.harvest import training
with training(lambda path: path.touch(), lambda path: None) as run:
    for step in run:
        time.sleep(0.05)
        run.report(1)
"""
BEGUN = "h: `bftrainer harvest status h` shows how it goes; Ctrl-C ends it, and the same command goes on.\n"
TASK = '[[task]]\nname = "{}"\nmin_nodes = 1\nmax_nodes = 2\nwork = {}\ncommand = {}\n'


@pytest.fixture
def tasks(here):
    """A function that writes a task file of a name, an amount of work, and a command."""
    (here / "train.py").write_text(SCRIPT)

    def write(*rows, name="live.toml", more=""):
        usual = json.dumps([sys.executable, "train.py"])
        text = "".join(TASK.format(*(*row, usual)[:3]) for row in rows)
        (here / name).write_text(f"schema = 1\n{text}{more}")
        return name

    return write


@pytest.mark.long
def test_tasks_are_trained_and_the_directory_is_that_of_a_run(call, tasks):
    """Two tasks on two nodes, one after the other or side by side; then compare, audit, replay and status read it."""
    run = call("harvest", "run", tasks(("a", 25), ("b", 20)), "--max-nodes", 2, "-o", "h", "--json")
    assert run.status == 0, run.err
    assert (run.json["tasks_completed"], run.json["work_done"], run.json["engine"]) == (2, 45.0, "live")
    assert call("audit", "h").status == 0
    assert call("compare", "h").status == 0
    status = call("harvest", "status", "h", "--json").json
    assert [(each["task"], each["status"]) for each in status["tasks"]] == [("a", "done"), ("b", "done")]
    assert "over (finished)" in call("harvest", "status", "h").out
    assert "a is done." in call("harvest", "status", "h").out
    replayed = call("replay", "--from-harvest", "h", "--no-baseline", "-o", "predicted")
    assert replayed.status == 0, replayed.err
    assert_matches(r"work done +[\d.]+ +45 +[-+]", replayed.out)
    again = call("harvest", "run", "live.toml", "--max-nodes", 2, "-o", "h")
    assert "is over (finished)" in again.err
    assert call("audit", "h").status == 0


def test_the_status_of_a_harvest_that_was_killed(call, here, tasks):
    """It holds no nodes any more, or not for long."""
    assert call("harvest", "run", tasks(("a", 1)), "--max-nodes", 1, "-o", "h").status == 0
    status = here / "h" / "status.json"
    status.write_text(json.dumps(json.loads(status.read_text()) | {"over": None, "held": 2, "time_s": 52.0}))
    told = call("harvest", "status", "h").out.splitlines()[0]
    begun = "52 s after it was begun"
    assert told == f"not running; to be started again, {begun}; the 2 nodes that it held are given back without it"


def test_a_task_that_always_crashes_is_parked(call, here, tasks):
    """After its failures, in one line with the last lines of its log; the status is 1."""
    file = tasks(("a", 25, json.dumps([sys.executable, "-c", "raise SystemExit('no data')"])))
    (here / file).write_text((here / file).read_text() + "max_failures = 1\n")
    done = call("harvest", "run", file, "--max-nodes", 1, "-o", "h")
    assert (done.status, done.out) == (1, "h: 0 of 1 tasks done, 1 parked\n")
    assert_matches(r"^Error: a is parked: status 1: no data$", done.err.splitlines()[-1])


def test_carriers_that_cannot_start(call, here, tasks, monkeypatch):
    """One line that says where to look, rather than trying for ever."""
    file = tasks(("a", 25))
    monkeypatch.setattr("bftrainer.harvest.local_engine.sys.executable", str(here / "agent"))
    (here / "agent").write_text("#!/bin/sh\necho no module >&2; exit 1\n")
    (here / "agent").chmod(0o755)
    done = call("harvest", "run", file, "--max-nodes", 1, "-o", "h")
    assert (done.status, done.err) == (
        1,
        f"{BEGUN}Error: Carriers end before they come up; see h{os.sep}carriers.log.\n",
    )
    assert (here / "h" / "carriers.log").read_text() == "no module\n" * 3


@pytest.mark.long
def test_ranks_have_the_grace_time_of_nodes(call, here, tasks):
    """Whatever their task says: one that does not end when it is asked to is killed then."""
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('here', flush=True); time.sleep(60)"
    file = tasks(("a", 25, json.dumps([sys.executable, "-c", script])))
    (here / file).write_text((here / file).read_text() + "grace_s = 1000\n")
    log = here / "h" / "logs" / "a" / "0001-0.log"
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(lambda: until(log.exists) and until(log.read_text) and os.kill(os.getpid(), signal.SIGTERM))
        done = call("harvest", "run", file, "--max-nodes", 1, "-o", "h", "--grace", "0.2s")
    assert told.exception() is None
    assert (done.status, done.out) == (143, "h: 0 of 1 tasks done\n")
    assert log.read_text() == "here\n"
    assert not lock_holder(here / "h" / ".carriers")  # no process is left that holds it


@pytest.mark.long
def test_nothing_is_started_or_written_in_a_dry_run(call, here, tasks):
    """It says what it would do; the same command without it then begins, or goes on."""
    run = "harvest", "run", tasks(("a", 25)), "--max-nodes", 2, "-o", "h"
    done = call(*run, "--dry-run")
    assert done.status == 0, done.err
    said = ["would take n1 n2", "would start a on n1, rank 0 of 2", "would start a on n2, rank 1 of 2"]
    assert done.out.splitlines() == [*said, "Nothing was started or written."]
    assert not (here / "h").exists()
    assert call(*run).out == "h: 1 of 1 tasks done\n"
    before = {path: path.read_bytes() for path in (here / "h").iterdir() if path.is_file()}
    tasks(("a", 25), ("b", 3))
    assert "would start b on n1, rank 0 of 2" in call(*run, "--dry-run", "--offer-after", "1min").out
    assert {path: path.read_bytes() for path in (here / "h").iterdir() if path.is_file()} == before


def test_what_cannot_be_is_refused_in_a_line(call, here, tasks):
    """No such program, no such harvest, nothing to run; and nothing is left behind."""
    tasks(("a", 1))
    (here / "two.toml").write_text((here / "live.toml").read_text().replace("min_nodes = 1", "min_nodes = 2"))
    for words, why in (
        (("run", tasks(("a", 1, '"no-such"'), name="bad.toml")), "bad.toml, task a: Expected a program .*'no-such'"),
        (("run", "none.toml"), "none.toml"),
        (("run",), "Expected either TASKS or --sample, also to go on: the same command does"),
        (("run", "live.toml", "--speed", "2"), "--speed"),
        (
            ("run", "live.toml", "--pool", "none.parquet", "--speed", "nan"),
            "Expected a number, got nan",
        ),
        (("run", "live.toml", "-o", "live.toml"), "live.toml: Expected a directory, found something else"),
        (("run", tasks(("a" * 300, 1), name="long.toml")), "Expected a name that a file may have, got 'aaa"),
        (("run", "live.toml", "--pool", "none.parquet"), "none.parquet"),
        (("status",), "harvest: Expected the directory of a harvest, found no status.json"),
        (("stop", "none"), "none: Expected the directory of a harvest, found no journal"),
        (("run", "live.toml", "-o", "."), r"\.: Expected no directory, an empty one or a harvest, found [\w.]+\."),
        (("run", "live.toml", "--report", "x.html"), "--report was removed: use `bftrainer replay --from-harvest"),
        (("run", "live.toml", "--max-hold", "0"), "'--max-hold': Expected a length of time above 0"),
        (("run", "live.toml", "--for", "0s"), "'--for': Expected a length of time above 0"),
        (("run", "two.toml", "--max-nodes", 1), "two.toml, task a: Expected min_nodes <= 1, the most nodes at once"),
        (("run", "--sample", "-o", "."), r"\.: Expected no directory, an empty one or a harvest, found [\w.]+\."),
    ):
        refused = call("harvest", *words)
        check_refusal(refused)
        assert_matches(why, refused.err)
    assert not (here / "harvest").exists()


def test_one_controller_a_directory(call, here, tasks):
    """A second one is refused, by the number of the first one's process."""
    (here / "h").mkdir()
    with lock_file(here / "h" / LOCK, "h"):
        refused = call("harvest", "run", tasks(("a", 25)), "-o", "h")
    check_refusal(refused)
    assert_matches("is writing there", refused.err)


def test_a_full_disk_ends_it(call, tasks, monkeypatch):
    """In one line, with status 1; with room it goes on from what is in the journal."""
    real, calls = os.fsync, count(1)

    def full(file, *_):
        if next(calls) > 4:
            raise OSError(errno.ENOSPC, "No space left on device", "journal")
        real(file)

    file = tasks(("a", 5))
    with monkeypatch.context() as patched:
        patched.setattr(writing.os, "fsync", full)
        done = call("harvest", "run", file, "--max-nodes", 1, "-o", "h")
    assert (done.status, done.err.count("\n")) == (1, 2), done
    assert_matches("No space left on device", done.err)
    with monkeypatch.context() as patched:
        patched.setattr(harvest_directory, "write_run", full)
        done = call("harvest", "run", file, "--max-nodes", 1, "-o", "h")
    said = "a is done.\nError: h: Cannot write results: No space left on device.\n"
    assert (done.status, done.err) == (1, BEGUN + said)
    assert call("harvest", "run", file, "--max-nodes", 1, "-o", "h").out == "h: 1 of 1 tasks done\n"


def test_a_harvest_goes_on_with_its_own_options_only(call, tasks):
    """Others are refused by name; added tasks wait for it."""
    file = tasks(("a", 1e6))
    assert call("harvest", "run", file, "--max-nodes", 1, "-o", "h", "--for", "0.5s").status == 0
    assert call("harvest", "status", "h").out.startswith("over (its time is up), ")
    refused = call("harvest", "run", file, "--max-nodes", 1, "-o", "h", "--solver", "highs")
    check_refusal(refused)
    assert_matches(r"these differ: solver\.", refused.err)
    assert call("harvest", "add", "h", tasks(("b", 1), name="more.toml")).out.startswith("h: no harvest runs there now")


@pytest.mark.long
def test_a_node_log_stands_still_while_nothing_runs(call, here, tasks, monkeypatch):
    """Days later the same command goes on where it was; that the log is over is said, as often as it is asked."""
    log = NodeLog(
        ("n1",), 10**18, 10**18 + 5 * 10**9, np.array([10**18]), np.zeros(1, dtype=np.int32), np.ones(1, bool)
    )
    write_node_log(here / "idle.parquet", log)
    command = "harvest", "run", tasks(("a", 1e6)), "--pool", "idle.parquet", "-o", "h"
    assert call(*command, "--for", "1s").err == BEGUN
    first = call("harvest", "status", "h", "--json").json["tasks"][0]["work"]
    assert_matches(r"these differ: speed\.", call(*command, "--speed", 2).err)
    assert "would take n1" in call(*command, "--dry-run").out
    now_s = time.time
    monkeypatch.setattr(time, "time", lambda: now_s() + 1e6)
    over = "The node log is over. Tasks that are left go on with a longer one, or without --pool.\n"
    assert call(*command).err == BEGUN + over
    (task,) = call("harvest", "status", "h", "--json").json["tasks"]
    assert task["work"] > first
    assert call(*command).err == BEGUN + over
    assert call("audit", "h").status == 0


def test_requests_of_others_are_not_heard(here):
    """What others may write, or is none, is refused in words; what is ours is taken in the order it was asked."""
    (here / "h").mkdir()
    (here / "h" / "journal").touch()
    for name in ("a", "b"):
        ask(here / "h", Submitted("live.toml", {"name": name}))
    place = here / "h" / REQUESTS
    (place / "000003.json").write_text('["CarrierUp", "n1", "c"]')
    (place / "000004.json").write_text("nonsense")
    (place / "000005.json").symlink_to(place / "000001.json")
    (place / "000006.json").write_text('["Asked", "stop"]')
    (place / "000006.json").chmod(0o666)
    found = [what for _, what in requests(here / "h")]
    assert found[-2:] == [Submitted("live.toml", {"name": "a"}), Submitted("live.toml", {"name": "b"})]
    assert len([what for what in found[:-2] if isinstance(what, str)]) == 4


@pytest.fixture
def twice(tasks):
    """A task file of one task that sleeps when it is run first, and is done the second time."""
    return tasks(("a", 1, json.dumps(["sh", "-c", "[ -e again ] && exit; touch again; exec sleep 60"])))


@pytest.mark.long
def test_what_was_interrupted_goes_on(call, here, tasks, twice):
    """As long as a task is left or one was added; what was asked and refused stays where it is, and is told once."""
    run = "harvest", "run", twice, "--max-nodes", 1, "-o", "h"
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(lambda: until((here / "again").exists) and os.kill(os.getpid(), signal.SIGTERM))
        done = call(*run)
    assert (done.status, done.out) == (143, "h: 0 of 1 tasks done\n")
    assert told.exception() is None
    (here / "h" / REQUESTS).mkdir()
    ask_to_stop = json.dumps(event_row(Asked("stop")))
    (here / "h" / REQUESTS / "left.json").write_text(ask_to_stop)  # by a controller that was killed
    (here / "h" / REQUESTS / "mine.json").write_text("nonsense")
    done = call(*run)
    assert done.out == "h: 1 of 1 tasks done\n"
    assert done.err.count("mine.json: Refused") == 1
    assert [path.name for path in (here / "h" / REQUESTS).iterdir()] == ["mine.json"]
    assert "is over (finished)" in call(*run).err
    assert call("harvest", "add", "h", tasks(("a", 1, '"true"'), ("b", 1, '"true"'), name="more.toml")).status == 0
    done = call(*run)
    assert done.out == "h: 2 of 2 tasks done\n"
    assert_matches("Not added: .*more.toml, task a: Expected a new name, it is here already", done.err)
    (here / twice).write_text((here / twice).read_text() + TASK.format("c", 1, '"true"'))
    assert call(*run).out == "h: 3 of 3 tasks done\n"
    assert call("audit", "h").status == 0
    for words in (("stop",), ("stop", "--drain")):
        refused = call("harvest", *words, "h")
        check_refusal(refused)
        assert_matches("h: Expected a harvest that runs, found one that does not", refused.err)


# --- whose directories are --------------------------------------------------------------------------------------------


def test_the_sample_and_tasks_of_a_user_do_not_meet(call, tasks):
    """Neither joins the harvest of the other one, which may be in the directory that both have by default."""
    assert call("harvest", "run", tasks(("a", 1, '"true"')), "--max-nodes", 1).status == 0
    refused = call("harvest", "run", "--sample")
    check_refusal(refused)
    assert_matches(r"harvest: Expected tasks of the harvest there \(a\), found none in .*sample\.toml", refused.err)
    refused = call("harvest", "run", tasks(("b", 1, '"true"'), name="other.toml"), "--max-nodes", 1)
    check_refusal(refused)
    assert_matches(r"harvest: Expected tasks of the harvest there \(a\), found none in other\.toml; see", refused.err)


def test_the_sample_replaces_no_file_of_the_user(call, here):
    """A task set of the name that the sample has is kept."""
    (here / "h").mkdir()
    (here / "h" / "sample.toml").write_text("mine")
    check_refusal(call("harvest", "run", "--sample", "-o", "h"))
    assert (here / "h" / "sample.toml").read_text() == "mine"


def test_nothing_to_compare_is_no_failure(call):
    """Of a sample that ends before it has a node there is no page, and its status is what it would be without one."""
    done = call("harvest", "run", "--sample", "-o", "h", "--max-nodes", 1, "--for", "0.01s")
    assert (done.status, done.out) == (0, "h: 0 of 3 tasks done\n"), done
    assert "Note: Nothing was done, so that there is nothing to compare, and no page.\n" in done.err


def test_a_task_that_is_added_has_a_checkpoint_dir_of_its_own(call, tasks):
    """One that another task saves in is not added, which is said."""
    own = 'checkpoint_dir = "own"\n'
    call("harvest", "run", tasks(("a", 1e6), more=own), "--max-nodes", 1, "-o", "h", "--for", "0.3s")
    for name, more in (("b", own), ("d", "")):
        call("harvest", "add", "h", tasks((name, 1, '"true"'), more=more, name=f"{name}.toml"))
    done = call("harvest", "run", "live.toml", "--max-nodes", 1, "-o", "h", "--for", "0.3s")
    assert_matches(r"Not added: task b: Expected a checkpoint_dir of its own, got 'own', that of task a\.", done.err)
    assert [each["task"] for each in call("harvest", "status", "h", "--json").json["tasks"]] == ["a", "d"]


@pytest.mark.parametrize(
    ("place", "whose"), [("h", "'h', that of the harvest"), ("h/checkpoints/a", "'.*', that of task a")]
)
def test_a_checkpoint_dir_in_that_of_the_harvest(call, tasks, place, whose):
    """Where another task saves by default, or the journal is."""
    file = tasks(("a", 1), ("b", 1), more=f'checkpoint_dir = "{place}"\n')
    refused = call("harvest", "run", file, "--max-nodes", 1, "-o", "h")
    check_refusal(refused)
    assert_matches(rf"task b: Expected a checkpoint_dir of its own, got {whose}\.", refused.err)


def test_a_place_that_cannot_be(call, here, tasks):
    """A task is not added for it, and the harvest goes on."""
    call("harvest", "run", tasks(("a", 1e6)), "--max-nodes", 1, "-o", "h", "--for", "0.3s")
    (here / "loop").symlink_to("loop")
    asked = {"name": "b", "min_nodes": 1, "max_nodes": 1, "work": 1, "command": "true", "checkpoint_dir": "loop"}
    ask(here / "h", Submitted(str(here / "live.toml"), asked))
    done = call("harvest", "run", "live.toml", "--max-nodes", 1, "-o", "h", "--for", "0.3s")
    assert done.status == 0
    assert_matches(r"Not added: task b: Expected a checkpoint_dir for checkpoints", done.err)
