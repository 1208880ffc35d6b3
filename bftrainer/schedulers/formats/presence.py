"""Import traces of available nodes: node counts over time, and spot nodes that are added and removed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from bftrainer.errors import LogError, SettingsError, at_place
from bftrainer.files.documents import json_file
from bftrainer.files.log_files import head
from bftrainer.files.opening import one_line
from bftrainer.nodelogs.availability import COUNT_COLUMNS, read_count_trace, read_spot_trace
from bftrainer.nodelogs.availability_trace import MOST_NODES, NO_TIME, CountTrace
from bftrainer.nodelogs.node_spans import OPEN_END_NS
from bftrainer.schedulers.clock import exact_ns
from bftrainer.schedulers.reading import Importer, Reading
from bftrainer.schedulers.selected_nodes import count_nodes

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
        start = head(paths[0])
        if _is_sampled(start):
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
        reading.take_presence(trace.log(), names, records=trace.count.size - _is_sampled(start))
        reading.placement = _PLACEMENT
        reading.note("the trace names no nodes: idle counts are exact, lengths of idle fragments are not.")


def _is_sampled(lines: Sequence[str]) -> bool:
    return lines[0].lstrip().startswith("{") and any(_GAP in line for line in lines[:9])


def _read_samples(paths: Sequence[Path], reading: Reading) -> CountTrace:
    """Counts at equal intervals; the last one holds as long as the others."""
    times_ns, counts, end_ns = [], [], reading.origin_ns()
    for path in paths:
        document = json_file(path, LogError, "counts in JSON")
        metadata, data = (document.get(key) if isinstance(document, dict) else None for key in ("metadata", "data"))
        gap = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
        gap_ns = exact_ns(str(gap)) if isinstance(gap, int | float) else None
        is_list = isinstance(data, list) and all(type(count) is int and 0 <= count <= MOST_NODES for count in data)
        if not is_list or not data or not gap_ns or not 0 < gap_ns * len(data) < OPEN_END_NS - end_ns:
            raise LogError(f"{path}: Expected metadata with gap_seconds above 0, and counts as data.")
        times_ns.append(end_ns + gap_ns * np.arange(len(data)))
        counts.append(np.array(data, dtype=np.int64))
        end_ns += gap_ns * len(data)
    count = np.concatenate(counts)
    return CountTrace(np.append(np.concatenate(times_ns), end_ns), np.append(count, count[-1:]))


def _read_dates(paths: Sequence[Path], reading: Reading) -> CountTrace:
    """Rows of date, time and count, sorted by time; of several at one instant the last one counts."""
    rows: list[tuple[int, int]] = []
    for line in reading.lines(paths):
        row = _DATED.fullmatch(line.fields[0])
        if row is None or int(row[3]) > MOST_NODES:
            raise LogError(f"{line.place}: Expected date, time, count, got {one_line(line.fields[0][:60])!r}.")
        with at_place(line.place, SettingsError):
            rows.append((reading.clock.instant_ns(f"{row[1]}T{row[2]}"), int(row[3])))
    counts = pd.DataFrame(rows, columns=["time_ns", "count"], dtype="int64")
    if late := int((counts["time_ns"].diff() < 0).sum()):
        reading.note(f"{late:,} rows stand after a later one: sorted by time.")
    counts = counts.sort_values("time_ns", kind="stable")
    is_last = ~counts.duplicated("time_ns", keep="last")
    reading.tally.records += int((~is_last).sum())
    reading.tally.drop("another count at the same instant, of which the last row counts", int((~is_last).sum()))
    return CountTrace(*(counts[name][is_last].to_numpy() for name in ("time_ns", "count")))


_ROW = re.compile(r"\d+\s*,\s*(add|remove)\s*,\s*\S+\s*", re.ASCII)


class SpotImporter(Importer):
    """Nodes are idle from their addition to their removal.

    References
    ----------
    Thorpe et al., "Bamboo: Making Preemptible Instances Resilient for Affordable Training of Large DNNs", NSDI 2023:
    the published traces are of this form.
    """

    name: ClassVar[str] = "spot"
    is_availability: ClassVar[bool] = True

    def recognises(self, lines: Sequence[str]) -> bool:
        """A first row of three columns, the second of which says add or remove."""
        return bool(lines) and _ROW.fullmatch(lines[0]) is not None

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files, one after the other."""
        log = read_spot_trace(*paths, start_ns=reading.origin_ns())
        without = log.provenance[NO_TIME]
        reading.tally.drop("node added and removed in the same millisecond", 2 * without["stays"])
        reading.tally.drop("node removed and added in the same millisecond", 2 * without["absences"])
        reading.take_presence(log, log.nodes, records=log.node.size + 2 * sum(without.values()))
