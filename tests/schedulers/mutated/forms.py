"""Logs to damage: every form that `bftrainer import` reads, of one small machine, and which record tells of what."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bftrainer.nodelogs.hostlist import folded
from bftrainer.schedulers.formats.sacct_rows import XDMOD_COLUMNS
from tests.schedulers.conformance.histories import (
    COUNTED,
    DAY,
    END,
    NAMED,
    NODES,
    START,
    History,
    Job,
    Written,
)

RACKS = dict(zip(NODES, ("ANL-R00-M0", "ANL-R00-M1", "ANL-R01-M0", "ANL-R01-M1"), strict=True))
_BLOCKS = (*((node,) for node in NODES), NODES[:2], NODES[2:], NODES)
"""Nodes that one job may have: they are blocks of a Blue Gene, too."""

Writer = Callable[[Path, History], Written]


@dataclass(frozen=True)
class Form:
    """A form of log, and what stands where in it.

    Parameters
    ----------
    write : callable
    kind : {"lines", "objects", "document", "parquet"}
        Lines of text, lines of JSON, a JSON document with a list of objects, or a table of Parquet.
    head : int
        Number of lines above the records.
    fields : str
        What separates fields, an expression.
    owner : str
        Finds the number of a record's job, from 1; without it records stand in the order of the jobs.
    of : {"jobs", "downtimes", "changes", "nodes"}
        What records tell of; changes hold until the next one, and of nodes each has several.
    is_event : bool
        Whether a record is the start or end of something, not all of it.
    which : callable
        The file to damage.
    extra : str
        What an unknown field looks like; empty if the form has no place for one.
    comment : str
        Begins a comment; empty if the form has none.
    retimed : tuple of str
        A pattern, and what writes the same time in another way.
    refuses : tuple of str
        Changes without harm elsewhere that this form rightly refuses.
    """

    write: Writer
    kind: Literal["lines", "objects", "document", "parquet"] = "lines"
    head: int = 0
    fields: str = ","
    owner: str = ""
    of: Literal["jobs", "downtimes", "changes", "nodes"] = "jobs"
    is_event: bool = False
    which: Callable[[Written], Path] = field(default=lambda written: written.paths[0])
    extra: str = ""
    comment: str = ""
    retimed: tuple[str, Callable[[Any], Any]] | None = None
    refuses: tuple[str, ...] = ()

    def world(self, rng: Random) -> History:
        """Jobs in the window, none on the nodes of another one; and downtimes that no job runs into."""
        free, jobs = dict.fromkeys(NODES, START + 5), []
        for _ in range(8):
            nodes = rng.choice(_BLOCKS)
            start = max(free[node] for node in nodes) + rng.randrange(2, 9)
            free |= dict.fromkeys(nodes, start + rng.randrange(5, 22))
            jobs.append(Job(start, free[nodes[0]], nodes))
        down = ((node, free[node] + 5 + 3 * at, free[node] + 20 + 3 * at) for at, node in enumerate(NODES[1:3]))
        return History(tuple(jobs), tuple(down) if self.of != "jobs" else ())

    def cells(self, history: History, number: int, record: str) -> np.ndarray:
        """Which cells of the machine a record tells of; shape (nodes, seconds)."""
        found = np.zeros((len(NODES), END - START), dtype=bool)
        match = re.search(self.owner, record) if self.owner else None
        name = match[1] if match else ""
        if self.of == "changes":
            idle = history.idle().sum(axis=0)
            at = [0, *(np.flatnonzero(np.diff(idle)) + 1).tolist(), idle.size]
            number = len(at) - 2 - number if "reversed" in self.refuses else number
            found[:, at[number] : at[number + 1]] = True
            return found
        if self.owner and not name:  # it is about all
            return ~found
        if self.of == "nodes":
            found[NODES.index(name)] = True
            return found
        if name in NODES or self.of == "downtimes":
            of = NODES[int(name)] if name.isdigit() else name
            spans = [down for down in history.downtimes if down[0] == of] or [history.downtimes[number]]
        else:
            job = history.jobs[int(name) - 1 if name else number]
            spans = [(node, job.start, job.end) for node in job.nodes]
        for node, start, end in spans:
            found[NODES.index(node), start - START : end - START] = True
        return found


def _iso(second: int, form: str = "%Y-%m-%dT%H:%M:%S") -> str:
    return datetime.fromtimestamp(DAY + second, UTC).strftime(form)


def _beside(folder: Path, name: str, text: str, **settings: Any) -> Written:
    (folder / name).write_text(text)
    return Written((folder / name,), {"nodes": folded(NODES), "unseen": "idle"} | settings)


def _sacct(
    folder: Path, history: History, names: str, bar: str = "", *, headed: bool = True, **settings: Any
) -> Written:
    """Rows of sacct with these columns, between bars; times are epoch seconds."""
    lines = [names + bar] if headed else []
    for number, job in enumerate(history.jobs, start=1):
        cells = {
            "JobIDRaw": number,
            "JobID": number,
            "Cluster": "c",
            "Partition": "p",
            "State": "COMPLETED",
            "Submit": DAY + job.start - 1,
            "Start": DAY + job.start,
            "End": DAY + job.end,
            "Timelimit": "01:00:00",
            "Suspended": "00:00:00",
            "NNodes": len(job.nodes),
            "NodeList": folded(job.nodes),
            "AllocTRES": "cpu=2",
            "JobName": "a|b",
        }
        lines.append("|".join(str(cells.get(name, "")) for name in names.split("|")) + bar)
    return _beside(folder, "sacct.txt", "".join(f"{line}\n" for line in lines), **settings)


_ALL = "JobIDRaw|JobID|Cluster|Partition|State|Submit|Start|End|Timelimit|Suspended|NNodes|NodeList|AllocTRES|JobName"
_FEW = "JobIDRaw|Start|End|NodeList|JobName"


def _with_jobs(folder: Path, history: History, name: str, text: str) -> Written:
    """A file of downtimes beside a log of jobs."""
    (folder / name).write_text(text)
    written = _sacct(folder, replace(history, downtimes=()), _FEW)
    return Written(written.paths, written.settings | {"downtimes": (folder / name,)})


def _events(folder: Path, history: History) -> Written:
    rows = [f"{node}|{_iso(start)}|{_iso(end)}|DOWN|broken\n" for node, start, end in history.downtimes]
    written = _with_jobs(folder, history, "events.txt", "NodeName|TimeStart|TimeEnd|State|Reason\n" + "".join(rows))
    return Written(written.paths, written.settings | {"zone": "UTC"})


def _set(number: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": number}


def _reservations(folder: Path, history: History) -> Written:
    rows = [
        {"name": "x", "node_list": node, "start_time": _set(DAY + start), "end_time": DAY + end, "flags": ["MAINT"]}
        for node, start, end in history.downtimes
    ]
    return _with_jobs(folder, history, "reservations.json", json.dumps({"reservations": rows, "errors": []}, indent=1))


def _vnodes(folder: Path, history: History) -> Written:
    lines = []
    for number, job in enumerate(history.jobs, start=1):
        vnodes = "+".join(f"({node}:ncpus=4:ngpus=1)" for node in job.nodes)
        told = f'user=u jobname="a b" queue=q qtime={DAY} start={DAY + job.start} exec_vnode={vnodes}'
        lines += [
            (job.start, f"S;{number}.s;{told}"),
            (job.end, f"E;{number}.s;{told} end={DAY + job.end} Exit_status=0"),
        ]
    text = "".join(f"{_iso(time, '%m/%d/%Y %H:%M:%S')};{line}\n" for time, line in sorted(lines))
    return _beside(folder, "20260901", text)


def _flux_jobs(folder: Path, history: History) -> Written:
    lines = [
        {"id": 7 + number, "t_submit": DAY + job.start - 0.5, "t_run": DAY + job.start, "t_inactive": DAY + job.end}
        | {
            "ranks": ",".join(str(NODES.index(node)) for node in job.nodes),
            "nodelist": folded(job.nodes),
            "queue": "q",
            "name": "sleep",
        }
        for number, job in enumerate(history.jobs)
    ]
    return _beside(folder, "jobs.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def _intrepid(job: Job) -> str:
    first, last = (RACKS[job.nodes[at]] for at in (0, -1))
    size = 512 * len(job.nodes)
    if len(job.nodes) == 1:
        return f"{first}-{size}"
    return f"{first[:-3]}-{size}" if first[:-3] == last[:-3] else f"{first[:-3]}-{last[4:-3]}-{size}"


def _blue_gene(folder: Path, history: History) -> Written:
    rows = [
        f'"{number}.x","{_iso(job.start, "%Y-%m-%d %H:%M:%S.000000")}","{_iso(job.end, "%Y-%m-%d %H:%M:%S.000000")}",'
        f'"prod","{512 * len(job.nodes)}.0","{_intrepid(job)}"\n'
        for number, job in enumerate(history.jobs)
    ]
    header = '"JOB_NAME","START_TIMESTAMP","END_TIMESTAMP","QUEUE_NAME","NODES_USED","LOCATION"\n'
    return _beside(folder, "djc.csv", header + "".join(rows), nodes=",".join(RACKS.values()))


def _preset(name: str, columns: str, count: Callable[[Job], str], time: Callable[[int], str]) -> Writer:
    """A table in CSV as one is published: job, start, end, nodes or their number, and a name."""

    def write(folder: Path, history: History) -> Written:
        rows = [
            f"{number},{time(job.start)},{time(job.end)},{count(job)},x\n" for number, job in enumerate(history.jobs)
        ]
        counts = {} if "LOCATION" in columns else {"nodes": str(len(NODES))}
        return _beside(folder, f"{name}.csv", f"{columns},unasked\n" + "".join(rows), preset=name, **counts)

    return write


def _preset_parquet(name: str, columns: Sequence[str], folder: Path, history: History) -> Written:
    """A table in Parquet as one is published: job, start, end, number of nodes, and perhaps nodes."""
    kind, jobs = pa.timestamp("ms", tz="UTC"), history.jobs
    values = [
        pa.array(range(1, 1 + len(jobs)), pa.int64()),
        pa.array([1000 * (DAY + job.start) for job in jobs], pa.int64()).cast(kind),
        pa.array([1000 * (DAY + job.end) for job in jobs], pa.int64()).cast(kind),
        pa.array([len(job.nodes) for job in jobs], pa.int64()),
        pa.array([str([*job.nodes]).replace("'", "") for job in jobs], pa.string()),
    ]
    pq.write_table(pa.table(dict(zip(columns, values, strict=False))), folder / f"{name}.parquet")
    counts = {"nodes": str(len(NODES))} if len(columns) == 4 else {}
    return Written((folder / f"{name}.parquet",), _beside(folder, "ignored", "").settings | {"preset": name} | counts)


def _wrapped(given: Any) -> Any:
    """A number as Slurm writes it in other versions."""
    return given["number"] if isinstance(given, dict) else _set(given)


_EPOCH, _ISO = r"\b1788\d{6}\b(?![.\d])", r"2026-09-01T00:0\d:\d\d"
_to_epoch = (_ISO, lambda found: str(int(datetime.fromisoformat(f"{found[0]}+00:00").timestamp())))
_to_iso = (_EPOCH, lambda found: _iso(int(found[0]) - DAY))
_to_float = (_EPOCH, lambda found: f"{found[0]}.0")
_to_ms = (_EPOCH, lambda found: f"{found[0]}000")
_other_iso = (r"(2026-09-01)[ T](00:0\d:\d\d)(?:\.0+)?", lambda found: f"{found[1]}T{found[2]}.000")
_first, _last = (lambda written: written.paths[0]), (lambda written: written.paths[-1])
_down = lambda written: written.settings["downtimes"][0]  # noqa: E731
_PBS = Form(
    NAMED["pbs"],
    fields="[; ]",
    owner=r";(\d+)\.s;",
    is_event=True,
    extra=" zzz=1",
    retimed=_to_float,
    refuses=("reordered",),
)
_SACCT = Form(NAMED["slurm"], head=1, fields=r"\|", extra="|", retimed=_to_epoch)
_CSV = Form(NAMED["alcf"], head=1, extra=",", retimed=_other_iso)
_SWF = Form(COUNTED["swf"], head=3, fields=" ", comment=";", retimed=(r"\b(\d+) ", lambda found: f"{found[1]}.0 "))
_SLURM_JSON = Form(NAMED["slurm (sacct --json)"], "document", retimed=(r"start|end(_time)?|limit", _wrapped))
_PARQUET = Form(NAMED["table (Parquet)"], "parquet")
_SPARSE = Form(COUNTED["counts"], head=1, of="changes", extra=",", refuses=("reordered", "other_encoding"))
_JSON = Form(NAMED["table (JSON lines)"], "objects", retimed=("began|finished", lambda given: int(given) // 1000))

FORMS: dict[str, Form] = {
    "alcf": _CSV,
    "alcf (Blue Gene/P)": replace(_CSV, write=_blue_gene),
    "counts": _SPARSE,
    "counts (date, time, count)": replace(
        _SPARSE, write=COUNTED["counts (date, time, count)"], head=0, extra="", refuses=("reversed",)
    ),
    "counts (JSON)": Form(COUNTED["counts (JSON)"], "document", of="changes"),
    "flux (eventlog)": Form(
        NAMED["flux"], "objects", of="downtimes", owner=r'"idset": "(\d)"', is_event=True, which=_first
    ),
    "flux (jobs)": Form(NAMED["flux"], "document", which=_last, retimed=("t_run|t_cleanup", float)),
    "flux (lines of jobs)": Form(_flux_jobs, "objects", retimed=("t_run|t_inactive", float)),
    "lsf": Form(NAMED["lsf"], fields=" ", extra=' "zzz"'),
    "pbs": replace(_PBS, which=_first),
    "pbs (earlier file)": replace(_PBS, which=_last),
    "pbs (vnodes)": replace(_PBS, write=_vnodes),
    "slurm": _SACCT,
    "slurm (--columns)": replace(
        _SACCT, write=partial(_sacct, names=_FEW, headed=False, columns=tuple(_FEW.split("|"))), head=0, retimed=None
    ),
    "slurm (events)": replace(_SACCT, write=_events, of="downtimes", which=_down),
    "slurm (reservations --json)": replace(_SLURM_JSON, write=_reservations, of="downtimes", which=_down),
    "slurm (sacct -p)": replace(_SACCT, write=partial(_sacct, names=_ALL, bar="|"), retimed=None),
    "slurm (sacct --json)": _SLURM_JSON,
    "slurm (squeue --json)": replace(_SLURM_JSON, write=NAMED["slurm (squeue --json)"]),
    "spot": Form(NAMED["spot"], of="nodes", owner=r"(n\d)", refuses=("duplicated", "reordered")),
    "swf": _SWF,
    "swf (node ids)": replace(_SWF, write=NAMED["swf"]),
    "table (alcf)": replace(
        _CSV,
        write=_preset(
            "alcf",
            "JOB_NAME,START_TIMESTAMP,END_TIMESTAMP,LOCATION,NODES_USED",
            lambda job: f"{':'.join(job.nodes)},{len(job.nodes)}",
            partial(_iso, form="%Y-%m-%d %H:%M:%S"),
        ),
    ),
    "table (CSV)": replace(_CSV, write=NAMED["table (CSV)"], fields=";", extra=";"),
    "table (fdata)": replace(_PARQUET, write=partial(_preset_parquet, "fdata", ("jid", "sdt", "edt", "nnuma"))),
    "table (JSON lines)": _JSON,
    "table (kestrel)": replace(
        _CSV,
        write=_preset(
            "kestrel",
            "job_id,start_time,end_time,nodes_used",
            lambda job: str(len(job.nodes)),
            lambda second: _iso(second - 7 * 3600, "%Y-%m-%d %H:%M:%S"),
        ),
        retimed=(r"(2026-08-31) (17:0\d:\d\d)", lambda found: f"{found[1]}T{found[2]}.00"),
    ),
    "table (lassen)": replace(
        _CSV,
        write=_preset(
            "lassen",
            "allocation_id,begin_time,end_time,num_nodes",
            lambda job: f"{len(job.nodes)}.0",
            lambda second: _iso(second - 7 * 3600, "%Y-%m-%d %H:%M:%S.000"),
        ),
        retimed=(r"(2026-08-31) (17:0\d:\d\d)\.000", lambda found: f"{found[1]}T{found[2]}"),
    ),
    "table (Parquet)": _PARQUET,
    "table (pm100)": replace(
        _PARQUET,
        write=partial(_preset_parquet, "pm100", ("job_id", "start_time", "end_time", "num_nodes_alloc", "nodes")),
    ),
    "table (TSV)": replace(_CSV, write=COUNTED["table (TSV)"], fields="\t", extra="\t", retimed=_to_ms),
    "table (xdmod)": replace(
        _SACCT,
        write=partial(_sacct, names="|".join(XDMOD_COLUMNS), headed=False, preset="xdmod"),
        head=0,
        retimed=None,
    ),
    "watch": Form(NAMED["watch"], "lines", 1, " ", "(?!)", "nodes", is_event=True, refuses=("duplicated", "reordered")),
}
"""By importer and, in brackets, what of it."""
