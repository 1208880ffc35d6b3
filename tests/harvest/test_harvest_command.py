"""`bftrainer harvest`: real processes on this machine, what is refused and asked, and what its figures say."""

import errno
import json
import os
import signal
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest

from bftrainer.files import writing
from bftrainer.files.directories import LOCK
from bftrainer.files.writing import is_locked, lock_file
from bftrainer.harvest import harvest_directory
from bftrainer.harvest.harvest_directory import REQUESTS, ask, requests
from bftrainer.harvest.harvest_events import Asked, Submitted, event_row
from bftrainer.model import NodeLog
from bftrainer.nodelogs import write_node_log
from tests.cli.conftest import assert_matches, check_refusal
from tests.harvest.conftest import table_text
from tests.waiting import until

BEGUN = "h: `bftrainer harvest status h` shows how it goes; Ctrl-C ends it, and the same command goes on.\n"
OVER = "The node log is over. Tasks that are left go on with a longer one, or without --pool.\n"
SLURM = ("--engine", "slurm", "--partition", "scavenge", "--poll-every", "0.2s", "--address", "127.0.0.1")
NOTHING = ("-c", "pass")


def read_tasks(path):
    """Tables of a task set by name."""
    return {each["name"]: each for each in tomllib.loads(path.read_text())["task"]}


def end_when(seen):
    """Ask this process to end, as a user does, once something is seen; the future of that."""
    return ThreadPoolExecutor(1).submit(lambda: until(seen) and os.kill(os.getpid(), signal.SIGTERM))


@pytest.mark.long
def test_tasks_are_trained_and_the_directory_is_that_of_a_run(call, run, tasks):
    """Two tasks on two nodes, one after the other or side by side; then compare, audit, replay and status read it."""
    done = run(tasks(("a", 25), ("b", 20)), "--json", nodes=2)
    assert done.status == 0, done.err
    assert (done.json["tasks_completed"], done.json["work_done"], done.json["engine"]) == (2, 45.0, "live")
    assert (call("audit", "h").status, call("compare", "h").status) == (0, 0)
    status = call("harvest", "status", "h", "--json").json
    assert [(each["task"], each["status"]) for each in status["tasks"]] == [("a", "done"), ("b", "done")]
    said = call("harvest", "status", "h").out
    assert "over (finished)" in said
    assert "a is done." in said
    replayed = call("replay", "--from-harvest", "h", "--no-baseline", "-o", "predicted")
    assert replayed.status == 0, replayed.err
    assert_matches(r"work done +[\d.]+ +45 +[-+]", replayed.out)
    assert "is over (finished)" in run("live.toml", nodes=2).err
    assert call("audit", "h").status == 0


@pytest.mark.long
def test_tasks_are_trained_on_nodes_of_slurm(call, here, tasks, toy):
    """A dry run starts nothing; then two nodes are held as long as the task lasts, and no job is left: it is a run."""
    toy.put("nodes", "n1 idle", "n2 drain", "n3 idle")
    command = "harvest", "run", tasks(("a", 40)), *SLURM, "-o", "h"
    assert "would take n1 n3" in call(*command, "--dry-run").out
    assert not any(line.startswith(("sbatch", "scancel")) for line in toy.asked())
    done = call(*command, "--i-know", "--json")
    assert done.status == 0, done.err
    assert (done.json["tasks_completed"], done.json["work_done"], done.json["engine"]) == (1, 40.0, "live")
    assert toy.jobs() == {}
    assert [line.split()[0] for line in toy.asked() if line.startswith("sbatch")] == ["sbatch"] * 3
    assert not list((here / "h").glob("carrier-*.sh"))
    assert call("audit", "h").status == 0


def test_the_status_of_a_harvest_that_was_killed(call, here, run, tasks):
    """It holds no nodes any more, or not for long."""
    assert run(tasks(("a", 1))).status == 0
    status = here / "h" / "status.json"
    status.write_text(json.dumps(json.loads(status.read_text()) | {"over": None, "held": 2, "time_s": 52.0}))
    told = call("harvest", "status", "h").out.splitlines()[0]
    begun = "52 s after it was begun"
    assert told == f"not running; to be started again, {begun}; the 2 nodes that it held are given back without it"


