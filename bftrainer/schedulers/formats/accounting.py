"""Accounting logs in the format of PBS: `MM/DD/YYYY HH:MM:SS;TYPE;id;key=value ...`, line by line to busy records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bftrainer.errors import LogError
from bftrainer.files.log_files import Block, head, line_blocks
from bftrainer.files.opening import one_line
from bftrainer.schedulers.reading import Reading

__all__ = ["LINE", "Entry", "entries", "in_order_of_time"]

LINE = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d:\d\d);([A-Za-z]{1,2});([^;]*)(?:;(.*))?", re.ASCII | re.DOTALL)
_FIELD = re.compile(r"(?<![\w.])([\w.]++)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|\S*)")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line.

    Parameters
    ----------
    moment : str
        Local date and time of its writing, ISO.
    type : str
        One or two letters.
    id : str
        Of a job, a reservation, or a node.
    text : str
        Its fields.
    block : Block
    at : int
        Its place in the block.
    """

    moment: str
    type: str
    id: str
    text: str
    block: Block
    at: int

    @property
    def is_cut_off(self) -> bool:
        """Whether it is the file's last line and lacks its line end."""
        return self.block.cut_off and self.at == len(self.block.lines) - 1

    def fields(self) -> dict[str, str]:
        """Fields by key, without quotes; of a line that was cut off without the last one, of which a part may lack."""
        found = _FIELD.findall(self.text)
        return {key: value.strip("\"'") for key, value in (found[:-1] if self.is_cut_off else found)}

    def local_s(self) -> float | None:
        """Seconds from 1970 to its date and time, as if there were no zones; None if there is no such time."""
        try:
            return datetime.fromisoformat(f"{self.moment}+00:00").timestamp()
        except ValueError:
            return None


def entries(paths: Sequence[Path], reading: Reading) -> Iterator[Entry]:
    """All lines of all files, counted; those that are none are refused.

    Raises
    ------
    LogError
        If the first line is not of this format, or too many are not.
    """
    for path in paths:
        for block in line_blocks(path):
            for at, line in enumerate(block.lines):
                if not line:
                    continue
                reading.tally.records += 1
                found = LINE.fullmatch(line)
                if found is not None:
                    month, day, year, time, kind, name, text = found.groups()
                    yield Entry(f"{year}-{month}-{day}T{time}", kind, name, text or "", block, at)
                    continue
                detail = f"Expected MM/DD/YYYY HH:MM:SS;TYPE;id;..., got {one_line(line[:60])!r}"
                if reading.tally.records == 1 and not block.cut_off:
                    raise LogError(f"{path}:{block.first + at}: {detail}.")
                reading.refuse("malformed line", block, at, detail)
            reading.tally.check()


def in_order_of_time(paths: Sequence[Path]) -> list[Path]:
    """The files in the order of their first lines: runs begin in one file and end in another."""

    def _began(path: Path) -> tuple[str, str]:
        found = next(filter(None, map(LINE.match, head(path))), None)
        return ("", path.name) if found is None else ("-".join((found[3], found[1], found[2], found[4])), path.name)

    return sorted(paths, key=_began)
