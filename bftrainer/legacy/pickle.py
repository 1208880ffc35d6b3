"""Read pickled DataFrames as plain records: nothing in the file is ever called.

A pickle is code. The unpickler here admits only the globals that pandas and numpy need to rebuild a
DataFrame, and replaces each of them by a stand-in that only keeps its arguments. The result is a tree
of `Record`, which `bftrainer.legacy.frame` turns into arrays. So the pandas version does not matter,
and no argument, however crafted, reaches code of pandas, numpy or pyarrow.
"""

from __future__ import annotations

import copyreg
import pickle
import reprlib
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from bftrainer.errors import InputError, LimitError, UnsafePickleError
from bftrainer.files.opening import one_line
from bftrainer.legacy.scan import PersistentObjectError, checked


class _Sealed(type):
    """A class that pickled data cannot change."""

    def __setattr__(cls, name: str, value: object) -> NoReturn:
        raise TypeError(f"{cls.__name__} cannot be changed.")

    def __delattr__(cls, name: str) -> NoReturn:
        raise TypeError(f"{cls.__name__} cannot be changed.")


class Record(metaclass=_Sealed):
    """What a pickle says about one object: the global it names, the arguments, the state.

    Attributes
    ----------
    args : tuple
        Arguments the global would have been called with.
    state : object
        State for its `__setstate__`; None without one.
    """

    __slots__ = ("args", "state")

    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any, **_: Any) -> Any:  # noqa: D102
        record = object.__new__(cls)
        record.args = args
        record.state = None
        return record

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __repr__(self) -> str:
        return f"<pickled {type(self).__name__}>"


class _RefusedError(Exception):
    """Raised for a pickle that needs a global which is not admitted."""


class _Reconstructor(Record):
    """`copyreg._reconstructor` and `copyreg.__newobj__`: protocols 0 and 1 make instances by them."""

    def __new__(cls, made: Any, *args: Any) -> Any:
        if not isinstance(made, _Sealed):
            raise TypeError("Expected a class to make an instance of.")
        return made(*(() if cls is _Reconstructor else args))


class _NewObject(_Reconstructor):
    pass


class _Encode(Record):
    """`_codecs.encode`, with which protocols 0 to 2 write bytes."""

    def __new__(cls, text: Any, encoding: Any = None) -> Any:
        if encoding != "latin1" or not isinstance(text, str):
            raise _RefusedError(f"_codecs.encode to {reprlib.repr(encoding)}")
        return text.encode("latin1")


class _Bytearray(Record):
    def __new__(cls, data: Any = b"", *rest: Any) -> Any:
        return data if isinstance(data, bytes | bytearray) and not rest else _Encode(data, *rest)


class _Slice(Record):
    def __new__(cls, *args: Any) -> Any:
        return slice(*args)


class _ZoneInfo(Record):
    pass


class _Getattr(Record):
    """`builtins.getattr`, which only the pickled form of a zoneinfo time zone needs."""

    def __new__(cls, owner: Any = None, name: Any = None, *rest: Any) -> Any:
        if owner is not _ZoneInfo or name != "_unpickle" or rest:
            raise _RefusedError("builtins.getattr")
        return _ZoneInfo


_OWN: dict[str, type[Record]] = {
    "_reconstructor": _Reconstructor,
    "__newobj__": _NewObject,
    "encode": _Encode,
    "bytearray": _Bytearray,
    "slice": _Slice,
    "getattr": _Getattr,
    "ZoneInfo": _ZoneInfo,
    "ZoneInfo._unpickle": _ZoneInfo,
}


@cache
def _stand_in(name: str) -> type[Record]:
    return _OWN.get(name) or cast(type[Record], _Sealed(name, (Record,), {"__slots__": ()}))


_BUILTINS = "object bytearray getattr slice"
_COPYREG = "_reconstructor __newobj__"
_MULTIARRAY = "_reconstruct scalar"
_FRAMES = "DataFrame Series"
_INDEXES = "Index RangeIndex DatetimeIndex CategoricalIndex Int64Index UInt64Index NumericIndex"
_ARRAYS = (
    "ArrowStringArray ArrowStringArrayNumpySemantics BooleanArray Categorical DatetimeArray FloatingArray IntegerArray "
    "NumpyExtensionArray StringArray StringArrayNumpySemantics"
)
_TIME_DTYPES = "DatetimeTZDtype CategoricalDtype"
_INTEGER_DTYPES = "Int8Dtype Int16Dtype Int32Dtype Int64Dtype UInt8Dtype UInt16Dtype UInt32Dtype UInt64Dtype"
_FLOAT_DTYPES = "Float32Dtype Float64Dtype"
_NA = "NA C_NA"
_DTYPES = f"{_TIME_DTYPES} {_INTEGER_DTYPES} {_FLOAT_DTYPES} StringDtype BooleanDtype"

