"""Read pickled DataFrames, of any pandas and protocol, without running anything that they name.

A pickle is code, and so is what pandas and numpy make of it: of blocks that lie about their columns, or arrays nested
without end, the process dies. Here unpickling only notes which admitted name is called with which arguments; all other
names are refused. Afterwards plain arrays are made of the notes, and checked. Python's own unpickler, in Python, runs
the steps: it keeps what is memoized in a dict, whatever index a damaged file claims.
"""

from __future__ import annotations

import copyreg
import pickle
import re
import reprlib
import tarfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import InputError
from bftrainer.files.opening import LOG_BYTES, SETTING, Form, form_of, most_bytes, one_line, open_plain, translated

_DTYPE_CODE = re.compile(r"[<>|=]?(b1|i[1248]|u[1248]|f[248]|O8?|M8(\[(ns|us|ms|s)\])?|[US]\d{1,6})")
_TARRED = re.compile(r"(.*/)?(?!\._)[^/]*\.(pkl|pickle)", re.IGNORECASE | re.DOTALL)  # not those that macOS adds
_UNITS = {7: "s", 8: "ms", 9: "us", 10: "ns"}  # NPY_DATETIMEUNIT, numpy/ndarraytypes.h
_MOST_LABELS = 1 << 20  # a small file may claim any number of columns
_MOST_STEPS = 500_000  # 34 times those of the Summit log
_MOST = 1 << 64  # limits the length of whole numbers


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A DataFrame without pandas: row labels (datetime64 in UTC for times), and names and values of its columns."""

    index: NDArray[Any] | range
    columns: tuple[str, ...]
    values: list[NDArray[Any]]


def read_pickle_file(
    path: Path, error: type[InputError], columns: str = "column names", usual: int = LOG_BYTES
) -> Frame:
    """Read the DataFrame of a pickle, packed or not, or of the one `.pkl` of a tar; see `read_pickled_frame`."""
    is_tar = form_of(path, error) is Form.TAR
    with translated(path, error), open_plain(path, usual) as stream:
        if not is_tar:
            return read_pickled_frame(stream, str(path), error, columns)
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            members = (entry for entry in iter(archive.next, None) if entry.isfile() and _TARRED.fullmatch(entry.name))
            if (member := next(members, None)) is None or (content := archive.extractfile(member)) is None:
                raise error(f"{path}: Expected a .pkl in the archive, got none.")
            frame = read_pickled_frame(content, str(path), error, columns)
            if next(members, None) is not None:
                raise error(f"{path}: Expected one .pkl in the archive, got several.")
            return frame


def read_pickled_frame(
    stream: IO[bytes], name: str, error: type[InputError] = InputError, columns: str = "column names"
) -> Frame:
    """Read a pickled DataFrame; `error` if it is none, `InputError` if it names more than pandas data need.

    Messages call the file `name`, and its column labels `columns`.
    """
    copyreg.clear_extension_cache()  # what other code cached would bypass find_class
    expected = f"{name}: Expected a pickled pandas DataFrame"
    try:
        content = _NotingUnpickler(stream, name).load()
        if not (isinstance(content, _Note) and content.name == "DataFrame" and content.state is not None):
            kind = content.name if isinstance(content, _Note) else type(content).__name__
            raise error(f"{expected}, got a pickled {kind}.")
        frame = _make_frame(content.state["_mgr"])
        return replace(frame, columns=tuple(label_texts(frame.columns, f"{name}: ", columns, error)))
    except EOFError:
        raise error(f"{expected}, got a file that ends early.") from None
    except (OSError, ImportError, InputError):
        raise
    except Exception as cause:  # an unpickler fed with noise may raise anything
        raise error(f"{expected}, got something else ({one_line(cause)}).") from None


def label_texts(labels: Iterable[Any], where: str, what: str, error: type[InputError]) -> list[str]:
    """Labels as text, whole numbers among them; anything else, which may print without end, is refused as `error`."""
    texts = []
    for label in labels:
        is_whole = isinstance(label, int | np.integer) and not isinstance(label, bool) and abs(int(label)) < _MOST
        if not (is_whole or isinstance(label, str)):
            raise error(f"{where}Expected {what} to be text, got {shorten(label)}.")
        texts.append(str(label))
    return texts


def shorten(value: Any) -> str:
    """Text of a scalar; anything else is shortened, as a pickle may nest lists without end."""
    if isinstance(value, int) and abs(value) >= _MOST:
        return "a number of many digits"
    if isinstance(value, int | float | np.generic):
        return str(value)
    if isinstance(value, np.ndarray):
        value = value.flat[:10].tolist()
    is_plain = value is None or isinstance(value, str | bytes | list | tuple | dict | _Note)
    return one_line(reprlib.repr(value)) if is_plain else f"a {type(value).__name__}"


@dataclass(eq=False)
class _Note:
    """A name in the file; with `args`, what a call of it gives, and the state that it got afterwards.

    Its `value`, an array, index or scalar, is made once, as a file may hold many references to one note.
    """

    name: str
    args: Sequence[Any] | None = None
    state: Any = None
    value: Any = None

    def __repr__(self) -> str:
        return f"<pickled {self.name}>"


_ARRAYS = "ArrowStringArray ArrowStringArrayNumpySemantics DatetimeArray NumpyExtensionArray StringArray "
_ARRAYS += "StringArrayNumpySemantics __pyx_unpickle_NDArrayBacked"
# pandas moves its names between modules; as none is imported, those of one package are listed together.
_ADMITTED = {
    "builtins": "bytearray getattr slice object",
    "copyreg": "_reconstructor __newobj__",
    "_codecs": "encode",
    "datetime": "datetime timedelta timezone",
    "zoneinfo": "ZoneInfo ZoneInfo._unpickle",
    "pytz": "_UTC _p UTC",
    "numpy": "dtype ndarray scalar _frombuffer _reconstruct",
    "pandas": "DataFrame BlockManager _new_Index _new_DatetimeIndex _unpickle_block _unpickle_timestamp Timestamp "
    "_nat_unpickle __nat_unpickle Series SingleBlockManager Index RangeIndex DatetimeIndex Int64Index UInt64Index "
    f"NumericIndex DatetimeTZDtype StringDtype Day Hour Minute Second Milli Micro Nano NA C_NA {_ARRAYS}",
    "pyarrow": "_restore_array chunked_array py_buffer type_for_alias",
}
_FORMER = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_Unpickler: Any = pickle._Unpickler


class _NotingUnpickler(_Unpickler):  # type: ignore[misc]
    """Makes notes of names and calls, lists, dicts whose keys are text, and scalars, in a limited number of steps."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        super().__init__(stream)
        self.name, self.dispatch = name, self
        self.steps, self.most = 0, _MOST_STEPS * max(1.0, most_bytes() / LOG_BYTES)

    def __getitem__(self, code: int) -> Callable[[Any], None]:
        """The step that a byte stands for."""
        self.steps += 1
        if self.steps > self.most:
            raise ValueError(f"more than {self.most:,.0f} steps; {SETTING} raises the limit")
        return _STEPS[code]

    def refuse(self, what: str) -> NoReturn:
        """Refuse what no log or task set needs."""
        raise InputError(f"{self.name}: refused to load {one_line(what)} (only pandas and numpy data are read).")

    def find_class(self, module: str, name: str) -> _Note:
        """Note of an admitted name, or refusal; nested names are never followed."""
        package = _FORMER.get(module, module).partition(".")[0]
        if name not in _ADMITTED.get(package, "").split():
            self.refuse(f"{module}.{name}")
        return _Note(name)

    def persistent_load(self, _: Any) -> NoReturn:
        """Refuse an object outside the file."""
        self.refuse("a persistent object")

    def note_call(self) -> None:
        """Note a call of a name."""
        args, called = self.stack.pop(), self.stack.pop()
        if called.name in ("_reconstructor", "__newobj__"):
            called, *args = args
        if called.args is not None:
            raise TypeError("a call of what is no function")
        # Other codecs may be slow, or unpack bombs, and only the pickled form of a time zone needs `getattr`.
        if called.name == "encode" and not (isinstance(args[0], str) and args[1] in ("latin1", "latin-1")):
            self.refuse(f"_codecs.encode to {reprlib.repr(args[1])}")
        if called.name == "getattr" and not (isinstance(args[0], _Note) and args[0].name == "ZoneInfo"):
            self.refuse("builtins.getattr")
        self.append(args[0] if called.name == "getattr" else _Note(called.name, args))

    def note_state(self) -> None:
        """Note the state of an object."""
        state, note = self.stack.pop(), self.stack[-1]
        if note.args is None:
            raise TypeError("a state of what has none")
        note.state = state

    def update(self, items: list[Any]) -> None:
        """Add to the dict on the stack; nested tuples, as keys, take a hundred bytes to write and forever to hash."""
        if not all(type(key) is str for key in items[::2]):
            raise TypeError("a key that is no text")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def make_dict(self) -> None:
        """Make a dict of what follows a mark."""
        items = self.pop_mark()
        self.append({})
        self.update(items)


