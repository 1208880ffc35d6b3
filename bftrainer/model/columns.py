"""Records as columns: rows that come one by one become an array for each field, and records again when asked for.

A replay of a year has a million events and moves tens of millions of nodes, too many for an object each, and of ten
years also too many for arrays in memory: columns that become long go to a temporary file. The fields of a record's
dataclass, with their types, are the declaration of its columns.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from io import SEEK_END
from itertools import chain, pairwise
from operator import itemgetter
from pathlib import Path
from types import NoneType, UnionType
from typing import IO, Any, Generic, TypeVar, get_args, get_origin, get_type_hints, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

R = TypeVar("R", bound=Hashable)

IN_MEMORY = 1 << 20
"""Bytes of a column from which on it goes to a file."""
CHUNK = 1 << 12
"""Rows that become columns, or records again, together."""
PART_ROWS, PART_ITEMS = 1 << 16, 1 << 20
"""Rows, and items of lists, of a part of a table; and up to a chunk more."""


class Stored:
    """Column of numbers that grows at its end; its file, which has no name, is in `place` or the system's directory."""

    def __init__(self, dtype: DTypeLike, place: Path | None = None) -> None:
        self.dtype, self._size = np.dtype(dtype), 0
        where = None if place is None else str(place)
        self._stream = tempfile.SpooledTemporaryFile(IN_MEMORY, dir=where)  # noqa: SIM115 - it lives as long as the rows
        weakref.finalize(self, _close, self._stream)

    def __len__(self) -> int:
        return self._size

    def extend(self, values: Iterable[Any]) -> None:
        """Add numbers."""
        added = np.asarray(values, self.dtype) if isinstance(values, np.ndarray) else np.fromiter(values, self.dtype)
        self._stream.seek(0, SEEK_END)
        self._stream.write(added.data)
        self._size += added.size

    def rows(self, begin: int, end: int) -> NDArray[Any]:
        """Rows from `begin` to before `end`."""
        self._stream.seek(begin * self.dtype.itemsize)
        return np.frombuffer(self._stream.read((end - begin) * self.dtype.itemsize), self.dtype)


def _close(stream: IO[bytes]) -> None:
    with suppress(OSError):  # of a run that failed, perhaps as the disk is full
        stream.close()


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """Column of values of which there are few: texts, or all members of an enumeration in its order.

    `codes` are integers or `Stored`, the index of each row's value, below 0 where there is none; `names` are the
    values, also as a dict of value to index.
    """

    codes: Any
    names: Any

    def __len__(self) -> int:
        return len(self.codes)

    def rows(self, begin: int, end: int) -> Coded:
        """Rows from `begin` to before `end`."""
        return Coded(_rows(self.codes, begin, end), tuple(self.names))


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Column of lists: list i is ``values[offsets[i]:offsets[i + 1]]``, the first offset 0, the last all values."""

    values: Any
    offsets: Any

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Lengths of the lists, shape (E,)."""
        sizes: NDArray[np.int64] = np.diff(self.offsets)
        return sizes

    def rows(self, begin: int, end: int) -> Lists:
        """Rows from `begin` to before `end`."""
        offsets = _rows(self.offsets, begin, end + 1)
        first, last = int(offsets[0]), int(offsets[-1])
        return Lists(_rows(self.values, first, last), offsets - first if first else offsets)


def _rows(column: Any, begin: int, end: int) -> Any:
    return column[begin:end] if isinstance(column, np.ndarray) else column.rows(begin, end)


