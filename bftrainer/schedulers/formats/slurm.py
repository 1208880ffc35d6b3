"""Import Slurm's `sacct -P` (columns separated by bars, one of them a hostlist), or its JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bftrainer.errors import LogError, unused_options
from bftrainer.files.log_files import head, line_blocks
from bftrainer.files.opening import one_line
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.hostlist import known_part
from bftrainer.nodelogs.inventory import tres_count
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS
from bftrainer.nodelogs.slurm_json import SlurmDocument, is_slurm_json
from bftrainer.schedulers.busy_records import ALL_UNITS, BusyKind
from bftrainer.schedulers.clock import BAD, UNSET, duration_s, natural_number, read_stamps, set_unset
from bftrainer.schedulers.formats.sacct_rows import (
    NEEDED,
    XDMOD_COLUMNS,
    Layout,
    SacctRows,
    layout_of,
    read_rows,
    sections,
)
from bftrainer.schedulers.node_lists import NodeLists
from bftrainer.schedulers.reading import Importer, Reading
from bftrainer.schedulers.tally import Check

if TYPE_CHECKING:
    import pyarrow as pa

_UNSET = frozenset({"", "Unknown", "None"})
_NO_NODES = ("", "None assigned", "None", "(null)")
_STEP = r"^[^.]*[0-9\]]\.\w"
_EPOCH = re.compile(r"\d{9,11}", re.ASCII)
_ROUNDED = re.compile(r"\d+(\.\d+)?[KMG]", re.ASCII)
_NO_NUMBER = -2
_GOING_ON = ("RUNNING", "SUSPENDED", "COMPLETING")


class SlurmImporter(Importer):
    """Jobs as `sacct -a -X -D -P` prints them, under a header or with the columns' names in the settings; or as JSON.

    References
    ----------
    Slurm, sacct(1): job accounting fields, `--parsable2`, `--duplicates`, `--json`; slurmrestd(8).
    """

    name: ClassVar[str] = "slurm"

    def recognises(self, lines: Sequence[str]) -> bool:
        """A header with columns that are needed or with ids of jobs, or a job's number and two times between bars."""
        if is_slurm_json(lines):
            return True
        fields = lines[0].removesuffix("|").split("|") if lines else []
        names = {field.lower() for field in fields}
        if {name.lower() for name in NEEDED} <= names or (len(fields) > 1 and names & {"jobid", "jobidraw"}):
            return True
        if len(fields) < 4 or not fields[0][:1].isdigit():
            return False
        epochs = sum(_EPOCH.fullmatch(field) is not None for field in fields[1:])
        return epochs + int(read_stamps(fields).local.sum()) >= 2

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files; each may have a header of its own."""
        columns, headless = reading.settings.columns, False
        for path in paths:
            layout: Layout | None = None
            document = SlurmDocument(path, ("jobs",)) if is_slurm_json(head(path)) else None
            for block in document.rows() if document else line_blocks(path):
                for section, is_headed in sections(block):
                    if layout is None or is_headed:
                        layout = layout_of(section, columns)
                        headless |= not is_headed
                    rows = _choose_cluster(read_rows(section, layout, reading), reading)
                    if rows.at.size:
                        reading.job_ids.append(_ids(rows))
                        reading.rows.extend(_busy_nodes(rows, reading))
                reading.tally.check()
                if block.cut_off:
                    reading.note_cut_off(path)
            for note in document.notes if document else ():
                reading.note(note)
        if columns not in (None, XDMOD_COLUMNS) and not headless:
            raise unused_options({"--columns": "all files have headers"})


def _ids(rows: SacctRows) -> NDArray[np.int64]:
    """Numbers of jobs; members of arrays have them in `JobIDRaw` alone."""
    column = rows.columns.get("JobIDRaw", rows.columns.get("JobID"))
    numbers = np.empty(0, dtype=np.int64) if column is None else _whole_numbers(column)
    return np.asarray(numbers[numbers > 0])


def _whole_numbers(column: pa.Array) -> NDArray[np.int64]:
    """Numbers of a column, and -1 for what is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        number = pc.cast(column, "int64")
    except pa.ArrowInvalid:
        number = pc.cast(pc.if_else(pc.match_substring_regex(column, "^[0-9]{1,18}$"), column, "-1"), "int64")
    return np.asarray(np.maximum(number.to_numpy(), -1))


