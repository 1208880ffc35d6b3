"""Import Slurm's `sacct -P` (columns separated by bars, one of them a hostlist), or its JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bftrainer.errors import LogError, SettingsError, suggestion, unused_options
from bftrainer.files.opening import one_line
from bftrainer.files.text_files import Block, LogRow, head, line_blocks
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.hostlist import certain_names, expand_hostlist
from bftrainer.nodelogs.inventory import tres_count
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS
from bftrainer.nodelogs.slurm_json import SlurmDocument, is_slurm_json
from bftrainer.schedulers.busy_records import ALL_UNITS, BusyKind, number_texts
from bftrainer.schedulers.clock import BAD, UNSET, UNSET_TEXTS, duration_s, natural_number, read_stamps
from bftrainer.schedulers.reading import Check, Importer, Reading, expecting

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
XDMOD_COLUMNS = (
    *("JobID", "JobIDRaw", "Cluster", "Partition", "QOS", "Account", "Group", "GID", "User", "UID", "Submit"),
    *("Eligible", "Start", "End", "Elapsed", "ExitCode", "State", "NNodes", "NCPUS", "ReqCPUS", "ReqMem", "ReqTRES"),
    *("AllocTRES", "Timelimit", "NodeList", "JobName"),
)
"""What XDMoD has sacct print, without a header: https://open.xdmod.org, "Slurm", the shredder's input."""
_NO_NODES = ("", "None assigned", "None", "(null)")
_STEP = re.compile(r"[^.]*[0-9\]]\.\w")
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
        columns, is_headless = reading.settings.columns, False
        for path in paths:
            names: Sequence[str] = ()
            document = SlurmDocument(path, ("jobs",)) if is_slurm_json(head(path)) else None
            for block in document.rows() if document else line_blocks(path):
                at, heads = 0, [at for at, line in enumerate(block.lines) if _is_whole_header(line)]
                for end in (*heads, len(block.lines)):
                    first = next((row for row in range(at, end) if block.lines[row]), None)
                    if first is not None:
                        if first in heads or not names:
                            names = _find_columns(block, first, columns)
                            is_headless |= first not in heads
                        _take_rows(block, range(first + (first in heads), end), names, reading)
                    at = end
                if block.cut_off:
                    reading.note_cut_off(path)
            for note in document.notes if document else ():
                reading.note(note)
        if columns not in (None, XDMOD_COLUMNS) and not is_headless:
            raise unused_options({"--columns": "all files have headers"})


def _is_whole_header(line: str) -> bool:
    """Whether a line names all columns that are needed."""
    return not line[:1].isdigit() and {name.lower() for name in _NEEDED} <= set(line.lower().split("|"))


def _names_jobs(line: str) -> bool:
    return not {"jobid", "jobidraw"}.isdisjoint(line.lower().split("|"))


def _find_columns(block: Block, at: int, names: Sequence[str] | None) -> Sequence[str]:
    """Columns of the rows from a line on, by its names if it is a header, or else by the settings."""
    line, place = block.lines[at], f"{block.path}:{block.first + at}"
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
        place = "--columns"
    lower = [name.lower() for name in names]
    if missing := next((name for name in _NEEDED if name.lower() not in lower), None):
        raise LogError(f"{place}: Expected a column {missing}, got none.{suggestion(missing, names)}")
    return tuple(names)


def _split(line: str, names: Sequence[str]) -> list[str]:
    """Cells of a line. Sacct does not escape bars: more than names are those of the only column of users' texts."""
    cells = line.split("|")
    if len(cells) > len(names) and not cells[-1]:  # `sacct -p` ends rows in a bar
        cells.pop()
    free = [at for at, name in enumerate(names) if name.lower() in _FREE]
    surplus = len(cells) - len(names)
    if surplus > 0 and len(free) == 1:
        cells[free[0] : free[0] + surplus + 1] = [" ".join(cells[free[0] : free[0] + surplus + 1])]
    return cells


def _take_rows(block: Block, lines: range, names: Sequence[str], reading: Reading) -> None:
    """Split some lines of a block into cells, and take their jobs."""

    def row(at: int) -> LogRow:
        return LogRow(block.path, block.first + at, [], block.is_cut_off(at))

    places, texts = [], []
    for at in lines:
        if not block.lines[at]:
            continue
        reading.tally.records += 1
        cells = block.lines[at].split("|")
        cells = cells if len(cells) == len(names) else _split(block.lines[at], names)
        if len(cells) == len(names):
            places.append(at)
            texts.append(cells)
        else:
            detail = f"Expected {len(names)} columns, got {len(cells)}"
            reading.tally.refuse("wrong number of columns", row(at), detail)
    frame = pd.DataFrame(texts, places, [_COLUMNS.get(name.lower(), name) for name in names], dtype=object)
    frame = frame.loc[:, ~frame.columns.duplicated()]  # of columns of one name the first counts
    _take_jobs(frame.reindex(columns=list(_COLUMNS.values()), fill_value=""), row, reading)


