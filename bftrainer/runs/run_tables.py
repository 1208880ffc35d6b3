"""Files of a run: each column is declared once, for writing, reading and checking."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bftrainer.files.arrow import booleans, instants, integers, lists, reals, texts
from bftrainer.model.records import HELD, DecisionRecord, PowerSample, TaskRecord
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

        types = {
            Holds.TIME: pa.timestamp("ns", tz="UTC"),
            Holds.REAL: pa.float64(),
            Holds.COUNT: pa.int64(),
        }
        types |= {Holds.TEXT: pa.string(), Holds.FLAG: pa.bool_()}
        return (types | {Holds.COUNTS: pa.list_(pa.int64()), Holds.TEXTS: pa.list_(pa.string())})[self]

    def array(self, values: Sequence[Any], start_ns: int) -> pa.Array:
        """Make a column of values; times are in seconds after `start_ns`, and None is null."""
        if self is Holds.TIME:
            return instants(start_ns, values)
        if self in (Holds.COUNTS, Holds.TEXTS):
            flat = list(chain.from_iterable(values))
            return lists([len(each) for each in values], integers(flat) if self is Holds.COUNTS else texts(flat))
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
        Function of a row's record that returns the value, or name of the record's attribute.
    read : bool
        Whether `FinishedRun` includes it.
    null : bool
        Whether it may be null.
    tuned : bool
        Whether only runs with tuned tasks have it.
    among : tuple of str
        Allowed texts; if empty, any.
    """

    name: str
    kind: Holds
    of: str | Callable[[Any], Any]
    read: bool = False
    null: bool = False
    tuned: bool = False
    among: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name in `FinishedRun`: that of the record's attribute."""
        return self.of.rpartition(".")[2] if isinstance(self.of, str) else self.name

    def values(self, records: Iterable[Any]) -> list[Any]:
        """Values of the records."""
        return list(map(attrgetter(self.of) if isinstance(self.of, str) else self.of, records))


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
        Function of a result that returns the records, or all columns at once.
    columns : tuple of Column
    """

    file: str
    source: Callable[[RunResult], Sequence[Any] | Mapping[str, pa.Array]]
    columns: tuple[Column, ...]

    @property
    def read(self) -> tuple[Column, ...]:
        """Columns that `FinishedRun` includes."""
        return tuple(column for column in self.columns if column.read)

    def of(self, result: RunResult) -> pa.Table:
        """Make the table of a result."""
        import pyarrow as pa

        source = self.source(result)
        if isinstance(source, Mapping):
            return pa.table(dict(source))
        columns = [column for column in self.columns if not column.tuned or _is_tuned(result)]
        return pa.table({each.name: each.kind.array(each.values(source), result.start_ns) for each in columns})


def _is_tuned(result: RunResult) -> bool:
    """Whether a run has tuned tasks."""
    return any(task.tuned is not None for task in result.recording.tasks)


class _Piece(NamedTuple):
    """Time span of constant power, with the cap at its beginning."""

    power: PowerSample
    cap_w: float | None


def _pieces(result: RunResult) -> list[_Piece]:
    if result.metered is None:
        return []
    cap = result.metered.plan.power_cap_w
    return [_Piece(piece, cap.at(piece.begin_s) if cap else None) for piece in result.metered.record.samples]


def _allocation(result: RunResult) -> dict[str, pa.Array]:
    """Columns of the table with a row for each node that changes hands, made as arrays because of their number."""
    changes = result.recording.allocation
    sizes = [change.nodes.size for change in changes]
    nodes = np.concatenate([change.nodes for change in changes]) if changes else np.empty(0, dtype=np.int32)
    owners = np.repeat(np.array([change.task for change in changes], dtype=np.int32), sizes)
    return {
        "time": instants(result.start_ns, np.repeat([change.time_s for change in changes], sizes)),
        "node": texts(result.nodes, nodes),
        "task": texts([task.spec.name for task in result.recording.tasks], owners),
    }


def _held(record: DecisionRecord) -> str:
    found = record.decision.result
    return "kept" if found is None or found.held is Held.NOTHING else found.held.value


def _of_tasks(name: str) -> Callable[[DecisionRecord], Sequence[int | None]]:
    """A setting of each active task; None for tasks that are not tuned."""
    return lambda record: getattr(record.decision, name) or (None,) * len(record.decision.tasks)


def _of_tuned(*names: str) -> dict[str, Callable[[TaskRecord], Any]]:
    """A figure of a task's tuning; None if it is not tuned."""

    def value(name: str) -> Callable[[TaskRecord], Any]:
        return lambda task: None if task.tuned is None else getattr(task.tuned, name)

    return {name: value(name) for name in names}


