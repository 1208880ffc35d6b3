"""Conversion between the forms of node logs and task sets."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import InputError, InvalidTaskError, LogError, OutputError
from bftrainer.nodelogs import read_node_log, write_node_log
from bftrainer.nodelogs.convert import convert, kind_of
from bftrainer.tasksets import read_task_set, write_task_set
from tests.examples import examples
from tests.strategies import node_logs as logs

NODE_LOGS = ["x.parquet", "x.csv", "x.csv.gz", "x.pkl", "x.pkl.gz"]
TASK_SETS = ["t.toml", "t-Jbnd.pkl"]


@pytest.fixture
def log(fixtures):
    """A small node log."""
    return read_node_log(fixtures / "log-pandas2.2-protocol4.pkl")


@pytest.fixture
def tasks(fixtures):
    """A small task set."""
    name = "{}-pandas2.2-protocol5.pkl"
    return read_task_set(fixtures / name.format("bounds"), fixtures / name.format("scalability")).tasks


@pytest.mark.parametrize("source", NODE_LOGS)
@pytest.mark.parametrize("target", NODE_LOGS)
def test_node_logs_both_ways(tmp_path, log, source, target):
    """A node log survives conversion between any two forms."""
    (tmp_path / "b").mkdir()
    write_node_log(tmp_path / source, log)
    done = convert(tmp_path / source, tmp_path / "b" / target)
    back = read_node_log(tmp_path / "b" / target)
    assert (done.summary(), done.warnings) == ("node log of 3 nodes", ())
    assert (back.nodes, back.start_ns, back.end_ns) == (log.nodes, log.start_ns, log.end_ns)
    for name in ("time_ns", "node", "idle"):
        assert np.array_equal(getattr(back, name), getattr(log, name))


@pytest.mark.parametrize("source", TASK_SETS)
@pytest.mark.parametrize("target", TASK_SETS)
def test_task_sets_both_ways(tmp_path, tasks, source, target):
    """A task set survives conversion between any two forms."""
    (tmp_path / "b").mkdir()
    write_task_set(tmp_path / source, tasks)
    assert convert(tmp_path / source, tmp_path / "b" / target).summary() == "task set of 2 tasks"
    assert read_task_set(tmp_path / "b" / target).tasks == tasks


@st.composite
def matrices(draw):
    """Frames of node states in which many rows change nothing."""
    times = sorted(draw(st.sets(st.integers(0, 10**12), min_size=1, max_size=8)))
    states = [draw(st.sampled_from([[0, 0], [1, 0], [1, 1]])) for _ in times]
    index = pd.DatetimeIndex(np.array(times, dtype="M8[ns]") + np.timedelta64(10**18, "ns"))
    return pd.DataFrame(np.array(states, dtype=np.int8), index=index, columns=["a", "b"])


def opened(log):
    """What a replay sees of a log."""
    rows = [(time, joined, left) for time, joined, left in log.rows()]
    return log.nodes, log.start_ns, log.end_ns, rows


@pytest.mark.long
@pytest.mark.parametrize("target", NODE_LOGS)
@examples(30)
@given(frame=matrices())
def test_converting_does_not_change_what_is_skipped(tmp_path_factory, target, frame):
    """Skipping K rows of a matrix, K lines of it that is, and of what it is converted to leaves the same log."""
    folder = tmp_path_factory.mktemp("skip")
    frame.to_pickle(folder / "evt.pkl")
    convert(folder / "evt.pkl", folder / target)
    for count in range(len(frame)):
        frame.iloc[count:].to_pickle(folder / "rest.pkl")
        expected = opened(read_node_log(folder / "rest.pkl"))
        assert opened(read_node_log(folder / "evt.pkl", count)) == expected
        assert opened(read_node_log(folder / target, count)) == expected


@examples(30)
@given(log=logs())
def test_native_logs_skip_the_same_as_matrices(tmp_path_factory, log):
    """Skipping K rows of a native log, wherever its window lies, and of the matrix made of it leaves the same."""
    folder = tmp_path_factory.mktemp("skip")
    for name in NODE_LOGS:
        write_node_log(folder / name, log)
    for count in range(log.row_times_ns().size):
        first, *others = (opened(read_node_log(folder / name, count)) for name in NODE_LOGS)
        assert all(other == first for other in others)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["x.parquet", "x.csv"])
def test_published_log_skips_the_same(tmp_path, published, target):
    """The published log, whose first row leaves no node idle, skips the same rows in every form."""
    source = published / "ndstat-10sdn6-evt.tar.gz"
    convert(source, tmp_path / target)
    one, other = read_node_log(source, 1000), read_node_log(tmp_path / target, 1000)
    assert one.start_ns == other.start_ns
    for name in ("time_ns", "node", "idle"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


def test_what_is_lost_is_said(tmp_path):
    """Fields that the pickled form cannot hold are named."""
    (tmp_path / "t.toml").write_text(
        'schema = 1\n[[task]]\nname = "J0"\nmin_nodes = 1\nmax_nodes = 2\nwork = 3\nuser = "me"\n'
        "submit = 2021-02-10T00:00:00Z\nscaling = {nodes = [0, 2], throughput = [0, 1]}\n"
    )
    done = convert(tmp_path / "t.toml", tmp_path / "t-Jbnd.pkl")
    assert [warning.rsplit(": ", 2)[1] for warning in done.warnings] == ["this form cannot hold user"]


def test_kinds(fixtures):
    """What a file holds is told by its columns; scalability alone is refused."""
    assert kind_of(fixtures / "log-pandas1.1-protocol0.pkl") == "node log"
    assert kind_of(fixtures / "bounds-pandas1.1-protocol0.pkl") == "task set"
    with pytest.raises(InputError, match=r"got scalability: name its bounds"):
        kind_of(fixtures / "scalability-pandas1.1-protocol0.pkl")


def test_unfit_targets(tmp_path, fixtures):
    """A target whose form does not fit what the source holds is refused, and nothing is written."""
    with pytest.raises(OutputError, match=r"x\.toml: Expected a name ending in \.parquet"):
        convert(fixtures / "log-pandas2.2-protocol4.pkl", tmp_path / "x.toml")
    with pytest.raises(OutputError, match=r"x\.parquet: Expected a name ending in \.toml"):
        convert(fixtures / "bounds-pandas2.2-protocol5.pkl", tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("read", "error"), [(read_node_log, LogError), (read_task_set, InvalidTaskError), (kind_of, InputError)]
)
def test_unreadable_sources(tmp_path, read, error):
    """Missing files, folders, empty files and files of no known form are refused in one line."""
    (tmp_path / "empty.csv").touch()
    (tmp_path / "empty.csv.gz").write_bytes(b"\x1f\x8b")
    (tmp_path / "unknown.bin").write_bytes(b"\x00\x01\x02")
    for name, message in (
        ("missing.pkl", r"missing\.pkl: No such file\."),
        ("", r"Expected a file, got a directory\."),
        ("empty.csv", r"empty\.csv: Expected data, got an empty file\."),
        ("empty.csv.gz", r"empty\.csv\.gz: Expected a whole archive, got a damaged one"),
        ("unknown.bin", r"unknown\.bin:?1?: Expected "),
    ):
        if read is kind_of and name == "unknown.bin":  # taken for a table, which is refused when it is read
            continue
        with pytest.raises(error, match=message) as caught:
            read(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_forms_of_the_other_kind(tmp_path, log, tasks):
    """A node log is no task set, and a task set no node log; the message says what was found."""
    write_node_log(tmp_path / "x.parquet", log)
    write_task_set(tmp_path / "t.toml", tasks)
    with pytest.raises(LogError, match=r"t\.toml: Expected a node log .*, got TOML\."):
        read_node_log(tmp_path / "t.toml")
    with pytest.raises(InvalidTaskError, match=r"x\.parquet: Expected a task set .*, got Parquet\."):
        read_task_set(tmp_path / "x.parquet")
