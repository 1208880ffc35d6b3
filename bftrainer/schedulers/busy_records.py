"""Rows of busy nodes that importers collect, the records made of them, and the sweep from their spans to idle ones."""

from __future__ import annotations

import itertools
import re
import sys
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from bftrainer.errors import LogError
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.hostlist import MOST_NODES, expand_hostlist
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS, NodeSpans, Window, stretches, sum_seconds

SPANS_AT_A_TIME = 1 << 20
"""Busy spans sorted at a time: each takes some fifty bytes of memory."""
ALL_UNITS = -1
DUPLICATE = "duplicate"
IDLE = -1
"""In place of a cause for which a node is busy."""
_NAMES = ("start_ns", "end_ns", "nodes", "kind", "job", "partition", "submit_ns", "units", "is_open")
_COLUMNS = dict(zip(_NAMES, "qqibqiqib", strict=True))
"""Columns of frames of busy nodes, and their types as in the module `array`."""
OF_CLUSTER = "\0"
"""Stands between a cluster and the name of one of its nodes or partitions."""


class BusyKind(IntEnum):
    """Why a node was not idle."""

    JOB = 0
    DOWN = 1
    RESERVED = 2
    UNKNOWN = 3
    """It may have run a job: a list of nodes is unreliable, or nobody looked."""
    AWAY = 4
    """It was not part of the machine: in traces of spot instances and counts of live nodes."""
    MAINTENANCE = 5
    DRAIN = 6
    POWERED_DOWN = 7
    PLANNED = 8
    """The scheduler kept it free for a job to come."""


_USUAL = {"kind": BusyKind.JOB, "job": 0, "partition": -1, "submit_ns": OPEN_START_NS, "units": ALL_UNITS, "is_open": 0}
OUT_OF_SERVICE = (BusyKind.DOWN, BusyKind.MAINTENANCE, BusyKind.DRAIN, BusyKind.POWERED_DOWN)
_SPARE = (BusyKind.RESERVED, BusyKind.PLANNED, *OUT_OF_SERVICE)
OFFERABLE = {kind.name.lower().replace("_", "-"): kind for kind in _SPARE}
"""Causes, by name, in spite of which nodes may be offered."""


_RANGED = re.compile(r"([^\s,:;|+'\"\[\]]+)\[([0-9,-]+)\]", re.ASCII)
"""Nodes that all formats write so."""
_PIECES = 1 << 16
"""Ranges of nodes, and lists of other forms, whose names are remembered."""


Expand = Callable[[str], Iterable[str]]
"""Names of the nodes of a list that is written in some way."""