@pytest.mark.long
def test_a_task_that_always_crashes_is_parked_and_may_be_tried_again(call, here, run, tasks):
    """In one line with the last lines of its log, and with status 1; what a replay reads ends where it did.

    The same command tries it again, as the file has it then, beside new ones; the books have it once.
    """
    done = run(tasks(("b", 25, *NOTHING), ("a", 25, "-c", "raise SystemExit('no data')"), more="max_failures = 1\n"))
    assert (done.status, done.out) == (1, "h: 1 of 2 tasks done, 1 parked\n")
    assert_matches(r"^Error: a is parked: status 1: no data$", done.err.splitlines()[-1])
    for name in ("tasks", "measured"):
        assert read_tasks(here / "h" / f"{name}.toml")["a"]["work"] < 1.0
    assert call("audit", "h").status == 0
    again = run(tasks(("a", 9), ("c", 5)))
    assert (again.status, again.out) == (0, "h: 3 of 3 tasks done\n")
    assert "a is tried again.\n" in again.err
    tables = read_tasks(here / "h" / "tasks.toml")
    assert {name: tables[name]["work"] for name in "ac"} == {"a": 9.0, "c": 5.0}
    assert "is over (finished)" in run("live.toml").err
    assert call("audit", "h").status == 0


def test_carriers_that_cannot_start(here, run, tasks, monkeypatch):
    """One line that says where to look, rather than trying for ever."""
    file = tasks(("a", 25))
    monkeypatch.setattr("bftrainer.harvest.local_engine.sys.executable", str(here / "agent"))
    (here / "agent").write_text("#!/bin/sh\necho no module >&2; exit 1\n")
    (here / "agent").chmod(0o755)
    done = run(file)
    said = f"{BEGUN}Error: Carriers end before they come up; see h{os.sep}carriers.log.\n"
    assert (done.status, done.err) == (1, said)
    assert (here / "h" / "carriers.log").read_text() == "no module\n" * 3


@pytest.mark.long
def test_ranks_have_the_grace_time_of_nodes(here, run, tasks):
    """Whatever their task says: one that does not end when it is asked to is killed then."""
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('here', flush=True); time.sleep(60)"
    log = here / "h" / "logs" / "a" / "0001-0.log"
    told = end_when(lambda: log.exists() and log.read_text())
    done = run(tasks(("a", 25, "-c", script), more="grace_s = 1000\n"), "--grace", "0.2s")
    assert told.exception() is None
    assert (done.status, done.out) == (143, "h: 0 of 1 tasks done\n")
    assert log.read_text() == "here\n"
    assert not is_locked(here / "h" / ".carriers")  # no process is left that holds it


@pytest.mark.long
def test_nothing_is_started_or_written_in_a_dry_run(here, run, tasks):
    """It says what it would do; the same command without it then begins, or goes on."""
    done = run(tasks(("a", 25)), "--dry-run", nodes=2)
    assert done.status == 0, done.err
    said = ["would take n1 n2", "would start a on n1, rank 0 of 2", "would start a on n2, rank 1 of 2"]
    assert done.out.splitlines() == [*said, "Nothing was started or written."]
    assert not (here / "h").exists()
    assert run("live.toml", nodes=2).out == "h: 1 of 1 tasks done\n"
    before = {path: path.read_bytes() for path in (here / "h").iterdir() if path.is_file()}
    tasks(("a", 25), ("b", 3))
    assert "would start b on n1, rank 0 of 2" in run("live.toml", "--dry-run", "--offer-after", "1min", nodes=2).out
    assert {path: path.read_bytes() for path in (here / "h").iterdir() if path.is_file()} == before


