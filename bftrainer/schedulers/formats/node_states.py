"""Import what tells states of nodes: journals of `bftrainer watch`, traces of counts and of spot nodes, Flux's logs."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from bftrainer.errors import LogError, SettingsError, add_place
from bftrainer.files.opening import one_line
from bftrainer.files.text_files import LogRow, head, json_file, parse_object
from bftrainer.files.writing import unseal_line
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.availability import COUNT_COLUMNS, NO_TIME, CountTrace, read_count_trace, read_spot_trace
from bftrainer.nodelogs.hostlist import MOST_NODES, expand_hostlist, fold_hostlist, numbers
from bftrainer.nodelogs.inventory import natural_order, read_inventory
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS, nanoseconds
from bftrainer.schedulers.busy_records import IDLE, BusyKind
from bftrainer.schedulers.clock import exact_ns
from bftrainer.schedulers.import_settings import SEEN
from bftrainer.schedulers.reading import Importer, Reading, RowError
from bftrainer.schedulers.selected_nodes import count_nodes

KIND = "bftrainer watch 1"
"""How the first line of a journal begins."""
Cause = BusyKind | None
"""Why a node is not idle; None if it is idle."""
CAUSES: dict[str, Cause] = {"idle": None, **{kind.name.lower(): kind for kind in BusyKind}}
"""Causes by their names in journals."""
_NAMES = {cause: name for name, cause in CAUSES.items()}
_KINDS = {name: IDLE if cause is None else int(cause) for name, cause in CAUSES.items()}
_SESSION, POLL, _MISSED = "=", "+", "?"
_LATE = 1.5
"""So many intervals after a poll the next one is late, and what came between was not seen."""
_listed = lru_cache(maxsize=1 << 16)(expand_hostlist)


def session_line(time_s: float, every_s: float) -> str:
    """Polls begin, or begin again: the next one tells of all nodes."""
    return f"{time_s:.3f} {_SESSION} {every_s:g}"


def poll_line(time_s: float, changed: Mapping[str, Cause]) -> str:
    """Nodes are in other states than they were.

    Examples
    --------
    >>> poll_line(1788220800.0, {"n1": None, "n2": None, "n3": BusyKind.DRAIN})
    '1788220800.000 + drain n3 idle n[1-2]'
    """
    groups = defaultdict(list)
    for name, cause in changed.items():
        groups[_NAMES[cause]].append(name)
    return " ".join(
        [f"{time_s:.3f} {POLL}", *(f"{name} {fold_hostlist(some)}" for name, some in sorted(groups.items()))]
    )


def missed_line(time_s: float, reason: str) -> str:
    """The scheduler did not say how its nodes are."""
    return f"{time_s:.3f} {_MISSED} {reason}"


def time_of(line: str) -> float:
    """When a line was written, in seconds since 1970; before all times for the first one."""
    time_ns = exact_ns(line.partition(" ")[0])
    return -math.inf if time_ns is None else time_ns / NS_PER_S


class WatchImporter(Importer):
    """Journals of `bftrainer watch`: sessions, polls with the nodes that changed, and polls that were missed.

    A node is in the state that a poll told until the next poll, at most for the interval between polls. Of the time
    until then nothing is known, which counts as busy; so does all from a damaged line on until all nodes are told anew.
    """

    name: ClassVar[str] = "watch"
    sign: ClassVar[str] = rf"\A{KIND}:"

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the journals, one after the other."""
        history = _History(reading, (reading.settings.start, reading.settings.end) != (None, None))
        for path in paths:
            if not self.recognises([line for line in head(path) if line.strip()]):
                raise LogError(f"{path}: Expected a journal of bftrainer watch, got something else.")
            for row in reading.lines([path]):
                text = unseal_line(row.fields[0].encode())
                if text is None:
                    history.is_lost = True
                    reading.tally.records += 1
                    shown = one_line(row.fields[0][:60])
                    reading.tally.refuse("damaged line", row, f"Expected a line and its checksum, got {shown!r}")
                elif not text.startswith(KIND):
                    with add_place(row.place, LogError):
                        history.take(text)
        history.end(paths[-1])


