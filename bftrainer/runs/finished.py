"""Read the directories of finished runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import RunDirectoryError, escaped
from bftrainer.files.arrow import parquet_file
from bftrainer.files.documents import parsed_json
from bftrainer.files.manifest import check_intact
from bftrainer.files.opening import open_file, translated, whole_bytes
from bftrainer.model import NS_PER_S, instant_ns
from bftrainer.model.records import RUN_SCHEMA, FinishedRun, Holdings, NodeMoves
from bftrainer.report.comparison import shortest_tails
from bftrainer.runs.config import OPTIONS
from bftrainer.runs.consistency import check_one_run, check_summary
from bftrainer.runs.run_tables import ALLOCATION, ATTEMPTS, DECISIONS, POWER, STEPS, TASKS, Holds, RunTable

if TYPE_CHECKING:
    import pyarrow as pa

_SUMMARY = "summary.json"


def read_summary(path: Path) -> dict[str, Any]:
    """Read the summary of a result directory.

    Raises
    ------
    RunDirectoryError
        If it is not one, its summary cannot be read, or it was written by a newer version.
    """
    file = path / _SUMMARY
    with translated(path, RunDirectoryError):
        if not path.is_dir():
            found = "a file" if path.exists() else "nothing"
            raise RunDirectoryError(f"{path}: Expected a result directory, found {found}.")
        if not file.is_file():
            raise RunDirectoryError(f"{path}: Expected a result directory with a {_SUMMARY}, found none in it.")
    try:
        check_intact(file)
        text = whole_bytes(file)
    except OSError as error:
        raise RunDirectoryError(f"{file}: Cannot read the summary: {_reason(error)}.") from error
    summary = parsed_json(file, text, RunDirectoryError, "the summary of a run in JSON", _finite, _whole)
    schema = summary.get("schema") if isinstance(summary, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise RunDirectoryError(f"{file}: Expected the schema number in the summary, found none.")
    if schema > RUN_SCHEMA:
        raise RunDirectoryError(
            f"{file}: Expected schema {RUN_SCHEMA} or older, got {schema}; it takes a newer version of bftrainer."
        )
    check_summary(summary, file)
    return dict(summary)


def _finite(text: str) -> float:
    """Parse a number of a summary; infinity and NaN are refused."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"Expected a finite number, got {text}")
    return value


def _whole(text: str) -> int:
    """Parse a whole number of a summary, of 64 bits."""
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"Expected a number of 64 bits, got {text[:20]}...")
    return value


def run_names(paths: Sequence[Path]) -> tuple[str, ...]:
    """Names that distinguish runs: their directories' names, with as many parents as needed.

    A directory that is given several times is numbered.

    Examples
    --------
    >>> run_names([Path("/tmp/may/x-itrOut"), Path("/tmp/june/x-itrOut"), Path("y-itrOut")])
    ('may/x', 'june/x', 'y')
    """
    whole = [path.resolve() for path in paths]
    tails = shortest_tails(whole)
    bare = [tail.removesuffix("-itrOut") for tail in tails]
    # Directory names need not be valid text, and names of runs are written into pages and figures.
    names = [escaped(name) for name in (bare if len(set(bare)) == len(set(whole)) else tails)]
    return tuple(
        name if whole.count(path) == 1 else f"{name} ({whole[: place + 1].count(path)})"
        for place, (path, name) in enumerate(zip(whole, names, strict=True))
    )


def read_runs(paths: Sequence[Path]) -> tuple[FinishedRun, ...]:
    """Read runs, under names that distinguish them.

    Raises
    ------
    RunDirectoryError
        If one of them cannot be read.
    """
    return tuple(read_run(path, name) for path, name in zip(paths, run_names(paths), strict=True))


