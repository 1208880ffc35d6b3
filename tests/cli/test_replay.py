"""`bftrainer replay`: what it prints, where it writes, and what its options mean."""

import errno
import io
import json
import pkgutil
import signal
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bftrainer.cli.replay import render_summary
from bftrainer.cli.replay import replay as replay_command
from bftrainer.files.directories import JOURNAL, MANIFEST, result_directory, written_files
from tests.cli.conftest import Call, check_refusal
from tests.tiny import RESULTS, spawn

SMALL_FILES = ("-ndmap", "evt.pkl", "-bdfn", "Jbnd.pkl", "-scfn", "JNPs.pkl", "--solver", "dp")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def settings(replay: Call, *words: object, **options: object) -> dict:
    """The settings that a run records, and what decided it besides."""
    done = replay("--json", "--force", "--no-baseline", *words, **options)
    assert done.status == 0, done.err
    return done.json["settings"]


# --- where results go --------------------------------------------------------------------------------------------


def test_results_take_the_next_free_directory(call, replay, here, monkeypatch):
    """Earlier results stand unless --force replaces them; without inputs the sample is replayed.

    Where a name was given, a line says where results go.
    """
    before = names(here)
    sample = ("replay", "--max-events", 5, "--solver", "dp")
    for place in ("sample-1-itrOut", "sample-2-itrOut", "debug-itrOut", "debug-2-itrOut"):
        done = call(*sample) if place.startswith("sample") else replay("--no-baseline")
        assert (done.status, done.out.splitlines()[-1]) == (0, f"Results: {place}")
        assert names(here / place) == RESULTS
        assert names(here) == (before := before | {place})
    with monkeypatch.context() as patch:  # a terminal is told how to make a page of the run
        patch.setattr(sys.stdout, "isatty", lambda: True)
        told = "Results: debug-itrOut\nPage: bftrainer report debug-itrOut makes one.\n"
        assert replay("--no-baseline", "--force").out.endswith(told)
    named = "--no-baseline", "-name", "mine"
    assert [replay(*named).err for _ in range(2)] == ["", "Note: mine-itrOut exists; results go to mine-2-itrOut.\n"]
    # A place to which another run writes is taken too, although nothing is there yet.
    with result_directory(here / "new-itrOut"):
        assert (replay("--no-baseline", "-name", "new").status, names(here) & {"new-2-itrOut"}) == (0, {"new-2-itrOut"})


# --- what is printed ---------------------------------------------------------------------------------------------


def test_json_is_all_there_is_on_stdout(replay, here):
    """With --json, standard output is the summary, and only that."""
    done = replay("--json")
    written = json.loads((here / "debug-itrOut" / "summary.json").read_text())
    assert done.json == written | {"output_dir": "debug-itrOut"}
    assert done.err == ""


def test_print_false_goes_to_the_log(replay, here):
    """With -print false, what would be printed is in iter-prints.log, and standard output stays empty."""
    printed = replay("--no-baseline").out
    done = replay("--no-baseline", "-print", "false", "-name", "quiet")
    assert (done.status, done.out, done.err) == (0, "", "")
    assert names(here / "quiet-itrOut") == RESULTS | {"iter-prints.log"}
    logged = (here / "quiet-itrOut" / "iter-prints.log").read_text()

    def steady(text: str) -> list[str]:
        return [line for line in text.splitlines() if not line.startswith(("decision time", "wall time", "Results"))]

    assert steady(logged) == steady(printed)
    assert logged.endswith("Results: quiet-itrOut\n")


