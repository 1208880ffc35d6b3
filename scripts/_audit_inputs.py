"""Node logs and task sets as the audit reads them: on its own, from the files of the specification.

Legacy pickles are read with `pandas.read_pickle`, which executes what a hostile file asks for. An auditor reads
inputs of its own; the package, which does not, has a restricted reader.
"""

from __future__ import annotations

import csv
import gzip
import json
import tomllib
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

NS = 1_000_000_000


class UnusableError(Exception):
    """A run or an input that cannot be audited."""


@dataclass(frozen=True)
class Log:
    """Transitions of a machine's nodes: `time_ns` ascending, `node` an index into `nodes`, `idle` the new state."""

    nodes: list[str]
    start_ns: int
    end_ns: int
    time_ns: np.ndarray
    node: np.ndarray
    idle: np.ndarray


@dataclass(frozen=True)
class Task:
    """A task with its curves at every node count from 0 to `most`; `submit_ns` since the epoch."""

    name: str
    least: int
    most: int
    work: float
    grow_s: float
    shrink_s: float
    weight: float
    submit_ns: int
    rate: np.ndarray
    credit: np.ndarray

    def speed(self, count: int) -> float:
        """Work per second on so many nodes: none on fewer than the least, no more than on the most."""
        return float(self.rate[min(count, self.most)]) if count >= self.least else 0.0


def read_node_log(path: Path, skip: int, first: int, count: int | None, since: str | None = None) -> Log:
    """The log without its first `skip` rows, of `count` nodes from `first` on, from the time `since` on."""
    if ".pkl" in path.name or ".tar" in path.name:
        log = _matrix_log(path, skip)
    else:
        log, rows = _native_log(path)
        log = Log(log.nodes, int(rows[skip]), log.end_ns, log.time_ns, log.node, log.idle)
    if since is not None:
        log = Log(log.nodes, instant_ns(since), log.end_ns, log.time_ns, log.node, log.idle)
    stop = len(log.nodes) if count is None else first + count
    keep = (log.node >= first) & (log.node < stop)
    chosen = Log(
        log.nodes[first:stop], log.start_ns, log.end_ns, log.time_ns[keep], log.node[keep] - first, log.idle[keep]
    )
    return _opened(chosen)


def _opened(log: Log) -> Log:
    """What happened up to the window's start becomes the state at its start."""
    split = int(np.searchsorted(log.time_ns, log.start_ns, side="right"))
    state = np.zeros(len(log.nodes), dtype=bool)
    for node, idle in zip(log.node[:split], log.idle[:split], strict=True):
        state[node] = idle
    opening = np.flatnonzero(state)
    times = np.concatenate((np.full(opening.size, log.start_ns), log.time_ns[split:]))
    nodes = np.concatenate((opening, log.node[split:]))
    return Log(log.nodes, log.start_ns, log.end_ns, times, nodes, np.concatenate((state[opening], log.idle[split:])))


def _matrix_log(path: Path, skip: int) -> Log:
    frame = pd.read_pickle(path).iloc[skip:]
    times = frame.index.to_numpy().astype("datetime64[ns]").astype(np.int64)
    states = frame.to_numpy() == 1
    rows, nodes = np.nonzero(np.diff(states, axis=0, prepend=False))
    names = [str(name) for name in frame.columns]
    return Log(names, int(times[0]), int(times[-1]), times[rows], nodes, states[rows, nodes])


def _native_log(path: Path) -> tuple[Log, np.ndarray]:
    """The log, and the times of the rows it would have as a matrix."""
    if path.name.endswith(".parquet"):
        table = pq.read_table(path)
        texts = {key.decode().partition(".")[::2]: value for key, value in (table.schema.metadata or {}).items()}
        meta = {key: json.loads(value) for (owner, key), value in texts.items() if owner == "bftrainer"}
        frame = table.to_pandas()
    else:
        frame = pd.read_csv(path, dtype={"node": str, "idle": str}, keep_default_na=False)
        frame["idle"] = frame["idle"].str.lower().isin(["1", "true"])
        beside = path.with_name(path.name.removesuffix(".gz").removesuffix(".csv") + ".json")
        meta = json.loads(beside.read_text()) if beside.is_file() else {}
    times = pd.to_datetime(frame["time"], utc=True, format="ISO8601").dt.tz_localize(None)
    times = times.to_numpy().astype("datetime64[ns]").astype(np.int64)
    names = meta.get("nodes") or sorted(set(frame["node"].astype(str)))
    start, end = [instant_ns(text) for text in meta.get("window", [])] or [int(times[0]), int(times[-1])]
    unchanged = [instant_ns(text) for text in meta.get("unchanged_rows", [])]
    rows = {start, end, *unchanged, *(time for time in times.tolist() if time > start)}
    node = frame["node"].astype(str).map({name: index for index, name in enumerate(names)}).to_numpy().astype(np.int64)
    log = Log(names, start, end, times, node, frame["idle"].to_numpy(dtype=bool))
    return log, np.array(sorted(rows), dtype=np.int64)


