"""Options, objectives and licences that cannot be used are told before anything is replayed."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.cli.conftest import assert_matches

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
