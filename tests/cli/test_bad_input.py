"""Bad input ends in one line on stderr that says where, what was expected and what came; status 2; nothing written."""

from __future__ import annotations

import os
import pickle
import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.cli.conftest import Call
from tests.tiny import (
    RESULTS,
    TASKS_TOML,
    Done,
    bounds_frame,
    contents,
    log_frame,
    scaling_frame,
    spawn,
)


@pytest.fixture
def refused(replay: Call, here: Path) -> Callable[..., str]:
    """Run a replay that must be refused; give what it said."""

    def run(*words: object, **options: Any) -> str:
        before = contents(here)
        done = replay(*words, **options)
        check_refusal(done)
        assert contents(here) == before, "something was written"
        return done.err

    return run


def check_refusal(done: Done) -> None:
    """One line on stderr and status 2."""
    assert done.status == 2, done
    assert done.out == ""
    assert done.err.startswith("Error: ")
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err


# --- files that are not what they should be ----------------------------------------------------------------------


def test_missing_file(refused):
    """A file that is not there is named."""
    for option in ("-ndmap", "-bdfn", "-scfn"):
        assert refused(option, "absent.pkl") == "Error: absent.pkl: No such file.\n"


def test_directory_for_a_file(refused, here):
    """So is a directory in its place."""
    (here / "folder").mkdir()
    assert refused("-ndmap", "folder") == "Error: folder: Expected a file, got a directory.\n"


@pytest.mark.parametrize("name", ["empty.pkl", "empty.parquet", "empty.csv", "empty.toml", "empty"])
def test_empty_file(refused, here, name):
    """An empty file is said to be empty, whatever its name promises."""
    (here / name).touch()
    for option in ("-ndmap", "-bdfn"):
        assert f"{name}: Expected data, got an empty file." in refused(option, name)


@pytest.mark.parametrize("name", ["junk.pkl", "junk.parquet", "junk.csv", "junk.toml", "junk.tar.gz", "junk"])
def test_not_what_its_name_says(refused, here, name):
    """Noise is refused by its name in every form."""
    (here / name).write_bytes(b"\x00\x01 no data at all\n\xff")
    for option in ("-ndmap", "-bdfn"):
        assert f"{name}" in refused(option, name)


def test_truncated_pickle(refused, here):
    """A pickle that was cut off is refused by its name."""
    for option, name in (("-ndmap", "evt.pkl"), ("-bdfn", "Jbnd.pkl"), ("-scfn", "JNPs.pkl")):
        (here / "cut.pkl").write_bytes((here / name).read_bytes()[:-200])
        assert "cut.pkl" in refused(option, "cut.pkl")


def test_pickle_of_something_else(refused, here):
    """A harmless pickle that holds no frame is refused by its name."""
    (here / "list.pkl").write_bytes(pickle.dumps([1, 2, 3]))
    for option in ("-ndmap", "-bdfn", "-scfn"):
        assert "list.pkl: Expected" in refused(option, "list.pkl")


def test_inputs_that_changed_places(refused):
    """Bounds given as the log, and the log given as bounds, are refused by their names."""
    assert "Jbnd.pkl: Expected" in refused("-ndmap", "Jbnd.pkl")
    assert "evt.pkl: Expected columns Tcup" in refused("-bdfn", "evt.pkl")
    assert "Jbnd.pkl: Expected columns Ns" in refused("-scfn", "Jbnd.pkl")


# --- hostile pickles ---------------------------------------------------------------------------------------------


class Hostile:
    """Executes a command when it is unpickled by an ordinary reader."""

    def __reduce__(self):
        return os.system, ("touch pwned",)


def nested() -> pd.DataFrame:
    """A frame that is what it should be, but for one cell."""
    frame = bounds_frame()
    frame["Tcup"] = pd.Series([1.0, Hostile()], index=frame.index, dtype=object)
    return frame


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("payload", [Hostile, lambda: {"a": [(Hostile(),)]}, nested], ids=["bare", "nested", "cell"])
def test_hostile_pickle(refused, here, payload, protocol):
    """A pickle that asks for os.system is refused by that name and not executed, in each protocol and at any depth."""
    (here / "hostile.pkl").write_bytes(pickle.dumps(payload(), protocol))
    for option in ("-ndmap", "-bdfn", "-scfn"):
        assert refused(option, "hostile.pkl").startswith("Error: hostile.pkl: refused to load posix.system ")
    assert not (here / "pwned").exists()


