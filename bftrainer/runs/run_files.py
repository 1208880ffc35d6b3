"""A run's result, and its files, written and read: each column is declared once.

What the files say is checked by `bftrainer audit`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import astuple, dataclass, field
from datetime import datetime
from functools import reduce
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv

from bftrainer.errors import BftrainerError, OutputError, SettingsError, escape_text, suggestion
from bftrainer.files.arrow import open_native, parquet_file
from bftrainer.files.opening import translated
from bftrainer.files.text_files import json_file
from bftrainer.files.writing import versions
from bftrainer.model import NS_PER_S, instant_ns, instants_ns, iso
from bftrainer.model.columns import Coded, Lists, Table
from bftrainer.model.records import RUN_SCHEMA, PowerRecord, PowerSample, Recording
from bftrainer.model.type_checks import fault_text
from bftrainer.objectives import name_of_objective
from bftrainer.plugins import full_name
from bftrainer.replay.power_draw import value_at
from bftrainer.report import metrics
from bftrainer.report.comparison import figures_of, run_names
from bftrainer.report.finished_run import FinishedRun
from bftrainer.report.glossary import headline
from bftrainer.report.ledger import find_limit, ledger_of
from bftrainer.report.metrics import idle_node_s, ratio
from bftrainer.runs.config import OPTIONS, ReplayConfig
from bftrainer.runs.efficiency import Efficiency
from bftrainer.runs.run_inputs import LEARNED, Inputs
from bftrainer.terms import ON_SCALING
from solvers.problem import Held
from solvers.registry import describe_solver

if TYPE_CHECKING:
    import pandas as pd

    from bftrainer.zeus.tuned_task import Attempt

TIME, REAL, COUNT, TEXT, FLAG = pa.timestamp("ns", tz="UTC"), pa.float64(), pa.int64(), pa.string(), pa.bool_()
COUNTS, TEXTS = pa.list_(COUNT), pa.list_(TEXT)
Rows = Sequence[Any] | Mapping[str, Any]
"""Records, or columns by name."""


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table; docs/files.md describes each."""

    name: str
    kind: pa.DataType
    path: str  # field of the records, or an attribute of one
    only: str = ""  # runs have it if this attribute is not None in one of their tasks

    @property
    def key(self) -> str:
        """Name in `FinishedRun`: that of the record's attribute."""
        return self.path.rpartition(".")[2]

    def values(self, rows: Rows) -> Any:
        """Values of the rows; None where a part of a record is None."""
        field, *inner = self.path.split(".")
        if isinstance(rows, Table | Mapping):
            return reduce(getattr, inner, rows[field])
        return [reduce(lambda value, name: getattr(value, name, None), inner, getattr(row, field)) for row in rows]

    def array(self, rows: Rows, result: RunResult) -> pa.Array:
        """Make the column: times are seconds since the run's start, and lists of texts the numbers of tasks."""
        values = self.values(rows)
        if isinstance(values, Coded):
            return texts(["kept" if name is Held.NOTHING else name for name in values.names], values.codes)
        if isinstance(values, Lists):
            flat = make_column(COUNT, values.values) if self.kind == COUNTS else texts(_names(result), values.values)
            return pa.ListArray.from_arrays(make_column(COUNT, values.offsets).cast(pa.int32()), flat)
        return texts(values) if self.kind == TEXT else make_column(self.kind, values, result.start_ns)


# By buffers, as `pyarrow.array` imports pandas: 0.2 s and 32 MiB.
def _column(kind: pa.DataType, values: NDArray[np.generic], missing: NDArray[np.bool_]) -> pa.Array:
    """Values of a fixed width; null where `missing`."""
    bits = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(kind, values.size, [bits, pa.py_buffer(np.ascontiguousarray(values))])


