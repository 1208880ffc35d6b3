"""Import Slurm's `sacct -P` (columns separated by bars, one of them a hostlist), or its JSON."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bftrainer.errors import LogError, SettingsError, suggestion, unused_options
from bftrainer.files.log_files import Block, head, line_blocks
from bftrainer.files.opening import one_line
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.hostlist import certain_names
from bftrainer.nodelogs.inventory import tres_count
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS
from bftrainer.nodelogs.slurm_json import SlurmDocument, is_slurm_json
from bftrainer.schedulers.busy_records import ALL_UNITS, BusyKind, NodeLists
from bftrainer.schedulers.clock import BAD, UNSET, duration_s, natural_number, read_stamps, set_unset
from bftrainer.schedulers.reading import Check, Importer, Reading

if TYPE_CHECKING:
    import pyarrow as pa

_NEEDED = ("Start", "End", "NodeList")
_KNOWN = {
    name.lower(): name
    for name in (
        *(*_NEEDED, "JobIDRaw", "JobID", "State", "NNodes", "Partition", "Elapsed", "ElapsedRaw", "Suspended"),
        *("Submit", "Timelimit", "Cluster", "AllocTRES"),
    )
}
_FREE = frozenset(
    {"jobname", "comment", "admincomment", "systemcomment", "workdir", "submitline", "extra", "wckey", "stdout"}
)
"""Columns whose text users choose."""
XDMOD_COLUMNS = (
    *("JobID", "JobIDRaw", "Cluster", "Partition", "QOS", "Account", "Group", "GID", "User", "UID", "Submit"),
    *("Eligible", "Start", "End", "Elapsed", "ExitCode", "State", "NNodes", "NCPUS", "ReqCPUS", "ReqMem", "ReqTRES"),
    *("AllocTRES", "Timelimit", "NodeList", "JobName"),
)
"""What XDMoD has sacct print, without a header: https://open.xdmod.org, "Slurm", the shredder's input."""
_UNSET = frozenset({"", "Unknown", "None"})
_NO_NODES = ("", "None assigned", "None", "(null)")
_STEP = r"^[^.]*[0-9\]]\.\w"
_EPOCH = re.compile(r"\d{9,11}", re.ASCII)
_ROUNDED = re.compile(r"\d+(\.\d+)?[KMG]", re.ASCII)
_NO_NUMBER = -2
_GOING_ON = ("RUNNING", "SUSPENDED", "COMPLETING")
_TIMES = "times such as 2026-09-01T08:00:00, epoch seconds or Unknown"


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
        if lines and (_is_whole_header(lines[0]) or (len(fields) > 1 and _names_jobs(lines[0]))):
            return True
        if len(fields) < 4 or not fields[0][:1].isdigit():
            return False
        epochs = sum(_EPOCH.fullmatch(field) is not None for field in fields[1:])
        return epochs + int(read_stamps(fields).local.sum()) >= 2

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files; each may have headers of its own, where exports were concatenated."""
        columns, headless = reading.settings.columns, False
        for path in paths:
            layout: _Layout | None = None
            document = SlurmDocument(path, ("jobs",)) if is_slurm_json(head(path)) else None
            for block in document.rows() if document else line_blocks(path):
                for section in _split_at_headers(block):
                    is_headed = _is_whole_header(section.lines[0])
                    if layout is None or is_headed:
                        layout = _find_layout(section, columns)
                        headless |= not is_headed
                    rows = _choose_cluster(_read_rows(section, layout, reading), reading)
                    if len(rows):
                        reading.job_ids.append(_job_ids(rows))
                        reading.rows.extend(_busy_nodes(rows, reading))
                reading.tally.check()
                if block.cut_off:
                    reading.note_cut_off(path)
            for note in document.notes if document else ():
                reading.note(note)
        if columns not in (None, XDMOD_COLUMNS) and not headless:
            raise unused_options({"--columns": "all files have headers"})


def _is_whole_header(line: str) -> bool:
    """Whether a line names all columns that are needed."""
    return not line[:1].isdigit() and {name.lower() for name in _NEEDED} <= set(line.lower().split("|"))


def _names_jobs(line: str) -> bool:
    return not {"jobid", "jobidraw"}.isdisjoint(line.lower().split("|"))


def _split_at_headers(block: Block) -> Iterator[Block]:
    """Parts of a block, of which all but the first begin with a header; blank ones are left out."""
    heads = [at for at, line in enumerate(block.lines) if not line[:1].isdigit() and _is_whole_header(line)]
    for low, high in itertools.pairwise(sorted({0, *heads, len(block.lines)})):
        section = block.part(low, high) if heads else block
        if section.data.strip(b"\r\n"):
            yield section


@dataclass(frozen=True, slots=True)
class _Layout:
    """Names of a file's columns; whether rows end in a bar, as `sacct -p` writes them."""

    names: tuple[str, ...]
    trailing_bar: bool

    @property
    def bars(self) -> int:
        """Number of bars in a row."""
        return len(self.names) - 1 + self.trailing_bar

    def mend(self, line: str) -> str | None:
        """A line whose bars are not as many as they should be; None if they do not fit.

        Sacct does not escape bars: more than there should be are those of the only column that may hold any text.
        """
        line = line if self.trailing_bar else line.removesuffix("|")
        line += "|" * (self.trailing_bar and not line.endswith("|"))
        free = [at for at, name in enumerate(self.names) if name.lower() in _FREE]
        surplus, cells = line.count("|") - self.bars, line.split("|")
        if surplus > 0 and len(free) == 1:
            cells[free[0] : free[0] + surplus + 1] = [" ".join(cells[free[0] : free[0] + surplus + 1])]
        return "|".join(cells) if len(cells) == self.bars + 1 else None


