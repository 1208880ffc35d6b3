"""Import Flux logs: the resource eventlog (when nodes were up) and job lists (when they were busy)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

from bftrainer.errors import LogError, SettingsError
from bftrainer.files.log_files import Block, head, line_blocks, whole_text
from bftrainer.files.opening import one_line
from bftrainer.nodelogs.hostlist import expanded, numbers
from bftrainer.nodelogs.inventory import read_inventory
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.clock import exact_ns
from bftrainer.schedulers.reading import Importer, Reading
from bftrainer.schedulers.selected_nodes import SEEN

_STARTS = ("resource-init", "restart")
_CHANGES = (*_STARTS, "online", "offline", "drain", "undrain")


_Node = str | int
"""A node's name, or its rank as long as the name is not known."""


class _Ranks:
    """Which nodes are up, by the events read so far, and the nodes of ranks as far as they are known.

    A node is up while it is online, neither drained nor excluded. Restarts of Flux take all ranks offline, and leave
    drained ones drained. They may give ranks to other nodes: nodes that have none any more are away. Where no event
    tells of ranks that are online, as in eventlogs since flux-core 0.62, all are unless they go offline.

    References
    ----------
    flux-core, `src/modules/resource`: drained ranks are replayed from the eventlog when Flux restarts.
    """

    def __init__(self, names: Mapping[int, str], *, tells_online: bool = True) -> None:
        self._nodes: dict[int, _Node] = dict(names)
        self._tells_online = tells_online
        self._online: set[_Node] = set()
        self._offline: set[_Node] = set()
        self._drained: set[_Node] = set()
        self._excluded: set[_Node] = set()
        self._gone: set[_Node] = set()
        self._states: dict[_Node, tuple[BusyKind | None, int]] = {}
        self._spans: list[tuple[_Node, int, int, BusyKind]] = []
        self._first_ns, self._last_ns = OPEN_END_NS, OPEN_START_NS

    def apply(self, name: str, context: Mapping[str, Any], now_ns: int) -> bool:
        """Apply an event; return whether it is about availability."""
        self._first_ns, self._last_ns = min(self._first_ns, now_ns), max(self._last_ns, now_ns)
        if name not in _CHANGES:
            return False
        # All is read before anything changes: an event may prove unreadable.
        keys = ("idset", "ranks", "online", "exclude") if name in _STARTS else ("idset", "ranks")
        some, named, *rest = (_ids(context.get(key, "")) for key in keys)
        names = expanded(str(context["nodelist"])) if context.get("nodelist") else ()
        drain = context.get("drain") if name in _STARTS else None
        drained = [rank for ranks in (drain if isinstance(drain, dict) else {}) for rank in _ids(ranks)]
        if name in _STARTS:
            before = set(self._nodes.values())
            self._assign(named or some, names, is_whole=True)
            online, excluded = (set(map(self._node, ranks)) for ranks in rest)
            self._online, self._excluded, self._offline = online, excluded, set()
            self._drained.update(map(self._node, drained))
            self._gone = before.union(self._states) - set(self._nodes.values()) if names else self._gone
            touched = {*map(self._node, (*named, *rest[0], *rest[1], *drained)), *self._states}
        else:
            self._assign(named or some, names)
            touched = set(map(self._node, some))
            ins, outs = {
                "online": ((self._online,), (self._offline,)),
                "offline": ((self._offline,), (self._online,)),
                "drain": ((self._drained,), ()),
                "undrain": ((), (self._drained,)),
            }[name]
            for nodes in ins:
                nodes.update(touched)
            for nodes in outs:
                nodes.difference_update(touched)
        self._settle(touched, now_ns)
        return True

    def _settle(self, some: Iterable[_Node], now_ns: int) -> None:
        """Note which nodes came up, went down or left; those named for the first time were down before, or up."""
        for node in some:
            first = BusyKind.DOWN if self._tells_online else None
            before, since_ns = self._states.get(node, (first, OPEN_START_NS))
            now = self._state(node)
            if node not in self._states or now != before:
                if before is not None and now != before:
                    self._spans.append((node, since_ns, now_ns, before))
                self._states[node] = now, (since_ns if now == before else now_ns)

    def _state(self, node: _Node) -> BusyKind | None:
        """Why a node is not up; None if it is."""
        if node in self._gone:
            return BusyKind.AWAY
        is_up = node in self._online if self._tells_online else node not in self._offline
        return None if is_up and node not in self._drained and node not in self._excluded else BusyKind.DOWN

    def _assign(self, ranks: Sequence[int], names: Sequence[str], *, is_whole: bool = False) -> None:
        """Give ranks to nodes, if there are as many of both; a whole list takes those of all others."""
        if not names or len(ranks) != len(names):
            return
        if is_whole:
            for rank in tuple(self._nodes):
                if isinstance(self._nodes[rank], str):
                    del self._nodes[rank]
        self.learn(ranks, names)
        self._nodes.update(zip(ranks, names, strict=True))

    def learn(self, ranks: Sequence[int], names: Sequence[str]) -> None:
        """Remember the names of ranks that have none, if there are as many of both."""
        if len(ranks) == len(names):
            for rank, name in zip(ranks, names, strict=True):
                if not isinstance(self._nodes.get(rank), str):
                    self._nodes[rank] = name
                    self._rename(rank, name)

    def _rename(self, rank: int, name: str) -> None:
        """A node that was known by its rank has a name."""
        for nodes in (self._online, self._offline, self._drained, self._excluded, self._gone):
            if rank in nodes:
                nodes.remove(rank)
                nodes.add(name)
        if rank in self._states:
            self._states[name] = self._states.pop(rank)
        self._spans = [(name if node == rank else node, *span) for node, *span in self._spans]  # type: ignore[misc]

    def _node(self, rank: int) -> _Node:
        return self._nodes.setdefault(rank, rank)

    def name(self, rank: int) -> str:
        """Node of a rank, as far as it is known."""
        return _shown(self._nodes.get(rank, rank))

    def has_nameless(self) -> bool:
        """Whether events name ranks whose nodes are not known."""
        return any(isinstance(node, int) for node in self._states)

    def silent(self) -> tuple[str, ...]:
        """Names of nodes that are up as long as no event says otherwise."""
        return () if self._tells_online else tuple(_shown(node) for node in self._nodes.values())

    def downtimes(self) -> Iterator[tuple[str, int, int, BusyKind]]:
        """Node, start, end and cause of each stretch in which a node was down or away."""
        still = (
            (node, since_ns, OPEN_END_NS, kind) for node, (kind, since_ns) in self._states.items() if kind is not None
        )
        for node, start_ns, end_ns, kind in (*self._spans, *still):
            yield _shown(node), start_ns, end_ns, kind

    def window_ns(self) -> tuple[int, int]:
        """First and last event."""
        return self._first_ns, self._last_ns


