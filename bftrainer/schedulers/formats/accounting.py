"""Import accounting logs of batch systems: PBS Pro, OpenPBS, TORQUE, and LSF's `lsb.acct`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import ClassVar

from bftrainer.errors import LogError
from bftrainer.files.log_files import Block, head, line_blocks
from bftrainer.files.opening import one_line
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.hostlist import numbers
from bftrainer.nodelogs.node_spans import OPEN_END_NS
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.clock import natural_number
from bftrainer.schedulers.formats.pbs_records import (
    LINE,
    NO_RUN,
    PROVISIONING,
    RESERVATION,
    UNDATED,
    Entry,
    NodeList,
    OpenRun,
    Runs,
    end_run,
    entries,
    interrupt_run,
    occupy,
    start_run,
)
from bftrainer.schedulers.reading import Importer, Reading

_NGPUS = re.compile(r"\bngpus=(\d{1,4})\b", re.ASCII)
_PORT = re.compile(r":\d+$", re.ASCII)
_COUNTED = re.compile(r"([^/]+)/(\d{1,5})", re.ASCII)
_ASKED_NODES = re.compile(r"(\d{1,6})(?::(?:[^+:]+:)*?ppn=(\d{1,5}))?", re.ASCII)
_VNODE = re.compile(r"\[\d+\]$", re.ASCII)


def in_order_of_time(paths: Sequence[Path]) -> list[Path]:
    """The files in the order of their first lines: runs begin in one file and end in another."""

    def _first_time(path: Path) -> tuple[str, str]:
        found = next(filter(None, map(LINE.match, head(path))), None)
        return ("", path.name) if found is None else ("-".join((found[3], found[1], found[2], found[4])), path.name)

    return sorted(paths, key=_first_time)


class PbsImporter(Importer):
    """Logs of PBS: runs from their starts and ends, and from changes between these.

    References
    ----------
    Altair PBS Professional Administrator's Guide, "Accounting log format"; TORQUE Administrator Guide, "Accounting
    records".
    """

    name: ClassVar[str] = "pbs"
    tells_changes: ClassVar[bool] = True

    def recognises(self, lines: Sequence[str]) -> bool:
        """Lines that begin with a date and a record's type."""
        return any(LINE.fullmatch(line) for line in lines[:5])

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files in the order of their first lines."""
        runs = Runs(reading, lambda fields: _node_list(fields, runs))
        for entry in entries(in_order_of_time(paths), reading):
            _apply(entry, runs)
        runs.end_all()


def _apply(entry: Entry, runs: Runs) -> None:
    """Let a line begin, change or end a run."""
    settings = runs.reading.settings
    if entry.type == "E":
        end_run(entry, runs)
    elif entry.type in ("S", "s"):
        start_run(entry, runs)
    elif entry.type in ("R", "A", "C"):
        interrupt_run(entry, runs)
    elif entry.type in ("T", "u", "c"):
        _change(entry, runs)
    elif entry.type in ("z", "r"):
        _suspend(entry, runs)
    elif entry.type in ("P", "p"):
        occupy(entry, runs, PROVISIONING, "P")
    elif entry.type in ("B", "F", "K", "k") and settings.reserved_busy:
        occupy(entry, runs, RESERVATION, "B")
    else:
        _note(entry, runs)


def _note(entry: Entry, runs: Runs) -> None:
    """Count a line that begins, changes and ends no run; Q says when a job was submitted."""
    if entry.type == "Q":
        runs.queued[entry.id] = entry.moment
    runs.reading.tally.drop(NO_RUN)


def _suspend(entry: Entry, runs: Runs) -> None:
    """z, r: a run is suspended and resumed; its time limit waits for it."""
    if runs.reading.settings.suspended == "idle":
        _change(entry, runs)
    else:
        _note(entry, runs)
    if entry.id in runs.open and (at := runs.moment_ns(entry.moment)) is not None:
        (runs.stop_clock if entry.type == "z" else runs.start_clock)(entry.id, at)


def _change(entry: Entry, runs: Runs) -> None:
    """u, c: a run gives back some of its nodes. T: it goes on. z, r: it leaves its nodes for a while."""
    fields = entry.fields()
    at, nodes, run = runs.moment_ns(entry.moment), runs.node_list(fields), runs.open.get(entry.id)
    if at is None:
        runs.reading.tally.drop(UNDATED)
    elif entry.type in ("T", "c") and nodes is not None:
        partition = fields.get("queue", "")
        runs.begin(entry.id, OpenRun(at, nodes, partition, is_continued=True))
    elif run is None and entry.type == "u" and nodes is not None and (start := runs.epoch_ns(entry, fields, "start")):
        runs.write(entry.id, start, at, nodes, fields.get("queue", ""))
    elif run is None:
        runs.reading.tally.drop(NO_RUN)
    elif entry.type == "r":
        runs.resume(entry.id, at)
    else:
        runs.pause(entry.id, at)
        if entry.type == "u":
            runs.resume(entry.id, at)


def _node_list(fields: dict[str, str], runs: Runs) -> NodeList | None:
    """Nodes of a line: the hosts that it names, else those of its virtual nodes."""
    lists, unit = runs.reading.rows.lists, runs.reading.settings.unit
    text, vnodes = fields.get("exec_host", ""), fields.get("exec_vnode", "")
    if text and unit != "node" and (vnodes or unit == "core"):
        total = _total_slots(fields)
        key = f"{text} {vnodes}" if unit == "gpu" else f"{text} {total}"
        node_set = lists.parse(key, lambda _: _hosts(text))
        counts = Counter(_slots(text, total)) if unit == "core" else Counter(_vnode_gpus(vnodes))
        runs.share(node_set, {name: counts[name] for name in _hosts(text)})
    elif text:
        node_set = lists.parse(text, _hosts)
    else:
        text = next(
            (fields[key] for key in ("exec_vnode", "provision_vnode", "nodes", "resv_nodes") if fields.get(key)), ""
        )
        node_set = lists.parse(text, _vnodes)
    if not lists.size(node_set):
        return None
    given = natural_number(fields.get("unique_node_count", ""))
    is_whole = not text.endswith("+") and given in (None, lists.size(node_set))
    return node_set, BusyKind.JOB if is_whole else BusyKind.UNKNOWN


def _hosts(text: str) -> list[str]:
    """Hosts of `c1/0+c1/1`, `c1/0*13+c2/0*13` or `c4/0-2,5`: slots follow the slash.

    Examples
    --------
    >>> _hosts("c1/0*13+c2:15002/0-2,5+c2/7")
    ['c1', 'c2', 'c2']
    """
    hosts = (_PORT.sub("", part.partition("/")[0]) for part in text.split("+"))
    return [host for host in hosts if host]


def _total_slots(fields: dict[str, str]) -> int | None:
    """How many slots a job of TORQUE has, by its record of the end or by what it asked for; None if neither tells."""
    if (told := natural_number(fields.get("total_execution_slots", ""))) is not None:
        return told
    asked = [_ASKED_NODES.match(part) for part in fields.get("Resource_List.nodes", "").split("+")]
    if not all(asked):
        return None
    return sum(int(part[1]) * int(part[2] or 1) for part in asked if part is not None)


def _slots(text: str, total: int | None = None) -> Iterator[str]:
    """The host of each slot; newer versions of TORQUE count those of a host, if that gives the `total`.

    Examples
    --------
    >>> list(_slots("c1/0*2+c2/0-2,5"))
    ['c1', 'c1', 'c2', 'c2', 'c2', 'c2']
    >>> list(_slots("c1/2+c2/1", total=3))
    ['c1', 'c1', 'c2']
    """
    counted = [_COUNTED.fullmatch(part) for part in text.split("+")]
    if total is not None and len(counted) != total and all(counted):
        sizes = [int(part[2]) for part in counted if part is not None]
        if sum(sizes) == total:
            for host, size in zip(_hosts(text), sizes, strict=True):
                yield from repeat(host, size)
            return
    for part in filter(None, text.split("+")):
        host, _, slots = part.partition("/")
        chosen, _, times = slots.partition("*")
        count = int(times) if times.isdecimal() and len(times) < 6 else max(1, len(numbers(chosen)))
        yield from repeat(_PORT.sub("", host), count)


def _vnode_gpus(text: str) -> Iterator[str]:
    """The host of each GPU of `(c1:ncpus=13:ngpus=2)+(c2:ngpus=1)`."""
    for part in text.split("+"):
        name, _, resources = part.strip("()").partition(":")
        if (found := _NGPUS.search(resources)) is not None:
            yield from repeat(_VNODE.sub("", name), int(found[1]))


def _vnodes(text: str) -> list[str]:
    """Hosts of `(c1:ncpus=13)+(a[0]:ncpus=2+a[1]:ncpus=2)`: part of a host counts as the host.

    Examples
    --------
    >>> _vnodes("(c1:ncpus=13)+(a[0]:ncpus=2+a[1]:ncpus=2)")
    ['c1', 'a', 'a']
    """
    names = (_VNODE.sub("", part.strip("()").partition(":")[0]) for part in text.split("+"))
    return [name for name in names if name]


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
    """End, start, submission, queue and hosts of a job.

    Raises
    ------
    StopIteration, ValueError
        If a field is missing, or is not a number.
    """
    given = _next(fields, _ASKED)
    _next(fields, int(next(fields)))
    hosts = _next(fields, int(next(fields)))
    int(next(fields))  # the status, which is missing if the list of hosts was cut off
    return int(given[_END]), int(given[_START]), natural_number(given[_SUBMIT]) or 0, given[_QUEUE], hosts


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


def _lsf_hosts(hosts: str) -> list[str]:
    """Names of hosts, listed once per slot or with the number of slots: `16*host1`."""
    return [_SLOTS.sub("", host) for host in hosts.split()]
