"""A finished run for pages and figures: arrays by column, nodes of tasks over time, and times of its site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bftrainer.errors import escaped
from bftrainer.model import NS_PER_S, instant_ns
from bftrainer.report.thinning import Floats, Integers, TaskSpans

Columns = Mapping[str, NDArray[Any]]


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

    Parameters
    ----------
    name : str
        Name of the run in comparisons.
    summary : mapping
        Contents of `summary.json`.
    steps : mapping, arrays of shape (E,)
        The pool after each event: `time_s`, ascending; `idle` and `used`, nodes until the next event; work and costs.
    decisions : mapping, arrays of shape (D,)
        `time_s`, `solve_s`, `held` (one of `HELD`), and `gap`, NaN where it is unknown.
    tasks : mapping, arrays of shape (T,)
        In file order: `name` and `group`, empty without one, then the fields of a `TaskRecord`; NaN where there is no
        time or tuning.
    holdings : Holdings
    power : mapping or None, arrays of shape (P,)
        Spans of constant power, see `PowerSample`, and `cap_w`, NaN without a cap; None if the power of nodes is
        unknown.
    """

    name: str
    summary: Mapping[str, Any]
    steps: Columns
    decisions: Columns
    tasks: Columns
    holdings: Holdings
    power: Columns | None

    @property
    def window_s(self) -> float:
        """Length of the replayed window."""
        return float(self.summary["window_s"])

    def node_s_between(self, edges_s: Floats) -> Floats:
        """Node-seconds that tasks held between times."""
        time_s = np.append(self.steps["time_s"], self.window_s)
        sums = np.append(0.0, np.cumsum(self.steps["used"] * np.diff(time_s)))
        return np.asarray(np.diff(np.interp(edges_s, time_s, sums)), dtype=np.float64)

    def at(self, time_s: float) -> str:
        """Date and time at the site, so many seconds after the window's start."""
        start = datetime.fromisoformat(self.summary["window_start"][:19]).replace(tzinfo=UTC)
        zone = zone_of(self.summary)
        clock = UTC if zone == "UTC" else ZoneInfo(zone)  # not every system has a data base of zones
        return f"{(start + timedelta(seconds=float(time_s))).astimezone(clock):%Y-%m-%d %H:%M}"

    @classmethod
    def from_tables(cls, name: str, summary: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> FinishedRun:
        """Make a run from its summary and its tables, by the names of their files."""
        start_ns = instant_ns(summary["window_start"])
        columns = {key: _to_arrays(table, start_ns) for key, table in tables.items()}
        tasks, moves = columns["tasks"], columns["allocation"]
        holdings = _count_nodes(moves, tasks["name"])
        for key in ("name", "group"):  # empty where there is none; control characters would take effect on pages
            texts = [escaped(text) if isinstance(text, str) else "" for text in tasks[key]]
            tasks[key] = np.array(texts, dtype=object)
        steps = _add_start(columns["step-logs"], summary)
        return cls(name, summary, steps, columns["decisions"], tasks, holdings, columns.get("power"))


def _to_arrays(table: pa.Table, start_ns: int) -> dict[str, NDArray[Any]]:
    """Columns of a table, times in seconds after the start; NaN for null."""
    columns = {}
    for (key, series), field in zip(table.to_pandas().items(), table.schema, strict=True):
        columns[key] = series.to_numpy()
        if pa.types.is_timestamp(field.type):
            stamps = series.to_numpy("datetime64[ns]")
            columns[key] = np.where(np.isnat(stamps), np.nan, (stamps.view(np.int64) - start_ns) / NS_PER_S)
    return columns


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


def _add_start(steps: dict[str, NDArray[Any]], summary: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Steps from the window's start on, which `--compat published` writes no row of: its nodes follow from the sums."""
    ends_s = np.append(steps["time_s"], summary["window_s"])
    if summary["settings"].get("compat") != "published" or not ends_s[0] > 0.0:
        return steps
    first = dict.fromkeys(steps, 0.0)
    for name in ("idle", "used"):
        first[name] = round((summary[f"{name}_node_s"] - float(np.diff(ends_s) @ steps[name])) / float(ends_s[0]))
    return {name: np.append(np.array([first[name]], dtype=steps[name].dtype), steps[name]) for name in steps}


def zone_of(summary: Mapping[str, Any]) -> str:
    """Time zone for the times of a run: the site's, if its node log names one that exists, else UTC."""
    zone: str | None = summary.get("node_log_zone")
    return zone if zone is not None and zone in _zones() else "UTC"


_zones = cache(available_timezones)


def machine_in_words(run: FinishedRun) -> str:
    """Number of nodes, and the window."""
    return f"{run.summary['nodes_total']:,} nodes, {run.at(0.0)} to {run.at(run.window_s)} {zone_of(run.summary)}"


def short_names(runs: Sequence[FinishedRun], most: int = 20) -> list[FinishedRun]:
    """The runs under names that fit beside an axis, with numbers if they are equal then."""
    labels = [run.name if len(run.name) <= most else f"{run.name[: most - 1]}…" for run in runs]
    if len(set(labels)) < len(labels):
        labels = [f"{place}. {label}" for place, label in enumerate(labels, start=1)]
    return [replace(run, name=label) for run, label in zip(runs, labels, strict=True)]
