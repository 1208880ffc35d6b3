"""The audit finds nothing in a right run, and finds each kind of error in a wrong one."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bftrainer.audit
from bftrainer.audit import UnusableError, audit
from bftrainer.runs import run_replay, write_run
from tests.audit.handmade import TASKS


def findings(folder: Path) -> dict[str, list[str]]:
    """Problems by claim, of the claims that do not hold."""
    return {part.claim: part.problems for part in audit(folder).failed}


def test_a_right_run_is_clean(run):
    """Every part looks at something or says why not, and none finds anything."""
    found = audit(run.write())
    assert found.failed == []
    assert [part.claim for part in found.parts if not part.looked] == ["what else the run wrote"]


def worse_decision(run):
    """A is kept on two nodes although one each is better."""
    run.decisions[3] |= {"after": [2, 0], "objective": 180.0, "bound": 180.0}


def wrong_value(run):
    """The value forgets the cost of growing."""
    run.decisions[1]["objective"] = 240.0


def wrong_pool(run):
    """A pool larger than the log's."""
    run.decisions[1]["nodes"] = 4


def beyond_maximum(run):
    """More nodes than A can use."""
    run.decisions[2]["after"] = [4]


def low_bound(run):
    """A bound below what was reached."""
    run.decisions[0]["bound"] = 170.0


def stale_count(run):
    """The count from before the node left."""
    run.decisions[2]["before"] = [3]


def missing_task(run):
    """B is forgotten."""
    run.decisions[3] |= {"tasks": ["A"], "before": [2], "after": [2], "objective": 180.0}


def busy_node(run):
    """A keeps a node that has left."""
    run.moves.remove((40, "n1", None))


def lost_move(run):
    """A node is counted but never moved."""
    run.moves.remove((20, "n3", "A"))


def swapped_node(run):
    """A gives up and takes back the node it has while it grows."""
    run.moves[-1:] = [(70, "n3", None), (70, "n2", "A"), (70, "n3", "A")]


def decision_out_of_the_blue(run):
    """A decision when nothing happens."""
    run.decisions[1]["time"] = 25


def skipped_decision(run):
    """Nothing is decided when n3 joins."""
    del run.decisions[1]


def early_completion(run):
    """B is done a second too early."""
    run.totals[1]["completed"] = 69


def wrong_work(run):
    """Work that was never booked."""
    run.totals[0]["work_done"] = 1700.0


def wrong_step(run):
    """A step log without the preemption's cost."""
    run.steps = run.steps.replace("0,414,18", "0,462,18")


def wrong_sum(run):
    """A sum that leaves out the preemption."""
    run.sums["preemption_loss_work"] = 0.0


@pytest.mark.parametrize(
    ("change", "claim"),
    [
        (worse_decision, "decisions proven optimal are optimal, and none is worth more than the best"),
        (wrong_value, "objective values follow from the counts and power limits"),
        (wrong_pool, "the pool holds the nodes that are idle by the log"),
        (low_bound, "nothing possible is worth more than a bound, and gaps follow from the bounds"),
        (stale_count, "tasks come to a decision with the nodes that departures and completions left them"),
        (missing_task, "each decision covers the active tasks, and no others"),
        (busy_node, "nodes move as decided: none migrates, and the lowest-numbered go first"),
        (lost_move, "nodes move as decided: none migrates, and the lowest-numbered go first"),
        (swapped_node, "nodes move as decided: none migrates, and the lowest-numbered go first"),
        (decision_out_of_the_blue, "each event has its row in the step log, and nothing happens between events"),
        (
            skipped_decision,
            "there is a decision at each event that changes the pool or the active tasks, and at no other",
        ),
        (early_completion, "tasks complete exactly when their work is done"),
        (wrong_work, "tasks.parquet holds the figures that the audit computes"),
        (wrong_step, "step-logs.csv holds the figures that the audit computes, event by event"),
        (wrong_sum, "summary.json adds up"),
    ],
)
def test_an_error_is_found(run, change, claim):
    """Each kind of error fails the check that is about it."""
    change(run)
    assert claim in findings(run.write())


def test_counts_beyond_a_bound_are_found(run):
    """A count above the maximum is a finding, not a crash."""
    beyond_maximum(run)
    assert "decisions keep within the pool and each task's bounds" in findings(run.write())