def _shown(node: _Node) -> str:
    return node if isinstance(node, str) else f"rank{node}"


def _ids(text: Any) -> tuple[int, ...]:
    return numbers(str(text).strip("[]"))


_FIRST = 5
"""Lines among which one that is whole tells what a file is."""
_NAMELESS = "Missing --nodes with all names in order of rank: events name ranks, jobs name nodes."


@dataclass(frozen=True, slots=True)
class _Job:
    """A job that ran."""

    start_ns: int
    end_ns: int
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    queue: str
    key: int
    submit_ns: int | None


class FluxImporter(Importer):
    """Resource eventlogs and lists of jobs, recognised by their content.

    References
    ----------
    flux-framework/rfc, RFC 23 (idsets); flux-core, flux-resource(1), flux-jobs(1) and `flux job list`.
    """

    name: ClassVar[str] = "flux"

    def recognises(self, lines: Sequence[str]) -> bool:
        """A JSON object that is an event, a job, or a list of jobs."""
        first = _parse_object(lines[0]) if lines else None
        if first is None:
            return any('"jobs"' in line for line in lines[:3])
        return _is_event(first) or "jobs" in first or "t_submit" in first or "t_run" in first

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the eventlogs and all jobs."""
        began = {path: start for path in paths if (start := _first_event_ns(path)) is not None}
        eventlogs = sorted(began, key=lambda path: began[path])
        ranks = _read_eventlogs(eventlogs, reading)
        jobs = [job for path in paths if path not in eventlogs for job in _read_jobs(path, ranks, reading)]
        if not jobs:
            reading.note("there are no jobs among the files: nodes count as idle whenever they are up.")
        elif eventlogs and ranks.has_nameless() and any(job.nodes for job in jobs):
            raise SettingsError(_NAMELESS)
        reading.rows.lists.add(ranks.silent())
        for down in ranks.downtimes():
            reading.rows.add_node(*down)
        for job in jobs:
            node_set = reading.rows.lists.add(job.nodes or map(ranks.name, job.ranks))
            times_ns, is_open = (job.start_ns, job.end_ns), job.end_ns == OPEN_END_NS
            reading.rows.add(*times_ns, node_set, job.key, BusyKind.JOB, job.queue, job.submit_ns, is_open=is_open)
        if eventlogs:
            reading.window_ns = ranks.window_ns()


def _parse_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is; None if it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_event(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("timestamp"), int | float) and isinstance(value.get("name"), str)


def _time_ns(value: Any) -> int | None:
    """Convert seconds since the epoch to nanoseconds; None if they are no number, or impossible."""
    time_ns = exact_ns(repr(value)) if isinstance(value, int | float) else None
    return time_ns if time_ns is not None and time_ns >= 0 else None


def _first_event_ns(path: Path) -> int | None:
    """Time of an eventlog's first event; None if the file is no eventlog."""
    events = (event for line in head(path)[:_FIRST] if (event := _parse_object(line)) is not None and _is_event(event))
    first = next(events, None)
    return None if first is None else _time_ns(first["timestamp"]) or 0


