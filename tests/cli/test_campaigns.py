"""`bftrainer sweep`, `forecast` and `advise`: what they print and write, and what they refuse."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import assert_matches, check_refusal

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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sweep", "absent.toml"), "absent.toml: "),
        (("sweep", "tfwd.toml", "--engine", "dask"), "either --scheduler or --dask-jobqueue"),
        (
            ("sweep", "tfwd.toml", "--engine", "local", "--scheduler", "tcp://x:1"),
            "no effect: --scheduler (of the engine dask alone)",
        ),
        (
            ("sweep", "tfwd.toml", "--scheduler", "tcp://x:1", "--workers", 2),
            "no effect: --workers (a Dask cluster has its own)",
        ),
        (("forecast", "--deadline", "soon"), "Expected an ISO time or seconds, got 'soon'"),
        (("forecast", "--deadline", "5d", "--solver", "dp"), "Expected a log longer than"),
        (("forecast", "--deadline", "1h", "--start", "12"), "Expected an ISO time, got '12'"),
        (("forecast", "--deadline", "2020-01-01", "--solver", "dp"), "Expected a deadline after the start"),
        (("forecast", "--deadline", "9999-01-01", "--solver", "dp"), "Expected a time between the years 1678 and 2262"),
        (("forecast", "--deadline", "1h", "--start", "9999-01-01"), "Expected a time between the years 1678 and 2262"),
        (("forecast", "--deadline", "1e300", "--generated", "--solver", "dp"), "horizon of at most 36525 days"),
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