STEPS = RunTable(
    "step-logs.csv",
    lambda result: result.recording.events,
    (
        *_columns(Holds.TIME, {"evtTime": "time_s"}, read=True),
        *_columns(Holds.REAL, {"Thr": "work"}, read=True),
        *_columns(Holds.REAL, {"Rate": "rate"}),
        *_columns(Holds.REAL, {"ReScost": "rescale_cost"}, read=True),
        *_columns(Holds.COUNT, {"evt": "number", "Nleft": "left", "Npre": "preempted", "Njoin": "joined"}),
        *_columns(Holds.COUNT, {"nJob": lambda event: len(event.tasks), "nNd": "idle"}, read=True),
        *_columns(Holds.COUNT, {"nJrun": "running"}),
        *_columns(Holds.COUNT, {"nNrun": "used"}, read=True),
        *_columns(Holds.REAL, {"PreCost": "preemption_cost"}, read=True),
    ),
)
DECISIONS = RunTable(
    "decisions.parquet",
    lambda result: [record for record in result.recording.decisions if record.decision.result is not None],
    (
        *_columns(Holds.COUNT, "event"),
        *_columns(Holds.TIME, {"time": "decision.time_s"}, read=True),
        *_columns(Holds.COUNT, {"nodes": "decision.nodes"}),
        *_columns(Holds.TEXTS, {"tasks": "decision.tasks"}),
        *_columns(Holds.COUNTS, {"before": "decision.before", "after": "decision.after"}),
        *_columns(Holds.REAL, {name: f"decision.result.{name}" for name in ("objective", "bound")}, null=True),
        *_columns(Holds.REAL, {"gap": "decision.result.gap"}, null=True, read=True),
        *_columns(Holds.TEXT, {"stop_reason": "decision.result.stop_reason.value"}),
        *_columns(Holds.TEXT, {"held": _held}, read=True, among=HELD),
        *_columns(Holds.TEXT, {"solver": "decision.result.solver"}),
        *_columns(Holds.REAL, {"solve_s": "decision.result.solve_s"}, read=True),
        *_columns(Holds.TEXT, {"decided_by": "decision.result.decided_by.value"}),
        *_columns(
            Holds.COUNT, {name: f"decision.result.{name}" for name in ("model_rows", "model_columns")}, null=True
        ),
        *_columns(Holds.REAL, {"backend_s": "decision.result.backend_s"}, null=True),
        *_columns(
            Holds.COUNTS,
            {"batch_size": _of_tasks("batch_sizes"), "power_limit_w": _of_tasks("power_limits_w")},
            tuned=True,
        ),
        *_columns(Holds.REAL, {name: f"decision.{name}" for name in ("drawn_w", "cap_w")}, null=True, tuned=True),
    ),
)
TASKS = RunTable(
    "tasks.parquet",
    lambda result: result.recording.tasks,
    (
        *_columns(Holds.TEXT, {"task": "spec.name"}, read=True),
        *_columns(
            Holds.TIME, {name: f"{name}_s" for name in ("submitted", "started", "completed")}, read=True, null=True
        ),
        *_columns(Holds.REAL, "work_done work_total node_s", read=True),
        *_columns(Holds.COUNT, "rescales preemptions", read=True),
        *_columns(Holds.REAL, "rescale_cost preemption_cost", read=True),
        *_columns(Holds.REAL, _of_tuned("energy_j", "train_s"), read=True, null=True, tuned=True),
        *_columns(Holds.COUNT, _of_tuned("attempts", "batch_size", "power_limit_w"), null=True, tuned=True),
        *_columns(Holds.FLAG, _of_tuned("reached"), null=True, tuned=True),
    ),
)
ALLOCATION = RunTable(
    "allocation.parquet",
    _allocation,
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
        *_columns(Holds.TIME, {"begin": "power.begin_s", "end": "power.end_s"}),
        *_columns(Holds.REAL, {name: f"power.{name}" for name in ("begin_s", "end_s", "tasks_w", "idle_w")}, read=True),
        *_columns(Holds.REAL, "cap_w", read=True, null=True),
    ),
)
ATTEMPTS = RunTable(
    "attempts.parquet",
    lambda result: result.metered.attempts if result.metered else (),
    (
        *_columns(Holds.TEXT, "group task"),
        *_columns(Holds.COUNT, "recurrence attempt batch_size power_limit_w"),
        *_columns(Holds.REAL, "energy_j train_s"),
        *_columns(Holds.FLAG, "reached"),
    ),
)


def run_tables(result: RunResult) -> list[RunTable]:
    """Tables of a run, the step log first."""
    power, tuned = result.metered is not None, _is_tuned(result)
    return [STEPS, DECISIONS, TASKS, ALLOCATION, *([POWER] if power else []), *([ATTEMPTS] if tuned else [])]


def write_run(result: RunResult, directory: Path) -> None:
    """Write step-logs.csv, decisions.parquet, tasks.parquet, allocation.parquet and summary.json.

    Also power.parquet if power is known, and attempts.parquet if tasks are tuned.

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
        with (directory / table.file).open("wb") as file:
            pq.write_table(table.of(result), file, compression="zstd")
    text = json.dumps(result.summary(), indent=2, allow_nan=False)
    (directory / "summary.json").write_text(text + "\n", encoding="utf-8")


def _write_steps(result: RunResult, path: Path) -> None:
    """Write the step log, with numbers as Python prints them."""
    columns = [column.values(result.recording.events) for column in STEPS.columns]
    columns[0] = list(map(result.iso, columns[0]))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([column.name for column in STEPS.columns])
        writer.writerows(zip(*columns, strict=True))
