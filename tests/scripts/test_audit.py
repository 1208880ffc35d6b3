"""The audit finds nothing in a right run, and finds each kind of error in a wrong one.

The run in these tests is made by hand: three nodes, 100 s, two tasks. Task A scales 10, 18, 24 work/s and costs
1 s to grow and 2 s to shrink; B scales 15, 20, is submitted at 50 s and is done after 300 work. Forward time 10 s.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib.util
import itertools
import json
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bftrainer.experiment import run_replay, write_run
from bftrainer.traces import read_node_log, write_node_log

SCRIPTS = Path(__file__).parents[2] / "scripts"
START = 1_612_915_200 * 10**9  # 2021-02-10T00:00:00Z
TIME = pa.timestamp("ns", "UTC")

TASKS = """
schema = 1
[[task]]
name = "A"
min_nodes = 1
max_nodes = 3
work = 10000.0
grow_cost_s = 1.0
shrink_cost_s = 2.0
[task.scaling]
nodes = [0, 1, 2, 3]
throughput = [0, 10, 18, 24]
[[task]]
name = "B"
submit = 50
min_nodes = 1
max_nodes = 2
work = 300
[task.scaling]
nodes = [0, 1, 2]
throughput = [0, 15, 20]
"""
CHANGES = [(0, "n1", True), (0, "n2", True), (20, "n3", True), (40, "n1", False)]
# event, seconds, pool, tasks, before, after, value
DECISIONS = [
    (0, 0, 2, "A", [0], [2], 180.0),
    (1, 20, 3, "A", [2], [3], 240.0 - 18 * 1),
    (2, 40, 2, "A", [2], [2], 180.0),  # n1 left: 2 s * 24 work/s lost
    (3, 50, 2, "AB", [2, 0], [1, 1], 100.0 - 18 * 2 + 150),
    (4, 70, 2, "A", [1], [2], 180.0 - 10 * 1),  # B is done after 20 s at 15 work/s
]
MOVES = [
    (0, "n1", "A"),
    (0, "n2", "A"),
    (20, "n3", "A"),
    (40, "n1", None),
    (50, "n3", "B"),
    (70, "n3", None),
    (70, "n3", "A"),
]
# A: 360 + 480 - 18 - 48 + 180 + 200 - 36 + 540 - 10
TOTALS = [
    {"task": "A", "started": 0, "completed": None, "work_done": 1648.0, "work_total": 10000.0, "node_s": 200.0}
    | {"rescales": 3, "preemptions": 1, "rescale_cost": 64.0, "preemption_cost": 48.0},
    {"task": "B", "started": 50, "completed": 70, "work_done": 300.0, "work_total": 300.0, "node_s": 20.0}
    | {"rescales": 0, "preemptions": 0, "rescale_cost": 0.0, "preemption_cost": 0.0},
]
STEPS = """evtTime,Thr,Rate,ReScost,evt,Nleft,Npre,Njoin,nJob,nNd,nJrun,nNrun,PreCost
2021-02-10 00:00:00,0,18,0,0,0,0,2,1,2,1,2,0
2021-02-10 00:00:20,360,24,18,1,0,0,1,1,3,1,3,0
2021-02-10 00:00:40,414,18,0,2,1,1,0,1,2,1,2,48
2021-02-10 00:00:50,180,25,36,3,0,0,0,2,2,2,2,0
2021-02-10 00:01:10,464,18,10,4,0,0,0,1,2,1,2,0
2021-02-10 00:01:40,530,0,0,5,0,0,0,1,2,1,2,0
"""
SETTINGS = {
    "forward_time_s": 10.0,
    "objective": "as-given",
    "startup_cost": "none",
    "decide_on": "all",
    "initial": "solve",
    "first_node": 0,
    "node_count": None,
    "skip_events": 0,
    "scaling": None,
    "max_tasks": 10,
}


def load(name: str):
    """A script as a module; the scripts find their helpers beside them."""
    loader = SourceFileLoader(name, str(SCRIPTS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def audit():
    """The audit script."""
    sys.path.insert(0, str(SCRIPTS))
    yield load("audit")
    sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def model(audit):
    """Its arithmetic."""
    return sys.modules[audit.optimum.__module__]


@pytest.fixture(scope="module")
def inputs(audit):
    """Its readers."""
    return sys.modules[audit.read_node_log.__module__]


def instants(seconds):
    """A column of instants from seconds after the start."""
    return pa.array([None if second is None else START + round(second * 1e9) for second in seconds], TIME)


class Run:
    """The records of the hand-made run, to be changed and written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        keys = ("event", "time", "nodes", "tasks", "before", "after", "objective")
        self.decisions = [dict(zip(keys, row, strict=True)) for row in DECISIONS]
        for row in self.decisions:
            row |= {"tasks": list(row["tasks"]), "bound": row["objective"], "gap": 0.0, "held": "optimal"}
        self.moves, self.totals, self.steps = list(MOVES), [dict(row) for row in TOTALS], STEPS
        self.settings = dict(SETTINGS)
        self.sums = {"work_done": 1948.0, "rescale_loss_work": 64.0, "preemption_loss_work": 48.0, "preemptions": 1}
        self.sums |= {"rescales": 3, "used_node_s": 220.0, "idle_node_s": 220.0, "tasks_total": 2, "tasks_completed": 1}

    def write(self) -> Path:
        """Write inputs and records; returns the run directory."""
        run = self.folder / "run"
        run.mkdir()
        self.write_log(self.folder / "idle.parquet")
        (self.folder / "tasks.toml").write_text(TASKS)
        frame = pa.table({key: [row[key] for row in self.decisions] for key in self.decisions[0] if key != "time"})
        pq.write_table(
            frame.append_column("time", instants(row["time"] for row in self.decisions)), run / "decisions.parquet"
        )
        time, node, task = zip(*self.moves, strict=True)
        pq.write_table(pa.table({"time": instants(time), "node": node, "task": task}), run / "allocation.parquet")
        times = {key: instants(row[key] for row in self.totals) for key in ("started", "completed")}
        columns = {key: [row[key] for row in self.totals] for key in self.totals[0]}
        pq.write_table(pa.table(columns | times), run / "tasks.parquet")
        (run / "step-logs.csv").write_text(self.steps)
        (run / "summary.json").write_text(json.dumps(self.summary()))
        return run

    def write_log(self, path: Path) -> None:
        """Write the node log in the native form."""
        time, node, idle = zip(*CHANGES, strict=True)
        window = ["2021-02-10T00:00:00Z", "2021-02-10T00:01:40Z"]
        meta = {"bftrainer.schema": "1", "bftrainer.provenance": "{}", "bftrainer.window": json.dumps(window)}
        meta["bftrainer.nodes"] = json.dumps(["n1", "n2", "n3"])
        columns = {"time": instants(time), "node": pa.array(node).dictionary_encode(), "idle": idle}
        pq.write_table(pa.table(columns).replace_schema_metadata(meta), path)

    def summary(self) -> dict:
        """What summary.json holds."""
        files = {"node_log": "idle.parquet", "tasks": "tasks.toml"}
        hashes = {
            kind: {"path": name, "sha256": hashlib.sha256((self.folder / name).read_bytes()).hexdigest()}
            for kind, name in files.items()
        }
        window = {"window_start": "2021-02-10T00:00:00Z", "window_end": "2021-02-10T00:01:40Z"}
        counts = {
            "decisions": len(self.decisions),
            "decisions_optimal": len(self.decisions),
            "end_reason": "window_end",
        }
        return {"inputs": {**hashes, "scalability": None}, "settings": self.settings} | window | counts | self.sums