_UNUSED = (pickle.NEWOBJ_EX, pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET)
_STEPS: dict[int, Callable[[Any], None]] = {
    **{code: step for code, step in _Unpickler.dispatch.items() if bytes([code]) not in _UNUSED},
    pickle.REDUCE[0]: _NotingUnpickler.note_call,
    pickle.NEWOBJ[0]: _NotingUnpickler.note_call,
    pickle.BUILD[0]: _NotingUnpickler.note_state,
    pickle.SETITEM[0]: lambda self: self.update([self.stack.pop(-2), self.stack.pop()]),
    pickle.SETITEMS[0]: lambda self: self.update(self.pop_mark()),
    pickle.DICT[0]: _NotingUnpickler.make_dict,
    # pickle would make room for as many bytes as the file claims
    pickle.BYTEARRAY8[0]: lambda self: self.append(self.read(int.from_bytes(self.read(8), "little"))),
}


def _make_frame(manager: Any) -> Frame:
    """A DataFrame whose column labels are not text yet, of its blocks; each of their cells is taken once."""
    if manager.state is None:
        blocks, axes = manager.args[:2]
        pairs = [block.args[:2] for block in blocks]
    else:  # pandas before 1.3; "0.14.1" is the only form there ever was
        state = manager.state[-1]["0.14.1"]
        axes, pairs = state["axes"], [(block["values"], block["mgr_locs"]) for block in state["blocks"]]
    columns, index = map(_evaluate, axes)
    matrices = [np.atleast_2d(_evaluate(matrix)) for matrix, _ in pairs]  # extension arrays hold one column
    if len(columns) > _MOST_LABELS or sum(map(len, matrices)) != len(columns):
        raise ValueError(f"other columns than the {len(columns)} that have a name")
    values: dict[int, NDArray[Any]] = {}
    for matrix, (_, where) in zip(matrices, pairs, strict=True):
        is_slice = isinstance(where, _Note) and where.name == "slice"
        places = range(*slice(*where.args).indices(len(columns))) if is_slice else _evaluate(where).tolist()
        if matrix.shape != (len(places), len(index)):
            raise ValueError("a block that does not fit its columns and its index")
        values |= dict(zip(places, matrix, strict=True))
    if values.keys() != set(range(len(columns))):
        raise ValueError("blocks that do not cover its columns once")
    return Frame(index, columns, [values[place] for place in range(len(columns))])


