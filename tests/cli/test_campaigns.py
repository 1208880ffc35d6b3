"""`bftrainer sweep`, `forecast` and `advise`: what they print and write, and what they refuse."""

import re
import webbrowser
from pathlib import Path

import pytest

from bftrainer.campaigns import sweep as sweeping
from tests.cli.conftest import assert_matches, check_refusal
from tests.tiny import SWEEP, contents

WORLD = ("-ndmap", "evt.pkl", "-bdfn", "Jbnd.pkl", "--solver", "dp")


@pytest.fixture
def here(here):
    """The small world, and a sweep over it."""
    (here / "tfwd.toml").write_text(SWEEP.replace("tasks.toml", "Jbnd.pkl"))
    return here


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
    for name in ("evt.pkl", "tfwd.toml", "tfwd-sweep/sweep.parquet"):  # neither inputs nor the table are pages
        for how in ("--force", "--resume"):
            check_refusal(call("sweep", "tfwd.toml", "--workers", 1, how, "--report", name), Path(name).name)
    assert call("sweep", "tfwd.toml", "--resume", "--workers", 1).out == done.out
    assert (here / "tfwd-sweep" / "sweep.parquet").read_bytes() == before
    assert call("plot", "setting", *(here / "tfwd-sweep" / "runs").iterdir(), "-o", "tfwd.svg").status == 0
    refused = call("report", "tfwd-sweep", "-o", "tfwd.html")
    check_refusal(refused, "got a sweep's", "tfwd-sweep/runs/* are its runs")
    assert call("report", *(here / "tfwd-sweep" / "runs").iterdir(), "-o", "tfwd.html").status == 0
    assert "training on idle nodes" in (here / "tfwd.html").read_text()


def test_paired_changes_are_on_terminal_page_and_in_json(call, here, monkeypatch):
    """The same row and the same note, if the change has another sign where another option has another value."""
    monkeypatch.setattr("bftrainer.campaigns.sweep.opposite_means", lambda _: {"a": 0.1, "b": -0.2})
    with (here / "tfwd.toml").open("a") as file:
        file.write('objective = ["throughput"]\n')
    pair = ("--workers", 1, "--paired", "forward_time_s", "--report", "tfwd.html")
    done = call("sweep", "tfwd.toml", *pair)
    heading, row, note = done.out.splitlines()[3:6]
    assert heading.split()[:3] == ["value", "against", "figure"]
    cells = re.split("  +", row)
    assert cells[:3] == ["20", "5", "work done"]
    expected = "20: work done: pooled over objective, where the change differs in sign: a +10.00 %, b -20.00 %."
    assert note == expected
    page = (here / "tfwd.html").read_text()
    assert "Changes by forward_time_s, pair by pair" in page
    assert re.findall("<td[^>]*>([^<]*)", page.partition('<h2 id="section2')[2])[: len(cells)] == cells
    assert f"<p>{expected}</p>" in page
    (change,) = call("sweep", "tfwd.toml", "--resume", *pair, "--json").json["paired"]
    assert change["opposite"] == {"objective": {"a": 0.1, "b": -0.2}}


def test_a_failing_point_is_reported(call, here):
    """On stderr, by its number; the exit status is 1, and the table has the others."""
    with (here / "tfwd.toml").open("a") as file:
        file.write('[[point]]\nobjective = "energy"\n')
    done = call("sweep", "tfwd.toml", "--workers", 1, "--json")
    assert done.status == 1
    assert done.err.startswith("Point 2 failed: objective energy")
    assert [bool(row["error"]) for row in done.json] == [False, False, True]
    assert done.json[0]["options"] == {"forward_time_s": 5, "objective": None}


def test_an_interrupted_sweep_says_how_to_go_on(call, monkeypatch):
    """What is done stays, and the same command with --resume does the rest."""
    run, calls = sweeping.run_replay, []

    def interrupt(**given):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run(**given)

    monkeypatch.setattr(sweeping, "run_replay", interrupt)
    words = ("sweep", "tfwd.toml", "-o", "out", "--workers", 1)
    done = call(*words)
    said = ["Finished points are kept; --resume continues in out.", "Interrupted."]
    assert (done.status, [line for line in done.err.splitlines() if line]) == (130, said)
    assert (call(*words, "--resume").status, len(calls)) == (0, 3)


def test_forecast(call):
    """Words, or JSON; the tasks of the small world are never done within 20 s."""
    world = (*WORLD, "--stretches", 4, "--workers", 1)
    done = call("forecast", "--deadline", "20s", "--horizon", 30, *world)
    assert done.status == 0
    assert_matches(r"all done by then +0 % \(0 to 49 %\)", done.out)
    assert "more than 30 s" in done.out
    assert_matches("with +as-given, -Tfwd 10, -maxJ 10, start-up none", done.out)
    assert "stretches overlap" in done.err
    assert "4 stretches are too few for the 80 %" in done.err
    found = call("forecast", "--deadline", "20s", "--horizon", 30, *world, "--json").json
    assert (found["probability"], found["stretches"], found["interval80_s"]) == (0.0, 4, [None, None])
    dated = call("forecast", "--deadline", "2021-02-10T00:00:55", "--horizon", 30, *world, "--json").json
    assert dated["deadline_s"] == 15.0  # the log ends 40 s after midnight


