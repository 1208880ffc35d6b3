"""Import the Standard Workload Format, version 2.2: 18 fields a job, no names of nodes."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bftrainer.errors import LogError, SettingsError
from bftrainer.files.log_files import Block, line_blocks
from bftrainer.files.opening import one_line
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.node_spans import OPEN_END_NS, Window
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.clock import Clock
from bftrainer.schedulers.idle_spans import Demand, over_capacity_share
from bftrainer.schedulers.node_lists import column
from bftrainer.schedulers.reading import Importer, Reading
from bftrainer.schedulers.selected_nodes import node_number

_FIELDS = 18
_HEADER = re.compile(r"\s*;\s*(\w+)\s*:(.*)", re.ASCII)
_KEYS = frozenset({"MaxNodes", "MaxProcs", "UnixStartTime", "MaxJobs", "MaxRecords", "TimeZoneString"})
_EPOCH_SIZED_S = 500_000_000
"""Times from this on count from 1970, not from the log's start: no log is sixteen years long."""
_PARTIAL = (2.0, 3.0, 4.0)
_MOST_OVERCOMMIT = 0.01
_MOST_PROCESSORS = 10**9


class _Jobs:
    """The fields in use of all lines, and the place of each line."""

    def __init__(self) -> None:
        self._values = {name: array("d") for name in ("number", "submit", "wait", "run", "processors", "status")}
        self._node_sets, self._partitions, self._lines = array("i"), array("i"), array("q")
        self._trusted = array("b")
        self._paths: list[tuple[int, Path]] = []

    def add(self, values: Sequence[float], node_set: int, trusted: bool, partition: int, path: Path, line: int) -> None:
        """Keep a line."""
        for held, value in zip(self._values.values(), values, strict=True):
            held.append(value)
        self._node_sets.append(node_set)
        self._trusted.append(trusted)
        self._partitions.append(partition)
        self._lines.append(line)
        if not self._paths or self._paths[-1][1] != path:
            self._paths.append((len(self._lines) - 1, path))

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        """One field of all jobs."""
        return column(self._values[name])

    @property
    def node_sets(self) -> NDArray[np.int32]:
        """Numbers of the sets of nodes; -1 where a line names none."""
        return column(self._node_sets)

    def place(self, at: int) -> tuple[Path, int]:
        """File and line of a job."""
        return next(path for first, path in reversed(self._paths) if first <= at), self._lines[at]

    @property
    def partitions(self) -> NDArray[np.int32]:
        """Number of each job's partition, or -1."""
        return column(self._partitions)

    @property
    def trusted(self) -> NDArray[np.int8]:
        """Whether each line has as many node ids as processors."""
        return column(self._trusted)


