"""The audit finds nothing in a right run, and finds each kind of error in a wrong one."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from bftrainer.experiment import run_replay, write_run
from tests.scripts.conftest import SCRIPTS
from tests.scripts.handmade import TASKS


def findings(audit, folder: Path) -> dict[str, list[str]]:
    """Problems by claim, of the claims that do not hold."""
    return {check.claim: check.problems for check in audit.audit(folder) if check.problems}


def test_a_right_run_is_clean(audit, run, capsys):
    """Every check looks at something, none finds anything, and the exit status is 0."""
    folder = run.write()
    assert findings(audit, folder) == {}
    assert all(check.looked for check in audit.audit(folder))
    assert audit.main([str(folder)]) == 0
    assert "FAIL" not in capsys.readouterr().out


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
    run.moves[-1:] = [(70, "n2", None), (70, "n3", "A"), (70, "n2", "A")]


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
        (worse_decision, "decisions proven optimal are optimal"),
        (wrong_value, "objective values are those of the counts"),
        (wrong_pool, "pools are the idle nodes of the log"),
        (low_bound, "bounds and gaps are sound"),
        (stale_count, "counts before a decision are what departures and completions left"),
        (missing_task, "decisions are about the tasks that are active"),
        (busy_node, "tasks hold idle nodes only, and give up those that leave"),
        (lost_move, "node moves add up to the counts decided"),
        (swapped_node, "a growing task keeps its nodes, a shrinking one takes none"),
        (decision_out_of_the_blue, "decisions and moves fall on events of the run"),
        (skipped_decision, "events that change the pool or the active tasks have a decision"),
        (early_completion, "tasks complete exactly when their work is done"),
        (wrong_work, "tasks.parquet holds what the books give"),
        (wrong_step, "step-logs.csv adds up to the books and agrees with the decisions"),
        (wrong_sum, "summary.json adds up"),
    ],
)
def test_an_error_is_found(audit, run, change, claim):
    """Each kind of error fails the check that is about it."""
    change(run)
    assert claim in findings(audit, run.write())


def test_counts_beyond_a_bound_are_found(audit, run, capsys):
    """A count above the maximum is a finding, not a crash, and the exit status is 1."""
    beyond_maximum(run)
    assert audit.main([str(run.write())]) == 1
    assert "FAIL  decisions keep bounds and pool" in capsys.readouterr().out


def test_changed_inputs_are_found(audit, run):
    """An input that is not the one of the run any more is found by its checksum."""
    folder = run.write()
    with (run.folder / "tasks.toml").open("a") as stream:
        stream.write("# a comment changes the checksum\n")
    assert list(findings(audit, folder)) == ["inputs have the checksums of the run"]


def test_unknown_objectives_skip_the_optimum(audit, run):
    """An objective of one's own cannot be solved again: said in the claim, all else is still checked."""
    run.settings["objective"] = "mine:credit"
    checks = audit.audit(run.write())
    assert not any(check.problems for check in checks)
    assert any("mine:credit is not known" in check.claim for check in checks)


def test_a_directory_without_a_run_is_not_auditable(audit, tmp_path, capsys):
    """One line on stderr and exit status 2."""
    assert audit.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_script_runs_alone(run):
    """Started as a command, it needs nothing of the package: not its directory, not its modules."""
    folder = run.write()
    done = subprocess.run([sys.executable, SCRIPTS / "audit", folder], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for path in (SCRIPTS / "audit", *SCRIPTS.glob("_audit_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"bftrainer", "solvers"}


@pytest.mark.parametrize("events", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("decide_on", ["all", "nodes"])
def test_runs_that_stop_before_an_event_are_clean(audit, run, tmp_path, events, decide_on):
    """Whatever is due where a run is stopped, a departure or a completion, has not happened in it."""
    run.write()
    inputs = {"node_log": tmp_path / "idle.parquet", "tasks": tmp_path / "tasks.toml"}
    result = run_replay(**inputs, solver="dp", max_events=events, decide_on=decide_on, baseline=False)
    stopped = tmp_path / "stopped"
    stopped.mkdir()
    write_run(result, stopped)
    assert findings(audit, stopped) == {}


@pytest.mark.parametrize("startup_cost", ["none", "full"])
@pytest.mark.parametrize("initial", ["solve", "empty", "random"])
@pytest.mark.parametrize("decide_on", ["all", "nodes"])
def test_an_initial_allocation_need_not_be_the_start(audit, run, tmp_path, decide_on, initial, startup_cost):
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
    assert findings(audit, late) == {}
