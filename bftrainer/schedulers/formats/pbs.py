"""Import accounting logs of PBS Pro, OpenPBS and TORQUE: `MM/DD/YYYY HH:MM:SS;TYPE;id;key=value ...`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import repeat
from pathlib import Path
from typing import ClassVar

import numpy as np

from bftrainer.errors import LogError
from bftrainer.files.log_files import Block, head, line_blocks
from bftrainer.files.opening import one_line
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.hostlist import numbers
from bftrainer.nodelogs.node_spans import OPEN_END_NS
from bftrainer.schedulers.busy_records import ALL_UNITS, BusyKind
from bftrainer.schedulers.clock import duration_s, exact_ns, natural_number, read_stamps
from bftrainer.schedulers.reading import Importer, Reading
from bftrainer.schedulers.tally import CUT_OFF

_NGPUS = re.compile(r"\bngpus=(\d{1,4})\b", re.ASCII)
_PORT = re.compile(r":\d+$", re.ASCII)
_COUNTED = re.compile(r"([^/]+)/(\d{1,5})", re.ASCII)
_ASKED_NODES = re.compile(r"(\d{1,6})(?::(?:[^+:]+:)*?ppn=(\d{1,5}))?", re.ASCII)
_VNODE = re.compile(r"\[\d+\]$", re.ASCII)
LINE = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d:\d\d);([A-Za-z]{1,2});([^;]*)(?:;(.*))?", re.ASCII | re.DOTALL)
_FIELD = re.compile(r"(?<![\w.])([\w.]++)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|\S*)")


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of an accounting log: local time of its writing, type, job or reservation, fields, and place."""

    moment: str
    type: str
    id: str
    text: str
    block: Block
    at: int

    @property
    def is_cut_off(self) -> bool:
        """Whether it is the file's last line and lacks its line end."""
        return self.block.is_cut_off(self.at)

    def fields(self) -> dict[str, str]:
        """Fields by key, without quotes; the last one of a line that was cut off is left out."""
        found = _FIELD.findall(self.text)
        return {key: value.strip("\"'") for key, value in (found[:-1] if self.is_cut_off else found)}


def local_s(moment: str) -> float | None:
    """Seconds from 1970 to a local date and time, read as UTC; None if there is no such time."""
    try:
        return datetime.fromisoformat(f"{moment}+00:00").timestamp()
    except ValueError:
        return None


def entries(paths: Sequence[Path], reading: Reading) -> Iterator[Entry]:
    """All entries of all files, counted and in order of time; lines of another form are refused.

    Raises
    ------
    LogError
        If the first line is not of this format, or too many are not.
    """
    late = _out_of_order(paths)
    if not late:
        return _as_written(paths, reading)
    reading.note(f"{late:,} lines are out of order: they were sorted by their times.")
    # Of one second, ends come last: they may be those of runs that start in it.
    return iter(sorted(_as_written(paths, reading), key=lambda entry: (entry.moment, entry.type == "E")))


def _out_of_order(paths: Sequence[Path]) -> int:
    """Number of lines that are earlier than one before them; 0 if clocks that are put back explain them."""
    latest, late, strange = 0, 0, 0
    for block in (block for path in paths for block in line_blocks(path)):
        data, begins = np.frombuffer(block.data + b" " * _STAMP, dtype=np.uint8), block.bounds[:-1]
        text = data[begins[:, None] + np.arange(_STAMP)]
        is_stamp = (text[:, [2, 5, 10, 13, 16]] == np.frombuffer(b"// ::", dtype=np.uint8)).all(axis=1)
        digits = (text[is_stamp] - np.uint8(ord("0"))).astype(np.int64)
        month, day, hour, minute, second = (10 * digits[:, at] + digits[:, at + 1] for at in (0, 3, 11, 14, 17))
        year = digits[:, 6:10] @ np.array([1000, 100, 10, 1])
        moment = ((((year * 12 + month) * 31 + day) * 24 + hour) * 60 + minute) * 60 + second
        if not moment.size:
            continue
        before = np.maximum.accumulate(np.append(latest, moment))
        behind, latest = before[:-1] - moment, int(before[-1])
        is_late = behind > _LATE_S
        late += int(is_late.sum())
        strange += int((is_late & ((behind > 3600) | (hour > _LATEST_CHANGE_H))).sum())
        strange += int((is_late[:-1] & (behind[1:] > behind[:-1])).sum())
    return late if strange else 0


def _as_written(paths: Sequence[Path], reading: Reading) -> Iterator[Entry]:
    """All entries in the order in which they stand in the files."""
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


