"""Frames as pandas pickles them, of any version, protocol and type."""

import io
import re

import numpy as np
import pandas as pd
import pytest

from bftrainer.errors import InputError
from bftrainer.legacy.frame import read_pickled_frame

TIMES = np.array(["2021-02-10T20:21:15", "2021-02-10T20:22:00", "2021-02-10T20:23:00"], dtype="M8[ns]")
STATES = {"a1": [1, 1, 0], "a2": [0, 1, 1], "b1": [0, 0, 0]}
FORMS = ["log", "zoned", "mixed", "objects"]
VERSIONS = ["1.1", "1.5", "2.2", "3.1"]


def pickled(value, protocol=5):
    """Bytes of an object pickled by this pandas."""
    stream = io.BytesIO()
    pd.to_pickle(value, stream, compression=None, protocol=protocol)
    return stream.getvalue()


def read(content):
    """The frame of some bytes."""
    return read_pickled_frame(io.BytesIO(content), "x.pkl")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("form", FORMS)
def test_frames_of_every_pandas_and_protocol_read_alike(fixtures, form, version):
    """A frame reads the same whichever pandas pickled it, in whichever protocol and with whatever types."""
    paths = sorted(fixtures.glob(f"{form}-pandas{version}-*.pkl"))
    assert paths
    for path in paths:
        frame = read(path.read_bytes())
        assert np.array_equal(frame.index.astype("M8[ns]"), TIMES)
        assert dict(zip(frame.columns, map(list, frame.values), strict=True)) == STATES


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "US/Eastern", "Asia/Tokyo"])
def test_times_of_any_unit_and_zone_are_utc(protocol, unit, zone):
    """An index of any unit keeps its instants; one with a time zone comes out in UTC."""
    index = pd.DatetimeIndex(TIMES.astype(f"M8[{unit}]"), tz="UTC" if zone else None)
    frame = pd.DataFrame({"a": [0, 1, 0]}, index=index.tz_convert(zone) if zone else index)
    times = read(pickled(frame, protocol)).index
    assert times.dtype == np.dtype(f"M8[{unit}]")
    assert np.array_equal(times, TIMES)


@pytest.mark.parametrize("kind", ["int8", "int64", "float32", "bool", "object", ">i4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_values_of_any_numeric_type_and_layout(kind, order):
    """Types and layouts of numpy give the same numbers; columns without names are called by their numbers."""
    matrix = np.array([[1, 0, 1], [0, 0, 1]])
    frame = read(pickled(pd.DataFrame(np.array(matrix.astype(kind), order=order))))
    assert frame.columns == ("0", "1", "2")
    assert np.array_equal(np.array(frame.values, dtype=float).T, matrix)


@pytest.mark.parametrize("kind", ["object", "string[python]", "string[pyarrow]", "str"])
def test_labels_of_any_text_type(kind):
    """Row and column labels are text whichever of pandas' types holds it, also cut out of a longer array."""
    labels = pd.Index(["x", "é", "", "n3", "y"]).astype(kind)[1:4]
    frame = read(pickled(pd.DataFrame(np.eye(3, dtype=np.int8), index=labels, columns=labels)))
    assert frame.columns == tuple(frame.index) == ("é", "", "n3")


def test_columns_of_several_types_and_cells():
    """Columns keep their places; cells of an object column are numbers, lists, arrays and dates."""
    cells = [np.float64(1.5), [0, np.int64(2)], np.array([1, 2]), pd.Timestamp("2021-02-10"), pd.NaT, "x", None]
    more = {"a": 1, "b": 1.5, "c": 2, "d": True, "e": pd.Series(cells, dtype=object)}
    frame = read(pickled(pd.DataFrame(more, index=range(7))))
    assert [values[0] for values in frame.values] == [1, 1.5, 2, True, 1.5]
    number, numbers, array, date, none, *others = frame.values[4]
    assert (number, numbers, array.tolist(), others) == (1.5, [0, 2], [1, 2], ["x", None])
    assert date == np.datetime64("2021-02-10")
    assert np.isnat(none)


@pytest.mark.parametrize("value", [pd.Series([1]), [1], {"a": 1}, "text", 3, None, np.zeros(2)])
def test_what_is_no_frame_is_refused(value):
    """Other pickled objects are refused by their type."""
    with pytest.raises(InputError, match=r"^x\.pkl: Expected a pickled pandas DataFrame, got a pickled \w+\.$"):
        read(pickled(value))


@pytest.mark.parametrize(
    ("frame", "error", "said"),
    [
        *(
            (pd.DataFrame({"a": pd.array([1, 0, 1]).astype(kind)}), InputError, "refused to load pandas")
            for kind in ("Int8", "boolean", "Float64", "category")
        ),
        (pd.DataFrame({"a": np.array([1 + 1j])}), InputError, "Expected"),
        (pd.DataFrame({"a": pd.to_timedelta([1], unit="s")}), InputError, "refused to load pandas"),
        (pd.DataFrame({"a": [1]}, index=pd.Index([None], dtype="string[pyarrow]")), InputError, "Expected"),
    ],
)
def test_unread_types_are_refused(frame, error, said):
    """Types that no log or task set has are refused, not guessed."""
    with pytest.raises(error, match=rf"^x\.pkl: {said}"):
        read(pickled(frame))


def test_damaged_times_are_refused():
    """Ten nanoseconds a step, which pandas never writes, are not read as one; a unit that is none makes no date."""
    content = pickled(pd.DataFrame({"a": [1]}, index=pd.DatetimeIndex(TIMES[:1])), 2)
    with pytest.raises(InputError, match=r"values of type 'M8\[10ns\]'"):
        read(content.replace(b"K\x01K\x01K\x01t", b"K\x0aK\x01K\x01t"))
    content = pickled(pd.DataFrame({"a": pd.Series([pd.Timestamp("2021-02-10"), None], dtype=object)}), 0)
    with pytest.raises(InputError, match=r"^x\.pkl: Expected a pickled pandas DataFrame, got something else \(99\)"):
        read(re.sub(rb"I(7|8|9|10)\n", b"I99\n", content))
