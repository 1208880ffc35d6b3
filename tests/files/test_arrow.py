"""Columns hold what they are given."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.files.arrow import instants, make_column, texts, to_numpy

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
    column = instants(0, [1.5, None])
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


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int32(), pa.float64()], ids=str)
def test_columns_are_read_as_arrow_does(kind):
    """Whole columns, slices and chunks become the arrays that `to_numpy` of Arrow makes of them."""
    column = pa.array([1, 0, 1, 1]).cast(kind)
    for each in (column, column[1:], column[:0], pa.chunked_array([column, column[1:]]), pa.chunked_array([], kind)):
        expected = each.to_numpy(**{} if isinstance(each, pa.ChunkedArray) else {"zero_copy_only": False})
        assert to_numpy(each).dtype == expected.dtype
        assert to_numpy(each).tolist() == expected.tolist()