PROVISIONING = "provisioning of "
RESERVATION = "reservation "
NO_RUN = "about no run"
UNDATED = "change at an unknown time"
_STAMP = 19
_LATEST_CHANGE_H = 3
"""Clocks are put back by an hour at most, before this hour of the day is over."""
_QUARTER_S = 900
_LATE_S = 60

NodeList = tuple[int, BusyKind]
"""Number of a set of nodes, and whether it can be trusted."""


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A job on its nodes, or a reservation, that has not ended yet."""

    start_ns: int
    """Of this stretch on these nodes."""
    nodes: NodeList
    partition: str = ""
    is_continued: bool = False
    """Whether earlier stretches have been written down."""
    is_paused: bool = False
    """Whether it holds no nodes for the time being."""
    suspended_ns: int | None = None
    """Since when it is suspended: its time limit waits for it."""
    due_ns: int = OPEN_END_NS
    """When it ends if no line says so."""
    limit_ns: int = 0
    """Its time limit, if it has one."""
    submit_ns: int | None = None


class Runs:
    """Runs that have begun and not ended, and the zone offset by which lines with only a local time are dated.

    Parameters
    ----------
    reading : Reading
    node_list : callable
        Reads the nodes of a line's fields; None if it names none.

    Attributes
    ----------
    open : dict of str to OpenRun
        By name of the job or reservation.
    queued : dict of str to str
        Local times at which jobs were queued that have not started since, by their names.
    """

    def __init__(self, reading: Reading, node_list: Callable[[dict[str, str]], NodeList | None]) -> None:
        self.reading = reading
        self.node_list = node_list
        self.open: dict[str, OpenRun] = {}
        self.queued: dict[str, str] = {}
        self.shares: dict[int, list[tuple[int, int]]] = {}
        self._offset_s: int | None = None
        self._first_ns, self._last_ns = OPEN_END_NS, 0

    def epoch_ns(self, entry: Entry, fields: dict[str, str], key: str, *, written_then: bool = False) -> int | None:
        """Time in a field, in nanoseconds since the epoch; None if it is missing or impossible.

        If the line was `written_then`, the zone offset follows from its local time.
        """
        instant_ns = exact_ns(fields.get(key, ""))
        if instant_ns is None or instant_ns <= 0:
            return None
        if written_then:
            self._learn(entry, instant_ns)
        return instant_ns

    def submit_ns(self, entry: Entry, fields: dict[str, str]) -> int | None:
        """When a job was submitted: as its line says, or else when an earlier line (Q) was written."""
        told, queued = self.epoch_ns(entry, fields, "qtime"), self.queued.pop(entry.id, None)
        return self.moment_ns(queued) if told is None and queued is not None else told

    def _learn(self, entry: Entry, instant_ns: int) -> None:
        """Compute the zone offset from a line whose instant is known, which the window then covers."""
        self._first_ns, self._last_ns = min(self._first_ns, instant_ns), max(self._last_ns, instant_ns)
        written_s = local_s(entry.moment)
        if written_s is None:
            return
        ahead_s = written_s - instant_ns / NS_PER_S
        offset_s = round(ahead_s / _QUARTER_S) * _QUARTER_S
        if abs(ahead_s - offset_s) <= _LATE_S and abs(offset_s) <= 15 * 3600:
            self._offset_s = offset_s

    def moment_ns(self, moment: str) -> int | None:
        """When a line was written, by its local time; None if that is impossible or the zone is unknown."""
        clock, written_s = self.reading.clock, local_s(moment)
        if written_s is None:
            return None
        if clock.zone is not None:
            stamps = read_stamps([moment])
            first, second = (int(clock.utc_ns(stamps, second_pass=is_second)[0]) for is_second in (False, True))
            # In an hour that comes twice, earlier lines with both times show which pass it is: lines are in order.
            is_second = self._offset_s is not None and second == (round(written_s) - self._offset_s) * NS_PER_S
            return second if is_second or first < self._last_ns - _LATE_S * NS_PER_S else first
        if self._offset_s is None:
            return None
        self.reading.note("no --tz: lines with only a local time are dated by earlier lines that have both times.")
        instant_ns = (round(written_s) - self._offset_s) * NS_PER_S
        return instant_ns if instant_ns < OPEN_END_NS else None

    def drop(self, entry: Entry, reason: str) -> None:
        """Count a line that gives no run, for a reason or because it was cut off."""
        self.reading.tally.drop(CUT_OFF if entry.is_cut_off else reason)

    def begin(self, name: str, run: OpenRun, kind: BusyKind = BusyKind.JOB) -> None:
        """Open a run; an open one of that name ends, unless the line only repeats its start."""
        before = self.open.get(name)
        if before is not None and not (before.start_ns == run.start_ns and not run.is_continued):
            self.close(name, run.start_ns, kind)
            limited = before if run.due_ns == OPEN_END_NS else run
            submit_ns = before.submit_ns if run.submit_ns is None else run.submit_ns
            is_continued = run.is_continued or before.is_continued
            run = replace(run, is_continued=is_continued, submit_ns=submit_ns)
            run = replace(run, due_ns=limited.due_ns, limit_ns=limited.limit_ns)
        self.open[name] = run

    def close(self, name: str, end_ns: int, kind: BusyKind = BusyKind.JOB) -> bool:
        """Close and write down an open run; return whether there was one."""
        run = self.open.pop(name, None)
        if run is not None and not run.is_paused:
            self.write(name, run.start_ns, end_ns, run.nodes, run.partition, kind, run.submit_ns)
        return run is not None

    def pause(self, name: str, at_ns: int) -> None:
        """Write down a run's time on its nodes so far; it gives them back for a while."""
        run = self.open.get(name)
        if run is not None and not run.is_paused:
            self.write(name, run.start_ns, at_ns, run.nodes, run.partition, submit_ns=run.submit_ns)
            self.open[name] = replace(run, is_continued=True, is_paused=True)

    def resume(self, name: str, at_ns: int) -> None:
        """Let a run have its nodes again."""
        run = self.open.get(name)
        if run is not None and run.is_paused:
            self.open[name] = replace(run, start_ns=at_ns, is_paused=False)

    def stop_clock(self, name: str, at_ns: int) -> None:
        """A run is suspended, on its nodes or not."""
        run = self.open.get(name)
        if run is not None and run.suspended_ns is None:
            self.open[name] = replace(run, suspended_ns=at_ns)

    def start_clock(self, name: str, at_ns: int) -> None:
        """A run is resumed: it is due so much later."""
        run = self.open.get(name)
        if run is not None and run.suspended_ns is not None:
            due_ns = min(run.due_ns + at_ns - run.suspended_ns, OPEN_END_NS)
            self.open[name] = replace(run, suspended_ns=None, due_ns=due_ns)

    def write(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        nodes: NodeList,
        partition: str,
        kind: BusyKind = BusyKind.JOB,
        submit_ns: int | None = None,
        *,
        is_open: bool = False,
    ) -> None:
        """Write down a stretch that is over, or `is_open`."""
        node_set, trust = nodes
        if start_ns < end_ns:
            key, what = hash((name, kind)), trust if kind is BusyKind.JOB else kind
            for at, (some, units) in enumerate(self.shares.get(node_set, [(node_set, ALL_UNITS)])):
                rows, of = self.reading.rows, (partition, submit_ns)
                rows.add(start_ns, end_ns, some, key + at, what, *of, units=units, is_open=is_open)

    def share(self, node_set: int, units: Mapping[str, int]) -> None:
        """Remember how many units of each of its nodes the jobs on a list hold."""
        if node_set not in self.shares:
            by_count: dict[int, list[str]] = {}
            for name, count in units.items():
                by_count.setdefault(count, []).append(name)
            self.shares[node_set] = [(self.reading.rows.lists.add(names), count) for count, names in by_count.items()]

    def end_all(self) -> None:
        """Write down all that is still open, to its time limit or the end of any window."""
        for name, run in self.open.items():
            if not run.is_paused:
                due_ns, kind = run.due_ns if run.suspended_ns is None else OPEN_END_NS, run_kind(name)
                is_open = kind is BusyKind.JOB
                self.write(name, run.start_ns, due_ns, run.nodes, run.partition, kind, run.submit_ns, is_open=is_open)
        self.open.clear()
        if self._first_ns < self._last_ns:
            self.reading.window_ns = (self._first_ns, self._last_ns)