def _evaluate(note: Any) -> Any:
    """Value of an array, an index, or a scalar."""
    if not isinstance(note, _Note):
        raise ValueError(f"an array of an unknown kind, {shorten(note)}")
    if note.value is None:
        note.value = _make_value(note)
    return note.value


def _make_value(note: _Note) -> Any:
    match note.name, note.args:
        case "_frombuffer", (data, dtype, shape, order):
            return _make_array(data, dtype, shape, order)
        case "_reconstruct", [*_]:
            _, shape, dtype, is_column_by_column, data = note.state
            return _make_array(data, dtype, shape, "CF"[is_column_by_column])
        case "scalar", [dtype, data]:
            return _make_array(data, dtype, (1,), "C")[0]
        case "_nat_unpickle" | "__nat_unpickle", [*_]:
            return np.datetime64("NaT", "ns")
        case "_unpickle_timestamp" | "Timestamp", [count, *more]:
            return np.int64(int(count)).astype(f"M8[{_UNITS[int(more[2]) if len(more) > 2 else 10]}]")
        case "_restore_array", ((kind, length, _, offset, buffers, *_), *_):
            return _read_arrow_texts(kind, length, offset, buffers)
        case "chunked_array", (chunks, *_):
            texts = [np.empty(0, dtype=object), *map(_evaluate, chunks)]
            if sum(map(len, texts)) > _MOST_LABELS:
                raise ValueError(f"more than {_MOST_LABELS:,} texts")
            return np.concatenate(texts)
        case "_new_Index" | "_new_DatetimeIndex", (_, state, *_):
            if "data" not in state:
                return range(state["start"], state["stop"], state["step"])
            if (labels := np.asarray(_evaluate(state["data"]))).ndim != 1:
                raise ValueError("an index of more than one dimension")
            return labels
        case name, [*_] if name in _ARRAYS.split():  # pickled as its attributes, or as array and type
            state = note.state.values() if isinstance(note.state, dict) else note.state
            arrays = ("_reconstruct", "_frombuffer", "_restore_array", "chunked_array", *_ARRAYS.split())
            return _evaluate(next(item for item in state if getattr(item, "name", "") in arrays))
    raise ValueError(f"an array of an unknown kind, {shorten(note)}")