@dataclass(slots=True)
class _History:
    """States of nodes while a journal is read."""

    reading: Reading
    is_asked: bool  # for a window, which may be longer than the journal
    changes: list[tuple[str, int, int]] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)
    every_ns: int = 0
    first_ns: int = 0
    last_ns: int = 0
    hold_ns: int = 0  # for how long states hold that the last poll told
    told_ns: int = OPEN_START_NS  # when the last line was written
    is_restated: bool = False  # the next poll tells of all nodes
    is_missed: bool = False
    is_lost: bool = False
    missed: int = 0
    unseen_ns: int = 0  # for how long nothing was known

    def take(self, text: str) -> None:
        """Take in what a line says."""
        time, _, content = text.partition(" ")
        sign, _, content = content.partition(" ")
        time_ns = exact_ns(time)
        if time_ns is None or time_ns < self.told_ns + (not self.is_restated):
            raise LogError(f"Expected a time after those above, got {one_line(time)!r}.")
        self.told_ns = time_ns
        self.reading.tally.records += 1
        try:
            if sign == _SESSION:
                self.every_ns, self.is_restated = nanoseconds(float(content)), True
            elif sign == _MISSED or (sign == POLL and self.is_lost and not self.is_restated):
                self.is_missed = True
                self.missed += sign == _MISSED
            elif sign == POLL:
                words = content.split()
                lists = zip(words[::2], words[1::2], strict=True)
                self.change(time_ns, {name: _KINDS[cause] for cause, nodes in lists for name in _listed(nodes)})
            else:
                raise ValueError(sign)
        except (KeyError, ValueError):
            raise LogError(f"Expected states of nodes, got {one_line(text[:80])!r}.") from None

    def change(self, time_ns: int, changed: dict[str, int]) -> None:
        """Nodes are in new states from now on; of those that were there nothing is known if this poll is late."""
        self.first_ns = self.first_ns or time_ns
        if self.last_ns and (self.is_missed or self.is_lost or time_ns > self.last_ns + int(_LATE * self.hold_ns)):
            since_ns = min(self.last_ns + self.hold_ns, time_ns)
            there = [(name, kind) for name, kind in self.states.items() if kind != BusyKind.AWAY]
            self.changes += [(name, since_ns, BusyKind.UNKNOWN) for name, _ in there]
            self.changes += [(name, time_ns, kind) for name, kind in there]
            self.unseen_ns += time_ns - since_ns
        if self.is_restated:
            changed = {**dict.fromkeys(self.states, int(BusyKind.AWAY)), **changed}
        for name in (name for name in changed if name not in self.states):
            self.changes += [(name, OPEN_START_NS, BusyKind.UNKNOWN)] * self.is_asked
            self.changes.append((name, self.first_ns, BusyKind.AWAY))
        self.changes += [(name, time_ns, kind) for name, kind in changed.items()]
        self.states |= changed
        self.is_restated = self.is_missed = self.is_lost = False
        self.last_ns, self.hold_ns = time_ns, self.every_ns

    def end(self, path: Path) -> None:
        """Hand over what the journals tell; `path` is the last one."""
        reading = self.reading
        if not self.first_ns < self.last_ns:
            raise LogError(f"{path}: Expected two polls or more, got {'one' if self.last_ns else 'none'}.")
        self.changes += [(name, self.last_ns, BusyKind.UNKNOWN if self.is_asked else IDLE) for name in self.states]
        reading.rows.follow(self.changes)
        reading.nodes, reading.is_exact = natural_order(tuple(self.states)), True
        reading.window_ns = self.first_ns, self.last_ns
        every_s, unseen_s = self.every_ns / NS_PER_S, self.unseen_ns / NS_PER_S
        reading.note(f"nodes were looked at every {every_s:g} s: what was idle for less may be missing.")
        if self.missed or unseen_s:
            unseen = f"{unseen_s:,.0f} s" if unseen_s < 3600 else f"{unseen_s / 3600:,.2f} h"
            reading.note(
                f"of {unseen} nothing is known, so no node is idle: {self.missed:,} polls were missed, or "
                "nobody watched."
            )


