"""Import the Standard Workload Format, version 2.2: 18 fields a job, no names of nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from bftrainer.errors import LogError, SettingsError
from bftrainer.files.log_files import Block, line_blocks
from bftrainer.files.opening import one_line
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.node_spans import OPEN_END_NS, Window
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.clock import Clock
from bftrainer.schedulers.idle_spans import over_capacity_share
from bftrainer.schedulers.reading import Check, Importer, Reading
from bftrainer.schedulers.selected_nodes import node_number

_FIELDS = 18
_HEADER = re.compile(r"\s*;\s*(\w+)\s*:(.*)", re.ASCII)
_KEYS = frozenset({"MaxNodes", "MaxProcs", "UnixStartTime", "MaxJobs", "MaxRecords", "TimeZoneString"})
_EPOCH_SIZED_S = 500_000_000
"""Times from this on count from 1970, not from the log's start: no log is sixteen years long."""
_PARTIAL = (2.0, 3.0, 4.0)
_MOST_OVERCOMMIT = 0.01
_MOST_PROCESSORS = 10**9
_TOO_MANY = f"Expected at most {_MOST_PROCESSORS:,} processors (field 5)"
_NEVER = "Expected times from 1970 to 2116"


_COLUMNS = {
    **dict.fromkeys(("number", "submit", "wait", "run", "processors", "status"), "float64"),
    "nodes": "int64",
    "is_whole": "bool",
    "partition": "int64",
    "path": "str",
    "line": "int64",
}
"""Of a line: those fields in use, its list of nodes (-1 without one), whether that is whole, and its place."""


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
        parts: list[pd.DataFrame] = []
        for block in (block for path in paths for block in line_blocks(path)):
            rows = _read_block(block, header, reading, is_first=not parts)
            parts.append(pd.DataFrame(rows, columns=list(_COLUMNS)).astype(_COLUMNS))
            reading.tally.check()
        zone = header.get("TimeZoneString")  # `TimeZone`, an offset, is officially wrong
        if zone is not None and reading.clock.zone is None:
            try:
                reading.clock = Clock(zone)
            except SettingsError:
                reading.note(f"the header's TimeZoneString {one_line(zone)!r} is no zone: times of settings are UTC.")
        jobs = _choose(pd.concat(parts, ignore_index=True), reading)
        if jobs.empty:
            raise LogError(f"{paths[0]}: No job ran among {reading.tally.records:,} records.")
        has_waits = bool((jobs["wait"] >= 0).any())
        if not has_waits:
            reading.note("the log has no waiting times: jobs are taken to start when they are submitted.")
        jobs = _set_times(jobs if has_waits else jobs.assign(wait=0.0), header, reading)
        if jobs.empty:
            raise LogError(f"{paths[0]}: Expected jobs with usable times, got none.")
        reading.window_ns = (int(jobs["start_ns"].min()), int(jobs["end_ns"].max()))
        if (jobs["nodes"] < 0).all() or not has_waits:
            demand, nodes = _count_nodes(jobs, header, reading)
            share = over_capacity_share(demand, nodes, Window(*reading.window_ns))
            if not has_waits and share > _MOST_OVERCOMMIT:  # as of workload models
                raise LogError(
                    f"{paths[0]}: Expected waiting times (field 3), got none, and jobs cannot have started when they "
                    f"were submitted: they would have used more than the {nodes:,} nodes for {100 * share:.3g} % of "
                    "the time."
                )
        if (jobs["nodes"] < 0).all():
            reading.demand = demand
            return
        nameless = Check(
            "no node ids", jobs["nodes"] < 0, lambda _: "Expected node ids {...} as on other lines, got none"
        )
        jobs = _sift(jobs, (nameless,), reading)
        reading.rows.extend(jobs.assign(kind=np.where(jobs["is_whole"], BusyKind.JOB, BusyKind.UNKNOWN)))


def _read_block(block: Block, header: dict[str, str], reading: Reading, *, is_first: bool) -> list[tuple[Any, ...]]:
    """The jobs of some lines, as `_COLUMNS`, and the header's keys."""
    found: list[tuple[Any, ...]] = []
    lists = reading.rows.lists
    for at, line in enumerate(block.lines):
        text = line.strip()
        if not text:
            continue
        if text[0] == ";":
            if (key := _HEADER.fullmatch(text)) is not None:
                first = header.setdefault(key[1], key[2].strip())
                if key[1] in ("MaxNodes", "MaxProcs") and first != key[2].strip():
                    place = f"{block.path}:{block.first + at}"
                    raise LogError(
                        f"{place}: Expected logs of one machine, got {key[1]} {one_line(key[2].strip())} after {first}."
                    )
            continue
        reading.tally.records += 1
        fields, _, ids = text.partition("{")
        values = _floats(fields.split())
        if values is None or len(values) != _FIELDS:
            detail = f"Expected {_FIELDS} numbers separated by blanks, got {one_line(text[:60])!r}"
            if is_first and not found:
                raise LogError(f"{block.path}:{block.first + at}: {detail}.")
            reading.refuse("wrong number of fields", block, at, detail)
            continue
        ids = ids.partition("}")[0].strip()
        names = [name for name in map(str.strip, ids.split(",")) if name]  # one a core
        processors = values[4] if values[4] > 0 else values[7]
        queue = next((f"{value:g}" for value in (values[15], values[14]) if value > 0), "")
        nodes = lists.add(names) if names else -1
        where = reading.rows.partition(queue), str(block.path), block.first + at
        found.append((*values[:4], processors, values[10], nodes, len(names) == processors, *where))
    return found


def _floats(words: Sequence[str]) -> list[float] | None:
    try:
        values = [float(word) for word in words]
    except ValueError:
        return None
    return values if all(value - value == 0 for value in values) else None


