"""Runs without an end, told twice or forgotten, and nodes that were added, renamed or retired, in every format."""

from __future__ import annotations

import json
import random

import pytest

from tests.importing import import_text
from tests.schedulers.machines import FORMS, TABLE, format_job, sacct_job, sacct_json

EIGHT, HOUR = 1788249600, 3600  # 2026-09-01 08:00 UTC
MORNING = {"start": str(EIGHT), "end": str(EIGHT + 4 * HOUR), "window": "asked"}
COUNTED = {"map": ("start=began", "end=finished", "count=n", "job=id"), "nodes": "2"}
OWN = {"table": {"map": TABLE}, "table (TSV)": COUNTED}
SACCT = FORMS["slurm"][0]
OTHER = format_job("slurm", 2, EIGHT, EIGHT + 4 * HOUR, ["n2"])


def write_log(form, jobs, lost=(), **more):
    """A log of jobs (number, start, end, node), of which some have no end."""
    some = [(number, start, None if number in lost else end, node) for number, start, end, node in jobs]
    if form == "slurm (JSON)":  # it names a cluster, as rows do not, and lists of nodes in its own way
        runs = ((number, start, end or 0, [node]) for number, start, end, node in some)
        return sacct_json(*(sacct_job(*run, nodes=f"n[{run[3][0][1:]}]", cluster="c") for run in runs))
    return FORMS[form][0] + "".join(format_job(form, *run, [node], **more) for *run, node in some)


def imported(tmp_path, form, *texts, **settings):
    """The account of an import in a window of four hours, unless it is told."""
    own = MORNING | OWN.get(form, {}) | settings
    return import_text(tmp_path / "log", form.partition(" (")[0], *texts, **own).quality


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *((form, form) for form in ("slurm", "flux", "table", "table (TSV)")),
        # Text and JSON of one run.
        ("slurm", "slurm (JSON)"),
        ("slurm (JSON)", "slurm"),
    ],
)
def test_run_told_before_and_after_its_end_has_ended(tmp_path, before, after):
    """Of two rows of one run the one with an end counts, in whatever order and form they come; the other is counted."""
    jobs = [(1, EIGHT, EIGHT + HOUR, "n1"), (2, EIGHT, EIGHT + 4 * HOUR, "n2")]
    texts = write_log(before, jobs[:1], lost={1}, limit="2-00:00:00"), write_log(after, jobs)
    for some in (texts, texts[::-1]):
        quality = imported(tmp_path, before, *some)
        assert (quality.nodes, quality.idle_node_s) == (2, 3 * HOUR)
        assert quality.dropped == {"told again when it had ended": 1}


@pytest.mark.parametrize(
    ("state", "elapsed_h", "suspended_h", "limit_h", "idle_h"),
    [
        # Suspended for three hours: its limit of two is not over before one.
        ("RUNNING", 1.5, 3, 2, 0),
        # Longer than its limit, as OverTimeLimit allows, also while it completes.
        ("RUNNING", 3.5, 0, 2, 0.5),
        ("COMPLETING", 3.5, 0, 2, 0.5),
        ("SUSPENDED", 0.5, 1, 2, 1),
        ("RUNNING", 0.5, 0, 2, 2),
        ("RUNNING", 0.5, 0, 0, 0),
    ],
)
def test_limit_waits_for_suspended_runs_and_is_no_end_of_longer_ones(
    tmp_path, state, elapsed_h, suspended_h, limit_h, idle_h
):
    """A run without an end holds its nodes for its limit or what it ran, and what it was suspended."""
    spans = [f"{int(hours):02}:{int(hours % 1 * 60):02}:00" for hours in (elapsed_h, suspended_h, limit_h)]
    spans[2] = spans[2] if limit_h else "UNLIMITED"
    told = dict(zip(("elapsed", "suspended", "limit"), spans, strict=True))
    text = format_job("slurm", 1, EIGHT, None, ["n1"], state=state, **told)
    assert imported(tmp_path, "slurm", SACCT + text + OTHER).idle_node_s == idle_h * HOUR
    limit = {"set": bool(limit_h), "infinite": False, "number": 60 * limit_h}
    times = {"elapsed": int(elapsed_h * HOUR), "suspended": int(suspended_h * HOUR), "limit": limit}
    text = sacct_json(sacct_job(1, EIGHT, 0, ["n1"], [state], time=times))
    assert imported(tmp_path, "slurm", text, SACCT + OTHER).idle_node_s == idle_h * HOUR