def _choose_cluster(rows: SacctRows, reading: Reading) -> SacctRows:
    """The rows of the cluster that was picked, or all."""
    codes, clusters = rows.encode("Cluster")
    wanted = np.array([reading.is_wanted(cluster) for cluster in clusters], dtype=np.bool_)[codes]
    reading.tally.drop("of another cluster", int((~wanted).sum()))
    return rows if wanted.all() else rows.where(wanted)


def _times(rows: SacctRows, reading: Reading) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and ends, nanoseconds since the epoch, `UNSET` or `BAD`.

    Where clocks showed a time twice, the passes that agree with the elapsed time count; without one, those that give
    the longest run: better busy too long than wrongly idle.
    """
    clock = reading.clock
    starts, ends = (read_stamps(rows.columns[name], _UNSET) for name in ("Start", "End"))
    start, end = clock.utc_ns(starts, second_pass=False), clock.utc_ns(ends, second_pass=True)
    set_unset(start, end)
    if clock.zone is None:
        return start, end
    second_start, first_end = clock.utc_ns(starts, second_pass=True), clock.utc_ns(ends, second_pass=False)
    # Of a time that clocks put forward past, the pass before the change is the later instant.
    if (second_start < start).any() or (end < first_end).any():
        reading.note(f"the log has times that clocks in {clock.zone} never showed: is it the right zone?")
    unsure = np.flatnonzero((start != second_start) | (end != first_end))
    for at in unsure.tolist():
        for first, last in ((start, end), (start, first_end), (second_start, end), (second_start, first_end)):
            if (int(last[at]) - int(first[at])) // NS_PER_S in _run_lengths_s(rows, at):
                start[at], end[at] = first[at], last[at]
                break
    return start, end


def _run_lengths_s(rows: SacctRows, at: int) -> tuple[int, ...]:
    """Seconds that a job may have been on its nodes, by its elapsed time, with and without its suspension."""
    elapsed = _seconds(rows.text("ElapsedRaw", at))
    elapsed = _seconds(rows.text("Elapsed", at)) if elapsed is None else elapsed
    return () if elapsed is None else (elapsed, elapsed + (_seconds(rows.text("Suspended", at)) or 0))


def _seconds(text: str) -> int | None:
    """Seconds of a duration, `1-02:03:04` or plain; None if there is none."""
    seconds = natural_number(text)
    return seconds if seconds is not None else duration_s(text)


def _settle_open_ends(
    rows: SacctRows, start: NDArray[np.int64], end: NDArray[np.int64], reading: Reading
) -> NDArray[np.bool_]:
    """Give unfinished jobs an end: after any window, or when their limit allows; and tell which they are.

    A limit is not the end of a job that has run for longer, and waits while a job is suspended. If suspended jobs count
    as idle, they end after the time that they ran.
    """
    codes, states = rows.encode("State")
    goes_on = np.array([state.startswith(_GOING_ON) for state in states], dtype=np.bool_)[codes]
    open_ended = ((end == UNSET) | (goes_on & (end <= start) & (end != BAD))) & (start > BAD)
    end[open_ended] = OPEN_END_NS
    for at in np.flatnonzero(open_ended).tolist() if "Timelimit" in rows.columns else ():
        limit_s = duration_s(rows.text("Timelimit", at))
        if limit_s is not None:
            elapsed_s, *_ = _run_lengths_s(rows, at) or (0,)
            held_s = max(limit_s, elapsed_s) + (_seconds(rows.text("Suspended", at)) or 0)
            end[at] = min(start[at] + held_s * NS_PER_S, OPEN_END_NS)
    if not {"", "00:00:00", "0"}.issuperset(rows.encode("Suspended")[1]):
        reading.note("some jobs were suspended for a while, sacct does not say when: their nodes count as busy.")
    if reading.settings.suspended == "idle":
        is_suspended = np.array([state.startswith("SUSPENDED") for state in states], dtype=np.bool_)[codes]
        for at in np.flatnonzero(is_suspended & (start > BAD)).tolist():
            if ran_s := _run_lengths_s(rows, at):
                end[at] = start[at] + ran_s[0] * NS_PER_S
            else:
                reading.note("suspended jobs without an elapsed time count as busy: how long they ran is unknown.")
    return np.asarray(open_ended)


def _busy_nodes(rows: SacctRows, reading: Reading) -> pd.DataFrame:
    """The busy nodes that rows tell of; those that are not kept are counted, and refused if they are faulty."""
    import pyarrow.compute as pc

    start, end = _times(rows, reading)
    is_open = _settle_open_ends(rows, start, end, reading)
    coded = rows.columns["NodeList"].dictionary_encode()
    codes, lists = coded.indices.to_numpy(), coded.dictionary
    no_nodes = np.array([text in _NO_NODES for text in lists.to_pylist()], dtype=np.bool_)[codes]
    submit = np.full(start.size, UNSET)
    if "Submit" in rows.columns:
        submit = reading.clock.utc_ns(read_stamps(rows.columns["Submit"], _UNSET), second_pass=False)
    is_bad, number = (start == BAD) | (end == BAD) | (submit == BAD), _node_counts(rows)
    name, is_step = "JobID" if "JobID" in rows.columns else "JobIDRaw", np.zeros(start.size, dtype=np.bool_)
    if name in rows.columns and pc.any(pc.match_substring(rows.columns[name], ".")).as_py():
        is_step = pc.match_substring_regex(rows.columns[name], _STEP).to_numpy(zero_copy_only=False)

    def describe_time(at: int) -> str:
        times = {"Start": start, "End": end, "Submit": submit}
        text = one_line(next(rows.text(name, at) for name, time in times.items() if time[at] == BAD)[:60])
        return f"Expected times such as 2026-09-01T08:00:00, epoch seconds or Unknown, got {text!r}"

    def describe_number(at: int) -> str:
        return f"Expected a number of nodes, got {one_line(rows.text('NNodes', at)[:60])!r}"

    def refuse(reason: str, at: int, detail: str) -> None:
        reading.refuse(reason, rows.block, int(rows.at[at]), detail)

    checks = (
        Check("job step", is_step),
        Check("no nodes", no_nodes),
        Check("impossible time", is_bad, describe_time),
        Check("never started", start == UNSET),
        Check("end before start", end < start),
        Check("zero length", end == start),
        Check("impossible number of nodes", number == _NO_NUMBER, describe_number),
    )
    kept = reading.tally.sift(checks, refuse)
    numbers, is_whole, faults = _node_lists(lists, np.flatnonzero(np.bincount(codes[kept])), reading.rows.lists)
    unreadable = Check("unreadable node list", kept & (numbers[codes] < 0), lambda at: faults[int(codes[at])])
    kept &= reading.tally.sift([unreadable], refuse)
    left, nodes, number = rows.where(kept), numbers[codes[kept]], number[kept]
    sizes = np.diff(reading.rows.lists.ends())[nodes]
    trusted = is_whole[codes[kept]] & ((number < 0) | (number == sizes))
    found = pd.DataFrame(
        {
            "start_ns": start[kept],
            "end_ns": end[kept],
            "nodes": nodes,
            "kind": np.where(trusted, BusyKind.JOB, BusyKind.UNKNOWN),
            "job": _jobs(left, name),
            "partition": _numbers_of(left, "Partition", reading.rows.partition),
            "submit_ns": np.where(submit[kept] > BAD, submit[kept], OPEN_START_NS),
            "is_open": is_open[kept],
            "cluster": _numbers_of(left, "Cluster", reading.rows.cluster),
        }
    )
    return found if reading.settings.unit == "node" else _share_units(found, left, sizes, reading)


def _numbers_of(rows: SacctRows, name: str, number: Callable[[str], int]) -> NDArray[np.int64]:
    """A number for each cell of a column, by its text."""
    codes, texts = rows.encode(name)
    return np.array([number(text) for text in texts], dtype=np.int64)[codes]


def _jobs(rows: SacctRows, name: str) -> NDArray[np.int64]:
    """A number for each row's job: its own, or a hash of its name."""
    import pyarrow as pa

    column = rows.columns.get(name)
    if column is None:
        return np.zeros(rows.at.size, dtype=np.int64)
    number = _whole_numbers(column)
    if (other := number < 0).any():
        texts = column.filter(pa.array(other)).to_numpy(zero_copy_only=False)
        number[other] = pd.util.hash_array(texts, categorize=False).view(np.int64)
    return number


