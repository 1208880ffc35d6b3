"""Steps of pickles that lie about sizes, nest without end or run empty take no memory and no time."""

import io
import pickle
import struct
import tracemalloc

import numpy as np
import pandas as pd
import pytest

from bftrainer.errors import InputError, InvalidTaskError, LogError
from bftrainer.legacy import read_pickled_frame
from bftrainer.nodelogs import read_node_log
from bftrainer.tasksets import read_task_set

OTHER = r"^x\.pkl: Expected a pickled pandas DataFrame, got "


def refusal(stream):
    """What is said of a stream that makes no frame, in at most 16 MiB."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=OTHER) as caught:
            read_pickled_frame(io.BytesIO(stream), "x.pkl")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    return str(caught.value)


@pytest.mark.parametrize("protocol", range(6))
def test_what_a_frame_carries_is_no_matter(protocol):
    """Scalars, texts, bytes and lists of all sizes, in attributes of a frame, are read over."""
    frame = pd.DataFrame({"a": [1, 0]})
    frame.attrs = {"x": [1, -(10**30), 2.5, "é\n", b"x", b"y" * 100_000, {"a": (None, True)}, list(range(1000))]}
    got = read_pickled_frame(io.BytesIO(pickle.dumps(frame, protocol)), "x.pkl")
    assert got.values[0].tolist() == [1, 0]


@pytest.mark.parametrize("index", [2**32 - 1, 4_000_000_000])
@pytest.mark.parametrize("put", [lambda index: b"r" + struct.pack("<I", index), lambda index: b"p%d\n" % index])
def test_memo_indexes_take_no_room(put, index):
    """A memo index far beyond the stream, with which pickle in C fills gigabytes, takes no more memory than another."""
    assert "NoneType" in refusal(b"\x80\x02N" + put(index) + b".")


@pytest.mark.parametrize(
    "stream",
    [
        *(b"Np-1\n.", b"Npx\n.", b"\xff."),  # no memo indexes, and no step
        *(b"0.", b"a.", b"(a.", b"N(\x86.", b"R.", b"}NNNs0s.", b"t.", b"h\x05.", b"gx\n.", b"2."),  # what is not there
    ],
)
def test_steps_that_are_none(stream):
    """Steps that take what is not there, negative memo indexes and unknown steps are refused."""
    assert "something else" in refusal(stream)


@pytest.mark.parametrize("size", [10**6, 2**33, 2**62])
@pytest.mark.parametrize("code", [b"\x8e", b"\x8d", b"\x96", b"\x95"])
def test_sizes_that_lie(code, size):
    """Bytes, text, a bytearray or a frame that claims more than is there takes no more memory than there is."""
    refusal(b"\x80\x05" + code + struct.pack("<Q", size) + b"x")
    for early in (b"", b"N", b"V", b"\x80"):
        refusal(early)


def test_copies_are_bounded():
    """A call that copies the same large text again and again is noted, and copies nothing."""
    text = b"X" + struct.pack("<I", 4 << 20) + b"x" * (4 << 20)
    calls = b"(c_codecs\nencode\nq\x00" + text + b"q\x01X\x06\x00\x00\x00latin1q\x020"
    copies = b"h\x00h\x01h\x02\x86R0" * 3000
    assert "pickled encode" in refusal(b"\x80\x02" + calls + copies + b"h\x00h\x01h\x02\x86R.")


def test_steps_are_bounded():
    """A pickle of more steps than any log needs is refused, however small it is packed."""
    with pytest.raises(InputError, match="more than 500,000 steps"):
        read_pickled_frame(io.BytesIO(b"\x80\x02" + b"N0" * 300_000 + b"N."), "x.pkl")


def word(text):
    """A text, as a step of a pickle."""
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def many_columns(uses):
    """Frames of four million columns and no rows, each of one block that the file holds once."""
    most = b"J" + struct.pack("<i", 4_000_000)
    kind = b"cnumpy\ndtype\n" + word("i1") + b"\x85R(K\x03" + word("|") + b"NNNtb"
    values = b"cnumpy\n_frombuffer\n(B\x00\x00\x00\x00" + kind + b"(" + most + b"K\x00t" + word("C") + b"tRq\x01"
    place = b"cbuiltins\nslice\n(K\x00" + most + b"K\x01tRq\x02"
    axis = b"cpandas\n_new_Index\n(N}(" + word("start") + b"K\x00" + word("stop") + b"%b" + word("step") + b"K\x01utR"
    blocks = b"](" + b"cpandas\n_unpickle_block\n(h\x01h\x02K\x02tR" * uses + b"e"
    manager = b"cpandas\nBlockManager\n(" + blocks + b"](" + axis % most + axis % b"K\x00" + b"etRq\x03"
    return values + place + manager + (b"cpandas\nDataFrame\n)\x81}" + word("_mgr") + b"h\x03sb") * 1000


@pytest.mark.parametrize("uses", [1, 20_000])
def test_arrays_are_bounded(uses):
    """Columns that the file holds once are not made again and again, neither in one frame nor in many."""
    with pytest.raises(InputError, match="other columns than the 4000000"):
        read_pickled_frame(io.BytesIO(b"\x80\x02" + many_columns(uses) + b"."), "x.pkl")


DEEP = b")" + b"2\x86" * 60  # a tuple that holds itself twice over, sixty deep
MEMO = b")\x94" + b"".join(b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86\x94" for i in range(60))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("key", [DEEP, MEMO, DEEP + b"\x85", b"]", b"K\x01", b"cbuiltins\nslice\n" + DEEP + b"\x85R"])
@pytest.mark.parametrize(
    "use", [b"}%bNs.", b"}(%bNu.", b"(%bNd.", b"\x8f(%b\x90.", b"(%b\x91.", b"(X\x00\x00\x00\x00N%bNd."]
)
def test_keys_are_text(key, use):
    """A key that is no text, which may take forever to hash, is refused before it is."""
    assert "something else" in refusal(b"\x80\x04" + use % key)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "call",
    [
        b"cpandas\n_unpickle_timestamp\n(K\x01NN%btR.",
        b"cpandas\n_unpickle_block\n(%bcbuiltins\nslice\n(%b%btRK\x02tR.",
        b"cpandas\n_new_Index\n(N}(X\x05\x00\x00\x00start%bX\x04\x00\x00\x00stop%bX\x04\x00\x00\x00step%butR.",
        b"cpandas\n_new_Index\n(N}X\x04\x00\x00\x00data%bstR.",
        b"cpyarrow.lib\n_restore_array\n((%b%b%b%b%btttR.",
        b"cpyarrow.lib\nchunked_array\n((%btNtR.",
        b"cnumpy\n_frombuffer\n(%b%b%b%btR.",
        b"cnumpy\nscalar\n(%b%btR.",
        b"cnumpy\ndtype\n(%btR%bb.",
        b"cbuiltins\nbytearray\n%b\x85R.",
        b"cbuiltins\nbytearray\n(J\xff\xff\xff\x7ftR.",
        b"cpandas\nDatetimeArray\n)\x81%bb.",
        b"cpandas\nDataFrame\n)\x81%bb.",
    ],
)
def test_arguments_are_not_unfolded(call):
    """Nested tuples where a call expects a number, a text or an array are refused at once."""
    with pytest.raises(InputError, match=r"^x\.pkl: "):
        read_pickled_frame(io.BytesIO(b"\x80\x02" + call.replace(b"%b", DEEP)), "x.pkl")


def deep(kind, depth=40):
    """A tuple or list that holds itself twice over, again and again."""
    value = kind([0])
    for _ in range(depth):
        value = kind([value, value])
    return value


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", [tuple, list])
@pytest.mark.parametrize("more", [[], [np.datetime64("2021-02-10", "ns"), np.int64(3)]])
def test_nested_labels_do_not_unfold(tmp_path, kind, more):
    """A column or task named by a tuple of tuples forty deep is refused without being spelled out."""
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
    with pytest.raises(LogError, match=r"columns\.pkl: Expected node names to be text, got [\[(][\[(]"):
        read_node_log(tmp_path / "columns.pkl")
    with pytest.raises(InvalidTaskError, match=r"index\.pkl: Expected task names to be text, got [\[(][\[(]"):
        read_task_set(tmp_path / "index.pkl")


def pair(values):
    """An array of two objects."""
    array = np.empty(2, dtype=object)
    array[:] = [values[0], values[-1]]
    return array


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("bomb", "said"),
    [
        (deep(list, 100), r", task J0: Expected Jmin to be a number, got \[\["),
        (deep(pair, 100), r": .*arrays of objects in each other"),
        ([deep(pair, 100)], r": .*arrays of objects in each other"),
    ],
)
def test_nested_cells_do_not_unfold(tmp_path, bomb, said):
    """A cell of lists or arrays nested in each other a hundred times over is refused without being spelled out."""
    times = pd.DatetimeIndex(np.array(["2021-02-10"], dtype="M8[ns]"))
    bounds = {"Tcup": [1.0], "Tcdw": [1.0], "Jmin": [bomb], "Jmax": [2], "Pmax": [1.0], "Tsub": times}
    pd.DataFrame(bounds, index=["J0"]).to_pickle(tmp_path / "b.pkl")
    with pytest.raises(InvalidTaskError, match=rf"b\.pkl{said}"):
        read_task_set(tmp_path / "b.pkl")
