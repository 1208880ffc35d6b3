"""One machine's history in every format of log; times are whole seconds from midnight UTC of `DAY`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from bftrainer.files.writing import seal_line
from bftrainer.nodelogs.hostlist import fold_hostlist
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.node_states import KIND, Cause, poll_line, session_line
from tests.schedulers.machines import FORMS, format_job, format_pbs, sacct_job, sacct_json

DAY = 1788220800  # 2026-09-01
START, END = 100, 400
NODES = ("n1", "n2", "n3", "n4")
COLUMNS = ("start=began", "end=Finished")


@dataclass(frozen=True)
class Job:
    """A job on its nodes."""

    start: int
    end: int
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class History:
    """Jobs, and downtimes as (node, start, end)."""

    jobs: tuple[Job, ...]
    downtimes: tuple[tuple[str, int, int], ...] = ()

    def idle(self) -> np.ndarray:
        """Which seconds of the window each node is idle; shape (nodes, seconds)."""
        cells = np.ones((len(NODES), END - START), dtype=bool)
        spans = [(node, job.start, job.end) for job in self.jobs for node in job.nodes]
        for node, start, end in [*spans, *self.downtimes]:
            cells[NODES.index(node), max(start - START, 0) : max(end - START, 0)] = False
        return cells


PLAIN = History((Job(50, 150, ("n1", "n2")), Job(120, 200, ("n3",)), Job(150, 250, ("n1",)), Job(390, 500, ("n4",))))


@dataclass(frozen=True)
class Written:
    """Files of a history, and the settings that go with them."""

    paths: tuple[Path, ...]
    settings: dict[str, Any]


@st.composite
def histories(draw: st.DrawFn, *, shared: bool = True) -> History:
    """Some jobs around the window, on nodes of their own if not `shared`, and some downtimes."""
    jobs = []
    free = dict.fromkeys(NODES, 0)
    for _ in range(draw(st.integers(1, 6))):
        nodes = tuple(sorted(draw(st.sets(st.sampled_from(NODES), min_size=1))))
        start = draw(st.integers(0, 380)) if shared else max(free[node] for node in nodes) + draw(st.integers(0, 90))
        end = start + draw(st.integers(1, 200))
        free |= dict.fromkeys(nodes, end)
        jobs.append(Job(start, end, nodes))
    # One job lies within the window, so that all formats have something to tell of it.
    jobs.append(Job(150, 160, ("n4",)) if shared else Job(max(free["n4"], 150), max(free["n4"], 150) + 10, ("n4",)))
    down = st.tuples(st.sampled_from(NODES), st.integers(1, 300), st.integers(1, 90))
    downs = draw(st.lists(down, max_size=2, unique_by=lambda row: row[0])) if shared else []
    return History(tuple(jobs), tuple((node, start, start + length) for node, start, length in downs))


def _iso(second: int, form: str = "%Y-%m-%dT%H:%M:%S") -> str:
    return datetime.fromtimestamp(DAY + second, UTC).strftime(form)


def _written(folder: Path, name: str, text: str, **settings: Any) -> Written:
    (folder / name).write_text(text)
    return Written((folder / name,), settings)


def _named(folder: Path, history: History, name: str, text: str, **settings: Any) -> Written:
    """A log with a table of downtimes beside it."""
    settings |= {"nodes": fold_hostlist(NODES), "unseen": "idle"}
    if history.downtimes:
        rows = "".join(f"{node},{DAY + start},{DAY + end}\n" for node, start, end in history.downtimes)
        (folder / "downtimes.csv").write_text(f"node,start,end\n{rows}")
        settings["downtimes"] = (folder / "downtimes.csv",)
    return _written(folder, name, text, **settings)


def _rows(history: History, form: str) -> str:
    """Rows of jobs under their header."""
    rows = [
        format_job(form, number, DAY + job.start, DAY + job.end, job.nodes)
        for number, job in enumerate(history.jobs, start=1)
    ]
    return FORMS[form][0] + "".join(rows)


def in_rows(form: str, name: str, **settings: Any) -> Callable[[Path, History], Written]:
    """Write rows of one of the forms that name nodes."""
    return lambda folder, history: _named(folder, history, name, _rows(history, form), **settings)


def _set(number: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": number}


def slurm_accounting(folder: Path, history: History) -> Written:
    """What `sacct --json` prints; a job that ends after the window still runs."""
    jobs = []
    for number, job in enumerate(history.jobs, start=1):
        more = {"time": {"limit": _set(60)}, "steps": [{"nodes": {"list": [*job.nodes]}}]}
        jobs.append(sacct_job(number, DAY + job.start, 0 if job.end > END else DAY + job.end, job.nodes, **more))
    return _named(folder, history, "jobs.json", sacct_json(*jobs, indent=2))


def slurm_controller(folder: Path, history: History) -> Written:
    """What `squeue --json` prints on one line; downtimes of nodes and reservations beside it, older and newer."""
    jobs = [
        {
            "job_id": number,
            "node_count": _set(len(job.nodes)),
            "nodes": fold_hostlist(job.nodes),
            "job_state": "RUNNING" if job.end > END else ["COMPLETED"],
            "start_time": _set(DAY + job.start),
            "end_time": DAY + job.end,
        }
        for number, job in enumerate(history.jobs, start=1)
    ]
    (folder / "squeue.json").write_text(json.dumps({"meta": {"data_parser": "v0.0.38"}, "jobs": jobs}))
    nodes = [{"name": name, "state": ["IDLE"], "partitions": ["p"]} for name in NODES]
    (folder / "nodes.json").write_text(json.dumps({"nodes": nodes, "last_update": _set(DAY + END)}))
    settings: dict[str, Any] = {"nodes": str(folder / "nodes.json"), "unseen": "idle"}
    if history.downtimes:
        downs = [
            {"node_list": node, "start_time": DAY + start, "end_time": _set(DAY + end)}
            for node, start, end in history.downtimes
        ]
        (folder / "down.json").write_text(json.dumps({"reservations": downs}))
        settings["downtimes"] = (folder / "down.json",)
    return Written((folder / "squeue.json",), settings)


def pbs(folder: Path, history: History) -> Written:
    """Starts and ends in two files, as if the day changed in between."""
    jobs = enumerate(history.jobs, start=1)
    both = (format_pbs(number, DAY + job.start, DAY + job.end, job.nodes) for number, job in jobs)
    lines = [line for _, line in sorted(chain.from_iterable(both))]
    half = len(lines) // 2
    (folder / "later").write_text("".join(lines[half:]))
    written = _named(folder, history, "earlier", "".join(lines[:half]))
    return Written((folder / "later", *written.paths), written.settings)


def table_parquet(folder: Path, history: History) -> Written:
    """Parquet with timestamps in UTC, lists of nodes, and a column that nobody asked for."""
    rows = ((DAY + job.start, DAY + job.end, [*job.nodes], [0.5]) for job in history.jobs)
    frame = pd.DataFrame(rows, columns=["began", "finished", "hosts", "embedding"]).reset_index(names="job")
    times = {name: pd.to_datetime(frame[name], unit="s", utc=True) for name in ("began", "finished")}
    frame.assign(**times).to_parquet(folder / "jobs.parquet")
    written = _named(folder, history, "ignored", "", map=(*COLUMNS, "nodes=hosts", "job=job"))
    return Written((folder / "jobs.parquet",), written.settings)


def table_counts(folder: Path, history: History) -> Written:
    """A table with tabs that counts nodes."""
    settings = {"map": (*COLUMNS, "count=n"), "nodes": str(len(NODES))}
    return _written(folder, "jobs.tsv", _rows(history, "table (TSV)"), **settings)


def flux(folder: Path, history: History) -> Written:
    """An eventlog, in which all ranks are up unless they are down, and jobs."""
    events = [(0, "resource-init", {"restart": False, "drain": {}, "online": "0-3", "exclude": ""})]
    for node, start, end in history.downtimes:
        rank = {"idset": str(NODES.index(node))}
        events += [(start, "drain", rank | {"reason": "x", "overwrite": 0}), (end, "undrain", rank)]
    events.sort(key=lambda event: event[0])
    lines = [{"timestamp": float(DAY + time), "name": name, "context": told} for time, name, told in events]
    (folder / "eventlog").write_text("".join(json.dumps(line) + "\n" for line in lines))
    jobs = ",\n".join(_rows(history, "flux").splitlines())
    (folder / "jobs.json").write_text(f'{{\n "jobs": [\n{jobs}\n]}}')
    return Written((folder / "eventlog", folder / "jobs.json"), {"nodes": fold_hostlist(NODES)})


def spot(folder: Path, history: History) -> Written:
    """Additions and removals of what is idle."""
    events = []
    for node, cells in zip(NODES, history.idle(), strict=True):
        edges = np.flatnonzero(np.diff(np.concatenate(([False], cells, [False])).astype(int)))
        for start, end in edges.reshape(-1, 2).tolist():
            events += [(start * 1000, f"add,{node}"), (end * 1000, f"remove,{node}")]
    return _written(folder, "spot.csv", "".join(f"{time},{what}\n" for time, what in sorted(events)))


def watch(folder: Path, history: History) -> Written:
    """A journal of polls, one whenever something changes; jobs come before downtimes."""
    spans = [(node, job.start, job.end, BusyKind.JOB) for job in history.jobs for node in job.nodes]
    spans += [(*down, BusyKind.DOWN) for down in history.downtimes]
    lines, before = [f"{KIND}: sinfo", session_line(DAY, 1000.0)], dict[str, Cause]()
    for time in sorted({0, END + 500, *(time for _, *times, _ in spans for time in times)}):
        causes = [(node, cause) for node, start, end, cause in spans if start <= time < end]
        now = {node: min((cause for name, cause in causes if name == node), default=None) for node in NODES}
        lines.append(poll_line(DAY + time, dict(now.items() - before.items())))
        before = now
    (folder / "idle.watch").write_bytes(b"".join(b"%s\n" % seal_line(line) for line in lines))
    return Written((folder / "idle.watch",), {})


def swf_with_ids(folder: Path, history: History) -> Written:
    """Lines with node ids, two cores a node."""
    return _named(folder, history, "ids.swf", _swf(history, lambda job: f" {{{','.join((*job.nodes, *job.nodes))}}}"))


def swf(folder: Path, history: History) -> Written:
    """Lines that count processors, two a node."""
    return _written(folder, "log.swf", _swf(history, lambda _: ""))


def _swf(history: History, ids: Callable[[Job], str]) -> str:
    lines = [FORMS["swf"][0].format(low=DAY, nodes=len(NODES), processors=2 * len(NODES))]
    for number, job in enumerate(history.jobs, start=1):
        own = {"used": 2 * len(job.nodes), "ids": ids(job), "submit": DAY + job.start // 2, "low": DAY}
        lines.append(format_job("swf", number, DAY + job.start, DAY + job.end, job.nodes, **own))
    return "".join(lines)


def _count_changes(history: History, form: str) -> list[str]:
    """How many nodes are idle, whenever that changes."""
    idle = history.idle().sum(axis=0)
    return [f"{_iso(START + at, form)}{idle[at]}\n" for at in (0, *(np.flatnonzero(np.diff(idle)) + 1).tolist())]


def counts(folder: Path, history: History) -> Written:
    """Rows of time and count."""
    text = "timestamp,count\n" + "".join(_count_changes(history, "%Y-%m-%dT%H:%M:%SZ,"))
    return _written(folder, "counts.csv", text, nodes=str(len(NODES)))


def counts_dated(folder: Path, history: History) -> Written:
    """Rows of date, time and count, the latest first."""
    text = "".join(reversed(_count_changes(history, "%Y-%m-%d, %H:%M:%S, ")))
    return _written(folder, "spot.txt", text, nodes=str(len(NODES)))


def counts_sampled(folder: Path, history: History) -> Written:
    """How many nodes are idle at every second of the window."""
    document = {"metadata": {"gap_seconds": 1.0}, "data": history.idle().sum(axis=0).tolist()}
    return _written(folder, "counts.json", json.dumps(document), nodes=str(len(NODES)))


NAMED = {
    "alcf": in_rows("alcf", "djc.csv"),
    "flux": flux,
    "lsf": in_rows("lsf", "lsb.acct"),
    "pbs": pbs,
    "slurm": in_rows("slurm in UTC", "sacct.txt", zone="UTC"),
    "slurm (sacct --json)": slurm_accounting,
    "slurm (squeue --json)": slurm_controller,
    "spot": spot,
    "swf": swf_with_ids,
    "table (CSV)": in_rows("table (CSV)", "jobs.csv", map=(*COLUMNS, "nodes=hosts"), zone="UTC"),
    "table (JSON lines)": in_rows("table (JSON lines)", "jobs.jsonl", map=(*COLUMNS, "nodes=hosts")),
    "table (Parquet)": table_parquet,
    "watch": watch,
}
"""Formats that name nodes, some in several forms: the same history gives the same node log."""

COUNTED = {
    "counts": counts,
    "counts (date, time, count)": counts_dated,
    "counts (JSON)": counts_sampled,
    "swf": swf,
    "table (TSV)": table_counts,
}
"""Formats that count them: the same history gives the same idle counts."""