def test_changed_inputs_are_found(run):
    """An input that is not the one of the run any more is found by its checksum."""
    folder = run.write()
    with (run.folder / "tasks.toml").open("a") as stream:
        stream.write("# a comment changes the checksum\n")
    assert list(findings(folder)) == ["inputs are those of the run, by checksum and window"]


def test_unknown_objectives_are_not_checkable(run):
    """An objective of one's own cannot be solved again: said of the parts that need it, all else is still checked."""
    run.settings["objective"] = "mine:credit"
    found = audit(run.write())
    assert found.failed == []
    left = {part.claim: list(part.left_out) for part in found.parts if part.status == "not checkable"}
    assert len(left) == 4
    assert sum("mine:credit" in why and "--objective" in why for reasons in left.values() for why in reasons) == 3


def test_an_objective_of_ones_own_can_be_given(run):
    """With its code the same parts are checked, and a wrong decision is found."""
    run.settings["objective"] = "mine:credit"
    worse_decision(run)
    found = audit(run.write(), lambda task, counts, _: task.spec.credits[counts])
    assert any(part.claim.startswith("decisions proven optimal") for part in found.failed)


def test_an_objective_of_ones_own_that_fails_is_named(run):
    """What the user's code raises is told in one line."""
    run.settings["objective"] = "mine:credit"
    with pytest.raises(UnusableError, match="objective mine:credit: raised ZeroDivisionError"):
        audit(run.write(), lambda *_: 1 / 0)


def test_a_directory_without_a_run_is_not_auditable(tmp_path):
    """It is told, not guessed at."""
    with pytest.raises(UnusableError, match=r"summary\.json"):
        audit(tmp_path)


@pytest.mark.long
def test_nothing_of_ours_is_imported(run):
    """The audit of a run, in a process of its own, loads no other part of the package, and none imports it."""
    folder = run.write()
    code = "import sys; from pathlib import Path; from bftrainer.audit import audit; "
    code += "print(len(audit(Path(sys.argv[1])).failed), *sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    failed, *modules = done.stdout.split()
    ours = {name for name in modules if name.split(".")[0] in ("bftrainer", "solvers")}
    assert failed == "0"
    assert {name for name in ours if "bftrainer.audit" not in name} == {"bftrainer", "bftrainer._version"}
    package = Path(bftrainer.__file__).parent
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(f"{name}.".startswith("bftrainer.audit.") for name in names):
                assert path == package / "cli" / "replay" / "results.py" or path.parent == package / "audit"


@pytest.mark.parametrize("events", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("decide_on", ["all", "nodes"])
def test_runs_that_stop_before_an_event_are_clean(run, tmp_path, events, decide_on):
    """Whatever is due where a run is stopped, a departure or a completion, has not happened in it."""
    run.write()
    inputs = {"node_log": tmp_path / "idle.parquet", "tasks": tmp_path / "tasks.toml"}
    result = run_replay(**inputs, solver="dp", max_events=events, decide_on=decide_on, baseline=False)
    stopped = tmp_path / "stopped"
    stopped.mkdir()
    write_run(result, stopped)
    assert findings(stopped) == {}


@pytest.mark.parametrize("startup_cost", ["none", "full"])
@pytest.mark.parametrize("initial", ["solve", "empty", "random"])
@pytest.mark.parametrize("decide_on", ["all", "nodes"])
def test_an_initial_allocation_need_not_be_the_start(run, tmp_path, decide_on, initial, startup_cost):
    """Where the first task comes after the window's start, the initial allocation does, too."""
    run.write()
    (tmp_path / "late.toml").write_text(TASKS.replace('name = "A"', 'name = "A"\nsubmit = 5'))
    inputs = {"node_log": tmp_path / "idle.parquet", "tasks": tmp_path / "late.toml"}
    chosen = {"decide_on": decide_on, "initial": initial, "startup_cost": startup_cost}
    result = run_replay(**inputs, **chosen, solver="dp", baseline=False)
    assert result.recording.tasks[0].node_s > 0
    late = tmp_path / "late"
    late.mkdir()
    write_run(result, late)
    assert findings(late) == {}
