"""Runs without an end: told twice, past their limit, suspended, or forgotten by the scheduler."""

from __future__ import annotations

import json
import random

import pytest

from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings

EIGHT, HOUR = 1788249600, 3600  # 2026-09-01 08:00 UTC
MORNING = {"start": str(EIGHT), "end": str(EIGHT + 4 * HOUR), "window": "asked"}
SACCT = "JobIDRaw|JobID|Partition|State|Start|End|Elapsed|Suspended|Timelimit|NNodes|NodeList"
MAP = ("start=start", "end=end", "nodes=nodes", "job=job")


def sacct(*rows):
    """Rows of number, state, start, end in hours from eight, elapsed, suspended, limit, and nodes."""
    lines = [SACCT]
    for number, state, start, end, elapsed, suspended, limit, nodes in rows:
        stop = "Unknown" if end is None else EIGHT + int(end * HOUR)
        times = f"{EIGHT + int(start * HOUR)}|{stop}|{elapsed}|{suspended}|{limit}"
        lines.append(f"{number}|{number}|batch|{state}|{times}|1|{nodes}")
    return "\n".join([*lines, ""])


def accounting(*jobs):
    """Jobs as `sacct --json` lists them: number, state, start and end in hours, elapsed and suspended, limit in min."""
    found = [
        {
            "job_id": number,
            "cluster": "c",
            "state": {"current": [state]},
            "nodes": nodes,
            "allocation_nodes": 1,
            "time": {
                "start": EIGHT + int(start * HOUR),
                "end": 0 if end is None else EIGHT + int(end * HOUR),
                "elapsed": elapsed,
                "suspended": suspended,
                "limit": {"set": bool(limit), "infinite": False, "number": limit},
            },
        }
        for number, state, start, end, elapsed, suspended, limit, nodes in jobs
    ]
    return json.dumps({"jobs": found, "meta": {"plugin": {"data_parser": "data_parser/v0.0.41"}}})


def flux(*jobs):
    return "".join(
        json.dumps({"id": number, "t_run": EIGHT + start * HOUR, "nodelist": nodes} | end) + "\n"
        for number, start, end, nodes in jobs
    )


def imported(tmp_path, form, *texts, **settings):
    """Import of files in a window of four hours, n1 and n2 its nodes."""
    paths = []
    for number, text in enumerate(texts):
        paths.append(tmp_path / f"{number}.log")
        paths[-1].write_text(text)
    own = {"map": MAP} if form == "table" else {}
    return import_log(form, paths, ImportSettings(**(MORNING | own | settings))).quality


OTHER = (2, "COMPLETED", 0, 4, "04:00:00", "00:00:00", "06:00:00", "n2")
STALE = (1, "RUNNING", 0, None, "00:10:00", "00:00:00", "2-00:00:00", "n1")
ENDED = (1, "COMPLETED", 0, 1, "01:00:00", "00:00:00", "2-00:00:00", "n1")


@pytest.mark.parametrize(
    ("form", "texts"),
    [
        ("slurm", (sacct(STALE), sacct(ENDED, OTHER))),
        ("slurm", (sacct(ENDED, OTHER), sacct(STALE))),
        # Text and JSON of one run, which names its cluster there alone.
        ("slurm", (accounting((1, "RUNNING", 0, None, 600, 0, 2880, "n[1]")), sacct(ENDED, OTHER))),
        ("slurm", (sacct(STALE, OTHER), accounting((1, "COMPLETED", 0, 1, 3600, 0, 2880, "n1")))),
        (
            "flux",
            (flux((1, 0, {}, "n1")), flux((1, 0, {"t_inactive": EIGHT + HOUR}, "n1"), (2, 0, {}, "n2"))),
        ),
        (
            "table",
            (
                f"job,start,end,nodes\n1,{EIGHT},,n1\n",
                f"job,start,end,nodes\n1,{EIGHT},{EIGHT + HOUR},n1\n2,{EIGHT},{EIGHT + 4 * HOUR},n2\n",
            ),
        ),
    ],
)
def test_run_told_before_and_after_its_end_has_ended(tmp_path, form, texts):
    """Of two rows of one run the one with an end counts, in whatever order and form they come; the other is counted."""
    quality = imported(tmp_path, form, *texts)
    assert (quality.nodes, quality.idle_node_s) == (2, 3 * HOUR)
    assert quality.dropped == {"told again when it had ended": 1}


