"""Columns hold what they are given."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.files.arrow import instants, integers, lists, reals, texts


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
    column = reals(values)
    column.validate(full=True)
    assert column.to_pylist() == [value if value is not None and np.isfinite(value) else None for value in values]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_missing_integers_are_null(values):
    """None is null among integers, the others come back."""
    column = integers(values)
    column.validate(full=True)
    assert column.to_pylist() == values


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4)))
def test_lists_are_cut_where_they_were(rows):
    """Lists of integers come back, empty ones too."""
    column = lists(np.cumsum([0, *map(len, rows)]), integers([value for row in rows for value in row]))
    column.validate(full=True)
    assert column.to_pylist() == rows


def test_instants_count_from_the_start():
    """1.5 s after 1970 in nanoseconds, UTC; what has not happened is null."""
    column = instants(0, [1.5, None])
    column.validate(full=True)
    assert column.type == pa.timestamp("ns", tz="UTC")
    assert column.cast(pa.int64()).to_pylist() == [1_500_000_000, None]
