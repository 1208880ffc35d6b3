"""Traces: how the two tables are joined, what a job finds in them, and what is refused."""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
from dataclasses import replace

import pandas as pd
import pytest

from bftrainer.errors import TrainingTraceError, TuningInputError
from bftrainer.zeus import Job, PowerPoint, TrainingTrace
from bftrainer.zeus.policies.trace import (
    POWER_COLUMNS,
    TRAIN_COLUMNS,
    BatchSizeTrace,
    read_table,
)
from tests.zeus.golden import DATA, frame

JOB = Job("tiny", "net", "sgd", 0.9, 12, 8)
PATHS = (DATA / "tiny_train.csv", DATA / "tiny_power.csv")


@pytest.fixture
def tiny():
    """The traces made by hand."""
    return TrainingTrace(*PATHS)


@pytest.fixture
def frames():
    """The same as frames, to be changed."""
    return [frame(path) for path in PATHS]


def test_what_a_job_finds(tiny):
    """Batch sizes increase, limits decrease, paths stand in file order; the other job raises the highest limit."""
    found = tiny.of(JOB)
    assert list(found.batch_sizes) == [4, 8, 16, 32, 64]
    assert found.max_power_w == tiny.max_power_w == 300
    size = found.at(8)
    assert size.points == (
        PowerPoint(200, 1.0, 80.0),
        PowerPoint(150, 1.1500000000000001, 68.0),
        PowerPoint(100, 1.3, 56.0),
    )
    assert size.profiling_order == size.points[::-1]
    assert size.target_epochs == (10.0, 1.0)
    assert size.max_power_w == 200
    energy, time = size.profiling_epoch
    assert energy == pytest.approx((80.0 + 78.2 + 72.8) / 3, rel=1e-15)
    assert time == pytest.approx((1.0 + 1.15 + 1.3) / 3, rel=1e-15)
    assert size.point(100).energy_per_epoch_j == 1.3 * 56.0
    assert [math.isnan(epochs) for epochs in found.at(32).target_epochs] == [False, False, True]


def test_what_a_trace_lists(tiny):
    """Jobs with both tables, sorted, and the targets of each."""
    assert tiny.jobs == [("other", "net", "sgd"), ("tiny", "net", "sgd")]
    assert tiny.targets("tiny", "net", "sgd") == [0.9]


def test_batch_sizes_without_measured_power(frames):
    """A batch size that was trained and whose power was not measured is none of the job's."""
    train, power = frames
    found = TrainingTrace(train, power[power["batch_size"] != 16]).of(JOB)
    assert list(found.batch_sizes) == [4, 8, 32, 64]
    for size in (16, 17):
        with pytest.raises(TuningInputError, match=f"batch size of the trace with measured power, got {size}"):
            found.at(size)


def test_frames_are_as_good_as_paths(tiny, frames):
    """The same trace from frames, whatever the types of their columns, and the frames stay as they were."""
    train, power = frames
    nullable = [each.convert_dtypes() for each in frames]
    text = [each.astype(object) for each in frames]
    kept = [each.copy() for each in frames]
    for given in (frames, nullable, text):
        assert repr(TrainingTrace(*given).of(JOB)) == repr(tiny.of(JOB))
    for before, after in zip(kept, (train, power), strict=True):
        pd.testing.assert_frame_equal(before, after)


def test_only_rows_of_both_tables_count(frames):
    """A batch size exists only if it stands in both; a limit of a batch size that does not counts for nothing."""
    train, power = frames
    trace = TrainingTrace(train[train.batch_size != 16], power[power.batch_size != 64])
    assert list(trace.of(JOB).batch_sizes) == [4, 8, 32]
    without_other = TrainingTrace(train[train.dataset == "tiny"], power)
    assert without_other.max_power_w == 200


def test_batch_sizes_of_other_targets_are_feasible(frames):
    """A batch size without a run towards the target is one of the job's, and cannot be run."""
    train, power = frames
    train.loc[train.batch_size == 16, "target_metric"] = 0.8
    trace = TrainingTrace(train, power)
    assert trace.targets("tiny", "net", "sgd") == [0.8, 0.9]
    assert list(trace.of(JOB).batch_sizes) == [4, 8, 16, 32, 64]
    with pytest.raises(TuningInputError, match="at batch size 16 aims at the target metric") as refused:
        trace.of(JOB).at(16)
    assert "Closest: 4, 8, 32." in str(refused.value)