def test_controller_knows_the_end_that_a_suspended_run_is_allowed(tmp_path):
    """What `squeue --json` gives as the end of a run is after its limit where it was suspended."""
    job = {"job_id": 1, "job_state": "RUNNING", "nodes": "n1", "start_time": EIGHT, "end_time": EIGHT + 3 * HOUR}
    text = json.dumps({"jobs": [job | {"time_limit": {"set": True, "number": 60}, "node_count": 1}]})
    assert imported(tmp_path, "slurm", text, SACCT + OTHER).idle_node_s == HOUR


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
    text = format_job("pbs", 1, EIGHT, None, ["n1"], over=" Resource_List.walltime=02:00:00")
    text += "".join(f"09/01/2026 {line};1.s;\n" for line in lines)
    text += format_job("pbs", 2, EIGHT, EIGHT + 4 * HOUR, ["n2"])
    assert imported(tmp_path, "pbs", text, suspended=suspended, zone="UTC").idle_node_s == idle_h * HOUR


def run_machine(rng, nodes=20, days=28):
    """Jobs that follow each other on whole nodes, with holes: number, start, end and node; seconds since the epoch."""
    jobs, number = [], 0
    for node in range(nodes):
        now = EIGHT + rng.randrange(HOUR)
        while now < EIGHT + days * 24 * HOUR:
            length = rng.randrange(HOUR, 12 * HOUR)
            number += 1
            jobs.append((number, now, now + length, f"n{node}"))
            now += length + (rng.randrange(4 * HOUR) if rng.random() < 0.3 else 0)
    return sorted(jobs, key=lambda job: job[1])


@pytest.mark.parametrize("form", ["slurm", "pbs", "flux", "table"])
@pytest.mark.parametrize("share", [0.002, 0.02])
def test_runaways_end_where_another_job_starts(tmp_path, form, share):
    """The idle share is right to a point though some runs never end, and what that rests on is named."""
    rng = random.Random(5)
    jobs = run_machine(rng)
    lost = {job[0] for job in jobs if job[1] < EIGHT + 20 * 24 * HOUR and rng.random() < share} or {jobs[40][0]}
    window = {"start": str(EIGHT + 24 * HOUR), "end": str(EIGHT + 27 * 24 * HOUR)}
    true = imported(tmp_path, form, write_log(form, jobs, ()), **window)
    quality = imported(tmp_path, form, write_log(form, jobs, lost), **window)
    assert quality.idle_share == pytest.approx(true.idle_share, abs=0.01)
    assert quality.coverage["runaways"] == len(lost)
    assert (quality.coverage["runaway_share"] > 0.01) == (share > 0.01)
    assert any(note.startswith(f"{len(lost):,} runs are runaways") for note in quality.notes)


def test_shared_nodes_have_no_runaways(tmp_path):
    """Where jobs share nodes, one that starts says nothing of one that goes on, nor do two jobs on another node."""
    spans = [(1, 0, 4, "n1"), (20, 0, 4, "n2"), (21, 1, 1.5, "n2"), (22, 2, 2.5, "n2")]
    spans += [(number, number / 10, number / 10 + 1, "n1") for number in range(2, 12)]
    some = [(number, *(EIGHT + round(at * HOUR) for at in times), node) for number, *times, node in spans]
    quality = imported(tmp_path, "table", write_log("table", some, lost={1, 20}))
    assert (quality.idle_node_s, quality.coverage["runaways"]) == (0, 0)


DAY, STEP = 86_400, 4 * 3600
START = 1788220800  # 2026-09-01
TRUSTED = {"start": None, "end": None, "window": "trusted"}
WEEKS = {"n1": (0, 56), "old": (0, 28), "new": (28, 56)}
"""One node all the time, one renamed after four weeks: none is ever idle."""


def jobs(lives):
    """Jobs that follow each other on each node while it is there: number, start, end and node."""
    starts = [(START + at, node) for node, span in lives.items() for at in range(*(day * DAY for day in span), STEP)]
    return [(number, start, start + STEP, node) for number, (start, node) in enumerate(sorted(starts), start=1)]