LIVE = ("run", "live.toml")


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        # What is to be run, and where.
        (("run", "bad.toml"), "bad.toml, task a: Expected a program .*'no-such'"),
        (("run", "none.toml"), "none.toml"),
        (("run",), "Expected either TASKS or --sample, also to go on: the same command does"),
        (("run", "long.toml"), "Expected a name that a file may have, got 'aaa"),
        (("run", "two.toml", "--max-nodes", 1), "two.toml, task a: Expected min_nodes <= 1, the most nodes at once"),
        ((*LIVE, "-o", "live.toml"), "live.toml: Expected a directory, found something else"),
        ((*LIVE, "-o", "."), r"\.: Expected no directory, an empty one or a harvest, found [\w.]+\."),
        (("run", "--sample", "-o", "mine"), "mine: Expected no directory, .* found sample.toml"),
        (("status",), "harvest: Expected the directory of a harvest, found no status.json"),
        (("stop", "none"), "none: Expected the directory of a harvest, found no journal"),
        # Checkpoints where another task saves by default, by whatever name, or the journal is.
        (("run", "beside.toml", "-o", "h"), r"task b: Expected a checkpoint_dir of its own, got 'h', that of the harv"),
        (("run", "within.toml", "-o", "h"), r"task b: Expected a checkpoint_dir of its own, got '.*', that of task a"),
        # Options.
        ((*LIVE, "--speed", "2"), "--speed"),
        ((*LIVE, "--pool", "none.parquet", "--speed", "nan"), "Expected a number, got nan"),
        ((*LIVE, "--pool", "none.parquet"), "none.parquet"),
        ((*LIVE, "--report", "x.html"), "--report was removed: use `bftrainer replay --from-harvest"),
        ((*LIVE, "--max-hold", "0"), "'--max-hold': Expected a length of time above 0"),
        # Of Slurm.
        ((*LIVE, "--engine", "slurm"), r"Expected --partition with --engine slurm\."),
        ((*LIVE, "--give-way", "chosen"), r"Options that have no effect: --give-way \(--engine is not slurm\)"),
        ((*LIVE, *SLURM, "--give-way", "chosen"), r"but Slurm names who makes room before the harvest can"),
        ((*LIVE, "--partition", "scavenge"), r"Options that have no effect: --partition \(--engine is not slurm\)"),
        ((*LIVE, *SLURM, "--grace", "5s"), r"Options that have no effect: --grace \(--engine slurm takes"),
        ((*LIVE, *SLURM, "--partition", "batch"), r"partition batch: Expected one whose jobs make room, but its Preem"),
        ((*LIVE, *SLURM, "--i-know", "--address", "192.0.2.1"), r"--address of this machine, got '192\.0\.2\.1' \("),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(call, here, tasks, words, why):
    """Before anything is made; what is there stays as it is."""
    text = (here / tasks(("a", 1))).read_text()
    tasks(("a" * 300, 1), name="long.toml")
    tasks(("a", 1), ("b", 1), more='checkpoint_dir = "h"\n', name="beside.toml")
    tasks(("a", 1), ("b", 1), more='checkpoint_dir = "./x/../h/checkpoints/a"\n', name="within.toml")
    (here / "two.toml").write_text(text.replace("min_nodes = 1", "min_nodes = 2"))
    (here / "bad.toml").write_text(text.partition("command")[0] + 'command = "no-such"\n')
    (here / "mine").mkdir()
    (here / "mine" / "sample.toml").write_text("mine")
    refused = call("harvest", *words)
    check_refusal(refused)
    assert_matches(why, refused.err)
    assert not (here / "harvest").exists()
    assert (here / "mine" / "sample.toml").read_text() == "mine"


def test_one_controller_a_directory(here, run, tasks):
    """A second one is refused, by the number of the first one's process."""
    (here / "h").mkdir()
    with lock_file(here / "h" / LOCK, "h"):
        refused = run(tasks(("a", 25)))
    check_refusal(refused)
    assert_matches("is writing there", refused.err)


def test_a_full_disk_ends_it(run, tasks, monkeypatch):
    """In one line, with status 1; with room it goes on from what is in the journal."""
    real, calls = os.fsync, count(1)

    def full(file, *_):
        if next(calls) > 4:
            raise OSError(errno.ENOSPC, "No space left on device", "journal")
        real(file)

    file = tasks(("a", 5))
    with monkeypatch.context() as patched:
        patched.setattr(writing.os, "fsync", full)
        done = run(file)
    assert (done.status, done.err.count("\n")) == (1, 2), done
    assert_matches("No space left on device", done.err)
    with monkeypatch.context() as patched:
        patched.setattr(harvest_directory, "write_run", full)
        done = run(file)
    said = "a is done.\nError: h: cannot be written (No space left on device).\n"
    assert (done.status, done.err) == (1, BEGUN + said)
    assert run(file).out == "h: 1 of 1 tasks done\n"


def test_a_harvest_goes_on_with_its_own_options_and_tasks_only(call, run, tasks):
    """Other options are refused by name, also those of the sample; added tasks wait for it."""
    file = tasks(("a", 1e6))
    assert run(file, "--for", "0.5s").status == 0
    assert call("harvest", "status", "h").out.startswith("over (its time is up), ")
    for words, why in (
        ((file, "--solver", "highs"), r"these differ: solver\."),
        (
            (tasks(("b", 1), name="b.toml"),),
            r"h: Expected tasks of the harvest there \(a\), found none in b\.toml; see",
        ),
    ):
        refused = run(*words)
        check_refusal(refused)
        assert_matches(why, refused.err)
    refused = call("harvest", "run", "--sample", "-o", "h")
    check_refusal(refused)
    assert_matches(r"h: Expected tasks of the harvest there \(a\), found none in .*sample\.toml", refused.err)
    assert call("harvest", "add", "h", "b.toml").out.startswith("h: no harvest runs there now")