def test_counts_of_nodes_told_twice(tmp_path):
    """The same of a table that counts nodes."""
    text = f"job,start,end,n\n1,{EIGHT},,1\n1,{EIGHT},{EIGHT + HOUR},1\n2,{EIGHT},{EIGHT + 4 * HOUR},1\n"
    quality = imported(tmp_path, "table", text, map=("start=start", "end=end", "count=n", "job=job"), nodes="2")
    assert quality.idle_node_s == 3 * HOUR


@pytest.mark.parametrize(
    ("row", "idle_h"),
    [
        # Suspended for three hours: its limit of two is not over before one.
        ((1, "RUNNING", 0, None, "01:30:00", "03:00:00", "02:00:00", "n1"), 0),
        # Longer than its limit, as OverTimeLimit allows, also while it completes.
        ((1, "RUNNING", 0, None, "03:30:00", "00:00:00", "02:00:00", "n1"), 0.5),
        ((1, "COMPLETING", 0, None, "03:30:00", "00:00:00", "02:00:00", "n1"), 0.5),
        ((1, "SUSPENDED", 0, None, "00:30:00", "01:00:00", "02:00:00", "n1"), 1),
        ((1, "RUNNING", 0, None, "00:30:00", "00:00:00", "02:00:00", "n1"), 2),
        ((1, "RUNNING", 0, None, "00:30:00", "00:00:00", "UNLIMITED", "n1"), 0),
    ],
)
def test_limit_waits_for_suspended_runs_and_is_no_end_of_longer_ones(tmp_path, row, idle_h):
    """A run without an end holds its nodes for its limit or what it ran, and what it was suspended."""
    assert imported(tmp_path, "slurm", sacct(row, OTHER)).idle_node_s == idle_h * HOUR
    seconds = [sum(60 ** (2 - at) * int(part) for at, part in enumerate(text.split(":"))) for text in row[4:6]]
    limit = 0 if row[6] == "UNLIMITED" else 120
    told = (*row[:4], *seconds, limit, row[7])
    assert imported(tmp_path, "slurm", accounting(told), sacct(OTHER)).idle_node_s == idle_h * HOUR


def test_controller_knows_the_end_that_a_suspended_run_is_allowed(tmp_path):
    """What `squeue --json` gives as the end of a run is after its limit where it was suspended."""
    job = {"job_id": 1, "job_state": "RUNNING", "nodes": "n1", "start_time": EIGHT, "end_time": EIGHT + 3 * HOUR}
    text = json.dumps({"jobs": [job | {"time_limit": {"set": True, "number": 60}, "node_count": 1}]})
    assert imported(tmp_path, "slurm", text, sacct(OTHER)).idle_node_s == HOUR


PBS = {
    "S": "exec_host=n1/0 Resource_List.walltime=02:00:00 start=1788249600 queue=q",
    "O": "exec_host=n2/0 start=1788249600 end=1788264000 queue=q",
}


@pytest.mark.parametrize(
    ("lines", "suspended", "idle_h"),
    [
        (("08:30:00;z", "11:00:00;r"), "busy", 0),
        (("08:30:00;z", "09:30:00;r"), "busy", 1),
        (("08:30:00;z",), "busy", 0),
        (("08:30:00;z", "11:00:00;r"), "idle", 2.5),
        (("08:30:00;z",), "idle", 3.5),
    ],
)
def test_suspension_of_pbs_moves_when_a_run_is_due(tmp_path, lines, suspended, idle_h):
    """A run of two hours that is suspended goes on when it is resumed, for what is left to it."""
    entries = [f"09/01/2026 {line};1.s;" for line in lines]
    text = "\n".join(["09/01/2026 08:00:00;S;1.s;" + PBS["S"], *entries, "09/01/2026 12:00:00;E;2.s;" + PBS["O"], ""])
    quality = imported(tmp_path, "pbs", text, suspended=suspended, zone="UTC")
    assert quality.idle_node_s == idle_h * HOUR


