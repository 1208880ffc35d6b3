"""Read the directories of finished runs: their form is checked here, and what they say by `bftrainer audit`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import RunDirectoryError, escaped, suggestion
from bftrainer.files.arrow import parquet_file
from bftrainer.files.documents import parsed_json
from bftrainer.files.manifest import check_intact
from bftrainer.files.opening import open_file, translated, whole_bytes
from bftrainer.model import NS_PER_S, instant_ns
from bftrainer.model.records import HELD, RUN_SCHEMA, FinishedRun, Holdings, NodeMoves
from bftrainer.report.comparison import shortest_tails
from bftrainer.report.glossary import GLOSSARY
from bftrainer.report.ledger import PARTS
from bftrainer.runs.config import OPTIONS
from bftrainer.runs.run_tables import ALLOCATION, ATTEMPTS, DECISIONS, POWER, STEPS, TASKS, Holds, RunTable

if TYPE_CHECKING:
    import pyarrow as pa
    from pydantic import BaseModel

_SUMMARY = "summary.json"
# Figures that every run has, and those that pages use besides those of the glossary.
_ALWAYS = ["window_s", "nodes_total", "tasks_total", "tasks_completed", "idle_node_s", "decisions"]
_ALWAYS += [f"decisions_{held}" for held in HELD]
_FIGURES = [*(name for name in GLOSSARY if "." not in name), "efficiency_horizon_s", "efficiency_eq_nodes"]
_FIGURES += ["solve_wall_share"]
_BELOW = ("occupancy", "rescale_loss_share", "preemption_loss_share", "idle_node_s_share", "time_share")
# Numbers beyond this have no meaning in a run, and sums of them would overflow.
_MOST = 1e100


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
    with translated(file, RunDirectoryError):
        check_intact(file)
        text = whole_bytes(file)
    summary = parsed_json(file, text, RunDirectoryError, "the summary of a run in JSON", _number, _whole)
    schema = summary.get("schema") if isinstance(summary, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise RunDirectoryError(f"{file}: Expected the schema number in the summary, found none.")
    if schema > RUN_SCHEMA:
        what = f"Expected schema {RUN_SCHEMA} or older, got {schema}; it takes a newer version of bftrainer."
        raise RunDirectoryError(f"{file}: {what}")
    _check_summary(file, summary)
    return dict(summary)


def _number(text: str) -> float:
    value = float(text)
    if not abs(value) < _MOST:
        raise ValueError(f"Expected a finite number, got {text}")
    return value


def _whole(text: str) -> int:
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"Expected a number of 64 bits, got {text[:20]}...")
    return value


def _check_summary(file: Path, summary: dict[str, Any]) -> None:
    """Refuse a summary that lacks what every run has, or has values of another type."""
    from pydantic import ValidationError

    try:
        _model().model_validate(summary)
        start_ns, end_ns = (instant_ns(summary[f"window_{which}"]) for which in ("start", "end"))
    except ValidationError as faults:
        fault = faults.errors()[0]
        key = ".".join(map(str, fault["loc"]))
        if fault["type"] == "missing":
            what = f"Expected the summary of a replay, found no {key!r} in it."
            raise RunDirectoryError(f"{file}: {what}{suggestion(key, summary)}") from None
        raise RunDirectoryError(f"{file}: {key}: {fault['msg']}, got {str(fault['input'])[:80]!r}.") from None
    except (ValueError, OverflowError) as error:
        raise RunDirectoryError(f"{file}: window_start, window_end: Expected times ({error}).") from None
    length_s = (end_ns - start_ns) / NS_PER_S
    if not math.isclose(length_s, summary["window_s"], rel_tol=1e-9, abs_tol=1e-6):
        what = f"Expected the {length_s:g} s from window_start to window_end, got {summary['window_s']:g}"
        raise RunDirectoryError(f"{file}: window_s: {what}.")


@cache
def _model() -> type[BaseModel]:
    """Pydantic model of a summary; further keys are allowed."""
    from pydantic import BaseModel, ConfigDict, create_model

    class Part(BaseModel):
        """Base of the models: no conversion of text to numbers, or of numbers to booleans."""

        model_config = ConfigDict(extra="allow", strict=True)

    def part(name: str, /, *optional: str, **types: Any) -> type[Part]:
        """Model of a part: names of optional numbers, and types by name, optional ones as pairs with None."""
        fields: dict[str, Any] = dict.fromkeys(optional, (float | None, None))
        fields |= {key: kind if isinstance(kind, tuple) else (kind, ...) for key, kind in types.items()}
        return create_model(name, __base__=Part, **fields)

    options: dict[str, Any] = {name: option.type for name, option in OPTIONS.items() if option.is_setting}
    options |= {"since": str, "until_s": float}
    settings: dict[str, Any] = {name: (kind | None, None) for name, kind in options.items()} | {"decide_on": str}
    source = part("Source", path=str, sha256=str)
    bound = part("Bound", "horizon_s", name=str, against_blind=float | None)
    fields: dict[str, Any] = dict.fromkeys(_ALWAYS, float)
    fields |= {name: settings[name] for name in ("seed", "solver", "objective", "forward_time_s", "max_tasks")}
    optional: dict[str, Any] = {
        "limited_by": str,
        "node_log_zone": str,
        "node_log_notes": list[str],
        "inputs": dict[str, source | list[source] | None],  # type: ignore[valid-type]
        "versions": dict[str, str],
        "decided_by": dict[str, int],
        "ledger": part("Ledger", **dict.fromkeys(("idle_node_s", *PARTS), float | None)),
        "below_large_idle": part("Below", *_BELOW, large_idle=float),
        "assumed_scaling": part("Assumed", note=str, figures=list[str]),
        "bounds": part("Bounds", bounds=list[bound], time_s=float, notes=list[str]),  # type: ignore[valid-type]
    }
    fields |= {name: (kind | None, None) for name, kind in optional.items()}
    fields |= {"window_start": str, "window_end": str, "partial": bool, "command": (str, ""), "solvers": dict[str, Any]}
    return part("Summary", *_FIGURES, **fields, settings=part("Settings", **settings))


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
    return finished_run(
        name or run_names([path])[0], summary, lambda table: _read_table(path / table.file, table), path
    )


def tuning_groups(path: Path) -> dict[str, str]:
    """Group of each tuned task of a run, by its name; empty without any.

    Raises
    ------
    RunDirectoryError
        If the run's table of them cannot be read.
    """
    if "attempts" not in read_summary(path):
        return {}
    file = path / ATTEMPTS.file
    columns = _arrays(file, _read_table(file, ATTEMPTS), ATTEMPTS, 0)
    return dict(zip(*(map(escaped, columns[name]) for name in ("task", "group")), strict=True))


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

    def arrays(schema: RunTable, rows: str = "") -> dict[str, NDArray[Any]]:
        """Columns of a table, which has as many rows as a figure of the summary says."""
        found, file = table(schema), directory / schema.file
        # With --compat published the start may be a row, and is no event.
        more = rows == "events" and summary["settings"].get("compat") == "published"
        if not 0 <= found.num_rows - summary.get(rows, found.num_rows) <= more:
            what = f"Expected {summary[rows]:,} rows as in the summary's {rows}, found {found.num_rows:,}"
            raise RunDirectoryError(f"{file}: {what}: is the file another run's?")
        return _arrays(file, found, schema, start_ns)

    tasks = arrays(TASKS, "tasks_total")
    # Control characters in names would take effect on pages; a name is empty where there is none.
    named = {key: [escaped(each) if isinstance(each, str) else "" for each in tasks[key]] for key in ("name", "group")}
    allocation = _checked(directory / ALLOCATION.file, table(ALLOCATION), ALLOCATION)
    moves = _moves(allocation, start_ns, tasks["name"])
    steps = arrays(STEPS, "events")
    time_s = np.concatenate(([0.0], steps["time_s"], [summary["window_s"] + 1e-6]))
    if (time_s[1:] < time_s[:-1]).any():
        file = directory / STEPS.file
        raise RunDirectoryError(f"{file}: Expected times that ascend within the summary's window, got others.")
    return FinishedRun(
        name=name,
        summary=summary,
        steps=_with_start(steps, summary),
        decisions=arrays(DECISIONS, "decisions"),
        tasks=tasks | {key: np.array(texts, dtype=object) for key, texts in named.items()},
        holdings=_holdings(moves),
        power=arrays(POWER) if "energy_j" in summary else None,
        moves=moves,
    )


def _with_start(steps: dict[str, NDArray[Any]], summary: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Steps from the window's start on, which `--compat published` writes no row of: its nodes follow from the sums."""
    ends_s = np.append(steps["time_s"], summary["window_s"])
    if summary["settings"].get("compat") != "published" or not ends_s[0] > 0.0:
        return steps
    first = dict.fromkeys(steps, 0.0)
    for name in ("idle", "used"):
        first[name] = (summary[f"{name}_node_s"] - float(np.diff(ends_s) @ steps[name])) / float(ends_s[0])
    whole = {name: round(first[name]) if steps[name].dtype.kind == "i" else first[name] for name in steps}
    return {name: np.append(np.array([whole[name]], dtype=steps[name].dtype), steps[name]) for name in steps}


