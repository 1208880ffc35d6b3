"""Import Flux logs: the resource eventlog (when nodes were up) and job lists (when they were busy)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from bftrainer.errors import LogError, SettingsError
from bftrainer.files.opening import one_line
from bftrainer.files.text_files import LogRow, head, json_file, parse_object
from bftrainer.nodelogs.hostlist import expand_hostlist, numbers
from bftrainer.nodelogs.inventory import read_inventory
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS
from bftrainer.schedulers.busy_records import IDLE, BusyKind
from bftrainer.schedulers.clock import exact_ns
from bftrainer.schedulers.reading import Importer, Reading
from bftrainer.schedulers.selected_nodes import SEEN

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
        events = _read_events(eventlogs, reading)
        jobs = [job for path in paths if path not in eventlogs for job in _read_jobs(path, reading)]
        ranks = _Ranks(reading, events, jobs)
        changes = ranks.follow(events)
        if not jobs:
            reading.note("there are no jobs among the files: nodes count as idle whenever they are up.")
        elif ranks.is_nameless and any(not job["ranks"] for job in jobs):
            raise SettingsError("Missing --nodes with all names in order of rank: events name ranks, jobs name nodes.")
        reading.rows.lists.add(ranks.silent)
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


def _read_event(time_ns: int, name: str, context: Any) -> _Event:
    """An event with its context; a `LogError` if it is one of availability, and does not tell of which ranks."""
    if name not in _CHANGES:
        return _Event(time_ns, name)
    fields = context if isinstance(context, dict) else {}
    idset, online, excluded = (_parse_ids(fields.get(key, "")) for key in ("idset", "online", "exclude"))
    ranks, is_start = _parse_ids(fields.get("ranks", "")) or idset, name in _STARTS
    if not isinstance(context, dict) or not (is_start or ranks):
        raise LogError(f"Expected a context with the ranks that go {name}, got {one_line(context)!r}")
    names = expand_hostlist(str(fields["nodelist"])) if fields.get("nodelist") else ()
    names = names if len(names) == len(ranks) else ()
    if not is_start:
        return _Event(time_ns, name, idset, names)
    drains = fields["drain"] if isinstance(fields.get("drain"), dict) else {}
    return _Event(
        time_ns, name, ranks, names, online, excluded, tuple(rank for ids in drains for rank in _parse_ids(ids))
    )


def _read_events(paths: Iterable[Path], reading: Reading) -> list[_Event]:
    """Events of the files in order of time; lines that are none are refused."""
    events: list[_Event] = []
    for row in reading.lines(paths):
        reading.tally.records += 1
        event = parse_object(row.fields[0])
        time_ns = None if event is None or not _is_event(event) else _time_ns(event["timestamp"])
        if event is None or time_ns is None:
            shown = one_line(row.fields[0][:60])
            detail = f"Expected an event with timestamp, name and context in JSON, got {shown!r}"
            reading.tally.refuse("malformed line", row, detail)
            continue
        try:
            events.append(_read_event(time_ns, event["name"], event.get("context")))
        except LogError as fault:
            reading.tally.refuse("unreadable set of ranks", row, str(fault))
    reading.tally.drop("no change of availability", sum(event.name not in _CHANGES for event in events))
    if late := sum(before.time_ns > after.time_ns for before, after in pairwise(events)):
        reading.note(f"{late:,} events are out of order: they were sorted by their times.")
    return sorted(events, key=lambda event: event.time_ns)


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
        for ranks, names in (
            *((some.ranks, some.names) for some in events),
            *((job["ranks"], job["names"]) for job in jobs),
        ):
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
            touched = self._apply(event)
            changes += [(node, OPEN_START_NS, first) for node in sorted(touched - self._touched)]
            changes += [(node, event.time_ns, self._state(node)) for node in sorted(touched)]
            self._touched |= touched
        return changes

    def _apply(self, event: _Event) -> set[str]:
        """Let ranks change; their nodes, which are all where Flux starts and tells of all ranks anew."""
        is_start, names = event.name in _STARTS, dict(zip(event.ranks, event.names, strict=False))
        if names:
            if is_start:
                self._gone = {*self._names.values(), *self._touched}.difference(event.names)
            self._names = names if is_start else self._names | names
        nodes = self._find_nodes(event.ranks)
        if is_start:
            online, excluded, drained = map(self._find_nodes, (event.online, event.excluded, event.drained))
            nodes |= online | excluded | drained | self._touched
            self._offline, self._excluded, self._drained = nodes - online, excluded, self._drained | drained
            return nodes
        if self._tells_online:
            self._offline |= nodes - self._touched
        changed = self._drained if event.name in ("drain", "undrain") else self._offline
        (changed.update if event.name in ("drain", "offline") else changed.difference_update)(nodes)
        return nodes

    def _find_nodes(self, ranks: Sequence[int]) -> set[str]:
        self.is_nameless |= any(rank not in self._names for rank in ranks)
        return set(map(self.name, ranks))

    def _state(self, node: str) -> int:
        """Why a node is not up, or `IDLE`."""
        is_down = node in self._offline | self._drained | self._excluded
        return BusyKind.AWAY if node in self._gone else BusyKind.DOWN if is_down else IDLE


def _read_jobs(path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    """Jobs of a file that ran; the file is one JSON document, or has one per line."""
    for row in _job_lines(path, reading):
        reading.tally.records += 1
        value = parse_object(row.fields[0])
        if value is None:
            reading.tally.refuse("malformed line", row, "Expected a job in JSON, got something else")
        elif value.get("t_run") in (None, 0):
            reading.tally.drop("never started")
        else:
            try:
                job = _read_job(value)
            except (LogError, TypeError, ValueError) as fault:
                reading.tally.refuse("malformed job", row, f"Expected a job as flux jobs prints it ({fault})")
                continue
            if job["nodes"] or job["ranks"]:
                yield job | {"place": row.place}
            else:
                reading.tally.drop("no nodes")


def _job_lines(path: Path, reading: Reading) -> Iterator[LogRow]:
    """Jobs as lines of JSON, with their numbers in the document if the file is one."""
    first = parse_object(next((line for line in head(path) if line.strip()), ""))
    if first is not None and "jobs" not in first:
        yield from reading.lines([path])
        return
    document = json_file(path, LogError, "a resource eventlog or jobs in JSON")
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise LogError(f"{path}: Expected a resource eventlog or jobs in JSON, got something else.")
    for number, job in enumerate(jobs, start=1):
        yield LogRow(path, number, [json.dumps(job)], is_cut_off=False)


def _read_job(value: Mapping[str, Any]) -> dict[str, Any]:
    """A job that ran, as a row with its ranks."""
    nodes = str(value.get("nodelist") or "")
    ranks = _parse_ids(value["ranks"]) if value.get("ranks") not in (None, "") else ()
    # Resources are free when the job is inactive; before that they are being cleaned up.
    end = next((end for end in (value.get("t_inactive"), value.get("t_cleanup")) if end not in (None, 0)), None)
    start_ns, end_ns = _time_ns(value.get("t_run")), OPEN_END_NS if end is None else _time_ns(end)
    if (nodes or ranks) and (start_ns is None or end_ns is None):
        raise ValueError("impossible time")
    submit_ns = _time_ns(value.get("t_submit"))
    return {
        "start_ns": start_ns,
        "end_ns": end_ns,
        "nodes": nodes,
        "ranks": ranks,
        "names": expand_hostlist(nodes) if nodes and ranks else (),
        "job": str(value["id"]) if value.get("id") is not None else f"{nodes} {ranks}",
        "partition": str(value.get("queue") or ""),
        "submit_ns": OPEN_START_NS if submit_ns is None else submit_ns,
    }
