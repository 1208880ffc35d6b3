"""`bftrainer sweep`, `forecast` and `advise`: what they print and write, and what they refuse."""

from __future__ import annotations

import json
import signal
import webbrowser

import pytest

from tests.cli.conftest import assert_matches, check_refusal
from tests.tiny import spawn

SWEEP = """schema = 1
[base]
node_log = "evt.pkl"
tasks = "jbnd.pkl"
solver = "dp"
[grid]
Tfwd = [5, 20]
"""


@pytest.fixture
def here(here):
    """The small world, and a sweep over it."""
    (here / "tfwd.toml").write_text(SWEEP.replace("evt.pkl", log(here)).replace("jbnd.pkl", tasks(here)))
    return here


def log(folder):
    """Name of the small world's log."""
    return next(path.name for path in folder.iterdir() if "evt" in path.name)


def tasks(folder):
    """Name of the small world's task set."""
    return next(path.name for path in folder.iterdir() if "bnd" in path.name)


def test_sweep(call, here):
    """A line a point and where the table is; the directory is named after the file; resuming changes nothing."""
    done = call("sweep", "tfwd.toml", "--workers", 1)
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0].split()[:2] == ["point", "forward_time_s"]
    assert [line.split()[:2] for line in lines[1:3]] == [["0", "5"], ["1", "20"]]
    assert lines[3] == "Table: tfwd-sweep/sweep.parquet"
    before = (here / "tfwd-sweep" / "sweep.parquet").read_bytes()
    check_refusal(call("sweep", "tfwd.toml"))
    assert call("sweep", "tfwd.toml", "--resume", "--workers", 1).out == done.out
    assert (here / "tfwd-sweep" / "sweep.parquet").read_bytes() == before
    assert call("plot", "setting", *(here / "tfwd-sweep" / "runs").iterdir(), "-o", "tfwd.svg").status == 0
    refused = call("report", "tfwd-sweep", "-o", "tfwd.html")
    check_refusal(refused)
    assert "got a sweep's" in refused.err
    assert "tfwd-sweep/runs/* are its runs" in refused.err
    assert call("report", *(here / "tfwd-sweep" / "runs").iterdir(), "-o", "tfwd.html").status == 0
    assert "training on idle nodes" in (here / "tfwd.html").read_text()


KILLING = """
import os, signal
from pathlib import Path

once = Path(__file__).with_name("once")

def credit(task, counts, now_s):
    if once.exists():
        once.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return task.spec.credits[counts]
"""


@pytest.mark.long
def test_a_killed_sweep_goes_on(here):
    """Points that were finished are not run again, and the table is that of a sweep that was not killed."""
    (here / "killing.py").write_text(KILLING)
    points = "".join(f'[[point]]\nobjective = "{name}"\n' for name in ("as-given", "killing:credit", "throughput"))
    (here / "points.toml").write_text((here / "tfwd.toml").read_text().partition("[grid]")[0] + points)
    sweep = ("bftrainer", "sweep", "points.toml", "--workers", 1, "-o")
    whole = spawn(*sweep, "whole", cwd=here)
    assert whole.status == 0, whole
    (here / "once").touch()
    assert spawn(*sweep, "killed", cwd=here).status == -signal.SIGKILL
    made = {path: path.stat().st_mtime_ns for path in (here / "killed").glob("runs/*/summary.json")}
    assert len(made) == 1
    resumed = spawn(*sweep, "killed", "--resume", cwd=here)
    assert (resumed.status, resumed.out) == (0, whole.out.replace("whole", "killed")), resumed
    assert {path: path.stat().st_mtime_ns for path in made} == made


def test_a_failing_point_is_reported(call, here):
    """On stderr, by its number; the exit status is 1, and the table has the others."""
    with (here / "tfwd.toml").open("a") as file:
        file.write('[[point]]\nobjective = "energy"\n')
    done = call("sweep", "tfwd.toml", "--workers", 1, "--json")
    assert done.status == 1
    assert done.err.startswith("Point 2 failed: objective energy")
    assert [bool(row["error"]) for row in done.json] == [False, False, True]
    assert done.json[0]["options"] == {"forward_time_s": 5, "objective": None}