def test_hostile_pickle_end_to_end(here):
    """The same through the installed command."""
    (here / "hostile.pkl").write_bytes(pickle.dumps(Hostile(), 4))
    before = contents(here)
    done = spawn("bftrainer-replay", "-ndmap", "hostile.pkl", "-bdfn", "Jbnd.pkl", cwd=here)
    check_refusal(done)
    assert contents(here) == before


# --- node logs ---------------------------------------------------------------------------------------------------


def at(frame: pd.DataFrame, row: int, column: str, value: object, dtype: str = "float64") -> pd.DataFrame:
    """The frame with one cell changed, and all of them of another type."""
    changed = frame.astype(dtype)
    changed.loc[changed.index[row], column] = value
    return changed


def times(frame: pd.DataFrame, *rows: int) -> pd.DataFrame:
    """The frame with its index in another order."""
    return frame.set_axis(frame.index[list(rows)], axis=0)


NODE_LOGS = {
    "duplicate times": (lambda f: times(f, 0, 1, 1, 3, 4), "unique times, got 2021-02-10T00:00:10.*row 3"),
    "unsorted times": (lambda f: times(f, 0, 2, 1, 3, 4), "times to ascend, got 2021-02-10T00:00:10.*row 3"),
    "duplicate nodes": (lambda f: f.set_axis(pd.Index(list("abbd")), axis=1), "unique node names, got 'b' twice"),
    "NaN": (lambda f: at(f, 1, "c", np.nan), "0 or 1, got nan .*row 2.*node c"),
    "two": (lambda f: at(f, 1, "c", 2, "int8"), "0 or 1, got 2 .*row 2.*node c"),
    "half": (lambda f: at(f, 4, "a", 0.5), r"0 or 1, got 0\.5 .*row 5.*node a"),
    "minus one": (lambda f: at(f, 0, "d", -1, "int8"), "0 or 1, got -1 .*row 1.*node d"),
    "text": (lambda f: at(f, 0, "d", "x", "object"), "0 or 1, got .*row 1.*node d"),
    "no rows": (lambda f: f.iloc[:0], "rows of node states, got an empty frame"),
    "no nodes": (lambda f: f.iloc[:, :0], "rows of node states, got an empty frame"),
    "no times": (lambda f: f.reset_index(drop=True), "an index of datetimes"),
    "NaT": (lambda f: f.set_axis([*f.index[:4], pd.NaT], axis=0), r"datetimes, got NaT \(row 5\)"),
}


@pytest.mark.parametrize(("change", "said"), NODE_LOGS.values(), ids=NODE_LOGS.keys())
def test_node_log(refused, here, change, said):
    """A fault in a node log is told with file, row and node."""
    change(log_frame()).to_pickle(here / "bad.pkl")
    error = refused("-ndmap", "bad.pkl")
    assert error.startswith("Error: bad.pkl: Expected ")
    assert_matches(said, error)


CSV_LOGS = {
    "value": ("2021-02-10T00:00:00Z,a,2", "bad.csv:2: Expected idle to be 0 or 1, got '2'"),
    "empty value": ("2021-02-10T00:00:00Z,a,", "bad.csv:2: Expected idle to be 0 or 1, got ''"),
    "time": ("yesterday,a,1", "bad.csv:2: Expected time to be an ISO date and time, got 'yesterday'"),
    "unsorted": ("2021-02-10T00:01:00Z,a,1\n2021-02-10T00:00:00Z,b,1", "bad.csv:3: Expected times to ascend"),
    "same twice": ("2021-02-10T00:00:00Z,a,1\n2021-02-10T00:00:00Z,a,1", "bad.csv:3: "),
    "short row": ("2021-02-10T00:00:00Z,a", "bad.csv:2: Expected 3 values, got 2"),
}


@pytest.mark.parametrize(("rows", "said"), CSV_LOGS.values(), ids=CSV_LOGS.keys())
def test_csv_node_log(refused, here, rows, said):
    """A fault in a CSV node log is told with file and line."""
    (here / "bad.csv").write_text(f"time,node,idle\n{rows}\n")
    assert said in refused("-ndmap", "bad.csv")


# --- tasks as published ------------------------------------------------------------------------------------------


