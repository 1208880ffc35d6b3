"""Pickles that name more than data are refused by name and run nothing; noise is refused in one line."""

import builtins
import contextlib
import copyreg
import io
import os
import pickle
import struct

import numpy as np
import pandas as pd
import pytest

from bftrainer.errors import InputError, LogError
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


def read(content, error=InputError):
    """The frame of some bytes."""
    return read_pickled_frame(io.BytesIO(content), "evt.pkl", error)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("reader", [read_node_log, read_task_set])
def test_system_call_is_refused_by_name_and_never_runs(tmp_path, reader, place, protocol):
    """A payload that calls os.system is refused by name, wherever it hides and in each protocol, and does not run."""
    mark = tmp_path / "ran"
    path = tmp_path / "evt.pkl"
    path.write_bytes(pickle.dumps(hidden(place, Payload(os.system, f"touch '{mark}'")), protocol))
    with pytest.raises(InputError, match=r"evt\.pkl: refused to load posix\.system \(only pandas and numpy"):
        reader(path)
    assert not mark.exists()


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
    with pytest.raises(InputError, match=f"refused to load .*{name}"):
        read(pickle.dumps(payload, protocol))


def dotted(module, name):
    """Steps of protocol 4, which lets a name reach for attributes of a global."""
    return b"\x80\x04" + b"".join(b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name)) + b"\x93."


@pytest.mark.parametrize(
    ("content", "name"),
    [
        *((f"c{module}\nsystem\n(S'true'\ntR.".encode(), f"{module}.system") for module in ("os", "subprocess", "nt")),
        *(
            (dotted(module, name), f"{module}.{name}")
            for module, name in (
                ("numpy", "dtype.__class__"),
                ("pandas.core.frame", "DataFrame.eval"),
                ("builtins", "object.__subclasses__"),
            )
        ),
        (dotted("a\nb", "c"), r"a\nb.c"),  # in one line
        (b"P17\n.", "a persistent object"),
        (b"\x80\x02K\x11Q.", "a persistent object"),
        # Other codecs may be slow, or unpack bombs.
        (b"c_codecs\nencode\n(Vx\nVzlib_codec\ntR.", "_codecs.encode to 'zlib_codec'"),
        # Instances of old classes, and new objects with and without keywords, are calls as well.
        (b"(ios\nsystem\n.", "os.system"),
        (b"(cos\nsystem\no.", "os.system"),
        (b"cos\nsystem\n)\x81.", "os.system"),
        (b"cos\nsystem\n)}\x92.", "os.system"),
    ],
)
def test_refusals_name_what_the_file_asks_for(content, name):
    """Whatever module a payload goes through, and whatever step calls it; nested names are not followed."""
    with pytest.raises(InputError) as caught:
        read(content)
    assert str(caught.value) == f"evt.pkl: refused to load {name} (only pandas and numpy data are read)."


def test_extension_codes_do_not_go_round_the_list():
    """A code of copyreg's extension registry is refused even if its global has been cached by another library."""
    copyreg.add_extension("os", "system", 240)
    try:
        assert pickle.loads(b"\x80\x02\x82\xf0.") is os.system
        with pytest.raises(InputError, match=r"os\.system"):
            read(b"\x80\x02\x82\xf0.")
    finally:
        copyreg.remove_extension("os", "system", 240)
        copyreg.clear_extension_cache()


@pytest.mark.parametrize("call", ["", "(I1\ntR"])
def test_state_reaches_nothing_but_data(call):
    """State pickled onto an admitted name, or onto what is made of it, changes neither a class nor an instance."""
    with pytest.raises(InputError, match="Expected a pickled pandas DataFrame"):
        read(f"cpandas.core.frame\nDataFrame\n{call}(N(dVargs\nNstb.".encode())
    assert not hasattr(pd.DataFrame, "args")


@pytest.mark.parametrize("module", ["pandas.core.frame", "pandas.nowhere"])
def test_admitted_globals_are_not_called(module):
    """An admitted name is neither imported nor called: what it makes is known by its name only."""
    with pytest.raises(InputError, match=r"got a pickled DataFrame\."):
        read(f"c{module}\nDataFrame\n(I1\ntR.".encode())


NOISE = [b"hello", b"\x80", b"\x80\x04", b"\x80\x09.", b".", b"0", b"\x80\x04\x8e" + struct.pack("<Q", 2**62), b"]a."]


def test_noise_and_cut_off_files_are_one_line(fixtures):
    """What is no whole pickle, or is cut off at any byte, is said so in one line that names the file."""
    content = (fixtures / "log-pandas2.2-protocol4.pkl").read_bytes()
    for damaged in (*NOISE, *(content[:length] for length in range(1, len(content)))):
        with pytest.raises(LogError, match=r"^evt\.pkl: Expected a pickled pandas DataFrame, got .*\.$"):
            read(damaged, LogError)


def test_flipped_bits_never_raise_anything_else(fixtures):
    """A file with any one byte changed is read or refused, never a crash or a foreign error."""
    content = (fixtures / "bounds-objects-pandas2.2-protocol5.pkl").read_bytes()
    rng = np.random.default_rng(7)
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= int(rng.integers(1, 256))
        with contextlib.suppress(InputError):
            read(bytes(damaged))