def test_forecast(call, here):
    """Words, or JSON; the tasks of the small world are never done within 20 s."""
    world = ("-ndmap", log(here), "-bdfn", tasks(here), "--solver", "dp", "--stretches", 4, "--workers", 1)
    done = call("forecast", "--deadline", "20s", "--horizon", 30, *world)
    assert done.status == 0
    assert_matches(r"all done by then +0 % \(0 to 49 %\)", done.out)
    assert "more than 30 s" in done.out
    assert "stretches overlap" in done.err
    assert "4 stretches are too few for the 80 %" in done.err
    found = call("forecast", "--deadline", "20s", "--horizon", 30, *world, "--json").json
    assert (found["probability"], found["stretches"], found["interval80_s"]) == (0.0, 4, [None, None])
    dated = call("forecast", "--deadline", "2021-02-10T00:00:55", "--horizon", 30, *world, "--json").json
    assert dated["deadline_s"] == 15.0  # the log ends 40 s after midnight


def test_advise(call, here):
    """A table of both settings on both parts, and a sentence."""
    world = ("-ndmap", log(here), "-bdfn", tasks(here), "--solver", "dp", "--metric", "work_done", "--trials", 4)
    done = call("advise", *world)
    assert done.status == 0
    assert [line.split()[0] for line in done.out.splitlines()[1:3]] == ["given", "best"]
    assert_matches("(Use these|Keep the given) settings", done.out)
    found = call("advise", *world, "--json").json
    assert found["sentence"] in done.out
    assert json.dumps(found) == json.dumps(call("advise", *world, "--json").json)


@pytest.mark.long
def test_settings_of_a_run_or_a_file(call, here):
    """`--like` takes all settings from a run's directory or a file; options given beside it replace them."""
    (here / "own.toml").write_text(
        SWEEP.partition("[grid]")[0].replace("evt.pkl", log(here)).replace("jbnd.pkl", tasks(here))
    )
    world = ("-ndmap", log(here), "-bdfn", tasks(here), "--solver", "dp")
    assert call("replay", *world, "-Tfwd", 5, "--startup-cost", "full", "-o", "run").status == 0
    plain = call("bound", *world, "-Tfwd", 5, "--json").json
    by_file, by_run = (call("bound", "--like", like, "-Tfwd", 5, "--json").json for like in ("own.toml", "run"))
    assert by_file == plain
    assert by_run == call("bound", "--like", "run", "--json").json != plain
    task = 'name = "other"\nmin_nodes = 1\nmax_nodes = 2\nwork = 50.0\n'
    curve = "scaling = {nodes = [0, 1, 2], throughput = [0.0, 1.0, 1.5]}\n"
    (here / "other.toml").write_text(f"schema = 1\n[[task]]\n{task}{curve}")
    assert call("bound", "--like", "run", "-bdfn", "other.toml", "--json").status == 0
    swept = call("bound", "--like", "tfwd.toml")
    check_refusal(swept)
    assert_matches("Expected settings of one run in .base., got a sweep over", swept.err)
    check_refusal(call("bound", "--like", "nowhere"))
    summary = (here / "run" / "summary.json").read_text()
    (here / "run" / "summary.json").write_text(summary.replace('"objective": "as-given"', '"objective": "theirs:code"'))
    foreign = call("bound", "--like", "run")
    check_refusal(foreign)
    assert_matches("its objective is code, theirs:code, which is not run unasked", foreign.err)
    (here / "run" / "summary.json").write_text("{}")
    check_refusal(call("bound", "--like", "run"))


def test_pages(call, here, monkeypatch):
    """Each command makes one, tells where it is, and replaces it on demand alone; --json prints what it did before.

    --open shows it, also where --json is printed.
    """
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    world = ("-ndmap", log(here), "-bdfn", tasks(here), "--solver", "dp")
    commands = {
        "sweep.html": ("sweep", "tfwd.toml", "--workers", 1, "--metric", "work_done", "--metric", "rescales"),
        "forecast.html": ("forecast", "--deadline", "20s", "--horizon", 30, *world, "--stretches", 3, "--workers", 1),
        "advice.html": ("advise", *world, "--metric", "work_done", "--trials", 3),
    }
    for name, words in commands.items():
        done = call(*words, "--report", name)
        assert done.status == 0, done
        assert done.out.splitlines()[-1] == f"Page: {name}"
        text = (here / name).read_text()
        assert "http-equiv" not in text
        assert "<script" not in text
        check_refusal(call(*words, "--report", name))
        assert opened == []
        again = (*words, "--report", name, "--force", "--json", "--open")
        assert call(*again).json is not None
        assert opened.pop() == (here / name).as_uri()
        assert (here / name).read_text().partition("How it was made")[0] == text.partition("How it was made")[0]


def test_a_page_of_a_finished_sweep(call, here):
    """--resume makes it from what is there, and runs nothing again."""
    assert call("sweep", "tfwd.toml", "--workers", 1, "--report", "first.html").status == 0
    times = {path: path.stat().st_mtime_ns for path in (here / "tfwd-sweep" / "runs").glob("*/*")}
    assert call("sweep", "tfwd.toml", "--workers", 1, "--resume", "--report", "again.html").status == 0
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert (here / "again.html").read_bytes() == (here / "first.html").read_bytes()


