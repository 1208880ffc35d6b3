"""The files of a run: what is in them, that equal runs give equal ones, reading them back, and what is refused."""

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer import ReplayConfig, RunResult, run_replay
from bftrainer.errors import OutputError
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.model import NodeLog, columns
from bftrainer.report.comparison import run_names
from bftrainer.report.run_page import write_page
from bftrainer.runs import load_inputs, read_results, write_run
from bftrainer.runs.audit import audit
from bftrainer.runs.run_files import make_column, read_run, read_runs, texts
from tests.finished import write_sample_run
from tests.replayed import written
from tests.scripted import Scripted
from tests.test_determinism import bare
from tests.tiny import write_inputs


@pytest.fixture(scope="module", params=["all", "nodes"])
def run(request, tmp_path_factory) -> tuple[RunResult, Path, NodeLog]:
    """Three hundred events of the sample, its files, and its node log."""
    config = ReplayConfig(solver="dp", max_events=300, decide_on=request.param, max_tasks=6, baseline=False)
    inputs = load_inputs(config)
    result = run_replay(inputs=inputs)
    return result, written(result, tmp_path_factory.mktemp("run") / "out"), inputs.log


def test_nothing_of_a_whole_run_is_unknown(tmp_path):
    """Only what no task of the sample has done so soon is null; inputs have checksums, what computed them versions."""
    place = written(run_replay(solver="dp", max_events=40), tmp_path / "out")
    summary = json.loads((place / "summary.json").read_text())
    optional = {"node_log_zone", "assumed_scaling", "decisions_fallback"}
    unknown = {key for key, value in summary.items() if value is None} - optional
    assert unknown <= {"makespan_s", "turnaround_mean_s", "turnaround_p90_s"}
    assert [len(summary["inputs"][name]["sha256"]) for name in ("node_log", "tasks")] == [64, 64]
    assert {"bftrainer", "numpy", "python"} <= set(summary["versions"])
    assert summary["below_large_idle"]["large_idle"] == 128  # a quarter of the nodes


