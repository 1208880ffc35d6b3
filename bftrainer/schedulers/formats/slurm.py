"""Import Slurm's `sacct -P` (columns separated by bars, one of them a hostlist), or its JSON."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from bftrainer.errors import LogError, SettingsError, ineffective_options
from bftrainer.files.opening import one_line
from bftrainer.files.text_files import LogRow, head, line_blocks
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.hostlist import certain_names, expand_hostlist
from bftrainer.nodelogs.inventory import tres_count
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS
from bftrainer.nodelogs.slurm_json import SlurmDocument, is_slurm_json
from bftrainer.schedulers.busy_records import ALL_UNITS, BusyKind, as_texts, number_texts
from bftrainer.schedulers.clock import BAD, UNSET, UNSET_TEXTS, duration_s, natural_number, read_stamps, whole_numbers
from bftrainer.schedulers.reading import Check, Importer, Reading, closest_columns, expecting

_NEEDED = ("Start", "End", "NodeList")
_COLUMNS = {
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
_TELLING = frozenset({"jobid", "jobidraw", "nodelist"})
"""One of these is in each header."""
XDMOD_COLUMNS = (
    *("JobID", "JobIDRaw", "Cluster", "Partition", "QOS", "Account", "Group", "GID", "User", "UID", "Submit"),
    *("Eligible", "Start", "End", "Elapsed", "ExitCode", "State", "NNodes", "NCPUS", "ReqCPUS", "ReqMem", "ReqTRES"),
    *("AllocTRES", "Timelimit", "NodeList", "JobName"),
)
"""What XDMoD has sacct print, without a header: https://open.xdmod.org, "Slurm", the shredder's input."""
_NO_NODES = ("", "None assigned", "None", "(null)")
_STEP = r"[^.]*[0-9\]]\.[\pL\pN_]"
_EPOCH = re.compile(r"\d{9,11}", re.ASCII)
_ROUNDED = re.compile(r"\d+(\.\d+)?[KMG]", re.ASCII)
_NO_NUMBER = -2
"""In place of a number of nodes that is none; -1 stands for one that a row does not give."""
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
        """A header with nodes or ids of jobs, or a job's number and two times between bars."""
        if is_slurm_json(lines):
            return True
        fields = lines[0].removesuffix("|").split("|") if lines else []
        if len(fields) > 1 and not _TELLING.isdisjoint(lines[0].lower().split("|")):
            return True
        if len(fields) < 4 or not fields[0][:1].isdigit():
            return False
        epochs = sum(_EPOCH.fullmatch(field) is not None for field in fields[1:])
        return epochs + int(read_stamps(fields)["local"].sum()) >= 2

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files; each may have headers of its own, where exports were concatenated."""
        columns, is_headless, needed = reading.settings.columns, False, {name.lower() for name in _NEEDED}
        for path in paths:
            names: Sequence[str] = ()
            document = SlurmDocument(path, ("jobs",)) if is_slurm_json(head(path)) else None
            for block in document.rows() if document else line_blocks(path):
                # Lines become texts of Python only if they are headers, or have another number of bars.
                lines = pc.list_flatten(pc.split_pattern(pa.array([block.data.decode()]), "\n"))
                lines = pc.utf8_rtrim(lines, "\r")
                reading.tally.path = path
                reading.tally.last_line = block.first + len(lines) - 1 if block.cut_off else -1
                near = {at: lines[at].as_py().lower() for at in _find(lines, "(?i)nodelist")}
                heads = [at for at, line in near.items() if not line[:1].isdigit() and needed <= {*line.split("|")}]
                for low, high in itertools.pairwise(sorted({0, *heads, len(lines)})):
                    begin = next((low + at for at in _find(lines.slice(low, high - low), ".")), high)
                    if begin < high and (begin in heads or not names):
                        names = _find_columns(lines[begin].as_py(), f"{path}:{block.first + begin}", columns)
                        is_headless |= begin not in heads
                    begin += begin in heads
                    if begin < high:
                        rows = lines.slice(begin, high - begin)
                        _take_jobs(_split_rows(rows, block.first + begin, names, reading), reading)
                if block.cut_off:
                    reading.note_cut_off(path)
            for note in document.notes if document else ():
                reading.note(note)
        if columns not in (None, XDMOD_COLUMNS) and not is_headless:
            raise ineffective_options({"--columns": "all files have headers"})


def _find(lines: pa.StringArray, pattern: str) -> list[int]:
    """Indices of the lines with something like this."""
    return np.flatnonzero(pc.match_substring_regex(lines, pattern).to_numpy(zero_copy_only=False)).tolist()


def _find_columns(line: str, place: str, names: Sequence[str] | None) -> Sequence[str]:
    """Columns of the rows from a line on, by its names if it is a header, or else by the settings."""
    if not _TELLING.isdisjoint(line.lower().split("|")) and not line[:1].isdigit():
        names = line.removesuffix("|").split("|")
    elif "|" not in line:
        raise LogError(f"{place}: Expected columns between bars (sacct -P), got {one_line(line[:60])!r}.")
    elif names is None:
        hint = "; --preset xdmod of `import --format table` names them" * (line.count("|") >= len(XDMOD_COLUMNS) - 1)
        raise SettingsError(
            f"{place}: Expected a header, or --columns with the names of the columns, got neither{hint}."
        )
    else:
        place = "--columns"
    lower = [name.lower() for name in names]
    if missing := next((name for name in _NEEDED if name.lower() not in lower), None):
        raise LogError(f"{place}: Expected a column {missing}, got none.{closest_columns(missing, names)}")
    return tuple(names)


def _split_rows(lines: pa.StringArray, first: int, names: Sequence[str], reading: Reading) -> pd.DataFrame:
    """Cells of lines by `_COLUMNS`, labelled by their numbers from `first` on; those that do not fit are refused."""
    free, width, tally = [at for at, name in enumerate(names) if name.lower() in _FREE], len(names), reading.tally
    fits = pc.equal(pc.count_substring(lines, "|"), width - 1).to_numpy(zero_copy_only=False)
    odd = {at: line for at in np.flatnonzero(~fits).tolist() if (line := lines[at].as_py())}
    tally.records += int(fits.sum()) + len(odd)
    for at, line in tuple(odd.items()):
        cells = line.split("|")
        if len(cells) > width and not cells[-1]:  # `sacct -p` ends rows in a bar
            cells.pop()
        if (surplus := len(cells) - width) > 0 and len(free) == 1:
            # Sacct does not escape bars: more than names are those of the only column of users' texts.
            cells[free[0] : free[0] + surplus + 1] = [" ".join(cells[free[0] : free[0] + surplus + 1])]
        odd[at] = "|".join(cells)
        if len(cells) != width:
            del odd[at]
            row = LogRow(tally.path, first + at, [], first + at == tally.last_line)
            tally.refuse("wrong number of columns", row, f"Expected {width} columns, got {len(cells)}")
    is_mended = np.isin(np.arange(len(lines)), list(odd))
    lines = pc.replace_with_mask(lines, pa.array(is_mended), pa.array(odd.values(), pa.string()))
    lines, places = lines.filter(pa.array(fits | is_mended)), first + np.flatnonzero(fits | is_mended)
    cells = pc.list_flatten(pc.split_pattern(lines, "|"))
    columns = {name: pa.repeat("", len(lines)) for name in _COLUMNS.values()}
    for at in reversed(range(width)):  # of columns of one name the first counts
        if (name := _COLUMNS.get(names[at].lower())) is not None:
            columns[name] = cells.take(pa.array(np.arange(at, len(cells), width)))
    return pd.DataFrame({name: as_texts(column) for name, column in columns.items()}).set_axis(places)


def _take_jobs(frame: pd.DataFrame, reading: Reading) -> None:
    """Take the jobs that rows tell of, by `_COLUMNS`; those that are not kept are counted, or refused if faulty."""
    is_wanted = number_texts(frame["Cluster"], reading.is_wanted) > 0
    ids = whole_numbers(frame["JobIDRaw"].where(frame["JobIDRaw"] != "", frame["JobID"]), 18)
    reading.job_ids.append(ids[is_wanted & (ids > 0)])
    name = "JobID" if (frame["JobID"] != "").any() else "JobIDRaw"
    is_cut = ~frame["NodeList"].str.endswith("]").to_numpy(np.bool_)
    is_cut[is_cut] = number_texts(frame["NodeList"][is_cut], _is_cut)
    busy = _find_ends(frame, reading).assign(
        nodes=frame["NodeList"],
        kind=np.where(is_cut, BusyKind.UNKNOWN, BusyKind.JOB),
        job=frame[name],
        count=number_texts(frame["NNodes"], _count_nodes),
        **{column.lower(): frame[column] for column in ("Partition", "Cluster")},
    )
    if (unit := reading.settings.unit) != "node":
        busy["units"] = number_texts(frame["AllocTRES"], lambda text: tres_count(text, unit) if text else ALL_UNITS)
    number = expecting("a number of nodes", frame, "NNodes")
    checks = (
        Check("of another cluster", ~is_wanted),
        Check("job step", frame[name].str.match(_STEP).to_numpy(np.bool_)),
        Check("no nodes", frame["NodeList"].isin(_NO_NODES)),
        *(
            Check("impossible time", busy[f"{column.lower()}_ns"] == BAD, expecting(_TIMES, frame, column))
            for column in ("Start", "End", "Submit")
        ),
        Check("impossible number of nodes", busy["count"] == _NO_NUMBER, number),
    )
    busy["submit_ns"] = busy["submit_ns"].where(busy["submit_ns"] > BAD, OPEN_START_NS)
    reading.take(reading.tally.sift(busy, checks), _expand_nodes)


@lru_cache(1 << 17)
def _seconds(text: str) -> int:
    """Seconds of a duration, `1-02:03:04` or plain; -1 if there is none."""
    number = natural_number(text)
    seconds = duration_s(text) if number is None else number
    return -1 if seconds is None else seconds


def _find_ends(frame: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    """When jobs were submitted, started and ended; of unfinished ones after any window, or when their limit allows."""
    raw_s, elapsed_s, limit_s, suspended_s = (
        number_texts(frame[name], _seconds) for name in ("ElapsedRaw", "Elapsed", "Timelimit", "Suspended")
    )
    elapsed_s, suspended_s = np.where(raw_s < 0, elapsed_s, raw_s), np.maximum(suspended_s, 0)
    start, end = reading.clock.run_ns(
        (frame["Start"].array, frame["End"].array),
        lambda at: f"{reading.tally.path}:{frame.index[at]}",
        (elapsed_s, np.where(elapsed_s < 0, -1, elapsed_s + suspended_s)),
    )
    has_start, state = start > BAD, frame["State"]
    goes_on, is_suspended = (state.str.startswith(some).to_numpy(np.bool_) for some in (_GOING_ON, "SUSPENDED"))
    is_open = has_start & ((end == UNSET) | (goes_on & (end <= start) & (end != BAD)))
    # A limit is not the end of a job that has run for longer, and waits while a job is suspended.
    longest_s = np.where(limit_s < 0, OPEN_END_NS // NS_PER_S, np.maximum(limit_s, elapsed_s) + suspended_s)
    due = np.where(is_open, start, 0) + longest_s * NS_PER_S
    end = np.where(is_open, np.minimum(due, OPEN_END_NS), end)
    if suspended_s.any():
        reading.note("some jobs were suspended for a while, sacct does not say when: their nodes count as busy.")
    if reading.settings.suspended == "idle":
        is_suspended &= has_start
        if (is_suspended & (elapsed_s < 0)).any():
            reading.note("suspended jobs without an elapsed time count as busy: how long they ran is unknown.")
        has_run = is_suspended & (elapsed_s >= 0)
        end = np.where(has_run, np.where(has_run, start, 0) + elapsed_s * NS_PER_S, end)
    submit = reading.clock.utc_ns(read_stamps(frame["Submit"].array), second_pass=False)
    times = {"start_ns": start, "end_ns": end, "submit_ns": submit, "is_open": is_open}
    return pd.DataFrame(times, index=frame.index)


def _expand_nodes(text: str) -> Iterable[str]:
    """Names of the nodes of a list; of one that was cut off those that it certainly held."""
    if ":" in text or "|" in text:
        raise LogError(f"Expected names of nodes, got {one_line(text[:60])!r}")
    return certain_names(text) if _is_cut(text) else expand_hostlist(text)


def _is_cut(text: str) -> bool:
    """Whether a list of nodes was cut off."""
    return not text.endswith("]") and (text.endswith("+") or text.count("[") > text.count("]"))


def _count_nodes(text: str) -> int:
    """How many nodes a row says that its job had: -1 if it does not, `_NO_NUMBER` for what is no number."""
    count = natural_number(text)
    is_unset = text in UNSET_TEXTS or _ROUNDED.fullmatch(text) is not None
    return count if count is not None else -1 if is_unset else _NO_NUMBER
