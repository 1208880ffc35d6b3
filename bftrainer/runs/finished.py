"""Read the directories of finished runs: their form is checked here, and what they say by `bftrainer audit`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from bftrainer.errors import RunDirectoryError, escaped, suggestion
from bftrainer.files.arrow import open_native, parquet_file
from bftrainer.files.documents import json_file
from bftrainer.files.opening import translated
from bftrainer.model import NS_PER_S, instant_ns
from bftrainer.model.records import HELD, RUN_SCHEMA
from bftrainer.report.comparison import shortest_tails
from bftrainer.report.finished_run import FinishedRun, NodeMoves
from bftrainer.report.glossary import GLOSSARY
from bftrainer.report.ledger import PARTS
from bftrainer.runs.config import OPTIONS
from bftrainer.runs.run_tables import ALLOCATION, ATTEMPTS, DECISIONS, POWER, REAL, STEPS, TASKS, TIME, RunTable

if TYPE_CHECKING:
    from pydantic import BaseModel

_ALWAYS = ("window_s", "nodes_total", "tasks_total", "tasks_completed", "idle_node_s", "decisions")
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
    with translated(file, RunDirectoryError):
        if not file.is_file():
            found = "none in it" if path.is_dir() else "a file" if path.exists() else "nothing"
            raise RunDirectoryError(f"{path}: Expected a result directory with a {file.name}, found {found}.")
    summary: dict[str, Any] = json_file(file, RunDirectoryError, "the summary of a run in JSON")
    _check_summary(file, summary)
    return summary


def _check_summary(file: Path, summary: Any) -> None:
    """Refuse what is no summary: it lacks what every run has, or has values of another type."""
    from pydantic import ValidationError

    schema = summary.get("schema") if isinstance(summary, dict) else None
    if type(schema) is not int or schema > RUN_SCHEMA:
        what = f"Expected a summary of schema {RUN_SCHEMA} or older, got {schema!r}"
        raise RunDirectoryError(f"{file}: {what}; a newer one takes a newer version of bftrainer.")
    odd = [number for number in _numbers(summary) if not abs(number) < (2**63 if isinstance(number, int) else _MOST)]
    if odd:
        raise RunDirectoryError(f"{file}: Expected numbers that are finite, and of 64 bits, got {str(odd[0])[:20]}.")
    try:
        _summary_model().model_validate(summary)
        start_ns, end_ns = (instant_ns(summary[f"window_{which}"]) for which in ("start", "end"))
        if not math.isclose((end_ns - start_ns) / NS_PER_S, summary["window_s"], rel_tol=1e-9, abs_tol=1e-6):
            raise ValueError(f"they are not window_s apart, {summary['window_s']:g} s")
    except ValidationError as faults:
        fault = faults.errors()[0]
        key = ".".join(map(str, fault["loc"]))
        hint = suggestion(key, summary) if fault["type"] == "missing" else f" It is {str(fault['input'])[:80]!r}."
        raise RunDirectoryError(f"{file}: {key}: {fault['msg']}.{hint}") from None
    except (ValueError, OverflowError) as error:
        raise RunDirectoryError(f"{file}: window_start, window_end: Expected times ({error}).") from None


def _numbers(value: Any) -> Iterator[float]:
    """All numbers in a value of JSON."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _numbers(part)
    elif isinstance(value, int | float):
        yield value


@cache
def _summary_model() -> type[BaseModel]:
    """Pydantic model of a summary; further keys are allowed."""
    from pydantic import ConfigDict, create_model

    config = ConfigDict(extra="allow", strict=True)  # no conversion of text to numbers, or of numbers to booleans

    def part(required: Mapping[str, Any], optional: Mapping[str, Any] = {}) -> Any:
        """Model of a part, by the types of its keys."""
        fields: dict[str, Any] = {key: (kind | None, None) for key, kind in optional.items()}
        return create_model("Part", __config__=config, **fields | {key: (kind, ...) for key, kind in required.items()})

    settings = {name: float | str if each.units else each.kind for name, each in OPTIONS.items() if each.is_setting}
    source: Any = part({"path": str, "sha256": str})
    bound: Any = part({"name": str, "against_blind": float | None}, {"horizon_s": float})
    figures = [*(name for name in GLOSSARY if "." not in name), "efficiency_eq_nodes", "solve_wall_share"]
    below = ("occupancy", "rescale_loss_share", "preemption_loss_share", "idle_node_s_share", "time_share")
    model: type[BaseModel] = part(
        {
            **dict.fromkeys((*_ALWAYS, *(f"decisions_{held}" for held in HELD)), float),
            **dict.fromkeys(("window_start", "window_end"), str),
            "partial": bool,
            "solvers": dict[str, Any],
            "settings": part({"decide_on": str}, settings | {"since": str, "until_s": float}),
        },
        {
            **dict.fromkeys((*figures, "efficiency_horizon_s"), float),
            **dict.fromkeys(("command", "limited_by", "node_log_zone"), str),
            **{name: settings[name] for name in ("seed", "solver", "objective", "forward_time_s", "max_tasks")},
            "node_log_notes": list[str],
            "inputs": dict[str, source | list[source] | None],
            "versions": dict[str, str],
            "decided_by": dict[str, int],
            "ledger": part(dict.fromkeys(("idle_node_s", *PARTS), float | None)),
            "below_large_idle": part({"large_idle": float}, dict.fromkeys(below, float)),
            "assumed_scaling": part({"note": str, "figures": list[str]}),
            "bounds": part({"bounds": list[bound]}, {"time_s": float, "notes": list[str]}),
        },
    )
    return model


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
    # With --compat published the start may be a row, and is no event.
    more = summary["settings"].get("compat") == "published"
    expected = {STEPS: ("events", more), DECISIONS: ("decisions", 0), TASKS: ("tasks_total", 0)}

    def read(schema: RunTable) -> pa.Table:
        """Read a table, which has as many rows as the summary says."""
        table, (key, extra) = _read_table(path / schema.file, schema), expected.get(schema, ("", 0))
        if not 0 <= table.num_rows - summary.get(key, table.num_rows) <= extra:
            what = f"Expected {summary[key]:,} rows as in the summary's {key}, found {table.num_rows:,}"
            raise RunDirectoryError(f"{path / schema.file}: {what}: is the file another run's?")
        return table

    return finished_run(name or run_names([path])[0], summary, read)


