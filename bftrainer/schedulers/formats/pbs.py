"""Import accounting logs of PBS Pro, OpenPBS and TORQUE: `MM/DD/YYYY HH:MM:SS;TYPE;id;key=value ...`."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from bftrainer.errors import LogError
from bftrainer.files.log_files import Block, head, line_blocks
from bftrainer.files.opening import one_line
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.hostlist import numbers
from bftrainer.nodelogs.node_spans import OPEN_END_NS
from bftrainer.schedulers.busy_records import ALL_UNITS, BusyKind
from bftrainer.schedulers.clock import BAD, Stamps, duration_s, exact_ns, natural_number
from bftrainer.schedulers.reading import CUT_OFF, Importer, Reading

_LINE = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d:\d\d);([A-Za-z]{1,2});([^;]*)(?:;(.*))?", re.ASCII | re.DOTALL)
_FIELD = re.compile(r"(?<![\w.])([\w.]++)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|\S*)")
_NGPUS = re.compile(r"\bngpus=(\d{1,4})\b", re.ASCII)
_PORT = re.compile(r":\d+$", re.ASCII)
_COUNTED = re.compile(r"([^/]+)/(\d{1,5})", re.ASCII)
_ASKED_NODES = re.compile(r"(\d{1,6})(?::(?:[^+:]+:)*?ppn=(\d{1,5}))?", re.ASCII)
_VNODE = re.compile(r"\[\d+\]$", re.ASCII)
_QUARTER_S, _LATE_S, _LATEST_CHANGE_H = 900, 60, 3
"""Zones differ by quarters of an hour; clocks are put back by an hour at most, in the first hours of a day."""
_NO_RUN, _UNDATED = "about no run", "change at an unknown time"
_COLUMNS = {
    **dict.fromkeys(("type", "id", "queue", "end"), "object"),
    **dict.fromkeys(("start_ns", "end_ns", "submit_ns", "limit_s"), "int64"),
    "nodes": "int32",
    **dict.fromkeys(("is_whole", "is_cut_off"), "bool"),
    "line": "int32",
}
"""Of a line; 0 for a time that it does not tell, -1 for no limit and no nodes. `end` is one that is no time."""


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
        return any(_LINE.fullmatch(line) for line in lines[:5])

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files in the order of their first lines: runs begin in one file and end in another."""
        hosts = _HostLists(reading)
        blocks = (block for path in sorted(paths, key=_first_moment) for block in line_blocks(path))
        lines = pd.concat([_read_block(block, hosts) for block in blocks], ignore_index=True)
        lines = _sort_lines(lines, reading)
        runs = _Runs(reading, hosts)
        for line in lines.assign(at_ns=_date_lines(lines, reading)).itertuples(index=False):
            runs.apply(line)
        runs.end_all()


def _first_moment(path: Path) -> tuple[str, ...]:
    found = next(filter(None, map(_LINE.match, head(path))), None)
    return ("", path.name) if found is None else (found[3], found[1], found[2], found[4], path.name)


