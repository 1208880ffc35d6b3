import io
import re

import numpy as np
import pandas as pd
import pytest

from bftrainer.errors import InputError, UnsafePickleError
from bftrainer.legacy.frame import read_pickled_frame

TIMES = np.array(["2021-02-10T20:21:15", "2021-02-10T20:22:00", "2021-02-10T20:23:00"], dtype="M8[ns]")
STATES = {"a1": [1, 1, 0], "a2": [0, 1, 1], "b1": [0, 0, 0]}
FORMS = ["log", "zoned", "mixed", "objects"]
VERSIONS = ["1.1", "1.5", "2.2", "3.1"]


def column(frame, name):
    """Values of one column."""
    return frame.values[frame.columns.index(name)]


def frame_of(value, **options):
    """What the reader makes of an object pickled by this pandas."""
    stream = io.BytesIO()
    pd.to_pickle(value, stream, compression=None, **options)
    stream.seek(0)
    return read_pickled_frame(stream, "x.pkl")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("form", FORMS)
def test_frames_of_every_pandas_and_protocol_read_alike(fixtures, form, version):
    """A frame reads the same whichever pandas pickled it, in whichever protocol and with whatever types."""
    paths = sorted(fixtures.glob(f"{form}-pandas{version}-*.pkl"))
    assert paths
    for path in paths:
        with path.open("rb") as stream:
            frame = read_pickled_frame(stream, path.name)
        assert frame.columns == tuple(STATES)
        assert np.array_equal(frame.index.astype("M8[ns]"), TIMES)
        for name, states in STATES.items():
            assert column(frame, name).tolist() == states


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "US/Eastern", "Asia/Tokyo"])
def test_times_of_any_unit_and_zone_are_utc(protocol, unit, zone):
    """An index of any unit keeps its instants; one with a time zone comes out in UTC."""
    index = pd.DatetimeIndex(TIMES.astype(f"M8[{unit}]"), tz="UTC" if zone else None)
    frame = pd.DataFrame({"a": [0, 1, 0]}, index=index.tz_convert(zone) if zone else index)
    got = frame_of(frame, protocol=protocol).index
    assert got.dtype == np.dtype(f"M8[{unit}]")
    assert np.array_equal(got, TIMES)


@pytest.mark.parametrize("kind", ["int8", "int64", "float32", "bool", "object", ">i4"])
def test_values_of_any_numeric_type(kind):
    """Types of numpy give the same numbers."""
    frame = pd.DataFrame({"a": pd.array([1, 0, 1]).astype(kind), "b": pd.array([0, 0, 1]).astype(kind)})
    got = frame_of(frame)
    assert [column(got, "a").astype(float).tolist(), column(got, "b").astype(float).tolist()] == [[1, 0, 1], [0, 0, 1]]


@pytest.mark.parametrize("kind", ["Int8", "boolean", "Float64", "category"])
def test_nullable_and_categorical_columns_are_refused_by_name(kind):
    """Types that no published file has are not admitted."""
    with pytest.raises(UnsafePickleError, match=r"^x\.pkl: refused to load pandas"):
        frame_of(pd.DataFrame({"a": pd.array([1, 0, 1]).astype(kind)}))


@pytest.mark.parametrize("kind", ["object", "string[python]", "string[pyarrow]", "str"])
def test_labels_of_any_text_type(kind):
    """Row and column labels are text whichever of pandas' types holds it."""
    labels = pd.Index(["é", "", "n3"]).astype(kind)
    got = frame_of(pd.DataFrame(np.eye(3, dtype=np.int8), index=labels, columns=labels))
    assert got.columns == ("é", "", "n3")
    assert list(got.index) == ["é", "", "n3"]


def test_sliced_text_labels():
    """Labels cut out of a longer pyarrow array are the ones cut out."""
    labels = pd.Index([f"n{i}" for i in range(9)], dtype="string[pyarrow]")[3:5]
    assert frame_of(pd.DataFrame(np.zeros((1, 2)), columns=labels)).columns == ("n3", "n4")


def test_numbered_columns_become_text():
    """Columns without names are called by their numbers."""
    assert frame_of(pd.DataFrame(np.zeros((1, 3)))).columns == ("0", "1", "2")


@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_layout_does_not_matter(order):
    """A matrix keeps its values in either layout, as numbers and as objects."""
    matrix = np.arange(12, dtype=np.int8).reshape(3, 4)
    for kind in (np.int8, object):
        got = frame_of(pd.DataFrame(np.array(matrix, dtype=kind, order=order), columns=list("abcd")))
        assert [column(got, name).tolist() for name in "abcd"] == matrix.T.tolist()


def test_interleaved_blocks():
    """Columns of several types keep their places."""
    frame = pd.DataFrame({"a": [1], "b": [1.5], "c": [2], "d": [True], "e": [2.5]})
    got = frame_of(frame)
    assert [column(got, name)[0] for name in "abcde"] == [1, 1.5, 2, True, 2.5]


def test_plain_cells():
    """Cells of an object column are numbers, lists, arrays and dates."""
    cells = [np.float64(1.5), [0, np.int64(2)], np.array([1, 2]), pd.Timestamp("2021-02-10"), pd.NaT, "x", None]
    got = list(column(frame_of(pd.DataFrame({"a": pd.Series(cells, dtype=object)})), "a"))
    assert got[0] == 1.5
    assert got[1] == [0, 2]
    assert got[2].tolist() == [1, 2]
    assert got[3] == np.datetime64("2021-02-10")
    assert np.isnat(got[4])
    assert got[5:] == ["x", None]


@pytest.mark.parametrize("value", [pd.Series([1]), [1], {"a": 1}, "text", 3, None, np.zeros(2)])
def test_what_is_no_frame_is_refused(value):
    """Other pickled objects are refused by their type."""
    with pytest.raises(InputError, match=r"^x\.pkl: Expected a pickled pandas DataFrame, got a pickled \w+\.$"):
        frame_of(value)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": np.array([1 + 1j])}),
        pd.DataFrame({"a": pd.to_timedelta([1], unit="s")}),
        pd.DataFrame({"a": [1]}, index=pd.Index([None], dtype="string[pyarrow]")),
    ],
)
def test_unread_types_are_refused(frame):
    """Types that no log or task set has are refused, not guessed."""
    with pytest.raises(InputError, match=r"^x\.pkl: "):
        frame_of(frame)


def test_times_in_steps_of_several_units_are_refused():
    """Ten nanoseconds a step, which pandas never writes, are not read as one."""
    stream = io.BytesIO()
    pd.to_pickle(pd.DataFrame({"a": [1]}, index=pd.DatetimeIndex(TIMES[:1])), stream, compression=None, protocol=2)
    damaged = stream.getvalue().replace(b"K\x01K\x01K\x01t", b"K\x0aK\x01K\x01t")
    with pytest.raises(InputError, match=r"values of type 'M8\[10ns\]'"):
        read_pickled_frame(io.BytesIO(damaged), "x.pkl")


def test_damaged_cells_are_refused():
    """A date whose unit is none makes no frame."""
    stream = io.BytesIO()
    cells = pd.Series([pd.Timestamp("2021-02-10"), None], dtype=object)
    pd.to_pickle(pd.DataFrame({"a": cells}), stream, compression=None, protocol=0)
    damaged = re.sub(rb"I(7|8|9|10)\n", b"I99\n", stream.getvalue())
    with pytest.raises(InputError, match=r"^x\.pkl: Expected a pickled pandas DataFrame, got something else \(99\)"):
        read_pickled_frame(io.BytesIO(damaged), "x.pkl")