def _make_array(data: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
    """A numpy array; its memory is the file's bytes, read-only."""
    kind = _make_dtype(dtype)
    if order not in ("C", "F") or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("an array of impossible shape")
    if kind.kind == "O" and isinstance(data, list):
        lists: dict[int, Any] = {}
        flat = np.fromiter((_make_cell(cell, lists) for cell in data), dtype=object, count=len(data))
        order = "C"  # numpy lists objects row by row, whatever the layout in memory was
    else:
        octets = _read_octets(data)
        flat = np.frombuffer(octets, dtype=kind) if len(octets) else np.empty(0, dtype=kind)
    return np.asarray(flat.reshape(tuple(shape), order=order))


def _make_cell(cell: Any, lists: dict[int, Any]) -> Any:
    """Number, text, date, array of numbers, or list of such, in an array of objects; `lists` are made once."""
    if not isinstance(cell, list | tuple):
        return _make_item(cell)
    if id(cell) not in lists:
        lists[id(cell)] = type(cell)(map(_make_item, cell))
    return lists[id(cell)]


def _make_item(item: Any) -> Any:
    value = _evaluate(item) if isinstance(item, _Note) else item
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        raise ValueError("arrays of objects in each other")  # which take forever to print
    return value


def _make_dtype(note: Any) -> np.dtype[Any]:
    """A dtype from its code and byte order alone: a pickled one may lie about its layout."""
    code, state = note.args[0], note.state
    if code.endswith("M8"):  # its unit is in its state, and how many of it a step has
        unit, step = state[8][1][:2]
        code = f"{code}[{'' if step == 1 else step}{_read_octets(unit).decode('latin1')}]"
    if note.name != "dtype" or not _DTYPE_CODE.fullmatch(code) or any(value is not None for value in state[2:5]):
        raise ValueError(f"values of type {shorten(code)}")
    dtype: np.dtype[Any] = np.dtype(code)
    return dtype.newbyteorder(state[1]) if state[1] in ("<", ">") else dtype


def _read_octets(value: Any) -> bytes:
    """Bytes, which older protocols write as text, in calls of `_codecs.encode` or `bytearray`."""
    while isinstance(value, _Note) and value.name in ("encode", "bytearray", "py_buffer"):
        value = value.args[0] if value.args else b""
    if not isinstance(value, str | bytes | bytearray | pickle.PickleBuffer):
        raise ValueError(f"{shorten(value)} instead of bytes")
    return value.encode("latin1") if isinstance(value, str) else bytes(value)


def _read_arrow_texts(kind: Any, length: Any, offset: Any, buffers: Any) -> NDArray[Any]:
    """Texts of a pyarrow string array, which pyarrow checks."""
    import pyarrow as pa

    kind = kind.args[0] if isinstance(kind, _Note) and kind.args else kind  # an alias of the type
    octets = [None if buffer is None else pa.py_buffer(_read_octets(buffer)) for buffer in buffers]
    texts = pa.Array.from_buffers(pa.type_for_alias(kind), length, octets, offset=offset)
    texts.validate(full=True)
    if texts.null_count:
        raise ValueError("a text that is missing")
    return np.array(texts.to_pylist(), dtype=object)
