import builtins
import contextlib
import copyreg
import io
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bftrainer.errors import InputError, NodeLogError, UnsafePickleError
from bftrainer.legacy.frame import read_pickled_frame
from bftrainer.nodelogs import read_node_log
from bftrainer.tasksets import read_task_set

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
PLACES = ["top", "cell", "column-name", "index", "attrs", "list", "dict", "argument", "state"]


class Payload:
    """Pickles as a call."""

    def __init__(self, call, *args):
        self.call, self.args = call, args

    def __reduce__(self):
        return self.call, self.args

    def __hash__(self):
        return 1


class WithState(Payload):
    """Pickles as a harmless global with a payload as state."""

    def __reduce__(self):
        return np.dtype, ("i1",), (3, "|", None, None, None, -1, -1, Payload(self.call, *self.args))


def hidden(place, payload):
    """A frame, or something like one, with a payload in it."""
    times = pd.date_range("2021-02-10", periods=2, freq="D").as_unit("ns")
    frame = pd.DataFrame({"a": [0, 1]}, index=times, dtype=object)
    if place == "cell":
        frame.iloc[0, 0] = payload
    elif place == "column-name":
        frame.columns = pd.Index([payload], dtype=object)
    elif place == "index":
        frame.index = pd.Index([payload, 1], dtype=object)
    elif place == "attrs":
        frame.attrs["note"] = payload
    return {
        "top": payload,
        "list": [frame, payload],
        "dict": {"frame": frame, "more": payload},
        "argument": Payload(slice, payload),
        "state": WithState(payload.call, *payload.args),
    }.get(place, frame)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("read", [read_node_log, read_task_set])
def test_system_call_is_refused_by_name_and_never_runs(tmp_path, read, place, protocol):
    """A payload that calls os.system is refused by name, wherever it hides and in each protocol, and does not run."""
    mark = tmp_path / "ran"
    path = tmp_path / "evt.pkl"
    path.write_bytes(pickle.dumps(hidden(place, Payload(os.system, f"touch '{mark}'")), protocol))
    with pytest.raises(UnsafePickleError, match=r"evt\.pkl: refused to load posix\.system \(only pandas and numpy"):
        read(path)
    assert not mark.exists()


@pytest.mark.parametrize("module", ["os", "posix", "subprocess", "nt"])
def test_refusal_names_the_global_as_the_file_does(module):
    """The refusal repeats the name in the file, whatever module the payload goes through."""
    with pytest.raises(UnsafePickleError, match=rf"evt\.pkl: refused to load {module}\.system "):
        read_pickled_frame(io.BytesIO(f"c{module}\nsystem\n(S'true'\ntR.".encode()), "evt.pkl")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("payload", "name"),
    [
        (Payload(builtins.eval, "1"), "eval"),
        (Payload(builtins.exec, "1"), "exec"),
        (Payload(builtins.__import__, "os"), "__import__"),
        (Payload(builtins.open, "x"), "open"),
        (Payload(getattr, "", "upper"), "builtins.getattr"),
        (Payload(np.load, "x.npy"), "numpy.load"),
        (Payload(np.fromfile, "x"), "fromfile"),
        (Payload(np.memmap, "x"), "memmap"),
        (Payload(pd.read_pickle, "x.pkl"), "pandas.*read_pickle"),
        (Payload(pd.eval, "1"), "pandas.*eval"),
        (Payload(pickle.loads, b"N."), r"pickle\.loads"),
    ],
)
def test_dangerous_callables_are_refused(payload, name, protocol):
    """Callables that are harmless names but dangerous with chosen arguments are not admitted either."""
    with pytest.raises(UnsafePickleError, match=f"refused to load .*{name}"):
        read_pickled_frame(io.BytesIO(pickle.dumps(payload, protocol)), "evt.pkl")


@pytest.mark.parametrize(
    ("module", "name"),
    [("numpy", "dtype.__class__"), ("pandas.core.frame", "DataFrame.eval"), ("builtins", "object.__subclasses__")],
)
def test_dotted_names_are_not_followed(module, name):
    """Protocol 4 lets a name reach for attributes of an admitted global; that is refused."""
    stream = b"\x80\x04" + b"".join(b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name)) + b"\x93."
    with pytest.raises(UnsafePickleError, match=name.replace(".", r"\.")):
        read_pickled_frame(io.BytesIO(stream), "evt.pkl")


def test_persistent_ids_are_refused():
    """A reference to an object outside the file is refused."""
    for stream in (b"P17\n.", b"\x80\x02K\x11Q."):
        with pytest.raises(UnsafePickleError, match="refused to load a persistent object"):
            read_pickled_frame(io.BytesIO(stream), "evt.pkl")


