"""Check a pickle's opcodes before any of them is executed.

The C unpickler trusts the sizes and indices in a pickle: one damaged byte in a memo index makes it fill
gigabytes of memory. This scan, which executes nothing, checks them, and the keys of dictionaries. It also takes large
byte strings out of the stream, so that a matrix is held in memory once even if the file is compressed.

Nested tuples that repeat themselves, sixty deep, take a hundred bytes to write and forever to hash. Data of pandas
and numpy need no keys but scalars, so a pickle with any other key is refused before it is loaded.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import BinaryIO

from bftrainer.files.budgets import budget


class ScanError(Exception):
    """Raised for a stream that is no pickle, claims more than it holds, or has a key that is not a scalar."""


class PersistentObjectError(Exception):
    """Raised for a pickle that refers to an object outside it."""


_SCALARS = (
    pickletools.pyint,
    pickletools.pylong,
    pickletools.pyinteger_or_bool,
    pickletools.pybool,
    pickletools.pyfloat,
    pickletools.pybytes_or_str,
    pickletools.pybytes,
    pickletools.pyunicode,
    pickletools.pynone,
)
_PUT = {pickle.PUT[0], pickle.BINPUT[0], pickle.LONG_BINPUT[0]}
_GET = {pickle.GET[0], pickle.BINGET[0], pickle.LONG_BINGET[0]}
_LINES = {pickle.PUT[0], pickle.GET[0]}
_MARK, _POP, _DUP, _MEMOIZE = pickle.MARK[0], pickle.POP[0], pickle.DUP[0], pickle.MEMOIZE[0]
_TO_MARK = {ord(op.code) for op in pickletools.opcodes if pickletools.markobject in op.stack_before}
_KEYED_PAIRS = {pickle.SETITEMS[0], pickle.DICT[0]}
_KEYED = {pickle.ADDITEMS[0], pickle.FROZENSET[0]}
# Opcode -> (objects taken, whether each object put is a scalar). Hashing a number of a megabyte takes long, too.
_EFFECT = {
    ord(op.code): (
        sum(kind not in (pickletools.markobject, pickletools.stackslice) for kind in op.stack_before),
        [kind in _SCALARS and op.name != "LONG4" for kind in op.stack_after],
    )
    for op in pickletools.opcodes
}
_EFFECT[pickle.OBJ[0]] = (0, [False])
_EFFECT[pickle.GLOBAL[0]] = (0, [True])
_EFFECT[pickle.STACK_GLOBAL[0]] = (2, [True])


class _KeyWatch:
    """Stack of an unpickler that holds one bit per object: whether it is a scalar."""

    def __init__(self) -> None:
        self._stack: list[bool] = []
        self._below: list[list[bool]] = []
        self._memo: dict[int, bool] = {}

    def step(self, code: int, argument: bytes) -> None:
        """Apply the effect of an opcode to the stack; `ScanError` if it takes what is not there, or makes a bad key."""
        try:
            self._step(code, argument)
        except (IndexError, KeyError, ValueError):
            raise ScanError("an opcode that takes what is not there") from None

    def _step(self, code: int, argument: bytes) -> None:
        if code in _PUT:
            self._memo[_index(code, argument)] = self._stack[-1]
        elif code in _GET:
            self._stack.append(self._memo[_index(code, argument)])
        elif code == _MEMOIZE:
            self._memo[len(self._memo)] = self._stack[-1]
        elif code == _DUP:
            self._stack.append(self._stack[-1])
        elif code == _MARK:
            self._below.append(self._stack)
            self._stack = []
        elif code == _POP and not self._stack:
            self._stack = self._below.pop()
        else:
            self._build(code)

    def _build(self, code: int) -> None:
        keys: list[bool] = []
        if code in _TO_MARK:
            items, self._stack = self._stack, self._below.pop()
            keys = items[::2] if code in _KEYED_PAIRS else items if code in _KEYED else []
        elif code == pickle.SETITEM[0]:
            keys = [self._stack[-2]]
        if not all(keys):
            raise ScanError("a key that is no scalar")
        taken, put = _EFFECT[code]
        if taken:
            if len(self._stack) < taken:
                raise IndexError
            del self._stack[-taken:]
        self._stack += put


def _index(code: int, argument: bytes) -> int:
    return int(argument) if code in _LINES else int.from_bytes(argument, "little")


_LARGE = 1 << 16
_LENGTH_BYTES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_BYTES = {pickle.BINBYTES[0], pickle.BINBYTES8[0], pickle.BYTEARRAY8[0]}
_PERSISTENT = {pickle.PERSID[0], pickle.BINPERSID[0]}


def _shapes() -> dict[int, tuple[int, int]]:
    """Opcode -> (bytes of argument, or -lines of it, or 0; bytes of length prefix, or 0)."""
    shapes = {}
    for op in pickletools.opcodes:
        size = 0 if op.arg is None else op.arg.n
        if size == pickletools.UP_TO_NEWLINE:
            lines = 2 if op.arg is not None and op.arg.name.endswith("_pair") else 1
            shapes[ord(op.code)] = (-lines, 0)
        else:
            shapes[ord(op.code)] = (max(size, 0), _LENGTH_BYTES.get(size, 0))
    return shapes


_SHAPES = _shapes()


def checked(stream: BinaryIO, path: Path = Path("pickle")) -> tuple[io.BytesIO, list[bytes]]:
    """Check the pickle in `stream`, and set large byte strings apart; messages about limits name `path`.

    Returns
    -------
    small : io.BytesIO
        The opcodes, in which each byte string set apart is a persistent object with its number.
    large : list of bytes

    Raises
    ------
    ScanError
        If an opcode is unknown, takes what is not there, makes a key of anything but a scalar, or a memo index runs
        ahead of the stream.
    EOFError
        If the stream ends before the pickle does.
    PersistentObjectError
        If the pickle refers to objects outside it.
    LimitError
        If it has too many opcodes.
    """
    small, large, watch = io.BytesIO(), list[bytes](), _KeyWatch()
    count, stop, allowed = 0, pickle.STOP[0], budget()
    code, most = None, allowed.opcodes * allowed.factor
    while code != stop:
        count += 1
        if count > most:
            allowed.check(path, count, "opcodes", "steps of a pickle")
        head = _exactly(stream, 1)
        code = head[0]
        if code not in _SHAPES:
            raise ScanError(f"unknown opcode {head!r}")
        size, prefix = _SHAPES[code]
        if code in _PERSISTENT:
            raise PersistentObjectError("a persistent object")
        if prefix:
            argument = _exactly(stream, prefix)
            length = int.from_bytes(argument, "little")
            if code in _BYTES and length >= _LARGE:
                large.append(_exactly(stream, length))
                watch.step(code, b"")
                small.write(b"J%b" % (len(large) - 1).to_bytes(4, "little") + pickle.BINPERSID)
                continue
            argument += _exactly(stream, length)
        elif size < 0:
            argument = b"".join(_line(stream) for _ in range(-size))
        else:
            argument = _exactly(stream, size) if size else b""
        if code == pickle.FRAME[0]:
            continue  # what is left of a frame is shorter than it says
        if code == pickle.LONG_BINPUT[0] and int.from_bytes(argument, "little") > count:
            raise ScanError("a memo index out of range")
        if code == pickle.PUT[0] and (not argument.strip().isdigit() or int(argument) > count):
            raise ScanError("a memo index out of range")
        watch.step(code, argument)
        small.write(head + argument)
    small.seek(0)
    return small, large


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def _line(stream: BinaryIO) -> bytes:
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return line
