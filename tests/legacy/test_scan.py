import io
import pickle
import struct

import numpy as np
import pytest

from bftrainer.errors import InputError
from bftrainer.legacy.pickle import load_records
from bftrainer.legacy.scan import PersistentObjectError, ScanError, checked


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


DEEP = b")" + b"2\x86" * 60  # a tuple that holds itself twice over, sixty deep
MEMO = b")\x94" + b"".join(b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86\x94" for i in range(60))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("key", [DEEP, MEMO, DEEP + b"\x85", b"]", b"cbuiltins\nslice\n" + DEEP + b"\x85R"])
@pytest.mark.parametrize("use", [b"}%bNs.", b"}(%bNu.", b"(%bNd.", b"\x8f(%b\x90.", b"(%b\x91.", b"(K\x01N%bNd."])
def test_keys_are_scalars(key, use):
    """A key that is no scalar, which may take forever to hash, is refused before it is made."""
    stream = b"\x80\x04" + use % key
    with pytest.raises(ScanError, match=r"a key that is no scalar"):
        checked(io.BytesIO(stream))
    with pytest.raises(InputError, match=r"^x\.pkl: .*got something else \(a key that is no scalar\)"):
        load_records(io.BytesIO(stream), "x.pkl")


@pytest.mark.parametrize("protocol", range(6))
def test_scalar_keys_are_read(protocol):
    """Dicts and sets with scalars as keys, each of them by the opcodes of every protocol, are read as they are."""
    keys = ["a", "a" * 300, "é", 1, 70_000, -1, 10**30, 2.5, None, True, b"x", b"y" * 100_000]
    if protocol < 3:
        keys = [key for key in keys if not isinstance(key, bytes)]  # a call, there
    value = [dict.fromkeys(keys, ("a", ("b",)))] * 2
    if protocol > 3:
        value += [set(keys), frozenset(keys)]
    assert load_records(io.BytesIO(pickle.dumps(value, protocol)), "x.pkl") == value


@pytest.mark.parametrize(
    "stream", [b"0.", b"a.", b"(a.", b"N(\x86.", b"R.", b"}NNNs0s.", b"t.", b"h\x05.", b"gx\n.", b"2."]
)
def test_stacks_that_run_empty(stream):
    """An opcode that takes what is not there is refused."""
    with pytest.raises(ScanError, match=r"what is not there"):
        checked(io.BytesIO(stream))


def deep(kind, depth=40):
    """A tuple or list that holds itself twice over, again and again."""
    value = kind([0])
    for _ in range(depth):
        value = kind([value, value])
    return value


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", [tuple, list])
@pytest.mark.parametrize("more", [[], [np.datetime64("2021-02-10"), np.int64(3)]])
def test_nested_labels_do_not_unfold(tmp_path, kind, more):
    """A column or task named by a tuple of tuples forty deep is refused without being spelled out."""
    import pandas as pd

    from bftrainer.errors import InvalidTaskError, NodeLogError
    from bftrainer.nodelogs import read_node_log
    from bftrainer.tasksets import read_task_set

    times = pd.DatetimeIndex(np.array(["2021-02-10"] * (1 + len(more)), dtype="M8[ns]"))
    labels = np.empty(1 + len(more), dtype=object)
    labels[0], labels[1:] = "a", more
    index = pd.Index(labels, dtype=object, copy=False)
    states = pd.DataFrame(np.ones((1, labels.size)), index=times[:1], columns=index)
    bounds = {"Tcup": 1.0, "Tcdw": 1.0, "Jmin": 1, "Jmax": 2, "Pmax": 1.0, "Tsub": times}
    tasks = pd.DataFrame(bounds, index=index)
    labels[0] = deep(kind)  # behind the back of pandas, which would hash it
    for frame, axis in ((states, "columns"), (tasks, "index")):
        frame.to_pickle(tmp_path / f"{axis}.pkl")
    with pytest.raises(NodeLogError, match=r"columns\.pkl: Expected node names to be text, got [\[(][\[(]"):
        read_node_log(tmp_path / "columns.pkl")
    with pytest.raises(InvalidTaskError, match=r"index\.pkl: Expected task names to be text, got [\[(][\[(]"):
        read_task_set(tmp_path / "index.pkl")


def test_nested_lists_do_not_unfold(tmp_path):
    """A cell of lists nested in each other a hundred times over is refused without being spelled out."""
    import pandas as pd

    from bftrainer.errors import InvalidTaskError
    from bftrainer.tasksets import read_task_set

    bomb = [0]
    for _ in range(100):
        bomb = [bomb, bomb]
    times = pd.DatetimeIndex(np.array(["2021-02-10"], dtype="M8[ns]"))
    bounds = {"Tcup": [1.0], "Tcdw": [1.0], "Jmin": [bomb], "Jmax": [2], "Pmax": [1.0], "Tsub": times}
    pd.DataFrame(bounds, index=["J0"]).to_pickle(tmp_path / "b.pkl")
    with pytest.raises(InvalidTaskError, match=r"b\.pkl, task J0: Expected Jmin to be a number, got \[\["):
        read_task_set(tmp_path / "b.pkl")