def _find_layout(block: Block, names: Sequence[str] | None) -> _Layout:
    """Columns of a file that begins with this block, by its header or else by the settings."""
    at, line = next((at, line) for at, line in enumerate(block.lines) if line)
    place, trailing_bar = f"{block.path}:{block.first + at}", line.endswith("|")
    if (_names_jobs(line) or "nodelist" in line.lower().split("|")) and not line[:1].isdigit():
        names = line.removesuffix("|").split("|")
    elif "|" not in line:
        raise LogError(f"{place}: Expected columns between bars (sacct -P), got {one_line(line[:60])!r}.")
    elif names is None:
        hint = "; --preset xdmod of `import --format table` names them" * (line.count("|") >= len(XDMOD_COLUMNS) - 1)
        raise SettingsError(
            f"{place}: Expected a header, or --columns with the names of the columns, got neither{hint}."
        )
    else:
        place, trailing_bar = "--columns", trailing_bar and line.count("|") == len(names)
    lower = [name.lower() for name in names]
    if missing := next((name for name in _NEEDED if name.lower() not in lower), None):
        raise LogError(f"{place}: Expected a column {missing}, got none.{suggestion(missing, names)}")
    return _Layout(tuple(names), trailing_bar)


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Rows of a block, as a table of texts with the columns that are in use; and the index of each row's line."""

    block: Block
    line: NDArray[np.int64]
    table: pa.Table

    def __len__(self) -> int:
        return self.line.size

    def place(self, at: int) -> str:
        """File and line of a row."""
        return f"{self.block.path}:{self.block.first + int(self.line[at])}"

    def has(self, name: str) -> bool:
        """Whether there is such a column."""
        return name in self.table.column_names

    def where(self, keep: NDArray[np.bool_]) -> _Rows:
        """The rows that `keep` marks."""
        import pyarrow as pa

        return self if keep.all() else _Rows(self.block, self.line[keep], self.table.filter(pa.array(keep)))

    def column(self, name: str) -> pa.Array:
        """Cells of a column in one piece."""
        return self.table[name].combine_chunks()

    def text(self, name: str, at: int) -> str:
        """A cell; empty if there is no such column."""
        return str(self.table[name][at].as_py()) if self.has(name) else ""

    def encode(self, name: str) -> tuple[NDArray[np.int32], list[str]]:
        """Index of each cell into the distinct texts of a column, and these in order of appearance."""
        if not self.has(name):
            return np.zeros(len(self), dtype=np.int32), [""]
        coded = self.column(name).dictionary_encode()
        return coded.indices.to_numpy(), coded.dictionary.to_pylist()

    def compute(self, name: str, number: Callable[[str], int]) -> NDArray[np.int64]:
        """A number for each cell of a column, computed once for each distinct text."""
        codes, texts = self.encode(name)
        return np.array([number(text) for text in texts], dtype=np.int64)[codes]


