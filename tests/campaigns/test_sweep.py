"""Sweeps: one table whatever computes it, nothing twice, and one failure is one failure."""

from __future__ import annotations

import os
import re
import signal

import pyarrow.parquet as pq
import pytest

from bftrainer import run_replay
from bftrainer.campaigns import sweep as module
from bftrainer.campaigns.sweep import DaskEngine, local_engine, run_sweep
from bftrainer.campaigns.sweep_file import read_sweep
from bftrainer.errors import InputError, SettingsError
from bftrainer.nodelogs import write_node_log
from bftrainer.runs import run_inputs
from bftrainer.runs.run_files import read_summary
from bftrainer.spot.generation import generate_trace

TEXT = """schema = 1
[base]
solver = "dp"
baseline = false
max_events = 40
[grid]
Tfwd = [10, 120]
maxJ = [5, 10]
[[point]]
objective = "energy"
[[point]]
Tfwd = 10
maxJ = 5
"""


@pytest.fixture
def spec(tmp_path):
    """Four settings, one that fails, and one of the four again."""
    path = tmp_path / "sweep.toml"
    path.write_text(TEXT)
    return read_sweep(path)


def swept(spec, directory, engine=None, **how):
    """Run a sweep in a directory of its own."""
    return run_sweep(spec, directory, engine or local_engine(1), **how)


