"""Import accounting logs of PBS Pro, OpenPBS and TORQUE, and of LSF."""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from bftrainer.files.text_files import LogRow, head
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.hostlist import numbers
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS
from bftrainer.schedulers.busy_records import ALL_UNITS, BusyKind
from bftrainer.schedulers.clock import BAD, duration_s, exact_ns, natural_number, read_stamps
from bftrainer.schedulers.reading import Importer, Reading, RowError

_LINE = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d:\d\d);([A-Za-z]{1,2});([^;]*)(?:;(.*))?", re.ASCII | re.DOTALL)
_COBALT = (
    r"(?m)^\d\d/\d\d/\d{4} [\d:]{8};(?:N[DU]|T[SE]|[QHY]A|HR);",
    r"(?s)\A\d\d/\d\d/\d{4} (?!.*\bexec_host=\S*/).*;[SE];[^\n]*\bexec_host=",
)
_MOMENT = r"\3-\1-\2T\4"
_FIELD = re.compile(r"(?<![\w.])([\w.]++)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|\S*)")
_NGPUS = re.compile(r"\bngpus=(\d{1,4})\b", re.ASCII)
_PORT = re.compile(r":\d+$", re.ASCII)
_ASKED_NODES = re.compile(r"(\d{1,6})(?::(?:[^+:]+:)*?ppn=(\d{1,5}))?", re.ASCII)
_VNODE = re.compile(r"\[\d+\]$", re.ASCII)
_QUARTER_NS, _LATE_NS = 900 * NS_PER_S, 60 * NS_PER_S
"""Zones differ by quarters of an hour; what comes later by no more is in order."""
_NO_RUN, _UNDATED = "about no run", "change at an unknown time"
_TEXTS = 1 << 16
_COLUMNS = {
    **dict.fromkeys(("moment", "type", "id", "queue"), "object"),
    **dict.fromkeys(("start_ns", "end_ns", "submit_ns", "limit_s", "nodes", "count"), "int64"),
}
"""Of a line; 0 for a time that it does not tell, -1 for no limit, no nodes and no number of them."""
_OF_RESERVATIONS, _WITHOUT_FIELDS = "BFKk", "zrpFKk"


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
        """Lines that begin with a date and a record's type; those of Cobalt have other types or hosts without slots."""
        is_cobalt = any(re.search(form, "\n".join(lines)) for form in _COBALT)
        return any(_LINE.fullmatch(line) for line in lines[:5]) and not is_cobalt

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files in the order of their first lines: runs begin in one file and end in another."""
        hosts = _HostLists(reading)
        matches = ((path, filter(None, map(_LINE.match, head(path)))) for path in paths)
        firsts = {path: next((line.expand(_MOMENT) for line in lines), "") for path, lines in matches}
        rows = reading.lines(sorted(paths, key=lambda path: (firsts[path], path.name)))
        read = partial(_read_line, hosts=hosts, has_reservations=reading.settings.reserved_busy)
        frames = reading.frames(rows, read, _COLUMNS, "MM/DD/YYYY HH:MM:SS;TYPE;id;...")
        dated = (some.assign(local_ns=read_stamps(some["moment"]).ns).drop(columns="moment") for some in frames)
        lines, runs = pd.concat(dated, ignore_index=True), _Runs(reading, hosts.shares)
        sizes = np.append(reading.rows.list_sizes(), 0)[lines["nodes"]]
        # Lists that may lack nodes are not trusted.
        is_whole = (lines["nodes"] < 0) | (lines["count"] < 0) | (lines["count"] == sizes)
        lines["kind"] = np.select([lines["type"] == "B", is_whole], [BusyKind.RESERVED, BusyKind.JOB], BusyKind.UNKNOWN)
        lines["at_ns"] = _date_lines(lines, reading)
        at_ns = lines["at_ns"].where(lines["at_ns"] > 0).ffill().fillna(0)
        is_late = np.maximum.accumulate(at_ns) - at_ns > _LATE_NS
        if is_late.any():
            reading.note(f"{int(is_late.sum()):,} lines are out of order: they were sorted by their times.")
            # Of one second, ends come last: they may be those of runs that start in it.
            lines = lines.iloc[np.lexsort((lines["type"] == "E", at_ns))]
        for line in lines.itertuples(index=False):
            _ACTIONS[line.type](runs, line)
        runs.end_all()


def _read_line(row: LogRow, hosts: _HostLists, *, has_reservations: bool) -> list[Any]:
    """Cells of a line by `_COLUMNS`, if it is of use."""
    match = _LINE.fullmatch(row.fields[0])
    if match is None:
        raise ValueError(row)
    kind = sys.intern(match[5])
    if kind not in _ACTIONS or (kind in _OF_RESERVATIONS and not has_reservations):
        raise RowError(_NO_RUN)
    # What was provisioned for a job, and a reservation, are runs of their own.
    name = sys.intern(f"{'P ' * (kind in 'pP')}{'B ' * (kind in _OF_RESERVATIONS)}{match[6]}")
    pairs = [] if kind in _WITHOUT_FIELDS else _FIELD.findall(match[7] or "")
    fields = {key: value.strip("\"'") for key, value in (pairs[:-1] if row.is_cut_off else pairs)}
    times_ns = [max(exact_ns(fields.get(key, "0")) or 0, 0) for key in ("start", "end", "qtime")]
    limit_s = duration_s(fields.get("Resource_List.walltime", "")) if kind in "Ssa" else None
    nodes = hosts.find(fields) if kind != "a" else -1
    if kind == "E" and nodes >= 0 and not times_ns[1]:
        raise RowError("impossible time", f"Expected end=SECONDS, got {fields.get('end', 'none')}")
    count = natural_number(fields.get("unique_node_count", ""))
    if fields.get("exec_host", "").endswith("+"):  # it was cut off
        count = 0
    limit_s, count = (-1 if number is None else number for number in (limit_s, count))
    return [match.expand(_MOMENT), kind, name, sys.intern(fields.get("queue", "")), *times_ns, limit_s, nodes, count]


def _date_lines(lines: pd.DataFrame, reading: Reading) -> pd.Series[int]:
    """When each line was written, in nanoseconds since the epoch; 0 if that is unknown."""
    # Starts and ends have both times: the offset of the zone follows for lines after them, and before the first.
    clock, is_local, kinds = reading.clock, lines["local_ns"] > BAD, lines["type"]
    utc_ns = lines["start_ns"].where(kinds == "S", lines["end_ns"].where(kinds == "E", 0))
    if (stated_ns := utc_ns[utc_ns > 0]).nunique() > 1:
        reading.window_ns = int(stated_ns.min()), int(stated_ns.max())
    local_ns = lines["local_ns"].where(is_local, 0)
    ahead_ns = (local_ns - utc_ns).where((utc_ns > 0) & is_local)
    offset_ns = (ahead_ns / _QUARTER_NS).round() * _QUARTER_NS
    is_near = ((ahead_ns - offset_ns).abs() <= _LATE_NS) & (offset_ns.abs() <= 60 * _QUARTER_NS)
    offset_ns = offset_ns.where(is_near).ffill().bfill().where(is_local)
    by_offset = (local_ns - offset_ns.fillna(0).astype("int64")).where(offset_ns.notna(), 0)
    if clock.zone is None:
        has_time = kinds.isin(list("SsEa")) | (kinds.isin(list("RAC")) & (lines["end_ns"] > 0))
        if not has_time.all():
            reading.note("no --tz: lines with only a local time are dated by others that have both times.")
        return by_offset
    stamps = pd.DataFrame({"ns": lines["local_ns"], "local": is_local})
    first, second = (clock.utc_ns(stamps, second_pass=is_second) for is_second in (False, True))
    # In an hour that comes twice, earlier lines with both times show which pass it is: lines are in order.
    is_second = (second == by_offset) | (first < utc_ns.cummax() - _LATE_NS)
    return pd.Series(np.where(is_second, second, first), index=lines.index).clip(lower=0)


@dataclass(slots=True)
class _Run:
    """A job on its nodes, or a reservation, that has not ended yet."""

    start_ns: int  # on these nodes
    nodes: int
    kind: int
    queue: str
    submit_ns: int
    first_ns: int  # from which its limit counts: later by what it was suspended
    limit_ns: int
    is_continued: bool = False  # on other nodes before
    is_paused: bool = False
    suspended_ns: int = 0

    @classmethod
    def of(cls, line: Any, start_ns: int) -> _Run:
        """The run on the nodes of a line."""
        limit_ns = line.limit_s * NS_PER_S if line.limit_s > 0 else OPEN_END_NS
        if line.type in "PB" and line.end_ns:
            limit_ns = line.end_ns - start_ns
        return cls(start_ns, line.nodes, line.kind, line.queue, line.submit_ns, start_ns, limit_ns)

    @property
    def due_ns(self) -> int:
        """When it ends if no line says so."""
        return min(self.first_ns + self.limit_ns, OPEN_END_NS)


class _Runs:
    """Runs that have begun and not ended, by the name of the job or reservation; ended ones go to the rows."""

    def __init__(self, reading: Reading, shares: Mapping[int, Mapping[int, int]]) -> None:
        self._reading, self._shares, self._drop = reading, shares, reading.tally.drop
        self._open: dict[str, _Run] = {}

    def begin(self, line: Any) -> None:
        """S: a run starts; the line may be repeated. s: without the nodes that failed. P, B: provisioned, reserved."""
        name, start_ns = line.id, line.start_ns or (line.at_ns if line.type in "PB" else 0)
        if not start_ns or line.nodes < 0:
            self._drop("start without nodes" if start_ns else "start without a time")
            return
        if (provisioning := self._open.pop(f"P {name}", None)) is not None:
            self._write(name, provisioning, start_ns)
        run, before = _Run.of(line, start_ns), self._open.get(name)
        if before is not None and (before.start_ns != start_ns or before.is_continued):
            self._write(name, before, start_ns)
            run.submit_ns, run.is_continued = run.submit_ns or before.submit_ns, before.is_continued
            if run.limit_ns == OPEN_END_NS:
                run.first_ns, run.limit_ns = before.first_ns, before.limit_ns
        self._open[name] = run

    def end(self, line: Any) -> None:
        """E: a run ends; the line repeats start and nodes, which count unless they changed on the way."""
        if not line.end_ns:
            self._drop(_NO_RUN)
            return
        run = self._open.pop(line.id, None) or _Run.of(line, line.start_ns)
        run.submit_ns, run.queue = line.submit_ns or run.submit_ns, line.queue
        if not run.is_continued:
            run.start_ns = line.start_ns or run.start_ns
            run.nodes, run.kind = (run.nodes, run.kind) if line.nodes < 0 else (line.nodes, line.kind)
        if run.nodes < 0 or not run.start_ns:
            self._drop("never started" if run.nodes >= 0 else "no nodes")
        elif run.start_ns >= line.end_ns:
            self._drop("end before start" if line.end_ns < run.start_ns else "zero length")
        else:
            self._write(line.id, run, line.end_ns)

    def stop(self, line: Any) -> None:
        """R, A, C: a run is over before its job is, as p, F, K, k say of provisioning and reservations."""
        name, at_ns = line.id, line.end_ns or line.at_ns
        if name in self._open and at_ns:
            run = self._open.pop(name)
            self._write(name, run, at_ns if line.type in "RAC" else min(at_ns, run.due_ns))
        elif line.nodes >= 0 and 0 < line.start_ns < at_ns:  # it began before the files
            self._write(name, _Run.of(line, line.start_ns), at_ns)
        else:  # what comes next, another start or an end, closes a run that goes on
            self._drop(_UNDATED if name in self._open else _NO_RUN)

    def change(self, line: Any) -> None:
        """u, c: a run gives back some of its nodes. T: it goes on, from a checkpoint."""
        run, at_ns = self._open.get(line.id), line.at_ns
        has_nodes = line.type != "u" and line.nodes >= 0
        if at_ns and run is not None:
            self._write(line.id, run, at_ns)
            if has_nodes:
                run.nodes, run.kind, run.is_paused, run.suspended_ns = line.nodes, line.kind, False, 0
            run.start_ns, run.is_continued = at_ns, True
        elif at_ns and has_nodes:
            self._open[line.id] = replace(_Run.of(line, at_ns), is_continued=True)
        elif at_ns and line.nodes >= 0 and line.start_ns:
            self._write(line.id, _Run.of(line, line.start_ns), at_ns)
        else:
            self._drop(_NO_RUN if at_ns else _UNDATED)

    def suspend(self, line: Any) -> None:
        """z, r: a run is suspended and resumed; its time limit waits for it, its nodes perhaps do not."""
        run, at_ns, is_idle = self._open.get(line.id), line.at_ns, self._reading.settings.suspended == "idle"
        if not is_idle or run is None or not at_ns:
            self._drop(_UNDATED if is_idle and not at_ns else _NO_RUN)
        if run is None or not at_ns:
            return
        if line.type == "z":
            run.suspended_ns = run.suspended_ns or at_ns
            if is_idle:
                self._write(line.id, run, at_ns)
                run.is_continued = run.is_paused = True
            return
        if run.is_paused:
            run.start_ns, run.is_paused = at_ns, False
        if run.suspended_ns:
            run.first_ns, run.suspended_ns = run.first_ns + at_ns - run.suspended_ns, 0

    def alter(self, line: Any) -> None:
        """a: a job is altered; its time limit counts from when it began, and later by what it was suspended."""
        if line.limit_s >= 0 and (run := self._open.get(line.id)) is not None:
            run.limit_ns = line.limit_s * NS_PER_S
        self._drop(_NO_RUN)

    def end_all(self) -> None:
        """Write down all that is still open, to its time limit or the end of any window."""
        for name, run in self._open.items():
            due_ns = OPEN_END_NS if run.suspended_ns else run.due_ns
            self._write(name, run, due_ns, is_open=run.kind != BusyKind.RESERVED)

    def _write(self, name: str, run: _Run, end_ns: int, *, is_open: bool = False) -> None:
        """Write down a run's stretch on its nodes, unless it gave them back or had them for no time."""
        if run.is_paused:
            return
        more = {"kind": run.kind, "partition": self._reading.rows.partition(run.queue), "is_open": is_open}
        more["submit_ns"] = run.submit_ns or OPEN_START_NS
        for at, (nodes, units) in enumerate(self._shares.get(run.nodes, {run.nodes: ALL_UNITS}).items()):
            self._reading.rows.add(run.start_ns, end_ns, nodes, **more, job=hash(name) + at, units=units)


