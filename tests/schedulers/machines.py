"""Machines of our own making, whose idle time is known, and what administrators export of them."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.nodelogs.hostlist import fold_hostlist

ORIGIN = 1767225600  # 2026-01-01
HOUR, DAY = 3600, 86_400
LEAD_DAYS = 25
"""The machine runs so long before and after the days that logs are cut from: it is never found empty."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A job that ran; seconds since the Unix epoch."""

    number: int
    submit: int
    start: int
    end: int
    nodes: tuple[int, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine's history."""

    nodes: int
    days: int
    jobs: tuple[Ran, ...]

    def names(self, some) -> list[str]:
        """Names of nodes."""
        return [f"n{node:03}" for node in some]

    def busy(self, jobs=None, start=None, end=None) -> np.ndarray:
        """Busy node-seconds of each hour from `start` to `end`, by some of its jobs."""
        low = ORIGIN if start is None else start
        edges = np.arange(low, (ORIGIN + self.days * DAY if end is None else end) + 1, HOUR)
        total = np.zeros(edges.size)
        for job in self.jobs if jobs is None else jobs:
            total += len(job.nodes) * np.clip(edges - job.start, 0, job.end - job.start)
        return np.diff(total)


def machine(seed: int) -> Machine:
    """A machine of 50 to 500 nodes under first come, first served, with days and nights, outages and one huge job."""
    rng = np.random.default_rng(seed)
    nodes, days = int(rng.integers(50, 500)), int(rng.integers(30, 90))
    low, high = ORIGIN - LEAD_DAYS * DAY, ORIGIN + (days + LEAD_DAYS) * DAY
    median_h, spread, limit_h = rng.uniform(0.5, 4), rng.uniform(0.8, 1.5), rng.choice([24, 48, 72])
    widest = int(np.log2(nodes / 4))
    draws = 40_000
    width = 2 ** rng.integers(0, widest + 1, draws)
    length = np.clip(rng.lognormal(np.log(median_h * HOUR), spread, draws), 30, limit_h * HOUR).astype(int)
    rate = rng.uniform(0.6, 0.9) * nodes / float((width * length).mean())
    times = low + np.cumsum(rng.exponential(1 / (1.6 * rate), draws))
    awake = rng.random(draws) < (0.65 + 0.35 * np.sin(2 * np.pi * (times % DAY) / DAY)) / 1.04
    kept = np.flatnonzero(awake & (times < high))
    outages = sorted(int(rng.integers(low, high)) for _ in range(3))
    waiting = [(int(times[at]), int(width[at]), int(length[at])) for at in kept]
    waiting.append((int(rng.integers(ORIGIN, high)), nodes, int(rng.integers(2, 12)) * HOUR))
    return Machine(nodes, days, tuple(_scheduled(sorted(waiting), nodes, outages, int(limit_h * HOUR))))


def _scheduled(waiting, nodes, outages, limit):
    """Start jobs in the order of their submission, on the lowest free nodes; nothing starts in an outage."""
    free, running, now = list(range(nodes)), [], 0
    heapq.heapify(free)
    for number, (submit, width, length) in enumerate(waiting, start=1):
        now = max(now, submit)
        now = next((at + 6 * HOUR for at in outages if at <= now < at + 6 * HOUR), now)
        while running and (running[0][0] <= now or len(free) < width):
            end, held = heapq.heappop(running)
            now = max(now, end)
            for node in held:
                heapq.heappush(free, node)
        held = tuple(heapq.heappop(free) for _ in range(width))
        heapq.heappush(running, (now + length, held))
        yield Ran(number, submit, now, now + length, held, limit)


SELECTED = {
    "ended": lambda job, low, high: low <= job.end < high,
    "started": lambda job, low, high: low <= job.start < high,
    "overlap": lambda job, low, high: job.start < high and job.end > low,
    "contained": lambda job, low, high: low <= job.start and job.end < high,
    "submitted": lambda job, low, high: low <= job.submit < high,
    "recorded": lambda job, low, high: low <= job.start < high or low <= job.end < high,
}
"""What an export of a time holds: rows of sacct, a table (contained), a workload log (submitted), files (recorded)."""


TABLE = ("start=begin", "end=finish", "nodes=hosts", "submit=queued", "job=job")


def export(made: Machine, kind: str, low: int, high: int) -> list[Ran]:
    """The jobs of an export."""
    return [job for job in made.jobs if SELECTED[kind](job, low, high)]


WRITTEN = {"submitted": "swf", "recorded": "pbs", "contained": "table"}


def written(folder: Path, made: Machine, kind: str, low: int, high: int) -> tuple[str, Path, dict[str, Any]]:
    """Write an export; its format, file, and settings."""
    name, path, records = WRITTEN.get(kind, "slurm"), folder / f"{kind}.log", []
    for job in export(made, kind, low, high):
        hosts, count = made.names(job.nodes), len(job.nodes)
        if name == "swf":
            times = f"{job.number} {job.submit - low} {job.start - job.submit} {job.end - job.start}"
            records.append(f"{times} {count} -1 -1 {count} -1 -1 1 1 1 1 1 1 -1 -1")
        elif name == "table":
            records.append(f"{job.number},{job.submit},{job.start},{job.end},{' '.join(hosts)}")
        elif name == "slurm":
            end = "Unknown" if kind == "overlap" and job.end >= high else job.end
            records.append(f"{job.number}|{job.submit}|{job.start}|{end}|{count}|{fold_hostlist(hosts)}")
        else:
            fields = f"queue=q qtime={job.submit} start={job.start} exec_host={'+'.join(f'{host}/0' for host in hosts)}"
            for second, sign in ((job.start, "S"), (job.end, "E")):
                if low <= second < high:
                    shown = datetime.fromtimestamp(second, UTC).strftime("%m/%d/%Y %H:%M:%S")
                    ending = f" end={job.end}" * (sign == "E")
                    records.append((second, f"{shown};{sign};{job.number}.s;{fields}{ending}"))
    header = {
        "swf": [f"; UnixStartTime: {low}", f"; MaxNodes: {made.nodes}", f"; MaxProcs: {made.nodes}"],
        "slurm": ["JobIDRaw|Submit|Start|End|NNodes|NodeList"],
        "table": ["job,queued,begin,finish,hosts"],
    }
    lines = [line for _, line in sorted(records)] if name == "pbs" else records
    path.write_text("\n".join([*header.get(name, []), *lines, ""]))
    whole = {} if name == "swf" else {"nodes": fold_hostlist(made.names(range(made.nodes))), "unseen": "idle"}
    return name, path, whole | ({"map": TABLE} if name == "table" else {})