def machine(rng, nodes=20, days=28):
    """Jobs that follow each other on whole nodes, with holes: number, start, end and node; seconds from eight."""
    jobs, number = [], 0
    for node in range(nodes):
        now = rng.randrange(HOUR)
        while now < days * 24 * HOUR:
            length = rng.randrange(HOUR, 12 * HOUR)
            number += 1
            jobs.append((number, now, now + length, f"n{node}"))
            now += length + (rng.randrange(4 * HOUR) if rng.random() < 0.3 else 0)
    return sorted(jobs, key=lambda job: job[1])


def forgotten(form, jobs, lost):
    """A log of jobs of which some have no end and no limit."""
    if form == "table":
        return "job,start,end,nodes\n" + "".join(
            f"{n},{EIGHT + start},{'' if n in lost else EIGHT + end},{node}\n" for n, start, end, node in jobs
        )
    if form == "flux":
        return "".join(
            json.dumps(
                {"id": n, "t_run": EIGHT + start, "nodelist": node} | ({} if n in lost else {"t_inactive": EIGHT + end})
            )
            + "\n"
            for n, start, end, node in jobs
        )
    if form == "pbs":
        lines = []
        for n, start, end, node in jobs:
            told = f"{n}.s;start={EIGHT + start} exec_host={node}/0"
            lines.append((start, f"09/01/2026 00:00:00;S;{told}"))
            if n not in lost:
                lines.append((end, f"09/01/2026 00:00:00;E;{told} end={EIGHT + end}"))
        return "".join(f"{line}\n" for _, line in sorted(lines))
    rows = []
    for n, start, end, node in jobs:
        state, stop = ("RUNNING", "Unknown") if n in lost else ("COMPLETED", EIGHT + end)
        rows.append(f"{n}|{state}|{EIGHT + start}|{stop}|1|{node}\n")
    return "".join(["JobIDRaw|State|Start|End|NNodes|NodeList\n", *rows])


@pytest.mark.parametrize("form", ["slurm", "pbs", "flux", "table"])
@pytest.mark.parametrize("share", [0.002, 0.02])
def test_runaways_end_where_another_job_starts(tmp_path, form, share):
    """The idle share is right to a point though some runs never end, and what that rests on is named."""
    rng = random.Random(5)
    jobs = machine(rng)
    lost = {job[0] for job in jobs if job[1] < 20 * 24 * HOUR and rng.random() < share} or {jobs[40][0]}
    window = {"start": str(EIGHT + 24 * HOUR), "end": str(EIGHT + 27 * 24 * HOUR)}
    true = imported(tmp_path, form, forgotten(form, jobs, ()), **window)
    quality = imported(tmp_path, form, forgotten(form, jobs, lost), **window)
    assert quality.idle_share == pytest.approx(true.idle_share, abs=0.01)
    assert quality.coverage["runaways"] == len(lost)
    assert (quality.coverage["runaway_share"] > 0.01) == (share > 0.01)
    assert any(note.startswith(f"{len(lost):,} runs are runaways") for note in quality.notes)


def test_shared_nodes_have_no_runaways(tmp_path):
    """Where jobs share nodes, one that starts says nothing of one that goes on."""
    rows = [(n, "COMPLETED", n / 10, n / 10 + 1, "", "", "", "n1") for n in range(2, 12)]
    quality = imported(tmp_path, "slurm", sacct((1, "RUNNING", 0, None, "", "", "", "n1"), *rows))
    assert quality.idle_node_s == 0
    assert quality.coverage["runaways"] == 0


def test_few_jobs_of_a_node_do_not_make_it_whole_where_others_are_shared(tmp_path):
    """A node on which two jobs ran one after the other may share as the others do."""
    shared = [(n, "COMPLETED", n / 10, n / 10 + 1, "", "", "", "n1") for n in range(3, 12)]
    late = [(1, "RUNNING", 0, None, "", "", "", "n1"), (20, "RUNNING", 0, None, "", "", "", "n2")]
    few = [(n, "COMPLETED", n - 20, n - 19.5, "", "", "", "n2") for n in (21, 22)]
    quality = imported(tmp_path, "slurm", sacct(*late, *shared, *few))
    assert (quality.idle_node_s, quality.coverage["runaways"]) == (0, 0)
