"""Finding, describing and calling solvers; a plug-in's word is not taken for a proof."""

import re
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import numpy as np
import pytest

from bftrainer.errors import SettingsError
from bftrainer.runs import run_replay, write_run
from bftrainer.runs.audit import audit
from bftrainer.runs.run_files import read_run
from solvers import DecidedBy, Floor, Held, Limits, LinearRow, StopReason, objective, registry, supervised
from solvers.option_pruning import upper_bound
from solvers.registry import get_solver, isolate_solver, solve
from tests.solvers.known_optima import TWO_LIMITS, linear, problem
from tests.solvers.plugins import Exact, Nothing
from tests.solvers.support import Answering, forget_entries, problems, told

SHIPPED = ["cbc", "dp", "equal-share", "gurobi", "highs", "node-level"]
DOCS = Path(__file__).parents[2] / "docs" / "dev"
INCUMBENT, OPTIMAL, DONE = Held.INCUMBENT, Held.OPTIMAL, StopReason.OPTIMAL
PLAIN, CAPPED = problem(linear(2.0, 3), nodes=2), problem(TWO_LIMITS, nodes=2, capacities=(150.0,))


def listed() -> dict[str, dict]:
    """The catalogue by name."""
    return {row["name"]: row for row in registry.catalogue()}


def test_the_catalogue() -> None:
    """The package's solvers, each under its own name, with what the documentation's table says that it takes."""
    rows = listed()
    assert list(rows) == registry.names() == SHIPPED
    assert (rows["cbc"]["version"].startswith("mip "), rows["dp"]["version"]) == (True, "")
    assert (bool(rows["gurobi"]["licensed"]), rows["dp"]["licensed"]) == (True, "")
    lines = (DOCS / "solvers.md").read_text().splitlines()
    documented = [line.strip("|").split("|") for line in lines if line.startswith("| `")]
    table = {name: row for row in documented for name in re.findall(r"`([a-z-]+)`", row[0]) if len(row) == 8}
    assert sorted(table) == SHIPPED
    for name, row in table.items():
        assert registry.solver_class(name).name == name
        taken = [rows[name][each] for each in ("exact", "extra_rows", "capacities", "floor")]
        assert [cell.strip() for cell in row[2:6]] == ["yes" if each else "no" for each in taken], name


def test_two_solvers_of_one_name(monkeypatch):
    """None shadows the other: both are named where one is asked for, and in the list of solvers, beside the others."""
    extra = [EntryPoint("dp", "tests.solvers.plugins:Lazy", registry.GROUP)]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [*entry_points(group=group), *extra])
    forget_entries()
    try:
        assert registry.names() == SHIPPED
        both = r"solver dp: .*solvers.dynamic_programme:DynamicProgramme and tests.solvers.plugins:Lazy; name one"
        with pytest.raises(SettingsError, match=both):
            get_solver("dp")
        assert re.search(both, listed()["dp"]["licensed"])
        assert listed()["equal-share"]["installed"]
    finally:
        forget_entries()


def test_a_solver_need_not_be_registered(tmp_path, monkeypatch):
    """It is called module:Class; its module is found in the current directory, and its code runs in another process."""
    own = "from solvers.reference_solvers import EqualShare\nclass Mine(EqualShare):\n    name = 'mine'\n"
    (tmp_path / "unregistered.py").write_text(own)
    monkeypatch.chdir(tmp_path)
    supervised.end_idle()  # processes that work elsewhere
    says = registry.describe_solver("unregistered:Mine")
    assert (says.name, says.exact, says.fault) == ("mine", False, "")
    assert "unregistered" not in sys.modules
    assert get_solver("unregistered:Mine").name == "mine"


