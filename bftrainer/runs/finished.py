"""Reading result directories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import RunDirectoryError, escaped
from bftrainer.files.documents import parsed_json
from bftrainer.files.opening import translated
from bftrainer.files.parquet_file import parquet_file
from bftrainer.model import NS_PER_S, instant_ns
from bftrainer.model.finished_run import (
    DecisionColumns,
    FinishedRun,
    Holdings,
    PowerPieces,
    StepColumns,
    TaskColumns,
)
from bftrainer.model.records import RUN_SCHEMA
from bftrainer.report.comparison import shortest_tails
from bftrainer.runs.consistency import check_one_run
from bftrainer.runs.summary_schema import check_summary, finite, whole

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read_run", "read_runs", "read_summary", "run_names"]

_SUMMARY = "summary.json"


def read_summary(path: Path) -> dict[str, Any]:
    """The summary of a result directory.

    Raises
    ------
    RunDirectoryError
        If it is none, its summary cannot be read, or it was written by a newer version.
    """
    file = path / _SUMMARY
    with translated(path, RunDirectoryError):
        if not path.is_dir():
            found = "a file" if path.exists() else "nothing"
            raise RunDirectoryError(f"{path}: Expected a result directory, found {found}.")
        if not file.is_file():
            raise RunDirectoryError(f"{path}: Expected a result directory with a {_SUMMARY}, found none in it.")
    try:
        text = file.read_bytes()
    except OSError as error:
        raise RunDirectoryError(f"{file}: Expected the summary of a run, got: {_reason(error)}.") from error
    summary = parsed_json(file, text, RunDirectoryError, "the summary of a run in JSON", finite, whole)
    schema = summary.get("schema") if isinstance(summary, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise RunDirectoryError(f"{file}: Expected the summary of a run with its schema's number, found none.")
    if schema > RUN_SCHEMA:
        raise RunDirectoryError(
            f"{file}: Expected schema {RUN_SCHEMA} or older, got {schema}; it takes a newer version of bftrainer."
        )
    check_summary(summary, file)
    return dict(summary)


def run_names(paths: Sequence[Path]) -> tuple[str, ...]:
    """What runs are called beside one another: their directories' names, and as much before as tells them apart.

    A directory that is given several times is numbered.

    Examples
    --------
    >>> run_names([Path("/tmp/may/x-itrOut"), Path("/tmp/june/x-itrOut"), Path("y-itrOut")])
    ('may/x', 'june/x', 'y')
    """
    whole = [path.resolve() for path in paths]
    tails = shortest_tails(whole)
    bare = [tail.removesuffix("-itrOut") for tail in tails]
    # Names of directories need be no text, and those of runs are written into pages and figures.
    names = [escaped(name) for name in (bare if len(set(bare)) == len(set(whole)) else tails)]
    return tuple(
        name if whole.count(path) == 1 else f"{name} ({whole[: place + 1].count(path)})"
        for place, (path, name) in enumerate(zip(whole, names, strict=True))
    )


def read_runs(paths: Sequence[Path]) -> tuple[FinishedRun, ...]:
    """Runs by the names that tell them apart.

    Raises
    ------
    RunDirectoryError
        If one of them cannot be read.
    """
    return tuple(read_run(path, name) for path, name in zip(paths, run_names(paths), strict=True))


def read_run(path: Path, name: str | None = None) -> FinishedRun:
    """All of a result directory that pages and figures show.

    Raises
    ------
    RunDirectoryError
        If it is none, a file of it is missing, or a column of that, or a file is of another run.
    """
    summary = read_summary(path)
    start_ns = instant_ns(summary["window_start"])
    tasks = _tasks(path / "tasks.parquet", start_ns)
    run = FinishedRun(
        name=name or run_names([path])[0],
        summary=summary,
        steps=_steps(path / "step-logs.csv", start_ns),
        decisions=_decisions(path / "decisions.parquet", start_ns),
        # Names are written into pages and figures, where a control character would do what it is for.
        tasks=replace(tasks, names=tuple(map(escaped, tasks.names))),
        holdings=_holdings(path / "allocation.parquet", start_ns, tasks.names),
        power=_power(path / "power.parquet") if "energy_j" in summary else None,
    )
    check_one_run(run, path)
    return run


_TEXT, _REAL, _COUNT, _TIME = "text", "number", "whole number", "time"
# As these, and there is one in each row.
_AMOUNT, _INSTANT, _NAME = "number of each row", "time of each row", "text of each row"
# Beyond it no figure of a run means anything, and sums of many would overflow.
_MOST = 1e100


def _table(path: Path, kinds: Mapping[str, str], optional: Sequence[str] = ()) -> pa.Table:
    """Columns of a Parquet table, each as what its kind says."""
    with parquet_file(path, RunDirectoryError) as file:
        there = file.schema_arrow.names
        _need(path, kinds, there)
        table = file.read([*kinds, *(name for name in optional if name in there)])
        table.validate(full=True)
    return _typed(path, table, {**kinds, **dict.fromkeys([name for name in optional if name in there], _REAL)})


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or next(iter(str(error).splitlines()), type(error).__name__)
    return str(text).removesuffix(".")


def _need(path: Path, columns: Iterable[str], there: Sequence[str]) -> None:
    for name in columns:
        if name not in there:
            raise RunDirectoryError(f"{path}: Expected a column {name!r}, found {', '.join(sorted(there))}.")
        if there.count(name) > 1:
            raise RunDirectoryError(f"{path}: Expected one column {name!r}, found {there.count(name)}.")


def _typed(path: Path, table: pa.Table, kinds: Mapping[str, str]) -> pa.Table:
    """The table with its columns as they are computed with."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types = {_TEXT: pa.string(), _REAL: pa.float64(), _COUNT: pa.int64(), _TIME: pa.timestamp("ns", tz="UTC")}
    types |= {_AMOUNT: types[_REAL], _INSTANT: types[_TIME], _NAME: types[_TEXT]}
    columns = {}
    for name, kind in kinds.items():
        try:
            columns[name] = table[name].cast(types[kind])
        except pa.ArrowException:
            raise RunDirectoryError(f"{path}: Expected each {name} to be a {kind}, got {table[name].type}.") from None
        if kind in (_COUNT, _AMOUNT, _INSTANT, _NAME) and columns[name].null_count:
            raise RunDirectoryError(f"{path}: Expected each {name} to be a {kind}, got a row without.")
        if kind in (_REAL, _AMOUNT):
            values = pc.drop_null(columns[name]).to_numpy()
            odd = values[~(np.abs(values) < _MOST)]  # NaN compares false
            if odd.size:
                raise RunDirectoryError(f"{path}: Expected each {name} to be a finite number, got {odd[0]:g}.")
    return pa.table(columns)


