"""A finished run for pages and figures: arrays by column, nodes of tasks over time, and what of them a screen shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bftrainer.errors import escape_text
from bftrainer.model import NS_PER_S, instant_ns
from bftrainer.model.instants import time_zone

Columns = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def thin_steps(time_s: Floats, columns: Sequence[NDArray[np.generic]], end_s: float, width: int) -> Integers:
    """Rows of a step function that a chart `width` points wide can show.

    Of each of `width` equal pieces of the time, the first and last row stay, and those with the least and the greatest
    value of each column, so the outline of the curve is the same. Times ascend from 0 on; the indices do too.
    """
    count = time_s.size
    if count <= 2 * width or not end_s > 0:
        return np.arange(count)
    piece = np.minimum((time_s / end_s * width).astype(np.int64), width - 1)
    starts = np.flatnonzero(np.append(True, piece[1:] != piece[:-1]))
    ends = np.append(starts[1:] - 1, count - 1)
    rows = [starts, ends]
    for values in columns:
        by_value = np.lexsort((values, piece))
        rows += [by_value[starts], by_value[ends]]
    return np.unique(np.concatenate(rows))


@dataclass(frozen=True, slots=True, eq=False)
class TaskSpans:
    """Spans of time in which a task holds so many nodes on average; arrays of shape (S,), by task and time."""

    begin_s: Floats
    end_s: Floats
    task: Integers
    nodes: Floats

    def join(self, most: int, end_s: float) -> TaskSpans:
        """Join spans of a task that are too close for a screen to show, until about `most` are left.

        The shortest gap that stays grows until they are few enough; node-time stays the same.
        """
        spans, resolution = self, end_s / 4000.0
        while spans.begin_s.size > most and resolution <= 2.0 * end_s:
            # Join spans of a task that are both short or have a short gap between them.
            piece, task = (spans.begin_s / resolution).astype(np.int64), spans.task
            starts = np.flatnonzero(np.append(True, (task[1:] != task[:-1]) | (piece[1:] != piece[:-1])))
            begin, end = spans.begin_s[starts], np.maximum.reduceat(spans.end_s, starts)
            node_s = np.add.reduceat((spans.end_s - spans.begin_s) * spans.nodes, starts)
            spans = TaskSpans(begin, end, task[starts], node_s / (end - begin))
            resolution *= 2.0
        return spans


@dataclass(frozen=True, slots=True, eq=False)
class Holdings:
    """Number of nodes that tasks hold: in each row, from its time on a task holds so many; arrays of shape (H,).

    Times are seconds since the window's start, and ascend within a task; tasks, by their index in file order, ascend.
    """

    time_s: Floats
    task: Integers
    nodes: Integers

    def spans(self, end_s: float) -> TaskSpans:
        """Spans in which a task holds nodes; open ones end at `end_s`."""
        last = np.append(self.task[1:] != self.task[:-1], True) if self.task.size else np.zeros(0, dtype=bool)
        end = np.where(last, end_s, np.append(self.time_s[1:], end_s)[: self.time_s.size])
        rows = (self.nodes > 0) & (end > self.time_s)
        return TaskSpans(self.time_s[rows], end[rows], self.task[rows], self.nodes[rows].astype(np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class FinishedRun:
    """A finished replay, as read from its files: arrays by column, times in seconds since the window's start.

    `summary` is the contents of `summary.json`; `steps`, shape (E,), has the pool after each event: `idle` and `used`
    nodes until the next one, work and costs; `decisions`, shape (D,), `time_s`, `solve_s`, `held` and `gap`, NaN where
    it is unknown; `tasks`, shape (T,), in file order, `name` and `group`, empty without one, and the fields of a
    `TaskRecord`, NaN where there is no time or tuning.
    """

    name: str
    summary: Mapping[str, Any]
    steps: Columns
    decisions: Columns
    tasks: Columns
    holdings: Holdings

    @property
    def window_s(self) -> float:
        """Length of the replayed window."""
        return float(self.summary["window_s"])

    @property
    def zone(self) -> tzinfo:
        """Time zone for the times of the run: the site's, if its node log names one that is known here, else UTC."""
        return time_zone(self.summary.get("node_log_zone"))

    def at(self, time_s: float) -> str:
        """Date and time at the site, so many seconds after the window's start."""
        start = datetime.fromisoformat(self.summary["window_start"][:19]).replace(tzinfo=UTC)
        return f"{(start + timedelta(seconds=float(time_s))).astimezone(self.zone):%Y-%m-%d %H:%M}"

    @classmethod
    def from_tables(cls, name: str, summary: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> FinishedRun:
        """Make a run from its summary and its tables, by the names of their files; NaN stands for null."""
        start_ns = instant_ns(summary["window_start"])
        columns: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in tables}
        for file, table in tables.items():
            for (key, series), field in zip(table.to_pandas().items(), table.schema, strict=True):
                columns[file][key] = series.to_numpy()
                if pa.types.is_timestamp(field.type):
                    stamps = series.to_numpy("datetime64[ns]")
                    time_s = np.where(np.isnat(stamps), np.nan, (stamps.view(np.int64) - start_ns) / NS_PER_S)
                    columns[file][key] = time_s
        tasks, moves = columns["tasks"], columns["allocation"]
        holdings = _count_nodes(moves, tasks["name"])
        for key in ("name", "group"):  # empty where there is none; control characters would take effect on pages
            texts = [escape_text(text) if isinstance(text, str) else "" for text in tasks[key]]
            tasks[key] = np.array(texts, dtype=object)
        return cls(name, summary, columns["step-logs"], columns["decisions"], tasks, holdings)


def _count_nodes(moves: Columns, tasks: NDArray[Any]) -> Holdings:
    """Node counts of tasks, from moves of nodes: of the task that gets a node, if any does, and of the former one."""
    import pandas as pd

    task = pd.Index(tasks).get_indexer(moves["task"])
    former = pd.Series(task).groupby(moves["node"]).shift(fill_value=-1)
    change = np.repeat(np.array([1, -1]), task.size)
    columns = {"task": np.append(task, former), "time_s": np.tile(moves["time_s"], 2), "change": change}
    changes = pd.DataFrame(columns).query("task >= 0").groupby(["task", "time_s"])["change"].sum()
    holder, time_s = (changes.index.get_level_values(level).to_numpy() for level in ("task", "time_s"))
    return Holdings(time_s, holder, changes.groupby("task").cumsum().to_numpy())


def machine_in_words(run: FinishedRun) -> str:
    """Number of nodes, and the window."""
    return f"{run.summary['nodes_total']:,} nodes, {run.at(0.0)} to {run.at(run.window_s)} {run.zone}"


def short_names(runs: Sequence[FinishedRun], most: int = 20) -> list[FinishedRun]:
    """The runs under names that fit beside an axis, with numbers if they are equal then."""
    labels = [run.name if len(run.name) <= most else f"{run.name[: most - 1]}…" for run in runs]
    if len(set(labels)) < len(labels):
        labels = [f"{place}. {label}" for place, label in enumerate(labels, start=1)]
    return [replace(run, name=label) for run, label in zip(runs, labels, strict=True)]
