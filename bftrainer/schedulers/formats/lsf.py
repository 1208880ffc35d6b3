"""Import LSF's accounting log, `lsb.acct`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from bftrainer.files.opening import one_line
from bftrainer.files.text_files import LogRow
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS
from bftrainer.schedulers.clock import natural_number
from bftrainer.schedulers.reading import Importer, Reading, Tally

_FIELD = re.compile(r'"((?:[^"]|"")*)"|(\S+)')
_SLOTS = re.compile(r"^\d+\*", re.ASCII)
_RECORD = re.compile(r'"[A-Z_]+" ')
_FINISH, _RESIZE = '"JOB_FINISH" ', '"JOB_RESIZE" '
_ASKED, _FORMER = 22, 10
"""Fields before the number of hosts that a finished job asked for, and that a resized one had until then."""
_NAME, _INDEX = 2, 29
"""Fields behind the hosts of a finished job: its name, and which member of an array it is."""
_ROWS_AT_A_TIME = 1 << 16


class LsfImporter(Importer):
    """Jobs as LSF accounts for them when they finish, and when they get other hosts.

    References
    ----------
    IBM Spectrum LSF, "lsb.acct", records JOB_FINISH and JOB_RESIZE.
    """

    name: ClassVar[str] = "lsf"

    def recognises(self, lines: Sequence[str]) -> bool:
        """Lines that begin with a record's name in quotes."""
        return any(line.startswith('"JOB_') and _RECORD.match(line) for line in lines[:5])

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files."""
        resized_s: dict[tuple[int, int, int], int] = {}
        rows = reading.lines(paths)
        while some := list(islice(rows, _ROWS_AT_A_TIME)):
            reading.tally.records += len(some)
            jobs = [job | {"place": row.place} for row in some if (job := _read_row(row, resized_s, reading.tally))]
            if jobs:
                frame = pd.DataFrame(jobs)
                times_ns = {f"{name}_ns": frame[f"{name}_s"] * NS_PER_S for name in ("start", "end", "submit")}
                reading.take(frame.assign(**times_ns).replace({"submit_ns": 0}, OPEN_START_NS))


def _read_row(row: LogRow, resized_s: dict[tuple[int, int, int], int], tally: Tally) -> dict[str, Any]:
    """The job of a row; empty for a row without one, which is counted."""
    try:
        job = _read_record(row.fields[0], resized_s)
    except (StopIteration, ValueError):
        detail = f"Expected all fields of a record of lsb.acct, got {one_line(row.fields[0][:60])!r}"
        tally.refuse("malformed line", row, detail)
        return {}
    times_s = job.get("start_s", 0), job.get("end_s", 0)
    if not 0 <= min(times_s) <= max(times_s) < OPEN_END_NS // NS_PER_S:
        tally.refuse("impossible time", row, f"Expected epoch seconds, got {times_s[0]} and {times_s[1]}")
    elif not job or not job["start_s"] or not job["nodes"]:
        tally.drop("about no finished job" if not job else "no nodes" if job["start_s"] else "never started")
    else:
        return job
    return {}


def _read_record(line: str, resized_s: dict[tuple[int, int, int], int]) -> dict[str, Any]:
    """Times, hosts and queue of a job that is over, or of its time on the hosts that it had until it was resized."""
    fields = (field[2] if field[1] is None else field[1].replace('""', '"') for field in _FIELD.finditer(line))
    if line.startswith(_RESIZE):
        some = _next(fields, _FORMER)
        end_s, number, index, start_s, last_s = (int(some[at]) for at in (2, 3, 4, 5, 9))
        run = number, index, start_s
        resized_s[run] = max(end_s, resized_s.get(run, 0))
        job, start_s, submit_s, queue = hash((number, index)), max(start_s, last_s), 0, ""
        hosts = _next(fields, int(next(fields)))
    elif line.startswith(_FINISH):
        some = _next(fields, _ASKED)
        _next(fields, int(next(fields)))
        hosts, behind = _next(fields, int(next(fields))), list(fields)
        int(behind[0] if behind else "")  # the status, which is missing if the list of hosts was cut off
        end_s, number, start_s, queue = int(some[2]), int(some[3]), int(some[10]), some[12]
        submit_s = natural_number(some[7]) or 0
        submit_s = submit_s if submit_s <= start_s else 0
        index = (natural_number(behind[_INDEX]) or 0) if len(behind) > _INDEX else 0
        # Copies of a record are alike; members of an array have one number, and an index or another name.
        job = hash((number, index, *behind[_NAME : _NAME + 1]))
        # Of a job that was resized the line tells the last hosts only.
        start_s = start_s and max(start_s, min(resized_s.get((number, index, start_s), 0), end_s - 1))
    elif _RECORD.match(line):
        return {}
    else:
        raise ValueError(line)
    nodes = ",".join(dict.fromkeys(_SLOTS.sub("", host) for host in hosts))  # each once a slot, or `16*host1`
    times_s = {"start_s": start_s, "end_s": end_s, "submit_s": submit_s}
    return {**times_s, "job": job, "nodes": nodes, "partition": queue}


def _next(fields: Iterator[str], count: int) -> list[str]:
    """The next fields."""
    some = list(islice(fields, count))
    if len(some) != count:
        raise ValueError(f"Expected {count} fields, got {len(some)}.")
    return some