def _name_ranks(reading: Reading) -> dict[int, str]:
    """Names of nodes by rank, if the settings list them in that order."""
    nodes = reading.settings.nodes
    return {} if nodes is None or nodes == SEEN else dict(enumerate(read_inventory(nodes).names))


def is_eventlog(path: Path) -> bool:
    """Whether a file is an eventlog of Flux's resources."""
    return _first_event_ns(path) is not None


def eventlog_downtimes(path: Path, reading: Reading) -> None:
    """Add the downtimes of an eventlog to the import of another log.

    Raises
    ------
    LogError
        If too many of its events are unusable.
    SettingsError
        If the settings do not name the nodes of all ranks.
    """
    beside = Reading.begun(reading.settings)
    ranks = _read_eventlogs([path], beside)
    beside.tally.check(at_end=True)
    if ranks.has_nameless():
        raise SettingsError(f"{path}: {_NAMELESS}")
    for down in ranks.downtimes():
        reading.rows.add_node(*down)


_Event = tuple[int, Mapping[str, Any], Block, int]
"""Time of an event, the event, and its place."""


def _read_eventlogs(paths: Iterable[Path], reading: Reading) -> _Ranks:
    """Ranks after all events of the files, in order of time."""
    events = [event for path in paths for event in _events(path, reading)]
    is_told = not events or any(event["name"] == "online" or event["name"] in _STARTS for _, event, _, _ in events)
    ranks = _Ranks(_name_ranks(reading), tells_online=is_told)
    late = sum(before > now for before, now in pairwise(event[0] for event in events))
    if late:
        reading.note(f"{late:,} events are out of order: they were sorted by their times.")
    for time_ns, event, block, at in sorted(events, key=itemgetter(0)):
        context, name = event.get("context"), event["name"]
        try:
            if name in _CHANGES and not (
                isinstance(context, dict) and (name in _STARTS or _ids(context.get("idset", "")))
            ):
                raise LogError(f"Expected a context with the ranks that go {name}, got {one_line(context)!r}")
            changes = ranks.apply(name, context if isinstance(context, dict) else {}, time_ns)
        except LogError as fault:
            reading.refuse("unreadable set of ranks", block, at, str(fault))
            continue
        if not changes:
            reading.tally.drop("no change of availability")
    return ranks


