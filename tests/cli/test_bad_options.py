"""Options, objectives and licences that cannot be used are told before anything is replayed."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

from tests.cli.conftest import assert_matches, check_refusal
from tests.solvers.support import usable
from tests.tiny import contents, log_frame, spawn

# --- options ---------------------------------------------------------------------------------------------------------

OPTIONS = {
    "-Tfwd 0": "'-Tfwd' / '--forward-time': 0.0 is not in the range x>0",
    "-Tfwd nan": "forward_time_s > 0, got nan",
    "-Tfwd inf": "forward_time_s > 0, got inf",
    "-Tfwd 1e308": "product is finite",
    "-Tfwd ten": "'ten' is not a valid float",
    "-maxj 5": "No such option '-maxj'. Did you mean '-maxJ'?",
    "-maxJ 0": "'-maxJ' / '--max-tasks': 0 is not in the range x>=1",
    "-maxJ 1.5": "'1.5' is not a valid integer",
    "-optTL 0": "'-optTL' / '--time-limit': 0.0 is not in the range x>0",
    "-optTL inf": "finite time limit",
    "--mip-gap nan": "0 <= MIP gap < 1, got nan",
    "--mip-gap 1": "'--mip-gap': 1.0 is not in the range 0<=x<1",
    "--solver highs --threads 0": "'--threads': 0 is not in the range x>=1",
    "--seed -1": "'--seed': -1 is not in the range x>=0",
    "-nN 0": "'-nN' / '--node-count': 0 is not in the range x>=1",
    "-nN 5": "the log's 4 nodes, got 5 nodes from 0",
    "-nis 3 -nN 2": "the log's 4 nodes, got 2 nodes from 3",
    "-nis 4": "the log's 4 nodes",
    "-nis -1": "'-nis' / '--first-node': -1 is not in the range x>=0",
    "--skip-events 5": "evt.pkl: Expected to skip fewer rows than the log's 5, got 5",
    "--skip-events -1": "'--skip-events': -1 is not in the range x>=0",
    "--since nan": "--since to be a time",
    "--since -5": "Expected a start within the log",
    "--until 0": "--until after the window's start",
    "--until 2021-02-09T00:00:00": "--until after the window's start",
    "--until nan": "--until after the window's start",
    "--until 3000-01-01": "between the years 1678 and 2262, got 3000-01-01",
    "--until soon": "ISO time or seconds, got 'soon'",
    "--max-events 0": "'--max-events': 0 is not in the range x>=1",
    "--large-idle 0": "'--large-idle': 0 is not in the range x>=1",
    "--decide-on rows": "'rows' is not one of 'all', 'nodes'",
    "--initial some": "'some' is not one of",
    "--startup-cost half": "'half' is not one of",
    "-print perhaps": "'perhaps' is not a valid boolean",
    "-mip perhaps": "'perhaps' is not a valid boolean",
    "-mip true": "either -mip or --solver",
    "-mip false": "either -mip or --solver",
    "--strict-published": "--strict-published with --solver equal-share, got dp",
    "--notice -1": "'--notice': -1.0 is not in the range x>=0",
    "--notice nan": "notice_s >= 0, got nan",
    "--notice soon": "'soon' is not a valid float",
    "--give-way mine": "'mine' is not one of 'named', 'chosen'",
    "--compat published --give-way chosen": "Expected give_way named and no notice with compat published",
    "--compat published --decide-on all": "Expected decide_on nodes with compat published, got all.",
    "--scaling cubic": "scaling linear, amdahl:F with F from 0 to 1 or, in replays, learned, got 'cubic'",
    "--scaling amdahl:2": "F from 0 to 1",
    "--scaling learned --profile-noise -0.1": "'--profile-noise': -0.1 is not in the range x>=0",
    "--scaling learned --profile-noise nan": "profile_noise >= 0, got nan",
    "--fallback cbcc": "Did you mean 'cbc'?",
    "--objective throughputs": "Did you mean 'throughput'?",
    "--objective nonsense": "Expected a known objective or module:callable, got 'nonsense'. Known: ",
    "--objective absent:credit": "objective absent:credit: Cannot import the module: ModuleNotFoundError",
    "--objective math:pi": "a callable, got float",
    "--objective math:sinn": "math to define 'sinn'. Did you mean 'sin'?",
    "--objective :x": "known objective or module:callable, got ':x'",
    "--objective .a:x": "known objective or module:callable, got '.a:x'",
    "--objective priority:nonsense": "got 'nonsense'. Known: ",
    "--objective quota": "Expected limits (user or group",
    "--objective quota:user=many": "or a share of the pool (25%), got 'user=many'",
    "--objective quota:user=3": "objective quota: Expected tasks with a user, got none",
    "--objective energy": "objective energy, task J0: Expected a tuned task",
    "--objective priority:quota:group=50%:energy-delay": "objective energy-delay, task J0: Expected a tuned task",
    "--objective math:": "known objective or module:callable, got 'math:'",
    "--slover dp": "--solver",
    "surplus": "unexpected extra argument",
}


@pytest.mark.parametrize(("words", "said"), OPTIONS.items(), ids=OPTIONS.keys())
def test_option(refused, words, said):
    """An option out of range says what was expected; a misspelt one gets a suggestion."""
    assert said in refused(*words.split())


def test_unknown_solver(refused):
    """An unknown solver gets a suggestion, also where a fallback would stand in for a missing one."""
    assert "Expected a known solver or module:callable, got 'gorubi'. Did you mean 'gurobi'?" in refused(
        "--solver", "gorubi", solver=None
    )
    assert "got 'zzz'. Known: cbc, dp, " in refused("--solver", "zzz", solver=None)
    words = ("--solver", "zzz", "--fallback", "dp", "--output-dir", "deep/er")
    assert "got 'zzz'." in refused(*words, solver=None)


@pytest.mark.long
def test_options_end_to_end(here):
    """The same through the installed commands."""
    before = contents(here)
    for program, *words in (("bftrainer-replay", "-maxJ", 0), ("bftrainer", "replay", "--solver", "nope")):
        check_refusal(spawn(program, *words, cwd=here))
    assert contents(here) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("replya",), "No such command 'replya'. Did you mean 'replay'?"),
        (("zeus", "simluate"), "No such command 'simluate'. Did you mean 'simulate'?"),
        (("zeus", "xyz"), "No such command 'xyz'. Known: compare, groups, simulate, traces."),
    ],
)
def test_unknown_command(call, words, said):
    """A command that is mistyped is answered with the closest one, or with all there are."""
    done = call(*words)
    check_refusal(done)
    assert done.err == f"Error: {said}\n"


# --- objectives ------------------------------------------------------------------------------------------------------

OBJECTIVES = {
    "NaN": ("return counts * float('nan')", "objective credit, task J0: Expected finite credit, got nan for 0 nodes"),
    "infinite": ("return counts / 0.0", "Expected finite credit"),
    "shape": ("return counts[1:]", r"Expected credit of shape \(5,\), got \(4,\)"),
    "complex": ("return counts * 1j", "objective credit, task J0: Expected real credit, got complex numbers"),
    "scalar": ("return 1.0", r"Expected credit of shape \(5,\), got \(\)"),
    "nothing": ("return None", "objective credit, task J0: "),
    "text": ("return 'much'", "objective credit, task J0: raised ValueError"),
    "raises": ("return task.speed", "raised AttributeError"),
    "divides": ("1 / 0", "raised ZeroDivisionError: division by zero"),
    "leaves": ("raise SystemExit(0)", r"task J0: raised SystemExit: 0 \(goal_\d+.py, line 2\)\.$"),
    "says no": ("raise __import__('bftrainer').errors.InputError('no')", "task J0: raised InputError: no"),
}


@pytest.mark.parametrize(("body", "said"), OBJECTIVES.values(), ids=OBJECTIVES.keys())
def test_objective(refused, here, monkeypatch, body, said, request):
    """An objective that answers nonsense at its first decision is told by name and task, and leaves nothing."""
    name = f"goal_{abs(hash(request.node.name))}"
    (here / f"{name}.py").write_text(f"def credit(task, counts, now_s):\n    {body}\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with np.errstate(divide="ignore", invalid="ignore"):
        assert_matches(said, refused("--objective", f"{name}:credit"))


def test_objective_that_cannot_be_imported(refused, here, monkeypatch):
    """A syntax error in an objective's module is one line, as is one that ends Python."""
    (here / "broken_goal.py").write_text("def credit(:\n")
    (here / "leaving_goal.py").write_text("raise SystemExit(0)\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name, error in {"broken_goal": "SyntaxError", "leaving_goal": "SystemExit"}.items():
        said = refused("--objective", f"{name}:credit")
        assert f"objective {name}:credit: Cannot import the module: {error}" in said


# --- Gurobi ----------------------------------------------------------------------------------------------------------

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
    done = replay("--solver", "gurobi", "--fallback", "dp", "--json", "--no-prune", solver=None)
    assert done.status == 0
    assert list(done.json["solvers"]) == ["dp"]


def test_gurobi_beyond_its_size(refused, replay, here, monkeypatch):
    """A model too large for the licence in the wheel is said to be, with an alternative; a fallback rescues."""
    monkeypatch.delenv("GRB_LICENSE_FILE", raising=False)
    usable("gurobi")  # the wheel's own licence ends too
    size = 128
    frame = pd.DataFrame(
        np.ones((2, size), dtype=np.int8),
        index=log_frame().index[:2],
        columns=pd.Index([f"n{number}" for number in range(size)], dtype=object),
    )
    frame.to_pickle(here / "large.pkl")
    rows = []
    for n in range(40):  # of different curves, as alike tasks are counted together
        zigzag = [0.0, *(float(count + (3 + n / 100) * (count % 2)) for count in range(1, size + 1))]
        rows.append(f'[[task]]\nname = "J{n}"\nmin_nodes = 1\nmax_nodes = {size}\nwork = 1e6\n[task.scaling]\n')
        rows.append(f"nodes = {list(range(size + 1))}\nthroughput = {zigzag}\n")
    (here / "large.toml").write_text("schema = 1\n" + "".join(rows))
    words = ("-ndmap", "large.pkl", "-bdfn", "large.toml", "-maxJ", 40, "--solver", "gurobi", "--no-prune")
    error = refused(*words, solver=None, without=("-scfn",))
    assert_matches(r"gurobi: model of \d,\d{3} variables exceeds the size-limited licence; try --solver", error)
    done = replay(*words, "--fallback", "dp", "--no-baseline", "--json", solver=None, without=("-scfn",))
    assert done.status == 0
    assert list(done.json["solvers"]) == ["dp"]