@pytest.fixture
def run(tmp_path):
    """The hand-made run, not yet written."""
    return Run(tmp_path)


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


def some_task(inputs, rate, credit=None, least=1, grow_s=1.0, shrink_s=2.0):
    """A task of those rates."""
    rate = np.array(rate, dtype=float)
    credit = rate if credit is None else np.array(credit, dtype=float)
    return inputs.Task("J", least, rate.size - 1, 100.0, grow_s, shrink_s, 1.0, 0, rate, credit)


def test_optimum_is_that_of_all_allocations(model):
    """On random tables, also with forbidden counts, the dynamic programme finds the best of all allocations."""
    rng = np.random.default_rng(1)
    for _ in range(100):
        tables = [rng.normal(size=rng.integers(2, 5)) for _ in range(3)]
        tables[0][1] = -np.inf
        nodes = int(rng.integers(0, 8))
        every = itertools.product(*(range(table.size) for table in tables))
        best = max(
            sum(table[count] for table, count in zip(tables, counts, strict=True))
            for counts in every
            if sum(counts) <= nodes
        )
        assert model.optimum(tables, nodes) == pytest.approx(best, rel=1e-12)


def test_values_charge_the_rate_before(model, inputs):
    """Growing and shrinking cost the credit held before, counts below the minimum are forbidden."""
    task = some_task(inputs, [0, 10, 18, 24, 28], least=2)
    assert model.values(task, task.rate, 3, 10.0, False).tolist() == [-48.0, -np.inf, 180 - 48.0, 240.0, 280 - 24.0]