def _read_table(path: Path, schema: RunTable) -> pa.Table:
    """Read the needed columns of a file."""
    import pyarrow as pa
    from pyarrow import csv

    with translated(path, RunDirectoryError):
        check_intact(path)
    if schema is not STEPS:
        with parquet_file(path, RunDirectoryError) as file:
            names = _needed(path, schema, file.schema_arrow.names)
            table = file.read(names)
            table.validate(full=True)
            return table
    types = {column.name: column.kind.type for column in STEPS.read}
    try:
        with translated(path, RunDirectoryError), open_file(path) as stream:
            table = csv.read_csv(stream, convert_options=csv.ConvertOptions(column_types=types))
        return table.select(_needed(path, STEPS, table.column_names))
    except (UnicodeDecodeError, pa.ArrowException) as error:  # names need not be valid text
        reason = str(error).split("\n", 1)[0].removesuffix(".")
        raise RunDirectoryError(f"{path}: Cannot read the step log: {reason}.") from error


def _needed(path: Path, schema: RunTable, there: Sequence[str]) -> list[str]:
    """Names of the columns to read."""
    for column in schema.read:
        count = there.count(column.name)
        if count > 1 or (count == 0 and column.only is None):
            found = f"found {count} of it among {', '.join(sorted(there))}"
            raise RunDirectoryError(f"{path}: Expected one column {column.name!r}, {found}.")
    return [column.name for column in schema.read if column.name in there]