# Names by their module. pandas moves its classes between versions, so one class has several homes.
_HOMES = {
    "builtins": _BUILTINS,
    "__builtin__": _BUILTINS,
    "copyreg": _COPYREG,
    "copy_reg": _COPYREG,
    "_codecs": "encode",
    "datetime": "datetime timedelta timezone",
    "zoneinfo": "ZoneInfo ZoneInfo._unpickle",
    "pytz": "_UTC _p UTC",
    "numpy": "dtype ndarray",
    "numpy.core.multiarray": _MULTIARRAY,
    "numpy._core.multiarray": _MULTIARRAY,
    "numpy.core.numeric": "_frombuffer",
    "numpy._core.numeric": "_frombuffer",
    "pandas": f"{_FRAMES} {_INDEXES} {_DTYPES} {_NA} Categorical",
    "pandas.arrays": _ARRAYS,
    "pandas._libs.arrays": "__pyx_unpickle_NDArrayBacked",
    "pandas._libs.internals": "_unpickle_block",
    "pandas._libs.missing": _NA,
    "pandas._libs.tslibs.nattype": "_nat_unpickle __nat_unpickle",
    "pandas._libs.tslibs.offsets": "Day Hour Minute Second Milli Micro Nano",
    "pandas._libs.tslibs.timestamps": "_unpickle_timestamp Timestamp",
    "pandas.core.arrays.boolean": "BooleanArray BooleanDtype",
    "pandas.core.arrays.categorical": "Categorical",
    "pandas.core.arrays.datetimes": "DatetimeArray",
    "pandas.core.arrays.floating": f"FloatingArray {_FLOAT_DTYPES}",
    "pandas.core.arrays.integer": f"IntegerArray {_INTEGER_DTYPES}",
    "pandas.core.arrays.string_": f"{_ARRAYS} StringDtype",
    "pandas.core.arrays.string_arrow": _ARRAYS,
    "pandas.core.dtypes.dtypes": _TIME_DTYPES,
    "pandas.core.frame": _FRAMES,
    "pandas.core.series": _FRAMES,
    "pandas.core.indexes.base": f"{_INDEXES} _new_Index",
    "pandas.core.indexes.category": _INDEXES,
    "pandas.core.indexes.datetimes": f"{_INDEXES} _new_DatetimeIndex",
    "pandas.core.indexes.numeric": _INDEXES,
    "pandas.core.indexes.range": _INDEXES,
    "pandas.core.internals.managers": "BlockManager SingleBlockManager",
    "pyarrow.lib": "_restore_array chunked_array py_buffer type_for_alias",
}
_ADMITTED = {module: {name: _stand_in(name) for name in names.split()} for module, names in _HOMES.items()}


class _RecordUnpickler(pickle.Unpickler):
    """Admits the globals above and nothing else; nested names are never followed."""

    def __init__(self, small: BinaryIO, large: list[bytes]) -> None:
        super().__init__(small)
        self._large = large

    def find_class(self, module: str, name: str) -> type[Record]:
        """Stand-in of a global, or refusal."""
        try:
            return _ADMITTED[module][name]
        except KeyError:
            raise _RefusedError(f"{module}.{name}") from None

    def persistent_load(self, pid: Any) -> bytes:
        """A byte string that the scan set apart; the file itself can hold no persistent objects."""
        data: bytes = self._large[pid]
        return data


def load_records(stream: BinaryIO, name: str, error: type[InputError] = InputError) -> Any:
    """Content of the pickle in `stream`, of any protocol, with records in place of objects.

    Parameters
    ----------
    stream : binary file
        Stream that is read once, from start to end.
    name : str
        Name of the file in messages.
    error : type of InputError
        Error to raise if it is not a complete pickle.

    Raises
    ------
    UnsafePickleError
        If it names a global that pandas and numpy data never need.
    """
    # Globals that other code cached for extension codes would bypass find_class.
    copyreg.clear_extension_cache()
    try:
        return _RecordUnpickler(*checked(stream, Path(name))).load()
    except (_RefusedError, PersistentObjectError) as refused:
        raise UnsafePickleError(
            f"{name}: refused to load {one_line(refused)} (only pandas and numpy data are read)."
        ) from None
    except EOFError:
        raise error(f"{name}: Expected a pickled pandas DataFrame, got a file that ends early.") from None
    except (OSError, LimitError):
        raise
    except Exception as cause:  # an unpickler fed with noise may raise anything
        raise error(f"{name}: Expected a pickled pandas DataFrame, got something else ({one_line(cause)}).") from None
