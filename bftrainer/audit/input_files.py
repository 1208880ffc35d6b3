"""Independent readers of a run's input files.

The form of a file is recognised by its first bytes, else by its name.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import itertools
import json
import lzma
import math
import tarfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bftrainer.audit.parts import UnusableError
from bftrainer.audit.pickles import read_frame
from bftrainer.audit.saves import Saving

LEARNED = "learned"  # the scaling under which decisions know no curve
NS = 1_000_000_000
Floats = NDArray[np.float64]
_PACKED: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ\x00": lzma.decompress,
}


@dataclass(frozen=True)
class Log:
    """Transitions of a machine's nodes: `time_ns` ascending, `node` an index into `nodes`, `idle` the new state."""

    nodes: list[str]
    start_ns: int
    end_ns: int
    time_ns: NDArray[np.int64]
    node: NDArray[np.int64]
    idle: NDArray[np.bool_]


@dataclass(frozen=True)
class Task:
    """A task with its curves at every node count from 0 to `most`; `submit_ns` since the epoch.

    `submit_s` and `deadline_s` are seconds from the window's start. `tuned` is its zeus section, with the paths of its
    traces; `work` and `rate` then follow from the run that the task is in.
    """

    name: str
    least: int
    most: int
    work: float
    grow_s: float
    shrink_s: float
    weight: float
    submit_ns: int
    rate: Floats
    credit: Floats
    submit_s: float = 0.0
    deadline_s: float = math.inf
    group: str | None = None
    user: str | None = None
    gpus: int = 1
    own_credit: bool = False
    tuned: dict[str, Any] | None = None
    assumed: bool = False  # whether it scales by a law, as nobody says how it does
    saving: Saving | None = None

    def change_s(self, held: int) -> tuple[float, float]:
        """Seconds of work that growing from this many nodes costs, and shrinking."""
        if self.saving is None:
            return self.grow_s, self.shrink_s
        held = min(held, self.most)
        both = float(self.saving.save_s[held] + self.saving.restart_s[held])
        return both, both

    @property
    def start_s(self) -> Floats:
        """Seconds of work that a start costs where it is not free, by count."""
        return np.full(self.most + 1, self.grow_s) if self.saving is None else self.saving.restart_s


@dataclass(frozen=True)
class Series:
    """Values that hold from their time (s since the window's start) until the next one's."""

    times_s: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, time_s: float) -> float:
        """The value that holds at a time; the first one's before it."""
        return self.values[max(int(np.searchsorted(self.times_s, time_s, side="right")) - 1, 0)]

    def pieces(self, begin_s: float, end_s: float) -> list[tuple[float, float, float]]:
        """Begin, end and value of the pieces of an interval."""
        inside = [time for time in self.times_s if begin_s < time < end_s]
        edges = [begin_s, *inside, end_s]
        return [(one, two, self.at(one)) for one, two in itertools.pairwise(edges) if two > one]

    def changes(self, end_s: float) -> list[float]:
        """Times after the window's start and before `end_s` at which the value becomes another one."""
        times = [time for time in self.times_s if 0.0 < time < end_s]
        before = [0.0, *times]
        values = [self.at(time) for time in before]
        return [time for time, one, two in zip(times, values, values[1:], strict=False) if one != two]