_ACTIONS = {
    **dict.fromkeys("SsPB", _Runs.begin),
    **dict.fromkeys("RACpFKk", _Runs.stop),
    **dict.fromkeys("Tuc", _Runs.change),
    **dict.fromkeys("zr", _Runs.suspend),
    "E": _Runs.end,
    "a": _Runs.alter,
}
"""What a line does to a run, by its type."""


class _HostLists:
    """Lists of nodes that lines name, and of each the `shares` if GPUs or cores are offered: lists and their units."""

    def __init__(self, reading: Reading) -> None:
        self._rows, self._unit = reading.rows, reading.settings.unit
        self.shares: dict[int, dict[int, int]] = {}
        self._number = lru_cache(_TEXTS)(self._number_hosts)

    def find(self, fields: Mapping[str, str]) -> int:
        """Number of the list of hosts that a line names, else of those of its virtual nodes; -1 if it names none."""
        text = fields.get("exec_host", "")
        keys = ("exec_vnode", "provision_vnode", "nodes", "resv_nodes") if self._unit == "gpu" or not text else ()
        vnodes = next((fields[key] for key in keys if fields.get(key)), "")
        total = None
        if self._unit == "core" and text:  # of slots, which TORQUE tells at the end, or as what the job asked for
            total = natural_number(fields.get("total_execution_slots", ""))
            asked = [_ASKED_NODES.match(piece) for piece in fields.get("Resource_List.nodes", "").split("+")]
            if total is None and all(asked):
                total = sum(int(piece[1]) * int(piece[2] or 1) for piece in asked if piece)
        return self._number(text, vnodes, total)

    def _number_hosts(self, text: str, vnodes: str, total: int | None) -> int:
        """Number of a list of hosts, with a list of those that have equally many units for each number."""
        gpus, by_units = _count_gpus(vnodes), defaultdict(list)
        # Hosts of `c1/0+c1/1`, `c1/0*13+c2/0*13` or `c4/0-2,5`: slots follow the slash.
        hosts = filter(None, (_PORT.sub("", piece.partition("/")[0]) for piece in text.split("+")))
        names = list(hosts if text else gpus)
        if not names:
            return -1
        nodes = self._rows.add_list(names)
        if text and (self._unit == "core" or vnodes):
            units = gpus if vnodes else _count_slots(text, total)
            for host in dict.fromkeys(names):
                by_units[units[host]].append(host)
            self.shares[nodes] = {self._rows.add_list(some): count * len(some) for count, some in by_units.items()}
        return nodes


