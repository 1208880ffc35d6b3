"""SWEEP.toml: what points it makes, and what it refuses, with the line."""

from __future__ import annotations

from datetime import datetime

import pytest

from bftrainer.errors import SweepError
from bftrainer.experiment.sample import SAMPLE_NODE_LOG, sample_path
from bftrainer.experiment.sweep_file import read_sweep


def written(tmp_path, text):
    """A sweep of that text, after its schema."""
    path = tmp_path / "sweep.toml"
    path.write_text(f"schema = 1\n{text}")
    return path


def options(tmp_path, text):
    """The options of all points, as the replay gets them."""
    spec = read_sweep(written(tmp_path, text))
    return [dict(point.options) for point in spec.resolved({seed: tmp_path / f"{seed}" for seed in spec.trace_seeds})]


def test_grids_are_products(tmp_path):
    """Every combination, the last option fastest, over the base; the published names mean the same."""
    text = '[base]\nsolver = "dp"\n[grid]\nTfwd = [10, 20.5]\nmax_tasks = [5, 6]\n'
    assert options(tmp_path, text) == [
        {"solver": "dp", "forward_time_s": forward_s, "max_tasks": most} for forward_s in (10, 20.5) for most in (5, 6)
    ]


def test_points_are_listed(tmp_path):
    """Points follow the grid; what one of them does not say is the base's; without either there is one point."""
    text = "[grid]\nmaxJ = [5]\n[[point]]\nTfwd = 20\n[[point]]\nseed = 3\n"
    assert options(tmp_path, text) == [{"max_tasks": 5}, {"forward_time_s": 20}, {"seed": 3}]
    assert read_sweep(written(tmp_path, text)).varied == ("max_tasks", "forward_time_s", "seed")
    assert options(tmp_path, "[base]\nseed = 4\n") == [{"seed": 4}]


def test_windows(tmp_path):
    """Seconds count from the log's start, so that the end is told relative to the begin; times stay times."""
    text = "[grid]\nwindow = [[100, 250], [2021-02-10T06:00:00, 2021-02-10T18:00:00]]\n"
    assert options(tmp_path, text) == [
        {"since": 100, "until": 150},
        {"since": datetime(2021, 2, 10, 6), "until": datetime(2021, 2, 10, 18)},
    ]


def test_generated_traces(tmp_path):
    """A seed stands for the log generated with it."""
    for seed in ("3", "4"):
        (tmp_path / seed).touch()
    text = "[grid]\ntrace_seed = [3, 4]\n[generate]\ndays = 1\nnodes = 10\n"
    assert options(tmp_path, text) == [{"node_log": str(tmp_path / "3")}, {"node_log": str(tmp_path / "4")}]


def test_keys_are_those_of_the_replay(tmp_path):
    """Equal options and contents have one key, wherever the files lie; other contents have another."""
    content = sample_path(SAMPLE_NODE_LOG).read_bytes()
    for name in ("a", "b"):
        (tmp_path / f"{name}.parquet").write_bytes(content)
    text = '[grid]\nnode_log = ["a.parquet", "b.parquet"]\n[[point]]\nseed = 0\n'
    first, second, third = read_sweep(written(tmp_path, text)).resolved({})
    assert first.key == second.key != third.key
    before = first.key
    (tmp_path / "a.parquet").write_bytes(content + b"x")
    assert read_sweep(written(tmp_path, text)).resolved({})[0].key != before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[grid]\nmax_task = [1]\n", "line 3: Expected an option of a replay, got 'max_task'. Did you mean"),
        ("[gird]\n", "line 2: Expected a section of a sweep, got 'gird'. Did you mean 'grid'?"),
        ("[grid]\nmax_tasks = 3\n", "line 3: Expected a list of values of max_tasks, got 3"),
        ("[grid]\nmax_tasks = []\n", "Expected a list of values"),
        ('[grid]\nmax_tasks = [1, "many"]\n', "line 3: max_tasks: Input should be a valid integer"),
        ("[base]\nTfwd = 1\nforward_time_s = 2\n", "line 4: Expected each option once"),
        ("[base]\nseed = -1\n", "line 3: Expected seed >= 0, got -1"),
        ("[[point]]\nseed = 1\n[[point]]\nfirst_node = -2\n", "line 5: Expected first_node >= 0"),
        ("point = 3\n", "line 2: Expected points as [[point]] tables"),
        ("base = 3\n", "line 2: Expected a table [base]"),
        ("[grid]\nwindow = [[1, 2, 3]]\n", "line 3: Expected a window of a begin and an end"),
        ("[grid]\nwindow = [[2, 1]]\n", "Expected a begin before its end"),
        ("[grid]\nwindow = [[1, 2021-01-01T00:00:00]]\n", "both times or both seconds"),
        ("[grid]\ntrace_seed = [1]\n", "line 3: Expected a section [generate]"),
        ('[grid]\ntrace_seed = ["x"]\n[generate]\ndays = 1\n', "Expected a seed"),
        ("[generate]\nnodes = 3\n", "line 2: Expected days"),
        ("[generate]\ndays = 1\nnode = 3\n", "line 4: Expected an option of a generated trace, got 'node'."),
        ("[generate]\ndays = -1\n", "line 2: Expected 0 < days"),
        ("[grid\n", "Expected TOML, got something else"),
        (f"[grid]\nseed = {list(range(400))}\nmaxJ = {list(range(1, 401))}\n", "at most 100,000 points, got 160,000"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, said):
    """One line that names the line of the file and, for an unknown option, the closest one."""
    with pytest.raises(SweepError) as caught:
        read_sweep(written(tmp_path, text))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_are_refused(tmp_path):
    """The sweep itself, or a log that it names."""
    with pytest.raises(SweepError, match=r"absent\.toml"):
        read_sweep(tmp_path / "absent.toml")
    (tmp_path / "sweep.toml").write_text("schema = 2\n")
    with pytest.raises(SweepError, match="Expected schema = 1, got 2"):
        read_sweep(tmp_path / "sweep.toml")
    spec = read_sweep(written(tmp_path, '[base]\nnode_log = "absent.parquet"\n'))
    with pytest.raises(SweepError, match=r"node_log: .*absent\.parquet: No such file"):
        spec.resolved({})
