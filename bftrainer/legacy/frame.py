"""Read pickled DataFrames, of any pandas and protocol, without running anything that they name.

A pickle is code, and so is what pandas and numpy make of an array whose size, type or codes lie. Here every name that a
DataFrame needs stands for a function of this module, which checks what it is given and makes a plain array of it; all
other names are refused. An object is made once, when its state is known, and cannot be changed afterwards. Python's
own unpickler, in Python, runs the steps: it keeps what is memoized in a dict, whatever index a damaged file claims.
"""

from __future__ import annotations

import copyreg
import pickle
import re
import reprlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import InputError, LimitError, UnsafePickleError
from bftrainer.files.budgets import LOG_BYTES, SETTING, most_bytes
from bftrainer.files.opening import one_line

Labels = NDArray[Any] | range

_DTYPE_CODE = re.compile(r"[<>|=]?(b1|i[1248]|u[1248]|f[248]|O8?|M8(\[(ns|us|ms|s)\])?|[US]\d{1,6})")
_UNITS = {7: "s", 8: "ms", 9: "us", 10: "ns"}  # NPY_DATETIMEUNIT, numpy/ndarraytypes.h
_MOST_COLUMNS = 1 << 22  # a small file may claim any number of columns
_MOST = 1 << 64  # limits the length of whole numbers


class _RefusedError(Exception):
    """Raised for a pickle that needs a global which is not admitted."""


class _MalformedError(Exception):
    """Raised for arguments that make no readable DataFrame."""


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
        at = ((block, np.flatnonzero(block.columns == position)) for block in self.blocks)
        return next(np.asarray(block.values[where[0]]) for block, where in at if where.size)


def read_pickled_frame(
    stream: BinaryIO, name: str, error: type[InputError] = InputError, columns: str = "column names"
) -> Frame:
    """Read a DataFrame pickled by any pandas, in any protocol, without running anything the file names.

    Parameters
    ----------
    stream : binary file
        Stream that is read once, from start to end.
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
    copyreg.clear_extension_cache()  # what other code cached would bypass find_class
    try:
        found = _FrameUnpickler(stream, Path(name)).load()
    except _RefusedError as refused:
        why = f"refused to load {one_line(refused)} (only pandas and numpy data are read)"
        raise UnsafePickleError(f"{name}: {why}.") from None
    except _MalformedError as cause:
        raise error(f"{name}: Expected a readable DataFrame, {one_line(cause)}.") from None
    except EOFError:
        raise error(f"{name}: Expected a pickled pandas DataFrame, got a file that ends early.") from None
    except (OSError, LimitError, ImportError):  # pyarrow may be there and not load
        raise
    except Exception as cause:  # an unpickler fed with noise may raise anything
        raise error(f"{name}: Expected a pickled pandas DataFrame, got something else ({one_line(cause)}).") from None
    if not isinstance(found, Frame):
        kind = found.name if isinstance(found, _Named) else type(found).__name__
        raise error(f"{name}: Expected a pickled pandas DataFrame, got a pickled {kind}.")
    return replace(found, columns=label_texts(found.columns, f"{name}: ", columns, error))


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
    if isinstance(value, int | float | np.generic):
        return str(value)
    if isinstance(value, np.ndarray):
        value = value.flat[:10].tolist()
    plain = value is None or isinstance(value, str | bytes | list | tuple | dict | _Named)
    return one_line(reprlib.repr(value)) if plain else f"a {type(value).__name__}"


@dataclass(slots=True, eq=False)
class _Named:
    """A name in the file, or, with `args`, an object of this name whose state is not known yet or does not matter."""

    name: str
    call: Callable[..., Any] | None = None
    finish: Callable[[Any], Any] | None = None
    args: Sequence[Any] | None = None
    finished: Any = None

    def made(self, *args: Any) -> Any:
        """What a call of this name makes."""
        if self.args is not None:
            raise TypeError("a call of what is no function")
        return self.call(*args) if self.call else _Named(self.name, None, self.finish, args)

    def __repr__(self) -> str:
        return f"<pickled {self.name}>"


def _octets(text: Any = b"", encoding: Any = None) -> bytes:
    """Bytes, which protocols 0 to 2 write as `_codecs.encode`; other codecs may be slow, or unpack bombs."""
    if isinstance(text, bytes):
        return text
    if encoding not in ("latin1", "latin-1") or not isinstance(text, str):
        raise _RefusedError(f"_codecs.encode to {reprlib.repr(encoding)}")
    return text.encode("latin1")


def _attribute(owner: Any, name: Any) -> Any:
    """`builtins.getattr`, which only the pickled form of a zoneinfo time zone needs."""
    if not (isinstance(owner, _Named) and owner.name == "ZoneInfo" and name == "_unpickle"):
        raise _RefusedError("builtins.getattr")
    return owner


def _dtype(code: Any, state: Any) -> np.dtype[Any]:
    """A dtype from its code and byte order alone: a pickled one may lie about its layout."""
    if not _DTYPE_CODE.fullmatch(code) or any(part is not None for part in state[2:5]):
        raise _MalformedError(f"got values of type {code!r}")
    if code.endswith("M8"):
        unit, steps = state[8][1][:2]
        unit = unit.decode("latin1") if isinstance(unit, bytes) else unit
        if unit not in _UNITS.values() or steps != 1:
            raise _MalformedError(f"got times in units of {shortened(unit)}")
        code = f"{code}[{unit}]"
    dtype: np.dtype[Any] = np.dtype(code)
    return dtype.newbyteorder(state[1]) if state[1] in ("<", ">") else dtype


def _array(data: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
    """A numpy array; its memory is the file's bytes, read-only."""
    if not isinstance(dtype, np.dtype) or order not in ("C", "F") or not all(type(n) is int and n >= 0 for n in shape):
        raise _MalformedError("got an array of impossible shape")
    if dtype.kind == "O" and isinstance(data, list):
        flat = np.fromiter(data, dtype=object, count=len(data))
        order = "C"  # numpy lists objects row by row, whatever the layout in memory was
    else:
        flat = np.frombuffer(data, dtype=dtype) if len(data) else np.empty(0, dtype=dtype)
    return np.asarray(flat.reshape(tuple(shape), order=order))


