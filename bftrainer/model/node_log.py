"""Node log: when each node was idle, kept as transitions in an observation window, never as a dense matrix."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import NodeLogError, SettingsError
from bftrainer.model.instants import iso
from bftrainer.model.task import NS_PER_S


def check_node_names(names: Sequence[str]) -> None:
    """Check that node names are unique and can be written to files.

    Raises
    ------
    NodeLogError
        If a name is not text, empty, not Unicode, or repeated.
    """
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise NodeLogError(f"Expected node names as a sequence of texts, got {names!r}.")
    if not set(map(type, names)) <= {str}:
        for name in names:
            if not isinstance(name, str):
                raise NodeLogError(f"Expected node names to be text, got {name!r}.")
    if "" in names:
        raise NodeLogError("Expected node names that are not empty, got '' among them.")
    if len(set(names)) != len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise NodeLogError(f"Expected unique node names, got {twice!r} twice.")
    try:
        "".join(names).encode()
    except UnicodeEncodeError as fault:
        raise NodeLogError(f"Expected node names in Unicode, got {fault.object[fault.start]!r} in one.") from None


@dataclass(frozen=True, slots=True, eq=False)
class RowTable:
    """Rows of a node log: all transitions of one time.

    Parameters
    ----------
    time_s : ndarray of float64, shape (R,)
        Seconds since the window's start, ascending.
    first : ndarray of int64, shape (R + 1,)
        Index of each row's first transition, and at last the number of transitions.
    node : ndarray of int32, shape (T,)
        Node numbers, ascending in each row.
    idle : ndarray of bool, shape (T,)
        Whether the node becomes idle.
    """

    time_s: NDArray[np.float64]
    first: NDArray[np.int64]
    node: NDArray[np.int32]
    idle: NDArray[np.bool_]

    def rows(self) -> Iterator[tuple[float, NDArray[np.int32], NDArray[np.int32]]]:
        """Each row's time in seconds, and the nodes that became idle, and busy, ascending."""
        edges = itertools.pairwise(self.first.tolist())
        for time_s, (begin, end) in zip(self.time_s.tolist(), edges, strict=True):
            nodes, joins = self.node[begin:end], self.idle[begin:end]
            yield time_s, nodes[joins], nodes[~joins]


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
        They are not events, but count among the rows that `skipped` leaves out.

    Raises
    ------
    NodeLogError
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

    def __post_init__(self) -> None:
        check_node_names(self.nodes)
        self._check_types()
        if self.start_ns > self.end_ns:
            raise NodeLogError(f"Expected the window to start before its end, got {self.start_ns} > {self.end_ns} ns.")
        if not self.time_ns.shape == self.node.shape == self.idle.shape:
            raise NodeLogError("Expected as many times as nodes and states.")
        if self.time_ns.size:
            self._check_transitions()
        if self.unchanged_ns.size:
            self._check_unchanged()

    def _check_types(self) -> None:
        for name in ("start_ns", "end_ns"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool):
                raise NodeLogError(f"Expected {name} to be whole nanoseconds, got {value!r}.")
        for name, kind, what in (
            ("time_ns", "i", "whole numbers"),
            ("node", "i", "whole numbers"),
            ("idle", "b", "booleans"),
            ("unchanged_ns", "i", "whole numbers"),
        ):
            value = getattr(self, name)
            if not (isinstance(value, np.ndarray) and value.dtype.kind == kind and value.ndim == 1):
                raise NodeLogError(f"Expected {name} to be an array of {what}, got {value!r}.")
        if not isinstance(self.provenance, Mapping):
            raise NodeLogError(f"Expected provenance to be a mapping, got {self.provenance!r}.")

    def _check_transitions(self) -> None:
        time, node, idle = self.time_ns, self.node, self.idle
        if (time[1:] < time[:-1]).any():
            row = int(np.argmax(time[1:] < time[:-1])) + 1
            raise NodeLogError(
                f"transition {row}: Expected times to ascend, got {iso(time[row])} after {iso(time[row - 1])}."
            )
        if time[-1] > self.end_ns:
            raise NodeLogError(
                f"Expected all transitions before the window's end {iso(self.end_ns)}, got {iso(time[-1])}."
            )
        if node.min() < 0 or node.max() >= len(self.nodes):
            raise NodeLogError(f"Expected node indices below {len(self.nodes)}, got {node.min()}..{node.max()}.")
        order = np.argsort(node, kind="stable")
        by_node, by_time, states = node[order], time[order], idle[order]
        same = by_node[1:] == by_node[:-1]
        first = np.concatenate(([True], ~same))
        for fault, what in (
            (
                np.concatenate(([False], same & (by_time[1:] == by_time[:-1]))),
                "one transition per node and time, got another one",
            ),
            (
                np.concatenate(([False], same & (states[1:] == states[:-1]))),
                "every transition to change the state, got the state it had",
            ),
            (first & ~states, "a node's first transition to be to idle (nodes start busy), got busy"),
        ):
            if fault.any():
                row = int(order[fault].min())
                raise NodeLogError(
                    f"transition {row}: Expected {what} (node {self.nodes[node[row]]} at {iso(time[row])})."
                )

    def _check_unchanged(self) -> None:
        time = self.unchanged_ns
        if (time[1:] <= time[:-1]).any():
            raise NodeLogError("Expected times of unchanged rows to ascend, got some that do not.")
        if time[0] < self.start_ns or time[-1] > self.end_ns:
            raise NodeLogError(
                f"Expected unchanged rows within the window {iso(self.start_ns)} to {iso(self.end_ns)}, "
                f"got {iso(time[0])} to {iso(time[-1])}."
            )

    @property
    def window_s(self) -> float:
        """Length of the observation window in seconds."""
        return (self.end_ns - self.start_ns) / NS_PER_S

    def selected(self, first: int = 0, count: int | None = None) -> NodeLog:
        """The log of `count` nodes from index `first` on, by default of all from there on; its window stays the same.

        Raises
        ------
        SettingsError
            If the selection is empty or reaches beyond the log's nodes.
        """
        total = len(self.nodes)
        stop = total if count is None else first + count
        if not 0 <= first < stop <= total:
            asked = f"{count} nodes from {first}" if count is not None else f"nodes from {first}"
            raise SettingsError(f"Expected a selection within the log's {total} nodes, got {asked}.")
        if (first, stop) == (0, total):
            return self
        keep = (self.node >= first) & (self.node < stop)
        return replace(
            self,
            nodes=self.nodes[first:stop],
            time_ns=self.time_ns[keep],
            node=(self.node[keep] - first).astype(np.int32),
            idle=self.idle[keep],
        )

    def row_times_ns(self) -> NDArray[np.int64]:
        """Times of the log's rows, ascending: the ends of its window, changes within it, and unchanged rows.

        Earlier changes belong to the window's start. As a matrix of states, the log has these rows.
        """
        ends = np.array([self.start_ns, self.end_ns], dtype=np.int64)
        return np.unique(np.concatenate((ends, np.maximum(self.time_ns, self.start_ns), self.unchanged_ns)))

    def skipped(self, rows: int) -> NodeLog:
        """The log without its first `rows` rows: it starts at the next row's time, with the nodes that they left idle.

        Parameters
        ----------
        rows : int
            Number of rows of `row_times_ns`, so that every form of file skips the same rows.

        Raises
        ------
        SettingsError
            If `rows` is negative or no row would be left.
        """
        if rows == 0:
            return self
        times = self.row_times_ns()
        if not 0 <= rows < times.size:
            raise SettingsError(f"Expected to skip fewer rows than the log's {times.size}, got {rows}.")
        return self._opened_at(int(times[rows]))

    def since(self, start_ns: int) -> NodeLog:
        """The log from an instant of its window on; it starts with the nodes that are idle then.

        Raises
        ------
        SettingsError
            If the instant is not within the window.
        """
        if not self.start_ns <= start_ns < self.end_ns:
            raise SettingsError(
                f"Expected a start within the log's window, {iso(self.start_ns)} to {iso(self.end_ns)}, "
                f"got {iso(start_ns)}."
            )
        return self if start_ns == self.start_ns else self._opened_at(start_ns)

    def ending(self, end_ns: int) -> NodeLog:
        """The log up to an instant of its window.

        Raises
        ------
        SettingsError
            If the instant is not within the window.
        """
        if not self.start_ns < end_ns <= self.end_ns:
            raise SettingsError(
                f"Expected an end within the log's window, {iso(self.start_ns)} to {iso(self.end_ns)}, "
                f"got {iso(end_ns)}."
            )
        keep = self.time_ns <= end_ns
        return replace(
            self,
            end_ns=end_ns,
            time_ns=self.time_ns[keep],
            node=self.node[keep],
            idle=self.idle[keep],
            unchanged_ns=self.unchanged_ns[self.unchanged_ns < end_ns],
        )

    def _opened_at(self, start_ns: int) -> NodeLog:
        """The log from `start_ns` on; earlier transitions become its state at the start."""
        split = int(np.searchsorted(self.time_ns, start_ns, side="right"))
        state = np.zeros(len(self.nodes), dtype=np.bool_)
        state[self.node[:split]] = self.idle[:split]  # the last assignment of a node wins: times ascend
        opening = np.flatnonzero(state).astype(np.int32)
        return replace(
            self,
            start_ns=start_ns,
            time_ns=np.concatenate((np.full(opening.size, start_ns, dtype=np.int64), self.time_ns[split:])),
            node=np.concatenate((opening, self.node[split:])),
            idle=np.concatenate((np.ones(opening.size, dtype=np.bool_), self.idle[split:])),
            unchanged_ns=self.unchanged_ns[self.unchanged_ns > start_ns],
        )

    def rows(self) -> Iterator[tuple[float, NDArray[np.int32], NDArray[np.int32]]]:
        """Rows of the log in its window, one per time at which a node changes: see `RowTable.rows`.

        Earlier changes are part of the row at 0 s.
        """
        return self.row_table().rows()

    def row_table(self) -> RowTable:
        """All rows at once, as `rows` yields them one by one."""
        log = self
        if log.time_ns.size and log.time_ns[0] < log.start_ns:
            log = log._opened_at(log.start_ns)
        time, node, idle = log.time_ns, log.node, log.idle
        changes = time[1:] != time[:-1]
        if not (changes | (node[1:] > node[:-1])).all():
            order = np.lexsort((node, time))
            time, node, idle = time[order], node[order], idle[order]
        first = np.concatenate(([0], np.flatnonzero(changes) + 1, [time.size])) if time.size else np.zeros(1, np.int64)
        begins = time[first[:-1]]
        time_s = (begins - log.start_ns) / NS_PER_S
        # Only whole numbers up to 2**53 are divided without rounding twice.
        late = int(begins.searchsorted(log.start_ns + 2**53))
        time_s[late:] = [(instant - log.start_ns) / NS_PER_S for instant in begins[late:].tolist()]
        return RowTable(time_s, first, node.astype(np.int32, copy=False), idle)