def test_long_runs_say_the_same(run, tmp_path, monkeypatch):
    """However few rows stay in memory, files and figures are the same, and no row group is large."""
    result, directory, _ = run
    for name, rows in (("CHUNK", 16), ("PART_ROWS", 64), ("PART_ITEMS", 256), ("IN_MEMORY", 100)):
        monkeypatch.setattr(columns, name, rows)
    again = run_replay(config=result.config, scratch=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert len(list(again.recording.timeline.parts())) > 1 < len(list(again.recording.decisions.parts()))
    place = written(again, tmp_path / "again")
    assert (place / "step-logs.csv").read_bytes() == (directory / "step-logs.csv").read_bytes()
    for name in ("decisions", "tasks", "allocation"):
        whole, cut = (pq.ParquetFile(each / f"{name}.parquet") for each in (directory, place))
        some = [column for column in whole.schema_arrow.names if not re.fullmatch("(solve|backend)_s", column)]
        assert cut.read(some).equals(whole.read(some))
        sizes = [cut.metadata.row_group(group).num_rows for group in range(cut.num_row_groups)]
        assert max(sizes) <= 256 + 16 * 10
    assert len(sizes) > 1 == whole.num_row_groups
    assert bare(again.summary()) == bare(result.summary())
    assert pickle.loads(pickle.dumps(again.recording.timeline)) == result.recording.timeline


def test_what_a_solver_does_not_finish_is_recorded(tmp_path):
    """A decision with an incumbent has its gap, one without kept the allocation; numbers unknown are null."""
    write_inputs(tmp_path)
    config = ReplayConfig(node_log=tmp_path / "evt.pkl", tasks=tmp_path / "Jbnd.pkl", solver="dp", baseline=False)
    inputs = load_inputs(config)
    solver = Scripted((2, 0), None, None, None)
    result = run_replay(inputs=replace(inputs, settings=replace(inputs.settings, solver=solver)))
    place = written(result, tmp_path / "out")
    table = pq.read_table(place / "decisions.parquet").to_pydict()
    assert table["held"] == ["incumbent", "kept", "kept", "kept"][: len(table["held"])]
    assert set(table["stop_reason"]) == {"time_limit"}
    assert (table["objective"][:2], table["gap"][1], table["bound"][1]) == ([20.0, None], None, None)
    assert table["after"][1] == table["before"][1] == [2, 0]
    summary = json.loads((place / "summary.json").read_text())
    assert (summary["decisions_optimal"], summary["decisions_incumbent"]) == (0, 1)
    assert summary["decisions_kept"] == len(table["held"]) - 1
    assert summary["gap_max"] == pytest.approx(0.2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A directory with one finished run, never changed."""
    return write_sample_run(tmp_path_factory.mktemp("finished") / "run-itrOut")


def test_columns_are_those_of_the_recording(tmp_path):
    """Times, counts and totals read are those that were recorded."""
    result = run_replay(solver="dp", baseline=False, max_events=200)
    write_run(result, tmp_path)
    run, recording = read_run(tmp_path), result.recording
    assert run.summary == json.loads(json.dumps(result.summary()))
    assert run.steps["time_s"] == pytest.approx([event.time_s for event in recording.events], abs=1e-9)
    assert run.steps["idle"].tolist() == [event.idle for event in recording.events]
    assert run.steps["used"].tolist() == [event.used for event in recording.events]
    assert run.tasks["name"].tolist() == [task.spec.name for task in recording.tasks]
    assert run.tasks["preemptions"].tolist() == [task.preemptions for task in recording.tasks]
    done = [task.completed_s if task.completed_s is not None else np.nan for task in recording.tasks]
    assert run.tasks["completed_s"] == pytest.approx(done, abs=1e-9, nan_ok=True)
    assert run.decisions["solve_s"].tolist() == [each.solve_s for each in recording.decisions]


def test_frames_have_what_was_written(finished, tmp_path):
    """Rows are those that the summary counts, times are times; a string is a path, too; damage is named in one line."""
    frames = read_results(str(finished))
    assert len(frames.events) == frames.summary["events"]
    assert len(frames.decisions) == frames.summary["decisions"]
    assert len(frames.tasks) == frames.summary["tasks_total"]
    assert frames.decisions["time"].dt.tz is not None
    assert {"task", "node"} <= {*frames.allocation.columns}
    copy = damaged(finished, tmp_path, lambda copy: (copy / "tasks.parquet").write_bytes(b"PAR1"))
    with pytest.raises(OutputError, match=r"^[^\n]*tasks\.parquet: [^\n]*$"):
        read_results(copy)


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/t/a/x", "b/x", "c/y"], ("a/x", "b/x", "y")),
        (["/t/a/1/x", "/t/b/1/x", "/t/b/2/x"], ("a/1/x", "b/1/x", "2/x")),
        (["a/x-itrOut", "a/x"], ("x-itrOut", "x")),
        (["a/x", "a/x", "b/x"], ("a/x (1)", "a/x (2)", "b/x")),
        (["a/x", "b/../a/x"], ("x (1)", "x (2)")),
    ],
)
def test_names_tell_runs_apart(paths, names, tmp_path):
    """Directory names with as much before them as it takes, numbers where paths are equal."""
    assert run_names([type(tmp_path)(path) for path in paths]) == names


@pytest.mark.long
def test_the_page_of_a_run_in_memory(tmp_path):
    """A run needs no directory to have its page: the one in memory is the one that its files give."""
    result = run_replay(solver="dp", max_events=60, tasks=sample_path(SAMPLE_TUNED_TASKS), idle_power_w=50.0)
    write_page(read_runs([written(result, tmp_path / "run-itrOut")]), tmp_path / "run.html")
    result.report(tmp_path / "run-itrOut.html")
    assert (tmp_path / "run-itrOut.html").read_bytes() == (tmp_path / "run.html").read_bytes()


def damaged(finished, tmp_path, change):
    """A copy of the run that `change` has been at."""
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    change(copy)
    return copy


def with_summary(**changes):
    """Change fields of the summary, or drop those that are None."""

    def change(copy):
        summary = json.loads((copy / "summary.json").read_text()) | changes
        summary = {key: value for key, value in summary.items() if value is not None}
        (copy / "summary.json").write_text(json.dumps(summary))

    return change


def with_table(name, edit):
    """Edit a table."""
    return lambda copy: pq.write_table(edit(pq.read_table(copy / name)), copy / name)


def with_values(name, column, value):
    """Put one value into all of a column."""

    def fill(table):
        values = pa.array([value] * table.num_rows, table[column].type if value is None else None)
        return table.set_column(table.column_names.index(column), column, values)

    return with_table(name, fill)


def test_wrong_content_is_left_to_the_audit(finished, tmp_path):
    """Events out of order, and other figures, have the form of a run: its page is made, and the audit tells."""

    def change(copy):
        lines = (copy / "step-logs.csv").read_text().splitlines(keepends=True)
        (copy / "step-logs.csv").write_text("".join([lines[0], *lines[2:], lines[1]]))
        with_summary(nodes_total=-5)(copy)

    copy = damaged(finished, tmp_path, change)
    write_page(read_runs([copy]), tmp_path / "page.html")
    found = audit(copy).wrong
    assert any("step-logs.csv row 0 evtTime" in line for line in found)
    assert any("summary.json nodes_total" in line for line in found)


def test_a_start_without_a_zone_is_utc(finished, tmp_path):
    """Times in tables are counted from the summary's start, which is in UTC unless it says otherwise."""
    start = json.loads((finished / "summary.json").read_text())["window_start"]
    copy = damaged(finished, tmp_path, with_summary(window_start=start.removesuffix("Z")))
    assert read_run(copy).steps["time_s"].tolist() == read_run(finished).steps["time_s"].tolist()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda copy: (copy / "summary.json").unlink(), "with a summary.json, found none"),
        (lambda copy: (copy / "summary.json").write_text("{"), "summary of a run in JSON"),
        (lambda copy: (copy / "summary.json").write_text("[1]"), "summary.json: Input should be a valid dictionary"),
        (with_summary(schema=99), "schema: Input should be less than or equal to 1, got 99. A run of another version"),
        (
            with_summary(window_s=None),
            "Missing key 'window_s'. A run of another version is read by that version; or replay it again.",
        ),
        (with_summary(occupancy=float("nan")), "occupancy: Input should be a finite number, got nan."),
        (with_summary(window_start="yesterday"), "window_start, window_end: Expected times"),
        (with_summary(window_s=1e6), "window_end: Expected times (they are not window_s apart, 1e+06 s)"),
        (with_summary(ledger={"useful": 1.0}), "Missing key 'idle_node_s' in ledger."),
        (with_summary(inputs={"node_log": {"path": 3}}), "inputs.node_log"),
        (with_summary(settings={"decide_on": "all", "skip_events": [1]}), "settings.skip_events"),
        (with_summary(makespan_s="x" * 500), "makespan_s: Input should be a valid number, got 'xxx"),
        (with_values("tasks.parquet", "rescales", "many"), "tasks.parquet: Expected this table of a run (Failed to"),
        (with_values("tasks.parquet", "preemptions", None), "Casting field 'preemptions' with null values"),
        (with_values("tasks.parquet", "task", b"\xff"), "tasks.parquet: Expected"),
        (
            with_table("tasks.parquet", lambda table: table.append_column("work_done", table["work_done"])),
            '(Field "work_done" exists 2 times in schema)',
        ),
        (
            with_table("allocation.parquet", lambda table: table.drop_columns(["node"])),
            '(Field "node" does not exist in schema)',
        ),
        (lambda copy: (copy / "tasks.parquet").unlink(), "tasks.parquet: No such file."),
        (lambda copy: (copy / "decisions.parquet").write_bytes(b"PAR1"), "decisions.parquet: Expected a whole Parquet"),
        (lambda copy: (copy / "step-logs.csv").write_text("evtTime,Thr\n"), "does not exist in schema)"),
        (
            lambda copy: (copy / "step-logs.csv").write_text("evtTime\nyesterday\n"),
            "step-logs.csv: Expected this table",
        ),
    ],
)
def test_bad_directories_are_refused(finished, tmp_path, change, said):
    """One line that names the file and what is missing."""
    copy = damaged(finished, tmp_path, change)
    with pytest.raises(OutputError) as caught:
        read_run(copy)
    assert said in str(caught.value)