def test_values_of_a_start(model, inputs):
    """From nothing, or from less than the minimum, a start is free, or with the full cost pays its own rate."""
    task = some_task(inputs, [0, 10, 18, 24], least=2)
    assert model.values(task, task.rate, 1, 10.0, False).tolist() == [0.0, -np.inf, 180.0, 240.0]
    assert model.values(task, task.rate, 0, 10.0, True).tolist() == [0.0, -np.inf, 162.0, 216.0]


def test_rescale_costs_are_booked_in_throughput(model, inputs):
    """What the objective credits does not matter to the work that a rescaling loses."""
    task = some_task(inputs, [0, 10, 18], credit=[0, 1, 1])
    assert [model.rescale_cost(task, 1, 2, False), model.rescale_cost(task, 2, 1, False)] == [10.0, 36.0]
    assert [model.rescale_cost(task, 0, 2, False), model.rescale_cost(task, 0, 2, True)] == [0.0, 18.0]


def test_losing_several_nodes_costs_once(model, inputs):
    """A preemption costs shrink time at the rate held, whatever the number of nodes lost."""
    account = model.Account(some_task(inputs, [0, 10, 18, 24]), count=3, rate=24.0)
    account.preempt(2)
    assert (account.count, account.preemption_cost, account.preemptions) == (1, 48.0, 1)


def booked(audit, inputs, rows, decisions=(), moves=(), completed=(), **settings):
    """Books of one task of 300 work (10, 18, 24 work/s; 1 s to grow) over 100 s on nodes n1 and n2."""
    time, node, idle = (np.array(column) for column in zip(*rows, strict=True))
    log = inputs.Log(["n1", "n2"], 0, 100 * 10**9, time * 10**9, node, idle)
    task = dataclasses.replace(some_task(inputs, [0, 10, 18, 24]), work=300.0)
    module = sys.modules[audit.Books.__module__]
    moves = [(second * 10**9, node, name) for second, node, name in moves]
    records = module.Records(decisions, moves, {name: second * 10**9 for name, second in completed})
    books = module.Books(log, [task], module.Settings(max_tasks=1, end_ns=log.end_ns, **settings), records)
    books.run()
    return books


def test_a_random_start_costs_a_start_up(audit, inputs):
    """Nodes drawn at the start come without a decision and cost growing at the rate they give."""
    moves = [(0, "n1", "J"), (31, "n1", None)]
    books = booked(audit, inputs, [(0, 0, True)], moves=moves, initial="random", completed=[("J", 31)])
    assert not any(check.problems for check in books.checks)
    assert (books.accounts["J"].rescale_cost, books.accounts["J"].node_s) == (10.0, 31.0)


def test_completions_wait_for_the_next_row_of_the_log(audit, inputs):
    """Deciding on node events only, a task completes at the next row, and what it did beyond its work is clipped."""
    decision = {"event": 0, "time": 0, "tasks": ["J"], "before": [0], "after": [2]}
    rows = [(0, 0, True), (0, 1, True), (20, 1, False)]
    moves = [(0, "n1", "J"), (0, "n2", "J"), (20, "n2", None), (20, "n1", None)]
    books = booked(audit, inputs, rows, [decision], moves, [("J", 20)], decide_on="nodes")
    assert not any(check.problems for check in books.checks)
    assert (books.accounts["J"].progress, books.accounts["J"].preemption_cost) == (300.0, 36.0)


def test_legacy_and_native_logs_are_the_same(inputs, run):
    """The published matrix form and the native transitions give one log; rows and nodes can be left out."""
    run.write_log(run.folder / "idle.parquet")
    times = pd.to_datetime(["2021-02-10 00:00:00", "2021-02-10 00:00:20", "2021-02-10 00:00:40"])
    matrix = pd.DataFrame(np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], np.int8), index=times, columns=["n1", "n2", "n3"])
    matrix.to_pickle(run.folder / "evt.pkl")
    native = inputs.read_node_log(run.folder / "idle.parquet", 1, 1, 2)
    legacy = inputs.read_node_log(run.folder / "evt.pkl", 1, 1, 2)
    assert native.nodes == legacy.nodes == ["n2", "n3"]
    for name in ("time_ns", "node", "idle"):
        assert getattr(native, name).tolist() == getattr(legacy, name).tolist()
    assert (native.time_ns - START).tolist() == [20 * 10**9] * 2


