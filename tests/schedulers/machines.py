"""Machines of our own making, whose idle time is known, and what administrators export of them."""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
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


FORMS = {
    "alcf": (
        "JOB_NAME,START_TIMESTAMP,END_TIMESTAMP,NODES_USED,LOCATION\n",
        "{number}.x,{began:%F %T.000000},{ended:%F %T.000000},{count}.0,{hosts::}\n",
    ),
    "flux": ("", '{{"id": {number}, "t_run": {start}, "t_inactive": {end}, "nodelist": "{hosts:,}"}}\n'),
    "lsf": (
        "",
        '"JOB_FINISH" "10.1" {end} {number} 1 1 {count} 0 0 0 {start} "u" "q" "" "" "" "h" "/" "" "" "" "f" 0 {count} '
        '"2*{hosts:" "2*}" 64 1.0 "a job" "x"\n',
    ),
    "pbs": (
        "",
        "{ended:%m/%d/%Y %T};{sign};{number}.s;queue=q qtime={submit} start={start} "
        "exec_host={hosts:/0-1+}/0-1{over}\n",
    ),
    "slurm": (
        "JobIDRaw|JobName|Submit|State|Start|End|Elapsed|Suspended|Timelimit|NNodes|NodeList\n",
        "{number}|{name}|{submit}|{state}|{start}|{end}|{elapsed}|{suspended}|{limit}|{count}|{listed}\n",
    ),
    "slurm in UTC": (
        "JobIDRaw|State|Start|End|NNodes|NodeList|JobName\n",
        "{number}|COMPLETED|{began:%FT%T}|{ended:%FT%T}|{count}|{listed}|a|b\n",
    ),
    "swf": (
        "; UnixStartTime: {low}\n; MaxNodes: {nodes}\n; MaxProcs: {processors}\n",
        "{number} {queued} {waited} {ran} {used} -1 -1 {used} -1 -1 1 1 1 1 1 1 -1 -1{ids}\n",
    ),
    "table": ("job,queued,start,end,nodes\n", "{number},{submit},{start},{end},{hosts: }\n"),
    "table (CSV)": ("began;finished;hosts;began by\n", "{began:%FT%T};{ended:%FT%T};{listed};x\n"),
    "table (JSON lines)": ("", '{{"began": {start}000, "finished": {end}000.0, "hosts": ["{hosts:", "}"]}}\n'),
    "table (TSV)": ("id\tbegan\tfinished\tn\n", "{number}\t{start}\t{end}\t{count}.0\n"),
}
"""Header and row of a job in formats, some in several forms."""


class Hosts(tuple[str, ...]):
    """Names that a format specification joins."""

    def __format__(self, spec: str) -> str:
        return spec.join(self)


NO_END = {"slurm": "Unknown", "flux": 0}
"""What stands in the place of an end that is not known yet, where that is not left out."""
BLANK = dict.fromkeys(("name", "state", "elapsed", "suspended", "limit", "ids"), "")


def format_job(form: str, number: int, start: int, end: int | None, hosts: Sequence[str], **more: Any) -> str:
    """A job's row in a format, without an end if it has none yet; times are seconds since the epoch, or from `low`."""
    submit = more.get("submit", start)
    last = start if end is None else end
    fields = {"start": start, "end": NO_END.get(form, "") if end is None else end, "submit": submit}
    fields |= {"queued": submit - more.get("low", 0), "waited": start - submit, "ran": last - start}
    fields |= {"sign": "S", "over": ""} if end is None else {"sign": "E", "over": f" end={end}"}
    fields |= {name: datetime.fromtimestamp(at, UTC) for name, at in (("began", start), ("ended", last))}
    fields |= {"count": len(hosts), "used": len(hosts), "hosts": Hosts(hosts), "listed": fold_hostlist(hosts)}
    return FORMS[form][1].format(number=number, **BLANK | fields | more)


def format_pbs(number: int, start: int, end: int, hosts: Sequence[str], **more: Any) -> list[tuple[int, str]]:
    """Lines of a job's start and end in PBS's log, with their times."""
    return [(at or start, format_job("pbs", number, start, at, hosts, **more)) for at in (None, end)]


def sacct_job(
    number: int, start: Any, end: Any, hosts: Sequence[str], state: Any = None, **more: Any
) -> dict[str, Any]:
    """A job as `sacct --json` lists it, which runs if its end is 0; `more` are other fields, and more of its times."""
    current = {"current": state or ["COMPLETED" if end else "RUNNING"]}
    job = {"job_id": number, "allocation_nodes": len(hosts), "nodes": fold_hostlist(hosts), "state": current}
    return job | {"time": {"start": start, "end": end} | more.pop("time", {})} | more


def sacct_json(*jobs: dict[str, Any], indent: int | None = None) -> str:
    """What `sacct --json` prints of data parser 0.0.41."""
    meta = {"plugin": {"type": "openapi/slurmdbd", "data_parser": "data_parser/v0.0.41"}}
    return json.dumps({"jobs": jobs, "meta": meta, "errors": []}, indent=indent)


TABLE = ("start=start", "end=end", "nodes=nodes", "submit=queued", "job=job")


def export(made: Machine, kind: str, low: int, high: int) -> list[Ran]:
    """The jobs of an export."""
    return [job for job in made.jobs if SELECTED[kind](job, low, high)]


WRITTEN = {"submitted": "swf", "recorded": "pbs", "contained": "table"}


def written(folder: Path, made: Machine, kind: str, low: int, high: int) -> tuple[str, Path, dict[str, Any]]:
    """Write an export; its format, file, and settings."""
    name, path, records = WRITTEN.get(kind, "slurm"), folder / f"{kind}.log", []
    for job in export(made, kind, low, high):
        hosts, end = made.names(job.nodes), None if kind == "overlap" and job.end >= high else job.end
        if name == "pbs":
            both = format_pbs(job.number, job.start, job.end, hosts, submit=job.submit)
            records += [(at, line) for at, line in both if low <= at < high]
        else:
            records.append((0, format_job(name, job.number, job.start, end, hosts, submit=job.submit, low=low)))
    lines = [line for _, line in (sorted(records) if name == "pbs" else records)]
    path.write_text(FORMS[name][0].format(low=low, nodes=made.nodes, processors=made.nodes) + "".join(lines))
    whole = {} if name == "swf" else {"nodes": fold_hostlist(made.names(range(made.nodes))), "unseen": "idle"}
    return name, path, whole | ({"map": TABLE} if name == "table" else {})
