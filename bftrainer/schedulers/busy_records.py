"""Rows of busy nodes that importers collect, the records made of them, and the union of their spans."""

from __future__ import annotations

import itertools
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bftrainer.errors import LogError
from bftrainer.nodelogs.hostlist import MOST_NODES, expand_hostlist
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS, NodeSpans, Window, stretches, sum_seconds

SPANS_AT_A_TIME = 1 << 20
"""Busy spans sorted at a time: each takes some fifty bytes of memory."""
ALL_UNITS = -1
_NAMES = ("start_ns", "end_ns", "nodes", "kind", "job", "partition", "submit_ns", "units", "is_open", "cluster")
COLUMNS = dict(zip(_NAMES, "qqibqiqibi", strict=True))
"""Columns of frames of busy nodes, and their types as in the module `array`."""


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


OUT_OF_SERVICE = (BusyKind.DOWN, BusyKind.MAINTENANCE, BusyKind.DRAIN, BusyKind.POWERED_DOWN)
_SPARE = (BusyKind.RESERVED, BusyKind.PLANNED, *OUT_OF_SERVICE)
OFFERABLE = {kind.name.lower().replace("_", "-"): kind for kind in _SPARE}
"""Causes, by name, in spite of which nodes may be offered."""


_RANGES = re.compile(r"([^\s,\[\]]*)\[([\d,-]+)\]", re.ASCII)
_TEXTS = 1 << 18
"""Texts of lists, and ranges of nodes, whose numbers are remembered."""