def with_all_settings(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """Runs whose summaries have the settings that they left out, as these are the defaults."""
    known = {name: option.default for name, option in OPTIONS.items() if option.is_setting}
    return [replace(run, summary={**run.summary, "settings": {**known, **run.summary["settings"]}}) for run in runs]


def read_run(path: Path, name: str | None = None) -> FinishedRun:
    """Read everything in a result directory that pages and figures show.

    Raises
    ------
    RunDirectoryError
        If it is not one, a file or a column is missing, or a file is of another run.
    """
    summary = read_summary(path)

    def table(schema: RunTable) -> pa.Table:
        return _steps(path / schema.file) if schema is STEPS else _parquet(path / schema.file, schema)

    return finished_run(name or run_names([path])[0], summary, table, path)


def tuning_groups(path: Path) -> dict[str, str]:
    """Group of each tuned task of a run, by its name; empty without any.

    Raises
    ------
    RunDirectoryError
        If the run's table of them cannot be read.
    """
    if "attempts" not in read_summary(path):
        return {}
    table = _typed(path / ATTEMPTS.file, _parquet(path / ATTEMPTS.file, ATTEMPTS), ATTEMPTS)
    names, groups = (map(escaped, table[name].to_pylist()) for name in ("task", "group"))
    return dict(zip(names, groups, strict=True))


def finished_run(
    name: str, summary: Mapping[str, Any], table: Callable[[RunTable], pa.Table], directory: Path
) -> FinishedRun:
    """Build a run from its summary and a function that reads its tables.

    Raises
    ------
    RunDirectoryError
        If a table is not of this run; the message names the file.
    """
    start_ns = instant_ns(summary["window_start"])

    def arrays(schema: RunTable) -> dict[str, NDArray[Any]]:
        return _arrays(directory / schema.file, table(schema), schema, start_ns)

    tasks = arrays(TASKS)
    moves = _moves(_typed(directory / ALLOCATION.file, table(ALLOCATION), ALLOCATION), start_ns, tasks["name"])
    run = FinishedRun(
        name=name,
        summary=summary,
        steps=arrays(STEPS),
        decisions=arrays(DECISIONS),
        tasks=tasks | {key: _texts(tasks[key]) for key in ("name", "group")},
        holdings=_holdings(moves),
        power=arrays(POWER) if "energy_j" in summary else None,
        moves=moves,
    )
    check_one_run(run, directory)
    return run


def _texts(names: NDArray[Any]) -> NDArray[Any]:
    """Names for pages and figures, where control characters would take effect; empty where there is none."""
    return np.array([escaped(each) if isinstance(each, str) else "" for each in names], dtype=object)


# Numbers beyond this have no meaning in a run, and sums of them would overflow.
_MOST = 1e100


def _steps(path: Path) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    types = {column.name: column.kind.type for column in STEPS.read}
    try:
        check_intact(path)
        with open_file(path) as stream:
            table = csv.read_csv(stream, convert_options=csv.ConvertOptions(column_types=types))
        _need(path, STEPS, table.column_names)  # names need not be valid text
        return table
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise RunDirectoryError(f"{path}: Cannot read the step log: {_reason(error)}.") from error


def _parquet(path: Path, schema: RunTable) -> pa.Table:
    """Read the needed columns of a file."""
    with translated(path, RunDirectoryError):
        check_intact(path)
    with parquet_file(path, RunDirectoryError) as file:
        there = file.schema_arrow.names
        _need(path, schema, there)
        table = file.read([column.name for column in schema.read if column.name in there])
        table.validate(full=True)
    return table


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or next(iter(str(error).splitlines()), type(error).__name__)
    return str(text).removesuffix(".")


def _need(path: Path, schema: RunTable, there: Sequence[str]) -> None:
    for column in schema.read:
        if column.only is None and column.name not in there:
            raise RunDirectoryError(f"{path}: Expected a column {column.name!r}, found {', '.join(sorted(there))}.")
        if there.count(column.name) > 1:
            raise RunDirectoryError(f"{path}: Expected one column {column.name!r}, found {there.count(column.name)}.")


def _typed(path: Path, table: pa.Table, schema: RunTable) -> dict[str, pa.ChunkedArray]:
    """Convert the needed columns of a table to the types used in computations."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = {}
    for column in schema.read:
        name, kind = column.name, column.kind
        if name not in table.column_names:
            continue
        what = kind.value if column.null or kind is Holds.COUNT else f"{kind.value} of each row"
        try:
            values = found[name] = table[name].cast(kind.type)
        except pa.ArrowException:
            raise RunDirectoryError(f"{path}: Expected each {name} to be a {what}, got {table[name].type}.") from None
        if not column.null and values.null_count:
            raise RunDirectoryError(f"{path}: Expected each {name} to be a {what}, got a row without.")
        if kind is Holds.REAL:
            known = pc.drop_null(values).to_numpy()
            odd = known[~(np.abs(known) < _MOST)]  # also true for NaN
            if odd.size:
                raise RunDirectoryError(f"{path}: Expected each {name} to be a finite number, got {odd[0]:g}.")
        unknown = set(values.to_pylist()) - set(column.among) if column.among else set()
        if unknown:
            raise RunDirectoryError(f"{path}: Expected {', '.join(column.among)} in {name!r}, got {min(unknown)!r}.")
    return found


def _arrays(path: Path, table: pa.Table, schema: RunTable, start_ns: int) -> dict[str, NDArray[Any]]:
    """Columns as in `FinishedRun`; NaN for null, and for all values of a missing column that only some runs have."""
    typed = _typed(path, table, schema)
    found = {column.key: np.full(table.num_rows, np.nan) for column in schema.read}
    for column in schema.read:
        if column.name in typed:
            values = typed[column.name]
            found[column.key] = (
                _seconds(values, start_ns) if column.kind is Holds.TIME else np.asarray(values.to_numpy())
            )
    return found


def _seconds(column: pa.ChunkedArray, start_ns: int) -> NDArray[np.float64]:
    """Timestamps as seconds after `start_ns`; null becomes NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    stamps = column.cast(pa.int64())
    known = np.asarray(pc.is_valid(stamps).to_numpy(), dtype=bool)
    offsets = np.asarray(pc.fill_null(stamps, 0).to_numpy(), dtype=np.int64) - start_ns
    return np.where(known, offsets / NS_PER_S, np.nan)


def _moves(table: Mapping[str, pa.ChunkedArray], start_ns: int, tasks: NDArray[Any]) -> NodeMoves:
    """Moves of single nodes to tasks of these names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pc.index_in(table["task"].combine_chunks(), value_set=pa.array(tasks.tolist(), pa.string()))
    return NodeMoves(
        time_s=_seconds(table["time"], start_ns),
        node=pc.rank(table["node"], tiebreaker="dense").to_numpy().astype(np.int64) - 1,
        task=np.asarray(pc.fill_null(known, -1).to_numpy(zero_copy_only=False), dtype=np.int64),
        # Names are written into pages, where control characters would take effect.
        names=list(map(escaped, sorted(pc.unique(table["node"]).to_pylist()))),
    )


def _holdings(moves: NodeMoves) -> Holdings:
    """Node counts of tasks from the moves of single nodes: the task that gets one, and the one that had it."""
    time_s, node, owner = moves.time_s, moves.node, moves.task
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
    # The cumulative sum runs over all tasks; its value before a task's first row is subtracted.
    first = np.flatnonzero(np.append(True, task[1:] != task[:-1])[: task.size])
    before = np.append(0, total)[first]
    total -= np.repeat(before, np.diff(np.append(first, task.size)))
    last = np.append((task[1:] != task[:-1]) | (when[1:] != when[:-1]), True)[: task.size]
    return Holdings(time_s=when[last], task=task[last], nodes=total[last])