def _read_block(block: Block, hosts: _HostLists) -> pd.DataFrame:
    """Lines of a block as `_COLUMNS`, `local_s` and `path`; others are refused, or counted if of no use."""
    tally, moments, rows = hosts.reading.tally, [], []
    for at, text in enumerate(block.lines):
        if not text:
            continue
        tally.records += 1
        if (found := _LINE.fullmatch(text)) is not None:
            if found[5] in hosts.used:
                month, day, year, time = found.group(1, 2, 3, 4)
                moments.append(f"{year}-{month}-{day}T{time}")
                rows.append((*_read_line(found, hosts, is_cut_off=block.is_cut_off(at)), block.first + at))
            else:
                tally.drop(_NO_RUN)
            continue
        detail = f"Expected MM/DD/YYYY HH:MM:SS;TYPE;id;..., got {one_line(text[:60])!r}"
        if tally.records == 1 and not block.cut_off:
            raise LogError(f"{block.path}:{block.first + at}: {detail}.")
        hosts.reading.refuse("malformed line", block, at, detail)
    tally.check()
    shown = pd.to_datetime(pd.Series(moments, dtype="object"), format="%Y-%m-%dT%H:%M:%S", errors="coerce")
    local_s = shown.astype("M8[s]").astype("int64")
    # Not from_records: its columns of objects would keep all values of the rows.
    columns = zip(*rows, strict=True) if rows else repeat(())
    stated_ns = zip(_COLUMNS.items(), columns, strict=False)
    lines = pd.DataFrame({name: pd.Series(column, dtype=kind) for (name, kind), column in stated_ns})
    local_s = local_s.mask(shown.isna() | (local_s >= OPEN_END_NS // NS_PER_S), BAD)
    return lines.assign(local_s=local_s, path=[block.path] * len(lines))


def _read_line(found: re.Match[str], hosts: _HostLists, *, is_cut_off: bool) -> tuple[Any, ...]:
    """What a line tells of its run; the last field of one that was cut off is left out."""
    kind, name, text = found.group(5, 6, 7)
    if kind not in hosts.types:
        return kind, sys.intern(name), "", "", 0, 0, 0, -1, -1, True, is_cut_off
    pairs = _FIELD.findall(text or "")
    fields = {key: value.strip("\"'") for key, value in (pairs[:-1] if is_cut_off else pairs)}
    times_ns = [max(exact_ns(fields.get(key, "0")) or 0, 0) for key in ("start", "end", "qtime")]
    limit_s = duration_s(fields.get("Resource_List.walltime", "")) if kind in "Ssa" else None
    nodes, is_whole = hosts.find(fields) if kind != "a" else (-1, True)
    texts = kind, name, fields.get("queue", ""), "" if times_ns[1] else fields.get("end", "")
    return *map(sys.intern, texts), *times_ns, -1 if limit_s is None else limit_s, nodes, is_whole, is_cut_off


def _sort_lines(lines: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    """The lines in order of their local time unless clocks that were put back explain another."""
    behind = np.maximum.accumulate(lines["local_s"]) - lines["local_s"]
    is_late = (behind > _LATE_S) & (lines["local_s"] > BAD)
    hour = lines["local_s"] % 86_400 // 3600
    is_strange = is_late & ((behind > 3600) | (hour > _LATEST_CHANGE_H))
    is_strange |= is_late.shift(fill_value=False) & (behind > behind.shift())
    if not is_strange.any():
        return lines
    reading.note(f"{int(is_late.sum()):,} lines are out of order: they were sorted by their times.")
    # Of one second, ends come last: they may be those of runs that start in it.
    return lines.iloc[np.lexsort((lines["type"] == "E", lines["local_s"]))]


def _date_lines(lines: pd.DataFrame, reading: Reading) -> pd.Series[int]:
    """When each line was written, in nanoseconds since the epoch; 0 if that is unknown.

    Starts and ends have both times: the offset of the zone follows for the lines after them, and before the first.
    """
    clock, local_s = reading.clock, lines["local_s"]
    told_ns = lines["start_ns"].where(lines["type"] == "S", lines["end_ns"].where(lines["type"] == "E", 0))
    if (stated_ns := told_ns[told_ns > 0]).nunique() > 1:
        reading.window_ns = int(stated_ns.min()), int(stated_ns.max())
    ahead_s = (local_s - told_ns / NS_PER_S).where((told_ns > 0) & (local_s > BAD))
    offset_s = (ahead_s / _QUARTER_S).round() * _QUARTER_S
    offset_s = offset_s.where(((ahead_s - offset_s).abs() <= _LATE_S) & (offset_s.abs() <= 15 * 3600)).ffill().bfill()
    offset_s = offset_s.where(local_s > BAD)
    by_offset = (local_s - offset_s.fillna(0).astype("int64")) * NS_PER_S
    by_offset = by_offset.where(offset_s.notna() & (by_offset < OPEN_END_NS), 0)
    if clock.zone is None:
        has_end = lines["type"].isin(list("RAC")) & (lines["end_ns"] > 0)
        if (lines["type"].isin(list("RACTuczrpFKk")) & ~has_end).any():
            reading.note("no --tz: lines with only a local time are dated by others that have both times.")
        return by_offset
    stamps = Stamps(local_s.to_numpy(), (local_s > BAD).to_numpy())
    first, second = (clock.utc_ns(stamps, second_pass=is_second) for is_second in (False, True))
    # In an hour that comes twice, earlier lines with both times show which pass it is: lines are in order.
    is_second = (second == by_offset) | (first < told_ns.cummax() - _LATE_S * NS_PER_S)
    return pd.Series(np.where(is_second, second, first), index=lines.index).clip(lower=0)


@dataclass(slots=True)
class _Run:
    """A job on its nodes, or a reservation, that has not ended yet.

    `start_ns` is that of this stretch on these nodes, of which others may have been written down before
    (`is_continued`); `due_ns` is when it ends if no line says so, by its limit. A suspended run's limit waits for it.
    """

    start_ns: int
    nodes: int
    kind: BusyKind
    queue: str = ""
    submit_ns: int = 0
    due_ns: int = OPEN_END_NS
    limit_ns: int = 0
    is_continued: bool = False
    is_paused: bool = False
    suspended_ns: int = 0


class _Runs:
    """Runs that have begun and not ended, by the name of the job or reservation; ended ones go to the rows."""

    def __init__(self, reading: Reading, hosts: _HostLists) -> None:
        self._reading, self._hosts = reading, hosts
        self._open: dict[str, _Run] = {}
        handlers = {
            "Ss": self._start,
            "E": self._end,
            "RAC": self._interrupt,
            "Tuc": self._change,
            "zr": self._suspend,
            "a": self._alter,
            "PpBFKk": self._occupy,
        }
        self._handlers = {kind: handler for kinds, handler in handlers.items() for kind in kinds}

    def apply(self, line: Any) -> None:
        """Let a line begin, change or end a run."""
        self._handlers[line.type](line)

    def _start(self, line: Any) -> None:
        """S: a run starts; the line may be repeated. s: it starts without the nodes that failed at the last moment."""
        if not line.start_ns or line.nodes < 0:
            self._drop(line, "start without nodes" if line.start_ns else "start without a time")
            return
        if (provisioning := self._open.pop(f"P {line.id}", None)) is not None:
            self._write(line.id, provisioning, line.start_ns)
        run = _Run(line.start_ns, line.nodes, _trust(line), line.queue, line.submit_ns)
        if line.limit_s > 0:
            run.limit_ns = line.limit_s * NS_PER_S
            run.due_ns = run.start_ns + run.limit_ns
        before = self._open.get(line.id)
        if before is not None and (before.start_ns != run.start_ns or before.is_continued):
            self._write(line.id, before, run.start_ns)
            run.submit_ns, run.is_continued = run.submit_ns or before.submit_ns, before.is_continued
            if line.limit_s <= 0:
                run.due_ns, run.limit_ns = before.due_ns, before.limit_ns
        self._open[line.id] = run

    def _end(self, line: Any) -> None:
        """E: a run ends; the line repeats start and nodes, which count unless they changed on the way."""
        run = self._open.pop(line.id, None)
        start_ns, nodes, kind, submit_ns = line.start_ns, line.nodes, _trust(line), line.submit_ns
        if run is not None:
            submit_ns = submit_ns or run.submit_ns
            start_ns = run.start_ns if not start_ns or run.is_continued else start_ns
            nodes, kind = (run.nodes, run.kind) if nodes < 0 or run.is_continued else (nodes, kind)
        if nodes < 0:
            self._drop(line, "no nodes")
        elif not line.end_ns:
            reason = CUT_OFF if line.is_cut_off else "impossible time"
            got = f"end={line.end}" if line.end else "none"
            self._reading.tally.refuse(reason, line.path, line.line, f"Expected end=SECONDS, got {got}")
        elif not start_ns:
            self._drop(line, "never started")
        elif start_ns >= line.end_ns:
            self._reading.tally.drop("end before start" if line.end_ns < start_ns else "zero length")
        elif run is None or not run.is_paused:
            self._write(line.id, _Run(start_ns, nodes, kind, line.queue, submit_ns), line.end_ns)

    def _interrupt(self, line: Any) -> None:
        """R, A, C: a run is over before its job is: run again, aborted, or held with a checkpoint.

        If it began before the files, the line itself may give start and nodes, as an end does.
        """
        at_ns = line.end_ns or line.at_ns
        if line.id in self._open:
            if at_ns:
                self._write(line.id, self._open.pop(line.id), at_ns)
            else:  # what comes next, another start or an end, closes the run
                self._reading.tally.drop(_UNDATED)
        elif line.nodes >= 0 and 0 < line.start_ns < at_ns:
            self._write(line.id, _Run(line.start_ns, line.nodes, _trust(line), line.queue, line.submit_ns), at_ns)
        else:
            self._drop(line, _NO_RUN)

    def _change(self, line: Any) -> None:
        """u, c: a run gives back some of its nodes. T: it goes on, from a checkpoint."""
        run, at_ns = self._open.get(line.id), line.at_ns
        if not at_ns:
            self._reading.tally.drop(_UNDATED)
        elif line.type == "u" and run is None and line.nodes >= 0 and line.start_ns:
            self._write(line.id, _Run(line.start_ns, line.nodes, _trust(line), line.queue), at_ns)
        elif line.type != "u" and line.nodes >= 0:
            run = self._open.setdefault(line.id, _Run(at_ns, line.nodes, _trust(line)))
            self._write(line.id, run, at_ns)
            run.start_ns, run.nodes, run.kind, run.queue = at_ns, line.nodes, _trust(line), line.queue
            run.is_continued, run.is_paused, run.suspended_ns = True, False, 0
        elif run is None:
            self._reading.tally.drop(_NO_RUN)
        else:
            self._write(line.id, run, at_ns)
            run.start_ns, run.is_continued = at_ns, True

    def _suspend(self, line: Any) -> None:
        """z, r: a run is suspended and resumed; its time limit waits for it, its nodes perhaps do not."""
        run, at_ns = self._open.get(line.id), line.at_ns
        is_idle = self._reading.settings.suspended == "idle"
        if not is_idle or run is None or not at_ns:
            self._reading.tally.drop(_UNDATED if is_idle and not at_ns else _NO_RUN)
        if run is None or not at_ns:
            return
        if line.type == "z":
            run.suspended_ns = run.suspended_ns or at_ns
            if is_idle:
                self._write(line.id, run, at_ns)
                run.is_continued = run.is_paused = True
        else:
            if run.is_paused:
                run.start_ns, run.is_paused = at_ns, False
            if run.suspended_ns:
                run.due_ns = min(run.due_ns + at_ns - run.suspended_ns, OPEN_END_NS)
                run.suspended_ns = 0

    def _alter(self, line: Any) -> None:
        """a: a job is altered; its time limit counts from when it began, and later by what it was suspended."""
        if line.limit_s >= 0 and (run := self._open.get(line.id)) is not None:
            first_ns = run.due_ns - run.limit_ns if run.due_ns < OPEN_END_NS else run.start_ns
            run.limit_ns = line.limit_s * NS_PER_S
            run.due_ns = first_ns + run.limit_ns
        self._reading.tally.drop(_NO_RUN)

    def _occupy(self, line: Any) -> None:
        """P, B: nodes are provisioned for a job, or reserved. p, F, K, k: this is over, or deleted."""
        name, at_ns = f"{'P' if line.type in 'Pp' else 'B'} {line.id}", line.at_ns
        run = self._open.pop(name, None)
        if line.type in "PB":
            start_ns, kind = line.start_ns or at_ns, BusyKind.RESERVED if line.type == "B" else _trust(line)
            if run is not None and start_ns:
                self._write(name, run, start_ns)
            if start_ns and line.nodes >= 0:
                self._open[name] = _Run(start_ns, line.nodes, kind, due_ns=line.end_ns or OPEN_END_NS)
            else:
                self._reading.tally.drop("no nodes" if start_ns else _UNDATED)
        elif run is not None and at_ns:
            self._write(name, run, min(at_ns, run.due_ns))
        else:
            self._reading.tally.drop(_NO_RUN if at_ns else _UNDATED)

    def end_all(self) -> None:
        """Write down all that is still open, to its time limit or the end of any window."""
        for name, run in self._open.items():
            due_ns = OPEN_END_NS if run.suspended_ns else run.due_ns
            self._write(name, run, due_ns, is_open=run.kind is not BusyKind.RESERVED)

    def _write(self, name: str, run: _Run, end_ns: int, *, is_open: bool = False) -> None:
        """Write down a run's stretch on its nodes, unless it gave them back or had them for no time."""
        if run.start_ns >= end_ns or run.is_paused:
            return
        for at, (nodes, units) in enumerate(self._hosts.shares.get(run.nodes, [(run.nodes, ALL_UNITS)])):
            stretch = run.start_ns, end_ns, nodes, hash(name) + at, run.kind, run.queue, run.submit_ns or None
            self._reading.rows.add(*stretch, units=units, is_open=is_open)

    def _drop(self, line: Any, reason: str) -> None:
        self._reading.tally.drop(CUT_OFF if line.is_cut_off else reason)


def _trust(line: Any) -> BusyKind:
    return BusyKind.JOB if line.is_whole else BusyKind.UNKNOWN


class _HostLists:
    """Lists of nodes that lines name."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        is_reserved = reading.settings.reserved_busy
        self.types = frozenset("ESsRACTucaP" + "B" * is_reserved)  # lines whose fields are used
        self.used = self.types | frozenset("zrp" + "FKk" * is_reserved)
        self.shares: dict[int, list[tuple[int, int]]] = {}

    def find(self, fields: Mapping[str, str]) -> tuple[int, bool]:
        """Number of the list of hosts that a line names, else of those of its virtual nodes; and whether it is whole.

        The number is -1 if it names none.
        """
        lists, unit = self.reading.rows.lists, self.reading.settings.unit
        text, vnodes = fields.get("exec_host", ""), fields.get("exec_vnode", "")
        if text and unit != "node" and (vnodes or unit == "core"):
            total = _total_slots(fields)
            key = f"{text} {vnodes}" if unit == "gpu" else f"{text} {total}"
            nodes = lists.parse(key, lambda _: _hosts(text))
            if nodes not in self.shares:
                counts = Counter(_slots(text, total) if unit == "core" else _vnode_gpus(vnodes))
                by_count: dict[int, list[str]] = {}
                for name in dict.fromkeys(_hosts(text)):
                    by_count.setdefault(counts[name], []).append(name)
                self.shares[nodes] = [(lists.add(names), count) for count, names in by_count.items()]
        elif text:
            nodes = lists.parse(text, _hosts)
        else:
            keys = ("exec_vnode", "provision_vnode", "nodes", "resv_nodes")
            text = next((fields[key] for key in keys if fields.get(key)), "")
            nodes = lists.parse(text, _vnodes)
        size, stated = lists.size(nodes), natural_number(fields.get("unique_node_count", ""))
        return (nodes if size else -1), not text.endswith("+") and stated in (None, size)


def _hosts(text: str) -> list[str]:
    """Hosts of `c1/0+c1/1`, `c1/0*13+c2/0*13` or `c4/0-2,5`: slots follow the slash."""
    hosts = (_PORT.sub("", part.partition("/")[0]) for part in text.split("+"))
    return [host for host in hosts if host]


def _total_slots(fields: Mapping[str, str]) -> int | None:
    """How many slots a job of TORQUE has, by its record of the end or by what it asked for; None if neither tells."""
    if (total := natural_number(fields.get("total_execution_slots", ""))) is not None:
        return total
    asked = [_ASKED_NODES.match(part) for part in fields.get("Resource_List.nodes", "").split("+")]
    if not all(asked):
        return None
    return sum(int(part[1]) * int(part[2] or 1) for part in asked if part is not None)


def _slots(text: str, total: int | None = None) -> Iterator[str]:
    """The host of each slot; newer versions of TORQUE count those of a host, if that gives the `total`."""
    counted = [_COUNTED.fullmatch(part) for part in text.split("+")]
    sizes = [int(part[2]) for part in counted if part is not None]
    if len(sizes) == len(counted) != total == sum(sizes):
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
    """Hosts of `(c1:ncpus=13)+(a[0]:ncpus=2+a[1]:ncpus=2)`: part of a host counts as the host."""
    names = (_VNODE.sub("", part.strip("()").partition(":")[0]) for part in text.split("+"))
    return [name for name in names if name]
