"""Read the directories of finished runs: their form is checked here, and what they say by `bftrainer audit`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from bftrainer.errors import RunDirectoryError, escaped, suggestion
from bftrainer.files.arrow import parquet_file
from bftrainer.files.documents import json_file
from bftrainer.files.manifest import check_intact
from bftrainer.files.opening import open_file, translated
from bftrainer.model import NS_PER_S, instant_ns
from bftrainer.model.records import HELD, RUN_SCHEMA, FinishedRun, Holdings, NodeMoves
from bftrainer.report.comparison import shortest_tails
from bftrainer.report.glossary import GLOSSARY
from bftrainer.report.ledger import PARTS
from bftrainer.runs.config import OPTIONS
from bftrainer.runs.run_tables import ALLOCATION, ATTEMPTS, DECISIONS, POWER, REAL, STEPS, TASKS, TIME, RunTable

if TYPE_CHECKING:
    from pydantic import BaseModel

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
    file = path / "summary.json"
    with translated(path, RunDirectoryError):
        if not file.is_file():
            found = "none in it" if path.is_dir() else "a file" if path.exists() else "nothing"
            raise RunDirectoryError(f"{path}: Expected a result directory with a {file.name}, found {found}.")
    with translated(file, RunDirectoryError):
        check_intact(file)
    summary = json_file(file, RunDirectoryError, "the summary of a run in JSON")
    schema = summary.get("schema") if isinstance(summary, dict) else None
    if type(schema) is not int:
        raise RunDirectoryError(f"{file}: Expected the schema number in the summary, found none.")
    if schema > RUN_SCHEMA:
        what = f"Expected schema {RUN_SCHEMA} or older, got {schema}; it takes a newer version of bftrainer."
        raise RunDirectoryError(f"{file}: {what}")
    odd = [each for each in _numbers(summary) if not abs(each) < (2**63 if isinstance(each, int) else _MOST)]
    if odd:
        raise RunDirectoryError(f"{file}: Expected numbers that are finite, and of 64 bits, got {str(odd[0])[:20]}.")
    _check_summary(file, summary)
    return dict(summary)


def _numbers(value: Any) -> Iterator[float]:
    """All numbers in a value of JSON."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)
    elif isinstance(value, int | float):
        yield value


def _check_summary(file: Path, summary: dict[str, Any]) -> None:
    """Refuse a summary that lacks what every run has, or has values of another type."""
    from pydantic import ValidationError

    try:
        _model().model_validate(summary)
        start_ns, end_ns = (instant_ns(summary[f"window_{which}"]) for which in ("start", "end"))
    except ValidationError as faults:
        fault = faults.errors()[0]
        key = ".".join(map(str, fault["loc"]))
        hint = suggestion(key, summary) if fault["type"] == "missing" else f" It is {str(fault['input'])[:80]!r}."
        raise RunDirectoryError(f"{file}: {key}: {fault['msg']}.{hint}") from None
    except (ValueError, OverflowError) as error:
        raise RunDirectoryError(f"{file}: window_start, window_end: Expected times ({error}).") from None
    length_s = (end_ns - start_ns) / NS_PER_S
    if not math.isclose(length_s, summary["window_s"], rel_tol=1e-9, abs_tol=1e-6):
        what = f"Expected the {length_s:g} s from window_start to window_end, got {summary['window_s']:g}"
        raise RunDirectoryError(f"{file}: window_s: {what}.")