@pytest.fixture
def extension():
    """An extension code that another library registered, and whose global is in copyreg's cache."""
    copyreg.add_extension("os", "system", 240)
    try:
        assert pickle.loads(b"\x80\x02\x82\xf0.") is os.system
        yield b"\x80\x02\x82\xf0."
    finally:
        copyreg.remove_extension("os", "system", 240)
        copyreg.clear_extension_cache()


def test_extension_codes_do_not_go_round_the_list(extension):
    """A code of copyreg's extension registry is refused even if its global has been cached."""
    with pytest.raises(UnsafePickleError, match=r"os\.system"):
        read_pickled_frame(io.BytesIO(extension), "evt.pkl")


def test_other_codecs_are_refused():
    """`_codecs.encode` serves latin1 alone: other codecs may be slow, or unpack bombs."""
    with pytest.raises(UnsafePickleError, match=r"_codecs\.encode to 'zlib_codec'"):
        read_pickled_frame(io.BytesIO(b"c_codecs\nencode\n(Vx\nVzlib_codec\ntR."), "evt.pkl")


@pytest.mark.parametrize("made", ["", "(I1\ntR"])
def test_state_reaches_nothing_but_data(made):
    """State pickled onto an admitted name, or onto what is made of it, changes neither a class nor an instance."""
    stream = f"cpandas.core.frame\nDataFrame\n{made}(N(dVargs\nNstb.".encode()
    with pytest.raises(InputError, match="Expected a pickled pandas DataFrame"):
        read_pickled_frame(io.BytesIO(stream), "evt.pkl")
    assert not hasattr(pd.DataFrame, "args")


@pytest.mark.parametrize("module", ["pandas.core.frame", "pandas.nowhere"])
def test_admitted_globals_are_not_called(module):
    """An admitted name is neither imported nor called: what it makes is known by its name only."""
    with pytest.raises(InputError, match=r"got a pickled DataFrame\."):
        read_pickled_frame(io.BytesIO(f"c{module}\nDataFrame\n(I1\ntR.".encode()), "evt.pkl")


@pytest.mark.parametrize("step", [b"(ios\nsystem\n", b"(cos\nsystem\no", b"cos\nsystem\n)\x81", b"cos\nsystem\n)}\x92"])
def test_other_ways_to_call_are_refused_by_name(step):
    """Instances of old classes, and new objects with and without keywords, are calls as well."""
    with pytest.raises(UnsafePickleError, match=r"refused to load os\.system"):
        read_pickled_frame(io.BytesIO(step + b"."), "evt.pkl")


@pytest.mark.parametrize(
    "content",
    [
        b"hello",
        b"\x80",
        b"\x80\x04",
        b"\x80\x09.",
        b".",
        b"0",
        b"\x80\x04\x8e" + struct.pack("<Q", 2**62),
        b"\x80\x04]a.",
    ],
)
def test_noise_is_one_line(content):
    """What is no whole pickle is said so in one line that names the file."""
    with pytest.raises(NodeLogError) as caught:
        read_pickled_frame(io.BytesIO(content), "evt.pkl", NodeLogError)
    assert str(caught.value).startswith("evt.pkl: Expected a pickled pandas DataFrame, got ")
    assert "\n" not in str(caught.value)


def test_truncation_anywhere_is_one_line(fixtures):
    """A file cut off at any byte is refused in one line."""
    content = (fixtures / "log-pandas2.2-protocol4.pkl").read_bytes()
    for length in range(1, len(content)):
        with pytest.raises(NodeLogError) as caught:
            read_pickled_frame(io.BytesIO(content[:length]), "evt.pkl", NodeLogError)
        assert str(caught.value).startswith("evt.pkl: Expected ")


def test_flipped_bits_never_raise_anything_else(fixtures):
    """A file with any one byte changed is read or refused, never a crash or a foreign error."""
    content = Path(fixtures / "bounds-objects-pandas2.2-protocol5.pkl").read_bytes()
    rng = np.random.default_rng(7)
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= int(rng.integers(1, 256))
        with contextlib.suppress(InputError):
            read_pickled_frame(io.BytesIO(bytes(damaged)), "evt.pkl")


def test_messages_stay_on_one_line():
    """A global whose name holds line breaks is refused with them escaped."""
    with pytest.raises(UnsafePickleError) as caught:
        read_pickled_frame(io.BytesIO(b"\x80\x04\x8c\x03a\nb\x8c\x01c\x93."), "evt.pkl")
    assert str(caught.value) == r"evt.pkl: refused to load a\nb.c (only pandas and numpy data are read)."