class SwfImporter(Importer):
    """Workload logs of the Parallel Workloads Archive, and others in their format.

    References
    ----------
    Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job Schedulers", JSSPP 1999,
    doi:10.1007/3-540-47954-6_4; https://www.cs.huji.ac.il/labs/parallel/workload/swf.html.
    """

    name: ClassVar[str] = "swf"

    def recognises(self, lines: Sequence[str]) -> bool:
        """Comments with keys of the format, or its fields in the first line that is no comment.

        A table with other separators is recognised too, and refused with the reason when it is read.
        """
        if any((found := _HEADER.fullmatch(line)) and found[1] in _KEYS for line in lines[:50]):
            return True
        first = next((line for line in lines if line.strip() and not line.lstrip().startswith(";")), "")
        words = first.split()
        if len(words) >= _FIELDS and _floats(words[:_FIELDS]) is not None:
            return True
        return first.count(";") in (_FIELDS - 1, _FIELDS) and _floats(first.split(";")[:11]) is not None

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files; headers of all of them count together."""
        header: dict[str, str] = {}
        jobs = _Jobs()
        for path in paths:
            for block in line_blocks(path):
                _read_block(block, header, jobs, reading)
                reading.tally.check()
        _use_zone(header, reading)
        chosen = _chosen(jobs, reading)
        if not chosen.size:
            raise LogError(f"{paths[0]}: No job ran among {reading.tally.records:,} records.")
        chosen, start_ns, end_ns = _times(jobs, chosen, header, reading)
        if not chosen.size:
            raise LogError(f"{paths[0]}: Expected jobs with usable times, got none.")
        reading.window_ns = (int(start_ns.min()), int(end_ns.max()))
        if (jobs.node_sets >= 0).any():
            _write_names(jobs, chosen, start_ns, end_ns, reading)
        else:
            _write_counts(jobs, chosen, start_ns, end_ns, header, reading)


def _read_block(block: Block, header: dict[str, str], jobs: _Jobs, reading: Reading) -> None:
    """Keep the jobs and the header's keys of some lines."""
    for at, line in enumerate(block.lines):
        text = line.strip()
        if not text:
            continue
        if text[0] == ";":
            if (found := _HEADER.fullmatch(text)) is not None:
                header.setdefault(found[1], found[2].strip())
            continue
        reading.tally.records += 1
        fields, _, ids = text.partition("{")
        words = fields.split()
        values = _floats(words)
        if values is None or len(values) != _FIELDS:
            if not len(jobs):
                raise LogError(f"{block.path}:{block.first + at}: {_what_is_wrong(text)}")
            detail = f"Expected {_FIELDS} numbers separated by blanks, got {one_line(text[:60])!r}"
            reading.refuse("wrong number of fields", block, at, detail)
            continue
        ids = ids.partition("}")[0].strip()
        node_set = reading.rows.lists.parse(ids, _names) if _names(ids) else -1
        processors = values[4] if values[4] > 0 else values[7]
        queue = next((f"{value:g}" for value in (values[15], values[14]) if value > 0), "")
        jobs.add(
            (*values[:4], processors, values[10]),
            node_set,
            len(_names(ids)) == processors,
            reading.rows.partition(queue),
            block.path,
            block.first + at,
        )


def _floats(words: Sequence[str]) -> list[float] | None:
    try:
        values = [float(word) for word in words]
    except ValueError:
        return None
    return values if all(value - value == 0 for value in values) else None


def _names(ids: str) -> list[str]:
    """Names of a list of node ids, one a core."""
    return [name for name in map(str.strip, ids.split(",")) if name]


def _what_is_wrong(line: str) -> str:
    """Why a file cannot be read, by the first line that is no comment."""
    for separator, name in ((";", "semicolons"), (",", "commas"), ("|", "bars")):
        if line.count(separator) >= _FIELDS - 2:
            return f"Expected {_FIELDS} numbers separated by blanks, got fields separated by {name}."
    return f"Expected {_FIELDS} numbers separated by blanks, got {one_line(line[:60])!r}."


def _use_zone(header: Mapping[str, str], reading: Reading) -> None:
    """Take the log's own zone for times in the settings; `TimeZone`, an offset, is officially wrong."""
    zone = header.get("TimeZoneString")
    if zone is None or reading.clock.zone is not None:
        return
    try:
        reading.clock = Clock(zone)
    except SettingsError:
        reading.note(f"the header's TimeZoneString {one_line(zone)!r} is no zone: times of settings are UTC.")


