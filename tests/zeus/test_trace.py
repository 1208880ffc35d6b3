"""Traces: how the two tables are joined, what a job finds in them, and what is refused."""

import lzma
import math
from dataclasses import replace

import pandas as pd
import pytest

from bftrainer.errors import TuningInputError
from bftrainer.zeus import Group, GroupJob, Job, PowerPoint, TrainingTrace, read_groups
from bftrainer.zeus.policies.trace import POWER_COLUMNS, TRAIN_COLUMNS, BatchSizeTrace, read_table
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
    assert tiny.jobs == [("other", "net", "sgd"), ("tiny", "net", "sgd")]
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
    found = trace.of(JOB)
    assert list(found.batch_sizes) == [4, 8, 32]
    for size in (16, 17):
        with pytest.raises(TuningInputError, match=f"batch size of the trace with measured power, got {size}"):
            found.at(size)
    assert TrainingTrace(train[train.dataset == "tiny"], power).max_power_w == 200
    with pytest.raises(TuningInputError, match=r"summary_power: .* equal dataset, network, batch_size, optimizer"):
        TrainingTrace(train, power.assign(optimizer="adam"))


def test_batch_sizes_of_other_targets_are_feasible(frames):
    """A batch size without a run towards the target is one of the job's, and cannot be run."""
    train, power = frames
    train.loc[train.batch_size == 16, "target_metric"] = 0.8
    trace = TrainingTrace(train, power)
    assert trace.targets("tiny", "net", "sgd") == [0.8, 0.9]
    assert list(trace.of(JOB).batch_sizes) == [4, 8, 16, 32, 64]
    with pytest.raises(TuningInputError, match=r"at batch size 16 aims at the target metric\. Closest: 4, 8, 32\."):
        trace.of(JOB).at(16)


def test_more_columns_in_common(frames):
    """Further columns of both tables are joined by; if they tell apart measurements of one batch size, that is said."""
    train, power = (each.assign(gpu="v100") for each in frames)
    both_power = pd.concat([power, power.assign(gpu="a40", average_power=power.average_power * 1.5)])
    assert repr(TrainingTrace(train, both_power).of(JOB)) == repr(TrainingTrace(*frames).of(JOB))
    both_train = pd.concat([train, train.assign(gpu="a40")])
    with pytest.raises(TuningInputError, match=r"one set of power measurements of other,net,sgd at batch size .*, gpu"):
        TrainingTrace(both_train, both_power)


def test_what_is_unknown(tiny):
    """Jobs, targets, batch sizes and limits that were not measured: the closest ones are named."""
    job = tiny.of(JOB)
    for ask, said in (
        (lambda: tiny.of(replace(JOB, dataset="tniy")), r"tniy,net,sgd\. Did you mean 'tiny,net,sgd'\?"),
        (lambda: tiny.of(replace(JOB, target_metric=0.91)), r"aims at the target metric 0.91. Closest: 0.9\."),
        (lambda: job.at(12), r"with measured power, got 12. Closest: 4, 8, 16\."),
        (lambda: job.at(8).point(175), r"Batch size 8: .* got 175 W. Closest: 100, 150, 200\."),
        (lambda: tiny.targets("a", "b", "c"), "a,b,c"),
    ):
        with pytest.raises(TuningInputError, match=said):
            ask()
    # Default and epochs make no other trace, so a message about it names neither.
    assert tiny.of(replace(JOB, default_bs=16, max_epochs=3)) is job
    assert job.name == "tiny,net,sgd, target 0.9"


@pytest.mark.parametrize(("number", "columns"), [(0, TRAIN_COLUMNS), (1, POWER_COLUMNS)])
def test_missing_columns(frames, number, columns):
    """Each column that is needed."""
    for column in columns:
        tables = list(frames)
        tables[number] = tables[number].drop(columns=column)
        with pytest.raises(TuningInputError, match=f"Expected a column '{column}' once"):
            TrainingTrace(*tables)


@pytest.mark.parametrize(
    ("table", "column", "cell", "message"),
    [
        (0, "batch_size", "eight", "whole number above 0, got 'eight'"),
        (0, "target_metric", None, "finite number, got"),
        (0, "target_epoch", 0.0, "count of 1 to 1e30, or nothing if never reached, got '0.0'"),
        (0, "dataset", None, "a name, got nothing"),
        (1, "power_limit", 112.5, "whole number above 0, got '112.5'"),
        (1, "time_per_epoch", 0.0, "number above 0, 1e30 at most, got '0.0'"),
        (1, "average_power", math.inf, "number above 0, 1e30 at most, got 'inf'"),
        (1, "average_power", math.nan, "number above 0, 1e30 at most, got nothing"),
    ],
)
def test_cells_that_mean_nothing(frames, table, column, cell, message):
    """Refused with the row, the column, what was expected and what stands there."""
    frames[table] = frames[table].astype(object)
    frames[table].loc[2, column] = cell
    with pytest.raises(TuningInputError) as refused:
        TrainingTrace(*frames)
    assert f"row 2, column {column}: Expected a" in str(refused.value)
    assert message in str(refused.value)