@cache
def _model() -> type[BaseModel]:
    """Pydantic model of a summary; further keys are allowed."""
    from pydantic import ConfigDict, create_model

    config = ConfigDict(extra="allow", strict=True)  # no conversion of text to numbers, or of numbers to booleans

    def part(name: str, required: Mapping[str, Any], optional: Mapping[str, Any]) -> type[BaseModel]:
        """Model of a part, by the types of its keys."""
        fields: dict[str, Any] = {key: (kind, ...) for key, kind in required.items()}
        fields |= {key: (kind | None, None) for key, kind in optional.items() if key not in required}
        return create_model(name, __config__=config, **fields)

    settings = {name: float | str if each.units else each.kind for name, each in OPTIONS.items() if each.is_setting}
    settings |= {"since": str, "until_s": float}
    source: Any = part("Source", {"path": str, "sha256": str}, {})
    bound: Any = part("Bound", {"name": str, "against_blind": float | None}, {"horizon_s": float})
    texts = ("window_start", "window_end")
    required = dict.fromkeys(_ALWAYS, float) | dict.fromkeys(texts, str) | {"partial": bool, "solvers": dict[str, Any]}
    required |= {"settings": part("Settings", {"decide_on": str}, settings)}
    optional = dict.fromkeys(_FIGURES, float) | {
        **{name: settings[name] for name in ("seed", "solver", "objective", "forward_time_s", "max_tasks")},
        "command": str,
        "limited_by": str,
        "node_log_zone": str,
        "node_log_notes": list[str],
        "inputs": dict[str, source | list[source] | None],
        "versions": dict[str, str],
        "decided_by": dict[str, int],
        "ledger": part("Ledger", dict.fromkeys(("idle_node_s", *PARTS), float | None), {}),
        "below_large_idle": part("Below", {"large_idle": float}, dict.fromkeys(_BELOW, float)),
        "assumed_scaling": part("Assumed", {"note": str, "figures": list[str]}, {}),
        "bounds": part("Bounds", {"bounds": list[bound], "time_s": float, "notes": list[str]}, {}),
    }
    return part("Summary", required, optional)


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
    columns = _checked(file, _read_table(file, ATTEMPTS), ATTEMPTS)
    return dict(zip(*(map(escaped, columns[name].to_pylist()) for name in ("task", "group")), strict=True))


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
        """Columns of a table, which has as many rows as the summary says; NaN for null, and in columns it lacks."""
        found, file = table(schema), directory / schema.file
        # With --compat published the start may be a row, and is no event.
        more = rows == "events" and summary["settings"].get("compat") == "published"
        if not 0 <= found.num_rows - summary.get(rows, found.num_rows) <= more:
            what = f"Expected {summary[rows]:,} rows as in the summary's {rows}, found {found.num_rows:,}"
            raise RunDirectoryError(f"{file}: {what}: is the file another run's?")
        known = _checked(file, found, schema)
        columns = {column.key: np.full(found.num_rows, np.nan) for column in schema.shown.values()}
        for name in known.column_names:
            key, is_time = schema.shown[name].key, schema.shown[name].kind == TIME
            columns[key] = _seconds(known[name], start_ns) if is_time else known[name].to_numpy()
        return columns

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


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """Turn what pyarrow says of a table that is damaged, or no table of a run, into one line that names the file."""
    try:
        yield
    except (LookupError, ValueError, NotImplementedError, pa.ArrowException) as fault:
        reason = escaped(str(fault).split("\n", 1)[0].strip("'\"").removesuffix("."))
        raise RunDirectoryError(f"{path}: Expected this table of a run ({reason}).") from None


def _read_table(path: Path, schema: RunTable) -> pa.Table:
    """Read the needed columns of a file."""
    with _damage_named(path), translated(path, RunDirectoryError):
        check_intact(path)
        if schema is STEPS:
            options = csv.ConvertOptions(column_types={column.name: column.kind for column in schema.columns})
            with open_file(path) as stream:
                return csv.read_csv(stream, convert_options=options)
        with parquet_file(path, RunDirectoryError) as file:
            table = file.read(list(schema.shown))
            table.validate(full=True)
            return table


def _checked(path: Path, table: pa.Table, schema: RunTable) -> pa.Table:
    """The columns that pages show, each of its type, with values where there must be some, and finite numbers."""
    there = [column for column in schema.shown.values() if column.only is None or column.name in table.column_names]
    with _damage_named(path):
        fields = [pa.field(each.name, each.kind, f"{each.name}?" in schema.read.split()) for each in there]
        found = table.select([column.name for column in there]).cast(pa.schema(fields))
        for column in there:
            if column.kind == REAL and pc.all(pc.less(pc.abs(found[column.name]), _MOST)).as_py() is False:  # also NaN
                raise ValueError(f"Column {column.name} has numbers that are not finite")
    return found


def _seconds(column: pa.ChunkedArray, start_ns: int) -> NDArray[np.float64]:
    """Timestamps as seconds after `start_ns`; null becomes NaN."""
    stamps = column.cast(pa.int64())
    offsets = np.asarray(pc.fill_null(stamps, 0).to_numpy(), dtype=np.int64) - start_ns
    return np.where(stamps.is_null().to_numpy(), np.nan, offsets / NS_PER_S)


def _moves(columns: pa.Table, start_ns: int, tasks: NDArray[Any]) -> NodeMoves:
    """Moves of single nodes to tasks of these names."""
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
