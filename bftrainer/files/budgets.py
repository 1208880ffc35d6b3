"""What reading one file may take: this, and no list of known tricks, is what stops small files that unpack to anything.

`--limits 10x`, or ``BFTRAINER_LIMITS=10x`` in the environment, which processes of workers inherit, raises all of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, AnyStr

from bftrainer.errors import LimitError, SettingsError

SETTING, OPTION = "BFTRAINER_LIMITS", "--limits"
MIB = 2**20
_DOCUMENT = "bytes in a file of this kind"


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of what is read; the Summit log and a year of 9,400 nodes stay ten times below them.

    Parameters
    ----------
    factor : float
        What the limits below are multiplied by.
    packing : float
        How many times its packed size a file may unpack to, once that is more than `unpacked_bytes`; three times as
        often if bzip2 or xz packed it, which do so on the same log.
    unpacked_bytes : float
    document_bytes : float
        Size of a file that is read whole: TOML and JSON.
    line_bytes : float
        Length of a line of text.
    rows : float
        Rows of a table, and changes of nodes in a log.
    opcodes : float
        Steps of a pickle.
    solver_bytes : float
        Memory of a solver in a process of its own.
    """

    factor: float = 1.0
    packing: float = 200.0
    unpacked_bytes: float = 64 * MIB
    document_bytes: float = 128 * MIB
    line_bytes: float = 64 * MIB
    rows: float = 4e9
    opcodes: float = 5e5
    solver_bytes: float = 4096 * MIB

    def check(self, path: Path, found: float, limit: str, unit: str) -> None:
        """Refuse a file in which more is `found` than the limit of this name allows.

        Raises
        ------
        LimitError
            Naming the file, the limit, and the option that raises it.
        """
        most = getattr(self, limit) * self.factor
        if found > most:
            raise LimitError(f"{path}: Expected at most {most:,.0f} {unit}, got more; {OPTION} raises the limit.")

    def check_packing(self, path: Path, unpacked: float, packed: float, density: float = 1.0) -> None:
        """Refuse a file that unpacks to far more than its packed size; `density`: that of its packing over gzip's.

        Raises
        ------
        LimitError
            As `check`.
        """
        most = self.packing * density
        if unpacked > max(self.unpacked_bytes, most * packed) * self.factor:
            raise LimitError(
                f"{path}: Expected to unpack to at most {most * self.factor:,.0f} times its packed size, "
                f"got more; {OPTION} raises the limit."
            )


def budget() -> Budget:
    """The limits in force.

    Raises
    ------
    SettingsError
        If the environment has no such factor.
    """
    return Budget(factor_of(os.environ.get(SETTING, "1x"), SETTING))


def factor_of(text: str, option: str = OPTION) -> float:
    """The factor that a text such as 10x names; `option` is what it was given for.

    Raises
    ------
    SettingsError
        If it is none, or below 1.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)x?", text.strip(), re.ASCII)
    if found is None or float(found[1]) < 1.0:
        raise SettingsError(f"{option}: Expected a factor of 1 or more, such as 10x, got {text!r}.")
    return float(found[1])


def whole(path: Path, stream: IO[bytes]) -> bytes:
    """All bytes of a document.

    Raises
    ------
    LimitError
        If there are too many.
    """
    allowed = budget()
    most = int(allowed.document_bytes * allowed.factor)
    allowed.check(path, path.stat().st_size, "document_bytes", _DOCUMENT)
    text = bytearray()
    while piece := stream.read(min(MIB, most + 1 - len(text))):  # a stream makes room for all that it is asked for
        text += piece
    allowed.check(path, len(text), "document_bytes", _DOCUMENT)
    return bytes(text)


def lines(path: Path, stream: IO[AnyStr]) -> Iterator[AnyStr]:
    """Lines of a text, each of a bounded length.

    Raises
    ------
    LimitError
        If one is too long.
    """
    allowed = budget()
    most = int(allowed.line_bytes * allowed.factor)
    read: Callable[[int], AnyStr] = stream.readline
    while line := read(most + 1):
        allowed.check(path, len(line), "line_bytes", "bytes in a line")
        yield line