def _reals(table: pa.Table, name: str) -> NDArray[np.float64]:
    """A column of numbers; NaN where there is none, also for the whole of an optional column."""
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    return np.asarray(table[name].to_numpy(), dtype=np.float64)


def _integers(table: pa.Table, name: str) -> NDArray[np.int64]:
    return np.asarray(table[name].to_numpy(), dtype=np.int64)


def _seconds(column: pa.ChunkedArray, start_ns: int) -> NDArray[np.float64]:
    """Timestamps as seconds after `start_ns`; null becomes NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    stamps = column.cast(pa.int64())
    known = np.asarray(pc.is_valid(stamps).to_numpy(), dtype=bool)
    offsets = np.asarray(pc.fill_null(stamps, 0).to_numpy(), dtype=np.int64) - start_ns
    return np.where(known, offsets / NS_PER_S, np.nan)


def _steps(path: Path, start_ns: int) -> StepColumns:
    import pyarrow as pa
    from pyarrow import csv

    kinds = {"evtTime": _INSTANT, **dict.fromkeys(("nNd", "nNrun", "nJob"), _COUNT)}
    kinds |= dict.fromkeys(("Thr", "ReScost", "PreCost"), _AMOUNT)
    types = {"evtTime": pa.timestamp("ns", tz="UTC"), **dict.fromkeys(("Thr", "ReScost", "PreCost"), pa.float64())}
    types |= dict.fromkeys(("nNd", "nNrun", "nJob"), pa.int64())
    try:
        with path.open("rb") as stream:
            table = csv.read_csv(stream, convert_options=csv.ConvertOptions(column_types=types))
        there = table.column_names
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise RunDirectoryError(f"{path}: Expected the step log of a run, got: {_reason(error)}.") from error
    _need(path, kinds, there)
    table = _typed(path, table, kinds)
    return StepColumns(
        time_s=_seconds(table["evtTime"], start_ns),
        idle=_integers(table, "nNd"),
        used=_integers(table, "nNrun"),
        active=_integers(table, "nJob"),
        work=_reals(table, "Thr"),
        rescale_cost=_reals(table, "ReScost"),
        preemption_cost=_reals(table, "PreCost"),
    )


def _decisions(path: Path, start_ns: int) -> DecisionColumns:
    table = _table(path, {"time": _INSTANT, "solve_s": _AMOUNT, "held": _NAME, "gap": _REAL})
    place = {name: number for number, name in enumerate(DecisionColumns.HELD)}
    held = table["held"].to_pylist()
    unknown = set(held) - place.keys()
    if unknown:
        raise RunDirectoryError(f"{path}: Expected {', '.join(place)} in 'held', got {min(unknown, key=str)!r}.")
    return DecisionColumns(
        time_s=_seconds(table["time"], start_ns),
        solve_s=_reals(table, "solve_s"),
        held=np.array([place[name] for name in held], dtype=np.int64),
        gap=_reals(table, "gap"),
    )


def _tasks(path: Path, start_ns: int) -> TaskColumns:
    times = ("submitted", "started", "completed")
    reals = ("work_done", "work_total", "node_s", "rescale_cost", "preemption_cost")
    counts = ("rescales", "preemptions")
    kinds = {"task": _NAME} | dict.fromkeys(times, _TIME) | dict.fromkeys(reals, _AMOUNT)
    kinds |= dict.fromkeys(counts, _COUNT)
    table = _table(path, kinds, ("energy_j", "train_s"))
    columns: dict[str, Any] = {f"{name}_s": _seconds(table[name], start_ns) for name in times}
    columns |= {name: _reals(table, name) for name in (*reals, "energy_j", "train_s")}
    columns |= {name: _integers(table, name) for name in counts}
    return TaskColumns(names=tuple(table["task"].to_pylist()), **columns)


def _power(path: Path) -> PowerPieces:
    names = ("begin_s", "end_s", "tasks_w", "idle_w", "cap_w")
    table = _table(path, dict.fromkeys(names, _REAL))
    return PowerPieces(**{name: _reals(table, name) for name in names})


def _holdings(path: Path, start_ns: int, names: tuple[str, ...]) -> Holdings:
    """Node counts of tasks from the moves of single nodes: who gets one, and who had it before."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = _table(path, {"time": _INSTANT, "node": _NAME, "task": _TEXT})
    time_s = _seconds(table["time"], start_ns)
    node = pc.rank(table["node"], tiebreaker="dense").to_numpy()
    known = pc.index_in(table["task"].combine_chunks(), value_set=pa.array(names, pa.string()))
    owner = np.asarray(pc.fill_null(known, -1).to_numpy(zero_copy_only=False), dtype=np.int64)
    order = np.lexsort((np.arange(node.size), node))
    same = np.append(False, node[order][1:] == node[order][:-1])[: node.size]
    former = np.full(node.size, -1, dtype=np.int64)
    former[order] = np.where(same, np.append(-1, owner[order][:-1])[: node.size], -1)
    task, when = np.concatenate((owner, former)), np.concatenate((time_s, time_s))
    change = np.repeat(np.array([1, -1]), node.size)
    real = task >= 0
    task, when, change = task[real], when[real], change[real]
    order = np.lexsort((when, task))
    task, when, total = task[order], when[order], np.cumsum(change[order])
    # The sum runs on over all tasks: what stood before a task's first row is taken off again.
    first = np.flatnonzero(np.append(True, task[1:] != task[:-1])[: task.size])
    before = np.append(0, total)[first]
    total -= np.repeat(before, np.diff(np.append(first, task.size)))
    last = np.append((task[1:] != task[:-1]) | (when[1:] != when[:-1]), True)[: task.size]
    return Holdings(time_s=when[last], task=task[last], nodes=total[last])
