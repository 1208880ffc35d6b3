"""Every figure that the audit checks can fail: one value of a run is changed, and the audit has to find it."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bftrainer.audit import UnusableError, audit
from tests.replayed import change_cell, change_summary, other, plain_run, saving_run, tuned_run

RUNS = {"plain": plain_run, "tuned": tuned_run, "saving": saving_run}
DECISIONS = (
    *("event", "time", "nodes", "tasks", "before", "after", "objective", "bound", "gap", "stop_reason", "held"),
    *("solver", "solve_s", "decided_by", "model_rows", "model_columns", "backend_s"),
)
TASKS = (
    *("task", "group", "submitted", "started", "completed", "work_done", "work_total", "node_s"),
    *("rescales", "preemptions", "rescale_cost", "preemption_cost"),
)
COLUMNS = {
    "decisions": DECISIONS,
    "tasks": TASKS,
    "allocation": ("time", "node", "task"),
}
SAVING_COLUMNS = COLUMNS | {"tasks": (*TASKS, "saving_cost")}
TUNED_COLUMNS = {
    "decisions": (*DECISIONS, "batch_size", "power_limit_w", "drawn_w", "cap_w"),
    "tasks": (*TASKS, "energy_j", "train_s", "attempts", "batch_size", "power_limit_w", "reached"),
    "allocation": ("time", "node", "task"),
    "power": ("begin", "end", "begin_s", "end_s", "tasks_w", "idle_w", "cap_w"),
    "attempts": (
        *("group", "task", "recurrence", "attempt", "batch_size", "power_limit_w", "energy_j", "train_s", "reached"),
    ),
}
CELLS = [("plain", table, name) for table, names in COLUMNS.items() for name in names]
CELLS += [
    pytest.param("tuned", table, name, marks=[pytest.mark.slow] if name in COLUMNS.get(table, ()) else [])
    for table, names in TUNED_COLUMNS.items()
    for name in names
]
CELLS += [("saving", "tasks", name) for name in ("saving_cost", "preemption_cost", "rescale_cost", "work_done")]
CELLS += [("saving", "decisions", name) for name in ("objective", "after")]
STEPS = (
    *("evtTime", "Thr", "Rate", "ReScost", "evt", "Nleft", "Npre", "Njoin"),
    *("nJob", "nNd", "nJrun", "nNrun", "PreCost"),
)
SAVING_STEPS = (*STEPS, "SaveCost")
# What the audit says it cannot check, and what names files or is a nested table of its own.
NOT_CHECKED = {
    *("command", "versions", "engine", "load_s", "replay_s", "baseline_s", "failures"),
    *("node_log_notes", "node_log_zone", "ledger", "limited_by"),
    *("settings.time_limit_s", "settings.effort", "settings.threads", "settings.prune"),
}
# Settings that say nothing about these runs: solvers not asked.
WITHOUT_EFFECT = {"settings.mip_gap", "settings.fallback", "settings.strict_published"}


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A run of each kind, which nothing is wrong with."""
    runs = {name: made(tmp_path_factory.mktemp(name)) for name, made in RUNS.items()}
    for run in runs.values():
        assert audit(run).failed == []
    return runs


@pytest.fixture
def changed(originals):
    """A copy of a run beside it, to be changed."""
    made = []

    def copy(kind: str) -> Path:
        run = originals[kind].with_name("changed")
        shutil.rmtree(run, ignore_errors=True)
        made.append(shutil.copytree(originals[kind], run))
        return run

    return copy


@pytest.mark.parametrize("kind", RUNS)
def test_all_columns_are_changed_in_turn(originals, kind):
    """No column of these runs is left out of the tests below; the rest says what is left out of the summary."""
    listed = {"plain": COLUMNS, "tuned": TUNED_COLUMNS, "saving": SAVING_COLUMNS}[kind]
    assert {path.stem: tuple(pq.read_schema(path).names) for path in originals[kind].glob("*.parquet")} == listed
    with (originals[kind] / "step-logs.csv").open() as stream:
        assert tuple(next(csv.reader(stream))) == (SAVING_STEPS if kind == "saving" else STEPS)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "table", "column"), CELLS)
def test_a_changed_cell_is_found(changed, kind, table, column):
    """One value of one column of one table."""
    run = changed(kind)
    change_cell(run / f"{table}.parquet", column, other)
    assert audit(run).failed


STEP_CELLS = [("plain", name) for name in STEPS]
STEP_CELLS += [pytest.param("tuned", name, marks=pytest.mark.slow) for name in STEPS]
STEP_CELLS += [("saving", name) for name in ("Thr", "PreCost", "SaveCost")]