def test_scalability_that_is_not_given(replay, here):
    """The sibling file is taken, else linear scaling assumed; either is said on stderr, and JSON stays clean."""
    sibling = replay("--json", without=("-scfn",))
    assert sibling.err == "Note: Jbnd.pkl: scalability taken from JNPs.pkl.\n"
    assert sibling.json["inputs"]["scalability"]["path"] == "JNPs.pkl"
    assert sibling.json["settings"]["scaling"] is None
    (here / "JNPs.pkl").unlink()
    alone = replay("--json", "--force", without=("-scfn",))
    assert alone.err.startswith("Note: Jbnd.pkl: ")
    assert alone.err.count("\n") == 1
    assert alone.json["settings"]["scaling"] == "linear"
    assert alone.json["work_done"] == sibling.json["work_done"]  # the files' curve is linear too


def test_pointless_runs_say_so(call):
    """Where no start can pay within the forward time, or no task comes before the log ends, a note says why."""
    costly = call("replay", "--solver", "dp", "--startup-cost", "full", "--max-events", "5", "--no-baseline")
    assert "Note: no start pays within the forward time of 10 s: no task will ever run.\n" in costly.err
    paying = call("replay", "--solver", "dp", "--startup-cost", "full", "-Tfwd", "60", "--dry-run")
    assert paying.err == ""
    call("tasks", "generate", "--scenario", "hpo", "--count", "1", "--start", "2030-01-01", "-o", "late.toml")
    late = call("replay", "--tasks", "late.toml", "--dry-run")
    assert late.err == "Note: no task is submitted before the window ends.\n"


def test_the_table_fits_the_terminal(replay, monkeypatch):
    """On a terminal no line is wider than it; elsewhere a figure is a line; neither has escape sequences."""
    done = replay()
    summary = replay("--json", "--force").json
    monkeypatch.setenv("COLUMNS", "50")
    narrow = io.StringIO()
    monkeypatch.setattr(narrow, "isatty", lambda: True)
    render_summary(summary, narrow)
    assert max(map(len, narrow.getvalue().splitlines())) <= 50
    assert narrow.getvalue().split() != []
    assert "\x1b" not in narrow.getvalue() + done.out
    wide = io.StringIO()
    render_summary(summary, wide)
    assert wide.getvalue().split() == narrow.getvalue().split()
    assert done.out.splitlines()[1] == "events                 4 in 40.0 s"


# --- what options mean -------------------------------------------------------------------------------------------


def test_published_names_and_defaults(replay):
    """A published option and its GNU name are two names of one option; what is not given is as published."""
    names = {flag: set(option.opts) for option in replay_command.params for flag in option.opts}
    ours = ("--first-node", "--node-count", "--forward-time", "--time-limit", "--max-tasks")
    published = ("-nis", "-nN", "-Tfwd", "-optTL", "-maxJ")
    assert [two for two in zip(published, ours, strict=True) if not {*two} <= names[two[0]]] == []
    expected = {"first_node": 0, "node_count": None, "forward_time_s": 10.0, "time_limit_s": 10.0, "max_tasks": 10}
    expected |= {"solver": "cbc", "skip_events": 0, "initial": "solve", "decide_on": "all", "startup_cost": "none"}
    assert settings(replay, solver=None).items() >= (expected | {"mip_gap": 1e-9}).items()
    defaults = {option.name: option.default for option in replay_command.params}
    assert (defaults["name"], defaults["print_"]) == ("debug", True)


def test_mip_false_is_the_published_heuristic(replay, here):
    """-mip false decides as --solver equal-share does; -mip true is the default."""
    replay("-mip", "no", "-name", "a", solver=None)
    replay("-name", "b", solver="equal-share")
    tables = [
        pq.read_table(here / f"{name}-itrOut" / "decisions.parquet").drop(["solve_s", "backend_s"]) for name in "ab"
    ]
    assert tables[0].equals(tables[1])
    assert set(tables[0]["solver"].to_pylist()) == {"equal-share"}
    assert settings(replay, "-mip", "yes", solver=None)["solver"] == "cbc"
    assert settings(replay, "--strict-published", solver=None)["solver"] == "equal-share"


