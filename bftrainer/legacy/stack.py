"""Follow a pickle's stack without building anything, to see what it uses as keys.

A tuple that holds itself twice over, sixty deep, takes a hundred bytes to write and forever to hash. Data of pandas
and numpy need no keys but scalars, so a pickle with any other key is refused before it is read.
"""

from __future__ import annotations

import pickle
import pickletools

__all__ = ["KeyWatch", "StackError"]


class StackError(Exception):
    """The pickle takes what its stack does not hold, or uses something else than a scalar as a key."""


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


class KeyWatch:
    """The stack of an unpickler, with one bit an object: whether it is a scalar."""

    def __init__(self) -> None:
        self._stack: list[bool] = []
        self._below: list[list[bool]] = []
        self._memo: dict[int, bool] = {}

    def step(self, code: int, argument: bytes) -> None:
        """Do what an opcode does to the stack.

        Raises
        ------
        StackError
        """
        try:
            self._step(code, argument)
        except (IndexError, KeyError, ValueError):
            raise StackError("an opcode that takes what is not there") from None

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
            raise StackError("a key that is no scalar")
        taken, put = _EFFECT[code]
        if taken:
            if len(self._stack) < taken:
                raise IndexError
            del self._stack[-taken:]
        self._stack += put


def _index(code: int, argument: bytes) -> int:
    return int(argument) if code in _LINES else int.from_bytes(argument, "little")
