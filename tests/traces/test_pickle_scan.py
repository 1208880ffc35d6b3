import io
import pickle
import struct

import numpy as np
import pytest

from bftrainer.errors import InputError
from bftrainer.traces.legacy_pickle import load_records
from bftrainer.traces.pickle_scan import PersistentObjectError, ScanError, checked


@pytest.mark.parametrize("protocol", range(6))
def test_scanned_pickle_says_the_same(protocol):
    """Taking large byte strings out of the stream changes nothing of what it says."""
    value = [
        1,
        -(10**30),
        2.5,
        "é\n",
        b"x",
        b"y" * 100_000,
        {"a": (None, True)},
        [b"z" * 70_000] * 2,
        list(range(1000)),
    ]
    got = load_records(io.BytesIO(pickle.dumps(value, protocol)), "x.pkl")
    assert got == value


def test_large_bytes_are_set_apart():
    """Byte strings of at least 64 KiB leave the stream; smaller ones stay."""
    small, large = checked(io.BytesIO(pickle.dumps([bytes(1 << 16), bytes(10)], 4)))
    assert [len(data) for data in large] == [1 << 16]
    assert len(small.getvalue()) < 100


@pytest.mark.parametrize(
    "stream",
    [b"\x80\x02Nr" + struct.pack("<I", 2**32 - 1) + b".", b"Np4000000000\n.", b"Np-1\n.", b"Npx\n.", b"\xff."],
)
def test_memo_indexes_may_not_run_ahead(stream):
    """A memo index beyond the stream, which would make the unpickler fill memory, is refused before it does."""
    with pytest.raises(ScanError):
        checked(io.BytesIO(stream))
    with pytest.raises(InputError, match=r"^x\.pkl: Expected a pickled pandas DataFrame, got something else \("):
        load_records(io.BytesIO(stream), "x.pkl")


@pytest.mark.parametrize("stream", [b"", b"N", b"V", b"\x80", b"\x8e" + struct.pack("<Q", 10**6) + b"x"])
def test_early_ends(stream):
    """A stream that ends before the pickle does is said to."""
    with pytest.raises(EOFError):
        checked(io.BytesIO(stream))


def test_no_persistent_objects():
    """The numbers of byte strings set apart cannot be forged."""
    with pytest.raises(PersistentObjectError):
        checked(io.BytesIO(b"J\x00\x00\x00\x00Q."))


def test_nested_lists_do_not_unfold(tmp_path):
    """A cell of lists nested in each other a hundred times over is refused without being spelled out."""
    import pandas as pd

    from bftrainer.errors import InvalidTaskError
    from bftrainer.traces import read_task_set

    bomb = [0]
    for _ in range(100):
        bomb = [bomb, bomb]
    times = pd.DatetimeIndex(np.array(["2021-02-10"], dtype="M8[ns]"))
    bounds = {"Tcup": [1.0], "Tcdw": [1.0], "Jmin": [bomb], "Jmax": [2], "Pmax": [1.0], "Tsub": times}
    pd.DataFrame(bounds, index=["J0"]).to_pickle(tmp_path / "b.pkl")
    with pytest.raises(InvalidTaskError, match=r"b\.pkl, task J0: Expected Jmin to be a number, got \[\["):
        read_task_set(tmp_path / "b.pkl")