def unpacked(path: Path) -> bytes:
    """The decompressed bytes of a file."""
    data = path.read_bytes()
    while unpack := next((each for magic, each in _PACKED.items() if data.startswith(magic)), None):
        data = unpack(data)
    if data[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            files = [member for member in archive if member.isfile()]
            inside = archive.extractfile(files[0]) if len(files) == 1 else None
            if inside is None:
                raise UnusableError(f"{path}: Expected an archive of one file, found {len(files)}")
            data = inside.read()
    return data


def _is_pickle(path: Path, data: bytes) -> bool:
    return data[:1] == b"\x80" or ".pkl" in path.name or ".tar" in path.name


def moment_ns(value: object, start_ns: int = 0) -> int:
    """Nanoseconds since the epoch of an ISO text or date (UTC without a zone), or of seconds after `start_ns`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return start_ns + round(value * NS)
    stamp = pd.Timestamp(cast(str, value))
    if stamp is pd.NaT:
        raise ValueError(f"Expected a time, got {value!r}")
    return int((stamp if stamp.tzinfo else stamp.tz_localize(UTC)).as_unit("ns").value)


def read_log(
    path: Path, skip: int, first: int, count: int | None, since: str | None = None, offer: Offer | None = None
) -> Log:
    """What is offered of the log without its first `skip` rows, of `count` nodes from `first` on, from `since` on."""
    data = unpacked(path)
    if _is_pickle(path, data):
        log = _matrix_log(read_frame(data, str(path)), skip)
    else:
        log, rows = _native_log(path, data)
        log = replace(log, start_ns=int(rows[skip]))
    if offer is not None:
        log = _offered(log, offer)
    if since is not None:
        log = replace(log, start_ns=moment_ns(since))
    stop = len(log.nodes) if count is None else first + count
    keep = (log.node >= first) & (log.node < stop)
    changes = {name: getattr(log, name)[keep] for name in ("time_ns", "node", "idle")}
    return _opened(replace(log, nodes=log.nodes[first:stop], **changes), first)


@dataclass(frozen=True)
class Offer:
    """What of the idle time is offered: from `after_ns` on, and not in the `lead_ns` before times in a CSV."""

    after_ns: int
    lead_ns: int
    departures: Path | None


def _offered(log: Log, offer: Offer) -> Log:
    """The log of what is offered, node by node: the idle spans, less their first part and those before departures."""
    log = _opened(log, 0)
    known: dict[str, list[int]] = {}
    for row in [] if offer.departures is None else csv_records(unpacked(offer.departures)):
        known.setdefault(row["node"].strip(), []).append(moment_ns(row["time"].strip()))
    changes: list[tuple[int, int, bool]] = []
    for number, name in enumerate(log.nodes):
        mine = log.node == number
        edges = [*log.time_ns[mine].tolist(), log.end_ns + 1]
        for begin, end in itertools.compress(itertools.pairwise(edges), log.idle[mine].tolist()):
            at = begin + offer.after_ns
            for stop in sorted(known.get(name, [])):
                if stop > at and stop - offer.lead_ns < end:
                    if at < stop - offer.lead_ns:
                        changes += [(at, number, True), (stop - offer.lead_ns, number, False)]
                    at = stop
            if at < min(end, log.end_ns):
                changes += [(at, number, True), *([(end, number, False)] if end <= log.end_ns else [])]
    ordered = sorted(changes)
    times, nodes, states = zip(*ordered, strict=True) if ordered else ((), (), ())
    return replace(log, time_ns=np.array(times, np.int64), node=np.array(nodes, np.int64), idle=np.array(states, bool))


def _opened(log: Log, first: int) -> Log:
    """What happened up to the window's start becomes the state at its start; nodes count from the first chosen."""
    split = int(np.searchsorted(log.time_ns, log.start_ns, side="right"))
    own = log.node - first
    state = np.zeros(len(log.nodes), dtype=bool)
    for node, idle in zip(own[:split], log.idle[:split], strict=True):
        state[node] = idle
    opening = np.flatnonzero(state)
    times = np.concatenate((np.full(opening.size, log.start_ns), log.time_ns[split:]))
    idle_now = np.concatenate((state[opening], log.idle[split:]))
    return replace(log, time_ns=times, node=np.concatenate((opening, own[split:])), idle=idle_now)


def _matrix_log(frame: pd.DataFrame, skip: int) -> Log:
    kept = frame.iloc[skip:]
    times = kept.index.to_numpy().astype("datetime64[ns]").astype(np.int64)
    states = kept.to_numpy() == 1
    rows, nodes = np.nonzero(np.diff(states, axis=0, prepend=False))
    names = [str(name) for name in frame.columns]
    return Log(names, int(times[0]), int(times[-1]), times[rows], nodes, states[rows, nodes])


def _native_log(path: Path, data: bytes) -> tuple[Log, NDArray[np.int64]]:
    """The log, and the times of the rows it would have as a matrix."""
    if data.startswith(b"PAR1"):
        table = pq.read_table(pa.BufferReader(data))
        texts = {key.decode().partition(".")[::2]: value for key, value in (table.schema.metadata or {}).items()}
        meta = {key: json.loads(value) for (owner, key), value in texts.items() if owner == "bftrainer"}
        frame = table.to_pandas()
    else:
        frame = pd.read_csv(io.BytesIO(data), dtype={"node": str, "idle": str}, keep_default_na=False)
        frame["idle"] = frame["idle"].str.lower().isin(["1", "true"])
        beside = path.with_name(path.name.removesuffix(".gz").removesuffix(".csv") + ".json")
        meta = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
    stamps = pd.to_datetime(frame["time"], utc=True, format="ISO8601").dt.tz_localize(None)
    times = stamps.to_numpy().astype("datetime64[ns]").astype(np.int64)
    names = meta.get("nodes") or sorted(set(frame["node"].astype(str)))
    start, end = [moment_ns(text) for text in meta.get("window", [])] or [int(times[0]), int(times[-1])]
    unchanged = [moment_ns(text) for text in meta.get("unchanged_rows", [])]
    rows = {start, end, *unchanged, *(time for time in times.tolist() if time > start)}
    numbers = frame["node"].astype(str).map({name: index for index, name in enumerate(names)})
    if numbers.hasnans:
        raise UnusableError(f"{path}: Expected rows of its nodes, got one of another")
    node = numbers.to_numpy().astype(np.int64)
    log = Log(list(names), start, end, times, node, frame["idle"].to_numpy(dtype=bool))
    return log, np.array(sorted(rows), dtype=np.int64)


def read_tasks(path: Path, scalability: Path | None, scaling: str | None, start_ns: int) -> list[Task]:
    """The tasks in file order; scaling from `scalability`, else the file's own, else the law `scaling`."""
    data = unpacked(path)
    if _is_pickle(path, data):
        records = _legacy_records(read_frame(data, str(path)))
    else:
        records = tomllib.loads(data.decode("utf-8"))["task"]
    measured = {} if scalability is None else _legacy_curves(read_frame(unpacked(scalability), str(scalability)))
    tasks = [
        _task(record, measured.get(record["name"]) or record.get("scaling"), scaling, start_ns, path.parent)
        for record in records
    ]
    if len({task.name for task in tasks}) < len(tasks):
        raise UnusableError(f"{path}: Expected unique task names")
    return tasks


def _task(record: dict[str, Any], curve: dict[str, Any] | None, law: str | None, start_ns: int, folder: Path) -> Task:
    least, most = int(record["min_nodes"]), int(record["max_nodes"])
    if curve and curve.get("model") == LEARNED:
        curve = None  # what it truly is, the law or the scalability tells
    rate, credit = _tables(curve or _law(law or "linear"), most)
    tuned = record.get("zeus")
    if tuned is not None:
        tuned = dict.fromkeys(("seed", "idle_power_w", "policy", "power_policy")) | {"eta": 0.5, "beta": 2.0} | tuned
        tuned |= {key: folder / tuned[key] for key in ("train_trace", "power_trace")}
    deadline = record.get("deadline")
    return Task(
        name=str(record["name"]),
        least=least,
        most=most,
        work=float(record["work"]) if tuned is None else float(tuned["max_epochs"]),
        grow_s=float(record.get("grow_cost_s", 0.0)),
        shrink_s=float(record.get("shrink_cost_s", 0.0)),
        weight=float(record.get("weight", 1.0)),
        submit_ns=moment_ns(record.get("submit", 0.0), start_ns),
        rate=rate,
        credit=credit,
        submit_s=_seconds(record.get("submit", 0.0), start_ns),
        deadline_s=math.inf if deadline is None else _seconds(deadline, start_ns),
        group=record.get("group"),
        user=record.get("user"),
        gpus=int(record.get("gpus_per_node", 1)),
        own_credit=bool(curve and curve.get("credit")),
        tuned=tuned,
        assumed=not curve,
        saving=Saving.of(record, most),
    )


def _seconds(value: float | str | date, start_ns: int) -> float:
    """A time in seconds since the window's start, as exact as it is given."""
    if isinstance(value, int | float):
        return float(value)
    return (moment_ns(value) - start_ns) / NS


def _law(text: str) -> dict[str, Any]:
    kind, _, fraction = text.partition(":")
    return {"model": kind, "rate_1": 1.0, "parallel_fraction": float(fraction or 1.0)}


def _tables(curve: dict[str, Any], most: int) -> tuple[Floats, Floats]:
    """Throughput and credit at 0..most nodes."""
    counts = np.arange(most + 1)
    if "model" in curve:
        parallel = 1.0 if curve["model"] == "linear" else float(curve["parallel_fraction"])
        rate = np.zeros(most + 1)
        rate[1:] = curve.get("rate_1", 1.0) / ((1.0 - parallel) + parallel / counts[1:])
        return rate, rate
    rate = np.interp(counts, curve["nodes"], curve["throughput"])
    return rate, np.interp(counts, curve["nodes"], curve["credit"]) if curve.get("credit") else rate


def _legacy_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    names = {"Jmin": "min_nodes", "Jmax": "max_nodes", "Pmax": "work", "Tcup": "grow_cost_s", "Tcdw": "shrink_cost_s"}
    frame = frame.rename(columns={**names, "Tsub": "submit"})
    return [{"name": str(name), **row} for name, row in zip(frame.index, frame.to_dict("records"), strict=True)]


def _legacy_curves(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    return {
        str(name): {"nodes": list(row["Ns"]), "throughput": list(row["Ps"]), "credit": list(row["Os"])}
        for name, row in zip(frame.index, frame.to_dict("records"), strict=True)
    }


def csv_records(data: bytes) -> Iterator[dict[str, str]]:
    """Rows of a CSV file by the names of its columns."""
    lines = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""))
    header = [name.strip() for name in next(lines, [])]
    for row in filter(None, lines):
        yield dict(zip(header, row, strict=True))


def _seconds_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text.strip()


def read_steps(path: Path, column: str, start_ns: int) -> Series:
    """A cap or an intensity over time, from a CSV of `time` and `column`."""
    rows = list(csv_records(unpacked(path)))
    times = [_seconds(_seconds_or_text(row["time"]), start_ns) for row in rows]
    if not rows or sorted(set(times)) != times:
        raise UnusableError(f"{path}: Expected rows whose times increase")
    return Series(tuple(times), tuple(float(row[column]) for row in rows))