@pytest.mark.parametrize(("kind", "column"), STEP_CELLS)
def test_a_changed_step_is_found(changed, kind, column):
    """One value of the step log, far from the first row."""
    run = changed(kind)
    path = run / "step-logs.csv"
    with path.open(newline="") as stream:
        rows = list(csv.reader(stream))
    row, place = rows[6], rows[0].index(column)
    row[place] = "1970-01-01T00:00:01.5Z" if column == "evtTime" else str(float(row[place]) + 1.0)
    with path.open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)
    assert audit(run).failed


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize(("path", "place"), [("decisions", 3), ("tasks", 1), ("allocation", 4), ("steps", 4)])
def test_a_missing_row_is_found(changed, kind, path, place):
    """A row that is gone, of any table."""
    run = changed(kind)
    if path == "steps":
        lines = (run / "step-logs.csv").read_text().splitlines(keepends=True)
        (run / "step-logs.csv").write_text("".join(lines[:place] + lines[place + 1 :]))
    else:
        table = pq.read_table(run / f"{path}.parquet")
        kept = [number for number in range(table.num_rows) if number != place]
        pq.write_table(table.take(kept), run / f"{path}.parquet")
    assert audit(run).failed


def keys(summary: dict, *before: str) -> list[tuple[str, ...]]:
    """Keys of all figures; tables of counts and inputs are one each."""
    found = []
    for name, value in summary.items():
        nested = isinstance(value, dict) and name in ("settings", "below_large_idle", "solvers", "dp", "highs")
        found += keys(value, *before, name) if nested else [(*before, name)]
    return [key for key in found if key[0] != "inputs"]


@pytest.mark.parametrize("kind", ["plain", pytest.param("tuned", marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", range(4))
def test_a_changed_figure_of_the_summary_is_found(originals, changed, kind, part):
    """Each key of the summary: found if it is changed, or among those that the audit says it does not check."""
    summary = json.loads((originals[kind] / "summary.json").read_text())
    left = " ".join(why for each in audit(originals[kind]).parts for why in each.left_out)
    missed = []
    for key in keys(summary)[part::4]:
        name = ".".join(key)
        if name in NOT_CHECKED:
            assert f" {name}" in left
            continue
        run = changed(kind)
        change_summary(run, *key)
        try:
            found = bool(audit(run).failed)
        except UnusableError:
            found = key[0] in ("settings", "schema", "window_start", "window_end")
        if not found and name not in WITHOUT_EFFECT:
            missed.append(name)
    assert missed == []


def test_what_is_not_known_is_said(changed):
    """Columns and keys of other versions are left alone, and named as not checked."""
    run = changed("plain")
    summary = json.loads((run / "summary.json").read_text())
    summary |= {"mood": 1}
    summary["settings"] |= {"magic": True}
    (run / "summary.json").write_text(json.dumps(summary))
    table = pq.read_table(run / "decisions.parquet")
    pq.write_table(table.append_column("extra", table["event"]), run / "decisions.parquet")
    found = audit(run)
    assert found.failed == []
    left = " ".join(why for part in found.unchecked for why in part.left_out)
    assert all(name in left for name in ("mood", "settings.magic", "column extra", "model_rows, model_columns"))


def test_counts_of_who_decided_are_those_of_the_table(changed):
    """Runs tell by decision who settled it, and count that in the summary."""
    run = changed("plain")
    table = pq.read_table(run / "decisions.parquet")
    by = ["search" if number % 2 else "backend" for number in range(table.num_rows)]
    place = table.schema.get_field_index("decided_by")
    pq.write_table(table.set_column(place, "decided_by", [by]), run / "decisions.parquet")
    summary = json.loads((run / "summary.json").read_text())
    summary["decided_by"] = {"search": by.count("search"), "backend": by.count("backend"), "trivial": 0}
    (run / "summary.json").write_text(json.dumps(summary))
    assert audit(run).failed == []
    summary["decided_by"]["search"] += 1
    (run / "summary.json").write_text(json.dumps(summary))
    assert any("decided_by" in problem for part in audit(run).failed for problem in part.problems)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"decided_by": "kept"}, "held, decided by kept"),
        ({"decided_by": "luck"}, "held, decided by luck"),
        ({"decided_by": "backend", "backend_s": None, "model_rows": None, "model_columns": None}, "was not asked"),
        ({"backend_s": 1e6}, "within the backend, of"),
        ({"model_rows": 3, "model_columns": None}, "a model of [3] rows"),
        ({"decided_by": "search", "backend_s": None, "model_rows": 3, "model_columns": 4}, "a model of [3, 4] rows"),
    ],
)
def test_who_decided_agrees_with_what_was_asked(changed, cells, said):
    """Who settled a decision, what it held, the backend's time and the size of its model go together."""
    run = changed("tuned")
    table = pq.read_table(run / "decisions.parquet")
    for column, value in cells.items():
        place, field = table.schema.get_field_index(column), table.schema.field(column)
        values = [value, *table[column].to_pylist()[1:]]
        table = table.set_column(place, field, pa.array(values, field.type))
    pq.write_table(table, run / "decisions.parquet")
    assert any(said in problem for part in audit(run).failed for problem in part.problems)