class _Index(dict[str, int]):
    """Names with their numbers in order of appearance; a name that is asked for gets one."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number


class _Ranges(dict[str, bytes]):
    """Numbers of the nodes of ranges such as `01-04` behind a name, as they recur more often than lists do."""

    def __init__(self, head: str, names: _Index) -> None:
        super().__init__()
        self._head, self._names = head, names

    def __missing__(self, text: str) -> bytes:
        if len(self) >= _TEXTS:
            self.clear()
        nodes = array("i", map(self._names.__getitem__, expand_hostlist(f"{self._head}[{text}]")))
        self[text] = data = nodes.tobytes()
        return data


class NodeLists:
    """Distinct lists of nodes, and the `names` of these, which number them in order of appearance."""

    def __init__(self) -> None:
        self.names = _Index()
        self._nodes, self._ends = array("i"), array("q", [0])
        self._ranges: dict[str, _Ranges] = {}
        self.parse = lru_cache(_TEXTS)(self._parse)

    def add(self, names: Iterable[str]) -> int:
        """Add a list, whose repeated names count once; returns its number."""
        return self._add_nodes(dict.fromkeys(map(self.names.__getitem__, names)))

    def _parse(self, text: str, expand: Callable[[str], Iterable[str]] = expand_hostlist) -> int:
        """Number of the list that a text is; a hostlist unless another function expands it."""
        match = _RANGES.fullmatch(text) if expand is expand_hostlist else None
        if match is None:
            return self.add(expand(text))
        head = match[1]
        if head not in self._ranges:
            self._ranges[head] = _Ranges(head, self.names)
        data = b"".join(map(self._ranges[head].__getitem__, match[2].split(",")))
        nodes = memoryview(data).cast("i")
        if len(nodes) > MOST_NODES:
            raise LogError(f"Expected at most {MOST_NODES:,} nodes in a list, got more.")
        if len(set(nodes)) < len(nodes):
            return self._add_nodes(dict.fromkeys(nodes))
        self._nodes.frombytes(data)
        self._ends.append(len(self._nodes))
        return len(self._ends) - 2

    def find(self, text: str, faults: dict[str, str], expand: Callable[[str], Iterable[str]] = expand_hostlist) -> int:
        """Number of the list that a text is, as `parse` reads it; -1 if it is none, for which its fault is set."""
        try:
            return self.parse(text, expand)
        except LogError as fault:
            faults[text] = str(fault)
            return -1

    def first_of(self, number: int, count: int) -> int:
        """Add the first nodes of a list as one of their own; returns its number."""
        return self._add_nodes(self._nodes[self._ends[number] :][:count])

    def _add_nodes(self, nodes: Iterable[int]) -> int:
        self._nodes.extend(nodes)
        self._ends.append(len(self._nodes))
        return len(self._ends) - 2

    def size(self, number: int) -> int:
        """Number of nodes in a list."""
        return self._ends[number + 1] - self._ends[number]

    def ends(self) -> NDArray[np.int64]:
        """Place in `nodes` at which each list ends, after a leading 0."""
        return np.array(self._ends, dtype=np.int64)

    def nodes(self) -> NDArray[np.int32]:
        """Numbers of the nodes of all lists, one list after another."""
        return column(self._nodes)


def number_texts(texts: pd.Series[str], number: Callable[[str], int]) -> NDArray[np.int64]:
    """A number for each text, which is computed once for each distinct one."""
    codes, distinct = pd.factorize(texts)
    return np.asarray(np.array([number(text) for text in distinct], dtype=np.int64)[codes])


def column(values: array[int] | array[float]) -> NDArray[Any]:
    """The numbers as a numpy array that shares their memory."""
    return np.frombuffer(values, dtype=np.dtype(values.typecode)) if values else np.empty(0, dtype=values.typecode)


class BusyRows:
    """Rows that importers write down, and the lists of nodes, partitions and clusters that these name by numbers."""

    def __init__(self) -> None:
        self.lists = NodeLists()
        self.partitions: dict[str, int] = {}
        self.clusters: dict[str, int] = {"": 0}
        self._columns: dict[str, array[int]] = {name: array(code) for name, code in COLUMNS.items()}

    def __len__(self) -> int:
        return len(self._columns["start_ns"])

    def partition(self, name: str) -> int:
        """Number of a partition or queue; -1 for an empty name."""
        return self.partitions.setdefault(name, len(self.partitions)) if name else -1

    def cluster(self, name: str) -> int:
        """Number of a cluster."""
        return self.clusters.setdefault(name, len(self.clusters))

    def add(
        self,
        start_ns: int,
        end_ns: int,
        nodes: int,
        job: int,
        kind: BusyKind = BusyKind.JOB,
        partition: str = "",
        submit_ns: int | None = None,
        *,
        units: int = ALL_UNITS,
        is_open: bool = False,
        cluster: str = "",
    ) -> None:
        """Write down that a list of nodes was busy, each with so many of its units."""
        submitted_ns = OPEN_START_NS if submit_ns is None else submit_ns
        where = self.partition(partition), submitted_ns, units, is_open, self.cluster(cluster)
        for values, value in zip(self._columns.values(), (start_ns, end_ns, nodes, kind, job, *where), strict=True):
            values.append(value)

    def add_node(self, name: str, start_ns: int, end_ns: int, kind: BusyKind) -> None:
        """Write down that one node was busy; spans without length are ignored."""
        if start_ns < end_ns:
            self.add(start_ns, end_ns, self.lists.add((name,)), hash((name, kind)), kind)

    def extend(self, frame: pd.DataFrame) -> dict[int, str]:
        """Write down a frame of busy nodes; rows whose hostlist is malformed are left out."""
        faults: dict[int, str] = {}
        if frame.empty:
            return faults
        defaults: dict[str, Any] = {
            "kind": BusyKind.JOB,
            "submit_ns": OPEN_START_NS,
            "units": ALL_UNITS,
            "partition": -1,
        }
        defaults |= {"cluster": 0, "job": np.arange(len(frame)), "is_open": frame["end_ns"] >= OPEN_END_NS}
        frame = frame.assign(**{name: value for name, value in defaults.items() if name not in frame})
        for name, number in (("partition", self.partition), ("cluster", self.cluster), ("job", hash)):
            if not pd.api.types.is_integer_dtype(frame[name].dtype):
                frame[name] = number_texts(frame[name].fillna("").astype(str), number)
        if not pd.api.types.is_integer_dtype(frame["nodes"].dtype):
            texts, unreadable = frame["nodes"].astype(str), dict[str, str]()
            frame["nodes"] = number_texts(texts, lambda text: self.lists.find(text, unreadable))
            is_list = (frame["nodes"] >= 0).to_numpy()
            faults = {row: unreadable[texts.iloc[row]] for row in np.flatnonzero(~is_list).tolist()}
            frame = frame[is_list]
        for name, values in self._columns.items():
            values.frombytes(frame[name].to_numpy().astype(values.typecode, copy=False).tobytes())
        return faults

    def frame(self) -> pd.DataFrame:
        """All rows so far, which share their memory: none can be added while the frame is in use."""
        return pd.DataFrame({name: column(values) for name, values in self._columns.items()}, copy=False)

    def records(self) -> BusyRecords:
        """The records that all rows are."""
        lists = self.lists
        return BusyRecords(tuple(lists.names), lists.nodes(), lists.ends(), tuple(self.partitions), self.frame())


@dataclass(frozen=True, slots=True, eq=False)
class BusyRecords:
    """Records of busy nodes, whose frame has the columns `COLUMNS`; `records["start_ns"]` is one of these.

    `start_ns`, `end_ns` and `submit_ns` are `OPEN_START_NS` or `OPEN_END_NS` where the log does not give the time;
    `nodes` is the number of a list, whose nodes stand in `set_nodes` up to its place in `set_ends`, and from that of
    the list before, at first 0; `job` is equal for two records only if they are of the same job; `units` are GPUs or
    cores of each node, or `ALL_UNITS`; `is_open` is 1 for a job of which no end is recorded.
    """

    names: tuple[str, ...]
    set_nodes: NDArray[np.int32]
    set_ends: NDArray[np.int64]
    partitions: tuple[str, ...]
    rows: pd.DataFrame

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return np.asarray(self.rows[name])

    def name_by_cluster(self, clusters: Sequence[str]) -> BusyRecords:
        """Records whose nodes, partitions and jobs are those of their cluster: names begin with its name, if any."""
        leads, lists, nodes = [f"{name}/" * (name != "") for name in clusters], self.set_ends.size - 1, len(self.names)
        cluster, partition = self["cluster"].astype(np.int64), self["partition"]
        pairs, number = np.unique(cluster * lists + self["nodes"], return_inverse=True)
        sizes = np.diff(self.set_ends)[pairs % lists]
        codes, members = np.unique(
            np.repeat(pairs // lists, sizes) * nodes + self.members(pairs % lists), return_inverse=True
        )
        rows = self.rows.assign(
            nodes=number,
            job=self["job"] + cluster * 0x2545F4914F6CDD1D % (1 << 62),
            partition=np.where(partition < 0, -1, cluster * len(self.partitions) + partition),
        )
        return BusyRecords(
            tuple(leads[code // nodes] + self.names[code % nodes] for code in codes.tolist()),
            members.astype(np.int32),
            np.append(0, np.cumsum(sizes)),
            tuple(lead + name for lead in leads for name in self.partitions),
            rows,
        )

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

    def is_named(self) -> NDArray[np.bool_]:
        """Which nodes any record names."""
        return np.bincount(self.members(np.unique(self["nodes"])), minlength=len(self.names)) > 0

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
            ran = np.unique(self["nodes"][self["partition"] == number])
            if ran.size:
                nodes[name] = tuple(self.names[node] for node in np.unique(self.members(ran)).tolist())
        return nodes

    def job_node_s(self, window: Window, place: NDArray[np.int32]) -> float:
        """Node-seconds of jobs in a window, on nodes to which `place` gives an index of 0 or more."""
        jobs = self.where(self["kind"] == BusyKind.JOB)
        placed = np.append(0, np.cumsum(place[self.set_nodes] >= 0, dtype=np.int32))[self.set_ends]
        lengths = np.minimum(jobs["end_ns"], window.end_ns) - np.maximum(jobs["start_ns"], window.start_ns)
        return sum_seconds(np.maximum(lengths, 0) * np.diff(placed)[jobs["nodes"]].astype(np.longdouble))

    def union(self, place: NDArray[np.int32]) -> NodeSpans:
        """Busy spans of all kinds, as `unions` gives them."""
        return NodeSpans.concatenate([spans for block in self.unions(place) for spans in block.values()])

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


def find_repeated(rows: pd.DataFrame, run: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows are of the same run and times as an earlier one, as where exports overlap."""
    # Odd factors spread the times over all bits; keys of runs are hashes already.
    mixed = run ^ (rows["start_ns"].to_numpy() * 0x2545F4914F6CDD1D) ^ (rows["end_ns"].to_numpy() * 0x369DEA0F31A53F85)
    return np.asarray(pd.Series(mixed).duplicated())