@pytest.mark.long
def test_fallback_is_recorded(replay, here):
    """Who answered is recorded decision by decision, and said in the table, when it is not who was asked."""
    (here / "bounded_goal.py").write_text(
        "class Goal:\n"
        "    def __call__(self, task, counts, now_s):\n        return task.spec.credits[counts]\n"
        "    def constraints(self, problem, tasks):\n"
        "        import numpy, solvers\n"
        "        return [solvers.LinearRow(numpy.ones(len(problem.tasks)), upper=3)]\n"
        "goal = Goal()\n"
    )
    check_refusal(replay("--objective", "bounded_goal:goal"), "dp: takes no extra rows")
    done = replay("--objective", "bounded_goal:goal", "--fallback", "highs")
    assert done.status == 0
    assert "max (highs)" in done.out
    summary = json.loads((here / "debug-itrOut" / "summary.json").read_text())
    assert summary["decisions_fallback"] == summary["decisions"] > 0
    failed = f"dp failed in {summary['decisions']} of {summary['decisions']} decisions"
    assert failed in done.out
    table = pq.read_table(here / "debug-itrOut" / "decisions.parquet")
    assert set(table["solver"].to_pylist()) == {"highs"}
    assert max(sum(after) for after in table["after"].to_pylist()) == 3


# --- interruption ------------------------------------------------------------------------------------------------

STOPPER = """
import os, signal
asked = 0
def credit(task, counts, now_s):
    global asked
    asked += 1
    for _ in range({presses} if asked == {call} else 0):
        os.kill(os.getpid(), signal.{signal})
    return task.spec.credits[counts]
"""


