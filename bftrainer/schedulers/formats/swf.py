"""Import the Standard Workload Format, version 2.2: 18 fields a job, no names of nodes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from bftrainer.errors import LogError, SettingsError
from bftrainer.files.opening import one_line
from bftrainer.files.text_files import LogRow
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.node_spans import OPEN_END_NS, Window
from bftrainer.schedulers.busy_records import BusyKind, over_capacity_share
from bftrainer.schedulers.clock import Clock, natural_number
from bftrainer.schedulers.reading import Check, Importer, Reading

_FIELDS = 18
_HEADER = re.compile(r"\s*;\s*(\w+)\s*:(.*)", re.ASCII)
_KEYS = frozenset({"MaxNodes", "MaxProcs", "UnixStartTime", "MaxJobs", "MaxRecords", "TimeZoneString"})
_EPOCH_SIZED_S = 500_000_000
"""Times from this on count from 1970, not from the log's start: no log is sixteen years long."""
_PARTIAL = (2.0, 3.0, 4.0)
_MOST_OVERCOMMIT = 0.01
_MOST_PROCESSORS = 10**9
_TOO_MANY = f"Expected at most {_MOST_PROCESSORS:,} processors (field 5)"
_ROWS_AT_A_TIME = 1 << 16

_COLUMNS = {
    **dict.fromkeys(("number", "submit", "wait", "run", "processors", "status"), "float64"),
    "nodes": "int64",
    "is_whole": "bool",
    "partition": "int64",
    "place": "object",
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

        A table with semicolons is recognised too, and refused with the reason when it is read.
        """
        if any((header := _HEADER.fullmatch(line)) and header[1] in _KEYS for line in lines[:50]):
            return True
        first = next((line for line in lines if line.strip() and not line.lstrip().startswith(";")), "")
        if len(words := first.split()) >= _FIELDS and _read_numbers(words[:_FIELDS]) is not None:
            return True
        return first.count(";") in (_FIELDS - 1, _FIELDS) and _read_numbers(first.split(";")[:11]) is not None

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files; headers of all of them count together."""
        header: dict[str, str] = {}
        jobs = _set_times(_read_jobs(reading.lines(paths), header, reading), header, reading)
        reading.tally.check()
        if jobs.empty:
            raise LogError(f"{paths[0]}: No job ran among {reading.tally.records:,} records.")
        reading.window_ns = int(jobs["start_ns"].min()), int(jobs["end_ns"].max())
        if (jobs["nodes"] >= 0).any():
            nameless = "Expected node ids {...} as on other lines, got none"
            jobs = reading.tally.sift(jobs, [Check("no node ids", jobs["nodes"] < 0, lambda _: nameless)])
            reading.rows.extend(jobs.assign(kind=np.where(jobs["is_whole"], BusyKind.JOB, BusyKind.UNKNOWN)))
            return
        demand = _count_nodes(jobs, header, reading)
        reading.take(demand)
        nodes = reading.capacity if reading.node_sizes is None else int(reading.node_sizes.sum())
        share = over_capacity_share(demand, nodes or 0, Window(*reading.window_ns))
        if _has_no_waits(jobs) and share > _MOST_OVERCOMMIT:  # as of workload models
            raise LogError(
                f"{paths[0]}: Expected waiting times (field 3), got none, and jobs cannot have started when they "
                f"were submitted: they would have used more than the {nodes:,} nodes for {100 * share:.3g} % of "
                "the time."
            )


def _read_jobs(lines: Iterator[LogRow], header: dict[str, str], reading: Reading) -> pd.DataFrame:
    """Jobs as `_COLUMNS`, read some at a time; keys of headers are set."""
    frames = [pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in _COLUMNS.items()})]
    while some := list(islice(lines, _ROWS_AT_A_TIME)):
        rows = [values for line in some if (values := _read_line(line, header, reading)) is not None]
        frames.append(pd.DataFrame(rows, columns=list(_COLUMNS)).astype(_COLUMNS))
    return pd.concat(frames)


def _read_line(line: LogRow, header: dict[str, str], reading: Reading) -> list[Any] | None:
    """The job of a line, as `_COLUMNS`; None for a comment or a line that is refused."""
    text = line.fields[0].strip()
    if text[0] == ";":
        if (key := _HEADER.fullmatch(text)) is not None:
            number = key[2].strip()
            if key[1] in ("MaxNodes", "MaxProcs") and header.get(key[1], number) != number:
                said = f"got {key[1]} {one_line(number)} after {header[key[1]]}"
                raise LogError(f"{line.place}: Expected logs of one machine, {said}.")
            header.setdefault(key[1], number)
        return None
    reading.tally.records += 1
    fields, _, ids = text.partition("{")
    values = _read_numbers(fields.split())
    if values is None or len(values) != _FIELDS:
        detail = f"Expected {_FIELDS} numbers separated by blanks, got {one_line(text[:60])!r}"
        reading.tally.refuse("wrong number of fields", line, detail)
        return None
    names = [name for name in map(str.strip, ids.partition("}")[0].split(",")) if name]  # one a core
    processors = values[4] if values[4] > 0 else values[7]
    queue = next((f"{value:g}" for value in (values[15], values[14]) if value > 0), "")
    nodes = reading.rows.lists.add(names) if names else -1
    is_whole, partition = len(names) == processors, reading.rows.partition(queue)
    return [*values[:4], processors, values[10], nodes, is_whole, partition, line.place]