def imported_lives(tmp_path, some, form="slurm", **settings):
    """The account of an import of jobs in the time that can be trusted, unless it is told."""
    return imported(tmp_path, form, write_log(form, some), **TRUSTED | settings)


@pytest.mark.parametrize("form", ["slurm", "pbs", "lsf", "flux", "table"])
def test_renamed_node_is_not_idle_under_either_name(tmp_path, form):
    """What follows the last record of a name, and what comes before its first, is left out and named."""
    quality = imported_lives(tmp_path, jobs(WEEKS), form)
    assert quality.idle_share == 0
    # An inventory has today's names, and does not say since when.
    for nodes in ("n1,new", "n1,old", "n1,old,new"):
        assert imported_lives(tmp_path, jobs(WEEKS), form, nodes=nodes).idle_share == 0
    assert quality.away_node_s == quality.busy_node_s["away"] == pytest.approx(quality.window_s, rel=1e-6)
    note = next(note for note in quality.notes if "added, renamed or retired" in note)
    assert "1 nodes are named in no record before 2026-09-29T00:00:00Z (new)" in note
    assert "1 nodes are named in no record after 2026-09-29T00:00:00Z (old)" in note
    assert f"{quality.away_node_s / 3600:,.1f} node-hours are left out" in note


def test_share_is_that_of_the_nodes_that_were_there(tmp_path):
    """Half of a node's time idle is a fourth of a machine of two nodes, however short the second was there."""
    some = jobs({"n1": (0, 56), "new": (28, 56)})
    quality = imported_lives(tmp_path, [job for job in some if job[3] == "n1" or (job[1] - START) // STEP % 2])
    there_s = 2 * quality.window_s - quality.away_node_s
    assert quality.idle_share == pytest.approx(quality.idle_node_s / there_s)
    assert quality.idle_share == pytest.approx(1 / 6, abs=0.01)


def test_days_without_a_job_do_not_retire_a_node(tmp_path):
    """A node that is wanted by nobody for less than a week is idle; so is one between two of its jobs."""
    quality = imported_lives(tmp_path, jobs({"n1": (0, 56), "n2": (5, 51)}))
    assert quality.away_node_s == 0
    assert quality.idle_node_s > 8 * DAY
    some = [*jobs({"n1": (0, 56), "n2": (0, 10)}), (0, START + 55 * DAY, START + 56 * DAY, "n2")]
    quality = imported_lives(tmp_path, some, window="asked")
    assert (quality.away_node_s, quality.idle_node_s) == (0, 45 * DAY)


@pytest.mark.parametrize(
    "text",
    [
        "node,from,to\nold,2026-09-01,2026-09-25\nnew,2026-09-29,\nn1,,\n",
        "node|start_date|end_date\nold|2026-09-01T00:00:00|2026-09-25T00:00:00\nn1|1788220800|Unknown\n"
        "new|1790640000|Unknown\n",
        "Cluster|NodeName|ClusterNodes|TimeStart|TimeEnd|State\nc||n1,old|2026-09-01T00:00:00|2026-09-25T00:00:00|\n"
        "c|n1||2026-09-03T00:00:00|2026-09-04T00:00:00|DOWN\nc||n1|2026-09-25T00:00:00|2026-09-29T00:00:00|\n"
        "c||n1,new|2026-09-29T00:00:00|Unknown|\n",
    ],
)
def test_dated_list_of_nodes_rules(tmp_path, text):
    """Where `--nodes` says from when to when nodes were there, they are idle then, whatever the records say."""
    some = jobs({"n1": (0, 56), "old": (0, 10), "new": (40, 56)})
    settings = {"start": "2026-09-01T00:00Z", "end": "2026-10-27T00:00Z", "nodes": text}
    quality = imported_lives(tmp_path, some, window="asked", zone="UTC", **settings)
    assert quality.idle_node_s == pytest.approx((24 - 10 + 40 - 28) * DAY)
    assert quality.away_node_s == pytest.approx((56 - 24 + 28) * DAY)
    assert any("only while --nodes says" in note for note in quality.notes)
    with pytest.raises(Exception, match="Missing --tz"):  # a time in an unknown zone is refused as in logs
        imported_lives(tmp_path, some, window="asked", **settings)
