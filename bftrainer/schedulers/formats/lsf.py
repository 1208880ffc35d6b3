"""Import LSF's accounting log, `lsb.acct`."""

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
from bftrainer.nodelogs.node_spans import OPEN_END_NS
from bftrainer.schedulers.clock import natural_number
from bftrainer.schedulers.reading import Importer, Reading

_FIELD = re.compile(r'"((?:[^"]|"")*)"|(\S+)')
_SLOTS = re.compile(r"^\d+\*", re.ASCII)
_END, _JOB, _SUBMIT, _START, _QUEUE, _ASKED = 2, 3, 7, 10, 12, 22
_FORMER = 10
"""Fields of a resized job before the number of the hosts that it had, and their names."""
_FINISH, _RESIZE = '"JOB_FINISH" ', '"JOB_RESIZE" '
_RECORD = re.compile(r'"[A-Z_]+" ')


class LsfImporter(Importer):
    """Jobs as LSF accounts for them when they finish.

    References
    ----------
    IBM Spectrum LSF, "lsb.acct", record JOB_FINISH.
    """

    name: ClassVar[str] = "lsf"

    def recognises(self, lines: Sequence[str]) -> bool:
        """Lines that begin with a record's name in quotes."""
        return any(line.startswith('"JOB_') and _RECORD.match(line) for line in lines[:5])

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files."""
        resized: dict[tuple[int, int], int] = {}
        for path in paths:
            for block in line_blocks(path):
                for at, line in enumerate(block.lines):
                    if line.startswith(_RESIZE):
                        _read_resize(line, block, at, resized, reading)
                    elif line.strip():
                        _read_line(line, block, at, resized, reading)
                reading.tally.check()


def _read_resize(line: str, block: Block, at: int, resized: dict[tuple[int, int], int], reading: Reading) -> None:
    """Write down the time that a job spent on the hosts which it had until now."""
    reading.tally.records += 1
    fields = _fields(line)
    try:
        given = _next(fields, _FORMER)
        hosts = _next(fields, int(next(fields)))
        end_s, job, index, start_s, last_s = (int(given[place]) for place in (2, 3, 4, 5, 9))
    except (StopIteration, ValueError):
        reading.refuse("malformed line", block, at, f"Expected all fields of JOB_RESIZE, got {one_line(line[:60])!r}")
        return
    begin_s = max(start_s, last_s)
    resized[job, start_s] = max(end_s, resized.get((job, start_s), 0))
    if not hosts:
        reading.tally.drop("no nodes")
    elif not 0 < begin_s <= end_s < OPEN_END_NS // NS_PER_S:
        reading.refuse("impossible time", block, at, f"Expected epoch seconds, got {begin_s} and {end_s}")
    elif reading.tally.lasts(begin_s, end_s):
        node_set = reading.rows.lists.parse(" ".join(hosts), _lsf_hosts)
        reading.rows.add(begin_s * NS_PER_S, end_s * NS_PER_S, node_set, hash((job, index)))


def _read_line(line: str, block: Block, at: int, resized: dict[tuple[int, int], int], reading: Reading) -> None:
    """Write down a job, or count why not."""
    reading.tally.records += 1
    if not line.startswith(_FINISH):
        if reading.tally.records == 1 and not _RECORD.match(line):
            place = f"{block.path}:{block.first + at}"
            raise LogError(f"{place}: Expected a record of lsb.acct, got {one_line(line[:60])!r}.")
        reading.tally.drop("about no finished job")
        return
    try:
        end_s, start_s, submit_s, queue, hosts = _parse_job(_fields(line))
    except (StopIteration, ValueError):
        reading.refuse("malformed line", block, at, f"Expected all fields of JOB_FINISH, got {one_line(line[:60])!r}")
        return
    if max(start_s, end_s) >= OPEN_END_NS // NS_PER_S or min(start_s, end_s) < 0:
        reading.refuse("impossible time", block, at, f"Expected epoch seconds, got {start_s} and {end_s}")
    elif start_s == 0:
        reading.tally.drop("never started")
    elif not hosts:
        reading.tally.drop("no nodes")
    elif reading.tally.lasts(start_s, end_s):
        # Of a job that was resized the line tells the last hosts only.
        job = natural_number(line.split(None, _JOB + 1)[_JOB]) or 0
        start_s = min(max(start_s, resized.get((job, start_s), 0)), end_s - 1)
        node_set = reading.rows.lists.parse(" ".join(hosts), _lsf_hosts)
        # Members of a job array differ in the last fields only; copies of a record differ in none.
        key = hash(line)
        times_ns = start_s * NS_PER_S, end_s * NS_PER_S
        submit_ns = submit_s * NS_PER_S if 0 < submit_s <= start_s else None
        reading.rows.add(*times_ns, node_set, key, partition=queue, submit_ns=submit_ns)


def _fields(line: str) -> Iterator[str]:
    """Fields of a line, quotes taken off."""
    for found in _FIELD.finditer(line):
        yield found[2] if found[1] is None else found[1].replace('""', '"')


def _parse_job(fields: Iterator[str]) -> tuple[int, int, int, str, list[str]]:
    """End, start, submission, queue and hosts of a job."""
    given = _next(fields, _ASKED)
    _next(fields, int(next(fields)))
    hosts = _next(fields, int(next(fields)))
    int(next(fields))  # the status, which is missing if the list of hosts was cut off
    return int(given[_END]), int(given[_START]), natural_number(given[_SUBMIT]) or 0, given[_QUEUE], hosts


def _next(fields: Iterator[str], count: int) -> list[str]:
    """The next fields."""
    some = list(islice(fields, count))
    if len(some) != count:
        raise ValueError(f"Expected {count} fields, got {len(some)}.")
    return some


def _lsf_hosts(hosts: str) -> list[str]:
    """Names of hosts, listed once per slot or with the number of slots: `16*host1`."""
    return [_SLOTS.sub("", host) for host in hosts.split()]
