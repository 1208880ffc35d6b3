"""Files of a run: each column is declared once, for writing, reading and checking."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer.files.arrow import booleans, instants, integers, lists, reals, texts
from bftrainer.files.cache import release_mapped
from bftrainer.model import instants_ns, iso_column
from bftrainer.model.columns import Coded, Lists, Table
from bftrainer.model.records import DecisionRecord, PowerSample, TaskRecord
from solvers.problem import Held

if TYPE_CHECKING:
    import pyarrow as pa

    from bftrainer.runs.result import RunResult


class Holds(Enum):
    """Type of a column's values, as named in messages."""

    TIME = "time"
    REAL = "number"
    COUNT = "whole number"
    TEXT = "text"
    FLAG = "truth"
    COUNTS = "list of whole numbers"
    TEXTS = "list of texts"

    @property
    def type(self) -> pa.DataType:
        """Its type in Arrow."""
        import pyarrow as pa

        if self is Holds.TIME:
            return pa.timestamp("ns", tz="UTC")
        if self in (Holds.COUNTS, Holds.TEXTS):
            return pa.list_(pa.int64() if self is Holds.COUNTS else pa.string())
        return {Holds.REAL: pa.float64, Holds.COUNT: pa.int64, Holds.TEXT: pa.string, Holds.FLAG: pa.bool_}[self]()

    def array(self, values: Any, result: RunResult) -> pa.Array:
        """Make a column of values: a sequence with None for null, or a column of a `bftrainer.model.columns.Table`.

        Times are in seconds since the run's start, and lists of texts are of the names of tasks, by number.
        """
        if self is Holds.TIME:
            return instants(result.start_ns, values)
        if isinstance(values, Coded):
            return texts(values.names, values.codes)
        if isinstance(values, Lists):
            names = self is Holds.TEXTS
            return lists(values.offsets, texts(_names(result), values.values) if names else integers(values.values))
        make: dict[Holds, Callable[[Any], pa.Array]]
        make = {Holds.REAL: reals, Holds.COUNT: integers, Holds.TEXT: texts, Holds.FLAG: booleans}
        return make[self](values)


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table.

    Parameters
    ----------
    name : str
        Name in the file; docs/files.md describes it.
    kind : Holds
    of : str or callable
        Name of the field or attribute; or function of a record that returns the value, of a `Table` that returns all.
    read : bool
        Whether pages and figures of finished runs show it.
    null : bool
        Whether it may be null.
    only : callable, optional
        Which runs have it; by default all.
    """

    name: str
    kind: Holds
    of: str | Callable[[Any], Any]
    read: bool = False
    null: bool = False
    only: Callable[[RunResult], bool] | None = None

    @property
    def key(self) -> str:
        """Name in `FinishedRun`: that of the record's attribute."""
        return self.of.rpartition(".")[2] if isinstance(self.of, str) else self.name

    def values(self, rows: Sequence[Any] | Mapping[str, Any]) -> Any:
        """Values of the rows."""
        if isinstance(rows, Table | Mapping):
            return rows[self.of] if isinstance(self.of, str) else self.of(rows)
        return list(map(attrgetter(self.of) if isinstance(self.of, str) else self.of, rows))


def _columns(kind: Holds, names: str | Mapping[str, str | Callable[[Any], Any]], **more: Any) -> tuple[Column, ...]:
    """Columns of one kind, by names, or by functions for the values under their names."""
    named = {name: name for name in names.split()} if isinstance(names, str) else names
    return tuple(Column(name, kind, of, **more) for name, of in named.items())


@dataclass(frozen=True, slots=True)
class RunTable:
    """Table of a run.

    Parameters
    ----------
    file : str
    source : callable
        Function of a result that returns the rows in parts that fit in memory, at least one: records, a `Table`, or
        columns by name.
    columns : tuple of Column
    """

    file: str
    source: Callable[[RunResult], Iterable[Sequence[Any] | Mapping[str, Any]]]
    columns: tuple[Column, ...]

    @property
    def read(self) -> tuple[Column, ...]:
        """Columns that `FinishedRun` includes."""
        return tuple(column for column in self.columns if column.read)

    def of(self, result: RunResult) -> pa.Table:
        """Make the table of a result."""
        import pyarrow as pa

        return pa.concat_tables(self.groups(result))

    def schema(self, result: RunResult) -> pa.Schema:
        """Names and types of the columns that the result has."""
        import pyarrow as pa

        return pa.schema([(column.name, column.kind.type) for column in self.of_run(result)])

    def of_run(self, result: RunResult) -> list[Column]:
        """Columns that the result has."""
        return [column for column in self.columns if column.only is None or column.only(result)]

    def groups(self, result: RunResult) -> Iterator[pa.Table]:
        """Make the table of a result in parts of bounded size, at least one."""
        import pyarrow as pa

        schema, columns = self.schema(result), self.of_run(result)
        for rows in self.source(result):
            yield pa.table([each.kind.array(each.values(rows), result) for each in columns], schema)