def _node_counts(rows: SacctRows) -> NDArray[np.int64]:
    """How many nodes each row says that its job had: -1 if it does not, `_NO_NUMBER` for what is no number."""

    def number(text: str) -> int:
        count = natural_number(text)
        is_unset = text in _UNSET or _ROUNDED.fullmatch(text) is not None
        return count if count is not None else -1 if is_unset else _NO_NUMBER

    return _numbers_of(rows, "NNodes", number)


def _node_lists(
    texts: pa.Array, wanted: NDArray[np.integer], lists: NodeLists
) -> tuple[NDArray[np.int64], NDArray[np.bool_], dict[int, str]]:
    """Numbers of the wanted hostlists, -1 for others; whether each is whole, not cut off; and faults by index."""
    import pyarrow.compute as pc

    opens, closes = (pc.count_substring(texts, mark).to_numpy() for mark in "[]")
    is_cut_off = (opens > closes) | pc.ends_with(texts, "+").to_numpy(zero_copy_only=False)
    is_odd = pc.match_substring_regex(texts, "[:|]").to_numpy(zero_copy_only=False)
    odd, wanted = wanted[is_odd[wanted]], wanted[~is_odd[wanted]]
    numbers, whole = np.full(len(texts), -1, dtype=np.int64), wanted[~is_cut_off[wanted]]
    numbers[whole], refused = lists.parse_all(texts.take(whole))
    faults = {int(whole[at]): fault for at, fault in refused.items()}
    faults |= {at: f"Expected names of nodes, got {one_line(texts[at].as_py()[:60])!r}" for at in odd.tolist()}
    for at in wanted[is_cut_off[wanted]].tolist():
        try:
            numbers[at] = lists.add(known_part(texts[at].as_py()))
        except LogError as fault:
            faults[at] = str(fault)
    return numbers, ~is_cut_off, faults


def _share_units(found: pd.DataFrame, rows: SacctRows, sizes: NDArray[np.int64], reading: Reading) -> pd.DataFrame:
    """The rows with how many GPUs or cores they held of each node; what is over is a row of its own, on some nodes."""
    counts = _numbers_of(rows, "AllocTRES", lambda text: tres_count(text, reading.settings.unit) if text else ALL_UNITS)
    each = np.maximum(sizes, 1)
    found = found.assign(units=np.where(counts >= 0, counts // each, ALL_UNITS))
    over = np.where(counts >= 0, counts % each, 0)
    # One more on the first nodes: which ones had it the log does not tell.
    more = found[over > 0].assign(units=1, job=lambda some: some["job"] ^ 1)
    lists = reading.rows.lists
    first = [lists.first_of(*pair) for pair in zip(more["nodes"], over[over > 0].tolist(), strict=True)]
    more["nodes"] = np.array(first, dtype=np.int64)
    return pd.concat([more, found])
