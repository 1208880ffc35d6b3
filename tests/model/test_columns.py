"""Tables: what goes in as records comes out as records, also in parts, and is kept as columns."""

import pickle
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bftrainer.model.columns import Table
from tests.examples import examples


class Colour(StrEnum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Part:
    """A record within another one."""

    number: int
    weight_kg: float


@dataclass(frozen=True, slots=True)
class Whole:
    """A record with a field of each kind."""

    number: int
    length_m: float
    colour: Colour
    name: str
    members: tuple[int, ...]
    parts: tuple[Part, ...] = ()
    count: int | None = None
    width_m: float | None = None
    sizes: tuple[int | None, ...] | None = None

    @property
    def area(self) -> float:
        """A formula of fields."""
        return self.length_m * self.number


@dataclass(frozen=True, slots=True, eq=False)
class Crowd:
    """A record with an array."""

    nodes: NDArray[np.int32]


number, real = st.integers(0, 2**40), st.floats(allow_nan=False)
small = st.integers(0, 2**31 - 1)
parts = st.builds(Part, number, real)
wholes = st.builds(
    Whole,
    number=st.integers(-5, 2**40),
    length_m=real,
    colour=st.sampled_from(Colour),
    name=st.text(max_size=3),
    members=st.lists(small, max_size=4).map(tuple),
    parts=st.lists(parts, max_size=2).map(tuple),
    count=st.none() | number,
    width_m=st.none() | real,
    sizes=st.none() | st.lists(st.none() | number, min_size=1, max_size=3).map(tuple),
)


@examples(60)
@given(st.lists(wholes, max_size=12), st.data())
def test_records_come_out_as_they_went_in(records, data):
    """One by one, all at once, as a slice, as part of a table, and where tables follow one another."""
    table = Table.of(Whole, records)
    assert len(table) == len(records)
    assert list(table) == records
    assert [table[place] for place in range(-len(records), len(records))] == records * 2
    begin = data.draw(st.integers(0, len(records)))
    end = data.draw(st.integers(begin, len(records)))
    assert table == records
    assert table[begin:end:2] == tuple(records[begin:end:2])
    middle = table.rows(begin, end)
    assert middle == records[begin:end]
    assert pickle.loads(pickle.dumps(table)) == records


def test_columns_are_arrays():
    """By name: numbers as they are, values of few kinds as codes, lists by offsets, and formulas of fields."""
    table = Table.of(
        Whole,
        [
            Whole(1, 2.0, Colour.BLUE, "a", (7, 8), (Part(1, 0.5),), width_m=3.0, sizes=(4, None)),
            Whole(2, 2.5, Colour.RED, "b", (9,), count=6),
        ],
    )
    assert table["number"].tolist() == [1, 2]
    assert table["area"].tolist() == [2.0, 5.0]
    assert (table["colour"].codes.tolist(), table["colour"].names) == ([1, 0], tuple(Colour))
    members = table["members"]
    assert (members.values.tolist(), members.offsets.tolist(), members.values.dtype) == ([7, 8, 9], [0, 2, 3], np.int32)
    assert table["parts"].values == [Part(1, 0.5)]
    assert table["count"].tolist() == [-1, 6]
    assert np.array_equal(table["width_m"], [3.0, np.nan], equal_nan=True)
    assert table["sizes"].values.tolist() == [4, -1]


def test_a_table_is_made_of_columns():
    """As they are where a table comes from another process: of any width; a field that is an array comes out as one."""
    columns = {"number": np.array([5, 6], dtype=np.int16), "weight_kg": np.array([1.0, 2.0])}
    assert Table(Part, columns) == [Part(5, 1.0), Part(6, 2.0)]
    table = Table.of(Crowd, [Crowd(np.array(nodes, dtype=np.int32)) for nodes in ([1, 2], [], [3])])
    assert [row.nodes.tolist() for row in table] == [[1, 2], [], [3]]
    assert isinstance(table[0].nodes, np.ndarray)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"number": [1, 2], "weight_kg": [1.0]}, "one length"),
        ({"number": [1], "weight_kg": [1.0], "height_m": [1.0]}, "height_m"),
        ({"number": [1]}, "weight_kg"),
    ],
)
def test_wrong_columns_are_refused(given, fault):
    """Columns of different lengths, of no field, or for a field none at all."""
    with pytest.raises(ValueError, match=fault):
        Table(Part, {name: np.array(values) for name, values in given.items()})