def _events(path: Path, reading: Reading) -> Iterator[_Event]:
    """Events of a file; lines that are none are refused."""
    for block in line_blocks(path):
        for at, line in enumerate(block.lines):
            if not line.strip():
                continue
            reading.tally.records += 1
            event = _parse_object(line)
            time_ns = _time_ns(event["timestamp"]) if event is not None and _is_event(event) else None
            if event is None or time_ns is None:
                detail = f"Expected an event with timestamp, name and context in JSON, got {one_line(line[:60])!r}"
                reading.refuse("malformed line", block, at, detail)
            else:
                yield time_ns, event, block, at
        reading.tally.check()


def _read_jobs(path: Path, ranks: _Ranks, reading: Reading) -> Iterator[_Job]:
    """Jobs of a file that ran; the file is one JSON document, or has one per line."""
    for line, value in _job_objects(path):
        reading.tally.records += 1
        has_run = value is not None and value.get("t_run") not in (None, 0)
        try:
            job = _job(value, ranks) if value is not None and has_run else None
        except (LogError, TypeError, ValueError) as fault:
            reading.tally.refuse("malformed job", path, line, f"Expected a job as flux jobs prints it ({fault})")
            continue
        if value is None:
            reading.tally.refuse("malformed line", path, line, "Expected a job in JSON, got something else")
        elif not has_run:
            reading.tally.drop("never started")
        elif job is None:
            reading.tally.drop("no nodes")
        elif reading.tally.lasts(job.start_ns, job.end_ns):
            yield job


def _job_objects(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Line, or number in a document, and JSON object of each job."""
    first = _parse_object(next((line for line in head(path) if line.strip()), ""))
    if first is not None and "jobs" not in first:
        for block in line_blocks(path):
            for number, line in enumerate(block.lines, start=block.first):
                if line.strip():
                    yield number, _parse_object(line)
        return
    try:
        document = json.loads(whole_text(path))
    except (ValueError, RecursionError) as fault:
        place = f"{path}:{fault.lineno}" if isinstance(fault, json.JSONDecodeError) else path
        raise LogError(f"{place}: Expected a resource eventlog or jobs in JSON, got something else.") from None
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise LogError(f"{path}: Expected a resource eventlog or jobs in JSON, got something else.")
    yield from ((number, job if isinstance(job, dict) else None) for number, job in enumerate(jobs, start=1))


def _job(value: Mapping[str, Any], ranks: _Ranks) -> _Job | None:
    """A job; None if it has no nodes. If it has ranks and names, `ranks` learns which belong together."""
    names = expanded(str(value["nodelist"])) if value.get("nodelist") else ()
    numbered = numbers(str(value["ranks"]).strip("[]")) if value.get("ranks") not in (None, "") else ()
    if not names and not numbered:
        return None
    if names and numbered:
        ranks.learn(numbered, names)
    start_ns = _time_ns(value.get("t_run"))
    # Resources are free when the job is inactive; before that they are being cleaned up.
    end = next((end for end in (value.get("t_inactive"), value.get("t_cleanup")) if end not in (None, 0)), None)
    end_ns = OPEN_END_NS if end is None else _time_ns(end)
    if start_ns is None or end_ns is None:
        raise ValueError("impossible time")
    key = hash(str(value["id"])) if value.get("id") is not None else hash((names, numbered))
    submit_ns = _time_ns(value.get("t_submit"))
    return _Job(start_ns, end_ns, names, numbered, str(value.get("queue") or ""), key, submit_ns)
