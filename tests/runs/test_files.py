"""The files of a run: what is in them, that they agree with one another, and that two equal runs give equal ones."""

from __future__ import annotations

import csv
import json
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bftrainer import ReplayConfig, RunResult, run_replay
from bftrainer.model import NodeLog, TaskSpec, columns
from bftrainer.runs import load_inputs, write_run
from tests.scripted import Scripted
from tests.tiny import write_inputs

NS = 1_000_000_000
TIME = pa.timestamp("ns", tz="UTC")
SUMMARY = (
    "schema partial command versions inputs seed solver objective forward_time_s max_tasks window_start window_end "
    "window_s nodes_total events decisions idle_node_s eq_nodes used_node_s occupancy work_done rescale_loss_work "
    "rescale_loss_share preemption_loss_work preemption_loss_share efficiency efficiency_horizon_s "
    "loss_variability_share loss_horizon_share return_on_investment tasks_total tasks_started tasks_completed "
    "makespan_s turnaround_mean_s turnaround_p90_s wait_mean_s preemptions rescales decisions_optimal "
    "decisions_incumbent decisions_kept gap_max decided_by backend_asked backend_s solve_s_median solve_s_p95 "
    "solve_s_max load_s replay_s baseline_s wall_s"
)
WALL_CLOCK = ("load_s", "replay_s", "baseline_s", "wall_s", "backend_s")


def write(result: RunResult, directory: Path) -> Path:
    """Write a run's files into a new directory."""
    directory.mkdir()
    write_run(result, directory)
    return directory


def steady(value: Any) -> Any:
    """A summary without its wall-clock fields, at every depth."""
    if isinstance(value, dict):
        return {
            key: steady(part)
            for key, part in value.items()
            if key not in WALL_CLOCK and not key.startswith("solve_s") and key != "solve_wall_share"
        }
    return value


@pytest.fixture(scope="module", params=["all", "nodes"])
def run(request, tmp_path_factory) -> tuple[RunResult, Path, NodeLog]:
    """Three hundred events of the sample, its files, and its node log."""
    config = ReplayConfig(solver="dp", max_events=300, decide_on=request.param, max_tasks=6, baseline=False)
    inputs = load_inputs(config)
    result = run_replay(inputs=inputs)
    return result, write(result, tmp_path_factory.mktemp("run") / "out"), inputs.log


def crowd() -> tuple[TaskSpec, ...]:
    """The sample's first tasks, all submitted at once, so that a random start has something to draw."""
    tasks = load_inputs(ReplayConfig(solver="dp")).tasks[:6]
    return tuple(replace(task, submit_s=0.0, submit_ns=None) for task in tasks)


def test_the_seed_matters_to_a_random_start_alone(tmp_path):
    """Another seed gives another random allocation, and the same decisions where nothing is random."""
    files = {}
    for initial in ("solve", "random"):
        for seed in (1, 2):
            options = {"tasks": crowd(), "initial": initial, "seed": seed}
            result = run_replay(solver="dp", max_events=30, baseline=False, **options)
            place = write(result, tmp_path / f"{initial}{seed}")
            files[initial, seed] = (place / "allocation.parquet").read_bytes()
    assert files["solve", 1] == files["solve", 2]
    assert files["random", 1] != files["random", 2]


def test_summary_has_all_keys(tmp_path):
    """Each figure of the specification is there, in its order, and only optional ones are null."""
    result = run_replay(solver="dp", max_events=40)
    summary = json.loads((write(result, tmp_path / "out") / "summary.json").read_text())
    assert " ".join(key for key in summary if key in SUMMARY.split()) == SUMMARY
    assert summary["schema"] == 1
    assert summary["partial"] is False
    unknown = {key for key in SUMMARY.split() if summary[key] is None}
    assert unknown <= {"makespan_s", "turnaround_mean_s", "turnaround_p90_s"}, "no task of the sample is done so soon"
    for name in ("node_log", "tasks"):
        assert len(summary["inputs"][name]["sha256"]) == 64
    assert {"bftrainer", "numpy", "python"} <= set(summary["versions"])