@pytest.mark.long
def test_settings_of_a_run_or_a_file(call, here):
    """`--like` takes all settings from a run's directory or a file; options given beside it replace them."""
    (here / "own.toml").write_text((here / "tfwd.toml").read_text().partition("[grid]")[0])
    assert call("replay", *WORLD, "-Tfwd", 5, "--startup-cost", "full", "-o", "run").status == 0
    plain = call("bound", *WORLD, "-Tfwd", 5, "--json").json
    by_file, by_run = (call("bound", "--like", like, "-Tfwd", 5, "--json").json for like in ("own.toml", "run"))
    assert by_file == plain
    assert by_run == call("bound", "--like", "run", "--json").json != plain
    task = 'name = "other"\nmin_nodes = 1\nmax_nodes = 2\nwork = 50.0\n'
    curve = "scaling = {nodes = [0, 1, 2], throughput = [0.0, 1.0, 1.5]}\n"
    (here / "other.toml").write_text(f"schema = 1\n[[task]]\n{task}{curve}")
    assert call("bound", "--like", "run", "-bdfn", "other.toml", "--json").status == 0
    check_refusal(call("bound", "--like", "tfwd.toml"), "Expected settings of one run in [base], got a sweep over")
    check_refusal(call("bound", "--like", "nowhere"))
    summary = (here / "run" / "summary.json").read_text()
    (here / "run" / "summary.json").write_text(summary.replace('"objective": "as-given"', '"objective": "theirs:code"'))
    check_refusal(call("bound", "--like", "run"), "its objective is code, theirs:code, which is not run unasked")
    (here / "run" / "summary.json").write_text("{}")
    check_refusal(call("bound", "--like", "run"))


def test_pages(call, here, monkeypatch):
    """Each command makes one, tells where it is, and replaces it on demand alone; --json prints what it did before.

    --open shows it, also where --json is printed, and says so where no browser is.
    """
    opened = []
    commands = {
        "sweep.html": ("sweep", "tfwd.toml", "--workers", 1, "--metric", "work_done", "--metric", "rescales"),
        "forecast.html": ("forecast", "--deadline", "20s", "--horizon", 30, *WORLD, "--stretches", 3, "--workers", 1),
        "advice.html": ("advise", *WORLD, "--metric", "work_done", "--trials", 3),
    }
    for name, words in commands.items():
        done = call(*words, "--report", name)
        assert (done.status, done.out.splitlines()[-1]) == (0, f"Page: {name}"), done
        text = (here / name).read_text()
        check_refusal(call(*words, "--report", name))
        for has_browser in (True, False):
            monkeypatch.setattr(webbrowser, "open", lambda address, has=has_browser: opened.append(address) or has)
            done = call(*words, "--report", name, "--force", "--json", "--open")
            assert done.json is not None
            assert (f"Note: No browser is here to open {name}.\n" in done.err) == (not has_browser)
        assert opened[-2:] == [(here / name).as_uri()] * 2
        assert (here / name).read_text().partition("How it was made")[0] == text.partition("How it was made")[0]
    assert len(opened) == 6


def test_a_weekday_is_a_deadline(call, here):
    """The next one after the start, at 18:00 unless said; the table and the page name the date."""
    world = (*WORLD, "--stretches", 2, "--workers", 1)
    start = ("--start", "2026-12-04T17:59:40", "--horizon", 30)
    done = call("forecast", "--deadline", "Friday", *start, *world, "--report", "friday.html")
    assert done.status == 0, done
    assert_matches("deadline +Fri 2026-12-04 18:00 UTC\n", done.out)
    assert "By Fri 2026-12-04 18:00 UTC: " in (here / "friday.html").read_text()
    found = call("forecast", "--deadline", "friday 18:00:10", *start, *world, "--json").json
    assert (found["start"], found["deadline_s"]) == ("2026-12-04T17:59:40Z", 30.0)


def test_options_of_sweeps_that_have_no_effect(call, here):
    """They are refused in the file as on the command line, with their line, before anything is written."""
    base = SWEEP.partition("solver")[0]
    for text, said in (
        ("[grid]\nseed = [1, 2]\n", "line 6: Options that have no effect: seed (nothing is drawn without --initial"),
        ("power_options = 'all'\n", "line 5: Options that have no effect: power_options (no task is tuned)"),
    ):
        (here / "sweep.toml").write_text(base + text)
        before = contents(here)
        check_refusal(call("sweep", "sweep.toml"), f"sweep.toml: {said}")
        assert contents(here) == before
    some = '[grid]\nsolver = ["highs", "dp"]\n[[point]]\ninitial = "random"\nseed = 3\nsolver = "dp"\n'
    (here / "sweep.toml").write_text(base + some)  # has an effect on one point
    assert call("sweep", "sweep.toml", "--workers", 1).status == 0
