"""What the figures of a harvest say: what was reported, by whom, and what was not measured."""

from __future__ import annotations

import json
import sys
import tomllib

import pytest

from bftrainer.harvest.harvest_directory import describe_status
from bftrainer.harvest.harvest_events import CarrierLost, Submitted
from tests.cli.conftest import assert_matches, call, check_refusal, here
from tests.harvest.worlds_of_nodes import carried, controller, exits, progress, run_on, table

__all__ = ["call", "here"]

SCRIPT = """
import sys
import time
from bftrainer.harvest import training
most = int(sys.argv[1]) if sys.argv[1:] else None
with training(lambda path: path.touch(), lambda path: None) as run:
    for step in run:
        if step == most:
            break
        time.sleep(0.01)
        run.report(1)
"""
TASK = '[[task]]\nname = "{}"\nmin_nodes = 1\nmax_nodes = 2\nwork = {}\ncommand = {}\n'


@pytest.fixture
def harvest_with(call, here):
    """A function that harvests tasks of a name, an amount of work and a command on a node, in a directory."""
    (here / "train.py").write_text(SCRIPT)

    def harvest(directory, *rows, options=()):
        texts = [TASK.format(name, work, json.dumps([sys.executable, *words])) for name, work, *words in rows]
        (here / "live.toml").write_text("schema = 1\n" + "".join(texts))
        return call("harvest", "run", "live.toml", "--max-nodes", 1, "-o", directory, *options)

    return harvest


def read_tasks(path):
    """Tables of a task set by name."""
    return {each["name"]: each for each in tomllib.loads(path.read_text())["task"]}


def test_work_is_what_was_reported(call, here, harvest_with):
    """A script that ends by itself is done, with what it has reported, all of it or not; that is said and audited."""
    short, silent = ("short", 25, "train.py", "10"), ("silent", 5000, "-c", "pass")
    run = harvest_with("h", short, silent, options=["--json"])
    assert (run.status, run.json["tasks"]) == (0, {"done": 2})
    assert run.json["work_done"] == pytest.approx(10.0, abs=1e-6)
    assert "short is done, and has reported 10 of its work of 25.\n" in run.err
    assert "silent is done, and has reported 0 of its work of 5,000.\n" in run.err
    assert read_tasks(here / "h" / "tasks.toml")["short"]["work"] == 10.0
    assert_matches("include those that ended .*: short .done., silent .done.", run.json["node_log_notes"][-1])
    assert call("audit", "h").status == 0


def test_what_was_not_measured_is_said_to_be_so(call, harvest_with):
    """A task of less than a second is replayed as it was declared, with a mark; here it ends after the nodes go."""
    harvest_with("h", ("a", 5, "train.py"))
    predicted = call("replay", "--from-harvest", "h", "--no-baseline", "-o", "predicted")
    assert_matches(r"a \(not measured\): work done +[\d.]+ +5 ", predicted.out)
    assert_matches(r"a \(not measured\): ended after \(s\) +- ", predicted.out)
    assert_matches(r"makespan \(s\) +- ", predicted.out)


def test_a_task_that_never_had_a_node_is_not_replayed(call, here, harvest_with):
    """Nothing is known of it; in a replay it would take nodes from those that had them."""
    harvest_with("h", ("a", 2000, "train.py"), ("b", 2000, "train.py"), options=["--max-tasks", "1", "--for", "1.5s"])
    measured = read_tasks(here / "h" / "measured.toml")
    waits = ({"a", "b"} - measured.keys()).pop()
    predicted = call("replay", "--from-harvest", "h", "--no-baseline", "-o", "predicted")
    assert predicted.status == 0, predicted.err
    assert f"{waits}: " not in predicted.out


@pytest.mark.long
def test_parked_tasks_are_not_done(call, here, harvest_with):
    """Nor do they wait for more in what a replay reads: their work ends where it did."""
    bad = ("-c", "raise SystemExit('no data')")
    done = harvest_with("h", ("a", 25, *bad), ("b", 25, "-c", "pass"), options=["--for", "20s"])
    assert (done.status, done.out) == (1, "h: 1 of 2 tasks done, 1 parked\n")
    for name in ("tasks", "measured"):
        assert read_tasks(here / "h" / f"{name}.toml")["a"]["work"] < 1.0
    assert call("audit", "h").status == 0