def test_long_runs_say_the_same(run, tmp_path, monkeypatch):
    """However few rows stay in memory, files and figures are the same, and no row group is large."""
    result, directory, _ = run
    for name, rows in (("CHUNK", 16), ("PART_ROWS", 64), ("PART_ITEMS", 256), ("IN_MEMORY", 100)):
        monkeypatch.setattr(columns, name, rows)
    again = run_replay(config=result.config, scratch=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert len(list(again.recording.timeline.parts())) > 1 < len(list(again.recording.decisions.parts()))
    place = write(again, tmp_path / "again")
    assert (place / "step-logs.csv").read_bytes() == (directory / "step-logs.csv").read_bytes()
    for name in ("decisions", "tasks", "allocation"):
        whole, cut = (pq.ParquetFile(each / f"{name}.parquet") for each in (directory, place))
        some = [column for column in whole.schema_arrow.names if not re.fullmatch("(solve|backend)_s", column)]
        assert cut.read(some).equals(whole.read(some))
        sizes = [cut.metadata.row_group(group).num_rows for group in range(cut.num_row_groups)]
        assert max(sizes) <= 256 + 16 * 10
    assert len(sizes) > 1 == whole.num_row_groups
    assert steady(again.summary()) == steady(result.summary())
    assert pickle.loads(pickle.dumps(again.recording.timeline)) == result.recording.timeline


def test_step_log_columns(run):
    """The published columns, in the published order; one row per event."""
    with (run[1] / "step-logs.csv").open() as file:
        rows = list(csv.reader(file))
    assert ",".join(rows[0]) == "evtTime,Thr,Rate,ReScost,evt,Nleft,Npre,Njoin,nJob,nNd,nJrun,nNrun,PreCost"
    assert [int(row[4]) for row in rows[1:]] == list(range(300))


def test_parquet_schemas(run):
    """Times are timestamp[ns, UTC], durations and work float64, names strings, counts integers."""
    names, numbers, counts = pa.string(), pa.float64(), pa.int64()
    expected = {
        "decisions": {
            "event": counts, "time": TIME, "nodes": counts, "tasks": pa.list_(names), "before": pa.list_(counts),
            "after": pa.list_(counts), "objective": numbers, "bound": numbers, "gap": numbers, "stop_reason": names,
            "held": names, "solver": names, "solve_s": numbers, "decided_by": names, "model_rows": counts,
            "model_columns": counts, "backend_s": numbers,
        },
        "tasks": {
            "task": names, "group": names, "submitted": TIME, "started": TIME, "completed": TIME, "work_done": numbers,
            "work_total": numbers, "node_s": numbers, "rescales": counts, "preemptions": counts,
            "rescale_cost": numbers, "preemption_cost": numbers,
        },
        "allocation": {"time": TIME, "node": names, "task": names},
    }  # fmt: skip
    for name, kinds in expected.items():
        schema = pq.read_schema(run[1] / f"{name}.parquet")
        assert list(schema.names) == list(kinds)
        assert [field.type.equals(kinds[field.name]) for field in schema] == [True] * len(kinds), schema


def test_what_a_solver_does_not_finish_is_recorded(tmp_path):
    """A decision with an incumbent has its gap, one without kept the allocation; numbers unknown are null."""
    write_inputs(tmp_path)
    config = ReplayConfig(node_log=tmp_path / "evt.pkl", tasks=tmp_path / "Jbnd.pkl", solver="dp", baseline=False)
    inputs = load_inputs(config)
    solver = Scripted((2, 0), None, None, None)
    result = run_replay(inputs=replace(inputs, settings=replace(inputs.settings, solver=solver)))
    place = write(result, tmp_path / "out")
    table = pq.read_table(place / "decisions.parquet").to_pydict()
    assert table["held"] == ["incumbent", "kept", "kept", "kept"][: len(table["held"])]
    assert set(table["stop_reason"]) == {"time_limit"}
    assert (table["objective"][:2], table["gap"][1], table["bound"][1]) == ([20.0, None], None, None)
    assert table["after"][1] == table["before"][1] == [2, 0]
    summary = json.loads((place / "summary.json").read_text())
    assert (summary["decisions_optimal"], summary["decisions_incumbent"]) == (0, 1)
    assert summary["decisions_kept"] == len(table["held"]) - 1
    assert summary["gap_max"] == pytest.approx(0.2)