def find_superseded(rows: pd.DataFrame, run: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows without an end are of a run that another row ends, or else tells of for longer."""
    is_open = rows["is_open"].to_numpy() > 0
    run = run ^ (rows["start_ns"].to_numpy() * 0x2545F4914F6CDD1D)
    some = np.flatnonzero(np.isin(run, run[is_open]))
    some = some[np.lexsort((rows["end_ns"].to_numpy()[some], ~is_open[some], run[some]))]
    stale = np.zeros(len(rows), dtype=np.bool_)
    stale[some] = pd.Series(run[some]).duplicated(keep="last")
    return np.asarray(stale & is_open)


_MOST_SHARED = 0.01
"""Share of a node's busy time that finished jobs may share, for it to be one that runs one job at a time."""
_SURE = 20
"""Finished jobs of a node that tell this of it, whatever the others do; fewer of all nodes together tell nothing."""


def find_runaway_ends(records: BusyRecords, is_job: NDArray[np.bool_]) -> NDArray[np.int64]:
    """When runs without an end ended, as another job started on a node of theirs that runs one job at a time.

    It is `OPEN_END_NS` for others. `is_job` marks records that are jobs, each once.
    """
    ends = np.full(len(records), OPEN_END_NS)
    open_runs = np.flatnonzero(is_job & (records["is_open"] > 0))
    if not open_runs.size:
        return ends
    # Suspects are those of whose nodes one ran a job that started later.
    latest = records.where(is_job).extreme_of_nodes(np.maximum, "start_ns", OPEN_START_NS)
    of_list = records.reduce_lists(np.maximum, latest[records.set_nodes], OPEN_START_NS)
    suspects = open_runs[of_list[records["nodes"][open_runs]] > records["start_ns"][open_runs]]
    # Each of their nodes with each job that ran on it.
    is_theirs = np.zeros(len(records.names), dtype=np.bool_)
    is_theirs[records.members(np.unique(records["nodes"][suspects]))] = True
    members, jobs = np.flatnonzero(is_theirs[records.set_nodes]), np.flatnonzero(is_job)
    sizes = np.diff(records.set_ends)
    of_set = np.repeat(np.arange(sizes.size), sizes)[members]
    by_set = jobs[np.argsort(records["nodes"][jobs], kind="stable")]
    counts = np.bincount(records["nodes"][jobs], minlength=sizes.size)
    row = by_set[stretches((np.cumsum(counts) - counts)[of_set], counts[of_set])]
    node = np.repeat(records.set_nodes[members], counts[of_set])
    # Nodes and ranks of starts in one number: the next start on a node is the next number that is larger.
    start = records["start_ns"][row]
    starts, rank = np.unique(start, return_inverse=True)
    key = node.astype(np.int64) * (starts.size + 1) + rank
    order = np.argsort(key, kind="stable")
    mine = np.flatnonzero(np.isin(row, suspects) & _run_one_job_at_a_time(records, node, row)[node])
    at = np.searchsorted(key[order], key[mine], side="right")
    mine, after = mine[at < order.size], order[at[at < order.size]]
    is_same = node[after] == node[mine]
    np.minimum.at(ends, row[mine[is_same]], start[after[is_same]])
    return ends


def _run_one_job_at_a_time(records: BusyRecords, node: NDArray[np.int32], row: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which nodes ran jobs that ended, and next to never two of them together."""
    is_over = records["is_open"][row] == 0
    row, node, nodes = row[is_over], node[is_over], len(records.names)
    spans = NodeSpans(node, records["start_ns"][row], records["end_ns"][row])
    total, union = spans.seconds_by_node(nodes), spans.union().seconds_by_node(nodes)
    is_whole = (total > 0) & (total - union <= _MOST_SHARED * total)
    # What few jobs did on a node says little of it where others are shared.
    is_sure = np.bincount(node, minlength=nodes) >= _SURE
    are_alike = row.size >= _SURE and bool((total - union).sum() <= _MOST_SHARED * total.sum())
    return np.asarray(is_whole & (is_sure | are_alike))