_PLACEMENT = (
    "last in, first out: the trace has no node names. "
    "Idle counts are exact, which nodes are idle and for how long at a stretch is not."
)
_DATED = re.compile(r"(\d{4}-\d\d-\d\d)\s*,\s*(\d\d:\d\d:\d\d)\s*,\s*(\d{1,7})\s*", re.ASCII)
_GAP = '"gap_seconds"'


class CountsImporter(Importer):
    """Counts over time, each of which says that many nodes are idle from then on.

    Rows `timestamp,count` in order of time; rows `date, time, count` in any order, in UTC unless the settings give a
    zone; or JSON with a list of counts, `gap_seconds` apart, from the window's start.

    References
    ----------
    The second form is that of Thorpe et al., "Bamboo", NSDI 2023; the third of Wu et al., "Can't Be Late", NSDI 2024.
    """

    name: ClassVar[str] = "counts"
    is_availability: ClassVar[bool] = True

    def recognises(self, lines: Sequence[str]) -> bool:
        """A header with the columns timestamp and count, a row of date, time and count, or JSON that tells the gap."""
        if not lines or _DATED.fullmatch(lines[0]) or _is_sampled(lines):
            return bool(lines)
        return set(COUNT_COLUMNS) <= {name.strip('" ') for name in lines[0].split(",")}

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files, one after the other."""
        start = head(paths[0])  # which refuses what is no text
        is_sampled = _is_sampled(start)
        if is_sampled:
            trace = _read_samples(paths, reading)
        else:
            trace = _read_dates(paths, reading) if any(map(_DATED.fullmatch, start[:9])) else read_count_trace(*paths)
        most = int(trace.count.max())
        if most == 0:
            raise LogError(f"{paths[0]}: Expected counts of nodes above 0, got none.")
        names = count_nodes(reading.settings.nodes, most).names  # the first ones come first and stay longest
        if len(names) < most:
            raise SettingsError(
                f"Expected --nodes with {most:,} nodes or more, as many as were counted, got {len(names):,}."
            )
        reading.take_presence(trace.log(), names, records=trace.count.size - is_sampled)
        reading.placement = _PLACEMENT
        reading.note("the trace names no nodes: idle counts are exact, lengths of idle fragments are not.")


def _is_sampled(lines: Sequence[str]) -> bool:
    return lines[0].lstrip().startswith("{") and any(_GAP in line for line in lines[:9])


def _read_samples(paths: Sequence[Path], reading: Reading) -> CountTrace:
    """Counts at equal intervals; the last one holds as long as the others."""
    steps_ns, counts, start_ns = list[int](), list[int](), reading.origin_ns()
    for path in paths:
        document = json_file(path, LogError, "counts in JSON")
        metadata, data = (document.get(key) if isinstance(document, dict) else None for key in ("metadata", "data"))
        gap = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
        gap_ns = exact_ns(str(gap)) if isinstance(gap, int | float) else None
        is_list = isinstance(data, list) and all(type(count) is int and 0 <= count <= MOST_NODES for count in data)
        if not is_list or not data or not gap_ns or not 0 < sum(steps_ns) + gap_ns * len(data) < OPEN_END_NS - start_ns:
            raise LogError(f"{path}: Expected metadata with gap_seconds above 0, and counts as data.")
        steps_ns += [gap_ns] * len(data)
        counts += data
    return CountTrace(start_ns + np.append(0, np.cumsum(steps_ns)), np.array([*counts, counts[-1]], dtype=np.int64))


def _read_dates(paths: Sequence[Path], reading: Reading) -> CountTrace:
    """Rows of date, time and count, sorted by time; of several at one instant the last one counts."""
    rows: list[tuple[int, int]] = []
    for line in reading.lines(paths):
        row = _DATED.fullmatch(line.fields[0])
        if row is None or int(row[3]) > MOST_NODES:
            raise LogError(f"{line.place}: Expected date, time, count, got {one_line(line.fields[0][:60])!r}.")
        with add_place(line.place, SettingsError):
            rows.append((reading.clock.instant_ns(f"{row[1]}T{row[2]}"), int(row[3])))
    if late := sum(before[0] > after[0] for before, after in pairwise(rows)):
        reading.note(f"{late:,} rows stand after a later one: sorted by time.")
    last = dict(sorted(rows, key=lambda row: row[0]))
    reading.tally.records += len(rows) - len(last)
    reading.tally.drop("another count at the same instant, of which the last row counts", len(rows) - len(last))
    return CountTrace(*(np.array(list(some), dtype=np.int64) for some in (last, last.values())))


class SpotImporter(Importer):
    """Nodes are idle from their addition to their removal.

    References
    ----------
    Thorpe et al., "Bamboo: Making Preemptible Instances Resilient for Affordable Training of Large DNNs", NSDI 2023:
    the published traces are of this form.
    """

    name: ClassVar[str] = "spot"
    sign: ClassVar[str] = r"\A[0-9]+[ \t]*,[ \t]*(add|remove)[ \t]*,[ \t]*\S+[ \t]*(\n|\Z)"
    is_availability: ClassVar[bool] = True

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files, one after the other."""
        log = read_spot_trace(*paths, start_ns=reading.origin_ns())
        without = log.provenance[NO_TIME]
        reading.tally.drop("node added and removed in the same millisecond", 2 * without["stays"])
        reading.tally.drop("node removed and added in the same millisecond", 2 * without["absences"])
        reading.take_presence(log, log.nodes, records=log.node.size + 2 * sum(without.values()))