def test_inputs_are_no_pages(call, here):
    """Neither what the sweep's file names nor its table is replaced, even with --force or --resume."""
    assert call("sweep", "tfwd.toml", "--workers", 1).status == 0
    for name in (log(here), tasks(here), "tfwd.toml", "tfwd-sweep/sweep.parquet", "tfwd-sweep/sweep.toml"):
        before = (here / name).read_bytes()
        for how in ("--force", "--resume"):
            check_refusal(call("sweep", "tfwd.toml", "--workers", 1, how, "--report", name))
            assert (here / name).read_bytes() == before


def test_a_date_is_a_deadline(call, here):
    """The table and the page name the date."""
    world = ("-ndmap", log(here), "-bdfn", tasks(here), "--solver", "dp", "--stretches", 2, "--workers", 1)
    start = ("--start", "2026-12-04T17:59:40", "--horizon", 30)
    done = call("forecast", "--deadline", "2026-12-04T18:00", *start, *world, "--report", "friday.html")
    assert done.status == 0, done
    assert_matches("deadline +Fri 2026-12-04 18:00 UTC\n", done.out)
    assert "By Fri 2026-12-04 18:00 UTC: " in (here / "friday.html").read_text()
    found = call("forecast", "--deadline", "30s", *start, *world, "--json").json
    assert (found["start"], found["deadline_s"]) == ("2026-12-04T17:59:40Z", 30.0)


def test_a_weekday_is_a_deadline(call, here):
    """The next one after the start, at 18:00 unless said; the table and the page name the date."""
    world = ("-ndmap", log(here), "-bdfn", tasks(here), "--solver", "dp", "--stretches", 2, "--workers", 1)
    start = ("--start", "2026-12-04T17:59:40", "--horizon", 30)
    done = call("forecast", "--deadline", "Friday", *start, *world, "--report", "friday.html")
    assert done.status == 0, done
    assert_matches("deadline +Fri 2026-12-04 18:00 UTC\n", done.out)
    assert "By Fri 2026-12-04 18:00 UTC: " in (here / "friday.html").read_text()
    found = call("forecast", "--deadline", "friday 18:00:10", *start, *world, "--json").json
    assert (found["start"], found["deadline_s"]) == ("2026-12-04T17:59:40Z", 30.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sweep", "absent.toml"), "absent.toml: "),
        (("sweep", "tfwd.toml", "--report", "p.html", "--metric", "luck"), "Expected a metric to improve, got 'luck'"),
        (("sweep", "tfwd.toml", "--report", "no/p.html"), "No such directory: no"),
        (("sweep", "tfwd.toml", "--open"), "no effect: --open (there is no --report)"),
        (("sweep", "tfwd.toml", "--engine", "dask"), "either --scheduler or --dask-jobqueue"),
        (
            ("sweep", "tfwd.toml", "--engine", "local", "--scheduler", "tcp://x:1"),
            "no effect: --scheduler (of the engine dask alone)",
        ),
        (("advise", "--metric", "efficiencies"), "got 'efficiencies'. Did you mean 'efficiency"),
        (("advise", "--metric", "foo"), "got 'foo'. `bftrainer plot --list` names all."),
        (("forecast", "--deadline", "soon"), "36h or 5d, or a weekday, got 'soon'"),
        (("forecast", "--deadline", "5d", "--solver", "dp"), "Expected a log longer than"),
        (("forecast", "--deadline", "1h", "--start", "12"), "Expected an ISO time, got '12'"),
        (("forecast", "--deadline", "2020-01-01", "--solver", "dp"), "Expected a deadline after the start"),
        (("forecast", "--deadline", "9999-01-01", "--solver", "dp"), "Expected a time between the years 1678 and 2262"),
        (("forecast", "--deadline", "1h", "--start", "9999-01-01"), "Expected a time between the years 1678 and 2262"),
        (("forecast", "--deadline", "1h", "--stretches", "1000000000"), "and at most 100,000, got 1000000000"),
        (("advise", "--metric", "happiness"), "Expected a metric to improve, got 'happiness'"),
        (("advise", "--trials", "1"), "Expected at least 2 trials"),
    ],
)
def test_bad_input(call, here, words, said):
    """One line says what was expected; nothing is written."""
    before = sorted(here.iterdir())
    done = call(*words)
    check_refusal(done)
    assert said in done.err
    assert sorted(here.iterdir()) == before
