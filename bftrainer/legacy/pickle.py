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


def _named(*names: str) -> dict[str, type[Record]]:
    return {name: cast(type[Record], _Sealed(name, (Record,), {"__slots__": ()})) for name in names}


_BUILTINS: dict[str, type[Record]] = {
    **_named("object"),
    "bytearray": _Bytearray,
    "getattr": _Getattr,
    "slice": _Slice,
}
_COPYREG: dict[str, type[Record]] = {"_reconstructor": _Reconstructor, "__newobj__": _NewObject}
_MULTIARRAY = _named("_reconstruct", "scalar")
_NUMERIC = _named("_frombuffer")
_INDEXES = _named(
    "Index", "RangeIndex", "DatetimeIndex", "CategoricalIndex", "Int64Index", "UInt64Index", "NumericIndex"
)
_FRAMES = _named("DataFrame", "Series")
_TIME_DTYPE = _named("DatetimeTZDtype", "CategoricalDtype")
_STRING_DTYPE = _named("StringDtype")
_NA = _named("NA", "C_NA")
_ARRAYS = _named(
    "ArrowStringArray",
    "ArrowStringArrayNumpySemantics",
    "BooleanArray",
    "Categorical",
    "DatetimeArray",
    "FloatingArray",
    "IntegerArray",
    "NumpyExtensionArray",
    "StringArray",
    "StringArrayNumpySemantics",
)
_INTEGER_DTYPES = _named(*(f"{sign}Int{bits}Dtype" for sign in ("", "U") for bits in (8, 16, 32, 64)))
_FLOAT_DTYPES = _named("Float32Dtype", "Float64Dtype")
_BOOLEAN_DTYPE = _named("BooleanDtype")
_OFFSETS = _named("Day", "Hour", "Minute", "Second", "Milli", "Micro", "Nano")

# Module -> name -> stand-in. pandas moves its classes between versions, so one class has several homes.
_ADMITTED: dict[str, dict[str, type[Record]]] = {
    "builtins": _BUILTINS,
    "__builtin__": _BUILTINS,
    "copyreg": _COPYREG,
    "copy_reg": _COPYREG,
    "_codecs": {"encode": _Encode},
    "datetime": _named("datetime", "timedelta", "timezone"),
    "zoneinfo": {"ZoneInfo": _ZoneInfo, "ZoneInfo._unpickle": _ZoneInfo},
    "pytz": _named("_UTC", "_p", "UTC"),
    "numpy": _named("dtype", "ndarray"),
    "numpy.core.multiarray": _MULTIARRAY,
    "numpy._core.multiarray": _MULTIARRAY,
    "numpy.core.numeric": _NUMERIC,
    "numpy._core.numeric": _NUMERIC,
    "pandas": {
        **_FRAMES,
        **_INDEXES,
        **_TIME_DTYPE,
        **_STRING_DTYPE,
        **_NA,
        **_INTEGER_DTYPES,
        **_FLOAT_DTYPES,
        **_BOOLEAN_DTYPE,
        "Categorical": _ARRAYS["Categorical"],
    },
    "pandas.arrays": _ARRAYS,
    "pandas._libs.arrays": _named("__pyx_unpickle_NDArrayBacked"),
    "pandas._libs.internals": _named("_unpickle_block"),
    "pandas._libs.missing": _NA,
    "pandas._libs.tslibs.nattype": _named("_nat_unpickle", "__nat_unpickle"),
    "pandas._libs.tslibs.offsets": _OFFSETS,
    "pandas._libs.tslibs.timestamps": _named("_unpickle_timestamp", "Timestamp"),
    "pandas.core.arrays.boolean": {"BooleanArray": _ARRAYS["BooleanArray"], **_BOOLEAN_DTYPE},
    "pandas.core.arrays.categorical": {"Categorical": _ARRAYS["Categorical"]},
    "pandas.core.arrays.datetimes": {"DatetimeArray": _ARRAYS["DatetimeArray"]},
    "pandas.core.arrays.floating": {"FloatingArray": _ARRAYS["FloatingArray"], **_FLOAT_DTYPES},
    "pandas.core.arrays.integer": {"IntegerArray": _ARRAYS["IntegerArray"], **_INTEGER_DTYPES},
    "pandas.core.arrays.string_": {**_ARRAYS, **_STRING_DTYPE},
    "pandas.core.arrays.string_arrow": _ARRAYS,
    "pandas.core.dtypes.dtypes": _TIME_DTYPE,
    "pandas.core.frame": _FRAMES,
    "pandas.core.series": _FRAMES,
    "pandas.core.indexes.base": {**_INDEXES, **_named("_new_Index")},
    "pandas.core.indexes.category": _INDEXES,
    "pandas.core.indexes.datetimes": {**_INDEXES, **_named("_new_DatetimeIndex")},
    "pandas.core.indexes.numeric": _INDEXES,
    "pandas.core.indexes.range": _INDEXES,
    "pandas.core.internals.managers": _named("BlockManager", "SingleBlockManager"),
    "pyarrow.lib": _named("_restore_array", "chunked_array", "py_buffer", "type_for_alias"),
}


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