_STARTS = ("resource-init", "restart")
_CHANGES = (*_STARTS, "online", "offline", "drain", "undrain")
_FIRST = 5
"""Lines among which one that is whole tells what a file is."""


class FluxImporter(Importer):
    """Resource eventlogs and lists of jobs, recognised by their content.

    References
    ----------
    flux-framework/rfc, RFC 23 (idsets); flux-core, flux-resource(1), flux-jobs(1) and `flux job list`.
    """

    name: ClassVar[str] = "flux"

    def recognises(self, lines: Sequence[str]) -> bool:
        """A JSON object that is an event, a job, or a list of jobs."""
        first = parse_object(lines[0]) if lines else None
        if first is None:
            return any('"jobs"' in line for line in lines[:3])
        return _is_event(first) or not {"jobs", "t_submit", "t_run"}.isdisjoint(first)

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the eventlogs and all jobs."""
        eventlogs = [path for path in paths if any(_is_event(parse_object(line)) for line in head(path)[:_FIRST])]
        expected = "an event with timestamp, name and context in JSON"
        events = list(reading.parse(reading.lines(eventlogs), _read_event, expected))
        reading.tally.drop("no change of availability", sum(event.name not in _CHANGES for event in events))
        if late := sum(before.time_ns > after.time_ns for before, after in pairwise(events)):
            reading.note(f"{late:,} events are out of order: they were sorted by their times.")
            events.sort(key=attrgetter("time_ns"))
        jobs = [job for path in paths if path not in eventlogs for job in _read_jobs(path, reading)]
        ranks = _Ranks(reading, events, jobs)
        changes = ranks.follow(events)
        if not jobs:
            reading.note("there are no jobs among the files: nodes count as idle whenever they are up.")
        elif ranks.is_nameless and any(not job["ranks"] for job in jobs):
            raise SettingsError("Missing --nodes with all names in order of rank: events name ranks, jobs name nodes.")
        reading.rows.add_list(ranks.silent)
        reading.rows.follow(changes)
        if jobs:
            rows = ({**job, "nodes": job["nodes"] or ",".join(map(ranks.name, job["ranks"]))} for job in jobs)
            reading.take(pd.DataFrame(rows).drop(columns=["ranks", "names"]))
        if events:
            reading.window_ns = events[0].time_ns, events[-1].time_ns


def _is_event(value: Mapping[str, Any] | None) -> bool:
    return value is not None and isinstance(value.get("timestamp"), int | float) and isinstance(value.get("name"), str)


def _time_ns(value: Any) -> int | None:
    """Convert seconds since the epoch to nanoseconds; None if they are no number, or impossible."""
    time_ns = exact_ns(repr(value)) if isinstance(value, int | float) else None
    return time_ns if time_ns is not None and time_ns >= 0 else None


def _parse_ids(text: Any) -> Sequence[int]:
    return numbers(str(text).strip("[]"))


@dataclass(frozen=True, slots=True)
class _Event:
    """What happened to which ranks, with the names of their nodes if it tells as many."""

    time_ns: int
    name: str
    ranks: Sequence[int] = ()
    names: tuple[str, ...] = ()
    online: Sequence[int] = ()
    excluded: Sequence[int] = ()
    drained: Sequence[int] = ()


def _read_event(row: LogRow) -> _Event:
    """The event of a line; changes have to tell of whom."""
    event = parse_object(row.fields[0]) or {}
    time_ns = _time_ns(event["timestamp"]) if _is_event(event) else None
    if time_ns is None:
        raise ValueError(row)
    name, context = event["name"], event.get("context")
    if name not in _CHANGES:
        return _Event(time_ns, name)
    fields, is_start = context if isinstance(context, dict) else {}, name in _STARTS
    drain = fields.get("drain") if is_start else None
    try:
        idset, online, excluded = (_parse_ids(fields.get(key, "")) for key in ("idset", "online", "exclude"))
        ranks = _parse_ids(fields.get("ranks", "")) or idset
        if not isinstance(context, dict) or not (is_start or ranks):
            raise LogError(f"Expected a context with the ranks that go {name}, got {one_line(context)!r}")
        names = expand_hostlist(str(fields["nodelist"])) if fields.get("nodelist") else ()
        drained = [rank for ids in drain for rank in _parse_ids(ids)] if isinstance(drain, dict) else []
    except LogError as fault:
        raise RowError("unreadable set of ranks", str(fault)) from None
    names, ranks = names if len(names) == len(ranks) else (), ranks if is_start else idset
    return _Event(time_ns, name, ranks, names, online, excluded, drained)


class _Ranks:
    """Which nodes are up, event by event.

    A node is up while it is online, neither drained nor excluded. Restarts of Flux take all ranks offline, and leave
    drained ones drained, as flux-core replays these (`src/modules/resource`). They may give ranks to other nodes: nodes
    that have none any more are away. Where no event tells of ranks that are online, as in eventlogs since flux-core
    0.62, all are unless they go offline. A rank is the node that the latest event said; before the first one, what the
    inventory or a job says.
    """

    def __init__(self, reading: Reading, events: Sequence[_Event], jobs: Sequence[Mapping[str, Any]] = ()) -> None:
        nodes = reading.settings.nodes
        self._names = {} if nodes in (None, SEEN) else dict(enumerate(read_inventory(str(nodes)).names))
        pairs = "ranks", "names"
        for ranks, names in (*map(attrgetter(*pairs), events), *map(itemgetter(*pairs), jobs)):
            if len(ranks) == len(names):
                self._names = dict(zip(ranks, names, strict=True)) | self._names
        self.is_nameless = False  # whether events name ranks whose nodes are unknown
        self._tells_online = not events or any(event.name in ("online", *_STARTS) for event in events)
        # Nodes that are up as long as no event says otherwise.
        self.silent = () if self._tells_online else tuple(self._names.values())
        self._offline, self._drained, self._excluded, self._gone, self._touched = (set[str]() for _ in range(5))

    def name(self, rank: int) -> str:
        """Node of a rank, as far as one is known."""
        return self._names.get(rank, f"rank{rank}")

    def follow(self, events: Sequence[_Event]) -> list[tuple[str, int, int]]:
        """States of nodes by all events in order, as `BusyRows.follow` takes them."""
        first = BusyKind.DOWN if self._tells_online else IDLE
        changes: list[tuple[str, int, int]] = []
        for event in (event for event in events if event.name in _CHANGES):
            nodes = self.change(event)
            changes += [(node, OPEN_START_NS, first) for node in sorted(nodes - self._touched)]
            is_down = self._offline | self._drained | self._excluded
            for node in sorted(nodes):
                state = BusyKind.AWAY if node in self._gone else BusyKind.DOWN if node in is_down else IDLE
                changes.append((node, event.time_ns, state))
            self._touched |= nodes
        return changes

    def change(self, event: _Event) -> set[str]:
        """Let ranks change; their nodes, which are all where Flux starts and tells of all ranks anew."""
        is_start, names = event.name in _STARTS, dict(zip(event.ranks, event.names, strict=False))
        if names:
            if is_start:
                self._gone = {*self._names.values(), *self._touched}.difference(event.names)
            self._names = names if is_start else self._names | names
        sets = (event.ranks, event.online, event.excluded, event.drained)
        self.is_nameless |= any(rank not in self._names for ranks in sets for rank in ranks)
        nodes, online, excluded, drained = (set(map(self.name, ranks)) for ranks in sets)
        if is_start:
            nodes |= online | excluded | drained | self._touched
            self._offline, self._excluded, self._drained = nodes - online, excluded, self._drained | drained
            return nodes
        if self._tells_online:
            self._offline |= nodes - self._touched
        changed = self._drained if event.name in ("drain", "undrain") else self._offline
        (changed.update if event.name in ("drain", "offline") else changed.difference_update)(nodes)
        return nodes


def _read_jobs(path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    """Jobs of a file that ran; the file is one JSON document, or has one per line."""
    first = parse_object(next((line for line in head(path) if line.strip()), ""))
    if first is not None and "jobs" not in first:
        return reading.parse(reading.lines([path]), lambda row: _read_job(parse_object(row.fields[0]), row))
    document = json_file(path, LogError, "a resource eventlog or jobs in JSON")
    listed = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise LogError(f"{path}: Expected a resource eventlog or jobs in JSON, got something else.")
    rows = (LogRow(path, number, []) for number in range(1, len(listed) + 1))
    return reading.parse(rows, lambda row: _read_job(listed[row.line - 1], row))


def _read_job(value: Any, row: LogRow) -> dict[str, Any]:
    """A job of a file, as `Reading.take` takes it, with its ranks and names."""
    if not isinstance(value, dict):
        raise RowError("malformed line", "Expected a job in JSON, got something else")
    if value.get("t_run") in (None, 0):
        raise RowError("never started")
    nodes, queue, key = str(value.get("nodelist") or ""), str(value.get("queue") or ""), value.get("id")
    # Resources are free when the job is inactive; before that they are being cleaned up.
    end = next((end for end in (value.get("t_inactive"), value.get("t_cleanup")) if end not in (None, 0)), None)
    start_ns, end_ns = _time_ns(value["t_run"]), OPEN_END_NS if end is None else _time_ns(end)
    submit_ns = _time_ns(value.get("t_submit"))
    try:
        ranks = _parse_ids(value["ranks"]) if value.get("ranks") not in (None, "") else ()
        names = expand_hostlist(nodes) if nodes and ranks else ()
        if (nodes or ranks) and (start_ns is None or end_ns is None):
            raise LogError("impossible time")
    except LogError as fault:
        raise RowError("malformed job", f"Expected a job as flux jobs prints it ({fault})") from None
    if not nodes and not ranks:
        raise RowError("no nodes")
    return {
        "row": LogRow(row.path, row.line, []),
        "start_ns": start_ns,
        "end_ns": end_ns,
        "nodes": nodes,
        "ranks": ranks,
        "names": names,
        "job": f"{nodes} {ranks}" if key is None else str(key),
        "partition": queue,
        "submit_ns": OPEN_START_NS if submit_ns is None else submit_ns,
    }