class Table(Sequence[R], Generic[R]):
    """Records of one dataclass, kept as columns: ``table[0]`` is a record, ``table["time_s"]`` a column.

    Fields of `record` may be numbers, texts, members of enumerations, and, as columns of lists, tuples of whole
    numbers, tuples of further records, and arrays of int32. None is kept as NaN, as -1 in whole numbers, as an empty
    list. At the rows `cuts` parts begin that fit in memory; the table has the rows `span` of its columns, by default
    all. `ValueError` if lengths differ, or columns are not those of the fields.
    """

    __slots__ = ("_columns", "_cuts", "_span", "record")

    def __init__(
        self,
        record: type[R],
        columns: Mapping[str, Any],
        cuts: Sequence[int] = (),
        span: tuple[int, int] | None = None,
    ) -> None:
        sizes = {name: len(column) for name, column in columns.items()}
        if sizes.keys() != _fields(record).keys() or len(set(sizes.values())) != 1:
            raise ValueError(f"Expected columns of one length, {', '.join(_fields(record))}, got {sizes}.")
        self.record, self._columns, self._cuts = record, columns, cuts
        self._span = (0, next(iter(sizes.values()))) if span is None else span

    @classmethod
    def of(cls, record: type[R], rows: Iterable[R]) -> Table[R]:
        """Make a table of records."""
        store = RowStore(record)
        store.extend(rows)
        return store.table()

    def __reduce__(self) -> tuple[Any, ...]:
        """Elsewhere, all columns are in memory."""
        return Table, (self.record, {name: self[name] for name in self._columns})

    def parts(self) -> Iterator[Table[R]]:
        """Tables that fit in memory and follow one another, at least one."""
        begin, end = self._span
        for one, other in pairwise((begin, *(cut for cut in self._cuts if begin < cut < end), end)):
            yield self.rows(one - begin, other - begin)

    def rows(self, begin: int, end: int) -> Table[R]:
        """Rows from `begin` to before `end`."""
        return Table(self.record, self._columns, self._cuts, (self._span[0] + begin, self._span[0] + end))

    def __len__(self) -> int:
        return self._span[1] - self._span[0]

    @overload
    def __getitem__(self, key: int) -> R: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[R]: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...
    def __getitem__(self, key: int | slice | str) -> Any:
        """A record; several; or a column, also of a property that is a formula of fields."""
        if isinstance(key, str):
            if key in self._columns:
                return _rows(self._columns[key], *self._span)
            return getattr(self.record, key).fget(_ColumnsAsFields(self))
        if isinstance(key, slice):
            return tuple(self[place] for place in range(len(self))[key])
        place = range(len(self))[key]
        return next(iter(self.rows(place, place + 1)))

    def __iter__(self) -> Iterator[R]:
        for begin in range(0, len(self), CHUNK):
            chunk = self.rows(begin, min(begin + CHUNK, len(self)))
            yield from map(self.record, *(field.objects(chunk[name]) for name, field in _fields(self.record).items()))

    def __eq__(self, other: object) -> bool:
        """Whether the records are equal to those of a sequence."""
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self):,} x {self.record.__name__}>"


class _ColumnsAsFields:
    """Has the columns of a table as attributes, so that a formula of a record's fields computes with columns."""

    def __init__(self, table: Table[Any]) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Any:
        return self._table[name]


class RowStore(Generic[R]):
    """Rows of a dataclass's fields that come one by one, kept as columns; see `Table` and `Stored`."""

    def __init__(self, record: type[R], place: Path | None = None) -> None:
        self._record, self._fields = record, _fields(record)
        self._columns = {name: field.new_column(place) for name, field in self._fields.items()}
        self._rows, self._items = list[Sequence[Any]](), 0
        self._size, self._cuts, self._cut_items = 0, [0], 0

    def __len__(self) -> int:
        return self._size + len(self._rows)

    def append(self, row: Sequence[Any], items: int = 0) -> None:
        """Add a row's values, which may change until the next one is added; `items` is how many its lists have."""
        if len(self._rows) == CHUNK or self._items >= PART_ITEMS:
            self._pack()
        self._rows.append(row)
        self._items += items

    def extend(self, records: Iterable[R]) -> None:
        """Add records."""
        for record in records:
            self.append([getattr(record, name) for name in self._fields])

    def _pack(self) -> None:
        """Move the rows to the columns."""
        if self._size - self._cuts[-1] >= PART_ROWS or self._cut_items >= PART_ITEMS:
            self._cuts.append(self._size)
            self._cut_items = 0
        for place, (name, field) in enumerate(self._fields.items()):
            field.extend(self._columns[name], map(itemgetter(place), self._rows))
        self._size += len(self._rows)
        self._cut_items += self._items
        self._rows, self._items = [], 0

    def rows(self, begin: int, end: int) -> Table[R]:
        """Rows from `begin` to before `end`, as records."""
        self._pack()
        return Table(self._record, self._columns, self._cuts, (begin, end))

    def table(self) -> Table[R]:
        """All rows until now, as records."""
        return self.rows(0, len(self))