def make_column(kind: pa.DataType, values: Sequence[float | None] | NDArray[Any], start_ns: int = 0) -> pa.Array:
    """Column of numbers, flags, or times, which are seconds after a start.

    Null for None, for what is not finite, and in arrays for integers below 0.
    """
    if kind in (REAL, TIME):
        array = np.asarray(values, dtype=np.float64)
        missing = ~np.isfinite(array)
        return _column(kind, array if kind == REAL else instants_ns(start_ns, np.where(missing, 0.0, array)), missing)
    if isinstance(values, np.ndarray):
        return _column(COUNT, values.astype(np.int64, copy=False), values < 0)
    missing = np.array([value is None for value in values], dtype=np.bool_)
    return _column(COUNT, np.array([value or 0 for value in values], dtype=np.int64), missing).cast(kind)


def texts(values: Sequence[str | None], which: NDArray[np.integer] | None = None) -> pa.Array:
    """Column of strings: `values`, or those at the indices `which`; null for None, and where an index is negative."""
    builder = pa.lib.StringBuilder()
    builder.append_values(values)
    column = builder.finish()
    return column if which is None else column.take(_column(pa.int32(), which.astype(np.int32), which < 0))


def _columns(kind: pa.DataType, names: str, prefix: str = "", only: str = "") -> list[Column]:
    """Columns of one kind, by names of fields behind a prefix; as ``name=field`` where they differ."""
    pairs = (name.partition("=") for name in names.split())
    return [Column(name, kind, prefix + (field or name), only) for name, _, field in pairs]


@dataclass(frozen=True, slots=True)
class RunTable:
    """Table of a run; its rows come in parts that fit in memory, at least one."""

    file: str
    source: Callable[[RunResult], Iterable[Rows]]
    columns: tuple[Column, ...]
    read: str = ""  # columns that pages and figures of finished runs show; with ? of those that may be null

    @property
    def shown(self) -> list[Column]:
        """Columns that `FinishedRun` includes."""
        names = self.read.replace("?", "").split()
        return [column for column in self.columns if column.name in names]

    def show(self, table: pa.Table) -> pa.Table:
        """Columns that `FinishedRun` includes, under its names, each of its type; only some may be null, or missing."""
        nulls, has = pa.nulls(table.num_rows), table.column_names
        columns = {c.key: nulls if c.only and c.name not in has else table[c.name] for c in self.shown}
        fields = [pa.field(c.key, c.kind, f"{c.name}?" in self.read.split()) for c in self.shown]
        return pa.table(columns).cast(pa.schema(fields))

    def columns_of(self, result: RunResult) -> list[Column]:
        """Columns that the result has."""
        tasks, onlys = result.recording.tasks, {column.only for column in self.columns} - {""}
        has = {only: any(attrgetter(only)(task) is not None for task in tasks) for only in onlys}
        return [column for column in self.columns if has.get(column.only, True)]

    def of(self, result: RunResult) -> pa.Table:
        """Make the table of a result."""
        return pa.concat_tables(self.groups(result))

    def schema(self, result: RunResult) -> pa.Schema:
        """Names and types of the columns that the result has."""
        return pa.schema([(column.name, column.kind) for column in self.columns_of(result)])

    def groups(self, result: RunResult) -> Iterator[pa.Table]:
        """Make the table of a result in parts of bounded size, at least one."""
        columns = self.columns_of(result)
        for rows in self.source(result):
            yield pa.table([column.array(rows, result) for column in columns], self.schema(result))


def _power_spans(result: RunResult) -> Iterator[Rows]:
    """Spans of constant power, with the cap at their beginning."""
    if result.metered is not None:
        for spans in result.metered.samples.parts():
            cap_w = [value_at(result.inputs.power_cap_w, time_s) for time_s in spans["begin_s"].tolist()]
            yield {**{name: spans[name] for name in PowerSample.__slots__}, "cap_w": cap_w}  # null where it is infinite