def _read_rows(block: Block, layout: _Layout, reading: Reading) -> _Rows:
    """The rows of a section, counted in the tally; those with too few or too many columns are refused."""
    import pyarrow as pa
    from pyarrow import csv

    at, texts = [], []
    for number, text in enumerate(block.lines):
        if not text or (not number and _is_whole_header(text)):
            continue
        reading.tally.records += 1
        complete = text if text.count("|") == layout.bars else layout.mend(text)
        if complete is None:
            frame = text.removesuffix("|" if layout.trailing_bar else "").count("|") + 1
            detail = f"Expected {len(layout.names)} columns, got {frame}"
            reading.refuse("wrong number of columns", block, number, detail)
        else:
            at.append(number)
            texts.append(complete)
    names = [_KNOWN.get(name.lower(), f"#{place}") for place, name in enumerate(layout.names)]
    names += ["#"] * layout.trailing_bar
    if not texts:
        return _Rows(block, np.empty(0, dtype=np.int64), pa.table({}))
    data = "\n".join(["|".join(names), *texts]).replace("\r", " ").encode()
    table = csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(use_threads=False, block_size=len(data) + 1),
        csv.ParseOptions(delimiter="|", quote_char=False, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=False,
            include_columns=[name for name in names if not name.startswith("#")],
        ),
    )
    return _Rows(block, np.array(at, dtype=np.int64), table)


def _job_ids(rows: _Rows) -> NDArray[np.int64]:
    """Numbers of jobs; members of arrays have them in `JobIDRaw` alone."""
    name = next((name for name in ("JobIDRaw", "JobID") if rows.has(name)), None)
    numbers = np.empty(0, dtype=np.int64) if name is None else _whole_numbers(rows.column(name))
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


def _choose_cluster(rows: _Rows, reading: Reading) -> _Rows:
    """The rows of the cluster that was picked, or all."""
    wanted = rows.compute("Cluster", reading.is_wanted).astype(np.bool_)
    reading.tally.drop("of another cluster", int((~wanted).sum()))
    return rows.where(wanted)


