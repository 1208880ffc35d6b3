"""Nodes that are not part of the machine are not idle: added, renamed and retired ones, in every format with names."""

from __future__ import annotations

import pytest

from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings

DAY, STEP = 86_400, 4 * 3600
START = 1788220800  # 2026-09-01
WEEKS = {"n1": (0, 56), "old": (0, 28), "new": (28, 56)}
"""One node all the time, one renamed after four weeks: none is ever idle."""
ROWS = {
    "slurm": "{number}|{start}|{end}|1|{node}\n",
    "pbs": "09/01/2026 00:00:00;E;{number}.s;start={start} end={end} exec_host={node}/0\n",
    "lsf": '"JOB_FINISH" "10.1" {end} {number} 1 1 1 0 0 0 {start} "u" "q" "" "" "" "h" "/" "" "" "" "f" 0 1 "{node}" '
    '64 1.0 "a" "x"\n',
    "flux": '{{"id": {number}, "t_run": {start}, "t_inactive": {end}, "nodelist": "{node}"}}\n',
    "table": "{number},{start},{end},{node}\n",
}
HEADERS = {"slurm": "JobIDRaw|Start|End|NNodes|NodeList\n", "table": "job,start,end,nodes\n"}


def jobs(lives):
    """Jobs that follow each other on each node while it is there: node, start and end."""
    spans = [
        (node, START + at, START + at + STEP)
        for node, (low, high) in lives.items()
        for at in range(low * DAY, high * DAY, STEP)
    ]
    return sorted(spans, key=lambda span: span[1])


def imported(tmp_path, some, form="slurm", **settings):
    """The account of an import of jobs."""
    rows = [
        ROWS[form].format(number=number, node=node, start=start, end=end)
        for number, (node, start, end) in enumerate(some, start=1)
    ]
    (tmp_path / "log").write_text(HEADERS.get(form, "") + "".join(rows))
    own = {"map": ("start=start", "end=end", "nodes=nodes", "job=job")} if form == "table" else {}
    return import_log(form, [tmp_path / "log"], ImportSettings(**(own | settings))).quality


@pytest.mark.parametrize("form", ROWS)
def test_renamed_node_is_not_idle_under_either_name(tmp_path, form):
    """What follows the last record of a name, and what comes before its first, is left out and named."""
    quality = imported(tmp_path, jobs(WEEKS), form)
    assert quality.idle_share == 0
    assert quality.away_node_s == quality.busy_node_s["away"] == pytest.approx(quality.window_s, rel=1e-6)
    note = next(note for note in quality.notes if "added, renamed or retired" in note)
    assert "1 nodes are named in no record before 2026-09-29T00:00:00Z (new)" in note
    assert "1 nodes are named in no record after 2026-09-29T00:00:00Z (old)" in note
    assert f"{quality.away_node_s / 3600:,.1f} node-hours are left out" in note


@pytest.mark.parametrize("nodes", ["n1,new", "n1,old", "n1,old,new"])
def test_inventory_of_today_changes_nothing(tmp_path, nodes):
    """An inventory has today's names, and does not say since when."""
    assert imported(tmp_path, jobs(WEEKS), nodes=nodes).idle_share == 0


def test_share_is_that_of_the_nodes_that_were_there(tmp_path):
    """Half of a node's time idle is a fourth of a machine of two nodes, however short the second was there."""
    some = jobs({"n1": (0, 56), "new": (28, 56)})
    quality = imported(tmp_path, [job for job in some if job[0] == "n1" or (job[1] - START) // STEP % 2])
    there_s = 2 * quality.window_s - quality.away_node_s
    assert quality.idle_share == pytest.approx(quality.idle_node_s / there_s)
    assert quality.idle_share == pytest.approx(1 / 6, abs=0.01)


def test_days_without_a_job_do_not_retire_a_node(tmp_path):
    """A node that is wanted by nobody for less than a week is idle; so is one between two of its jobs."""
    quality = imported(tmp_path, jobs({"n1": (0, 56), "n2": (5, 51)}))
    assert quality.away_node_s == 0
    assert quality.idle_node_s > 8 * DAY
    some = [*jobs({"n1": (0, 56), "n2": (0, 10)}), ("n2", START + 55 * DAY, START + 56 * DAY)]
    quality = imported(tmp_path, some, window="asked")
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
    (tmp_path / "nodes").write_text(text)
    some = jobs({"n1": (0, 56), "old": (0, 10), "new": (40, 56)})
    settings = {"start": "2026-09-01T00:00Z", "end": "2026-10-27T00:00Z", "nodes": str(tmp_path / "nodes")}
    quality = imported(tmp_path, some, window="asked", zone="UTC", **settings)
    assert quality.idle_node_s == pytest.approx((24 - 10 + 40 - 28) * DAY)
    assert quality.away_node_s == pytest.approx((56 - 24 + 28) * DAY)
    assert any("only while --nodes says" in note for note in quality.notes)
    with pytest.raises(Exception, match="Missing --tz"):  # a time in an unknown zone is refused as in logs
        imported(tmp_path, some, window="asked", **settings)