def test_more_columns_in_common(frames):
    """Further columns of both tables are joined by; if they tell apart measurements of one batch size, that is said."""
    train, power = (each.assign(gpu="v100") for each in frames)
    both_power = pd.concat([power, power.assign(gpu="a40", average_power=power.average_power * 1.5)])
    assert repr(TrainingTrace(train, both_power).of(JOB)) == repr(TrainingTrace(*frames).of(JOB))
    both_train = pd.concat([train, train.assign(gpu="a40")])
    with pytest.raises(
        TrainingTraceError, match=r"one set of power measurements of other,net,sgd at batch size .*, gpu"
    ):
        TrainingTrace(both_train, both_power)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (Job("tniy", "net", "sgd", 0.9, 12, 8), r"tniy,net,sgd\. Did you mean 'tiny,net,sgd'\?"),
        (Job("tiny", "net", "sgd", 0.91, 12, 8), r"No run of the trace aims at the target metric 0.91. Closest: 0.9\."),
    ],
)
def test_unknown_jobs(tiny, job, message):
    """A job or a target metric that is not there: the closest ones are named."""
    with pytest.raises(TuningInputError, match=message):
        tiny.of(job)


def test_unknown_settings(tiny):
    """A batch size or a power limit that was not measured, and the targets of an unknown job."""
    with pytest.raises(TuningInputError, match=r"with measured power, got 12. Closest: 4, 8, 16\."):
        tiny.of(JOB).at(12)
    with pytest.raises(TuningInputError, match=r"Batch size 8: .* got 175 W. Closest: 100, 150, 200\."):
        tiny.of(JOB).at(8).point(175)
    with pytest.raises(TuningInputError, match="a,b,c"):
        tiny.targets("a", "b", "c")


def test_jobs_that_share_a_trace_are_not_named_for_each_other(tiny):
    """Default and epochs make no other trace, so a message about it names neither."""
    first = tiny.of(JOB)
    second = tiny.of(replace(JOB, default_bs=16, max_epochs=3))
    assert first is second
    assert second.name == "tiny,net,sgd, target 0.9"


def test_nothing_in_common(frames):
    """Tables whose rows don't meet."""
    train, power = frames
    with pytest.raises(
        TrainingTraceError,
        match=r"summary_train and summary_power: .* equal dataset, network, batch_size, optimizer",
    ):
        TrainingTrace(train, power.assign(optimizer="adam"))


@pytest.mark.parametrize(("number", "columns"), [(0, TRAIN_COLUMNS), (1, POWER_COLUMNS)])
def test_missing_columns(frames, number, columns):
    """Each column that is needed."""
    for column in columns:
        tables = list(frames)
        tables[number] = tables[number].drop(columns=column)
        with pytest.raises(TrainingTraceError, match=f"Expected a column '{column}' once"):
            TrainingTrace(*tables)


@pytest.mark.parametrize(
    ("table", "column", "cell", "message"),
    [
        (0, "batch_size", 8.5, "whole number above 0, got '8.5'"),
        (0, "batch_size", "eight", "whole number above 0, got 'eight'"),
        (0, "batch_size", 2.0**64, "whole number above 0, got '1"),
        (0, "target_metric", None, "finite number, got"),
        (0, "target_epoch", -1.0, "count of 1 to 1e30, or nothing if never reached, got '-1.0'"),
        (0, "target_epoch", 0.0, "count of 1 to 1e30, or nothing if never reached, got '0.0'"),
        (0, "dataset", None, "a name, got nothing"),
        (1, "power_limit", 112.5, "whole number above 0, got '112.5'"),
        (1, "time_per_epoch", -1.3, "number above 0, 1e30 at most, got '-1.3'"),
        (1, "time_per_epoch", 0.0, "number above 0, 1e30 at most, got '0.0'"),
        (1, "average_power", math.inf, "number above 0, 1e30 at most, got 'inf'"),
        (1, "average_power", 1e308, "number above 0, 1e30 at most, got '1e+308'"),
        (1, "average_power", math.nan, "number above 0, 1e30 at most, got nothing"),
        (1, "average_power", "", "number above 0, 1e30 at most, got nothing"),
        (1, "network", "", "a name, got nothing"),
    ],
)
def test_cells_that_mean_nothing(frames, table, column, cell, message):
    """Refused with the row, the column, what was expected and what stands there."""
    frames[table] = frames[table].astype(object)
    frames[table].loc[2, column] = cell
    with pytest.raises(TrainingTraceError) as refused:
        TrainingTrace(*frames)
    assert f"row 2, column {column}: Expected a" in str(refused.value)
    assert message in str(refused.value)