def _read_times(rows: _Rows, reading: Reading) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and ends, nanoseconds since the epoch, `UNSET` or `BAD`.

    Where clocks showed a time twice, the passes that agree with the elapsed time count; without one, those that give
    the longest run: better busy too long than wrongly idle.
    """
    clock = reading.clock
    starts, ends = (read_stamps(rows.column(name), _UNSET) for name in ("Start", "End"))
    start, end = clock.utc_ns(starts, second_pass=False, place=rows.place), clock.utc_ns(ends, second_pass=True)
    set_unset(start, end)
    if clock.zone is None:
        return start, end
    second_start, first_end = clock.utc_ns(starts, second_pass=True), clock.utc_ns(ends, second_pass=False)
    # Of a time that clocks put forward past, the pass before the change is the later instant.
    if (second_start < start).any() or (end < first_end).any():
        reading.note(f"the log has times that clocks in {clock.zone} never showed: is it the right zone?")
    for at in np.flatnonzero((start != second_start) | (end != first_end)).tolist():
        lengths_s = _run_lengths_s(rows, at)
        for first, last in ((start, end), (start, first_end), (second_start, end), (second_start, first_end)):
            if (int(last[at]) - int(first[at])) // NS_PER_S in lengths_s:
                start[at], end[at] = first[at], last[at]
                break
    return start, end


def _run_lengths_s(rows: _Rows, at: int) -> tuple[int, ...]:
    """Seconds that a job may have been on its nodes, by its elapsed time, with and without its suspension."""
    elapsed = _seconds(rows.text("ElapsedRaw", at))
    elapsed = _seconds(rows.text("Elapsed", at)) if elapsed is None else elapsed
    return () if elapsed is None else (elapsed, elapsed + (_seconds(rows.text("Suspended", at)) or 0))


def _seconds(text: str) -> int | None:
    """Seconds of a duration, `1-02:03:04` or plain; None if there is none."""
    seconds = natural_number(text)
    return seconds if seconds is not None else duration_s(text)


def _settle_open_ends(
    rows: _Rows, start: NDArray[np.int64], end: NDArray[np.int64], reading: Reading
) -> NDArray[np.bool_]:
    """Give unfinished jobs an end: after any window, or when their limit allows; and tell which they are.

    A limit is not the end of a job that has run for longer, and waits while a job is suspended. If suspended jobs count
    as idle, they end after the time that they ran.
    """
    goes_on = rows.compute("State", lambda state: state.startswith(_GOING_ON)).astype(np.bool_)
    open_ended = ((end == UNSET) | (goes_on & (end <= start) & (end != BAD))) & (start > BAD)
    end[open_ended] = OPEN_END_NS
    for at in np.flatnonzero(open_ended).tolist() if rows.has("Timelimit") else ():
        limit_s = duration_s(rows.text("Timelimit", at))
        if limit_s is not None:
            elapsed_s, *_ = _run_lengths_s(rows, at) or (0,)
            held_s = max(limit_s, elapsed_s) + (_seconds(rows.text("Suspended", at)) or 0)
            end[at] = min(start[at] + held_s * NS_PER_S, OPEN_END_NS)
    if not {"", "00:00:00", "0"}.issuperset(rows.encode("Suspended")[1]):
        reading.note("some jobs were suspended for a while, sacct does not say when: their nodes count as busy.")
    if reading.settings.suspended == "idle":
        is_suspended = rows.compute("State", lambda state: state.startswith("SUSPENDED")).astype(np.bool_)
        for at in np.flatnonzero(is_suspended & (start > BAD)).tolist():
            if ran_s := _run_lengths_s(rows, at):
                end[at] = start[at] + ran_s[0] * NS_PER_S
            else:
                reading.note("suspended jobs without an elapsed time count as busy: how long they ran is unknown.")
    return np.asarray(open_ended)


def _busy_nodes(rows: _Rows, reading: Reading) -> pd.DataFrame:
    """The busy nodes that rows tell of; those that are not kept are counted, and refused if they are faulty."""
    import pyarrow.compute as pc

    start, end = _read_times(rows, reading)
    is_open = _settle_open_ends(rows, start, end, reading)
    codes, lists = rows.encode("NodeList")
    no_nodes = np.array([text in _NO_NODES for text in lists], dtype=np.bool_)[codes]
    submit = np.full(len(rows), UNSET)
    if rows.has("Submit"):
        submit = reading.clock.utc_ns(read_stamps(rows.column("Submit"), _UNSET), second_pass=False)
    number = rows.compute("NNodes", _count_nodes)
    name = "JobID" if rows.has("JobID") else "JobIDRaw"
    is_step = np.zeros(len(rows), dtype=np.bool_)
    if rows.has(name):
        is_step = pc.match_substring_regex(rows.column(name), _STEP).to_numpy(zero_copy_only=False)

    def expect(what: str, name: str) -> Callable[[int], str]:
        return lambda at: f"Expected {what}, got {one_line(rows.text(name, at)[:60])!r}"

    def refuse(reason: str, at: int, detail: str) -> None:
        reading.refuse(reason, rows.block, int(rows.line[at]), detail)

    times = {"Start": start, "End": end, "Submit": submit}
    checks = (
        Check("job step", is_step),
        Check("no nodes", no_nodes),
        *(Check("impossible time", time == BAD, expect(_TIMES, column)) for column, time in times.items()),
        Check("never started", start == UNSET),
        Check("end before start", end < start),
        Check("zero length", end == start),
        Check("impossible number of nodes", number == _NO_NUMBER, expect("a number of nodes", "NNodes")),
    )
    is_kept = reading.tally.sift(checks, refuse)
    parsed = _node_lists(lists, np.flatnonzero(np.bincount(codes[is_kept])), reading.rows.lists)
    nodes, is_whole = parsed["nodes"].to_numpy()[codes], parsed["is_whole"].to_numpy()[codes]
    unreadable = Check("unreadable node list", is_kept & (nodes < 0), lambda at: str(parsed["fault"][int(codes[at])]))
    is_kept &= reading.tally.sift([unreadable], refuse)
    rows_kept, nodes, number = rows.where(is_kept), nodes[is_kept], number[is_kept]
    sizes = np.diff(reading.rows.lists.ends())[nodes]
    trusted = is_whole[is_kept] & ((number < 0) | (number == sizes))
    frame = pd.DataFrame(
        {
            "start_ns": start[is_kept],
            "end_ns": end[is_kept],
            "nodes": nodes,
            "kind": np.where(trusted, BusyKind.JOB, BusyKind.UNKNOWN),
            "job": _jobs(rows_kept, name),
            "partition": rows_kept.compute("Partition", reading.rows.partition),
            "submit_ns": np.where(submit[is_kept] > BAD, submit[is_kept], OPEN_START_NS),
            "is_open": is_open[is_kept],
            "cluster": rows_kept.compute("Cluster", reading.rows.cluster),
        }
    )
    return frame if reading.settings.unit == "node" else _share_units(frame, rows_kept, sizes, reading)


def _count_nodes(text: str) -> int:
    """How many nodes a row says that its job had: -1 if it does not, `_NO_NUMBER` for what is no number."""
    count = natural_number(text)
    is_unset = text in _UNSET or _ROUNDED.fullmatch(text) is not None
    return count if count is not None else -1 if is_unset else _NO_NUMBER


def _jobs(rows: _Rows, name: str) -> NDArray[np.int64]:
    """A number for each row's job: its own, or a hash of its name."""
    import pyarrow as pa

    if not rows.has(name):
        return np.zeros(len(rows), dtype=np.int64)
    number = _whole_numbers(rows.column(name))
    if (other := number < 0).any():
        texts = rows.column(name).filter(pa.array(other)).to_numpy(zero_copy_only=False)
        number[other] = pd.util.hash_array(texts, categorize=False).view(np.int64)
    return number