def _timestamp(value: Any, _freq: Any = None, _zone: Any = None, unit: Any = 10) -> Any:
    return np.int64(int(value)).astype(f"M8[{_UNITS[int(unit)]}]")


def _text(parts: Any) -> NDArray[Any]:
    """Texts of a pyarrow string array, checked by pyarrow before it trusts the offsets."""
    import pyarrow as pa

    kind, length, _, offset, buffers = parts[:5]
    if kind not in ("string", "large_string") or not all(type(n) is int and 0 <= n < 1 << 31 for n in (length, offset)):
        raise _MalformedError("got a pyarrow array that is not of text, or of impossible size")
    held = [None if data is None else pa.py_buffer(data) for data in buffers]
    array = pa.Array.from_buffers(pa.type_for_alias(kind), length, held, offset=offset)
    array.validate(full=True)
    if array.null_count:
        raise _MalformedError("got a text that is missing")
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=object)


def _values(data: Any) -> NDArray[Any]:
    """Values of a numpy array or index."""
    if isinstance(data, range) and len(data) <= _MOST_COLUMNS:
        return np.asarray(data)
    if not isinstance(data, np.ndarray):
        raise _MalformedError(f"got an array of an unknown kind ({shortened(data)})")
    return data


@dataclass(frozen=True, slots=True, eq=False)
class _Categories:
    labels: Any

    def of(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Category of each code."""
        labels = _values(self.labels)
        if codes.dtype.kind != "i" or labels.ndim != 1 or (codes.size and codes.min() < 0):
            raise _MalformedError("got a category that is missing")
        return np.asarray(labels[codes])


def _extension(state: Any) -> NDArray[Any]:
    """Values of an extension array, pickled as its attributes, or as array and type (of dates, or of categories)."""
    if not isinstance(state, dict):
        state = {"_data" if isinstance(part, np.ndarray) else "_dtype": part for part in state[:2]}
    kind, mask = state.get("_dtype"), state.get("_mask")
    data = _values(next(state[name] for name in ("_pa_array", "_data", "_ndarray", "_codes") if name in state))
    if mask is not None and (mask.dtype != np.bool_ or mask.shape != data.shape):
        raise _MalformedError("got a mask that does not fit its array")
    if mask is not None and mask.any():
        return np.where(mask, np.nan, data.astype(np.float64))
    return kind.of(data) if isinstance(kind, _Categories) else data


def _labels(_: Any, state: Any) -> Labels:
    if "data" not in state:
        return range(state["start"], state["stop"], state["step"])
    labels = _values(state["data"])
    if labels.ndim != 1:
        raise _MalformedError("got an index of more than one dimension")
    dates = labels.dtype.kind == "O" and labels.size and all(isinstance(label, np.datetime64) for label in labels)
    return np.array(labels.tolist()) if dates else labels


def _positions(where: Any, count: int) -> NDArray[np.int64]:
    places = range(*where.indices(_MOST_COLUMNS)) if isinstance(where, slice) else where
    if len(places) != count:
        raise _MalformedError("got a block that does not fit its columns")
    return _values(places).astype(np.int64)


def _old_manager(state: Any) -> _Named:
    """A manager of pandas before 1.3, as the call of a later one; "0.14.1" is the only form there ever was."""
    old = state[-1]["0.14.1"]
    return _Named("BlockManager", args=([(block["values"], block["mgr_locs"]) for block in old["blocks"]], old["axes"]))


def _frame(state: Any) -> Frame:
    """A DataFrame whose column labels are not text yet."""
    parts, (labels, index) = state.get("_mgr", state.get("_data")).args[:2]
    values = [np.atleast_2d(_values(part)) for part, _ in parts]  # extension arrays hold one column
    if len(labels) > _MOST_COLUMNS or sum(map(len, values)) != len(labels):
        raise _MalformedError(f"got other columns than the {len(labels)} that have a name")
    blocks = tuple(
        ColumnBlock(_positions(where, len(each)), each) for each, (_, where) in zip(values, parts, strict=True)
    )
    if any(block.values.shape[1:] != (len(index),) for block in blocks):
        raise _MalformedError("got columns of another length than its index")
    taken = np.concatenate([np.empty(0, dtype=np.int64), *(block.columns for block in blocks)])
    if not np.array_equal(np.sort(taken), np.arange(len(labels))):
        raise _MalformedError("got blocks that do not cover its columns once")
    return Frame(index, labels, blocks)


_ARRAYS = (
    "ArrowStringArray ArrowStringArrayNumpySemantics BooleanArray Categorical DatetimeArray FloatingArray IntegerArray "
    "NumpyExtensionArray StringArray StringArrayNumpySemantics __pyx_unpickle_NDArrayBacked"
)
# What a name stands for: something made by a call, something made when its state is known, or nothing that matters.
# pandas moves its names between modules; as none is imported, those of one package are listed together.
_CALLED: dict[str, dict[str, Callable[..., Any]]] = {
    "builtins": {"bytearray": _octets, "getattr": _attribute, "slice": slice},
    "copyreg": {"_reconstructor": lambda named, *_: named.made(), "__newobj__": lambda named, *args: named.made(*args)},
    "_codecs": {"encode": _octets},
    "numpy": {
        "dtype": lambda code, *_: _Named("dtype", None, partial(_dtype, code), ()),
        "_frombuffer": _array,
        "scalar": lambda dtype, data: _array(data, dtype, (1,), "C")[0],
    },
    "pandas": {
        "_new_Index": _labels,
        "_new_DatetimeIndex": _labels,
        "_unpickle_block": lambda values, where, _: (values, where),
        "_unpickle_timestamp": _timestamp,
        "Timestamp": _timestamp,
        "_nat_unpickle": lambda *_: np.datetime64("NaT", "ns"),
        "__nat_unpickle": lambda *_: np.datetime64("NaT", "ns"),
    },
    "pyarrow": {
        "_restore_array": _text,
        "chunked_array": lambda chunks, *_: np.concatenate([np.empty(0, dtype=object), *map(_values, chunks)]),
        "py_buffer": lambda data: data,
        "type_for_alias": lambda alias: alias,
    },
}
_FINISHED: dict[str, dict[str, Callable[[Any], Any]]] = {
    "numpy": {"_reconstruct": lambda state: _array(state[-1], state[-3], state[-4], "CF"[state[-2]])},
    "pandas": {
        "DataFrame": _frame,
        "BlockManager": _old_manager,
        "CategoricalDtype": lambda state: _Categories(state["categories"]),
        **dict.fromkeys(_ARRAYS.split(), _extension),
    },
}
_OTHERS = {
    "builtins": "object",
    "datetime": "datetime timedelta timezone",
    "zoneinfo": "ZoneInfo ZoneInfo._unpickle",
    "pytz": "_UTC _p UTC",
    "numpy": "ndarray",
    "pandas": "Series SingleBlockManager Index RangeIndex DatetimeIndex CategoricalIndex Int64Index UInt64Index "
    "NumericIndex DatetimeTZDtype Int8Dtype Int16Dtype Int32Dtype Int64Dtype UInt8Dtype UInt16Dtype UInt32Dtype "
    "UInt64Dtype Float32Dtype Float64Dtype StringDtype BooleanDtype NA C_NA Day Hour Minute Second Milli Micro Nano",
}
_FORMER = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_MOST_STEPS = 500_000  # 34 times those of the Summit log
_STEP_BYTES = 1 << 10  # making so many bytes counts as a step: a call may copy again and again what the file holds once
_OBJECT_BYTES = 64
_Unpickler: Any = pickle._Unpickler


class _Steps(dict[int, Any]):
    """The steps that an unpickler knows; counts those taken."""

    def __init__(self, steps: dict[int, Any], path: Path) -> None:
        super().__init__(steps)
        self.path, self.taken = path, 0
        self.most = _MOST_STEPS * max(1.0, most_bytes() / LOG_BYTES)

    def __getitem__(self, code: int) -> Any:
        self.count(1)
        return super().__getitem__(code)

    def count(self, steps: int) -> None:
        """Refuse a pickle that takes too many."""
        self.taken += steps
        if self.taken > self.most:
            limit = f"at most {self.most:,.0f} steps"
            raise LimitError(f"{self.path}: Expected {limit} of a pickle, got more; {SETTING} raises the limit.")


class _Memo(dict[int, Any]):
    """What may be referred to again, as it is when finished."""

    def __getitem__(self, place: int) -> Any:
        value = super().__getitem__(place)
        return value if not isinstance(value, _Named) or value.finished is None else value.finished


class _FrameUnpickler(_Unpickler):  # type: ignore[misc]
    """Makes what the tables above say, of lists, dicts whose keys are text, and scalars."""

    def __init__(self, stream: BinaryIO, path: Path) -> None:
        super().__init__(stream)
        self.memo, self.dispatch = _Memo(), _Steps(_STEPS, path)

    def find_class(self, module: str, name: str) -> _Named:
        """What a name stands for, or refusal; nested names are never followed."""
        package = _FORMER.get(module, module).partition(".")[0]
        called, finished = (table.get(package, {}).get(name) for table in (_CALLED, _FINISHED))
        if called is None and finished is None and name not in _OTHERS.get(package, "").split():
            raise _RefusedError(f"{module}.{name}")
        return _Named(name, called, finished)

    def persistent_load(self, _: Any) -> Any:
        """Refuse an object outside the file."""
        raise _RefusedError("a persistent object")

    def take_call(self) -> None:
        """Call what a name stands for."""
        args, named = self.stack.pop(), self.stack.pop()
        self._made(named.made(*args))

    def take_state(self) -> None:
        """Finish an object, if its state matters."""
        state, named = self.stack.pop(), self.stack.pop()
        if not isinstance(named, _Named) or named.args is None:
            raise TypeError("a state of what has none")
        if named.finish is not None:
            named.finished = named.finish(state)
        self._made(named if named.finished is None else named.finished)

    def _made(self, made: Any) -> None:
        count = made.size if isinstance(made, np.ndarray) and made.dtype.kind == "O" else 0
        count = len(made.columns) if isinstance(made, Frame) else count
        self.dispatch.count((sys.getsizeof(made) + _OBJECT_BYTES * count) // _STEP_BYTES)
        self.append(made)

    def update(self, items: list[Any]) -> None:
        """Add to the dict on the stack; nested tuples, as keys, take a hundred bytes to write and forever to hash."""
        if not all(type(key) is str for key in items[::2]):
            raise TypeError("a key that is no text")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def take_dict(self) -> None:
        """Make a dict of what follows a mark."""
        items = self.pop_mark()
        self.append({})
        self.update(items)


_UNUSED = (pickle.NEWOBJ_EX, pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET)
_STEPS: dict[int, Callable[[Any], None]] = {
    **{code: step for code, step in _Unpickler.dispatch.items() if bytes([code]) not in _UNUSED},
    pickle.REDUCE[0]: _FrameUnpickler.take_call,
    pickle.NEWOBJ[0]: _FrameUnpickler.take_call,
    pickle.BUILD[0]: _FrameUnpickler.take_state,
    pickle.SETITEM[0]: lambda self: self.update([self.stack.pop(-2), self.stack.pop()]),
    pickle.SETITEMS[0]: lambda self: self.update(self.pop_mark()),
    pickle.DICT[0]: _FrameUnpickler.take_dict,
    # pickle would make room for as many bytes as the file claims
    pickle.BYTEARRAY8[0]: lambda self: self.append(self.read(int.from_bytes(self.read(8), "little"))),
}
