"""Columns are read as they were written."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bftrainer.files.arrow import to_numpy


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int32(), pa.float64()], ids=str)
def test_columns_are_read_as_arrow_does(kind):
    """Whole columns, slices and chunks become the arrays that `to_numpy` of Arrow makes of them."""
    column = pa.array([1, 0, 1, 1]).cast(kind)
    for each in (column, column[1:], column[:0], pa.chunked_array([column, column[1:]]), pa.chunked_array([], kind)):
        expected = each.to_numpy(**{} if isinstance(each, pa.ChunkedArray) else {"zero_copy_only": False})
        assert to_numpy(each).dtype == expected.dtype
        assert to_numpy(each).tolist() == expected.tolist()