@np.errstate(over="ignore")  # sums beyond all numbers are impossible times
def _chosen(jobs: _Jobs, reading: Reading) -> NDArray[np.int64]:
    """Indices of the jobs that ran on processors; parts of a job that has a summary line are left out."""
    run, status = jobs["run"], jobs["status"]
    partial = np.isin(status, _PARTIAL)
    has_summary = partial & np.isin(jobs["number"], jobs["number"][~partial])
    left = np.ones(len(jobs), dtype=np.bool_)
    for reason, fault in (
        ("part of a job that has a summary line", has_summary),
        ("never ran", run < 0),
        ("zero length", run == 0),
        ("no processors", jobs["processors"] <= 0),
    ):
        reading.tally.drop(reason, int((left & fault).sum()))
        left &= ~fault
    submit, limit_s = jobs["submit"], OPEN_END_NS / NS_PER_S
    too_many = jobs["processors"] > _MOST_PROCESSORS
    never = (submit < 0) | (submit + np.maximum(jobs["wait"], 0) + run >= limit_s)
    chosen = np.flatnonzero(left)
    detail = f"Expected at most {_MOST_PROCESSORS:,} processors (field 5)"
    chosen = _without(jobs, chosen, too_many, ("impossible number of processors", detail), reading)
    return _without(jobs, chosen, never, ("impossible time", "Expected times from 1970 to 2116"), reading)


def _without(
    jobs: _Jobs, chosen: NDArray[np.int64], fault: NDArray[np.bool_], why: tuple[str, str], reading: Reading
) -> NDArray[np.int64]:
    """Those of the chosen jobs that have no fault; the others are refused for a reason, with what was expected."""
    reason, detail = why
    for at in chosen[fault[chosen]].tolist():
        reading.tally.refuse(reason, *jobs.place(at), detail)
    return chosen[~fault[chosen]]