def tuning_groups(path: Path) -> dict[str, str]:
    """Group of each tuned task of a run, by its name; empty without any.

    Raises
    ------
    RunDirectoryError
        If the run's table of them cannot be read.
    """
    if "attempts" not in read_summary(path):
        return {}
    columns = _read_table(path / ATTEMPTS.file, ATTEMPTS)
    return dict(zip(*(map(escaped, columns[name].to_pylist()) for name in ("task", "group")), strict=True))


def _read_table(path: Path, schema: RunTable) -> pa.Table:
    """Read the columns of a file that pages show, each of its type, with values where there must be some."""
    try:
        with translated(path, RunDirectoryError):
            if schema is STEPS:
                types = csv.ConvertOptions(column_types={column.name: column.kind for column in schema.columns})
                with open_native(path) as stream:
                    table = csv.read_csv(stream, convert_options=types)
            else:
                with parquet_file(path, RunDirectoryError) as file:
                    table = file.read(list(schema.shown))
                    table.validate(full=True)
        shown = [column for column in schema.shown.values() if not column.only or column.name in table.column_names]
        fields = [pa.field(column.name, column.kind, f"{column.name}?" in schema.read.split()) for column in shown]
        table = table.select([column.name for column in shown]).cast(pa.schema(fields))
        for column in shown:
            if column.kind == REAL and pc.all(pc.less(pc.abs(table[column.name]), _MOST)).as_py() is False:  # also NaN
                raise ValueError(f"Column {column.name} has numbers that are not finite")
        return table
    except (LookupError, ValueError, NotImplementedError, pa.ArrowException) as fault:
        reason = escaped(" ".join(str(fault).split())[:200].strip("'\"").removesuffix("."))
        raise RunDirectoryError(f"{path}: Expected this table of a run ({reason}).") from None


def finished_run(name: str, summary: Mapping[str, Any], read: Callable[[RunTable], pa.Table]) -> FinishedRun:
    """Build a run from its summary and a function that returns its tables."""
    start_ns = instant_ns(summary["window_start"])

    def arrays(schema: RunTable) -> dict[str, NDArray[Any]]:
        """Columns of a table, times in seconds after the start; NaN for null, and in columns that it lacks."""
        table, columns = read(schema), {}
        frame = table.select([name for name in schema.shown if name in table.column_names]).to_pandas()
        for column in schema.shown.values():
            values = frame.get(column.name, pd.Series(np.nan, frame.index)).to_numpy()
            if column.kind == TIME:
                stamps = frame[column.name].to_numpy("datetime64[ns]")
                values = np.where(np.isnat(stamps), np.nan, (stamps.view(np.int64) - start_ns) / NS_PER_S)
            columns[column.key] = values
        return columns

    tasks = arrays(TASKS)
    moves = _node_moves(read(ALLOCATION), start_ns, tasks["name"])
    # Control characters in names would take effect on pages; a name is empty where there is none.
    named = {key: [escaped(each) if isinstance(each, str) else "" for each in tasks[key]] for key in ("name", "group")}
    return FinishedRun(
        name=name,
        summary=summary,
        steps=_with_start(arrays(STEPS), summary),
        decisions=arrays(DECISIONS),
        tasks=tasks | {key: np.array(texts, dtype=object) for key, texts in named.items()},
        holdings=moves.holdings(),
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


def _node_moves(table: pa.Table, start_ns: int, tasks: NDArray[Any]) -> NodeMoves:
    """Moves of single nodes to tasks of these names."""
    unsorted = pc.unique(table["node"])
    names = unsorted.take(pc.array_sort_indices(unsorted))
    node = pc.index_in(table["node"], value_set=names)
    task = pc.fill_null(pc.index_in(table["task"], value_set=pa.array(tasks, pa.string())), -1)
    time_s = (table["time"].cast(pa.int64()).to_numpy() - start_ns) / NS_PER_S
    # Names go into pages, where control characters would take effect.
    labels = list(map(escaped, names.to_pylist()))
    return NodeMoves(time_s, node.to_numpy().astype(np.int64), task.to_numpy().astype(np.int64), labels)
