"""Import the `accounting` files of Grid Engine (SGE, UGE, SoGE): fields between colons, a line per job or task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bftrainer.errors import LogError
from bftrainer.files.log_files import Block, line_blocks
from bftrainer.files.opening import one_line
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.node_spans import OPEN_END_NS
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.clock import natural_number
from bftrainer.schedulers.reading import Importer, Reading

_QUEUE, _HOST, _JOB, _SUBMIT, _START, _END, _PE, _SLOTS, _ARRAY_TASK, _TASK = 0, 1, 5, 8, 9, 10, 33, 34, 35, 41
_FEWEST = _ARRAY_TASK + 1
_MILLISECONDS = 10**11
"""Times from this on are milliseconds: as seconds they were in the year 5138."""
_NS_PER_MS = 1_000_000
_NONE = ("", "NONE", "UNKNOWN", "global")


@dataclass(frozen=True, slots=True)
class _Run:
    """A job on its first host, or a task of it on another one."""

    start_ns: int
    end_ns: int
    submit_ns: int | None
    host: str
    queue: str
    key: int
    is_task: bool


class SgeImporter(Importer):
    """Jobs as Grid Engine accounts for them when they end.

    A parallel job names its first host only, unless `accounting_summary` of its environment is off: then each of its
    tasks has a line. Without such lines its other hosts are unknown.

    References
    ----------
    Grid Engine, accounting(5), sge_pe(5).
    """

    name: ClassVar[str] = "sge"

    def recognises(self, lines: Sequence[str]) -> bool:
        """A first line, but for comments, with enough fields, times at their places."""
        first = next((line for line in lines if line.strip() and not line.startswith("#")), "").split(":")
        return len(first) >= _FEWEST and None not in map(natural_number, (first[_JOB], *first[_SUBMIT : _END + 1]))

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files."""
        parallel: dict[tuple[str, str], list[_Run]] = {}
        for path in paths:
            for block in line_blocks(path):
                for at, line in enumerate(block.lines):
                    if line.strip() and not line.startswith("#"):
                        _read_line(line, block, at, reading, parallel)
                reading.tally.check()
        for runs in parallel.values():
            _join(runs, reading)


def _read_line(line: str, block: Block, at: int, reading: Reading, parallel: dict[tuple[str, str], list[_Run]]) -> None:
    """Write down a job on one host, keep lines of parallel ones, or count why not."""
    reading.tally.records += 1
    fields = line.split(":")
    if len(fields) < _FEWEST:
        detail = f"Expected {_FEWEST} fields or more between colons, got {one_line(line[:60])!r}"
        if reading.tally.records == 1:
            raise LogError(f"{block.path}:{block.first + at}: {detail}.")
        reading.refuse("wrong number of fields", block, at, detail)
        return
    start, end = (_nanoseconds(fields[place]) for place in (_START, _END))
    if start is None or end is None:
        detail = f"Expected seconds or milliseconds since 1970, got {one_line(':'.join(fields[_START : _END + 1]))!r}"
        reading.refuse("impossible time", block, at, detail)
    elif start == 0:
        reading.tally.drop("never started")
    elif fields[_HOST] in _NONE:
        reading.tally.drop("no nodes")
    elif reading.tally.lasts(start, end):
        is_task = len(fields) > _TASK and fields[_TASK] not in _NONE
        run = _Run(
            start, end, _nanoseconds(fields[_SUBMIT]) or None, fields[_HOST], fields[_QUEUE], hash(line), is_task
        )
        if is_task or (fields[_PE] not in _NONE and fields[_SLOTS] != "1"):
            parallel.setdefault((fields[_JOB], fields[_ARRAY_TASK]), []).append(run)
        else:
            _write(run, (), BusyKind.JOB, reading)


def _nanoseconds(text: str) -> int | None:
    """Nanoseconds since 1970; None if it is no time."""
    count = natural_number(text)
    if count is None:
        return None
    count *= _NS_PER_MS if count >= _MILLISECONDS else NS_PER_S
    return count if count < OPEN_END_NS else None


def _join(runs: Sequence[_Run], reading: Reading) -> None:
    """Write down a parallel job on the hosts of all its tasks, or those tasks alone if it has no line of its own."""
    jobs, tasks = [run for run in runs if not run.is_task], [run for run in runs if run.is_task]
    for job in jobs:
        hosts = [task.host for task in tasks if task.start_ns < job.end_ns and job.start_ns < task.end_ns]
        _write(job, hosts, BusyKind.JOB if hosts else BusyKind.UNKNOWN, reading)
    for task in tasks:
        if any(task.start_ns < job.end_ns and job.start_ns < task.end_ns for job in jobs):
            reading.tally.drop("task of a parallel job")
        else:
            _write(task, (), BusyKind.JOB, reading)


def _write(run: _Run, others: Sequence[str], kind: BusyKind, reading: Reading) -> None:
    book = reading.book
    node_set = book.node_set((run.host, *others)) if others else book.nodes(run.host, lambda host: (host,))
    book.add(run.start_ns, run.end_ns, node_set, run.key, kind, book.partition(run.queue), run.submit_ns)