def _with_task(has: Callable[[TaskRecord], bool]) -> Callable[[RunResult], bool]:
    """Whether a run has such a task."""
    return lambda result: any(map(has, result.recording.tasks))


_is_tuned = _with_task(lambda task: task.tuned is not None)
_is_grouped = _with_task(lambda task: task.spec.group is not None)
_saves = _with_task(lambda task: task.spec.saves is not None)


def _pieces(result: RunResult) -> Iterator[Mapping[str, Any]]:
    """Spans of constant power, with the cap at their beginning."""
    if result.metered is not None:
        cap = result.metered.plan.power_cap_w
        for part in result.metered.record.samples.parts():
            cap_w = [cap.at(begin_s) if cap else None for begin_s in part["begin_s"].tolist()]
            yield {**{name: part[name] for name in PowerSample.__slots__}, "cap_w": cap_w}


def _moves(result: RunResult) -> Iterator[Mapping[str, Any]]:
    """A row for each node that changes hands, made as columns because of their number."""
    for changes in result.recording.allocation.parts():
        nodes = changes["nodes"]
        yield {
            "time_s": np.repeat(changes["time_s"], nodes.sizes),
            "node": Coded(nodes.values, result.nodes),
            "task": Coded(np.repeat(changes["task"], nodes.sizes), _names(result)),
        }


def _names(result: RunResult) -> list[str]:
    """Names of the tasks, by number."""
    return [task.spec.name for task in result.recording.tasks]


def _held(decisions: Table[DecisionRecord]) -> Coded:
    held = decisions["held"]
    return Coded(held.codes, ["kept" if each is Held.NOTHING else each.value for each in held.names])


def _of_tuned(*names: str) -> dict[str, Callable[[TaskRecord], Any]]:
    """A figure of a task's tuning; None if it is not tuned."""

    def value(name: str) -> Callable[[TaskRecord], Any]:
        return lambda task: None if task.tuned is None else getattr(task.tuned, name)

    return {name: value(name) for name in names}


