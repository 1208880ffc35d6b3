"""How much reading one file may take: the bytes that it unpacks to, counted before anything is made of them.

Logs and files of our own runs may have 4 GiB, all other files 64 MiB; ``BFTRAINER_MAX_GIB`` sets one limit for all,
also for processes of workers, which inherit it.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import IO

from bftrainer.errors import LimitError, SettingsError

SETTING = "BFTRAINER_MAX_GIB"
MIB, GIB = 2**20, 2**30
LOG_BYTES = 4 * GIB
"""Usual limit for logs and files of our own runs: ten years of 9,400 nodes."""
DOCUMENT_BYTES = 64 * MIB
"""Usual limit for task sets, measurements and settings, and for one line of any text."""


def most_bytes(usual: int = LOG_BYTES) -> int:
    """The limit in force.

    Raises
    ------
    SettingsError
        If the environment has one that is no positive number.
    """
    text = os.environ.get(SETTING)
    if not text:
        return usual
    try:
        gib = float(text)
    except ValueError:
        gib = math.nan
    if not 0 < gib < math.inf:
        raise SettingsError(f"{SETTING}: Expected a positive number, such as 16, got {text!r}.")
    return int(gib * GIB)


def check_bytes(path: Path, number: float, most: int, what: str = "unpacked") -> None:
    """Refuse a file of more than `most` bytes; `what` is said of them.

    Raises
    ------
    LimitError
        Naming the file, the limit, and the setting that raises it.
    """
    if number > most:
        raise LimitError(
            f"{path}: Expected at most {most / MIB:,.0f} MiB {what}, got more; {SETTING} raises the limit."
        )


def whole(path: Path, stream: IO[bytes]) -> bytes:
    """All bytes of a document.

    Raises
    ------
    LimitError
        If there are too many.
    """
    most = most_bytes(DOCUMENT_BYTES)
    check_bytes(path, path.stat().st_size, most)
    text = bytearray()
    while piece := stream.read(min(MIB, most + 1 - len(text))):  # a stream makes room for all that it is asked for
        text += piece
    check_bytes(path, len(text), most)
    return bytes(text)