@pytest.mark.long
def test_a_parked_task_is_tried_again(call, here, harvest_with):
    """By the same command, as the file has it then, beside new ones; the books have it once."""
    assert harvest_with("h", ("a", 9, "-c", "raise SystemExit(3)")).out == "h: 0 of 1 tasks done, 1 parked\n"
    again = harvest_with("h", ("a", 9, "train.py"), ("b", 5, "train.py"))
    assert (again.status, again.out) == (0, "h: 2 of 2 tasks done\n")
    assert "a is tried again.\n" in again.err
    tables = read_tasks(here / "h" / "tasks.toml")
    assert {name: each["work"] for name, each in tables.items()} == {"a": 9.0, "b": 5.0}
    assert "is over (finished)" in harvest_with("h", ("a", 9, "train.py"), ("b", 5, "train.py")).err
    audited = call("audit", "h")
    assert audited.status == 0, audited.out


def test_what_was_done_before_is_no_work_of_this_harvest(call, here, harvest_with):
    """A checkpoint of another harvest is where a task begins: only what comes after it is booked, and to be done."""
    harvest_with("first", ("a", 9, "train.py"))
    text = TASK.format("a", 20, json.dumps([sys.executable, "train.py"])) + 'checkpoint_dir = "first/checkpoints/a"\n'
    (here / "more.toml").write_text(f"schema = 1\n{text}")
    run = call("harvest", "run", "more.toml", "--max-nodes", 1, "-o", "second", "--json")
    assert run.json["work_done"] == 11.0
    assert "a goes on from 9, which was done before.\n" in run.err
    assert read_tasks(here / "second" / "tasks.toml")["a"]["work"] == 11.0
    assert call("audit", "second").status == 0


def test_an_attempt_begins_where_the_last_one_ended():
    """Where a script does not say where it goes on from, what an earlier attempt has reported does."""
    made = controller(table(max_failures=1), stays=True)
    carried(made, 1.0, "n1")
    made.step(9.0, [progress("a", 1, 400.0, 400.0, 8.0)])
    exits(made, 9.5, "a", 1, "n1", status=1)
    assert made.tasks["a"].status == "parked"
    assert made.allocator.task("a").completed_s == pytest.approx(9.5, abs=1e-3)
    made.step(10.0, [CarrierLost("n1", "c-n1"), Submitted("tasks.toml", table(work=2e6))])
    assert run_on(carried(made, 11.0, "n1")) == [("n1", "a", 2, 0, 1)]
    made.step(20.0, [progress("a", 2, 700.0, 700.0, 19.0)])
    made.finish("interrupted")
    (task,) = made.allocator.recorder.recording.tasks
    assert (task.spec.name, task.work_done, task.spec.work, task.completed_s) == ("a", 700.0, 2e6, None)


def test_a_task_that_never_trained_is_not_measured():
    """It is as it was declared, and is named."""
    made = controller(table(max_failures=1), stays=True)
    carried(made, 1.0, "n1")
    exits(made, 9.0, "a", 1, "n1", status=1)
    assert made.measured_specs()["a"].scaling == made.tasks["a"].task.spec.scaling
    assert not describe_status(made)["tasks"][0]["is_measured"]
    made.step(10.0, [CarrierLost("n1", "c-n1"), Submitted("tasks.toml", table())])
    carried(made, 11.0, "n1")
    made.step(20.0, [progress("a", 2, 0.0, 0.0, 12.0), progress("a", 2, 700.0, 700.0, 19.0)])
    made.finish("interrupted")
    assert made.measured_specs()["a"].rates[1] == pytest.approx(100.0)
    assert describe_status(made)["tasks"][0]["is_measured"]


def test_nothing_was_held(call, harvest_with):
    """There is nothing to replay then, and a page can still be made."""
    harvest_with("h", ("a", 9, "train.py"), options=["--offer-after", "1h", "--for", "0.2s"])
    refused = call("replay", "--from-harvest", "h", "-o", "predicted")
    check_refusal(refused)
    assert_matches("h: Expected a harvest that held nodes to replay, found one that held none", refused.err)
    assert call("report", "h", "-o", "page.html").status == 0