def test_a_power_limit_twice(frames):
    """The same limit of the same batch size again, even with the same figures, even if no run meets it."""
    train, power = frames
    with pytest.raises(TuningInputError, match=r"row 16: .* found 150 W of batch size 8 again"):
        TrainingTrace(train[train.batch_size != 8], pd.concat([power, power.iloc[[1]]]))


def test_power_of_profiling_is_a_number():
    """Epochs of next to no time are refused, where they would put infinite power before decisions."""
    usual, odd = PowerPoint(250, 2.0, 100.0), PowerPoint(200, 1e-300, 1e200)
    assert BatchSizeTrace(32, (usual,), (3.0,), (usual,)).profiling_epoch == (200.0, 2.0)
    with pytest.raises(TuningInputError, match="Batch size 32: Expected finite power"):
        _ = BatchSizeTrace(32, (odd,), (3.0,), (replace(odd, average_power_w=math.inf),)).profiling_epoch


def test_floats_are_correctly_rounded(tmp_path):
    """Digits that a quick parser gets one unit in the last place wrong."""
    digits = ["0.1", "86.86460850784009", "11.276666666666666", "1.1500000000000001", "5e-324"]
    path = tmp_path / "table.csv"
    path.write_text("value\n" + "\n".join(digits) + "\n")
    for columns in ({"value": "positive"}, {}):
        table = read_table(str(path), columns, "table")
        assert table["value"].tolist() == [float(each) for each in digits]
        assert list(table.index) == [f"{path}:{line}" for line in range(2, 7)]


# --- groups of overlapping jobs ----------------------------------------------------------------------------------

HEADER = "group,tag,start_time,end_time,dataset,runtime_ratio\n"


def test_groups_are_read(tmp_path):
    """In the order of their first rows; jobs by start, rows of equal start in their order; packed by xz."""
    path = tmp_path / "groups.csv.xz"
    rows = "b,x,5,9,d,1\na,x,3,4,e,2\nb,x,1,2.5,d,0.5\nb,x,5,6,d,3\n"
    path.write_bytes(lzma.compress((HEADER + rows).encode()))
    found = read_groups(path)
    assert list(found) == ["b", "a"]
    assert found["b"] == Group("b", "d", (GroupJob(1.0, 2.5, 0.5), GroupJob(5.0, 9.0, 1.0), GroupJob(5.0, 6.0, 3.0)))
    assert found["a"] == Group("a", "e", (GroupJob(3.0, 4.0, 2.0),))
    assert read_groups(pd.read_csv(path)) == found


def read_values(path):
    """A table whose column `value` is positive."""
    return read_table(path, {"value": "positive"}, "table")


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_values, None, "No such file"),
        (read_values, "", "empty file"),
        (read_values, "name,valu\na,1\n", "Expected columns value, each once"),
        (read_values, "value\n", "Expected at least one row, found none"),
        (read_values, "name,value\na,1,2\n", ":2: Expected 2 values, got 3"),
        (read_values, 'name,value\na,1\n"b\nc",1_0\n', ":3, column value: Expected a number above 0, 1e30 at most"),
        (read_groups, f"{HEADER}a,x,5,4,d,1\n", ":2: Expected end_time >= start_time, got 4.0 < 5.0"),
        (read_groups, f"{HEADER}a,x,nan,4,d,1\n", ":2, column start_time: Expected a finite number, got nothing"),
        (read_groups, f"{HEADER}a,x,1,4,d,0\n", ":2, column runtime_ratio: Expected a number above 0, 1e30 at most"),
        (read_groups, f"{HEADER}a,x,1,4,d,1\na,x,2,4,e,1\n", ":3, column dataset: Expected one dataset a group"),
    ],
)
def test_malformed_files(tmp_path, read, content, message):
    """What is missing, cut off, broken or no table is refused in one line with the file's name, line and column."""
    path = tmp_path / "table.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(TuningInputError) as refused:
        read(path)
    assert str(refused.value).startswith(str(path))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    for source, said in ((tmp_path, "got a directory"), ({"value": [1]}, "Expected a path or a data frame, got dict")):
        with pytest.raises(TuningInputError, match=said):
            read(source)
