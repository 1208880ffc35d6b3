"""Read a run's directory, and check its form before anything is recomputed."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bftrainer.audit.input_files import moment_ns
from bftrainer.audit.parts import Part, UnusableError, printable

SCHEMA = 1
Rows = list[dict[str, Any]]

_TIME, _TEXT, _WHOLE, _REAL = pa.timestamp("ns", "UTC"), pa.string(), pa.int64(), pa.float64()
_WHOLES, _TEXTS = pa.list_(_WHOLE), pa.list_(_TEXT)
# Column: its type, and whether a cell may be empty.
_Columns = dict[str, tuple[pa.DataType, bool]]
_DECISIONS: _Columns = {
    **dict.fromkeys(("event", "nodes"), (_WHOLE, False)),
    "time": (_TIME, False),
    "tasks": (_TEXTS, False),
    **dict.fromkeys(("before", "after"), (_WHOLES, False)),
    **dict.fromkeys(("objective", "bound", "gap"), (_REAL, True)),
    **dict.fromkeys(("stop_reason", "held", "solver"), (_TEXT, False)),
    "solve_s": (_REAL, False),
    "decided_by": (_TEXT, False),
    **dict.fromkeys(("model_rows", "model_columns"), (_WHOLE, True)),
    "backend_s": (_REAL, True),
}
_TUNED_DECISIONS: _Columns = {
    **dict.fromkeys(("batch_size", "power_limit_w"), (_WHOLES, False)),
    **dict.fromkeys(("drawn_w", "cap_w"), (_REAL, True)),
}
_TASKS: _Columns = {
    "task": (_TEXT, False),
    "submitted": (_TIME, False),
    **dict.fromkeys(("started", "completed"), (_TIME, True)),
    **dict.fromkeys(("work_done", "work_total", "node_s", "rescale_cost", "preemption_cost"), (_REAL, False)),
    **dict.fromkeys(("rescales", "preemptions"), (_WHOLE, False)),
}
_OPTIONAL_TASKS: _Columns = {"group": (_TEXT, True), "saving_cost": (_REAL, False)}
_TUNED_TASKS: _Columns = {
    **dict.fromkeys(("energy_j", "train_s"), (_REAL, True)),
    **dict.fromkeys(("attempts", "batch_size", "power_limit_w"), (_WHOLE, True)),
    "reached": (pa.bool_(), True),
}
_ALLOCATION: _Columns = {"time": (_TIME, False), "node": (_TEXT, False), "task": (_TEXT, True)}
_POWER: _Columns = {
    **dict.fromkeys(("begin", "end"), (_TIME, False)),
    **dict.fromkeys(("begin_s", "end_s", "tasks_w", "idle_w"), (_REAL, False)),
    "cap_w": (_REAL, True),
}
_ATTEMPTS: _Columns = {
    **dict.fromkeys(("group", "task"), (_TEXT, False)),
    **dict.fromkeys(("recurrence", "attempt", "batch_size", "power_limit_w"), (_WHOLE, False)),
    **dict.fromkeys(("energy_j", "train_s"), (_REAL, False)),
    "reached": (pa.bool_(), False),
}
_BELIEFS: _Columns = {
    **dict.fromkeys(("event", "nodes"), (_WHOLE, False)),
    "task": (_TEXT, False),
    "throughput": (_REAL, False),
}
STEP_COLUMNS = (
    *("evtTime", "Thr", "Rate", "ReScost", "evt", "Nleft", "Npre", "Njoin"),
    *("nJob", "nNd", "nJrun", "nNrun", "PreCost"),
)
SAVE_COLUMN = "SaveCost"
_WHOLE_STEPS = frozenset(("evt", "Nleft", "Npre", "Njoin", "nJob", "nNd", "nJrun", "nNrun"))


@dataclass(frozen=True)
class RecordedRun:
    """All files of a run; times in nanoseconds since the epoch, moves as (time, node, task or None)."""

    summary: dict[str, Any]
    steps: Rows
    decisions: Rows
    tasks: Rows
    moves: list[tuple[int, str, str | None]]
    power: Rows | None
    attempts: Rows | None
    beliefs: Rows | None
    unknown: list[str]

    @property
    def settings(self) -> dict[str, Any]:
        """What the run was asked to do."""
        return dict(self.summary["settings"])

    @property
    def completed(self) -> dict[str, int]:
        """When tasks completed, of those that did."""
        return {row["task"]: row["completed"] for row in self.tasks if row["completed"] is not None}


def read_record(run: Path) -> RecordedRun:
    """Read a run's directory.

    Raises
    ------
    UnusableError
        If a file is missing or damaged, or the run is of a newer form.
    """
    summary = _summary(run)
    unknown: list[str] = []
    tuned = (run / "attempts.parquet").is_file()
    decisions = _table(run, "decisions", _DECISIONS | (_TUNED_DECISIONS if tuned else {}), unknown)
    lists = ("before", "after", "batch_size", "power_limit_w") if tuned else ("before", "after")
    for row in decisions:
        wrong = next((name for name in lists if len(row[name]) != len(row["tasks"])), None)
        if wrong or None in row["tasks"] + row["before"] + row["after"]:
            raise UnusableError(f"decisions.parquet, event {row['event']}: Expected {wrong or 'counts'} of each task")
    moves = _table(run, "allocation", _ALLOCATION, unknown)
    return RecordedRun(
        summary=summary,
        steps=_steps(run / "step-logs.csv", unknown),
        decisions=decisions,
        tasks=_table(run, "tasks", _TASKS | (_TUNED_TASKS if tuned else {}), unknown, _OPTIONAL_TASKS),
        moves=[(row["time"], row["node"], row["task"]) for row in moves],
        power=_table(run, "power", _POWER, unknown) if (run / "power.parquet").is_file() else None,
        attempts=_table(run, "attempts", _ATTEMPTS, unknown) if tuned else None,
        beliefs=_table(run, "beliefs", _BELIEFS, unknown) if (run / "beliefs.parquet").is_file() else None,
        unknown=unknown,
    )


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"Expected a finite number, got {text}")
    return value


def _summary(run: Path) -> dict[str, Any]:
    path = run / "summary.json"
    if not path.is_file():
        raise UnusableError("Expected a result directory with a summary.json, found none")
    summary = json.loads(path.read_text(encoding="utf-8"), parse_float=_finite, parse_constant=_finite)
    if not isinstance(summary, dict) or not isinstance(summary.get("settings"), dict):
        raise UnusableError("summary.json: Expected the summary of a replay")
    if summary.get("schema", SCHEMA) != SCHEMA:
        raise UnusableError(f"summary.json: Expected schema {SCHEMA}, got {printable(str(summary['schema']))}")
    if not isinstance(summary.get("inputs"), dict):
        raise UnusableError("summary.json: Expected the inputs of the run, found none")
    return summary


def _table(run: Path, name: str, columns: _Columns, unknown: list[str], more: _Columns | None = None) -> Rows:
    """Rows of a Parquet table; times as nanoseconds."""
    where = f"{name}.parquet"
    if not (run / where).is_file():
        raise UnusableError(f"{where}: Expected this file of a run, found none")
    with (run / where).open("rb") as stream:
        table = pq.read_table(stream)
    there = set(table.column_names)
    known = columns | {key: kind for key, kind in (more or {}).items() if key in there}
    unknown += [f"{where}, column {printable(key)}" for key in table.column_names if key not in known]
    kept = {}
    for key, (kind, empty) in known.items():
        if key not in there:
            raise UnusableError(f"{where}: Expected a column {key}, found none")
        column = table[key].cast(kind)
        if not empty and column.null_count:
            raise UnusableError(f"{where}: Expected {key} in every row, found a row without")
        kept[key] = column.cast(pa.int64()) if kind == _TIME else column
    return list(pa.table(kept).to_pylist())


def _steps(path: Path, unknown: list[str]) -> Rows:
    """Rows of the step log, with their time in nanoseconds under `time`."""
    if not path.is_file():
        raise UnusableError(f"{path.name}: Expected this file of a run, found none")
    text = path.read_text(encoding="utf-8")
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    names = list(reader.fieldnames or ())
    missing = [name for name in STEP_COLUMNS if name not in names]
    if missing:
        raise UnusableError(f"{path.name}: Expected a column {missing[0]}, found none")
    kept = [*STEP_COLUMNS[1:], *(name for name in names if name == SAVE_COLUMN)]
    unknown += [f"{path.name}, column {printable(name)}" for name in names if name not in ("evtTime", *kept)]
    rows: Rows = []
    for row in reader:
        if None in row or None in row.values():
            raise UnusableError(f"{path.name}:{reader.line_num}: Expected {len(names)} cells")
        figures: dict[str, Any] = {name: _finite(row[name]) for name in kept}
        figures |= {name: int(figures[name]) for name in _WHOLE_STEPS if figures[name].is_integer()}
        rows.append(figures | {"time": moment_ns(row["evtTime"])})
    return rows


_SEALED = re.compile(r"([0-9a-f]{64})  (.+)")


def check_files(run: Path) -> Part:
    """Compare the files of a run with the checksums that were written when they were whole."""
    part = Part("files are as they were written, by checksum")
    manifest = run / ".bftrainer"
    sealed = (
        [_SEALED.fullmatch(line) for line in manifest.read_text("utf-8").splitlines()] if manifest.is_file() else []
    )
    for digest, name in (match.groups() for match in sealed if match):
        path = run / name
        there = path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest
        part.expect(there, "{} is missing, or not as it was written", name)
    return part


def found_inputs(record: RecordedRun, run: Path, part: Part) -> dict[str, Path | list[Path]]:
    """Inputs of the run by kind, found and compared with their checksums.

    Raises
    ------
    UnusableError
        If one is not found, or was no file.
    """
    found: dict[str, Path | list[Path]] = {}
    for kind, entry in record.summary["inputs"].items():
        if isinstance(entry, list):
            found[kind] = [_found(each, run, part) for each in entry]
        elif entry is not None:
            found[kind] = _found(entry, run, part)
    for kind in ("node_log", "tasks"):
        if kind not in found:
            raise UnusableError(
                f"the run's {kind} was given from Python and is no file: there is nothing to audit it by"
            )
    return found


def _found(entry: dict[str, Any], run: Path, part: Part) -> Path:
    given = Path(entry["path"])
    # As named from here, else from the directory that the run's stands in.
    for path in (given, run.resolve().parent / given):
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            part.expect(digest == entry["sha256"], "{} has changed since the run", path)
            return path
    raise UnusableError(printable(f"input {given} not found"))
