"""Rebuild the arrays of a pickled DataFrame from its records, whatever pandas version wrote it."""

from __future__ import annotations

import itertools
import re
import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import InputError
from bftrainer.files.opening import one_line
from bftrainer.legacy.pickle import Record, load_records

Labels = NDArray[Any] | range

_DTYPE_CODE = re.compile(r"[<>|=]?(b1|i[1248]|u[1248]|f[248]|O8?|M8(\[(ns|us|ms|s)\])?|[US]\d{1,6})")
_UNITS: dict[int, Literal["s", "ms", "us", "ns"]] = {
    7: "s",
    8: "ms",
    9: "us",
    10: "ns",
}  # NPY_DATETIMEUNIT, numpy/ndarraytypes.h
_MOST_COLUMNS = 1 << 22  # a small file may claim any number of columns
_MOST = 1 << 64  # limits the length of whole numbers
_NAT = np.datetime64("NaT", "ns")


class _MalformedError(Exception):
    """Raised for records that are not those of a readable DataFrame."""


# The records come from an untrusted file: any field may be missing or of another type.
_DAMAGE = (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnBlock:
    """Columns of one type.

    Parameters
    ----------
    columns : ndarray of int64, shape (C,)
        Their positions in the frame.
    values : ndarray, shape (C, R)
        Column by column.
    """

    columns: NDArray[np.int64]
    values: NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A DataFrame without pandas: labels and blocks of columns.

    Parameters
    ----------
    index : ndarray or range, length R
        Row labels; datetime64 (UTC if they had a time zone) for times.
    columns : tuple of str, length C
        Column labels.
    blocks : tuple of ColumnBlock
        Blocks of values; each column is in exactly one.
    """

    index: Labels
    columns: tuple[str, ...]
    blocks: tuple[ColumnBlock, ...]

    def column(self, name: str) -> NDArray[Any]:
        """Values of one column, shape (R,)."""
        position = self.columns.index(name)
        for block in self.blocks:
            where = np.flatnonzero(block.columns == position)
            if where.size:
                return np.asarray(block.values[where[0]])
        raise KeyError(name)


def read_pickled_frame(
    stream: BinaryIO, name: str, error: type[InputError] = InputError, columns: str = "column names"
) -> Frame:
    """Read a DataFrame pickled by any pandas, in any protocol, without running anything the file names.

    Parameters
    ----------
    stream : binary file
    name : str
        Name of the file in messages.
    error : type of InputError
        Raised when it is not a pickle, or not of a DataFrame.
    columns : str
        Name of the column labels in messages.

    Raises
    ------
    UnsafePickleError
        If the pickle names a global that pandas and numpy data never need.
    """
    tree = load_records(stream, name, error)
    if not _is(tree, "DataFrame"):
        kind = type(tree).__name__
        raise error(f"{name}: Expected a pickled pandas DataFrame, got a pickled {kind}.")
    try:
        index, labels, blocks = _parts(tree.state)
        return Frame(index, label_texts(labels, f"{name}: ", columns, error), blocks)
    except _MalformedError as cause:
        raise error(f"{name}: Expected a readable DataFrame, {one_line(cause)}.") from None
    except _DAMAGE as cause:
        raise error(f"{name}: Expected a readable DataFrame, got damaged fields ({one_line(cause)}).") from None


def label_texts(labels: Iterable[Any], where: str, what: str, error: type[InputError]) -> tuple[str, ...]:
    """Labels as text, whole numbers among them; anything else may print as a text without end.

    Raises
    ------
    InputError
        As `error`, in words that start with `where` and call the labels `what`.
    """
    texts = []
    for label in labels:
        whole = isinstance(label, int | np.integer) and not isinstance(label, bool) and abs(int(label)) < _MOST
        if not (whole or isinstance(label, str)):
            raise error(f"{where}Expected {what} to be text, got {shortened(label)}.")
        texts.append(str(label))
    return tuple(texts)


def shortened(value: Any) -> str:
    """Text of a scalar; anything else is shortened, as a pickle may nest lists without end."""
    if isinstance(value, int) and abs(value) >= _MOST:
        return "a number of many digits"
    return str(value) if isinstance(value, int | float | np.generic) else one_line(reprlib.repr(value))


def plain_cell(cell: Any, depth: int = 2) -> Any:
    """A cell of an object column as a number, text, array, list or datetime64.

    Records that are unknown or damaged stay as they are.

    Lists are followed to `depth` only: a short pickle can nest them in each other until they fill any memory.
    """
    if isinstance(cell, list | tuple):
        return [plain_cell(item, depth - 1) for item in cell] if depth else cell
    if not isinstance(cell, Record):
        return cell
    try:
        return _plain_record(cell, depth)
    except (_MalformedError, *_DAMAGE):
        return cell


def _plain_record(cell: Record, depth: int) -> Any:
    if _is_array(cell):
        values = _array(cell)
        return plain_cell(values.tolist(), depth) if values.dtype.kind == "O" else values
    if _is(cell, "scalar"):
        return np.frombuffer(cell.args[1], dtype=_dtype(cell.args[0]))[0]
    if _is(cell, "_unpickle_timestamp") or _is(cell, "Timestamp"):
        unit = _UNITS[int(cell.args[3])] if len(cell.args) > 3 else "ns"
        return np.datetime64(int(cell.args[0]), unit)
    return _NAT if _is(cell, "_nat_unpickle") or _is(cell, "__nat_unpickle") else cell


def _is(value: Any, name: str) -> bool:
    return isinstance(value, Record) and type(value).__name__ == name


def _parts(state: Any) -> tuple[Labels, Labels, tuple[ColumnBlock, ...]]:
    """Index, column labels and blocks."""
    manager = state.get("_mgr", state.get("_data"))
    axes, parts = _manager_parts(manager)
    columns, index = (_labels(axis) for axis in axes)
    if len(columns) > _MOST_COLUMNS:
        raise _MalformedError(f"got {len(columns)} columns")
    blocks = tuple(_block(values, where) for values, where in parts)
    taken = np.sort(np.concatenate([block.columns for block in blocks])) if blocks else np.empty(0, dtype=np.int64)
    if not np.array_equal(taken, np.arange(len(columns))):
        raise _MalformedError("got blocks that do not cover its columns once")
    if any(block.values.shape[1] != len(index) for block in blocks):
        raise _MalformedError("got columns of another length than its index")
    return index, columns, blocks


def _manager_parts(manager: Any) -> tuple[Sequence[Any], list[tuple[Any, Any]]]:
    """Axes and (values, positions) of blocks, from either pickled form of a BlockManager."""
    if manager.args:  # pandas >= 1.3: BlockManager(blocks, axes)
        blocks, axes = manager.args[:2]
        return axes, [(block.args[0], block.args[1]) for block in blocks]
    state = manager.state[-1]["0.14.1"]  # the only version of the state that pandas ever wrote
    return state["axes"], [(block["values"], block["mgr_locs"]) for block in state["blocks"]]


def _block(values: Any, where: Any) -> ColumnBlock:
    data = _values(values)
    if data.ndim == 1:  # extension arrays hold one column
        data = data[np.newaxis, :]
    if isinstance(where, slice):
        step = where.step or 1
        if not 0 <= where.start <= where.stop <= _MOST_COLUMNS or not isinstance(step, int):
            raise _MalformedError("got a block outside its columns")
        positions = np.arange(where.start, where.stop, step, dtype=np.int64)
    else:
        positions = _array(where).astype(np.int64)
    if data.ndim != 2 or positions.shape != data.shape[:1]:
        raise _MalformedError("got a block that does not fit its columns")
    return ColumnBlock(positions, data)


def _labels(index: Any) -> Labels:
    if not (_is(index, "_new_Index") or _is(index, "_new_DatetimeIndex")):
        raise _MalformedError(f"got an index of an unknown kind ({type(index).__name__})")
    state = index.args[1]
    if "data" not in state:
        return range(state["start"], state["stop"], state["step"])
    labels = _values(state["data"])
    if labels.ndim != 1:
        raise _MalformedError("got an index of more than one dimension")
    if labels.dtype.kind == "O" and any(isinstance(label, Record) for label in labels):
        cells = [plain_cell(label) for label in labels]
        if all(isinstance(cell, np.datetime64 | np.number) for cell in cells):
            return np.array(cells)
        return np.fromiter(cells, dtype=object, count=len(cells))  # np.array would unfold nested lists
    return labels


def _values(record: Any) -> NDArray[Any]:
    """Values of a numpy or extension array."""
    if _is_array(record):
        return _array(record)
    if isinstance(record, Record) and (_is(record, "_new_Index") or _is(record, "_new_DatetimeIndex")):
        return np.asarray(_labels(record))
    if _is(record, "__pyx_unpickle_NDArrayBacked"):
        parts = record.state if record.state is not None else record.args[2]
        arrays = [part for part in parts if _is_array(part)]
        data = _values(arrays[0])
        kind = next((part for part in parts if _is(part, "CategoricalDtype")), None)
        return data if kind is None else _categories(kind, data)
    if isinstance(record, Record) and isinstance(record.state, dict):
        return _from_state(record.state)
    raise _MalformedError(f"got an array of an unknown kind ({type(record).__name__})")


def _is_array(record: Any) -> bool:
    return _is(record, "_reconstruct") or _is(record, "_frombuffer")


def _categories(kind: Record, codes: NDArray[Any]) -> NDArray[Any]:
    if codes.dtype.kind != "i":
        raise _MalformedError("got categories by something else than numbers")
    if codes.size and codes.min() < 0:
        raise _MalformedError("got a category that is missing")
    return np.asarray(np.asarray(_labels(kind.state["categories"]))[codes])


def _from_state(state: dict[str, Any]) -> NDArray[Any]:
    """Values of an extension array pickled as its attributes."""
    if "_codes" in state:
        return _categories(state["_dtype"], _values(state["_codes"]))
    for name in ("_pa_array", "_data", "_ndarray"):
        inner: Any = state.get(name)
        if _is(inner, "_restore_array") or _is(inner, "chunked_array"):
            return _arrow_strings(inner)
        if isinstance(inner, Record):
            data = _values(inner)
            mask = _values(state["_mask"]) if "_mask" in state else np.zeros(1, dtype=np.bool_)
            return np.where(mask, np.nan, data.astype(np.float64)) if mask.any() else data
    raise _MalformedError("got an array without data")


def _arrow_strings(record: Record) -> NDArray[Any]:
    """Texts of a pyarrow string array, decoded here: pyarrow would trust the offsets."""
    if _is(record, "chunked_array"):
        chunks = [_arrow_strings(chunk) for chunk in record.args[0]]
        return np.concatenate(chunks) if chunks else np.empty(0, dtype=object)
    kind, length, _, offset, buffers = record.args[0][:5]
    widths: dict[str, Callable[[], type[np.signedinteger[Any]]]] = {
        "large_string": lambda: np.int64,
        "string": lambda: np.int32,
    }
    if not _is(kind, "type_for_alias") or not isinstance(kind.args[0], str) or kind.args[0] not in widths:
        raise _MalformedError("got a pyarrow array that is not of text")
    if not all(isinstance(n, int) and 0 <= n <= 1 << 31 for n in (length, offset)):
        raise _MalformedError("got a pyarrow array of impossible size")
    if not all(buffer is None or isinstance(buffer.args[0], bytes | bytearray) for buffer in buffers):
        raise _MalformedError("got a pyarrow array without data")
    if buffers[0] is not None and not _all_valid(bytes(buffers[0].args[0]), offset, length):
        raise _MalformedError("got a text that is missing")
    ends = np.frombuffer(buffers[1].args[0], dtype=widths[kind.args[0]]())[offset : offset + length + 1]
    text = bytes(buffers[2].args[0]) if buffers[2] is not None else b""
    if ends.size != length + 1 or (np.diff(ends) < 0).any() or ends[0] < 0 or ends[-1] > len(text):
        raise _MalformedError("got a pyarrow array with damaged offsets")
    return np.array([text[a:b].decode() for a, b in itertools.pairwise(ends)], dtype=object)


def _all_valid(bitmap: bytes, offset: int, length: int) -> bool:
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little")[offset : offset + length]
    return bits.size == length and bool(bits.all())


def _array(record: Any) -> NDArray[Any]:
    """A numpy array; its memory is the file's bytes, read-only."""
    if _is(record, "_frombuffer"):
        data, kind, shape, order = record.args
    elif _is(record, "_reconstruct"):
        _, shape, kind, fortran, data = record.state
        order = "F" if fortran else "C"
    else:
        raise _MalformedError(f"got {type(record).__name__} in place of an array")
    dtype = _dtype(kind)
    if order not in ("C", "F") or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise _MalformedError("got an array of impossible shape")
    if dtype.kind == "O":
        flat = np.fromiter(data, dtype=object, count=len(data))
        order = "C"  # numpy lists objects row by row, whatever the layout in memory was
    else:
        flat = np.frombuffer(data, dtype=dtype) if len(data) else np.empty(0, dtype=dtype)
    return np.asarray(flat.reshape(tuple(shape), order=order))


def _dtype(record: Any) -> np.dtype[Any]:
    """A dtype from its code and byte order alone: a pickled one may lie about its layout."""
    if not _is(record, "dtype"):
        raise _MalformedError(f"got {type(record).__name__} in place of a dtype")
    code, state = record.args[0], record.state
    if isinstance(code, bytes):
        code = code.decode("latin1")
    if not _DTYPE_CODE.fullmatch(code):
        raise _MalformedError(f"got values of type {code!r}")
    if state is not None and any(part is not None for part in state[2:5]):
        raise _MalformedError("got values with fields")
    if code.endswith("M8"):
        unit = state[8][1][0]
        name = unit.decode("latin1") if isinstance(unit, bytes) else unit
        if name not in _UNITS.values() or state[8][1][1] != 1:
            raise _MalformedError(f"got times in units of {shortened(name)}")
        code = f"{code}[{name}]"
    dtype: np.dtype[Any] = np.dtype(code)
    if state is not None and state[1] in ("<", ">"):
        dtype = dtype.newbyteorder(state[1])
    return dtype