@np.errstate(over="ignore")  # sums beyond all numbers are impossible times
def _times(
    jobs: _Jobs, chosen: NDArray[np.int64], header: Mapping[str, str], reading: Reading
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The jobs whose times are known, their starts and ends in nanoseconds since the epoch."""
    submit, wait = jobs["submit"], jobs["wait"]
    base_s = _number(header, "UnixStartTime") or 0.0
    if np.median(submit[chosen]) >= _EPOCH_SIZED_S:
        base_s = 0.0
    elif base_s <= 0:
        base_s = reading.origin_ns() / NS_PER_S
    if (wait[chosen] < 0).all():
        reading.note("the log has no waiting times: jobs are taken to start when they are submitted.")
        wait = np.zeros(len(jobs))
        _check_without_waits(jobs, chosen, header, reading)
    begin = base_s + submit + wait
    end = begin + jobs["run"]
    detail = "Expected a waiting time (field 3), got a negative one"
    chosen = _without(jobs, chosen, wait < 0, ("no waiting time", detail), reading)
    is_impossible = end >= OPEN_END_NS / NS_PER_S
    chosen = _without(jobs, chosen, is_impossible, ("impossible time", "Expected times from 1970 to 2116"), reading)
    reading.tally.check(at_end=True)
    start_ns, end_ns = (np.rint(times[chosen] * NS_PER_S).astype(np.int64) for times in (begin, end))
    lasted = end_ns > start_ns
    reading.tally.drop("zero length", int((~lasted).sum()))  # in nanoseconds
    return chosen[lasted], start_ns[lasted], end_ns[lasted]


def _check_without_waits(jobs: _Jobs, chosen: NDArray[np.int64], header: Mapping[str, str], reading: Reading) -> None:
    """Refuse a log whose jobs cannot all have started when they were submitted, as those of workload models."""
    nodes, per_node = _machine(header, reading)
    submit, run = jobs["submit"][chosen], jobs["run"][chosen]
    start_ns, end_ns = (np.rint(times * NS_PER_S).astype(np.int64) for times in (submit, submit + run))
    demand = Demand(start_ns, end_ns, _nodes_used(jobs, chosen, per_node), chosen, start_ns)
    extent = demand.extent_ns()
    share = over_capacity_share(demand, nodes, Window(*extent)) if extent else 0.0
    if share > _MOST_OVERCOMMIT:
        raise LogError(
            f"{jobs.place(0)[0]}: Expected waiting times (field 3), got none, and jobs cannot have started when they "
            f"were submitted: they would have used more than the {nodes:,} nodes for {100 * share:.3g} % of the time."
        )


def _number(header: Mapping[str, str], key: str) -> float | None:
    """A number of the header; what follows it is remarks."""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", header.get(key, ""))
    found = re.match(r"\d{1,15}(\.\d{1,9})?", text, re.ASCII)
    return float(found[0]) if found and float(found[0]) > 0 else None


def _machine(header: Mapping[str, str], reading: Reading) -> tuple[int, int]:
    """Nodes, and processors of each; processors, and 1, where nodes are of several kinds.

    Raises
    ------
    SettingsError
        If neither the header nor a setting gives them.
    """
    nodes, processors = _number(header, "MaxNodes"), _number(header, "MaxProcs")
    per_node = reading.settings.procs_per_node
    if isinstance(per_node, tuple):
        return sum(each * count for each, count in per_node), 1
    if per_node is None:
        each = processors / nodes if nodes and processors else 1.0
        if each != int(each):
            raise SettingsError(
                f"Missing --procs-per-node: MaxProcs {processors:.0f} is no multiple of MaxNodes {nodes:.0f}."
            )
        per_node = int(each)
        if not nodes or not processors:
            reading.note("the header does not say how many processors a node has: each processor counts as a node.")
    elif processors and nodes == processors:
        nodes = float(-(-int(processors) // per_node))  # the header counts processors as nodes
    if not nodes and not processors:
        given = node_number(reading.settings.nodes)
        if given is None:
            raise SettingsError("Missing --nodes, the number of nodes: the header has neither MaxNodes nor MaxProcs.")
        nodes = float(given)
    return int(nodes or -(-(processors or 0) // per_node)), per_node


def _write_counts(
    jobs: _Jobs,
    chosen: NDArray[np.int64],
    start_ns: NDArray[np.int64],
    end_ns: NDArray[np.int64],
    header: Mapping[str, str],
    reading: Reading,
) -> None:
    """Write down jobs by the number of their nodes; a node that is used in part counts as used."""
    reading.capacity, per_node = _machine(header, reading)
    if isinstance(kinds := reading.settings.procs_per_node, tuple):
        reading.node_sizes = np.repeat(*np.array(kinds, dtype=np.int64).T)
        reading.capacity = reading.node_sizes.size
    submit_ns = start_ns - _waits_ns(jobs, chosen)
    reading.demand = Demand(start_ns, end_ns, _nodes_used(jobs, chosen, per_node), _keys(jobs, chosen), submit_ns)


def _waits_ns(jobs: _Jobs, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    waits_ns = np.rint(np.maximum(jobs["wait"][chosen], 0) * NS_PER_S)
    return np.asarray(waits_ns.astype(np.int64))


def _nodes_used(jobs: _Jobs, chosen: NDArray[np.int64], per_node: int) -> NDArray[np.int64]:
    return -(-jobs["processors"][chosen].astype(np.int64) // per_node)


def _write_names(
    jobs: _Jobs, chosen: NDArray[np.int64], start_ns: NDArray[np.int64], end_ns: NDArray[np.int64], reading: Reading
) -> None:
    """Write down jobs that name their nodes, as an extension of the format does."""
    frame = pd.DataFrame(
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "nodes": jobs.node_sets[chosen],
            "kind": np.where(jobs.trusted[chosen], BusyKind.JOB, BusyKind.UNKNOWN),
            "job": _keys(jobs, chosen),
            "partition": jobs.partitions[chosen],
            "submit_ns": start_ns - _waits_ns(jobs, chosen),
        }
    )
    for at in chosen[frame["nodes"] < 0].tolist():
        reading.tally.refuse("no node ids", *jobs.place(at), "Expected node ids {...} as on other lines, got none")
    reading.rows.extend(frame[frame["nodes"] >= 0])


def _keys(jobs: _Jobs, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number of each job: its own, if it has one."""
    number = jobs["number"][chosen]
    return np.where(number > 0, number.view(np.int64), -1 - chosen)