def test_a_power_limit_twice(frames):
    """The same limit of the same batch size again, even with the same figures, even if no run meets it."""
    train, power = frames
    with pytest.raises(TrainingTraceError, match=r"row 16: .* found 150 W of batch size 8 again"):
        TrainingTrace(train[train.batch_size != 8], pd.concat([power, power.iloc[[1]]]))


def test_power_of_profiling_is_a_number():
    """Epochs of next to no time are refused, where they would put infinite power before decisions."""
    usual, odd = PowerPoint(250, 2.0, 100.0), PowerPoint(200, 1e-300, 1e200)
    assert BatchSizeTrace(32, (usual,), (3.0,), (usual,)).profiling_epoch == (200.0, 2.0)
    with pytest.raises(TuningInputError, match="Batch size 32: Expected finite power"):
        _ = BatchSizeTrace(32, (odd,), (3.0,), (replace(odd, average_power_w=math.inf),)).profiling_epoch


TEXT = "dataset,value\na,1\n\nb,2.5\n"


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress], ids=["plain", "gz", "bz2", "xz"])
def test_packed_files_read_alike(tmp_path, pack):
    """Plain or packed, told by content rather than name; blank lines and a byte order mark don't count."""
    path = tmp_path / "table.csv"
    path.write_bytes(pack(b"\xef\xbb\xbf" + TEXT.encode()))
    for source in (path, str(path)):
        table = read_table(source, {"dataset": "name", "value": "positive"}, "table")
        assert table["dataset"].tolist() == ["a", "b"]
        assert table["value"].tolist() == [1.0, 2.5]
        assert list(table.index) == [f"{path}:2", f"{path}:4"]


def test_floats_are_correctly_rounded(tmp_path):
    """Digits that a quick parser gets one unit in the last place wrong."""
    digits = ["0.1", "86.86460850784009", "11.276666666666666", "1.1500000000000001", "5e-324"]
    path = tmp_path / "table.csv"
    path.write_text("value\n" + "\n".join(digits) + "\n")
    for columns in ({"value": "positive"}, {}):
        assert read_table(path, columns, "table")["value"].tolist() == [float(each) for each in digits]


@pytest.mark.parametrize("missing", [None, math.nan, pd.NA])
def test_missing_cells_of_frames(missing):
    """All marks for a missing cell are understood in a column of epochs, and refused in one of names."""
    table = pd.DataFrame({"cell": pd.Series(["1", missing], dtype=object)})
    assert math.isnan(read_table(table, {"cell": "epoch"}, "train")["cell"].iloc[1])
    with pytest.raises(TrainingTraceError, match="train, row 1, column cell: Expected a name, got nothing"):
        read_table(table, {"cell": "name"}, "train")


@pytest.mark.parametrize("cell", ["", "x", "nan", "-1", "0", "1_000", "True", "1,5", "1 2"])
def test_cells_that_are_no_number(tmp_path, cell):
    """Refused by file, line and column; so are numbers that do not fit."""
    path = tmp_path / "table.csv"
    path.write_text(f'name,value\na,1\n"b\nc","{cell}"\n')
    with pytest.raises(TrainingTraceError) as refused:
        read_table(path, {"value": "positive"}, "table")
    assert str(refused.value).startswith(f"{path}:4, column value: Expected a number above 0, 1e30 at most, got ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty file"),
        (b"name,valu\na,1\n", "Expected columns value, each once"),
        (b"value\n", "Expected at least one row, found none"),
        (b"name,value\na\n", ":2: Expected 2 values, got 1"),
        (b"name,value\na,1,2\n", ":2: Expected 2 values, got 3"),
        (b"value,value\n1,2\n", "Expected columns value, each once"),
        (b'value\n"1\n', "Expected CSV, got something else"),
        (lzma.compress(TEXT.encode() * 100)[:-20], "damaged"),
        (gzip.compress(TEXT.encode(), mtime=0)[:-5], "damaged"),
        (b"name,value\n\xff\xfe,1\n", "UTF-8"),
    ],
)
def test_malformed_files(tmp_path, content, message):
    """What is cut off, broken or no table is refused in one line that begins with the file's name."""
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(TrainingTraceError) as refused:
        read_table(path, {"value": "positive"}, "table")
    assert str(refused.value).startswith(str(path))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_no_table(tmp_path):
    """A file that is not there, a directory, another object."""
    with pytest.raises(TrainingTraceError, match="No such file"):
        read_table(tmp_path / "none.csv", {}, "table")
    with pytest.raises(TrainingTraceError, match="got a directory"):
        read_table(tmp_path, {}, "table")
    with pytest.raises(TrainingTraceError, match="train: Expected a path or a data frame, got dict"):
        read_table({"value": [1]}, {}, "train")