def _checked(path: Path, table: pa.Table, schema: RunTable) -> dict[str, pa.ChunkedArray]:
    """The columns to read by name, each of its type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = {}
    for column in schema.read:
        if column.name not in table.column_names:
            continue
        expected = f"{path}: Expected each {column.name} to be a {column.kind.value}"
        try:
            values = columns[column.name] = table[column.name].cast(column.kind.type)
        except pa.ArrowException:
            raise RunDirectoryError(f"{expected}, got {table[column.name].type}.") from None
        if values.null_count and not column.null:
            raise RunDirectoryError(f"{expected}, got a row without.")
        if column.kind is Holds.REAL and pc.all(pc.less(pc.abs(values), _MOST)).as_py() is False:  # also for NaN
            raise RunDirectoryError(f"{expected}, got one that is not finite.")
    return columns


def _arrays(path: Path, table: pa.Table, schema: RunTable, start_ns: int) -> dict[str, NDArray[Any]]:
    """Columns as in `FinishedRun`; NaN for null, and for all values of a missing column that only some runs have."""
    arrays = {column.key: np.full(table.num_rows, np.nan) for column in schema.read}
    kinds = {column.name: column for column in schema.read}
    for name, values in _checked(path, table, schema).items():
        is_time = kinds[name].kind is Holds.TIME
        arrays[kinds[name].key] = _seconds(values, start_ns) if is_time else values.to_numpy()
    return arrays


def _seconds(column: pa.ChunkedArray, start_ns: int) -> NDArray[np.float64]:
    """Timestamps as seconds after `start_ns`; null becomes NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    stamps = column.cast(pa.int64())
    offsets = np.asarray(pc.fill_null(stamps, 0).to_numpy(), dtype=np.int64) - start_ns
    return np.where(stamps.is_null().to_numpy(), np.nan, offsets / NS_PER_S)


def _moves(columns: Mapping[str, pa.ChunkedArray], start_ns: int, tasks: NDArray[Any]) -> NodeMoves:
    """Moves of single nodes to tasks of these names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    unsorted = pc.unique(columns["node"])
    names = unsorted.take(pc.array_sort_indices(unsorted))
    node = pc.index_in(columns["node"], value_set=names).to_numpy().astype(np.int64)
    task = pc.fill_null(pc.index_in(columns["task"], value_set=pa.array(tasks, pa.string())), -1)
    times_s, owner = _seconds(columns["time"], start_ns), task.to_numpy().astype(np.int64)
    # Names go into pages, where control characters would take effect.
    return NodeMoves(times_s, node, owner, list(map(escaped, names.to_pylist())))


def _holdings(moves: NodeMoves) -> Holdings:
    """Node counts of tasks from the moves of single nodes: the task that gets one, and the one that had it."""
    former = np.full(moves.node.size, -1, dtype=np.int64)
    order = np.argsort(moves.node, kind="stable")
    same = np.flatnonzero(moves.node[order][1:] == moves.node[order][:-1])
    former[order[same + 1]] = moves.task[order[same]]
    task, time_s = np.concatenate((moves.task, former)), np.concatenate((moves.time_s, moves.time_s))
    change = np.repeat(np.array([1, -1]), moves.node.size)
    order = np.lexsort((time_s, task))
    order = order[task[order] >= 0]
    task, time_s, total = task[order], time_s[order], np.cumsum(change[order])
    # The cumulative sum runs over all tasks; its value before a task's first row is subtracted.
    opens = np.flatnonzero(np.diff(task, prepend=-1))
    total -= np.repeat(np.append(0, total)[opens], np.diff(np.append(opens, task.size)))
    last = np.append((task[1:] != task[:-1]) | (time_s[1:] != time_s[:-1]), True)[: task.size]
    return Holdings(time_s=time_s[last], task=task[last], nodes=total[last])