class _Index(dict[str, int]):
    """Names with their numbers in order of appearance; a name that is asked for gets one."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number


def as_texts(values: Sequence[str]) -> pd.Series[str]:
    """The values as a column of texts, which pandas handles without a loop; what is missing is empty."""
    try:
        return pd.Series(values, dtype=pd.ArrowDtype(pa.string())).fillna("")
    except (TypeError, ValueError):  # they are no texts, or have halves of characters, as JSON may
        return as_texts([str(value).encode(errors="replace").decode() for value in values])


def number_texts(texts: pd.Series[str], number: Callable[[str], int]) -> NDArray[np.int64]:
    """A number for each text, which is computed once for each distinct one."""
    codes, distinct = pd.factorize(texts)
    return np.asarray(np.array([number(text) for text in np.asarray(distinct, dtype=object)], dtype=np.int64)[codes])


@lru_cache(_PIECES)
def _expand_piece(text: str, expand: Expand, lead: str) -> Sequence[str]:
    return tuple(sys.intern(lead + name) for name in expand(text))  # lists share their names


def _expand_list(text: str, expand: Expand, lead: str) -> Iterable[str]:
    """Names of the nodes of a list, each with `lead`: all, or a `LogError`."""
    if (ranged := _RANGED.fullmatch(text)) is None:
        return _expand_piece(text, expand, lead)
    names: list[str] = []
    try:
        for ranges in ranged[2].split(","):  # which recur more often than lists
            names += _expand_piece(f"{ranged[1]}[{ranges}]", expand_hostlist, lead)
            if len(names) > MOST_NODES:
                break
        else:
            return names
    except LogError:
        pass  # `expand` tells of the list, and not of one range; `suppress` would take a tenth of the time
    return [lead + name for name in expand(text)]


def column(values: array[int] | array[float]) -> NDArray[Any]:
    """The numbers as a numpy array that shares their memory."""
    return np.frombuffer(values, dtype=np.dtype(values.typecode)) if values else np.empty(0, dtype=values.typecode)


class BusyRows:
    """Rows that importers write down, and the lists of nodes and the partitions that these name by numbers.

    Names of nodes, numbered in order of appearance, and of partitions begin with the name of a cluster, if it has one.
    """

    def __init__(self) -> None:
        self.names, self._partitions = _Index(), _Index()
        self._nodes, self._ends = array("i"), array("q", [0])
        self._columns: dict[str, array[int]] = {name: array(code) for name, code in _COLUMNS.items()}

    def __len__(self) -> int:
        return len(self._columns["start_ns"])

    def add_list(self, names: Iterable[str]) -> int:
        """Add a list of nodes, whose repeated names count once; returns its number."""
        self._nodes.extend(dict.fromkeys(map(self.names.__getitem__, names)))
        self._ends.append(len(self._nodes))
        return len(self._ends) - 2

    def number_lists(
        self, texts: pd.Series[str], expand: Expand = expand_hostlist, lead: str = ""
    ) -> tuple[NDArray[np.int64], dict[str, str]]:
        """Numbers of the lists that texts are, hostlists unless another function expands them; `lead` precedes names.

        They are -1 for lists that are refused, and the reasons are told by text.
        """
        codes, distinct = pd.factorize(texts)
        numbers, faults = np.full(len(distinct), -1), dict[str, str]()
        for at, text in enumerate(np.asarray(distinct, dtype=object)):
            try:
                numbers[at] = self.add_list(_expand_list(text, expand, lead))
            except LogError as fault:
                faults[text] = str(fault)
        return numbers[codes], faults

    def list_sizes(self) -> NDArray[np.int64]:
        """Number of nodes of each list."""
        return np.asarray(np.diff(column(self._ends)))

    def partition(self, name: str, lead: str = "") -> int:
        """Number of a partition or queue; -1 for an empty name."""
        return self._partitions[lead + name] if name else -1

    def add(self, start_ns: int, end_ns: int, nodes: int, **more: int) -> None:
        """Write down that a list of nodes was busy, if it lasts; `more` are other columns."""
        if start_ns < end_ns:
            row = _USUAL | {"start_ns": start_ns, "end_ns": end_ns, "nodes": nodes} | more
            for name, values in self._columns.items():
                values.append(row[name])

    def extend(self, frame: pd.DataFrame) -> None:
        """Write down a frame of rows that name lists and partitions by their numbers."""
        usual = _USUAL | {"job": np.arange(len(frame)), "is_open": frame["end_ns"] >= OPEN_END_NS}
        frame = frame.assign(**{name: value for name, value in usual.items() if name not in frame})
        for name, values in self._columns.items():
            values.frombytes(frame[name].to_numpy().astype(values.typecode, copy=False).tobytes())

    def follow(self, changes: Iterable[tuple[str, int, int]]) -> None:
        """Write down states of nodes: a name, a time from which on, in order, and why it is busy then, or `IDLE`."""
        states = pd.DataFrame(changes, columns=["nodes", "start_ns", "kind"])
        states = states[states["kind"] != states.groupby("nodes")["kind"].shift(fill_value=IDLE)]
        ends_ns = states.groupby("nodes")["start_ns"].shift(-1, fill_value=OPEN_END_NS)
        rows = states.assign(end_ns=ends_ns)[states["kind"] != IDLE].sort_values(
            keys := ["start_ns", "end_ns", "kind"], kind="stable"
        )
        cells = zip(*(rows[name].tolist() for name in (*keys, "nodes")), strict=True)
        for (start_ns, end_ns, kind), some in itertools.groupby(cells, key=lambda row: row[:3]):
            self.add(start_ns, end_ns, self.add_list(name for *_, name in some), kind=kind)

    def records(self, *, by_cluster: bool = False, seen: int = 0) -> BusyRecords:
        """The records that all rows are, with names that begin with those of clusters, or without these.

        `seen` is how many of the names came first. No row can be added while the records are in use.
        """
        rows = pd.DataFrame({name: column(values) for name, values in self._columns.items()}, copy=False)
        former, new = (OF_CLUSTER, "/") if by_cluster else (f".*{OF_CLUSTER}", "")
        (places, names), (numbers, partitions) = (
            pd.factorize(pd.Series([*index], dtype=object).str.replace(former, new, regex=True))
            for index in (self.names, self._partitions)
        )
        nodes = column(self._nodes)
        if len(names) < len(self.names):
            nodes = places.astype(nodes.dtype)[nodes]
        rows["partition"] = np.append(numbers, -1).astype(rows["partition"].dtype)[rows["partition"]]
        first = int(places[:seen].max(initial=-1)) + 1
        return BusyRecords(tuple(names), nodes, np.array(self._ends), tuple(partitions), rows, first)


@dataclass(frozen=True, slots=True, eq=False)
class BusyRecords:
    """Records of busy nodes, a frame; `records["start_ns"]` is one of its columns.

    `start_ns`, `end_ns` and `submit_ns` are `OPEN_START_NS` or `OPEN_END_NS` where the log does not give the time;
    `nodes` is the number of a list, whose nodes stand in `set_nodes` up to its place in `set_ends`, and from that of
    the list before, at first 0; `job` is equal for two records only if they are of the same job; `units` are GPUs or
    cores of all its nodes, or `ALL_UNITS`; `is_open` is 1 for a job without a recorded end. Names from the number
    `seen` on are those of downtimes alone.
    """

    names: tuple[str, ...]
    set_nodes: NDArray[np.int32]
    set_ends: NDArray[np.int64]
    partitions: tuple[str, ...]
    rows: pd.DataFrame
    seen: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return np.asarray(self.rows[name])

    def where(self, keep: NDArray[np.bool_]) -> BusyRecords:
        """The records that `keep` marks."""
        return self if keep.all() else replace(self, rows=self.rows[keep])

    def runs(self) -> NDArray[np.int64]:
        """A key of each record's job and nodes, however these are written."""
        sums, sizes = self.reduce_lists(np.add, self.set_nodes.astype(np.int64), 0), np.diff(self.set_ends)
        return np.asarray(self["job"] ^ ((sums * 0x369DEA0F31A53F85) ^ sizes)[self["nodes"]])

    def reduce_lists(self, reduce: np.ufunc, values: NDArray[Any], empty: int) -> NDArray[Any]:
        """A value of each list, from those of its nodes in `set_nodes`; `empty` for a list without nodes."""
        sizes = np.diff(self.set_ends)
        reduced = np.full(sizes.size, empty, dtype=values.dtype)
        if sizes.any():
            reduced[sizes > 0] = reduce.reduceat(values, self.set_ends[:-1][sizes > 0])
        return reduced

    def extreme_of_nodes(self, pick: np.ufunc, name: str, initial: int) -> NDArray[np.int64]:
        """Least or largest value of a column among the records that name each node."""
        of_list, of_node = np.full(self.set_ends.size - 1, initial), np.full(len(self.names), initial)
        pick.at(of_list, self["nodes"], self[name])
        pick.at(of_node, self.set_nodes, np.repeat(of_list, np.diff(self.set_ends)))
        return of_node

    def members(self, lists: NDArray[np.int64]) -> NDArray[np.int32]:
        """Nodes of some lists, one list after another."""
        return self.set_nodes[stretches(self.set_ends[lists], np.diff(self.set_ends)[lists])]

    def sizes(self) -> NDArray[np.int64]:
        """Number of nodes of each record."""
        return np.asarray(np.diff(self.set_ends)[self["nodes"]])

    def rare_nodes(self) -> Sequence[str]:
        """Nodes in less than 0.1 % of the records, and in a hundredth of those that the median node is in."""
        sets = np.bincount(self["nodes"], minlength=self.set_ends.size - 1)
        counts = np.bincount(self.set_nodes, np.repeat(sets, np.diff(self.set_ends)), len(self.names))
        usual = np.median(counts[counts > 0]) if counts.any() else 0.0
        rare = np.flatnonzero((counts > 0) & (counts < 0.001 * len(self)) & (counts < 0.01 * usual))
        return tuple(self.names[node] for node in rare.tolist())

    def partition_nodes(self, most: int) -> dict[str, tuple[str, ...]]:
        """Nodes that ran jobs of each partition; empty without partitions, or with more than `most` of them."""
        nodes: dict[str, tuple[str, ...]] = {}
        for number, name in enumerate(self.partitions if len(self.partitions) <= most else ()):
            ran = np.flatnonzero(np.bincount(self["nodes"][self["partition"] == number]))
            if ran.size:
                theirs = np.flatnonzero(np.bincount(self.members(ran)))
                nodes[name] = tuple(self.names[node] for node in theirs.tolist())
        return nodes

    def job_node_s(self, window: Window, place: NDArray[np.int32]) -> float:
        """Node-seconds of jobs in a window, on nodes to which `place` gives an index of 0 or more."""
        jobs = self.where(self["kind"] == BusyKind.JOB)
        placed = np.append(0, np.cumsum(place[self.set_nodes] >= 0, dtype=np.int32))[self.set_ends]
        lengths = np.minimum(jobs["end_ns"], window.end_ns) - np.maximum(jobs["start_ns"], window.start_ns)
        return sum_seconds(np.maximum(lengths, 0) * np.diff(placed)[jobs["nodes"]].astype(np.longdouble))

    def unions(self, place: NDArray[np.int32]) -> Iterator[dict[BusyKind, NodeSpans]]:
        """Union of the busy spans of each kind, in blocks of nodes that fit in memory."""
        node, sizes, kind = place[self.set_nodes], self.sizes(), self["kind"]
        begins, start_ns, end_ns = self.set_ends[self["nodes"]], self["start_ns"], self["end_ns"]
        nodes, kinds = int(place.max(initial=-1)) + 1, np.unique(kind).tolist()
        blocks = max(1, -(-int(sizes.sum()) // SPANS_AT_A_TIME))
        # An empty list is in no block.
        first, last = self.reduce_lists(np.minimum, node, 0), self.reduce_lists(np.maximum, node, -1)
        first, last = first[self["nodes"]], last[self["nodes"]]
        for low, high in itertools.pairwise(np.linspace(0, nodes, blocks + 1).astype(int).tolist()):
            near = np.flatnonzero((first < high) & (last >= low))
            members, row = node[stretches(begins[near], sizes[near])], np.repeat(near, sizes[near])
            inside = (members >= low) & (members < high)
            members, row = members[inside], row[inside]
            block = {}
            for cause in kinds:
                some = slice(None) if len(kinds) == 1 else kind[row] == cause
                spans = NodeSpans(members[some], start_ns[row[some]], end_ns[row[some]])
                block[BusyKind(cause)] = spans.union()
            yield block


def extent_ns(rows: pd.DataFrame) -> tuple[int, int] | None:
    """First and last time that any row gives; None if no row gives one."""
    both = (rows[name][rows[name].abs() < OPEN_END_NS - 1] for name in ("start_ns", "end_ns"))
    named = [times for times in both if len(times)]
    return (min(int(times.min()) for times in named), max(int(times.max()) for times in named)) if named else None


def find_retold(
    rows: pd.DataFrame, run: NDArray[np.int64], is_job: NDArray[np.bool_], drop: Callable[[str, int], None]
) -> NDArray[np.bool_]:
    """Which rows repeat one of the same run and times, as where exports overlap, or are stale; jobs are counted.

    Stale ones have no end, and are of a run that another row ends, or else tells of for longer.
    """
    start, end, is_open = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy(), rows["is_open"].to_numpy() > 0
    # Odd factors spread the times over all bits; keys of runs are hashes already.
    run = run ^ (start * 0x2545F4914F6CDD1D)
    is_repeated = pd.Series(run ^ (end * 0x369DEA0F31A53F85)).duplicated().to_numpy()
    some = np.flatnonzero(~is_repeated & np.isin(run, run[is_open]))
    some = some[np.lexsort((end[some], ~is_open[some], run[some]))]
    is_stale = np.zeros(len(rows), dtype=np.bool_)
    is_stale[some] = pd.Series(run[some]).duplicated(keep="last")
    is_stale &= is_open
    drop(DUPLICATE, int((is_repeated & is_job).sum()))
    drop("told again when it had ended", int((is_stale & is_job).sum()))
    return np.asarray(is_repeated | is_stale)


_MOST_SHARED = 0.01
"""Share of a node's busy time that finished jobs may share, for it to be one that runs one job at a time."""
_SURE = 20
"""Finished jobs of a node that tell this of it, whatever the others do; fewer of all nodes together tell nothing."""


def find_runaway_ends(records: BusyRecords, is_job: NDArray[np.bool_]) -> NDArray[np.int64]:
    """When runs without an end ended, as another job started on a node of theirs that runs one job at a time.

    It is `OPEN_END_NS` for others. `is_job` marks records that are jobs, each once.
    """
    ends, nodes = np.full(len(records), OPEN_END_NS), len(records.names)
    open_runs = np.flatnonzero(is_job & (records["is_open"] > 0))
    if not open_runs.size:
        return ends
    # Suspects are those of whose nodes one ran a job that started later.
    latest = records.where(is_job).extreme_of_nodes(np.maximum, "start_ns", OPEN_START_NS)
    of_list = records.reduce_lists(np.maximum, latest[records.set_nodes], OPEN_START_NS)
    suspects = open_runs[of_list[records["nodes"][open_runs]] > records["start_ns"][open_runs]]
    # Each of their nodes with each job that ran on it.
    is_theirs = np.zeros(nodes, dtype=np.bool_)
    is_theirs[records.members(np.unique(records["nodes"][suspects]))] = True
    has_theirs = records.reduce_lists(np.maximum, is_theirs[records.set_nodes], empty=False)
    jobs = np.flatnonzero(is_job & has_theirs[records["nodes"]])
    node, row = records.members(records["nodes"][jobs]), np.repeat(jobs, records.sizes()[jobs])
    node, row = node[is_theirs[node]], row[is_theirs[node]]
    order = np.lexsort((records["start_ns"][row], node))
    node, row = node[order], row[order]
    start = records["start_ns"][row]
    # One job at a time runs on nodes whose jobs that ended were next to never two together. What few jobs did on a node
    # says little of it where others are shared.
    over = records["is_open"][row] == 0
    spans = NodeSpans(node[over], start[over], records["end_ns"][row[over]])
    total, union = spans.seconds_by_node(nodes), spans.union().seconds_by_node(nodes)
    is_sure = np.bincount(node[over], minlength=nodes) >= _SURE
    are_alike = len(spans) >= _SURE and bool((total - union).sum() <= _MOST_SHARED * total.sum())
    is_whole = (total > 0) & (total - union <= _MOST_SHARED * total) & (is_sure | are_alike)
    # The next start on a node, if any, is behind those that are equal.
    firsts = np.flatnonzero(np.append(True, (np.diff(node) != 0) | (np.diff(start) != 0)))
    after = np.repeat(np.append(firsts[1:], 0), np.diff(np.append(firsts, node.size)))
    is_over = np.isin(row, suspects) & is_whole[node] & (node[after] == node) & (start[after] > start)
    np.minimum.at(ends, row[is_over], start[after[is_over]])
    return ends


_TIMES = ("end_ns", "start_ns")
_MOST_SPANS = 1 << 24
"""Nodes of all jobs together up to which each node is a node of the log: a hundred bytes of memory each."""
_MOST_ROUNDED, _MOST_SURPLUS = 0.01, 0.001
"""Shares of jobs and of node time to which placement in blocks may add nodes that were not asked for."""


def _order_events(demand: pd.DataFrame) -> pd.DataFrame:
    """Starts and ends of jobs by `time_ns`, with the `job` and its `count`; ends come before starts of one time."""
    jobs = pd.DataFrame({"job": np.arange(len(demand)), "count": demand["count"].to_numpy()})
    events = [jobs.assign(time_ns=demand[name].to_numpy(), is_start=name == "start_ns") for name in _TIMES]
    return pd.concat(events).sort_values(["time_ns", "is_start"], kind="stable")


def over_capacity_share(demand: pd.DataFrame, capacity: int, window: Window) -> float:
    """Share of the window in which jobs, with a `count` of nodes each, hold more than `capacity` in total."""
    events = _order_events(demand)
    level = np.cumsum(np.where(events["is_start"], events["count"], -events["count"]))
    inside = np.clip(np.append(events["time_ns"], window.end_ns), window.start_ns, window.end_ns)
    return float(np.diff(inside)[level > capacity].sum() / window.length_ns)


def choose_block(demand: pd.DataFrame, nodes: int, window: Window) -> int:
    """Nodes that are one of the node log where jobs hold very many in all, so that memory follows jobs; else 1.

    It is the largest divisor of the machine's nodes that divides nearly all requests.
    """
    sizes = demand["count"].to_numpy()
    within = demand["end_ns"].clip(upper=window.end_ns) - demand["start_ns"].clip(lower=window.start_ns)
    lengths, block = within.clip(lower=0).to_numpy() / NS_PER_S, 1
    for size in range(2, nodes + 1 if sizes.sum() > _MOST_SPANS else 1):
        surplus = -sizes % size
        is_small = (surplus > 0).mean() <= _MOST_ROUNDED and surplus @ lengths <= _MOST_SURPLUS * sizes @ lengths
        block = size if nodes % size == 0 and is_small else block
    return block


def place_jobs(demand: pd.DataFrame, capacity: int | NDArray[np.int64]) -> NodeSpans:
    """Put each job on the lowest-numbered nodes that are free: of a number of nodes, or of nodes of these sizes."""
    node, start, end = array("i"), array("q"), array("q")
    sizes = np.ones(capacity, dtype=np.int64) if isinstance(capacity, int) else capacity
    free, since = np.ones(sizes.size, dtype=np.bool_), np.zeros(sizes.size, dtype=np.int64)
    nodes_of: dict[int, NDArray[np.int64]] = {}
    short: dict[int, int] = {}  # nodes that each job still lacks, in order of start
    events = _order_events(demand)
    time, starts = events["time_ns"].tolist(), events["is_start"].tolist()
    for at, (now, is_start, job, size) in enumerate(
        zip(time, starts, events["job"].tolist(), events["count"].tolist(), strict=True)
    ):
        if is_start:
            nodes_of[job], short[job] = np.empty(0, dtype=np.int64), size
        else:
            mine = nodes_of.pop(job)
            short.pop(job, None)
            lasted = mine[since[mine] < now]
            node.frombytes(lasted.astype(np.int32).tobytes())
            start.frombytes(since[lasted].tobytes())
            end.frombytes(np.full(lasted.size, now).tobytes())
            free[mine] = True
            if at + 1 < len(time) and time[at + 1] == now and not starts[at + 1]:
                continue  # all that ends now is free before another job gets it
        for waiting, lacking in tuple(short.items()):
            got = np.flatnonzero(free)
            got = got[: np.searchsorted(np.cumsum(sizes[got]), lacking) + 1]
            free[got] = False
            since[got] = now
            nodes_of[waiting] = np.concatenate((nodes_of[waiting], got))
            short[waiting] = lacking - int(sizes[got].sum())
            if short[waiting] <= 0:
                del short[waiting]
    return NodeSpans(column(node), column(start), column(end))


@dataclass(frozen=True, slots=True, eq=False)
class Swept:
    """Result of a line sweep: idle spans, node-seconds of each cause, and seconds in which each node was away."""

    idle: NodeSpans
    busy_node_s: Mapping[str, float]
    away_s: NDArray[np.float64]

    def idle_share(self, window: Window) -> float:
        """Share of the nodes' time in a window that was idle, without the time in which they were not there."""
        there_s = self.away_s.size * window.length_ns / NS_PER_S - float(self.away_s.sum())
        return self.idle.node_s / there_s if there_s else 0.0


def line_sweep(
    blocks: Iterable[Mapping[BusyKind, NodeSpans]],
    nodes: int,
    window: Window,
    min_gap_ns: int = 0,
    min_hole_ns: int = 0,
    offer_after_ns: int = 0,
    lives: NodeSpans | None = None,
) -> Swept:
    """Find idle spans: sweep over busy spans, block by block."""
    busy_node_s: defaultdict[str, float] = defaultdict(float)
    gaps, low = [], 0
    for block in blocks:
        for kind, spans in block.items():
            busy_node_s[kind.name.lower()] += spans.node_s_within(window)
        by_kind = list(block.values())
        union = (
            by_kind[0].close_gaps(min_gap_ns) if len(by_kind) == 1 else NodeSpans.concatenate(by_kind).union(min_gap_ns)
        )
        union = union.within(window.start_ns, window.end_ns)
        high = int(union.node.max(initial=low - 1)) + 1
        gaps.append(union.gaps(high, window, low))
        low = high
    free = NodeSpans.concatenate([*gaps, NodeSpans.none().gaps(nodes, window, low)])
    del gaps
    there, away_s = free, np.zeros(nodes)
    if lives is not None and len(away := lives.gaps(nodes, window)):
        is_away = np.isin(free.node, away.node)
        there = NodeSpans.concatenate([free.where(~is_away), free.where(is_away).subtract(away, nodes, window)])
        away_s = free.seconds_by_node(nodes) - there.seconds_by_node(nodes)
    if away_s.any():
        busy_node_s[BusyKind.AWAY.name.lower()] += float(away_s.sum())
    idle = there.lasting(min_hole_ns).delay(offer_after_ns)
    return Swept(idle, dict(busy_node_s), away_s)


def place_on_units(
    records: BusyRecords, place: NDArray[np.int32], sizes: Sequence[int]
) -> tuple[dict[BusyKind, NodeSpans], int]:
    """Put each job on the lowest-numbered free units of its nodes; what else keeps a node busy takes all of it.

    `place` numbers the records' nodes, -1 for one that is left out; nodes have as many units as `sizes` say. Returns
    merged spans on units by kind, and how often a job asked more of a node than it had free: the rest is left out.
    """
    base, counts, units = np.append(0, np.cumsum(sizes)), np.maximum(records.sizes(), 1), records["units"]
    of, node = np.repeat(np.arange(len(records)), records.sizes()), place[records.members(records["nodes"])]
    # Units that cannot be shared evenly are on the first nodes: which ones had them the log does not tell.
    is_first = stretches(np.zeros_like(counts), records.sizes()) < (units % counts)[of]
    share = np.where(units == ALL_UNITS, ALL_UNITS, units // counts)[of] + (is_first & (units[of] != ALL_UNITS))
    order = np.flatnonzero(node >= 0)
    order = order[np.argsort(records["start_ns"][of[order]], kind="stable")]
    free_at = np.full(int(base[-1]), np.iinfo(np.int64).min)
    spans: dict[BusyKind, list[tuple[int, int, int]]] = defaultdict(list)
    crowded = 0
    kinds, starts, ends = (records[name].tolist() for name in ("kind", "start_ns", "end_ns"))
    for row, at, count in zip(*(some[order].tolist() for some in (of, node, share)), strict=True):
        kind, start, end = BusyKind(kinds[row]), starts[row], ends[row]
        mine = np.arange(base[at], base[at + 1])
        if count != ALL_UNITS:
            mine = mine[free_at[mine] <= start][:count]
            crowded += mine.size < count
        if kind in (BusyKind.JOB, BusyKind.UNKNOWN):
            free_at[mine] = np.maximum(free_at[mine], end)
        spans[kind] += [(one, start, end) for one in mine.tolist()]
    columns = ((kind, np.array(some, dtype=np.int64).reshape(-1, 3).T) for kind, some in spans.items())
    return {kind: NodeSpans(unit.astype(np.int32), *times).union() for kind, (unit, *times) in columns}, crowded