@pytest.mark.parametrize("form", ["x.parquet", "x.csv", "x.csv.gz", "evt.pkl"])
def test_rows_that_change_nothing_are_skipped_in_every_form(inputs, tmp_path, form):
    """Of a log whose first, third and last rows change nothing, K rows are the same ones in every form of file."""
    states = np.array([[0, 0], [1, 0], [1, 0], [0, 1], [0, 1]], np.int8)
    times = pd.Timestamp("2021-02-10") + pd.to_timedelta([0, 10, 20, 30, 40], unit="s")
    pd.DataFrame(states, index=times, columns=["b", "a"]).to_pickle(tmp_path / "evt.pkl")
    log = read_node_log(tmp_path / "evt.pkl")
    write_node_log(tmp_path / form, log)
    for count in range(len(states)):
        read = inputs.read_node_log(tmp_path / form, count, 0, None)
        ours = log.skipped(count)
        assert (read.nodes, read.start_ns, read.end_ns) == (["b", "a"], ours.start_ns, ours.end_ns)
        for name in ("time_ns", "node", "idle"):
            assert getattr(read, name).tolist() == getattr(ours, name).tolist()


def test_a_csv_log_without_metadata(inputs, tmp_path):
    """Without metadata the nodes are those seen, in order of their names, in the window of the times."""
    (tmp_path / "idle.csv").write_text("time,node,idle\n2021-02-10T00:00:01Z,n2,1\n2021-02-10T00:00:02Z,n1,1\n")
    log = inputs.read_node_log(tmp_path / "idle.csv", 0, 0, None)
    assert (log.nodes, log.node.tolist(), log.end_ns - START) == (["n1", "n2"], [1, 0], 2 * 10**9)


def test_legacy_and_csv_tasks_are_the_same(inputs, tmp_path):
    """Bounds and scalability pickles, and a CSV row, give the same task."""
    submit = pd.Timestamp("2021-02-10T00:00:05")
    bounds = {"Tcup": 18.0, "Tcdw": 12.0, "Jmin": 1.0, "Jmax": 4.0, "Pmax": 1e3, "Tsub": submit}
    pd.DataFrame([bounds], index=["J0"]).to_pickle(tmp_path / "Jbnd.pkl")
    pd.DataFrame([{"Ns": [0, 2, 4], "Ps": [0, 6, 8], "Os": [0, 2, 3]}], index=["J0"]).to_pickle(tmp_path / "JNPs.pkl")
    head = "name,submit,min_nodes,max_nodes,work,grow_cost_s,shrink_cost_s,nodes,throughput,credit"
    (tmp_path / "t.csv").write_text(f"{head}\nJ0,5.0,1,4,1000.0,18.0,12.0,0 2 4,0 6 8,0 2 3\n")
    (legacy,) = inputs.read_tasks(tmp_path / "Jbnd.pkl", tmp_path / "JNPs.pkl", None, START)
    (table,) = inputs.read_tasks(tmp_path / "t.csv", None, None, START)
    assert legacy.submit_ns == table.submit_ns == START + 5 * 10**9
    assert legacy.rate.tolist() == table.rate.tolist() == [0, 3, 6, 7, 8]
    assert legacy.credit.tolist() == table.credit.tolist() == [0, 1, 2, 2.5, 3]
    assert (legacy.grow_s, legacy.shrink_s, legacy.work) == (table.grow_s, table.shrink_s, table.work)


def test_tasks_without_scaling_follow_the_law(inputs, tmp_path):
    """A task set without curves is linear, or follows the law that the run was given."""
    (tmp_path / "t.toml").write_text('[[task]]\nname = "J"\nmin_nodes = 1\nmax_nodes = 2\nwork = 1.0\n')
    (linear,) = inputs.read_tasks(tmp_path / "t.toml", None, None, START)
    (amdahl,) = inputs.read_tasks(tmp_path / "t.toml", None, "amdahl:0.5", START)
    assert linear.rate.tolist() == [0, 1, 2]
    assert amdahl.rate.tolist() == [0, 1, pytest.approx(4 / 3)]