@pytest.mark.long
def test_a_node_log_stands_still_while_nothing_runs(call, here, tasks, monkeypatch):
    """Days later the same command goes on where it was; that the log is over is said, as often as it is asked."""
    begin_ns, length_ns = 10**18, 5 * 10**9
    row = np.array([begin_ns]), np.zeros(1, dtype=np.int32), np.ones(1, bool)
    write_node_log(here / "idle.parquet", NodeLog(("n1",), begin_ns, begin_ns + length_ns, *row))
    command = "harvest", "run", tasks(("a", 1e6)), "--pool", "idle.parquet", "-o", "h"
    assert call(*command, "--for", "1s").err == BEGUN
    first = call("harvest", "status", "h", "--json").json["tasks"][0]["work"]
    assert_matches(r"these differ: speed\.", call(*command, "--speed", 2).err)
    assert "would take n1" in call(*command, "--dry-run").out
    now_s = time.time
    monkeypatch.setattr(time, "time", lambda: now_s() + 1e6)
    assert call(*command).err == BEGUN + OVER
    (task,) = call("harvest", "status", "h", "--json").json["tasks"]
    assert task["work"] > first
    assert call(*command).err == BEGUN + OVER
    assert call("audit", "h").status == 0


# --- what is asked of it ----------------------------------------------------------------------------------------------


def test_requests_of_others_are_not_heard(here):
    """What others may write, or is none, is refused in words; what is ours is taken in the order it was asked."""
    (here / "h").mkdir()
    (here / "h" / "journal").touch()
    ours = [Submitted("live.toml", {"name": name}) for name in "ab"]
    for each in ours:
        ask(here / "h", each)
    place = here / "h" / REQUESTS
    (place / "000003.json").write_text('["CarrierUp", "n1", "c"]')
    (place / "000004.json").write_text("nonsense")
    (place / "000005.json").symlink_to(place / "000001.json")
    (place / "000006.json").write_text('["Asked", "stop"]')
    (place / "000006.json").chmod(0o666)
    found = [what for _, what in requests(here / "h")]
    assert found[-2:] == ours
    assert len([what for what in found[:-2] if isinstance(what, str)]) == 4


@pytest.mark.long
def test_what_was_interrupted_goes_on(call, here, run, tasks):
    """As long as a task is left or one was added; what was asked and refused stays where it is, and is told once."""
    script = "import pathlib, time; p = pathlib.Path('again'); p.exists() or p.touch() or time.sleep(60)"
    file = tasks(("a", 1, "-c", script))
    told = end_when((here / "again").exists)
    done = run(file)
    assert (done.status, done.out) == (143, "h: 0 of 1 tasks done\n")
    assert told.exception() is None
    place = here / "h" / REQUESTS
    place.mkdir()
    (place / "left.json").write_text(json.dumps(event_row(Asked("stop"))))  # by a controller that was killed
    (place / "mine.json").write_text("nonsense")
    done = run(file)
    assert done.out == "h: 1 of 1 tasks done\n"
    assert done.err.count("mine.json: Refused") == 1
    assert [path.name for path in place.iterdir()] == ["mine.json"]
    assert "is over (finished)" in run(file).err
    assert call("harvest", "add", "h", tasks(("a", 1, *NOTHING), ("b", 1, *NOTHING), name="more.toml")).status == 0
    done = run(file)
    assert done.out == "h: 2 of 2 tasks done\n"
    assert_matches("Not added: .*more.toml, task a: Expected a new name, it is here already", done.err)
    (here / file).write_text((here / file).read_text() + table_text("c", 1, *NOTHING))
    assert run(file).out == "h: 3 of 3 tasks done\n"
    assert call("audit", "h").status == 0
    for words in (("stop",), ("stop", "--drain")):
        refused = call("harvest", *words, "h")
        check_refusal(refused)
        assert_matches("h: Expected a harvest that runs, found one that does not", refused.err)