def test_the_table_holds_what_runs_found(spec, tmp_path):
    """A row a point, in the order of the file; figures are those of the run alone; a failed one has its reason."""
    result = swept(spec, tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "sweep.parquet").to_pylist()
    assert [row["point"] for row in rows] == list(range(6))
    assert [(row["forward_time_s"], row["max_tasks"]) for row in rows[:4]] == [(10, 5), (10, 10), (120, 5), (120, 10)]
    alone = run_replay(solver="dp", baseline=False, max_events=40, forward_time_s=120, max_tasks=5).summary()
    assert rows[2]["work_done"] == alone["work_done"]
    assert rows[2]["below_large_idle.occupancy"] == alone["below_large_idle"]["occupancy"]
    assert read_summary(tmp_path / "out" / rows[2]["run"])["work_done"] == alone["work_done"]
    assert not [name for name in rows[0] if name.startswith("solve_s") or name in ("wall_s", "load_s")]
    assert [point.point.number for point in result.failures] == [4]
    assert "Expected a tuned task" in rows[4]["error"]
    assert rows[4]["work_done"] is None
    assert all(row["error"] is None and row["work_done"] > 0 for row in rows if row["point"] != 4)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('objective = ["throughput", "no_such_module:x"]', "objective no_such_module:x: Cannot import the module"),
        ('solver = ["dp", "json:Dumps"]', "solver json:Dumps: Expected json to define 'Dumps'"),
        ('fallback = ["cbc", "nope"]', "Expected a known solver or module:callable, got 'nope'"),
        ('policy = ["zeus", "zeuss"]', "Expected a known batch-size policy or module:callable, got 'zeuss'"),
        ('power_policy = ["jit", "jot"]', "Expected a known power-limit policy or module:callable, got 'jot'"),
    ],
)
def test_names_are_looked_up_before_the_first_point(tmp_path, line, fault):
    """Of one point's objective, solver, policy or model that is not there, the file's line is told; nothing is made."""
    (tmp_path / "sweep.toml").write_text(f"schema = 1\n[grid]\n{line}\n")
    with pytest.raises(SettingsError, match=rf"sweep\.toml: line 3: {fault}") as caught:
        swept(read_sweep(tmp_path / "sweep.toml"), tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_equal_points_are_computed_once(spec, tmp_path, monkeypatch):
    """The last point is the first again: five replays make six rows."""
    calls = []
    monkeypatch.setattr(module, "run_replay", lambda **options: calls.append(1) or run_replay(**options))
    result = swept(spec, tmp_path / "out")
    assert len(calls) == 4  # the failing one is refused before it is replayed
    assert result.points[0].figures == result.points[5].figures
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 4


def test_finished_points_are_not_run_again(spec, tmp_path, monkeypatch):
    """What is there stays as it is, to the file; what is missing is computed, and the table is the same."""
    first = swept(spec, tmp_path / "out")
    table = (tmp_path / "out" / "sweep.parquet").read_bytes()
    lost = tmp_path / "out" / "runs" / first.points[1].point.key
    times = {path: path.stat().st_mtime_ns for path in lost.parent.glob("*/summary.json") if path.parent != lost}
    for path in lost.iterdir():
        path.unlink()
    lost.rmdir()
    calls = []
    monkeypatch.setattr(module, "run_replay", lambda **options: calls.append(1) or run_replay(**options))
    again = swept(spec, tmp_path / "out", resume=True)
    assert len(calls) == 1
    assert [point.was_done for point in again.points] == [True, False, True, True, False, True]
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert (tmp_path / "out" / "sweep.parquet").read_bytes() == table


def test_inputs_are_read_once(spec, tmp_path, monkeypatch):
    """A worker reads a log once, however many points it replays."""
    read, original = [], run_inputs.read_node_log
    monkeypatch.setattr(run_inputs, "_read", {})
    monkeypatch.setattr(run_inputs, "read_node_log", lambda *args, **more: read.append(1) or original(*args, **more))
    swept(spec, tmp_path / "out")
    assert read == [1]


def test_a_changed_training_trace_is_another_replay(tmp_path):
    """What a task set names has a part in its runs: after a change of that, none is taken for done."""
    from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path

    tasks = sample_path(SAMPLE_TUNED_TASKS)
    for name in (tasks.name, "zeus-train.csv", "zeus-power.csv"):
        (tmp_path / name).write_bytes((tasks.parent / name).read_bytes())
    path = tmp_path / "sweep.toml"
    path.write_text(f'schema = 1\n[base]\ntasks = "{tasks.name}"\nsolver = "dp"\nbaseline = false\nmax_events = 5\n')
    swept(read_sweep(path), tmp_path / "out")
    assert swept(read_sweep(path), tmp_path / "out", resume=True).points[0].was_done
    with (tmp_path / "zeus-power.csv").open("a") as file:
        file.write("\n")
    again = swept(read_sweep(path), tmp_path / "out", resume=True).points[0]
    assert (again.was_done, again.error) == (False, None)


def test_changed_inputs_are_read_again(tmp_path):
    """A worker that lives on reads a log anew that has changed since its last point."""
    first, second = (generate_trace(0.2, nodes=nodes).log for nodes in (10, 20))
    log, path = tmp_path / "log.parquet", tmp_path / "sweep.toml"
    path.write_text('schema = 1\n[base]\nnode_log = "log.parquet"\nsolver = "dp"\nbaseline = false\nmax_events = 5\n')
    found = []
    for each in (first, second):
        log.unlink(missing_ok=True)
        write_node_log(log, each)
        result = swept(read_sweep(path), tmp_path / "out", resume=True).points[0]
        found.append((result.was_done, result.figures["nodes_total"]))
    assert found == [(False, 10), (False, 20)]


def test_a_task_set_that_cannot_be_read_is_one_failure(tmp_path):
    """The others are computed."""
    (tmp_path / "tasks.toml").write_text("schema = 1\n[[task]]\n")
    path = tmp_path / "sweep.toml"
    path.write_text(TEXT.split("[grid]")[0] + '[[point]]\ntasks = "tasks.toml"\n[[point]]\nmax_tasks = 7\n')
    assert [point.error is None for point in swept(read_sweep(path), tmp_path / "out").points] == [False, True]


def test_a_sweep_of_which_no_point_can_begin_is_refused(tmp_path):
    """Before anything is written, with the fault of the first point."""
    (tmp_path / "log.bin").write_bytes(b"nothing")
    path = tmp_path / "sweep.toml"
    path.write_text('schema = 1\n[base]\nnode_log = "log.bin"\nsolver = "dp"\n[grid]\nmax_tasks = [3, 10]\n')
    with pytest.raises(InputError, match=r"log\.bin:1: Expected"):
        swept(read_sweep(path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_broken_run_is_not_passed_over(spec, tmp_path):
    """A summary that cannot be read stops the sweep, and says what to do."""
    result = swept(spec, tmp_path / "out")
    (tmp_path / "out" / "runs" / result.points[0].point.key / "summary.json").write_text("{")
    with pytest.raises(SettingsError, match="Remove it to have it computed again"):
        swept(spec, tmp_path / "out", resume=True)


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_a_log_that_changes_meanwhile_is_refused(tmp_path, workers):
    """Points that are not done yet fail, in one line: a run is kept under what its files were when the sweep began."""
    write_node_log(tmp_path / "log.parquet", generate_trace(0.5, nodes=30).log)
    path = tmp_path / "sweep.toml"
    grid = f"[grid]\nTfwd = {list(range(5, 25))}\n"
    path.write_text(TEXT.split("[grid]")[0] + f'node_log = "log.parquet"\n{grid}')

    def change(_):
        write_node_log(tmp_path / "log.parquet", generate_trace(0.5, nodes=30, seed=1).log)

    result = run_sweep(read_sweep(path), tmp_path / "out", local_engine(workers), change)
    assert 0 < len(result.failures) < len(result.points)
    log_path = re.escape(str(tmp_path / "log.parquet"))
    said = rf"{log_path}: Expected a (file|log) that stays as it is, got one that changed .*\."
    assert all(re.fullmatch(said, str(point.error)) for point in result.failures)


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_every_engine_gives_the_same_table(spec, tmp_path):
    """One process, two, and a Dask cluster: bit for bit."""
    from distributed import LocalCluster

    swept(spec, tmp_path / "one")
    swept(spec, tmp_path / "two", local_engine(2))
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        swept(spec, tmp_path / "dask", DaskEngine(cluster.scheduler_address))
    tables = {name: (tmp_path / name / "sweep.parquet").read_bytes() for name in ("one", "two", "dask")}
    assert tables["one"] == tables["two"] == tables["dask"]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_killed_worker_costs_nothing_that_was_finished(tmp_path):
    """One of a cluster's two is killed when a point is done: the table is whole, no finished run is touched again."""
    from distributed import LocalCluster

    path = tmp_path / "sweep.toml"
    path.write_text(TEXT.split("[grid]")[0] + "[grid]\nlarge_idle = [1, 2, 3, 4, 5, 6, 7, 8]\n")
    spec = read_sweep(path)
    whole = swept(spec, tmp_path / "whole")
    finished = {}
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        workers = [worker.pid for worker in cluster.workers.values()]

        def kill_one(result):
            summary = tmp_path / "out" / "runs" / result.point.key / "summary.json"
            finished[summary] = summary.stat().st_mtime_ns
            if len(finished) == 2:
                os.kill(workers[0], signal.SIGKILL)

        result = run_sweep(spec, tmp_path / "out", DaskEngine(cluster.scheduler_address), kill_one)
    assert result.table().equals(whole.table())
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
