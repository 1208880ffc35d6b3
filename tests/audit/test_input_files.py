"""The audit reads every form of node log and task set on its own, and as the package does."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bftrainer.audit import input_files
from bftrainer.nodelogs import read_node_log, write_node_log
from tests.audit.handmade import START


def test_legacy_and_native_logs_are_the_same(run):
    """The published matrix form and the native transitions give one log; rows and nodes can be left out."""
    run.write_log(run.folder / "idle.parquet")
    times = pd.to_datetime(["2021-02-10 00:00:00", "2021-02-10 00:00:20", "2021-02-10 00:00:40"])
    matrix = pd.DataFrame(np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], np.int8), index=times, columns=["n1", "n2", "n3"])
    matrix.to_pickle(run.folder / "evt.pkl")
    native = input_files.read_log(run.folder / "idle.parquet", 1, 1, 2)
    legacy = input_files.read_log(run.folder / "evt.pkl", 1, 1, 2)
    assert native.nodes == legacy.nodes == ["n2", "n3"]
    for name in ("time_ns", "node", "idle"):
        assert getattr(native, name).tolist() == getattr(legacy, name).tolist()
    assert (native.time_ns - START).tolist() == [20 * 10**9] * 2


@pytest.mark.parametrize("form", ["x.parquet", "x.csv", "x.csv.gz", "evt.pkl"])
def test_rows_that_change_nothing_are_skipped_in_every_form(tmp_path, form):
    """Of a log whose first, third and last rows change nothing, K rows are the same ones in every form of file."""
    states = np.array([[0, 0], [1, 0], [1, 0], [0, 1], [0, 1]], np.int8)
    times = pd.Timestamp("2021-02-10") + pd.to_timedelta([0, 10, 20, 30, 40], unit="s")
    pd.DataFrame(states, index=times, columns=["b", "a"]).to_pickle(tmp_path / "evt.pkl")
    log = read_node_log(tmp_path / "evt.pkl")
    write_node_log(tmp_path / form, log)
    for count in range(len(states)):
        read = input_files.read_log(tmp_path / form, count, 0, None)
        ours = log.skipped(count)
        assert (read.nodes, read.start_ns, read.end_ns) == (["b", "a"], ours.start_ns, ours.end_ns)
        for name in ("time_ns", "node", "idle"):
            assert getattr(read, name).tolist() == getattr(ours, name).tolist()


def test_a_csv_log_without_metadata(tmp_path):
    """Without metadata the nodes are those seen, in order of their names, in the window of the times."""
    (tmp_path / "idle.csv").write_text("time,node,idle\n2021-02-10T00:00:01Z,n2,1\n2021-02-10T00:00:02Z,n1,1\n")
    log = input_files.read_log(tmp_path / "idle.csv", 0, 0, None)
    assert (log.nodes, log.node.tolist(), log.end_ns - START) == (["n1", "n2"], [1, 0], 2 * 10**9)


def test_legacy_and_native_tasks_are_the_same(tmp_path):
    """Bounds and scalability pickles, and TOML, give the same task."""
    submit = pd.Timestamp("2021-02-10T00:00:05")
    bounds = {"Tcup": 18.0, "Tcdw": 12.0, "Jmin": 1.0, "Jmax": 4.0, "Pmax": 1e3, "Tsub": submit}
    pd.DataFrame([bounds], index=["J0"]).to_pickle(tmp_path / "Jbnd.pkl")
    pd.DataFrame([{"Ns": [0, 2, 4], "Ps": [0, 6, 8], "Os": [0, 2, 3]}], index=["J0"]).to_pickle(tmp_path / "JNPs.pkl")
    (tmp_path / "t.toml").write_text(
        '[[task]]\nname = "J0"\nsubmit = 5.0\nmin_nodes = 1\nmax_nodes = 4\nwork = 1000.0\n'
        "grow_cost_s = 18.0\nshrink_cost_s = 12.0\n"
        "scaling = {nodes = [0, 2, 4], throughput = [0, 6, 8], credit = [0, 2, 3]}\n"
    )
    (legacy,) = input_files.read_tasks(tmp_path / "Jbnd.pkl", tmp_path / "JNPs.pkl", None, START)
    (table,) = input_files.read_tasks(tmp_path / "t.toml", None, None, START)
    assert legacy.submit_ns == table.submit_ns == START + 5 * 10**9
    assert legacy.rate.tolist() == table.rate.tolist() == [0, 3, 6, 7, 8]
    assert legacy.credit.tolist() == table.credit.tolist() == [0, 1, 2, 2.5, 3]
    assert (legacy.grow_s, legacy.shrink_s, legacy.work) == (table.grow_s, table.shrink_s, table.work)


def test_tasks_without_scaling_follow_the_law(tmp_path):
    """A task set without curves is linear, or follows the law that the run was given."""
    (tmp_path / "t.toml").write_text('[[task]]\nname = "J"\nmin_nodes = 1\nmax_nodes = 2\nwork = 1.0\n')
    (linear,) = input_files.read_tasks(tmp_path / "t.toml", None, None, START)
    (amdahl,) = input_files.read_tasks(tmp_path / "t.toml", None, "amdahl:0.5", START)
    assert linear.rate.tolist() == [0, 1, 2]
    assert amdahl.rate.tolist() == [0, 1, pytest.approx(4 / 3)]
