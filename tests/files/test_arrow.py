"""Columns hold what they are given."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.files.arrow import instants, lists, make_column, texts, to_numpy


@given(st.lists(st.text(max_size=5)))
def test_texts_come_back(values):
    """Any strings, also none at all and empty ones, come back as they went in."""
    column = texts(values)
    column.validate(full=True)
    assert column.type == pa.string()
    assert column.to_pylist() == values


@given(st.lists(st.text(max_size=5), min_size=1), st.data())
def test_chosen_texts(values, data):
    """Indices choose among the strings; a negative one is null."""
    which = data.draw(st.lists(st.integers(-1, len(values) - 1)))
    column = texts(values, np.array(which, dtype=np.int32))
    column.validate(full=True)
    assert column.to_pylist() == [None if index < 0 else values[index] for index in which]


@given(st.lists(st.none() | st.floats()))
def test_reals_are_finite_or_null(values):
    """None, infinities and NaN are null."""
    column = make_column(pa.float64(), values)
    column.validate(full=True)
    assert column.to_pylist() == [value if value is not None and np.isfinite(value) else None for value in values]


@given(st.lists(st.booleans()))
def test_booleans_come_back(values):
    """Booleans come back as they went in, however many of them share a byte."""
    column = make_column(pa.bool_(), values)
    column.validate(full=True)
    assert column.type == pa.bool_()
    assert column.to_pylist() == values


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_missing_integers_are_null(values):
    """None is null among integers, the others come back."""
    column = make_column(pa.int64(), values)
    column.validate(full=True)
    assert column.to_pylist() == values


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4)))
def test_lists_are_cut_where_they_were(rows):
    """Lists of integers come back, empty ones too."""
    column = lists(np.cumsum([0, *map(len, rows)]), make_column(pa.int64(), [value for row in rows for value in row]))
    column.validate(full=True)
    assert column.to_pylist() == rows


def test_instants_count_from_the_start():
    """1.5 s after 1970 in nanoseconds, UTC; what has not happened is null."""
    column = instants(0, [1.5, None])
    column.validate(full=True)
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
@pytest.mark.parametrize("values", [[], [1, 0, 1, 1]], ids=["empty", "filled"])
def test_columns_are_read_as_arrow_does(kind, values):
    """Whole columns, slices and chunks become the arrays that `to_numpy` of Arrow makes of them."""
    column = pa.array(values).cast(kind)
    for each in (column, column[1:], pa.chunked_array([column, column[1:]]), pa.chunked_array([], kind)):
        expected = each.to_numpy(**{} if isinstance(each, pa.ChunkedArray) else {"zero_copy_only": False})
        got = to_numpy(each)
        assert got.dtype == expected.dtype
        assert got.tolist() == expected.tolist()
