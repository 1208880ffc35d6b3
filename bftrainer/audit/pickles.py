"""Read published pickled data frames with pandas, refusing all but the parts of a frame.

A pickle is code. Only the constructors of frames, indexes, arrays and times are admitted, and none of them can be
changed by the data; everything else is refused by name. Python's own unpickler is used, whose memory grows with what
it has read, not with what the file claims.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import pandas as pd
from pandas.compat.pickle_compat import Unpickler

from bftrainer.audit.parts import UnusableError, printable

_MODULES = ("pandas", "numpy", "pyarrow")
# Frames and what they are made of, whichever module a version of pandas has them in.
_DATA = frozenset(
    (
        *("DataFrame", "Series", "BlockManager", "BlockPlacement", "new_block", "make_block", "_unpickle_block"),
        *("Index", "RangeIndex", "DatetimeIndex", "CategoricalIndex"),
        *("Int64Index", "UInt64Index", "Float64Index", "NumericIndex"),
        *("_new_Index", "_new_DatetimeIndex", "__pyx_unpickle_NDArrayBacked"),
        *("DatetimeArray", "Categorical", "StringArray"),
        *("StringArrayNumpySemantics", "ArrowStringArray", "ArrowStringArrayNumpySemantics"),
        *("NumpyExtensionArray", "PandasArray", "IntegerArray", "FloatingArray", "BooleanArray"),
        *("DatetimeTZDtype", "CategoricalDtype", "StringDtype", "BooleanDtype", "Float32Dtype", "Float64Dtype"),
        *("Int8Dtype", "Int16Dtype", "Int32Dtype", "Int64Dtype"),
        *("UInt8Dtype", "UInt16Dtype", "UInt32Dtype", "UInt64Dtype"),
        *("Timestamp", "_unpickle_timestamp", "_nat_unpickle", "__nat_unpickle", "NA", "NAType", "C_NA"),
        *("Day", "Hour", "Minute", "Second", "Milli", "Micro", "Nano"),
        *("ndarray", "dtype", "_reconstruct", "scalar", "_frombuffer"),
        *("type_for_alias", "_restore_array", "chunked_array", "py_buffer"),
    )
)
_OTHERS = {
    *((module, name) for module in ("builtins", "__builtin__") for name in ("slice", "bytearray", "object")),
    *(("copyreg", "_reconstructor"), ("copy_reg", "_reconstructor"), ("copyreg", "__newobj__"), ("_codecs", "encode")),
    *(("datetime", name) for name in ("datetime", "timedelta", "timezone")),
    *(("pytz", "_UTC"), ("pytz", "_p")),
}


class _Frames(Unpickler):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """Unpickler of frames only."""

    dispatch = Unpickler.dispatch.copy()

    def find_class(self, module: str, name: str) -> Any:
        """What a global stands for, if frames are made of it."""
        ours = module.split(".")[0] in _MODULES and name in _DATA and ".test" not in module
        if not ours and (module, name) not in _OTHERS:
            raise UnusableError(printable(f"refused to load {module}.{name} (only pandas and numpy data are read)"))
        return super().find_class(module, name)

    def persistent_load(self, pid: object) -> Any:
        """Objects outside the pickle: there are none."""
        raise UnusableError(printable(f"refused to load the object {pid!r} from outside the pickle"))

    def load_build(self) -> None:
        """Give an object its state; classes and functions are shared, so these have none."""
        made = self.stack[-2]
        if callable(made):
            raise UnusableError(printable(f"refused to change {made!r}"))
        pickle._Unpickler.load_build(self)  # type: ignore[attr-defined]

    dispatch[pickle.BUILD[0]] = load_build


def read_frame(data: bytes, where: str) -> pd.DataFrame:
    """The data frame in a pickle.

    Raises
    ------
    UnusableError
        If it holds something else, or asks for anything that frames are not made of.
    """
    try:
        frame = _Frames(io.BytesIO(data)).load()
    except UnusableError as refused:
        raise UnusableError(f"{where}: {refused}") from None
    except (MemoryError, KeyboardInterrupt):
        raise
    except Exception as fault:  # a damaged pickle fails in any way that pandas' constructors know
        raise UnusableError(printable(f"{where}: Expected a pickled data frame, got {type(fault).__name__}")) from None
    if not isinstance(frame, pd.DataFrame):
        raise UnusableError(f"{where}: Expected a pickled data frame, got {type(frame).__name__}")
    return frame