def _count_slots(text: str, total: int | None) -> Counter[str]:
    """Number of each host's slots, which newer versions of TORQUE write, if that gives the `total`."""
    listed, counted = Counter[str](), Counter[str]()
    for piece in filter(None, text.split("+")):
        host, _, slots = piece.partition("/")
        chosen, _, times = slots.partition("*")
        # No node has more than five digits of them.
        repeated, stated = (int(word) if word.isdecimal() and len(word) < 6 else 0 for word in (times, slots))
        listed[_PORT.sub("", host)] += repeated or max(1, len(numbers(chosen)))
        counted[_PORT.sub("", host)] += stated or -(10**9)
    return counted if counted.total() == total else listed


def _count_gpus(text: str) -> Counter[str]:
    """Number of each host's GPUs in `(c1:ncpus=13:ngpus=2)+(a[0]:ncpus=2+a[1]:ngpus=1)`, where `a` is one host."""
    gpus = Counter[str]()
    for piece in filter(None, (part.strip("()") for part in text.split("+"))):
        name, _, resources = piece.partition(":")
        gpus[_VNODE.sub("", name)] += int((_NGPUS.findall(resources) or [0])[0])
    return gpus


_LSF_FIELD = re.compile(r'"((?:[^"]|"")*)"|(\S+)')
_SLOTS = re.compile(r"^\d+\*", re.ASCII)
_RECORD = re.compile(r'"[A-Z_]+" ')
_FINISH, _RESIZE = '"JOB_FINISH" ', '"JOB_RESIZE" '
_LSF_COLUMNS = {
    **dict.fromkeys(("start_ns", "end_ns", "submit_ns", "job"), "int64"),
    **dict.fromkeys(("nodes", "partition", "row"), "object"),
}
_ASKED, _FORMER = 22, 10
"""Fields before the number of hosts that a finished job asked for, and that a resized one had until then."""
_NAME, _INDEX = 2, 29
"""Fields behind the hosts of a finished job: its name, and which member of an array it is."""