@dataclass(frozen=True, slots=True)
class _Field:
    """How a field is kept: type of its values, whether they may be None, and how items are kept if they are lists."""

    kind: Any
    optional: bool
    items: _Field | None = None

    @classmethod
    def parse(cls, hint: Any) -> _Field:
        """The field with such an annotation."""
        kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        kind = next(kind for kind in kinds if kind is not NoneType)
        optional = NoneType in kinds
        if get_origin(kind) in (np.ndarray, NDArray):  # NumPy's alias is a type of its own on some Pythons
            return cls(np.ndarray, optional, cls(np.int32, False))
        if get_origin(kind) is not tuple:
            return cls(kind, optional)
        items = cls.parse(get_args(kind)[0])
        # Numbers of tasks and nodes are many, and fit into 32 bits.
        return cls(tuple, optional, cls(np.int32, False) if items == cls(int, False) else items)

    def new_column(self, place: Path | None) -> Any:
        """A column without rows."""
        if self.items is not None:
            offsets = Stored(np.int64, place)
            offsets.extend([0])
            return Lists(self.items.new_column(place), offsets)
        if isinstance(self.kind, type) and is_dataclass(self.kind):
            return RowStore(self.kind, place)
        if issubclass(self.kind, str | Enum):
            names = self.kind if issubclass(self.kind, Enum) else ()
            return Coded(Stored(np.int32, place), {name: code for code, name in enumerate(names)})
        return Stored({float: np.float64, int: np.int64}.get(self.kind, self.kind), place)

    def extend(self, column: Any, values: Iterable[Any]) -> None:
        """Add values to a column."""
        if self.optional:
            missing = () if self.items is not None else self._missing
            values = [missing if value is None else value for value in values]
        if self.items is not None:
            lists = list(values)
            ends = len(column.values) + np.cumsum(list(map(len, lists)), dtype=np.int64)
            is_array = bool(lists) and isinstance(lists[-1], np.ndarray)
            self.items.extend(column.values, np.concatenate(lists) if is_array else chain.from_iterable(lists))
            column.offsets.extend(ends)
        elif isinstance(column, Coded):
            codes = column.names
            column.codes.extend([codes.setdefault(value, len(codes)) for value in values])
        else:
            column.extend(values)

    @property
    def _missing(self) -> float | int:
        """What stands for None."""
        return np.nan if self.kind is float else -1

    def objects(self, column: Any) -> list[Any]:
        """The values of a column."""
        if self.items is not None:
            items = column.values if self.kind is np.ndarray else self.items.objects(column.values)
            make: Callable[[Any], Any] = tuple if self.kind is tuple else np.asarray
            lists = [make(items[begin:end]) for begin, end in pairwise(column.offsets.tolist())]
            return [value or None for value in lists] if self.optional else lists
        if isinstance(column, Table):
            return list(column)
        if isinstance(column, Coded):
            return [column.names[code] for code in column.codes.tolist()]
        values: list[Any] = column.tolist()
        if not self.optional:
            return values
        missing = self._missing
        return [None if value == missing or value != value else value for value in values]


@cache
def _fields(record: type) -> dict[str, _Field]:
    """How the fields of a record are kept, by name."""
    hints = get_type_hints(record)
    return {field.name: _Field.parse(hints[field.name]) for field in fields(record)}
