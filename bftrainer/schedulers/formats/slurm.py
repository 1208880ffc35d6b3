"""Import Slurm's `sacct -P` (columns separated by bars, one of them a hostlist), or its JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

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
_JOBS = frozenset({"jobid", "jobidraw"})
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
"""In place of a number of nodes that is none; -1 stands for one that a row does not give."""
_NOTHING: list[str] = []
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
        if len(fields) > 1 and (_is_whole_header(lines[0]) or not _JOBS.isdisjoint(lines[0].lower().split("|"))):
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
                        _take_jobs(_split_rows(block, range(first + (first in heads), end), names, reading), reading)
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


def _find_columns(block: Block, at: int, names: Sequence[str] | None) -> Sequence[str]:
    """Columns of the rows from a line on, by its names if it is a header, or else by the settings."""
    line, place = block.lines[at], f"{block.path}:{block.first + at}"
    if not (_JOBS | {"nodelist"}).isdisjoint(line.lower().split("|")) and not line[:1].isdigit():
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


def _split_rows(block: Block, lines: range, names: Sequence[str], reading: Reading) -> pd.DataFrame:
    """Cells of some lines of a block by `_COLUMNS`, and their `row`; those that do not fit are refused."""
    free, texts, places = [at for at, name in enumerate(names) if name.lower() in _FREE], [], []
    cut = len(block.lines) - 1 if block.cut_off else -1
    for at in lines:
        if not block.lines[at]:
            continue
        reading.tally.records += 1
        cells = block.lines[at].split("|")
        if len(cells) > len(names) and not cells[-1]:  # `sacct -p` ends rows in a bar
            cells.pop()
        if (surplus := len(cells) - len(names)) > 0 and len(free) == 1:
            # Sacct does not escape bars: more than names are those of the only column of users' texts.
            cells[free[0] : free[0] + surplus + 1] = [" ".join(cells[free[0] : free[0] + surplus + 1])]
        if len(cells) == len(names):
            texts.append(tuple(cells))  # unlike lists, these take no garbage collection
            places.append(at)
        else:
            row, detail = LogRow(block.path, block.first + at, [], at == cut), f"Expected {len(names)} columns"
            reading.tally.refuse("wrong number of columns", row, f"{detail}, got {len(cells)}")
    rows = [LogRow(block.path, block.first + at, _NOTHING, at == cut) for at in places]
    frame = pd.DataFrame(texts, columns=[_COLUMNS.get(name.lower(), name) for name in names], dtype=object)
    frame = frame.loc[:, ~frame.columns.duplicated()]  # of columns of one name the first counts
    return frame.reindex(columns=list(_COLUMNS.values()), fill_value="").assign(row=rows)


def _take_jobs(frame: pd.DataFrame, reading: Reading) -> None:
    """Take the jobs that rows tell of, by `_COLUMNS`; those that are not kept are counted, or refused if faulty."""
    is_wanted = number_texts(frame["Cluster"], reading.is_wanted) > 0
    ids = number_texts(
        frame["JobIDRaw"].where(frame["JobIDRaw"] != "", frame["JobID"]), lambda text: natural_number(text) or -1
    )
    reading.job_ids.append(ids[is_wanted & (ids > 0)])
    name = "JobID" if (frame["JobID"] != "").any() else "JobIDRaw"
    busy = _settle_open_ends(_measure_runs(frame, reading), reading).assign(
        nodes=frame["NodeList"],
        kind=np.where(number_texts(frame["NodeList"], _is_cut) > 0, BusyKind.UNKNOWN, BusyKind.JOB),
        job=frame[name],
        count=number_texts(frame["NNodes"], _count_nodes),
        **{column.lower(): frame[column] for column in ("Partition", "Cluster")},
    )
    if (unit := reading.settings.unit) != "node":
        busy["units"] = number_texts(frame["AllocTRES"], lambda text: tres_count(text, unit) if text else ALL_UNITS)
    number = expecting("a number of nodes", frame, "NNodes")
    checks = (
        Check("of another cluster", ~is_wanted),
        Check("job step", number_texts(frame[name], lambda text: _STEP.match(text) is not None) > 0),
        Check("no nodes", frame["NodeList"].isin(_NO_NODES)),
        *(
            Check("impossible time", busy[f"{column.lower()}_ns"] == BAD, expecting(_TIMES, frame, column))
            for column in ("Start", "End", "Submit")
        ),
        Check("impossible number of nodes", busy["count"] == _NO_NUMBER, number),
    )
    busy["submit_ns"] = busy["submit_ns"].where(busy["submit_ns"] > BAD, OPEN_START_NS)
    reading.take(reading.tally.sift(busy, checks), _expand_nodes)


def _seconds(text: str) -> int:
    """Seconds of a duration, `1-02:03:04` or plain; -1 if there is none."""
    number = natural_number(text)
    seconds = duration_s(text) if number is None else number
    return -1 if seconds is None else seconds


def _measure_runs(frame: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    """When jobs started and ended; seconds that they ran, without suspension, and may run, -1 if unknown."""
    raw_s, elapsed_s, limit_s, suspended_s = (
        number_texts(frame[name], _seconds) for name in ("ElapsedRaw", "Elapsed", "Timelimit", "Suspended")
    )
    elapsed_s, suspended_s = np.where(raw_s < 0, elapsed_s, raw_s), np.maximum(suspended_s, 0)
    start_ns, end_ns = reading.clock.run_ns(
        (frame["Start"].to_list(), frame["End"].to_list()),
        UNSET_TEXTS,
        lambda at: str(frame["row"].iloc[at].place),
        (elapsed_s, np.where(elapsed_s < 0, -1, elapsed_s + suspended_s)),
    )
    submit_ns = reading.clock.utc_ns(read_stamps(frame["Submit"].to_list(), UNSET_TEXTS), second_pass=False)
    times = {"start_ns": start_ns, "end_ns": end_ns, "submit_ns": submit_ns}
    return frame[["row", "State"]].assign(**times, elapsed_s=elapsed_s, limit_s=limit_s, suspended_s=suspended_s)


def _settle_open_ends(runs: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    """Give unfinished jobs an end: after any window, or when their limit allows; and tell which they are."""
    # A limit is not the end of a job that has run for longer, and waits while a job is suspended.
    start, end, elapsed_s = runs["start_ns"], runs["end_ns"], runs["elapsed_s"]
    has_start, state = start > BAD, runs["State"]
    is_open = has_start & ((end == UNSET) | (state.str.startswith(_GOING_ON) & (end <= start) & (end != BAD)))
    held_s = (runs["limit_s"].clip(lower=elapsed_s) + runs["suspended_s"]).where(runs["limit_s"] >= 0)
    due = start.where(is_open, 0) + held_s.fillna(0).astype("int64") * NS_PER_S
    end = end.mask(is_open, due.clip(upper=OPEN_END_NS).where(held_s.notna(), OPEN_END_NS))
    if runs["suspended_s"].any():
        reading.note("some jobs were suspended for a while, sacct does not say when: their nodes count as busy.")
    if reading.settings.suspended == "idle":
        is_suspended = has_start & state.str.startswith("SUSPENDED")
        if (is_suspended & (elapsed_s < 0)).any():
            reading.note("suspended jobs without an elapsed time count as busy: how long they ran is unknown.")
        has_run = is_suspended & (elapsed_s >= 0)
        end = end.mask(has_run, start.where(has_run, 0) + elapsed_s * NS_PER_S)
    return runs.assign(end_ns=end, is_open=is_open)


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
