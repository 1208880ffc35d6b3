"""LSF's `lsb.acct`: one line a finished job, fields between blanks, texts in quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar

from bftrainer.errors import LogError
from bftrainer.files.log_files import Block, line_blocks
from bftrainer.files.opening import one_line
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.intervals import OPEN_END_NS
from bftrainer.schedulers.reading import Reading

__all__ = ["LsfImporter"]

_FIELD = re.compile(r'"((?:[^"]|"")*)"|(\S+)')
_SLOTS = re.compile(r"^\d+\*", re.ASCII)
_END, _START, _QUEUE, _ASKED = 2, 10, 12, 22
_FINISH = '"JOB_FINISH" '
_RECORD = re.compile(r'"[A-Z_]+" ')


class LsfImporter:
    """Jobs as LSF accounts for them when they finish.

    References
    ----------
    IBM Spectrum LSF, "lsb.acct", record JOB_FINISH.
    """

    name: ClassVar[str] = "lsf"
    needs_window: ClassVar[bool] = True
    is_availability: ClassVar[bool] = False

    def recognises(self, lines: Sequence[str]) -> bool:
        """Lines that begin with a record's name in quotes."""
        return any(line.startswith('"JOB_') for line in lines[:5])

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files."""
        for path in paths:
            for block in line_blocks(path):
                for at, line in enumerate(block.lines):
                    if line.strip():
                        _read_line(line, block, at, reading)
                reading.tally.check()


def _read_line(line: str, block: Block, at: int, reading: Reading) -> None:
    """Write down a job, or count why not."""
    reading.tally.records += 1
    if not line.startswith(_FINISH):
        if reading.tally.records == 1 and not _RECORD.match(line):
            place = f"{block.path}:{block.first + at}"
            raise LogError(f"{place}: Expected a record of lsb.acct, got {one_line(line[:60])!r}.")
        reading.tally.drop("about no finished job")
        return
    try:
        end_s, start_s, queue, hosts = _finished(_fields(line))
    except (StopIteration, ValueError):
        reading.refuse("malformed line", block, at, f"Expected all fields of JOB_FINISH, got {one_line(line[:60])!r}")
        return
    if max(start_s, end_s) >= OPEN_END_NS // NS_PER_S or min(start_s, end_s) < 0:
        reading.refuse("impossible time", block, at, f"Expected epoch seconds, got {start_s} and {end_s}")
    elif start_s == 0:
        reading.tally.drop("never started")
    elif not hosts:
        reading.tally.drop("no nodes")
    elif end_s < start_s:
        reading.tally.drop("end before start")
    elif end_s == start_s:
        reading.tally.drop("zero length")
    else:
        node_set = reading.book.nodes(" ".join(hosts), _names)
        # Members of an array differ in fields far behind; a record that was copied differs in none.
        key = hash(line)
        partition = reading.book.partition(queue)
        reading.book.add(start_s * NS_PER_S, end_s * NS_PER_S, node_set, key, partition=partition)


def _fields(line: str) -> Iterator[str]:
    """Fields of a line, quotes taken off."""
    for found in _FIELD.finditer(line):
        yield found[2] if found[1] is None else found[1].replace('""', '"')


def _finished(fields: Iterator[str]) -> tuple[int, int, str, list[str]]:
    """End, start, queue and hosts of a job.

    Raises
    ------
    StopIteration, ValueError
        If fields are missing or no numbers.
    """
    told = _next(fields, _ASKED)
    _next(fields, int(next(fields)))
    hosts = _next(fields, int(next(fields)))
    int(next(fields))  # the status, which stands there only if all hosts do
    return int(told[_END]), int(told[_START]), told[_QUEUE], hosts


def _next(fields: Iterator[str], count: int) -> list[str]:
    """The next fields.

    Raises
    ------
    ValueError
        If there are fewer.
    """
    some = list(islice(fields, count))
    if len(some) != count:
        raise ValueError(f"Expected {count} fields, got {len(some)}.")
    return some


def _names(hosts: str) -> list[str]:
    """Hosts, which stand there once a slot or with the number of slots: `16*host1`."""
    return [_SLOTS.sub("", host) for host in hosts.split()]