def run_kind(name: str) -> BusyKind:
    """What a run of this name keeps nodes busy with."""
    return BusyKind.RESERVED if name.startswith(RESERVATION) else BusyKind.JOB


def start_run(entry: Entry, runs: Runs) -> None:
    """S: a run starts; the line may be repeated. s: it starts without the nodes that failed at the last moment."""
    fields = entry.fields()
    start = runs.epoch_ns(entry, fields, "start", written_then=entry.type == "S")
    nodes = runs.node_list(fields)
    if start is None or nodes is None:
        runs.drop(entry, "start without a time" if start is None else "start without nodes")
        return
    runs.close(f"{PROVISIONING}{entry.id}", start)
    partition = fields.get("queue", "")
    limit_s = duration_s(fields.get("Resource_List.walltime", ""))
    limit = 0 if limit_s is None else limit_s * NS_PER_S
    due = start + limit if limit else OPEN_END_NS
    submit = runs.submit_ns(entry, fields)
    runs.begin(entry.id, OpenRun(start, nodes, partition, due_ns=due, limit_ns=limit, submit_ns=submit))


def end_run(entry: Entry, runs: Runs) -> None:
    """E: a run ends; the line repeats start and nodes, which count unless they changed on the way."""
    fields, reading = entry.fields(), runs.reading
    run = runs.open.pop(entry.id, None)
    end = runs.epoch_ns(entry, fields, "end", written_then=True)
    start = runs.epoch_ns(entry, fields, "start")
    nodes = runs.node_list(fields)
    if run is not None:
        start = run.start_ns if start is None or run.is_continued else start
        nodes = run.nodes if nodes is None or run.is_continued else nodes
    if nodes is None:
        runs.drop(entry, "no nodes")
    elif end is None:
        detail = f"Expected end=SECONDS, got end={fields.get('end', '')}"
        reading.refuse("impossible time", entry.block, entry.at, detail)
    elif start is None:
        runs.drop(entry, "never started")
    elif reading.tally.lasts(start, end) and (run is None or not run.is_paused):
        partition, submit = fields.get("queue", ""), runs.submit_ns(entry, fields)
        if run is not None:
            submit = submit or run.submit_ns
        runs.write(entry.id, start, end, nodes, partition, submit_ns=submit)