def _read_numbers(words: Sequence[str]) -> list[float] | None:
    try:
        values = [float(word) for word in words]
    except ValueError:
        return None
    return values if all(map(math.isfinite, values)) else None


def _has_no_waits(jobs: pd.DataFrame) -> bool:
    return bool((jobs["wait"] < 0).all())


@np.errstate(over="ignore", invalid="ignore")  # sums beyond all numbers are impossible times
def _set_times(jobs: pd.DataFrame, header: Mapping[str, str], reading: Reading) -> pd.DataFrame:
    """The jobs that ran on processors, with times in nanoseconds since the epoch, and a number of each job.

    Parts of a job that has a summary line are left out; those of another job wait from the end of the part before.
    """
    zone = header.get("TimeZoneString")  # `TimeZone`, an offset, is officially wrong
    if zone is not None and reading.clock.zone is None:
        try:
            reading.clock = Clock(zone)
        except SettingsError:
            reading.note(f"the header's TimeZoneString {one_line(zone)!r} is no zone: times of settings are UTC.")
    is_part = jobs["status"].isin(_PARTIAL)
    checks = (
        Check("part of a job that has a summary line", is_part & jobs["number"].isin(jobs["number"][~is_part])),
        Check("never ran", jobs["run"] < 0),
        Check("zero length", jobs["run"] == 0),
        Check("no processors", jobs["processors"] <= 0),
        Check("impossible number of processors", jobs["processors"] > _MOST_PROCESSORS, lambda _: _TOO_MANY),
    )
    jobs = reading.tally.sift(jobs.reset_index(drop=True), checks)
    if jobs.empty:
        return jobs
    wait = jobs["wait"]
    if _has_no_waits(jobs):
        reading.note("the log has no waiting times: jobs are taken to start when they are submitted.")
        wait = wait * 0
    lasted = wait.clip(lower=0) + jobs["run"]
    before = lasted.groupby(jobs["number"]).cumsum() - lasted
    first = (jobs["submit"] - before).where(jobs["submit"] >= 0).groupby(jobs["number"]).ffill().fillna(-np.inf)
    submit = jobs["submit"].mask(jobs["status"].isin(_PARTIAL) & (jobs["submit"] < 0), first + before)
    base_s = 0.0
    if not submit[submit >= 0].median() >= _EPOCH_SIZED_S:
        base_s = _read_number(header, "UnixStartTime") or reading.origin_ns() / NS_PER_S
    begin = base_s + submit + wait
    end = begin + jobs["run"]
    has_time = (submit >= 0) & (end < OPEN_END_NS / NS_PER_S)
    start_ns, end_ns, wait_ns = (
        np.rint(times.where(has_time, 0).to_numpy() * NS_PER_S).astype(np.int64) for times in (begin, end, wait)
    )
    on_times = (
        Check("impossible time", ~has_time, lambda _: "Expected times from 1970 to 2116"),
        Check("no waiting time", wait < 0, lambda _: "Expected a waiting time (field 3), got a negative one"),
        Check("zero length", end_ns <= start_ns),  # it is shorter than a nanosecond
    )
    number = jobs["number"].to_numpy()
    job = np.where(number > 0, number.view(np.int64), -1 - jobs.index.to_numpy())
    jobs = jobs.assign(start_ns=start_ns, end_ns=end_ns, submit_ns=start_ns - wait_ns, job=job)
    return reading.tally.sift(jobs, on_times)


def _read_number(header: Mapping[str, str], key: str) -> float | None:
    """A number of the header above 0; what follows it is remarks."""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", header.get(key, ""))
    number = re.match(r"\d{1,15}(\.\d{1,9})?", text, re.ASCII)
    return float(number[0]) or None if number else None


def _count_nodes(jobs: pd.DataFrame, header: Mapping[str, str], reading: Reading) -> pd.DataFrame:
    """Jobs by the number of their nodes, of which one used in part counts as used; the machine's number is set.

    Processors are counted in place of nodes where these are of several kinds.
    """
    per_node = reading.settings.procs_per_node
    nodes, processors = _read_number(header, "MaxNodes"), _read_number(header, "MaxProcs")
    if isinstance(per_node, tuple):
        reading.node_sizes = np.repeat(*np.array(per_node, dtype=np.int64).T)
        nodes, size = float(reading.node_sizes.size), 1.0
    elif per_node is None:
        size = processors / nodes if nodes and processors else 1.0
        if size % 1:
            raise SettingsError(
                f"Missing --procs-per-node: MaxProcs {processors:.0f} is no multiple of MaxNodes {nodes:.0f}."
            )
        if not nodes or not processors:
            reading.note("the header does not say how many processors a node has: each processor counts as a node.")
    else:
        nodes, size = None if nodes == processors else nodes, per_node  # the header may count processors as nodes
    if not nodes and not processors:
        nodes = natural_number(reading.settings.nodes or "")
        if nodes is None:
            raise SettingsError("Missing --nodes, the number of nodes: the header has neither MaxNodes nor MaxProcs.")
    reading.capacity = int(nodes or -(-(processors or 0) // size))
    used = -(-jobs["processors"].to_numpy().astype(np.int64) // int(size))
    return jobs[["start_ns", "end_ns", "job", "submit_ns", "wait"]].assign(count=used)