@pytest.mark.long
@pytest.mark.parametrize(("signal", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupted_run_is_partial_and_goes_on_from_anywhere(here, signal, status):
    """A signal while deciding finishes that decision and writes all files, marked partial.

    Resumed with an option, it is refused and leaves nothing; resumed in another directory, it finds its inputs where it
    was begun, and says so.
    """
    (here / "stopper.py").write_text(STOPPER.format(presses=1, call=3, signal=signal.name))
    done = spawn("bftrainer-replay", *SMALL_FILES, "--objective", "stopper:credit", cwd=here)
    assert done.status == status
    assert done.err == "Note: Interrupted; bftrainer replay --resume debug-itrOut goes on.\n"
    assert done.out.splitlines()[0].endswith("(partial: interrupted)")
    summary = json.loads((here / "debug-itrOut" / "summary.json").read_text())
    told = ("partial", "end_reason", "events", "window_s", "efficiency", "work_done")
    assert [summary[key] for key in told] == [True, "interrupted", 2, 25.0, None, 20.0 + 15 * 4.0]
    # Another size, or Python may take what it compiled in the same second.
    (here / "stopper.py").write_text(STOPPER.format(presses=0, call=3_000, signal=signal.name))
    refused = spawn("bftrainer", "replay", "--resume", "debug-itrOut", "--solver", "cbc", cwd=here)
    assert (refused.status, "--solver (--resume goes on" in refused.err) == (2, True), refused
    assert names(here / "debug-itrOut") == RESULTS | {JOURNAL}
    (here / "other").mkdir()
    done = spawn("bftrainer", "replay", "--resume", "../debug-itrOut", "--open", cwd=here / "other")
    assert done.status == 0, done
    assert f"Inputs are those of {here}, where the run was begun." in done.err
    assert json.loads((here / "debug-itrOut" / "summary.json").read_text())["end_reason"] == "window_end"
    assert names(here / "other") == set()


@pytest.mark.parametrize(
    ("step", "error", "status", "said"),
    [
        ("bftrainer.runs.run.replay", KeyboardInterrupt(), 130, "Interrupted."),
        ("bftrainer.runs.write_run", OSError(errno.ENOSPC, "No space left"), 1, "No space left"),
        ("bftrainer.files.directories.list_written", OSError(errno.ENOSPC, "No space left"), 1, "No space left"),
    ],
)
def test_a_run_is_resumed(call, here, monkeypatch, step, error, status, said):
    """Killed when all is decided, or without room for results, it is resumed with its own options alone, and once."""
    before, begun = names(here), ("replay", "--solver", "dp", "--max-events", 20, "--no-baseline", "-o", "r[1]")
    real = pkgutil.resolve_name(step)

    def fail(*given, **options):
        real(*given, **options)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(step, fail)
        done = call(*begun, "-Tfwd", 20, "--checkpoint-every", "0.000001s")
    assert (done.status, said in done.err, names(here) - before) == (status, True, {".r[1].new"})
    check_refusal(call(*begun), "r[1]: An unfinished run is there; --resume continues it, --force starts anew.")
    for other in (("--solver", "cbc"), ("--json",)):
        check_refusal(call("replay", "--resume", "r[1]", *other), f"{other[0]} (--resume goes on as the run was begun)")
    done = call("replay", "--resume", "r[1]")
    assert (done.status, "r[1]: Resumed after 20 decisions." in done.err) == (0, True)
    assert names(here) - before == {"r[1]"}
    assert names(here / "r[1]") == written_files(here / "r[1]") | {MANIFEST}
    summary = json.loads((here / "r[1]" / "summary.json").read_text())
    assert (summary["events"], summary["settings"]["forward_time_s"]) == (20, 20.0)
    over = "a finished run, or one without its decisions (--checkpoint-every 0)"
    check_refusal(call("replay", "--resume", "r[1]"), f"Expected an unfinished run to resume, found {over}.")
    check_refusal(call("replay", "--resume", "absent"), "found no run")


def test_a_failing_objective_keeps_what_was_done(call, replay, here, monkeypatch):
    """What was done is marked, and one line names the objective and its place; status 1.

    It passes the audit, and goes on when the objective is mended.
    """
    text = "def credit(task, counts, now_s):\n    1 / (now_s < {})\n    return task.spec.credits[counts]\n"
    (here / "failing.py").write_text(text.format(10))
    done = replay("--objective", "failing:credit", "--no-baseline")
    assert (done.status, done.out.splitlines()[0].endswith("(partial: failed)")) == (1, True)
    assert done.err.splitlines() == [
        "Note: Not finished; bftrainer replay --resume debug-itrOut goes on.",
        "Error: objective credit, task J0: raised ZeroDivisionError: division by zero (failing.py, line 2).",
    ]
    assert names(here / "debug-itrOut") == RESULTS | {JOURNAL}
    (here / "failing.py").write_text(text.format(1_000_000))
    monkeypatch.delitem(sys.modules, "failing")
    assert call("audit", "debug-itrOut").status == 0
    done = call("replay", "--resume", "debug-itrOut")
    assert (done.status, done.err) == (0, "Note: debug-itrOut: Resumed after 1 decisions.\n")


def test_a_run_of_tuned_tasks(call, here):
    """Series and traces are inputs too, with checksums; where work does not add up a note says why there is no U."""
    (here / "cap.csv").write_text("time,power_w\n0,900000\n")
    words = ("replay", "--sample", "tuned", "--solver", "dp", "--max-events", 20)
    summary = call(*words, "--power-cap", "cap.csv", "--carbon", 300, "--json", "--no-baseline").json
    assert {Path(each["path"]).suffix for each in summary["inputs"]["traces"]} == {".csv"}
    assert (summary["inputs"]["power_cap"]["path"], len(summary["inputs"]["power_cap"]["sha256"])) == ("cap.csv", 64)
    assert "carbon" not in summary["inputs"]
    assert (summary["settings"]["power_cap"], summary["settings"]["carbon"]) == ("cap.csv", 300.0)
    done = call(*words)
    assert "Note: no efficiency: tuned tasks count work in epochs over different datasets" in done.err
    assert "efficiency" not in done.out