def interrupt_run(entry: Entry, runs: Runs) -> None:
    """R, A, C: a run is over before its job is: run again, aborted, or held with a checkpoint.

    If it began before the files, the line itself may give start and nodes, as an end does.
    """
    fields = entry.fields()
    at = runs.epoch_ns(entry, fields, "end") or runs.moment_ns(entry.moment)
    if entry.id not in runs.open:
        start, nodes = runs.epoch_ns(entry, fields, "start"), runs.node_list(fields)
        if at is None or start is None or nodes is None or start >= at:
            runs.drop(entry, NO_RUN)
        else:
            partition, submit = fields.get("queue", ""), runs.submit_ns(entry, fields)
            runs.write(entry.id, start, at, nodes, partition, submit_ns=submit)
    elif at is None:
        # What comes next, another start or an end, closes the run.
        runs.reading.tally.drop(UNDATED)
    else:
        runs.close(entry.id, at)


def occupy(entry: Entry, runs: Runs, what: str, begins: str) -> None:
    """P, p: nodes are provisioned for a job. B; F, K, k: a reservation begins; is over, or deleted."""
    fields = entry.fields()
    name = f"{what}{entry.id}"
    if entry.type != begins:
        at = runs.moment_ns(entry.moment)
        if name not in runs.open or at is None:
            runs.reading.tally.drop(UNDATED if at is None else NO_RUN)
        else:
            runs.close(name, min(at, runs.open[name].due_ns), run_kind(name))
        return
    start = runs.epoch_ns(entry, fields, "start") or runs.moment_ns(entry.moment)
    nodes = runs.node_list(fields)
    if start is None or nodes is None:
        runs.reading.tally.drop(UNDATED if start is None else "no nodes")
        return
    due = runs.epoch_ns(entry, fields, "end")
    runs.begin(name, OpenRun(start, nodes, due_ns=OPEN_END_NS if due is None else due), run_kind(name))


def sort_by_time(paths: Sequence[Path]) -> list[Path]:
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
        for entry in entries(sort_by_time(paths), reading):
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
    elif entry.type == "a":
        _alter(entry, runs)
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


def _alter(entry: Entry, runs: Runs) -> None:
    """a: a run has another time limit from now on."""
    run, limit_s = runs.open.get(entry.id), duration_s(entry.fields().get("Resource_List.walltime", ""))
    if run is not None and limit_s is not None:
        first_ns = run.due_ns - run.limit_ns if run.due_ns < OPEN_END_NS else run.start_ns
        due_ns = first_ns + limit_s * NS_PER_S
        runs.open[entry.id] = replace(run, due_ns=due_ns, limit_ns=limit_s * NS_PER_S)
    _note(entry, runs)


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