def _node_lists(texts: Sequence[str], wanted: NDArray[np.integer], lists: NodeLists) -> pd.DataFrame:
    """The wanted hostlists: number (-1 for others), whether they are whole and not cut off, and faults."""
    numbers, is_whole, faults = np.full(len(texts), -1), np.ones(len(texts), dtype=np.bool_), {}
    complete = []
    for at in wanted.tolist():
        text = texts[at]
        if ":" in text or "|" in text:
            faults[at] = f"Expected names of nodes, got {one_line(text[:60])!r}"
        elif text.endswith("+") or text.count("[") > text.count("]"):
            is_whole[at] = False
            try:
                numbers[at] = lists.add(certain_names(text))
            except LogError as fault:
                faults[at] = str(fault)
        else:
            complete.append(at)
    numbers[complete], refused = lists.parse_all([texts[at] for at in complete])
    faults |= {complete[at]: fault for at, fault in refused.items()}
    return pd.DataFrame(
        {"nodes": numbers, "is_whole": is_whole, "fault": pd.Series(faults, range(len(texts)), dtype="object")}
    )


def _share_units(frame: pd.DataFrame, rows: _Rows, sizes: NDArray[np.int64], reading: Reading) -> pd.DataFrame:
    """The rows with how many GPUs or cores they held of each node; what is over is a row of its own, on some nodes."""
    counts = rows.compute("AllocTRES", lambda text: tres_count(text, reading.settings.unit) if text else ALL_UNITS)
    each = np.maximum(sizes, 1)
    frame = frame.assign(units=np.where(counts >= 0, counts // each, ALL_UNITS))
    over = np.where(counts >= 0, counts % each, 0)
    # One more on the first nodes: which ones had it the log does not tell.
    more = frame[over > 0].assign(units=1, job=lambda some: some["job"] ^ 1)
    lists = reading.rows.lists
    first = [lists.first_of(*pair) for pair in zip(more["nodes"], over[over > 0].tolist(), strict=True)]
    more["nodes"] = np.array(first, dtype=np.int64)
    return pd.concat([more, frame])