class LsfImporter(Importer):
    """Jobs as LSF accounts for them when they finish, and when they get other hosts.

    References
    ----------
    IBM Spectrum LSF, "lsb.acct", records JOB_FINISH and JOB_RESIZE.
    """

    name: ClassVar[str] = "lsf"
    sign: ClassVar[str] = r'\A(.*\n){0,4}"JOB_[A-Z_]*" '

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files."""
        read = partial(_read_record, resized_s={})
        expected = "all fields of a record of lsb.acct"
        for frame in reading.frames(reading.lines(paths), read, _LSF_COLUMNS, expected):
            reading.take(frame)


def _read_record(row: LogRow, resized_s: dict[tuple[int, int, int], int]) -> list[Any]:
    """Cells by `_LSF_COLUMNS` of a job that is over, or of its time on the hosts that it had until it was resized."""
    line, is_resized = row.fields[0], row.fields[0].startswith(_RESIZE)
    if not is_resized and not line.startswith(_FINISH):
        raise RowError("about no finished job") if _RECORD.match(line) else ValueError(line)
    some = [field[2] if field[1] is None else field[1].replace('""', '"') for field in _LSF_FIELD.finditer(line)]
    at = _FORMER if is_resized else _ASKED + 1 + int(some[_ASKED])
    end_of_hosts = at + 1 + int(some[at])
    hosts, behind = some[at + 1 : end_of_hosts], some[end_of_hosts:]
    if len(hosts) != int(some[at]) or (at <= _ASKED and not is_resized):
        raise ValueError(line)
    if is_resized:
        end_s, number, index, start_s, last_s = (int(some[at]) for at in (2, 3, 4, 5, 9))
        run = number, index, start_s
        resized_s[run] = max(end_s, resized_s.get(run, 0))
        job, start_s, submit_s, queue = hash((number, index)), max(start_s, last_s), 0, ""
    else:
        int(behind[0])  # the status, which is missing if the list of hosts was cut off
        end_s, number, start_s, queue = int(some[2]), int(some[3]), int(some[10]), some[12]
        submit_s = natural_number(some[7]) or 0
        submit_s = submit_s if submit_s <= start_s else 0
        index = (natural_number(behind[_INDEX]) or 0) if len(behind) > _INDEX else 0
        # Copies of a record are alike; members of an array have one number, and an index or another name.
        job = hash((number, index, *behind[_NAME : _NAME + 1]))
        # Of a job that was resized the line tells the last hosts only.
        start_s = start_s and max(start_s, min(resized_s.get((number, index, start_s), 0), end_s - 1))
    if not 0 <= min(start_s, end_s) <= max(start_s, end_s) < OPEN_END_NS // NS_PER_S:
        raise RowError("impossible time", f"Expected epoch seconds, got {str(start_s)!r} and {str(end_s)!r}")
    nodes = ",".join(dict.fromkeys(_SLOTS.sub("", host) for host in hosts))  # each once a slot, or `16*host1`
    if not start_s or not nodes:
        raise RowError("no nodes" if start_s else "never started")
    return [start_s * NS_PER_S, end_s * NS_PER_S, submit_s * NS_PER_S or OPEN_START_NS, job, nodes, queue, row]
