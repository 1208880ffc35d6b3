"""What of idle time is offered, and what is said of it: from the import to the replay, its page and its audit."""

from __future__ import annotations

import json

import pytest

from bftrainer.nodelogs import read_node_log

SACCT = """\
JobIDRaw|Start|End|NNodes|NodeList
1|1788220800|1788224400|2|n[1-2]
2|1788228000|1788229000|1|n1
3|1788232000|1788240000|2|n[1-2]
"""
HOUR = 3600


@pytest.fixture
def log(call, here):
    """A node log of two nodes, of which all that is asked for was taken."""
    (here / "sacct.txt").write_text(SACCT)
    window = ("--start", "1788220800", "--end", "1788240000", "--window", "asked")
    assert call("import", "--format", "slurm", "sacct.txt", *window, "-o", "idle.parquet").status == 0
    assert (
        call("import", "--format", "slurm", "sacct.txt", *window, "--offer-after", "3600", "-o", "late.parquet").status
        == 0
    )
    return here / "idle.parquet"


@pytest.mark.usefixtures("log")
def test_offer_after_is_the_same_everywhere(call, here):
    """An import, a filter and a replay that wait an hour offer the same; each idle interval loses its first hour."""
    assert call("trace", "edit", "idle.parquet", "--offer-after", "3600", "-o", "filtered.parquet").status == 0
    late, filtered = (list(read_node_log(here / name).rows()) for name in ("late.parquet", "filtered.parquet"))
    rows = [(time_s, joined, left) for time_s, joined, left in late]
    # n2 is idle from 3600 s to 11200 s; n1 twice, for less than an hour each time.
    assert rows == [(2 * HOUR, [1], []), (11_200, [], [1])]
    assert str(late) == str(filtered)
    words = ("replay", "-bdfn", "tasks.toml", "--solver", "dp", "--json")
    given = call(*words, "-ndmap", "idle.parquet", "--offer-after", "3600", "-name", "r1").json
    made = call(*words, "-ndmap", "late.parquet", "-name", "r2").json
    assert given["idle_node_s"] == made["idle_node_s"] > 0
    assert given["settings"]["offer_after_s"] == HOUR
    assert call("audit", "r1-itrOut").status == 0


@pytest.mark.long
@pytest.mark.usefixtures("log")
def test_notes_travel(call, here):
    """What was trimmed, assumed and not checked stands in the summary, the table and the page."""
    done = call("replay", "-ndmap", "idle.parquet", "-bdfn", "tasks.toml", "--solver", "dp", "-name", "run")
    assert done.status == 0
    notes = json.loads((here / "run-itrOut" / "summary.json").read_text())["node_log_notes"]
    assert any("cannot be trusted" in note for note in notes)
    assert any("idle time is an upper bound" in note for note in notes)
    assert all(note in done.out for note in notes)
    assert call("report", "run-itrOut", "-o", "page.html").status == 0
    page = (here / "page.html").read_text()
    assert "cannot be trusted" in page
    assert "idle time is an upper bound" in page