def instant_ns(value: object, start_ns: int = 0) -> int:
    """Nanoseconds since the epoch of an ISO text or date (UTC without a zone), or of seconds after `start_ns`."""
    if isinstance(value, int | float):
        return start_ns + round(value * NS)
    stamp = pd.Timestamp(value)
    return int((stamp if stamp.tzinfo else stamp.tz_localize(UTC)).as_unit("ns").value)


def read_tasks(path: Path, scalability: Path | None, scaling: str | None, start_ns: int) -> list[Task]:
    """The tasks in file order; scaling from `scalability`, else the file's own, else the law `scaling`."""
    if ".pkl" in path.name:
        records = _legacy_records(path)
    elif ".csv" in path.name:
        records = _csv_records(path)
    else:
        records = tomllib.loads(path.read_text(encoding="utf-8"))["task"]
    measured = {} if scalability is None else _legacy_curves(scalability)
    return [
        _task(record, measured.get(record["name"]) or record.get("scaling"), scaling, start_ns) for record in records
    ]


def _task(record: dict, curve: dict | None, law: str | None, start_ns: int) -> Task:
    if "zeus" in record:
        raise UnusableError(f"a tuned task, {record['name']}: what its runs do is not worked out here")
    least, most = int(record["min_nodes"]), int(record["max_nodes"])
    rate, credit = _tables(curve or _law(law or "linear"), most)
    return Task(
        name=record["name"],
        least=least,
        most=most,
        work=float(record["work"]),
        grow_s=float(record.get("grow_cost_s", 0.0)),
        shrink_s=float(record.get("shrink_cost_s", 0.0)),
        weight=float(record.get("weight", 1.0)),
        submit_ns=instant_ns(record.get("submit", 0.0), start_ns),
        rate=rate,
        credit=credit,
    )


def _law(text: str) -> dict:
    kind, _, fraction = text.partition(":")
    return {"model": kind, "rate_1": 1.0, "parallel_fraction": float(fraction or 1.0)}


def _tables(curve: dict, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Throughput and credit at 0..most nodes."""
    counts = np.arange(most + 1)
    if "model" in curve:
        parallel = 1.0 if curve["model"] == "linear" else float(curve["parallel_fraction"])
        rate = np.zeros(most + 1)
        rate[1:] = curve.get("rate_1", 1.0) / ((1.0 - parallel) + parallel / counts[1:])
        return rate, rate
    rate = np.interp(counts, curve["nodes"], curve["throughput"])
    return rate, np.interp(counts, curve["nodes"], curve["credit"]) if curve.get("credit") else rate


def _legacy_records(path: Path) -> list[dict]:
    names = {"Jmin": "min_nodes", "Jmax": "max_nodes", "Pmax": "work", "Tcup": "grow_cost_s", "Tcdw": "shrink_cost_s"}
    frame = pd.read_pickle(path).rename(columns={**names, "Tsub": "submit"})
    return [{"name": str(name), **row} for name, row in zip(frame.index, frame.to_dict("records"), strict=True)]


def _legacy_curves(path: Path) -> dict[str, dict]:
    frame = pd.read_pickle(path)
    return {
        str(name): {"nodes": list(row["Ns"]), "throughput": list(row["Ps"]), "credit": list(row["Os"])}
        for name, row in zip(frame.index, frame.to_dict("records"), strict=True)
    }


def _csv_records(path: Path) -> list[dict]:
    opener = gzip.open if path.name.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as stream:
        rows = [{key: text for key, text in row.items() if text.strip()} for row in csv.DictReader(stream)]
    for row in rows:
        lists = ("nodes", "throughput", "credit")
        row["scaling"] = {key: [float(word) for word in row.pop(key).split()] for key in lists if key in row} or None
        row["submit"] = _seconds_or_text(row.get("submit", "0"))
    return rows


def _seconds_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
