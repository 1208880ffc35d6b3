"""Records as columns: an array for each field, and each record made when it is asked for.

A replay of a year has a million events and moves tens of millions of nodes, too many for an object each, and of ten
years also too many for arrays in memory. The fields of a record's dataclass, with their types, are the declaration of
its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import chain, pairwise
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints, overload

import numpy as np
from numpy.typing import NDArray

R = TypeVar("R", bound=Hashable)
_CHUNK = 4096


class Lazy(dict[str, Any]):
    """Columns by name, each loaded when it is first asked for."""

    def __init__(self, load: Callable[[str], Any]) -> None:
        super().__init__()
        self._load = load

    def __missing__(self, name: str) -> Any:
        """Load a column."""
        column = self[name] = self._load(name)
        return column

    __getattr__ = dict.__getitem__
    """So that a formula of fields, a property of a record, takes columns."""


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """Column of values of which there are few.

    Parameters
    ----------
    codes : ndarray of int, shape (E,)
        Index of each row's value; below 0 where there is none.
    names : sequence
        The values: texts, or all members of an enumeration in its order.
    """

    codes: NDArray[Any]
    names: Sequence[Any]

    def __len__(self) -> int:
        return len(self.codes)

    def rows(self, begin: int, end: int) -> Coded:
        """Rows from `begin` to before `end`."""
        return Coded(self.codes[begin:end], self.names)

    @classmethod
    def joined(cls, parts: Sequence[Coded]) -> Coded:
        """Columns one after the other, whose values may differ."""
        place = {name: code for code, name in enumerate(dict.fromkeys(chain.from_iterable(p.names for p in parts)))}
        codes = [np.array([place[name] for name in part.names], dtype=np.int32)[part.codes] for part in parts]
        return cls(np.concatenate(codes), tuple(place))


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Column of lists.

    Parameters
    ----------
    values : ndarray, Table or Coded, shape (V,)
        The items of all lists, one list after the other.
    offsets : ndarray of int64, shape (E + 1,)
        List i is ``values[offsets[i]:offsets[i + 1]]``; the first offset is 0, the last V.
    """

    values: Any
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Lengths of the lists, shape (E,)."""
        return np.diff(self.offsets)

    def rows(self, begin: int, end: int) -> Lists:
        """Rows from `begin` to before `end`."""
        offsets = self.offsets[begin : end + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        return Lists(_rows(self.values, first, last), offsets - first if first else offsets)

    @classmethod
    def joined(cls, parts: Sequence[Lists]) -> Lists:
        """Columns one after the other."""
        sizes = np.concatenate([part.sizes for part in parts])
        return cls(_joined([part.values for part in parts]), list_offsets(sizes))


class Table(Sequence[R], Generic[R]):
    """Records of one dataclass, kept as columns: ``table[0]`` is a record, ``table["time_s"]`` a column.

    Parameters
    ----------
    record : type
        Dataclass of the records. Its fields may be numbers, texts, members of enumerations, and, as columns of lists,
        tuples of whole numbers, tuples of further records, and arrays of int32.
    columns : mapping of str to ndarray, Coded or Lists, of length E
        By name of the field. In fields that may be None, it is kept as NaN, as -1 in whole numbers, as an empty list.
        A column that would have only None, or only empty lists, may be left out.

    Raises
    ------
    ValueError
        If lengths differ, a column is not of a field, or one is missing.
    """

    __slots__ = ("_columns", "_size", "record")

    def __init__(self, record: type[R], columns: Mapping[str, Column]) -> None:
        declared = _fields(record)
        sizes = {name: len(column) for name, column in columns.items()}
        self._size = size = next(iter(sizes.values()), 0)
        if not set(sizes) <= set(declared) or set(sizes.values()) - {size}:
            raise ValueError(f"Expected columns of one length, among {', '.join(declared)}, got {sizes}.")
        self.record = record
        self._columns: Mapping[str, Column] = {
            name: columns[name] if name in columns else field.absent(name, size) for name, field in declared.items()
        }

    @classmethod
    def of(cls, record: type[R], rows: Iterable[R]) -> Table[R]:
        """Make a table of records."""
        given = list(rows)
        return cls(
            record, {name: field.column(list(map(attrgetter(name), given))) for name, field in _fields(record).items()}
        )

    @classmethod
    def joined(cls, record: type[R], parts: Sequence[Table[R]]) -> Table[R]:
        """Tables one after the other."""
        if len(parts) < 2:
            return parts[0] if parts else cls.of(record, ())
        return cls(record, {name: _joined([part[name] for part in parts]) for name in _fields(record)})

    @classmethod
    def lazy(cls, record: type[R], size: int, load: Callable[[str], Any]) -> Table[R]:
        """Make a table of so many records whose columns are loaded when they are asked for, each once."""
        table = cls.__new__(cls)
        table.record, table._size, table._columns = record, size, Lazy(load)
        return table

    def __reduce__(self) -> tuple[Any, ...]:
        """Elsewhere, all columns are in memory."""
        return Table, (self.record, {name: self[name] for name in _fields(self.record)})

    def parts(self) -> Iterator[Table[R]]:
        """Tables that fit in memory and follow one another, at least one."""
        yield self

    def rows(self, begin: int, end: int) -> Table[R]:
        """Rows from `begin` to before `end`; their columns are views."""
        return Table.lazy(self.record, end - begin, lambda name: _rows(self._columns[name], begin, end))

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, key: int) -> R: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[R, ...]: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...
    def __getitem__(self, key: int | slice | str) -> Any:
        """A record; several; or a column, also of a property that is a formula of fields."""
        if isinstance(key, str):
            if key in _fields(self.record):
                return self._columns[key]
            return getattr(self.record, key).fget(Lazy(self.__getitem__))
        if isinstance(key, slice):
            return tuple(self[place] for place in range(self._size)[key])
        place = range(self._size)[key]
        return next(iter(self.rows(place, place + 1)))

    def __iter__(self) -> Iterator[R]:
        for begin in range(0, self._size, _CHUNK):
            part = self.rows(begin, min(begin + _CHUNK, self._size))
            values = (field.objects(part[name]) for name, field in _fields(self.record).items())
            yield from map(self.record, *values)

    def __eq__(self, other: object) -> bool:
        """Whether the records are equal to those of a sequence."""
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self):,} x {self.record.__name__}>"


class LongTable(Table[R]):
    """Records that are too many for memory: of a column that is asked for, all values are loaded, and not kept.

    Parameters
    ----------
    record : type
        Dataclass of the records.
    starts : sequence of int
        Place of the first record of each part, and at last the number of records.
    load : callable
        Loads a part, told its number.
    begin, end : int
        Range of the records that belong to the table.
    """

    __slots__ = ("_begin", "_load", "_starts")

    def __init__(
        self, record: type[R], starts: Sequence[int], load: Callable[[int], Table[R]], begin: int, end: int
    ) -> None:
        self.record, self._starts, self._load = record, starts, load
        self._begin, self._size = begin, end - begin

    def parts(self) -> Iterator[Table[R]]:
        """Tables that fit in memory and follow one another, at least one."""
        begin, end = self._begin, self._begin + self._size
        for number, (first, last) in enumerate(pairwise(self._starts)):
            if first < end and begin < last:
                yield self._load(number).rows(max(first, begin) - first, min(last, end) - first)
        if not self._size:
            yield Table.of(self.record, ())

    def rows(self, begin: int, end: int) -> Table[R]:
        """Rows from `begin` to before `end`."""
        return LongTable(self.record, self._starts, self._load, self._begin + begin, self._begin + end)

    def __getitem__(self, key: Any) -> Any:
        """A record; several; or a column."""
        return _joined([part[key] for part in self.parts()]) if isinstance(key, str) else super().__getitem__(key)

    def __iter__(self) -> Iterator[R]:
        return chain.from_iterable(self.parts())


Column = NDArray[Any] | Coded | Lists | Table[Any]


@dataclass(frozen=True, slots=True)
class _Field:
    """How a field is kept: type of its values, whether they may be None, and how items are kept if they are lists."""

    kind: Any
    optional: bool
    items: _Field | None = None

    @classmethod
    def of(cls, hint: Any) -> _Field:
        """The field with such an annotation."""
        parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        kind = next(part for part in parts if part is not NoneType)
        optional = NoneType in parts
        if get_origin(kind) in (np.ndarray, NDArray):  # NumPy's alias is a type of its own on some Pythons
            return cls(np.ndarray, optional, cls(np.int32, False))
        if get_origin(kind) is not tuple:
            return cls(kind, optional)
        items = cls.of(get_args(kind)[0])
        # Numbers of tasks and nodes are many, and fit into 32 bits.
        return cls(tuple, optional, cls(np.int32, False) if items == cls(int, False) else items)

    def column(self, values: Any) -> Any:
        """The column of such values."""
        if self.items is not None:
            given = [() if value is None else value for value in values]
            flat = np.concatenate([*given, NO_VALUES]) if self.kind is np.ndarray else list(chain.from_iterable(given))
            return Lists(self.items.column(flat), list_offsets([len(value) for value in given]))
        if isinstance(self.kind, type) and is_dataclass(self.kind):
            return Table.of(self.kind, values)
        if issubclass(self.kind, str | Enum):
            names = tuple(self.kind) if issubclass(self.kind, Enum) else tuple(dict.fromkeys(values))
            place = {name: code for code, name in enumerate(names)}
            return Coded(np.array([place[value] for value in values], dtype=np.int32), names)
        dtype = {float: np.float64, int: np.int64}.get(self.kind, self.kind)
        known = [self._missing if value is None else value for value in values] if self.optional else values
        return np.asarray(known, dtype=dtype)

    @property
    def _missing(self) -> float | int:
        """What stands for None."""
        return np.nan if self.kind is float else -1

    def absent(self, name: str, size: int) -> Any:
        """The column that was left out."""
        if self.items is not None:
            return Lists(self.items.column(()), np.broadcast_to(np.int64(0), size + 1))
        if not self.optional and size:
            raise ValueError(f"Expected a column {name}, got none.")
        return np.broadcast_to(self.column([None]), size) if self.optional else self.column(())

    def objects(self, column: Any) -> list[Any]:
        """The values of a column."""
        if self.items is not None:
            whole = column.values if self.kind is np.ndarray else self.items.objects(column.values)
            make: Callable[[Any], Any] = tuple if self.kind is tuple else np.asarray
            found = [make(whole[begin:end]) for begin, end in pairwise(column.offsets.tolist())]
            return [value or None for value in found] if self.optional else found
        if isinstance(column, Table):
            return list(column)
        if isinstance(column, Coded):
            return [column.names[code] for code in column.codes.tolist()]
        values: list[Any] = column.tolist()
        if not self.optional:
            return values
        missing = self._missing
        return [None if value == missing or value != value else value for value in values]


NO_VALUES = np.empty(0, dtype=np.int32)


@cache
def _fields(record: type) -> dict[str, _Field]:
    """How the fields of a record are kept, by name."""
    hints = get_type_hints(record)
    return {field.name: _Field.of(hints[field.name]) for field in fields(record)}


def absent_column(record: type, name: str, size: int) -> Any:
    """The column of a field that is None, or an empty list, in all of so many records."""
    return _fields(record)[name].absent(name, size)


def list_offsets(sizes: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Where lists of these lengths begin, and the last one ends."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def _rows(column: Column, begin: int, end: int) -> Column:
    return column[begin:end] if isinstance(column, np.ndarray) else column.rows(begin, end)


def _joined(parts: Sequence[Any]) -> Column:
    first = parts[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    return Table.joined(first.record, parts) if isinstance(first, Table) else first.joined(parts)