@np.errstate(over="ignore")  # sums beyond all numbers are impossible times
def _choose(jobs: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    """The jobs that ran on processors; parts of a job that has a summary line are left out."""
    is_part = jobs["status"].isin(_PARTIAL)
    checks = (
        Check("part of a job that has a summary line", is_part & jobs["number"].isin(jobs["number"][~is_part])),
        Check("never ran", jobs["run"] < 0),
        Check("zero length", jobs["run"] == 0),
        Check("no processors", jobs["processors"] <= 0),
        Check("impossible number of processors", jobs["processors"] > _MOST_PROCESSORS, lambda _: _TOO_MANY),
    )
    jobs = _chain_parts(_sift(jobs, checks, reading))
    last = jobs["submit"] + jobs["wait"].clip(lower=0) + jobs["run"]
    never = (jobs["submit"] < 0) | (last >= OPEN_END_NS / NS_PER_S)
    return _sift(jobs, (Check("impossible time", never, lambda _: _NEVER),), reading)


def _sift(jobs: pd.DataFrame, checks: Sequence[Check], reading: Reading) -> pd.DataFrame:
    """The jobs that pass all checks."""

    def refuse(reason: str, at: int, detail: str) -> None:
        reading.tally.refuse(reason, Path(jobs["path"].iloc[at]), int(jobs["line"].iloc[at]), detail)

    return jobs[reading.tally.sift(checks, refuse)]


def _chain_parts(jobs: pd.DataFrame) -> pd.DataFrame:
    """The jobs whose later parts, which have no time of submission, wait from the end of the part before."""
    later = jobs["status"].isin(_PARTIAL) & (jobs["submit"] < 0)
    if not later.any():
        return jobs
    submit: dict[Any, float] = jobs["submit"].to_dict()
    over: dict[float, float] = {}
    some = jobs[jobs["number"].isin(jobs["number"][later])]
    for at, number, wait, run in zip(some.index, some["number"], some["wait"], some["run"], strict=True):
        if submit[at] < 0:
            submit[at] = over.get(number, -1.0)
        over[number] = submit[at] + max(wait, 0.0) + run
    return jobs.assign(submit=pd.Series(submit))


@np.errstate(over="ignore")  # sums beyond all numbers are impossible times
def _set_times(jobs: pd.DataFrame, header: Mapping[str, str], reading: Reading) -> pd.DataFrame:
    """The jobs whose times are known, with these in nanoseconds since the epoch, and a number of each job."""
    base_s = _number(header, "UnixStartTime") or 0.0
    if jobs["submit"].median() >= _EPOCH_SIZED_S:
        base_s = 0.0
    elif base_s <= 0:
        base_s = reading.origin_ns() / NS_PER_S
    begin = base_s + jobs["submit"] + jobs["wait"]
    jobs = jobs.assign(begin=begin, end=begin + jobs["run"])
    checks = (
        Check("no waiting time", jobs["wait"] < 0, lambda _: "Expected a waiting time (field 3), got a negative one"),
        Check("impossible time", jobs["end"] >= OPEN_END_NS / NS_PER_S, lambda _: _NEVER),
    )
    jobs = _sift(jobs, checks, reading)
    reading.tally.check(at_end=True)
    start_ns, end_ns, wait_ns = (
        np.rint(jobs[name].to_numpy() * NS_PER_S).astype(np.int64) for name in ("begin", "end", "wait")
    )
    number = jobs["number"].to_numpy()
    job = np.where(number > 0, number.view(np.int64), -1 - jobs.index.to_numpy())
    jobs = jobs.assign(start_ns=start_ns, end_ns=end_ns, submit_ns=start_ns - wait_ns, job=job)
    # A job shorter than a nanosecond ends when it starts.
    return _sift(jobs, (Check("zero length", end_ns <= start_ns),), reading)


def _number(header: Mapping[str, str], key: str) -> float | None:
    """A number of the header; what follows it is remarks."""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", header.get(key, ""))
    found = re.match(r"\d{1,15}(\.\d{1,9})?", text, re.ASCII)
    return float(found[0]) if found and float(found[0]) > 0 else None


def _size_nodes(header: Mapping[str, str], reading: Reading) -> tuple[int, int]:
    """Number of nodes, and processors of each, if these are equal."""
    nodes, processors = _number(header, "MaxNodes"), _number(header, "MaxProcs")
    per_node = reading.settings.procs_per_node
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
        nodes = None  # the header counts processors as nodes
    assert isinstance(per_node, int)
    if not nodes and not processors:
        nodes = node_number(reading.settings.nodes)
        if nodes is None:
            raise SettingsError("Missing --nodes, the number of nodes: the header has neither MaxNodes nor MaxProcs.")
    return int(nodes or -(-(processors or 0) // per_node)), per_node


def _count_nodes(jobs: pd.DataFrame, header: Mapping[str, str], reading: Reading) -> tuple[pd.DataFrame, int]:
    """Jobs by the number of their nodes, of which one used in part counts as used; and the machine's number.

    Both are of processors where nodes are of several kinds.
    """
    if isinstance(kinds := reading.settings.procs_per_node, tuple):
        reading.node_sizes = np.repeat(*np.array(kinds, dtype=np.int64).T)
        reading.capacity, nodes, per_node = reading.node_sizes.size, int(reading.node_sizes.sum()), 1
    else:
        nodes, per_node = _size_nodes(header, reading)
        reading.capacity = nodes
    used = -(-jobs["processors"].to_numpy().astype(np.int64) // per_node)
    return jobs[["start_ns", "end_ns", "job", "submit_ns"]].assign(nodes=used, is_open=False), nodes
