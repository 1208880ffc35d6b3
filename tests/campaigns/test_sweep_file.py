"""SWEEP.toml: what points it makes, and what it refuses, with the line."""

from datetime import datetime
from pathlib import Path

import pytest

from bftrainer.campaigns.sweep_file import read_sweep
from bftrainer.errors import SettingsError
from bftrainer.files.opening import SAMPLE_NODE_LOG, SAMPLE_TUNED_TASKS, sample_path


def written(tmp_path, text):
    """A sweep of that text, after its schema."""
    path = tmp_path / "sweep.toml"
    path.write_text(f"schema = 1\n{text}")
    return path


def options(tmp_path, text):
    """The options of all points, as the replay gets them."""
    return [dict(point.options) for point in read_sweep(written(tmp_path, text)).resolve_points()]


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
    assert read_sweep(written(tmp_path, text)).axes == ["max_tasks", "forward_time_s", "seed"]
    assert options(tmp_path, "[base]\nseed = 4\n") == [{"seed": 4}]


def test_windows(tmp_path):
    """Seconds count from the log's start, so that the end is told relative to the begin; times stay times."""
    text = "[grid]\nwindow = [[100, 250], [2021-02-10T06:00:00, 2021-02-10T18:00:00]]\n"
    assert options(tmp_path, text) == [
        {"since": 100, "until": 150},
        {"since": datetime(2021, 2, 10, 6), "until": datetime(2021, 2, 10, 18)},
    ]


def test_the_embedded_tuned_tasks_have_a_name(tmp_path):
    """`sample = "tuned"` stands for their file, wherever it is installed; a point's own tasks take their place."""
    (tmp_path / "a.toml").touch()
    text = '[base]\nsample = "tuned"\n[[point]]\nseed = 1\n[[point]]\nsample = "plain"\n[[point]]\ntasks = "a.toml"\n'
    tuned, plain, own = options(tmp_path, text)
    assert (tuned["tasks"], own["tasks"]) == (str(sample_path(SAMPLE_TUNED_TASKS)), str(tmp_path / "a.toml"))
    assert plain == {}


def test_points_overrule_the_base_whichever_way_they_say_it(tmp_path):
    """A window replaces `since` and `until`, and the other way round."""
    text = "[base]\nwindow = [5, 9]\n[[point]]\nsince = 7\n[[point]]\nseed = 1\n"
    first, second = options(tmp_path, text)
    assert first == {"since": 7}
    assert second == {"since": 5, "until": 4, "seed": 1}


def test_paths_hold_wherever_points_are_computed(tmp_path, monkeypatch):
    """They are absolute, also where the sweep's own is not."""
    written(tmp_path, '[base]\nnode_log = "log"\n')
    (tmp_path / "log").touch()
    monkeypatch.chdir(tmp_path)
    assert dict(read_sweep(Path("sweep.toml")).resolve_points()[0].options) == {"node_log": str(tmp_path / "log")}


def test_keys_are_those_of_the_replay(tmp_path):
    """Equal options and contents have one key, wherever the files lie; other contents have another."""
    content = sample_path(SAMPLE_NODE_LOG).read_bytes()
    for name in ("a", "b"):
        (tmp_path / f"{name}.parquet").write_bytes(content)
    text = '[grid]\nnode_log = ["a.parquet", "b.parquet"]\n[[point]]\nseed = 0\n'
    first, second, third = read_sweep(written(tmp_path, text)).resolve_points()
    assert first.key == second.key != third.key
    before = first.key
    (tmp_path / "a.parquet").write_bytes(content + b"x")
    assert read_sweep(written(tmp_path, text)).resolve_points()[0].key != before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[grid]\nmax_task = [1]\n", "line 3: Expected an option of a replay, got 'max_task'. Did you mean"),
        ("[gird]\n", "line 2: Expected a section of a sweep, got 'gird'. Did you mean 'grid'?"),
        ("[grid]\nmax_tasks = 3\n", "line 3: Expected a list of values of max_tasks, got 3"),
        ('[grid]\nmax_tasks = [1, "many"]\n', "line 3: Expected max_tasks to be whole"),
        ("[base]\nTfwd = 1\nforward_time_s = 2\n", "line 4: Expected each option once"),
        ("[base]\nseed = -1\n", "line 3: Expected seed >= 0, got -1"),
        ("point = 3\n", "line 2: Expected points as [[point]] tables"),
        ("base = 3\n", "line 2: Expected a table [base]"),
        ("[grid]\nwindow = [[1, 2, 3]]\n", "line 3: Expected a window of a begin and an end after it"),
        ("[grid]\nwindow = [[1, 2021-01-01T00:00:00]]\n", "both times or both seconds"),
        ("[base]\nwindow = [5, 1]\n[[point]]\nwindow = [1, 5]\n", "line 3: Expected a window of a begin and an end"),
        ('[base]\nsample = "tune"\n[grid]\nsample = ["plain"]\n', "line 3: Expected sample to be plain or tuned"),
        ("[grid]\nseed = [9223372036854775808]\n", "line 3: Expected seed to be a number of 64 bits"),
        ("[grid]\nsince = [2021-02-10]\n", "line 3: Expected since to be a time"),
        ("[base]\nwindow = [0, 5]\nuntil = 3\n", "window or until"),
        ('[[point]]\nsample = "tuned"\ntasks = "x"\n', "sample or tasks"),
        ("[grid]\nwindow = [[2021-02-10T00:00:00, 2021-02-09T23:00:00-02:00]]\nseed = [-1]\n", "Expected seed >= 0"),
        ('[base]\nnode_log = "a\\u0000b"\n', "Expected text without the character NUL"),
        ("[grid\n", "Expected TOML, got something else"),
        (
            "[grid]\n" + "".join(f"{name} = {list(range(1, 401))}\n" for name in ("seed", "maxJ", "threads", "Tfwd")),
            "at most 100,000 points, got 25,600,000,000",
        ),
    ],
)
def test_bad_files_are_refused(tmp_path, text, said):
    """One line that names the line of the file and, for an unknown option, the closest one."""
    with pytest.raises(SettingsError) as caught:
        read_sweep(written(tmp_path, text))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_are_refused(tmp_path):
    """The sweep itself, or a log that it names."""
    with pytest.raises(SettingsError, match=r"absent\.toml"):
        read_sweep(tmp_path / "absent.toml")
    (tmp_path / "sweep.toml").write_text("schema = 2\n")
    with pytest.raises(SettingsError, match="Expected schema = 1, got 2"):
        read_sweep(tmp_path / "sweep.toml")
    spec = read_sweep(written(tmp_path, '[base]\nnode_log = "absent.parquet"\n'))
    with pytest.raises(SettingsError, match=r"node_log: .*absent\.parquet: No such file"):
        spec.resolve_points()
