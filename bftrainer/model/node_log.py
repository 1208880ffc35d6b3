"""Node log: when each node was idle, kept as transitions in an observation window, never as a dense matrix."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import LogError, SettingsError
from bftrainer.model.instants import NS_PER_S, iso, local_iso
from bftrainer.model.type_checks import instances, whole_number

BLOCK = 1 << 20
"""Transitions that are looked at together: temporary arrays stay small, whatever the length of the log."""
_CHUNK = 1 << 12
"""Transitions that are made lists of together."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Times of rows, strictly ascending, and where the transitions of each begin: from 0 to their number.

    The shapes are (R,) and (R + 1,); no row is empty.
    """

    time_ns: NDArray[np.int64]
    start: NDArray[np.int64]

    @classmethod
    def from_times(cls, time_ns: NDArray[Any]) -> Rows:
        """Rows of transitions with these times, which must ascend: `LogError` names the first that does not."""
        first = cls.find_runs(time_ns)
        return cls.from_runs(time_ns[first], np.append(first, time_ns.size))

    @classmethod
    def from_runs(cls, time_ns: NDArray[Any], start: NDArray[np.int64]) -> Rows:
        """As `from_times`, of the time of each run of transitions and where it begins; `start` ends with their number.

        Several runs of one time are one row.
        """
        late = time_ns[1:] < time_ns[:-1]
        if late.any():
            run = int(np.argmax(late)) + 1
            got = f"{iso(time_ns[run])} after {iso(time_ns[run - 1])}"
            raise LogError(f"transition {start[run]}: Expected times to ascend, got {got}.")
        first = cls.find_runs(time_ns)
        return cls(time_ns[first].astype(np.int64, copy=False), np.append(start[first], start[-1]))

    @staticmethod
    def find_runs(time_ns: NDArray[Any]) -> NDArray[np.int64]:
        """Where times begin that are not those before them."""
        return np.flatnonzero(np.append(np.ones(min(time_ns.size, 1), np.bool_), time_ns[1:] != time_ns[:-1]))

    @property
    def size(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Number of transitions of each row, shape (R,)."""
        return np.diff(self.start)

    def blocks(self, size: int | None = None) -> Iterator[tuple[slice, slice]]:
        """Rows and their transitions, about `size` at a time, by default `BLOCK`."""
        cuts = np.searchsorted(self.start, np.arange(0, self.start[-1], size or BLOCK))
        for begin, end in itertools.pairwise(np.unique(np.append(cuts, self.time_ns.size)).tolist()):
            yield slice(begin, end), slice(int(self.start[begin]), int(self.start[end]))

    def times_ns(self, begin: int, end: int) -> NDArray[np.int64]:
        """Times of the transitions from `begin` to before `end`."""
        first = int(np.searchsorted(self.start, begin, side="right")) - 1
        last = int(np.searchsorted(self.start, end))
        return np.repeat(self.time_ns[first:last], np.diff(self.start[first : last + 1].clip(begin, end)))

    def counts(self, marks: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Number of marked transitions in each row; `marks` has shape (T,)."""
        counts = np.empty(self.time_ns.size, dtype=np.int64)
        for which, block in self.blocks():
            counts[which] = np.add.reduceat(marks[block].astype(np.int64), self.start[which] - block.start)
        return counts

    def select(self, marks: NDArray[np.bool_]) -> Rows:
        """The rows that marked transitions alone would have."""
        counts = self.counts(marks)
        return Rows(self.time_ns[counts > 0], np.append(0, counts[counts > 0].cumsum()))

    def numbers(self, which: slice) -> NDArray[np.int64]:
        """Number of the row of each transition, in some rows."""
        return np.repeat(np.arange(which.start, which.stop), self.size[which])

    def ascends(self, which: slice, node: NDArray[Any]) -> bool:
        """Whether nodes of the transitions of some rows ascend strictly within each row."""
        rises = np.append(True, node[1:] > node[:-1])
        rises[self.start[which] - self.start[which.start]] = True
        return bool(rises.all())


def check_changes(rows: Rows, node: NDArray[Any], idle: NDArray[np.bool_], names: Sequence[str]) -> None:
    """Check that each transition changes its node's state: `LogError` names the first that does not."""
    state = np.zeros(len(names), dtype=np.bool_)
    for which, block in rows.blocks():
        # NumPy sorts 16-bit numbers by their digits, several times as fast as larger ones.
        some = node[block].astype(np.uint16) if len(names) <= 1 << 16 else node[block]
        order = np.argsort(some, kind="stable")
        by_node = some[order]
        opens = np.append(True, by_node[1:] != by_node[:-1])
        entered = idle[block][order]
        before = np.append(False, entered[:-1])
        before[opens] = state[by_node[opens]]
        twice = np.zeros_like(opens)
        if not rows.ascends(which, node[block]):
            row = rows.numbers(which)[order]
            twice[1:] = ~opens[1:] & (row[1:] == row[:-1])
        fault = twice | (before == entered)
        if fault.any():
            place = block.start + int(order[fault].min())
            if block.start + order[twice].min(initial=order.size) == place:
                expected = "one transition per node and time, got another one"
            elif (node[:place] == node[place]).any():
                expected = "every transition to change the state, got the state it had"
            else:
                expected = "a node's first transition to be to idle (nodes start busy), got busy"
            where = f"node {names[node[place]]} at {iso(rows.times_ns(place, place + 1)[0])}"
            raise LogError(f"transition {place}: Expected {expected} ({where}).")
        state[by_node] = entered  # of several the last one


class Instant(NamedTuple):
    """What comes from outside at a time: nodes, by number and ascending, that join, and that leave.

    Parameters
    ----------
    time_s : float
        Seconds since the window's start.
    joined, left : sequence of int
    """

    time_s: float
    joined: Sequence[int] = ()
    left: Sequence[int] = ()


def check_node_names(names: Sequence[str]) -> None:
    """Check that node names are unique text that can be written to files: `LogError`."""
    instances("nodes", names, str, LogError)
    if len(set(names)) != len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise LogError(f"Expected unique node names, got {twice!r} twice.")
    try:
        "".join(names).encode()
    except UnicodeEncodeError as fault:
        raise LogError(f"Expected node names in Unicode, got {fault.object[fault.start]!r} in one.") from None


@dataclass(frozen=True, slots=True, eq=False)
class NodeLog:
    """Idle/busy transitions of a machine's nodes.

    A node is busy until its first transition; transitions at or before `start_ns` give the state at the
    start of the window. All transitions of one time form one row, which is an event of the replay.

    Parameters
    ----------
    nodes : tuple of str, length M
        Node names, unique.
    start_ns, end_ns : int
        Observation window, nanoseconds since the Unix epoch (UTC), `start_ns <= end_ns`.
    time_ns : ndarray of int64, shape (T,)
        Times of transitions, ascending.
    node : ndarray of int32, shape (T,)
        Index into `nodes`.
    idle : ndarray of bool, shape (T,)
        The state the node enters; each transition changes it.
    provenance : mapping
        Where the log comes from: free text and numbers, kept in native files.
    unchanged_ns : ndarray of int64, shape (U,)
        Times within the window, ascending, at which the log was written although no node had changed.
        They are not events, but count among the rows that `skip_rows` leaves out.

    Attributes
    ----------
    row_index : Rows
        Found when the log is made.

    Raises
    ------
    LogError
        If names are empty or repeat, times do not ascend or lie after the window, an index is out of range, a
        node changes twice at one time, or a transition changes nothing.
    """

    nodes: tuple[str, ...]
    start_ns: int
    end_ns: int
    time_ns: NDArray[np.int64]
    node: NDArray[np.int32]
    idle: NDArray[np.bool_]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    unchanged_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    row_index: Rows = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._check_array("time_ns")
        object.__setattr__(self, "row_index", Rows.from_times(self.time_ns))
        self._check()

    @classmethod
    def from_rows(cls, rows: Rows, *, checked: bool = False, **parameters: Any) -> NodeLog:
        """Make a log of rows and all other parameters of a log; the time of each transition is made when asked for.

        What is `checked` already is not checked again.
        """
        log = object.__new__(cls)
        for name, value in {**parameters, "row_index": rows}.items():
            object.__setattr__(log, name, value)
        if not checked:
            log._check()
        return log

    if not TYPE_CHECKING:  # else any name would be known

        def __getattr__(self, name: str) -> Any:
            """The times of transitions, of a log that was made of rows."""
            if name != "time_ns":
                raise AttributeError(name=name, obj=self)
            object.__setattr__(self, name, self.row_index.times_ns(0, self.node.size))
            return self.time_ns

    def _section(self, rows: Rows, **parameters: Any) -> NodeLog:
        """A part of the log, which is as valid."""
        names = [item.name for item in fields(self) if item.name not in ("time_ns", "row_index")]
        return NodeLog.from_rows(rows, checked=True, **{name: getattr(self, name) for name in names} | parameters)

    def _check(self) -> None:
        check_node_names(self.nodes)
        for name in ("start_ns", "end_ns"):
            whole_number(name, getattr(self, name), LogError)
        for name in ("node", "idle", "unchanged_ns"):
            self._check_array(name)
        if not isinstance(self.provenance, Mapping):
            raise LogError(f"Expected provenance to be a mapping, got {self.provenance!r}.")
        if self.start_ns > self.end_ns:
            raise LogError(f"Expected the window to start before its end, got {self.start_ns} > {self.end_ns} ns.")
        if not self.row_index.start[-1] == self.node.size == self.idle.size:
            raise LogError("Expected as many times as nodes and states.")
        if self.node.size:
            self._check_transitions()
        if self.unchanged_ns.size:
            self._check_unchanged()

    def _check_array(self, name: str) -> None:
        value = getattr(self, name)
        kind, what = ("b", "booleans") if name == "idle" else ("i", "whole numbers")
        if not (isinstance(value, np.ndarray) and value.dtype.kind == kind and value.ndim == 1):
            raise LogError(f"Expected {name} to be an array of {what}, got {value!r}.")

    def _check_transitions(self) -> None:
        rows, node = self.row_index, self.node
        if rows.time_ns[-1] > self.end_ns:
            late = f"the window's end {iso(self.end_ns)}, got {iso(rows.time_ns[-1])}"
            raise LogError(f"Expected all transitions before {late}.")
        if node.min() < 0 or node.max() >= len(self.nodes):
            raise LogError(f"Expected node indices below {len(self.nodes)}, got {node.min()}..{node.max()}.")
        check_changes(rows, node, self.idle, self.nodes)

    def _check_unchanged(self) -> None:
        time = self.unchanged_ns
        if (time[1:] <= time[:-1]).any():
            raise LogError("Expected times of unchanged rows to ascend, got some that do not.")
        if time[0] < self.start_ns or time[-1] > self.end_ns:
            window, got = (f"{iso(a)} to {iso(b)}" for a, b in ((self.start_ns, self.end_ns), (time[0], time[-1])))
            raise LogError(f"Expected unchanged rows within the window {window}, got {got}.")

    @property
    def notes(self) -> list[str]:
        """What was trimmed, assumed or not checked when the log was made, or those that it was merged from."""
        notes = [note for some in self._provenance_values("notes") if isinstance(some, list) for note in some]
        return list(dict.fromkeys(note for note in notes if isinstance(note, str)))

    @property
    def zone(self) -> str | None:
        """Time zone of the site's clocks, as told when the log, or those that it was merged from, was made."""
        zones = {zone for zone in self._provenance_values("zone") if isinstance(zone, str)}
        return zones.pop() if len(zones) == 1 else None

    def _provenance_values(self, key: str) -> list[Any]:
        """Values of a key of the log's provenance, and of those of the logs that it was merged from."""
        merged = self.provenance.get("merged")
        stories = [self.provenance, *(merged if isinstance(merged, list) else [])]
        return [story.get(key) for story in stories if isinstance(story, Mapping)]

    @property
    def window_s(self) -> float:
        """Length of the observation window in seconds."""
        return (self.end_ns - self.start_ns) / NS_PER_S

    def select_nodes(self, first: int = 0, count: int | None = None) -> NodeLog:
        """The log of `count` nodes from index `first` on, by default of all from there on; others: `SettingsError`."""
        total = len(self.nodes)
        stop = total if count is None else first + count
        if not 0 <= first < stop <= total:
            got = f"{count} nodes from {first}" if count is not None else f"nodes from {first}"
            raise SettingsError(f"Expected a selection within the log's {total} nodes, got {got}.")
        if (first, stop) == (0, total):
            return self
        keep = (self.node >= first) & (self.node < stop)
        node = self.node[keep]
        node -= first
        return self._section(
            self.row_index.select(keep),
            nodes=self.nodes[first:stop],
            node=node.astype(np.int32, copy=False),
            idle=self.idle[keep],
        )

    def row_times_ns(self) -> NDArray[np.int64]:
        """Times of the log's rows, ascending: the ends of its window, changes within it, and unchanged rows.

        Earlier changes belong to the window's start. As a matrix of states, the log has these rows.
        """
        ends = np.array([self.start_ns, self.end_ns], dtype=np.int64)
        return np.unique(np.concatenate((ends, np.maximum(self.row_index.time_ns, self.start_ns), self.unchanged_ns)))

    def skip_rows(self, rows: int) -> NodeLog:
        """The log without its first `rows` of `row_times_ns`; it starts at the next row, with the nodes left idle.

        Every form of file thus skips the same rows. If none would be left: `SettingsError`.
        """
        if rows == 0:
            return self
        times = self.row_times_ns()
        if not 0 <= rows < times.size:
            raise SettingsError(f"Expected to skip fewer rows than the log's {times.size}, got {rows}.")
        return self._open_at(int(times[rows]))

    def since(self, start_ns: int) -> NodeLog:
        """The log from an instant of its window on (others: `SettingsError`), with the nodes that are idle then."""
        if start_ns == self.start_ns:
            return self
        self._check_within("a start", start_ns, self.start_ns < start_ns < self.end_ns)
        return self._open_at(start_ns)

    def ending(self, end_ns: int) -> NodeLog:
        """The log up to an instant of its window (others: `SettingsError`)."""
        self._check_within("an end", end_ns, self.start_ns < end_ns <= self.end_ns)
        rows = self.row_index
        last = int(np.searchsorted(rows.time_ns, end_ns, side="right"))
        stop = int(rows.start[last])
        return self._section(
            Rows(rows.time_ns[:last], rows.start[: last + 1]),
            end_ns=end_ns,
            node=self.node[:stop],
            idle=self.idle[:stop],
            unchanged_ns=self.unchanged_ns[self.unchanged_ns < end_ns],
        )

    def _check_within(self, what: str, time_ns: int, is_within: bool) -> None:
        """Refuse an instant beyond the window: `SettingsError`."""
        if not is_within:
            start, end, got = (local_iso(at, self.zone) for at in (self.start_ns, self.end_ns, time_ns))
            raise SettingsError(f"Expected {what} within the log's window, {start} to {end}, got {got}.")

    def _open_at(self, start_ns: int) -> NodeLog:
        """The log from `start_ns` on; earlier transitions become its state at the start."""
        rows = self.row_index
        first = int(np.searchsorted(rows.time_ns, start_ns, side="right"))
        split = int(rows.start[first])
        state = np.zeros(len(self.nodes), dtype=np.bool_)
        for begin in range(0, split, BLOCK):
            block = slice(begin, min(begin + BLOCK, split))
            state[self.node[block]] = self.idle[block]  # the last assignment of a node wins: times ascend
        opening = np.flatnonzero(state).astype(np.int32)
        some = slice(0, min(opening.size, 1))  # without idle nodes there is no such row
        start = np.concatenate((np.array([0])[some], rows.start[first:] - split + opening.size))
        return self._section(
            Rows(np.concatenate((np.array([start_ns])[some], rows.time_ns[first:])), start),
            start_ns=start_ns,
            node=np.concatenate((opening, self.node[split:])),
            idle=np.concatenate((np.ones(opening.size, dtype=np.bool_), self.idle[split:])),
            unchanged_ns=self.unchanged_ns[self.unchanged_ns > start_ns],
        )

    def rows(self) -> Iterator[Instant]:
        """Rows of the log in its window, one per time at which a node changes; earlier changes are in that at 0 s."""
        opens_earlier = self.node.size and self.row_index.time_ns[0] < self.start_ns
        log = self._open_at(self.start_ns) if opens_earlier else self
        rows, start_ns = log.row_index, int(log.start_ns)
        for which, block in rows.blocks(_CHUNK):
            node, joins = log.node[block], log.idle[block]
            if not rows.ascends(which, node):
                order = np.lexsort((node, rows.numbers(which)))
                node, joins = node[order], joins[order]
            joined, left = node[joins].tolist(), node[~joins].tolist()
            ends = np.append(rows.start[which], block.stop) - block.start
            before = np.append(0, np.cumsum(joins))[ends]
            places = itertools.pairwise(zip(before.tolist(), (ends - before).tolist(), strict=True))
            for time_ns, ((join, leave), (join_to, leave_to)) in zip(rows.time_ns[which].tolist(), places, strict=True):
                yield Instant((time_ns - start_ns) / NS_PER_S, joined[join:join_to], left[leave:leave_to])