def test_a_task_that_is_added_has_a_checkpoint_dir_of_its_own(call, here, run, tasks):
    """One that another task saves in, or that cannot be, is not added, which is said; the harvest goes on."""
    own = 'checkpoint_dir = "own"\n'
    run(tasks(("a", 1e6), more=own), "--for", "0.3s")
    for name, more in (("b", own), ("d", "")):
        call("harvest", "add", "h", tasks((name, 1, *NOTHING), more=more, name=f"{name}.toml"))
    (here / "loop").symlink_to("loop")
    asked = {"name": "c", "min_nodes": 1, "max_nodes": 1, "work": 1, "command": "true", "checkpoint_dir": "loop"}
    ask(here / "h", Submitted(str(here / "live.toml"), asked))
    done = run("live.toml", "--for", "0.3s")
    assert done.status == 0
    assert_matches(r"Not added: task b: Expected a checkpoint_dir of its own, got 'own', that of task a\.", done.err)
    assert_matches(r"Not added: task c: Expected a checkpoint_dir for checkpoints", done.err)
    assert [each["task"] for each in call("harvest", "status", "h", "--json").json["tasks"]] == ["a", "d"]


# --- what its figures say ---------------------------------------------------------------------------------------------


def test_work_is_what_was_reported(call, here, run, tasks):
    """A script that ends by itself is done, with what it has reported, all of it or not; that is said and audited."""
    done = run(tasks(("short", 25, "train.py", "10"), ("silent", 5000, *NOTHING)), "--json")
    assert (done.status, done.json["tasks"]) == (0, {"done": 2})
    assert done.json["work_done"] == pytest.approx(10.0, abs=1e-6)
    assert "short is done, and has reported 10 of its work of 25.\n" in done.err
    assert "silent is done, and has reported 0 of its work of 5,000.\n" in done.err
    assert read_tasks(here / "h" / "tasks.toml")["short"]["work"] == 10.0
    assert_matches("include those that ended .*: short .done., silent .done.", done.json["node_log_notes"][-1])
    assert call("audit", "h").status == 0


def test_what_was_not_measured_is_said_to_be_so(call, run, tasks):
    """A task of less than a second is replayed as it was declared, with a mark; here it ends after the nodes go."""
    run(tasks(("a", 5)))
    predicted = call("replay", "--from-harvest", "h", "--no-baseline", "-o", "predicted").out
    assert_matches(r"a \(not measured\): work done +[\d.]+ +5 ", predicted)
    assert_matches(r"a \(not measured\): ended after \(s\) +- ", predicted)
    assert_matches(r"makespan \(s\) +- ", predicted)


def test_a_task_that_never_had_a_node_is_not_replayed(call, here, run, tasks):
    """Nothing is known of it; in a replay it would take nodes from those that had them."""
    run(tasks(("a", 2000), ("b", 2000)), "--max-tasks", 1, "--for", "1.5s")
    waits = ({"a", "b"} - read_tasks(here / "h" / "measured.toml").keys()).pop()
    predicted = call("replay", "--from-harvest", "h", "--no-baseline", "-o", "predicted")
    assert predicted.status == 0, predicted.err
    assert f"{waits}: " not in predicted.out


def test_what_was_done_before_is_no_work_of_this_harvest(call, here, run, tasks):
    """A checkpoint of another harvest is where a task begins: only what comes after it is booked, and to be done."""
    run(tasks(("a", 9)))
    done = run(tasks(("a", 20), more='checkpoint_dir = "h/checkpoints/a"\n'), "--json", directory="second")
    assert done.json["work_done"] == 11.0
    assert "a goes on from 9, which was done before.\n" in done.err
    assert read_tasks(here / "second" / "tasks.toml")["a"]["work"] == 11.0
    assert call("audit", "second").status == 0


def test_nothing_to_compare_is_no_failure(call, run, tasks):
    """Where no node was held there is nothing to replay, and a page can still be made; of a sample there is none."""
    run(tasks(("a", 9)), "--offer-after", "1h", "--for", "0.2s")
    refused = call("replay", "--from-harvest", "h", "-o", "predicted")
    check_refusal(refused)
    assert_matches("h: Expected a harvest that held nodes to replay, found one that held none", refused.err)
    assert call("report", "h", "-o", "page.html").status == 0
    done = run("--sample", "--for", "0.01s", directory="sample")
    assert (done.status, done.out) == (0, "sample: 0 of 3 tasks done\n"), done
    assert "Note: Nothing was done, so that there is nothing to compare, and no page.\n" in done.err