@pytest.mark.parametrize(
    ("asked", "answer", "held", "value", "bound"),
    [
        (PLAIN, told((2,), 99.0, 4.0, DONE, OPTIMAL), OPTIMAL, 4.0, 4.0),
        (PLAIN, told((1,), 99.0, 4.0, DONE, OPTIMAL), INCUMBENT, 2.0, 4.0),
        (PLAIN, told((2,), 99.0, np.nan, DONE, OPTIMAL), INCUMBENT, 4.0, np.inf),
        (PLAIN, told((2,), 99.0, 4.0 - 1e-12, DONE, OPTIMAL), OPTIMAL, 4.0, 4.0),
        (CAPPED, told(None, 0.0, 20.0, DONE, INCUMBENT, (3,)), INCUMBENT, 12.0, 20.0),
    ],
)
def test_claims_are_recomputed(asked, answer, held, value, bound):
    """The objective is the reference's, optimal is what the bound supports, and counts and choices are filled in."""
    result = solve(Answering(answer), asked, Limits())
    assert (result.held, result.objective, result.bound) == (held, value, bound)
    assert result.counts == answer.counts or (result.counts, result.choices) == ((2,), (3,))


TWO = problem(linear(2.0, 3), linear(1.0, 3), nodes=4)  # at best 3 nodes at 2 and one at 1: 7


@pytest.mark.parametrize("isolate", ["never", "always"])
def test_optima_of_plug_ins_are_claims_unless_our_bound_confirms_them(isolate) -> None:
    """Where 7 is possible, no nodes at all are not proven, and 7 is; our own are taken at their word anywhere."""
    result = solve(isolate_solver(Nothing(), isolate), TWO, Limits())
    assert (result.held, result.decided_by, result.counts) == (Held.CLAIMED, DecidedBy.BACKEND, (0, 0))
    assert (result.objective, result.bound, result.gap) == (0.0, 7.0, np.inf)
    exact = solve(isolate_solver(Exact(), isolate), TWO, Limits())
    assert (exact.held, exact.decided_by, exact.bound) == (OPTIMAL, DecidedBy.BACKEND, 7.0)
    own = solve(isolate_solver(get_solver("cbc"), isolate), problem(linear(2.0, 3), nodes=9), Limits())
    assert (own.held, own.decided_by) == (OPTIMAL, DecidedBy.TRIVIAL)


def test_the_bound_on_claims() -> None:
    """Never below the optimum, and mostly tight; rows are left out of it, a floor of weight 2 adds at most 2 x 3."""
    rows = (LinearRow(np.array([1.0, 1.0]), upper=1.0),)
    floor = Floor(((0,), (1,)), (np.arange(4.0), np.arange(4.0)), 2.0)
    assert (upper_bound(replace(TWO, rows=rows)), upper_bound(replace(TWO, floor=floor))) == (7.0, 13.0)
    assert solve(Nothing(), replace(TWO, rows=rows, floor=floor), Limits()).held is Held.CLAIMED
    some, confirmed = problems(5, 8, 60, 40), 0
    for each in some:
        best = solve(get_solver("dp"), each, Limits())
        assert upper_bound(each) >= objective(each, best.counts) * (1 - 1e-9)
        confirmed += solve(Exact(), each, Limits()).held is OPTIMAL
    assert confirmed > len(some) // 2


def test_claims_are_told_on_every_surface(tmp_path) -> None:
    """All decisions of a run are claimed: summary, terminal and page say so, and an audit says what is wrong."""
    from bftrainer.report.glossary import optimality_in_words
    from bftrainer.report.run_page import run_page

    result = run_replay(solver="tests.solvers.plugins:Nothing", max_events=20, baseline=False)
    summary = result.summary()
    claimed = summary["decisions_claimed"]
    assert claimed == summary["decisions"] == summary["decided_by"]["backend"] > 10
    text = optimality_in_words(summary)
    assert text == f"0 of {claimed} decisions proven optimal, {claimed} claimed optimal by the solver"
    write_run(result, tmp_path)
    run = read_run(tmp_path)
    assert set(run.decisions["held"].tolist()) == {"claimed"}
    (section,) = (table for table in run_page([run]).tables if table.title == "What happened")
    assert f"{text}." in section.texts
    wrong = [line for line in audit(tmp_path).wrong if "held: claimed with 0" in line]
    assert len(wrong) == claimed
    assert wrong[0].endswith("is possible")
