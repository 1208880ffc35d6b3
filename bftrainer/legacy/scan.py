"""Walk through a pickle's opcodes before any of them takes effect.

The C unpickler believes what a pickle says about itself: one damaged byte in a memo index makes it fill
gigabytes of memory. This walk, which executes nothing, checks those claims, and what is used as a key. Large byte
strings are taken out of the stream on the way, so that a matrix is held once even if the file is a compressed stream.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import BinaryIO

from bftrainer.legacy.stack import KeyWatch, StackError

__all__ = ["PersistentObjectError", "ScanError", "checked"]

_LARGE = 1 << 16
_LENGTH_BYTES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_BYTES = {pickle.BINBYTES[0], pickle.BINBYTES8[0], pickle.BYTEARRAY8[0]}
_PERSISTENT = {pickle.PERSID[0], pickle.BINPERSID[0]}


class ScanError(Exception):
    """The stream is no pickle, or claims what it cannot hold."""


class PersistentObjectError(Exception):
    """The pickle refers to an object outside it."""


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


def checked(stream: BinaryIO) -> tuple[io.BytesIO, list[bytes]]:
    """The pickle in `stream`, with large byte strings set apart.

    Returns
    -------
    small : io.BytesIO
        The opcodes; a byte string set apart is the persistent object of its number.
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
    """
    small, large, watch = io.BytesIO(), list[bytes](), KeyWatch()
    count, stop = 0, pickle.STOP[0]
    code = None
    while code != stop:
        count += 1
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
        try:
            watch.step(code, argument)
        except StackError as fault:
            raise ScanError(str(fault)) from None
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