def _moves(result: RunResult) -> Iterator[Rows]:
    """A row for each node that changes hands, made as columns because of their number."""
    for changes in result.recording.allocation.parts():
        nodes = changes["nodes"]
        yield {
            "time_s": np.repeat(changes["time_s"], nodes.sizes),
            "node": Coded(nodes.values, result.inputs.log.nodes),
            "task": Coded(np.repeat(changes["task"], nodes.sizes), _names(result)),
        }


def _names(result: RunResult) -> list[str]:
    """Names of the tasks, by number."""
    return [task.spec.name for task in result.recording.tasks]


STEPS = RunTable(
    "step-logs.csv",
    lambda result: result.recording.events.parts(),
    (
        *_columns(TIME, "evtTime=time_s"),
        *_columns(REAL, "Thr=work Rate=rate ReScost=rescale_cost"),
        *_columns(COUNT, "evt=number Nleft=left Npre=preempted Njoin=joined nJob=tasks.sizes nNd=idle nJrun=running"),
        *_columns(COUNT, "nNrun=used"),
        *_columns(REAL, "PreCost=preemption_cost"),
        *_columns(REAL, "SaveCost=saving_cost", only="spec.saves"),
        *_columns(COUNT, "Nback=gave_back", only="give_backs"),
        *_columns(REAL, "BackCost=give_back_cost", only="give_backs"),
    ),
    read="evtTime Thr ReScost nJob nNd nNrun PreCost",
)
DECISIONS = RunTable(
    "decisions.parquet",
    lambda result: result.recording.decisions.parts(),
    (
        *_columns(COUNT, "event"),
        *_columns(TIME, "time=time_s"),
        *_columns(COUNT, "nodes"),
        *_columns(TEXTS, "tasks"),
        *_columns(COUNTS, "before after"),
        *_columns(REAL, "objective bound gap"),
        *_columns(TEXT, "stop_reason held solver"),
        *_columns(REAL, "solve_s"),
        *_columns(TEXT, "decided_by"),
        *_columns(COUNT, "model_rows model_columns"),
        *_columns(REAL, "backend_s"),
        *_columns(COUNTS, "batch_size=batch_sizes power_limit_w=power_limits_w", only="tuned"),
        *_columns(REAL, "drawn_w cap_w", only="tuned"),
    ),
    read="time gap? held solve_s",
)
TASKS = RunTable(
    "tasks.parquet",
    lambda result: [result.recording.tasks],
    (
        *_columns(TEXT, "task=spec.name"),
        *_columns(TEXT, "group=spec.group", only="spec.group"),
        *_columns(TIME, "submitted=submitted_s started=started_s completed=completed_s"),
        *_columns(REAL, "work_done work_total node_s"),
        *_columns(COUNT, "rescales preemptions"),
        *_columns(REAL, "rescale_cost preemption_cost"),
        *_columns(REAL, "saving_cost", only="spec.saves"),
        *_columns(COUNT, "give_backs", only="give_backs"),
        *_columns(REAL, "give_back_cost", only="give_backs"),
        *_columns(REAL, "energy_j train_s", "tuned.", only="tuned"),
        *_columns(COUNT, "attempts batch_size power_limit_w", "tuned.", only="tuned"),
        *_columns(FLAG, "reached", "tuned.", only="tuned"),
    ),
    read="task group? submitted? started? completed? work_done work_total node_s rescales preemptions rescale_cost "
    "preemption_cost energy_j? train_s?",
)
ALLOCATION = RunTable(
    "allocation.parquet",
    _moves,
    (*_columns(TIME, "time=time_s"), *_columns(TEXT, "node task")),
    read="time node task?",
)
POWER = RunTable(
    "power.parquet",
    _power_spans,
    (*_columns(TIME, "begin=begin_s end=end_s"), *_columns(REAL, "begin_s end_s tasks_w idle_w cap_w")),
)
SHOWN = (STEPS, DECISIONS, TASKS, ALLOCATION)
"""Tables that pages and figures of finished runs read."""
ATTEMPTS = RunTable(
    "attempts.parquet",
    lambda result: [result.attempts],
    (
        *_columns(TEXT, "group task"),
        *_columns(COUNT, "recurrence attempt batch_size power_limit_w"),
        *_columns(REAL, "energy_j train_s"),
        *_columns(FLAG, "reached"),
    ),
    read="group task",
)
BELIEFS = RunTable(
    "beliefs.parquet",
    lambda result: [result.recording.beliefs or ()],
    (*_columns(COUNT, "event"), *_columns(TEXT, "task"), *_columns(COUNT, "nodes"), *_columns(REAL, "throughput")),
)


