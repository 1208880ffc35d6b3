"""Options, objectives and licences that cannot be used are told before anything is replayed."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

from tests.cli.conftest import assert_matches
from tests.solvers.support import usable
from tests.tiny import log_frame

# --- options ---------------------------------------------------------------------------------------------------------


# --- objectives ------------------------------------------------------------------------------------------------------

OBJECTIVES = {
    "NaN": ("return counts * float('nan')", "objective credit, task J0: Expected finite credit, got nan for 0 nodes"),
    "shape": ("return counts[1:]", r"Expected credit of shape \(5,\), got \(4,\)"),
    "divides": ("1 / 0", "raised ZeroDivisionError: division by zero"),
    "leaves": ("raise SystemExit(0)", r"task J0: raised SystemExit: 0 \(goal_\d+.py, line 2\)\.$"),
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


@pytest.mark.parametrize("text", [None, "no licence\n", EXPIRED])
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