def test_names_that_are_no_text(finished, tmp_path):
    """A directory may be called anything: its run is shown with escapes, in names as on the page."""
    odd = tmp_path / os.fsdecode(b"run\xff\x1b[2J-itrOut")
    shutil.copytree(finished, odd)
    assert read_run(odd).name == "run\\udcff\\x1b[2J"
    assert run_names([odd, tmp_path / "other" / odd.name])[0].isprintable()
    change = with_summary(command=f"bftrainer-replay {odd}", inputs={"node_log": {"path": str(odd), "sha256": "0"}})
    change(odd)
    write_page(read_runs([odd]), tmp_path / "page.html", force=False)
    assert "\\udcff" in (tmp_path / "page.html").read_text(encoding="utf-8")


INTEGERS = st.integers(-(2**63), 2**63 - 1)


@given(
    st.lists(st.text(max_size=5)),
    st.lists(st.none() | st.floats()),
    st.lists(st.booleans()),
    st.lists(st.none() | INTEGERS),
    st.lists(st.lists(INTEGERS, max_size=4)),
)
def test_values_come_back(words, reals, flags, counts, rows):
    """As they went in, empty and missing ones too; infinities and NaN are null."""
    offsets, flat = np.cumsum([0, *map(len, rows)]), make_column(pa.int64(), [value for row in rows for value in row])
    finite = [value if value is not None and np.isfinite(value) else None for value in reals]
    pairs = [
        (texts(words), words),
        (make_column(pa.float64(), reals), finite),
        (make_column(pa.bool_(), flags), flags),
        (make_column(pa.int64(), counts), counts),
        (pa.ListArray.from_arrays(make_column(pa.int64(), offsets).cast(pa.int32()), flat), rows),
    ]
    for column, expected in pairs:
        column.validate(full=True)
        assert column.to_pylist() == expected


@given(st.lists(st.text(max_size=5), min_size=1), st.data())
def test_chosen_texts(values, data):
    """Indices choose among the strings; a negative one is null."""
    which = data.draw(st.lists(st.integers(-1, len(values) - 1)))
    column = texts(values, np.array(which, dtype=np.int32))
    column.validate(full=True)
    assert column.to_pylist() == [None if index < 0 else values[index] for index in which]


def test_instants_count_from_the_start():
    """1.5 s after 1970 in nanoseconds, UTC; what has not happened is null."""
    column = make_column(pa.timestamp("ns", tz="UTC"), [1.5, None], 0)
    assert column.type == pa.timestamp("ns", tz="UTC")
    assert column.cast(pa.int64()).to_pylist() == [1_500_000_000, None]


def test_a_replay_of_a_parquet_log_imports_no_pandas():
    """Neither reading the log, nor replaying, nor writing the results loads pandas: 0.2 s and 32 MiB."""
    code = """
import pathlib, sys, tempfile
from bftrainer.runs import run_replay, write_run
with tempfile.TemporaryDirectory() as directory:
    write_run(run_replay(solver="dp", max_events=20, baseline=False), pathlib.Path(directory))
sys.exit("pandas" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