STEPS = RunTable(
    "step-logs.csv",
    lambda result: result.recording.events.parts(),
    (
        *_columns(Holds.TIME, {"evtTime": "time_s"}, read=True),
        *_columns(Holds.REAL, {"Thr": "work"}, read=True),
        *_columns(Holds.REAL, {"Rate": "rate"}),
        *_columns(Holds.REAL, {"ReScost": "rescale_cost"}, read=True),
        *_columns(Holds.COUNT, {"evt": "number", "Nleft": "left", "Npre": "preempted", "Njoin": "joined"}),
        *_columns(Holds.COUNT, {"nJob": lambda events: events["tasks"].sizes, "nNd": "idle"}, read=True),
        *_columns(Holds.COUNT, {"nJrun": "running"}),
        *_columns(Holds.COUNT, {"nNrun": "used"}, read=True),
        *_columns(Holds.REAL, {"PreCost": "preemption_cost"}, read=True),
        *_columns(Holds.REAL, {"SaveCost": "saving_cost"}, only=_saves),
    ),
)
DECISIONS = RunTable(
    "decisions.parquet",
    lambda result: result.recording.decisions.parts(),
    (
        *_columns(Holds.COUNT, "event"),
        *_columns(Holds.TIME, {"time": "time_s"}, read=True),
        *_columns(Holds.COUNT, "nodes"),
        *_columns(Holds.TEXTS, "tasks"),
        *_columns(Holds.COUNTS, "before after"),
        *_columns(Holds.REAL, "objective bound", null=True),
        *_columns(Holds.REAL, "gap", null=True, read=True),
        *_columns(Holds.TEXT, "stop_reason"),
        *_columns(Holds.TEXT, {"held": _held}, read=True),
        *_columns(Holds.TEXT, "solver"),
        *_columns(Holds.REAL, "solve_s", read=True),
        *_columns(Holds.TEXT, "decided_by"),
        *_columns(Holds.COUNT, "model_rows model_columns", null=True),
        *_columns(Holds.REAL, "backend_s", null=True),
        *_columns(Holds.COUNTS, {"batch_size": "batch_sizes", "power_limit_w": "power_limits_w"}, only=_is_tuned),
        *_columns(Holds.REAL, "drawn_w cap_w", null=True, only=_is_tuned),
    ),
)
TASKS = RunTable(
    "tasks.parquet",
    lambda result: [result.recording.tasks],
    (
        *_columns(Holds.TEXT, {"task": "spec.name"}, read=True),
        *_columns(Holds.TEXT, {"group": "spec.group"}, read=True, null=True, only=_is_grouped),
        *_columns(
            Holds.TIME, {name: f"{name}_s" for name in ("submitted", "started", "completed")}, read=True, null=True
        ),
        *_columns(Holds.REAL, "work_done work_total node_s", read=True),
        *_columns(Holds.COUNT, "rescales preemptions", read=True),
        *_columns(Holds.REAL, "rescale_cost preemption_cost", read=True),
        *_columns(Holds.REAL, "saving_cost", only=_saves),
        *_columns(Holds.REAL, _of_tuned("energy_j", "train_s"), read=True, null=True, only=_is_tuned),
        *_columns(Holds.COUNT, _of_tuned("attempts", "batch_size", "power_limit_w"), null=True, only=_is_tuned),
        *_columns(Holds.FLAG, _of_tuned("reached"), null=True, only=_is_tuned),
    ),
)
ALLOCATION = RunTable(
    "allocation.parquet",
    _moves,
    (
        *_columns(Holds.TIME, {"time": "time_s"}, read=True),
        *_columns(Holds.TEXT, "node", read=True),
        *_columns(Holds.TEXT, "task", read=True, null=True),
    ),
)
POWER = RunTable(
    "power.parquet",
    _pieces,
    (
        *_columns(Holds.TIME, {"begin": "begin_s", "end": "end_s"}),
        *_columns(Holds.REAL, "begin_s end_s tasks_w idle_w", read=True),
        *_columns(Holds.REAL, "cap_w", read=True, null=True),
    ),
)
ATTEMPTS = RunTable(
    "attempts.parquet",
    lambda result: [result.metered.attempts if result.metered else ()],
    (
        *_columns(Holds.TEXT, "group task", read=True),
        *_columns(Holds.COUNT, "recurrence attempt batch_size power_limit_w"),
        *_columns(Holds.REAL, "energy_j train_s"),
        *_columns(Holds.FLAG, "reached"),
    ),
)


BELIEFS = RunTable(
    "beliefs.parquet",
    lambda result: [result.recording.beliefs or ()],
    (
        *_columns(Holds.COUNT, "event"),
        *_columns(Holds.TEXT, "task"),
        *_columns(Holds.COUNT, "nodes"),
        *_columns(Holds.REAL, "throughput"),
    ),
)


def run_tables(result: RunResult) -> list[RunTable]:
    """Tables of a run, the step log first."""
    power, tuned = result.metered is not None, _is_tuned(result)
    found = [STEPS, DECISIONS, TASKS, ALLOCATION, *([POWER] if power else []), *([ATTEMPTS] if tuned else [])]
    return [*found, *([BELIEFS] if result.learned else [])]


def write_run(result: RunResult, directory: Path) -> None:
    """Write step-logs.csv, decisions.parquet, tasks.parquet, allocation.parquet and summary.json.

    Also power.parquet if power is known, attempts.parquet if tasks are tuned, and beliefs.parquet if curves are learnt.

    Raises
    ------
    OSError
        If the disk is full or the directory cannot be written to.
    """
    import pyarrow.parquet as pq

    steps, *tables = run_tables(result)
    _write_steps(result, directory / steps.file)
    for table in tables:
        # Opened here, as pyarrow cannot encode every directory name.
        with (
            (directory / table.file).open("wb") as file,
            pq.ParquetWriter(file, table.schema(result), compression="zstd") as writer,
        ):
            for group in table.groups(result):
                writer.write_table(group)
                release_mapped()
    text = json.dumps(result.summary(), indent=2, allow_nan=False)
    (directory / "summary.json").write_text(text + "\n", encoding="utf-8")


def _write_steps(result: RunResult, path: Path) -> None:
    """Write the step log, with numbers as Python prints them."""
    kept = STEPS.of_run(result)
    line = ",".join(["%s"] * len(kept)) + "\n"  # no value needs quotes, and `csv` takes twice as long
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(line % tuple(column.name for column in kept))
        for events in STEPS.source(result):
            time_s, *columns = (column.values(events) for column in kept)
            times = iso_column(instants_ns(result.start_ns, time_s))
            file.writelines(map(line.__mod__, zip(*(column.tolist() for column in (times, *columns)), strict=True)))
            release_mapped()
