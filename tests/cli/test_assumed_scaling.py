"""Tasks whose scaling is assumed: every surface says so beside the figures that rest on it, and what mends it."""

import json
import re

import pytest

from bftrainer.report.comparison import figures_of
from bftrainer.terms import ON_SCALING
from tests.tiny import SWEEP

MENDS = ("-scfn", "--scaling")
WORLD = ("-ndmap", "evt.pkl", "-bdfn", "Jbnd.pkl", "--solver", "dp")
TOUCHED_ROWS = (
    *("occupancy", "  below large idle", "work done", "efficiency U", "ledger"),
    *("return on investment", "tasks ", "makespan", "turnaround", "waiting", "preemptions, rescales"),
)


@pytest.fixture
def call(call, here):
    """Call commands where no scalability is."""
    (here / "JNPs.pkl").unlink()
    return call


@pytest.fixture
def two(call, here):
    """The directory with a run that assumes, and one that does not."""
    assert call("replay", *WORLD, "--output-dir", "assumed").status == 0
    assert call("replay", *WORLD[:2], "-bdfn", "tasks.toml", *WORLD[4:], "--output-dir", "measured").status == 0
    return here


def test_tasks_that_none_can_end_are_told_before_the_run(call, here):
    """At an assumed rate no task ends within the log: one line says so, and names a file that looks like the curves."""
    (here / "mine_jnps.pkl").write_bytes(b"")
    (here / "long.toml").write_text('schema = 1\n[[task]]\nname = "a"\nmin_nodes = 1\nmax_nodes = 4\nwork = 1e12\n')
    done = call("replay", "-ndmap", "evt.pkl", "-bdfn", "long.toml", "--solver", "dp", "--no-baseline")
    assert "Note: no task can complete: none takes less than 7,922 years on as many nodes" in done.err
    assert "Note: measured scaling may be in mine_jnps.pkl: give it by -scfn." in done.err
    assert "none of which takes less than 7,922 years" in done.out


def test_result_table(call):
    """Each figure that rests on it is marked, the others are not, and one row names the options."""
    lines = call("replay", *WORLD, "--large-idle", 4).out.splitlines()
    told = [line for line in lines if line.startswith("assumed scaling")]
    assert len(told) == 1
    assert all(option in told[0] for option in MENDS)
    assert "2 of 2 tasks" in told[0]
    marked = {line for line in lines if line.endswith("(assumed scaling)")}
    for row in TOUCHED_ROWS:
        found = [line for line in lines if line.startswith(row)]
        assert set(found) <= marked, row
        assert found or row == "makespan"
    assert not any(line.startswith(("events", "idle nodes", "optimality", "decision time")) for line in marked)
    assert "assumed" not in call("replay", *WORLD[:2], "-bdfn", "tasks.toml", *WORLD[4:], "--force").out


def test_summary_and_compare(call, two):
    """The summary names figures and options, null where every task brought its own; figures of one run are marked."""
    assumed, measured = (json.loads((two / name / "summary.json").read_text()) for name in ("assumed", "measured"))
    assert measured["assumed_scaling"] is None
    found, known = assumed["assumed_scaling"], figures_of(assumed)
    assert (found["model"], found["tasks"], found["is_default"]) == ("linear", 2, True)
    assert set(found["figures"]) == {key.rpartition(".")[2] for key in ON_SCALING if known.get(key) is not None}
    assert {"work_done", "efficiency", "occupancy", "tasks_completed"} <= set(found["figures"])
    done = call("compare", "measured", "assumed")
    rows = {line[:12].strip(): line for line in done.out.splitlines()}
    assert re.search(r"work done +\d+ +\* \d+", done.out)
    assert "*" not in rows["idle nodes"]
    (note,) = (line for line in done.out.splitlines() if line.startswith("* "))
    assert "(assumed)" in note
    assert all(option in text for option in MENDS for text in (note, found["note"]))
    runs = call("compare", "measured", "assumed", "--json").json["runs"]
    assert runs[0] == {"name": "measured", "partial": False}
    assert runs[1]["assumed_scaling"].startswith("linear from 1 work/s")


def test_campaigns(call, here):
    """Sweeps, forecasts and advice say it beside what they print, and in their JSON."""
    (here / "s.toml").write_text(SWEEP.replace("tasks.toml", "Jbnd.pkl"))
    swept = call("sweep", "s.toml", "--workers", 1)
    assert re.search(r"^0 +5 +\* \S+ % +\* ", swept.out, re.MULTILINE)
    assert_note(next(line for line in swept.out.splitlines() if line.startswith("* ")))
    assert_note(call("sweep", "s.toml", "--resume", "--workers", 1, "--json").json[0]["assumed_scaling"])
    words = ("forecast", "--deadline", "20s", "--horizon", 30, *WORLD, "--stretches", 2, "--workers", 1)
    assert_note(next(line for line in call(*words).out.splitlines() if line.startswith("assumed scaling")))
    assert_note(call(*words, "--json").json["assumed_scaling"])
    words = ("advise", *WORLD, "--metric", "work_done", "--trials", 2)
    assert_note(call(*words).out.splitlines()[-1])
    assert_note(call(*words, "--json").json["assumed_scaling"])


def assert_note(text):
    """It names the law and the options."""
    assert "linear from 1 work/s" in text
    assert all(option in text for option in MENDS)