def put(column: str, value: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Set the second task's value."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        values = list(frame[column])
        values[1] = value
        return frame.assign(**{column: pd.Series(values, index=frame.index)})

    return change


BOUNDS = {
    "Jmin > Jmax": (put("Jmin", 5.0), "task J1.*min_nodes <= max_nodes, got 5 > 4"),
    "Jmin 0": (put("Jmin", 0.0), "task J1.*min_nodes >= 1, got 0"),
    "Jmin fractional": (put("Jmin", 1.5), r"task J1.*Jmin to be a whole number, got 1\.5"),
    "Jmax fractional": (put("Jmax", 3.5), r"task J1.*Jmax to be a whole number, got 3\.5"),
    "Jmax NaN": (put("Jmax", np.nan), "task J1.*Jmax to be a number, got nan"),
    "Jmax beyond the curve": (put("Jmax", 8.0), r"task J1.*scaling curve \(to 4\), got 8"),
    "Tcup negative": (put("Tcup", -1.0), r"task J1.*grow_cost_s >= 0, got -1\.0"),
    "Tcdw negative": (put("Tcdw", -0.5), r"task J1.*shrink_cost_s >= 0, got -0\.5"),
    "Tcup infinite": (put("Tcup", np.inf), "task J1.*grow_cost_s >= 0, got inf"),
    "Pmax 0": (put("Pmax", 0.0), r"task J1.*work > 0, got 0\.0"),
    "Pmax negative": (put("Pmax", -5.0), r"task J1.*work > 0, got -5\.0"),
    "Pmax NaN": (put("Pmax", np.nan), "task J1.*Pmax to be a number, got nan"),
    "Tsub NaT": (put("Tsub", pd.NaT), "task J1.*Tsub to be a date and time"),
    "no Pmax": (lambda f: f.drop(columns="Pmax"), "got none called Pmax"),
    "another index": (lambda f: f.set_axis(pd.Index(["J0", "J2"], dtype=object), axis=0), r"not in bad.pkl \(J1\)"),
    "one task less": (lambda f: f.iloc[:1], r"1 in JNPs.pkl but not in bad.pkl \(J1\)"),
    "no task": (lambda f: f.iloc[:0], r"2 in JNPs.pkl but not in bad.pkl \(J0, J1\)"),
}


@pytest.mark.parametrize(("change", "said"), BOUNDS.values(), ids=BOUNDS.keys())
def test_bounds(refused, here, change, said):
    """A fault in the bounds is told with file, task and field."""
    change(bounds_frame()).to_pickle(here / "bad.pkl")
    error = refused("-bdfn", "bad.pkl")
    assert "bad.pkl" in error
    assert_matches(said, error)


def test_bounds_alone(refused, here):
    """Bounds that need no scalability are checked for names that come twice, and for tasks at all."""
    twice = bounds_frame().set_axis(pd.Index(["J0", "J0"], dtype=object), axis=0)
    for frame, said in (
        (twice, "task J0: Expected unique task names"),
        (twice.iloc[:0], "at least one task, got none"),
    ):
        frame.to_pickle(here / "bad.pkl")
        error = refused("-bdfn", "bad.pkl", without=("-scfn",))
        assert error.startswith("Error: bad.pkl")
        assert said in error


SCALING = {
    "Ns not increasing": (put("Ns", [0, 2, 2, 4]), r"task J1.*increase strictly, got \[0, 2, 2, 4\]"),
    "Ns not from 0": (put("Ns", [1, 2, 3, 4]), "task J1.*start at 0, got 1"),
    "Ns empty": (put("Ns", []), "task J1.*at least two node counts"),
    "Ns fractional": (put("Ns", [0, 1.5, 2, 4]), r"task J1.*Ns to be a whole number, got 1\.5"),
    "Ns no list": (put("Ns", 4), "task J1.*Ns to be a list of numbers, got 4"),
    "Ps shorter": (put("Ps", [0.0, 1.0]), "task J1.*4 values of throughput, one per node count, got 2"),
    "Os longer": (put("Os", [0.0] * 5), "task J1.*4 values of credit, one per node count, got 5"),
    "Ps negative": (put("Ps", [0.0, 1.0, -2.0, 4.0]), r"task J1.*throughput to be finite and >= 0, got -2\.0"),
    "Ps not 0 on 0": (put("Ps", [1.0, 1.0, 2.0, 4.0]), r"task J1.*throughput 0 on 0 nodes, got 1\.0"),
    "Os NaN": (put("Os", [0.0, 1.0, np.nan, 4.0]), "task J1.*Os to be a number, got nan"),
    "short of Jmax": (put("Ns", [0, 1, 2, 3]), r"task J1.*max_nodes within the scaling curve \(to 3\), got 4"),
    "another index": (lambda f: f.set_axis(pd.Index(["J0", "K1"], dtype=object), axis=0), "K1"),
    "one task more": (lambda f: pd.concat([f, f.iloc[:1].set_axis(["J9"], axis=0)]), "J9"),
    "same name twice": (lambda f: pd.concat([f, f.iloc[:1]]), "task J0.*unique task names"),
}


@pytest.mark.parametrize(("change", "said"), SCALING.values(), ids=SCALING.keys())
def test_scalability(refused, here, change, said):
    """A fault in the scalability is told with file, task and field."""
    change(scaling_frame()).to_pickle(here / "bad.pkl")
    error = refused("-scfn", "bad.pkl")
    assert "Jbnd.pkl, task J1" in error if "within the scaling" in said else "bad.pkl" in error
    assert_matches(said, error)


# --- tasks as TOML -----------------------------------------------------------------------------------------------

TOML = {
    "no TOML": (("schema = 1", "schema = = 1"), "tasks.toml: Expected TOML"),
    "wrong schema": (("schema = 1", "schema = 2"), "Expected schema = 1, got 2"),
    "text for a number": (("max_nodes = 4", 'max_nodes = "4"'), "task J0: Expected max_nodes to be a whole number"),
    "fraction for a count": (("min_nodes = 1", "min_nodes = 1.5"), "task J0: Expected min_nodes to be a whole number"),
    "bool for a number": (("work = 50.0", "work = true"), "task J0: Expected work to be a number, got True"),
    "unknown key": (("grow_cost_s", "grow_cost"), "task J0: Unknown key 'grow_cost'. Did you mean 'grow_cost_s'?"),
    "unknown table": (("schema = 1", "schema = 1\ntsak = 2"), "Unknown key 'tsak'. Did you mean 'task'?"),
    "unknown scaling key": (("throughput", "thruput"), "Unknown key 'thruput' in scaling. Did you mean 'throughput'?"),
    "missing key": (("work = 50.0\n", ""), "task J0: Missing key 'work'"),
    "one name twice": (('"J1"', '"J0"'), "J0"),
    "bounds": (("min_nodes = 1", "min_nodes = 9"), "task J0: Expected min_nodes <= max_nodes, got 9 > 4"),
    "costs": (("grow_cost_s = 2.0", "grow_cost_s = -2.0"), "task J0: Expected grow_cost_s >= 0, got -2.0"),
    "work": (("work = 50.0", "work = 0.0"), "task J0: Expected work > 0, got 0.0"),
    "curve": (("nodes = [0, 1, 2, 4]", "nodes = [0, 2, 1, 4]"), "task J0: Expected node counts to increase strictly"),
    "infinite": (("work = 50.0", "work = inf"), "task J0: Expected work to be a finite number"),
}


@pytest.mark.parametrize(("change", "said"), TOML.values(), ids=TOML.keys())
def test_toml(refused, here, change, said):
    """A fault in a TOML task set is told with file, task and key, with a suggestion for an unknown one."""
    old, new = change
    (here / "tasks.toml").write_text(TASKS_TOML.replace(old, new, 1))
    error = refused("-bdfn", "tasks.toml", without=("-scfn",))
    assert error.startswith("Error: tasks.toml")
    assert said in error


# --- options -----------------------------------------------------------------------------------------------------

OPTIONS = {
    "-Tfwd 0": "forward_time_s > 0, got 0.0",
    "-Tfwd nan": "forward_time_s > 0, got nan",
    "-Tfwd inf": "forward_time_s > 0, got inf",
    "-Tfwd 1e308": "product is finite",
    "-Tfwd ten": "'ten' is not a valid float",
    "-maxJ 0": "max_tasks >= 1, got 0",
    "-maxJ 1.5": "'1.5' is not a valid integer",
    "-optTL 0": "time limit > 0 s, got 0.0",
    "-optTL -1": "time limit > 0 s, got -1.0",
    "-optTL inf": "finite time limit",
    "--mip-gap -1": "0 <= MIP gap < 1, got -1.0",
    "--mip-gap nan": "0 <= MIP gap < 1, got nan",
    "--mip-gap 1": "0 <= MIP gap < 1, got 1.0",
    "--threads 0": "threads >= 1, got 0",
    "--seed -1": "seed >= 0, got -1",
    "-nN 0": "node_count >= 1, got 0",
    "-nN 5": "the log's 4 nodes, got 5 nodes from 0",
    "-nis 3 -nN 2": "the log's 4 nodes, got 2 nodes from 3",
    "-nis 4": "the log's 4 nodes",
    "-nis -1": "first_node >= 0, got -1",
    "--skip-events 5": "evt.pkl: Expected to skip fewer rows than the log's 5, got 5",
    "--skip-events -1": "skip_events >= 0, got -1",
    "--until 0": "--until after the window's start",
    "--until 2021-02-09T00:00:00": "--until after the window's start",
    "--until nan": "--until after the window's start",
    "--until soon": "ISO time or seconds, got 'soon'",
    "--max-events 0": "max_events >= 1, got 0",
    "--large-idle 0": "large_idle >= 1, got 0",
    "--decide-on rows": "'rows' is not one of 'all', 'nodes'",
    "--initial some": "'some' is not one of",
    "--startup-cost half": "'half' is not one of",
    "-print perhaps": "'perhaps' is not a valid boolean",
    "-mip perhaps": "'perhaps' is not a valid boolean",
    "-mip true": "either -mip or --solver, got both",
    "-mip false": "either -mip or --solver, got both",
    "--strict-published": "--strict-published with --solver equal-share, got dp",
    "--scaling cubic": "scaling linear or amdahl:F, got 'cubic'",
    "--scaling amdahl:2": "F from 0 to 1",
    "--fallback cbcc": "Did you mean 'cbc'?",
    "--objective throughputs": "Did you mean 'throughput'?",
    "--objective nonsense": "Known: as-given, priority, scaling-efficiency, throughput.",
    "--objective absent:credit": "importable module, got ModuleNotFoundError",
    "--objective math:pi": "a callable, got float",
    "--objective math:sinn": "math to define 'sinn'. Did you mean 'sin'?",
    "--objective :x": "known objective or module:callable, got ':x'",
    "--objective .a:x": "known objective or module:callable, got '.a:x'",
    "--objective math:": "known objective or module:callable, got 'math:'",
    "--slover dp": "Did you mean '--solver'?",
    "surplus": "unexpected extra argument",
}


@pytest.mark.parametrize(("words", "said"), OPTIONS.items(), ids=OPTIONS.keys())
def test_option(refused, words, said):
    """An option out of range says what was expected; a misspelt one gets a suggestion."""
    assert said in refused(*words.split())


def test_unknown_solver(refused):
    """An unknown solver gets a suggestion, also where a fallback would stand in for a missing one."""
    assert "Unknown solver 'gorubi'. Did you mean 'gurobi'?" in refused("--solver", "gorubi", solver=None)
    assert "Unknown solver 'zzz'. Known: cbc, dp, " in refused("--solver", "zzz", solver=None)
    words = ("--solver", "zzz", "--fallback", "dp", "--output-dir", "deep/er")
    assert "Unknown solver 'zzz'." in refused(*words, solver=None)


def test_options_end_to_end(here):
    """The same through the installed commands."""
    before = contents(here)
    for program, *words in (("bftrainer-replay", "-maxJ", 0), ("bftrainer", "replay", "--solver", "nope")):
        check_refusal(spawn(program, *words, cwd=here))
    assert contents(here) == before


def test_unknown_command(call):
    """An unknown command is one line as well."""
    check_refusal(call("replya"))


# --- objectives --------------------------------------------------------------------------------------------------

OBJECTIVES = {
    "NaN": ("return counts * float('nan')", "objective credit, task J0: Expected finite credit, got nan for 0 nodes"),
    "infinite": ("return counts / 0.0", "Expected finite credit"),
    "late NaN": (
        "return counts * (float('nan') if now_s > 0 else 1.0)",
        "objective credit, task J0: Expected finite credit",
    ),
    "shape": ("return counts[1:]", r"Expected credit of shape \(5,\), got \(4,\)"),
    "scalar": ("return 1.0", r"Expected credit of shape \(5,\), got \(\)"),
    "nothing": ("return None", "Expected "),
    "text": ("return 'much'", "objective credit, task J0: Expected an answer, got ValueError"),
    "raises": ("return task.speed", "Expected an answer, got AttributeError"),
    "divides": ("1 / 0", "Expected an answer, got ZeroDivisionError: division by zero"),
}


@pytest.mark.parametrize(("body", "said"), OBJECTIVES.values(), ids=OBJECTIVES.keys())
def test_objective(refused, here, monkeypatch, body, said, request):
    """An objective that answers nonsense, at once or later, is told by name and task."""
    name = f"goal_{abs(hash(request.node.name))}"
    (here / f"{name}.py").write_text(f"def credit(task, counts, now_s):\n    {body}\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with np.errstate(divide="ignore", invalid="ignore"):
        assert_matches(said, refused("--objective", f"{name}:credit"))


def test_objective_that_cannot_be_compiled(refused, here):
    """A syntax error in an objective's module is one line."""
    (here / "broken_goal.py").write_text("def credit(:\n")
    assert "objective broken_goal:credit: Expected an importable module, got SyntaxError" in refused(
        "--objective", "broken_goal:credit"
    )


# --- Gurobi ------------------------------------------------------------------------------------------------------

EXPIRED = "TYPE=NODE\nVERSION=9\nHOSTNAME=x\nHOSTID=1\nUSERNAME=x\nEXPIRATION=2020-01-01\nKEY=AB12\nCKEY=AB12\n"


@pytest.mark.parametrize("text", [None, "", "no licence\n", "TYPE=x\n", EXPIRED])
def test_gurobi_without_a_licence(refused, replay, here, monkeypatch, text):
    """A licence that is missing, damaged or expired is said at once, with an alternative; a fallback rescues."""
    pytest.importorskip("gurobipy")
    path = here / "gurobi.lic"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("GRB_LICENSE_FILE", str(path))
    error = refused("--solver", "gurobi", solver=None)
    assert error.startswith("Error: gurobi: no valid licence (")
    assert error.endswith("; try --solver cbc.\n")
    error = refused("--solver", "gurobi", "--fallback", "mip-gurobi", solver=None)
    assert error.startswith("Error: mip-gurobi: Gurobi did not start")
    done = replay("--solver", "gurobi", "--fallback", "dp", "--json", "--no-prune", solver=None)
    assert done.status == 0
    assert list(done.json["solvers"]) == ["dp"]


def test_gurobi_beyond_its_size(refused, replay, here, monkeypatch):
    """A model too large for the licence in the wheel is said to be, with an alternative; a fallback rescues."""
    pytest.importorskip("gurobipy")
    monkeypatch.delenv("GRB_LICENSE_FILE", raising=False)
    size = 128
    frame = pd.DataFrame(
        np.ones((2, size), dtype=np.int8),
        index=log_frame().index[:2],
        columns=pd.Index([f"n{number}" for number in range(size)], dtype=object),
    )
    frame.to_pickle(here / "large.pkl")
    zigzag = [0.0, *(float(count + 3 * (count % 2)) for count in range(1, size + 1))]
    table = f"nodes = {list(range(size + 1))}\nthroughput = {zigzag}\n"
    rows = (f'[[task]]\nname = "J{n}"\nmin_nodes = 1\nmax_nodes = {size}\nwork = 1e6\n' for n in range(20))
    (here / "large.toml").write_text("schema = 1\n" + "".join(f"{row}[task.scaling]\n{table}" for row in rows))
    words = ("-ndmap", "large.pkl", "-bdfn", "large.toml", "-maxJ", 20, "--solver", "gurobi", "--no-prune")
    error = refused(*words, solver=None, without=("-scfn",))
    assert_matches(r"gurobi: model of \d,\d{3} variables exceeds the size-limited licence; try --solver", error)
    done = replay(*words, "--fallback", "dp", "--no-baseline", "--json", solver=None, without=("-scfn",))
    assert done.status == 0
    assert list(done.json["solvers"]) == ["dp"]


# --- places ------------------------------------------------------------------------------------------------------


def test_existing_directory(refused, here):
    """An existing result directory is refused, before the inputs are read."""
    (here / "debug-itrOut").mkdir()
    assert refused("-ndmap", "absent.pkl") == (
        "Error: debug-itrOut: Expected no such directory yet; choose another --output-dir or give --force.\n"
    )


def test_force_deletes_nothing_but_results(refused, here):
    """A directory that holds other files is not replaced, whatever is asked."""
    (here / "debug-itrOut").mkdir()
    (here / "debug-itrOut" / "thesis.tex").touch()
    assert "found other files; not deleted" in refused("--force")
    assert (here / "debug-itrOut" / "thesis.tex").exists()


def test_file_in_the_way(refused, here):
    """A file is not replaced by a directory, not even by force."""
    (here / "debug-itrOut").touch()
    assert "Expected a directory or nothing, found a file" in refused("--force")


@pytest.mark.parametrize("place", ["tasks.toml/results", "/proc/nowhere/results", "x" * 300, "new/er/" + "x" * 300])
def test_unwritable_place(refused, place):
    """A place where nothing can be written is refused, and the directories on the way to it are taken back."""
    assert place in refused("--output-dir", place)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_directory(refused, here):
    """So is one without permission."""
    (here / "locked").mkdir(mode=0o500)
    assert "Permission denied" in refused("--output-dir", "locked/results")


def test_disk_full(here):
    """When the disk fills while results are written, an earlier result stays intact and no litter remains."""
    words = ("-ndmap", "evt.pkl", "-bdfn", "Jbnd.pkl", "-scfn", "JNPs.pkl", "--solver", "dp")
    assert spawn("bftrainer-replay", *words, cwd=here).status == 0
    before = contents(here)
    assert {path.name for path in (here / "debug-itrOut").iterdir()} == RESULTS

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    for directory in ("debug-itrOut", "new/results"):
        done = spawn("bftrainer-replay", *words, "--force", "--output-dir", directory, cwd=here, preexec_fn=fill)
        check_refusal(done)
        assert done.err.startswith(f"Error: {directory}: Expected to write results, got: ")
        assert contents(here) == before


def test_stdout_full(here):
    """A full disk behind standard output is one line, and the results stand."""
    with open("/dev/full", "w") as full:
        done = spawn("bftrainer-replay", "--solver", "dp", "--max-events", 5, cwd=here, stdout=full)
    check_refusal(done)
    assert {path.name for path in (here / "sample-1-itrOut").iterdir()} == RESULTS


def test_a_reader_that_leaves(here):
    """When nobody reads standard output any more, the command ends silently."""
    reader, writer = os.pipe()
    os.close(reader)
    done = spawn("bftrainer", "solvers", cwd=here, stdout=writer)
    os.close(writer)
    assert (done.status, done.err) == (1, "")


@pytest.mark.parametrize(
    "words",
    [
        ("convert", "evt.pkl", "tasks.toml"),
        ("convert", "evt.pkl", "log.txt"),
        ("convert", "absent.pkl", "log.parquet"),
        ("convert", "Jbnd.pkl", "nowhere/tasks.csv"),
        ("tasks", "generate", "--scenario", "hpo", "--count", "0", "-o", "new.toml"),
        ("tasks", "generate", "--scenario", "hpo", "--count", "2", "--model", "resnet", "-o", "new.toml"),
        ("tasks", "generate", "--scenario", "hpo", "--count", "2", "--seed", "-1", "-o", "new.toml"),
        ("tasks", "generate", "--scenario", "hpo", "--count", "2", "-o", "tasks.toml"),
        ("tasks", "generate", "--scenario", "hpo", "--count", "2", "--start", "1500-01-01", "-o", "new.toml"),
        ("tasks", "generate", "--scenario", "hpo", "--count", "2", "--interval", "nan", "-o", "new.toml"),
        ("tasks", "generate", "--scenario", "xyz", "--count", "2", "-o", "new.toml"),
        ("tasks", "fit", "absent.csv"),
        ("tasks", "fit", "tasks.toml"),
        ("completion", "tcsh"),
    ],
    ids=" ".join,
)
def test_other_commands(call, here, words):
    """The other commands keep the same manners."""
    before = contents(here)
    check_refusal(call(*words))
    assert contents(here) == before


def assert_matches(pattern: str, text: str) -> None:
    """The text contains the pattern."""
    assert re.search(pattern, text), f"{pattern!r} not in {text!r}"