def run_tables(result: RunResult) -> list[RunTable]:
    """Tables of a run, the step log first."""
    is_tuned = any(task.tuned is not None for task in result.recording.tasks)
    more = {POWER: result.metered is not None, ATTEMPTS: is_tuned, BELIEFS: bool(result.learned)}
    return [*SHOWN, *(table for table, is_there in more.items() if is_there)]


_EFFICIENCY: tuple[str, ...] = ("efficiency", "efficiency_horizon_s", "efficiency_eq_nodes")
_EFFICIENCY += ("ideal_work", "loss_variability_share", "loss_horizon_share")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RunResult:
    """Result of a replay.

    Parameters
    ----------
    inputs : Inputs
        What was replayed, and how.
    command : str
    recording : Recording
    timings : dict
        Wall-clock seconds, in which alone two equal runs differ: `load_s`, `replay_s`, `baseline_s` and `wall_s`.
    efficiency : Efficiency or None
        None without a comparison with constant pools.
    is_partial : bool
        Whether the run was interrupted or failed, in the replay or in that comparison.
    metered : PowerRecord or None
        None if power is unknown.
    attempts : tuple of Attempt
        Those of tuned tasks, in the order in which they ended.
    learned : dict
        Figures of learnt curves; empty if decisions knew all.
    more_tasks : dict
        What other replays with more tasks at once did; empty if few of them did not limit the run.
    failure : BftrainerError or None
        What ended the run before its time.
    engine : {"replay", "live"}
        What decided: a replay, or a harvest.
    versions : dict
        Those of the software that computed it.
    """

    inputs: Inputs
    command: str
    recording: Recording
    timings: Mapping[str, float]
    efficiency: Efficiency | None = None
    is_partial: bool = False
    metered: PowerRecord | None = None
    attempts: tuple[Attempt, ...] = ()
    learned: Mapping[str, Any] = field(default_factory=dict)
    more_tasks: Mapping[str, Any] = field(default_factory=dict)
    failure: BftrainerError | None = None
    engine: Literal["replay", "live"] = "replay"
    versions: Mapping[str, str] = field(default_factory=versions)
    _summary: dict[str, Any] = field(default_factory=dict, init=False)

    @property
    def config(self) -> ReplayConfig:
        """Options of the run."""
        return self.inputs.config

    @property
    def start_ns(self) -> int:
        """Start of the window, nanoseconds since the Unix epoch."""
        return self.inputs.log.start_ns

    def iso(self, time_s: float) -> str:
        """Format a time of this run in ISO 8601, UTC."""
        return iso(self.start_ns + round(time_s * NS_PER_S), "ns")

    def summary(self) -> dict[str, Any]:
        """All figures of the run, ready for JSON, in the order of the schema."""
        if self._summary:  # sums over a long replay take seconds
            return deepcopy(self._summary)
        recording, inputs, config, settings = self.recording, self.inputs, self.config, self._settings()
        intervals = metrics.Intervals.of(recording)
        pool = metrics.pool_metrics(intervals)
        return_on_investment = pool.pop("return_on_investment")
        fallback = describe_solver(config.fallback) if isinstance(config.fallback, str) else config.fallback
        decisions = metrics.decision_metrics(recording.decisions, None if fallback is None else fallback.name)
        solve_s = math.fsum(recording.decisions["solve_s"])
        idle_node_s_before_offers = 0.0 if inputs.idle_log is None else idle_node_s(inputs.idle_log, recording.end_s)
        ledger = ledger_of(recording, max(0.0, idle_node_s_before_offers - pool["idle_node_s"]))
        power: dict[str, Any] = {}  # if it is known, as that of tuned tasks is
        if self.metered is not None:
            power |= metrics.power_metrics(self.metered, inputs.carbon, config.pue, recording.end_s)
        if tuned := [task.tuned for task in recording.tasks if task.tuned is not None]:
            chosen = [(attempt.batch_size, attempt.power_limit_w) for attempt in self.attempts]
            power |= metrics.tuning_metrics(tuned, chosen)
        summary = {
            "schema": RUN_SCHEMA,
            "partial": self.is_partial,
            "end_reason": recording.reason,
            "command": self.command,
            "versions": dict(self.versions),
            "engine": self.engine,
            "inputs": dict(inputs.sources),
            "settings": settings,
            "seed": config.seed,
            "solver": full_name(config.solver),
            "objective": name_of_objective(config.objective),
            "forward_time_s": config.forward_time_s,
            "max_tasks": config.max_tasks,
            "window_start": self.iso(0.0),
            "window_end": self.iso(recording.end_s),
            "window_s": recording.end_s,
            "nodes_total": len(inputs.log.nodes),
            "node_log_notes": inputs.log.notes,
            "node_log_zone": inputs.log.zone,
            "events": len(recording.events),
            "decisions": decisions.pop("decisions"),
            **pool,
            "ledger": ledger,
            "limited_by": find_limit(ledger),
            **({"more_tasks": dict(self.more_tasks)} if self.more_tasks else {}),
            **dict(zip(_EFFICIENCY, astuple(self.efficiency) if self.efficiency else [None] * 6, strict=True)),
            "return_on_investment": return_on_investment,
            **metrics.task_metrics(recording.tasks, pool["used_node_s"]),
            **power,
            **self.learned,
            **decisions,
            **self.timings,
            "solve_wall_share": ratio(solve_s, self.timings["wall_s"]),
            "below_large_idle": metrics.metrics_below(intervals, settings["large_idle"]),
        }
        assumed, figures = inputs.assumed_scaling, figures_of(summary)
        resting = [key.rpartition(".")[2] for key in ON_SCALING if figures.get(key) is not None]
        summary["assumed_scaling"] = None if assumed is None else assumed.to_dict() | {"figures": resting}
        self._summary.update(summary)
        return deepcopy(self._summary)

    def frame(self, table: str = "tasks") -> pd.DataFrame:
        """Table of the run, as written to the Parquet file of that name.

        Parameters
        ----------
        table : str
            ``tasks``, ``decisions`` or ``allocation``; ``power`` and ``attempts`` if the run has them.

        Raises
        ------
        SettingsError
            If the run has no such table.
        """
        tables = {Path(run_table.file).stem: run_table for run_table in run_tables(self)[1:]}
        if table not in tables:
            raise SettingsError(f"Expected a table of this run, got {table!r}.{suggestion(table, tables)}")
        return tables[table].of(self).to_pandas()

    def report(self, path: str | Path, *, force: bool = False) -> Path:
        """Write a page about the run; the same as `bftrainer report`.

        Raises
        ------
        OutputError
            If it exists and not `force`, or cannot be written.
        SettingsError
            If the extra `report` is not installed.
        """
        from bftrainer.report.run_page import write_page

        output = Path(path)
        write_page([convert_result(self, output.stem.removesuffix("-itrOut"))], output, force=force)
        return output

    def __repr__(self) -> str:
        return f"<RunResult: {headline(self.summary())}>"

    def _repr_html_(self) -> str | None:
        """Show the brief in notebooks."""
        from bftrainer.report.run_page import notebook_view

        return notebook_view(convert_result(self, "this run"))

    def _settings(self) -> dict[str, Any]:
        """Settings that affect the result, besides the inputs; those of power and learning only where they matter."""
        config, assumed = self.config, self.inputs.assumed_scaling
        until_s, quarter = config.until_s(self.start_ns), max(1, len(self.inputs.log.nodes) // 4)
        derived = {
            "since": None if config.since is None else self.iso(0.0),
            "until_s": until_s if math.isfinite(until_s) else None,
            "large_idle": quarter if config.large_idle is None else config.large_idle,
            "scaling": LEARNED if config.scaling == LEARNED else assumed and str(assumed.model),
        }
        ineffective = {"power": not self.metered, "learning": not self.learned}
        plain = {}
        for name, option in OPTIONS.items():
            value = getattr(config, name)
            if name in derived or not option.is_setting or ineffective.get(option.section):
                continue
            if option.default_told or value != option.default:
                value = full_name(value) if hasattr(value, "solve") else value
                plain[name] = str(value) if isinstance(value, Path) else value
        return plain | {"objective": name_of_objective(config.objective)} | derived


def write_run(result: RunResult, directory: Path) -> None:
    """Write all tables of a run and summary.json into a directory: `OSError` if that fails."""
    columns = STEPS.columns_of(result)
    line = ",".join(["%s"] * len(columns)) + "\n"  # no value needs quotes, and `csv` takes twice as long
    with (directory / STEPS.file).open("w", newline="", encoding="utf-8") as steps:
        steps.write(line % tuple(column.name for column in columns))
        for events in STEPS.source(result):
            time_s, *figures = (column.values(events) for column in columns)
            times = np.datetime_as_string(instants_ns(result.start_ns, time_s).view("M8[ns]"), timezone="UTC")
            # Numbers are written as Python prints them.
            steps.writelines(map(line.__mod__, zip(*(column.tolist() for column in (times, *figures)), strict=True)))
    for table in run_tables(result)[1:]:
        # Opened here, as pyarrow cannot encode every directory name.
        with (
            (directory / table.file).open("wb") as file,
            pq.ParquetWriter(file, table.schema(result), compression="zstd") as writer,
        ):
            for group in table.groups(result):
                writer.write_table(group)
    text = json.dumps(result.summary(), indent=2, allow_nan=False)
    (directory / "summary.json").write_text(text + "\n", encoding="utf-8")


def read_summary(path: Path) -> dict[str, Any]:
    """Read the summary of a result directory: `OutputError` if it is damaged, or of another version."""
    from pydantic import ValidationError  # which takes a tenth of a second

    from bftrainer.model.summary import SummaryModel

    file = path / "summary.json"
    with translated(file, OutputError):
        if not file.is_file():
            instead = "none in it" if path.is_dir() else "a file" if path.exists() else "nothing"
            raise OutputError(f"{path}: Expected a result directory with a {file.name}, found {instead}.")
    summary: dict[str, Any] = json_file(file, OutputError, "the summary of a run in JSON")
    try:
        SummaryModel.model_validate(summary)
        start_ns, end_ns = (instant_ns(summary[f"window_{which}"]) for which in ("start", "end"))
        if not math.isclose((end_ns - start_ns) / NS_PER_S, summary["window_s"], rel_tol=1e-9, abs_tol=1e-6):
            raise ValueError(f"they are not window_s apart, {summary['window_s']:g} s")
    except ValidationError as fault:
        is_other = {one["type"] for one in fault.errors()} & {"missing", "less_than_equal"}
        hint = " A run of another version is read by that version; or replay it again." if is_other else ""
        raise OutputError(f"{file}: {fault_text(fault).removesuffix('.')}.{hint}") from None
    except (ValueError, OverflowError) as error:
        raise OutputError(f"{file}: window_start, window_end: Expected times ({error}).") from None
    return summary


def find_inputs(directory: Path, summary: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Options that named input files of a run, and for each file its `path`, here or beside the run, and its `sha256`.

    An `OutputError` if one is not there.
    """
    for name, entries in summary["inputs"].items():
        for entry in entries if isinstance(entries, list) else [entries] if entries else ():
            here, beside = Path(entry["path"]), directory.resolve().parent / entry["path"]
            path = here if here.is_file() else beside
            if not path.is_file():
                raise OutputError(f"{directory}: input {escape_text(entry['path'])} not found.")
            yield name, entry | {"path": path}


def load_options(directory: Path, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Load the options of `ReplayConfig` of a run; an `OutputError` if an input is not there."""
    settings = summary["settings"]
    inputs = {name: entry["path"] for name, entry in find_inputs(directory, summary)}
    if not {"node_log", "tasks"} <= inputs.keys():
        raise OutputError(f"{directory}: Expected a run whose inputs are files.")
    if settings.get("foresight", "none") != "none":
        raise OutputError(f"{directory}: Expected a run without foresight, which no replay has any more.")
    options = {name: settings[name] for name in OPTIONS if name in settings}
    options |= {name: path for name, path in inputs.items() if name in OPTIONS}
    since = settings.get("since")
    since = since if since is None else datetime.fromisoformat(since)
    return options | {"since": since, "until": settings.get("until_s")}


def read_runs(paths: Sequence[Path]) -> list[FinishedRun]:
    """Read runs, under names that distinguish them: `OutputError` if one cannot be read."""
    return [read_run(path, name) for path, name in zip(paths, run_names(paths), strict=True)]


def read_run(path: Path, name: str | None = None) -> FinishedRun:
    """Read all that pages and figures show of a run: `OutputError` if a file is missing, damaged or another's."""
    summary = read_summary(path)
    tables = {}
    for table in SHOWN:
        rows = read_run_rows(path / table.file, table, [column.name for column in table.shown])
        with _table_expected(path / table.file):
            tables[Path(table.file).stem] = table.show(rows)
    return FinishedRun.from_tables(name or run_names([path])[0], summary, tables)


def convert_result(result: RunResult, name: str) -> FinishedRun:
    """A result as if read from its files."""
    summary = json.loads(json.dumps(result.summary()))  # converted as in its file
    tables = {Path(table.file).stem: table.show(table.of(result)) for table in SHOWN}
    return FinishedRun.from_tables(escape_text(name), summary, tables)


def read_run_rows(path: Path, schema: RunTable, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a file of a run, in Parquet these columns alone."""
    with translated(path, OutputError), _table_expected(path):
        if schema is STEPS:
            types = csv.ConvertOptions(column_types={column.name: column.kind for column in schema.columns})
            with open_native(path) as stream:
                return csv.read_csv(stream, convert_options=types)
        with parquet_file(path, OutputError) as file:
            table = file.read(columns)
            table.validate(full=True)
            return table


@contextmanager
def _table_expected(path: Path) -> Iterator[None]:
    """Say of what is no table of a run which file it is."""
    try:
        yield
    except (LookupError, ValueError, NotImplementedError, pa.ArrowException) as fault:
        reason = escape_text(" ".join(str(fault).split())[:200].strip("'\"").removesuffix("."))
        raise OutputError(f"{path}: Expected this table of a run ({reason}).") from None


@dataclass(frozen=True, slots=True)
class RunFrames:
    """What a run wrote, with the columns of its files: a row an event, a decision, a task, and a node's move."""

    summary: dict[str, Any]
    events: pd.DataFrame
    decisions: pd.DataFrame
    tasks: pd.DataFrame
    allocation: pd.DataFrame


def read_results(path: str | Path) -> RunFrames:
    """Read a result directory as data frames, for notebooks: `OutputError` if a file is missing or damaged.

    Examples
    --------
    >>> frames = read_results("my-run")  # doctest: +SKIP
    >>> frames.events.plot(x="evtTime", y="nNd")  # doctest: +SKIP
    """
    tables = [read_run_rows(Path(path) / table.file, table) for table in SHOWN]
    return RunFrames(read_summary(Path(path)), *(table.to_pandas() for table in tables))
