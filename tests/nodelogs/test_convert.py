"""Conversion between the forms of node logs and task sets."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import InvalidTaskError, LogError, OutputError
from bftrainer.nodelogs import read_node_log, write_node_log
from bftrainer.tasksets import read_task_set, write_task_set
from tests.examples import examples
from tests.strategies import node_logs

NODE_LOGS = ["x.parquet", "x.csv", "x.csv.gz"]


@st.composite
def matrices(draw):
    """Frames of node states in which many rows change nothing."""
    times = sorted(draw(st.sets(st.integers(0, 10**12), min_size=1, max_size=8)))
    states = [draw(st.sampled_from([[0, 0], [1, 0], [1, 1]])) for _ in times]
    index = pd.DatetimeIndex(np.array(times, dtype="M8[ns]") + np.timedelta64(10**18, "ns"))
    return pd.DataFrame(np.array(states, dtype=np.int8), index=index, columns=["a", "b"])


def opened(log):
    """What a replay sees of a log."""
    return log.nodes, log.start_ns, log.end_ns, list(log.rows())


@examples(60)
@given(frame=matrices())
def test_rows_of_a_matrix_are_skipped(tmp_path_factory, frame):
    """Skipping K rows of a matrix, K lines of it that is, leaves the log of the others."""
    folder = tmp_path_factory.mktemp("skip")
    frame.to_pickle(folder / "evt.pkl")
    for count in range(len(frame)):
        frame.iloc[count:].to_pickle(folder / "rest.pkl")
        assert opened(read_node_log(folder / "evt.pkl", count)) == opened(read_node_log(folder / "rest.pkl"))


@examples(60)
@given(log=node_logs(), source=st.sampled_from(NODE_LOGS), target=st.sampled_from(NODE_LOGS))
def test_node_logs_both_ways(tmp_path_factory, log, source, target):
    """Of any log and what it is converted to, between any two forms, skipping K rows leaves the same."""
    source, folder = tmp_path_factory.mktemp("one") / source, tmp_path_factory.mktemp("two")
    write_node_log(source, log)
    write_node_log(folder / target, read_node_log(source))
    for count in range(log.row_times_ns().size):
        one, other = (opened(read_node_log(path, count)) for path in (source, folder / target))
        assert one == other


def test_task_sets_both_ways(tmp_path, fixtures):
    """A task set survives conversion between its two forms; fields that the pickled one cannot hold are named."""
    name = "{}-pandas2.2-protocol5.pkl"
    tasks = read_task_set(fixtures / name.format("bounds"), fixtures / name.format("scalability")).tasks
    write_task_set(tmp_path / "t.toml", [replace(task, user="me") for task in tasks])
    lost = write_task_set(tmp_path / "t-Jbnd.pkl", read_task_set(tmp_path / "t.toml").tasks)
    assert [line.rsplit(": ", 2)[1] for line in lost] == ["this form cannot hold user"]
    assert read_task_set(tmp_path / "t-Jbnd.pkl").tasks == tasks


def test_unfit_targets(tmp_path, fixtures):
    """A target whose form does not fit what the source holds is refused, and nothing is written."""
    with pytest.raises(OutputError, match=r"x\.toml: Expected a name ending in \.parquet"):
        write_node_log(tmp_path / "x.toml", read_node_log(fixtures / "log-pandas2.2-protocol4.pkl"))
    with pytest.raises(OutputError, match=r"x\.parquet: Expected a name ending in \.toml"):
        write_task_set(tmp_path / "x.parquet", read_task_set(fixtures / "bounds-pandas2.2-protocol5.pkl").tasks)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("read", "error"), [(read_node_log, LogError), (read_task_set, InvalidTaskError)])
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
        with pytest.raises(error, match=message):
            read(tmp_path / name)


def test_forms_of_the_other_kind(tmp_path, fixtures):
    """A node log is no task set, and a task set no node log; the message says what was found."""
    write_node_log(tmp_path / "x.parquet", read_node_log(fixtures / "log-pandas2.2-protocol4.pkl"))
    (tmp_path / "t.toml").write_text("schema = 1\n")
    with pytest.raises(LogError, match=r"t\.toml: Expected a node log .*, got \.toml\."):
        read_node_log(tmp_path / "t.toml")
    with pytest.raises(InvalidTaskError, match=r"x\.parquet: Expected a task set .*, got \.parquet\."):
        read_task_set(tmp_path / "x.parquet")