def _take_jobs(frame: pd.DataFrame, row: Callable[[int], LogRow], reading: Reading) -> None:
    """Take the jobs that rows tell of, by `_COLUMNS`; those that are not kept are counted, or refused if faulty."""
    is_wanted = number_texts(frame["Cluster"], reading.is_wanted) > 0
    ids = number_texts(
        frame["JobIDRaw"].where(frame["JobIDRaw"] != "", frame["JobID"]), lambda text: natural_number(text) or -1
    )
    reading.job_ids.append(ids[is_wanted & (ids > 0)])
    name = "JobID" if (frame["JobID"] != "").any() else "JobIDRaw"
    runs = _measure_runs(frame)
    elapsed_s, suspended_s = runs["elapsed_s"].to_numpy(), runs["suspended_s"].to_numpy()
    lengths_s = elapsed_s, np.where(elapsed_s < 0, -1, elapsed_s + suspended_s)
    written = frame["Start"].to_list(), frame["End"].to_list()
    start_ns, end_ns = reading.clock.run_ns(written, UNSET_TEXTS, lambda at: row(frame.index[at]).place, lengths_s)
    submit_ns = reading.clock.utc_ns(read_stamps(frame["Submit"].to_list(), UNSET_TEXTS), second_pass=False)
    times = pd.DataFrame({"start_ns": start_ns, "end_ns": end_ns, "submit_ns": submit_ns}, frame.index)
    is_open = _settle_open_ends(frame, times, runs, reading)
    count = number_texts(frame["NNodes"], _count_nodes)
    number = expecting("a number of nodes", frame, "NNodes")
    checks = (
        Check("of another cluster", ~is_wanted),
        Check("job step", number_texts(frame[name], lambda text: _STEP.match(text) is not None) > 0),
        Check("no nodes", frame["NodeList"].isin(_NO_NODES)),
        *(
            Check("impossible time", times[f"{column.lower()}_ns"] == BAD, expecting(_TIMES, frame, column))
            for column in ("Start", "End", "Submit")
        ),
        Check("impossible number of nodes", count == _NO_NUMBER, number),
    )
    busy = times.assign(
        submit_ns=times["submit_ns"].where(times["submit_ns"] > BAD, OPEN_START_NS),
        nodes=frame["NodeList"],
        kind=np.where(number_texts(frame["NodeList"], _is_cut) > 0, BusyKind.UNKNOWN, BusyKind.JOB),
        job=frame[name],
        is_open=is_open,
        count=count,
        **{column.lower(): frame[column] for column in ("Partition", "Cluster")},
    )
    if (unit := reading.settings.unit) != "node":
        busy["units"] = number_texts(frame["AllocTRES"], lambda text: tres_count(text, unit) if text else ALL_UNITS)
    reading.take(reading.tally.sift(busy, checks, row), row, _choose_reader)


def _seconds(text: str) -> int:
    """Seconds of a duration, `1-02:03:04` or plain; -1 if there is none."""
    number = natural_number(text)
    seconds = duration_s(text) if number is None else number
    return -1 if seconds is None else seconds


def _measure_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """Seconds that jobs ran (`elapsed_s`, without suspension), may run (`limit_s`), -1 if unknown; and suspended."""
    raw_s, elapsed_s, limit_s, suspended_s = (
        number_texts(frame[name], _seconds) for name in ("ElapsedRaw", "Elapsed", "Timelimit", "Suspended")
    )
    elapsed_s, suspended_s = np.where(raw_s < 0, elapsed_s, raw_s), np.maximum(suspended_s, 0)
    return pd.DataFrame({"elapsed_s": elapsed_s, "limit_s": limit_s, "suspended_s": suspended_s})


def _settle_open_ends(
    frame: pd.DataFrame, times: pd.DataFrame, runs: pd.DataFrame, reading: Reading
) -> NDArray[np.bool_]:
    """Give unfinished jobs an end: after any window, or when their limit allows; and tell which they are."""
    # A limit is not the end of a job that has run for longer, and waits while a job is suspended.
    start, end = times["start_ns"].to_numpy(), times["end_ns"].to_numpy()
    elapsed_s, limit_s, suspended_s = (runs[name].to_numpy() for name in ("elapsed_s", "limit_s", "suspended_s"))
    goes_on = number_texts(frame["State"], lambda state: state.startswith(_GOING_ON)) > 0
    is_open = ((end == UNSET) | (goes_on & (end <= start) & (end != BAD))) & (start > BAD)
    due = np.where(is_open, start, 0) + (np.maximum(limit_s, elapsed_s) + suspended_s) * NS_PER_S
    end = np.where(is_open, np.where(limit_s >= 0, np.minimum(due, OPEN_END_NS), OPEN_END_NS), end)
    if suspended_s.any():
        reading.note("some jobs were suspended for a while, sacct does not say when: their nodes count as busy.")
    if reading.settings.suspended == "idle":
        is_suspended = (number_texts(frame["State"], lambda state: state.startswith("SUSPENDED")) > 0) & (start > BAD)
        if (is_suspended & (elapsed_s < 0)).any():
            reading.note("suspended jobs without an elapsed time count as busy: how long they ran is unknown.")
        has_run = is_suspended & (elapsed_s >= 0)
        end = np.where(has_run, np.where(has_run, start, 0) + elapsed_s * NS_PER_S, end)
    times["end_ns"] = end
    return np.asarray(is_open)


def _choose_reader(text: str) -> Callable[[str], Iterable[str]]:
    """What reads a list of nodes: of one that was cut off it gives those that it certainly held."""
    return _refuse_names if ":" in text or "|" in text else certain_names if _is_cut(text) else expand_hostlist


def _refuse_names(text: str) -> Iterable[str]:
    raise LogError(f"Expected names of nodes, got {one_line(text[:60])!r}")


def _is_cut(text: str) -> bool:
    """Whether a list of nodes was cut off."""
    return not text.endswith("]") and (text.endswith("+") or text.count("[") > text.count("]"))


def _count_nodes(text: str) -> int:
    """How many nodes a row says that its job had: -1 if it does not, `_NO_NUMBER` for what is no number."""
    count = natural_number(text)
    is_unset = text in UNSET_TEXTS or _ROUNDED.fullmatch(text) is not None
    return count if count is not None else -1 if is_unset else _NO_NUMBER
