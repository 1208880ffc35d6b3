"""The benchmarks run, and their figures are what they say."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from click import UsageError
from click.testing import CliRunner

from benchmarks import history
from benchmarks.__main__ import main
from benchmarks.history import HISTORY, KEPT, as_markdown
from benchmarks.instances import instance
from benchmarks.published import ROOT
from benchmarks.reference import compiled_optimum, reference_optimum
from benchmarks.registry import WORKLOADS
from benchmarks.research.windows import window_starts_s
from benchmarks.workload import Case, Measurement, Plan, Sample, Unmeasured, Workload, measure
from solvers import Limits, objective
from solvers.registry import get_solver, solve


def driver(*arguments):
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "decision" else [pytest.mark.slow]) for name in WORKLOADS]
)
def test_every_workload_runs(name, tmp_path):
    """`--quick` runs each workload, prints its table and writes figures of all cases that ran."""
    out = driver(name, "--quick", "--seed", "1", "--json", str(tmp_path / "figures.json"))
    assert f"{name}: " in out
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["seed"] == 1
    assert {row["workload"] for row in figures["figures"]} == {name}
    for row in figures["figures"]:
        assert row["note"] or row["median_s"] > 0


def test_windows_are_apart():
    """Windows of research questions lie within the span and do not overlap; more than fit are refused."""
    starts_s = np.array(window_starts_s(1000.0, 100.0, 8))
    assert (np.diff(starts_s) >= 100.0).all()
    assert (starts_s[0], starts_s[-1]) == (0.0, 875.0)
    with pytest.raises(UsageError, match="Expected 11 windows"):
        window_starts_s(1000.0, 100.0, 11)


def test_lists_workloads():
    """`--list` names all workloads, one a line."""
    assert [line.split()[0] for line in driver("--list").splitlines()] == list(WORKLOADS)


@pytest.mark.parametrize(
    ("arguments", "said"), [(["pruing"], "'pruing' is not one of"), (["--seed", "-1"], "-1 is not in the range")]
)
def test_bad_arguments_are_refused(arguments, said):
    """What cannot be meant is said before anything is measured."""
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, said in done.output) == (2, True)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("reference", [reference_optimum, compiled_optimum])
def test_the_references_are_right(reference, seed):
    """The plain dynamic programmes find the optimum of the exact solver, and counts that are worth it."""
    problem = instance(np.random.default_rng(seed), 4, 50)
    try:
        value, counts = reference(problem)
    except Unmeasured as reason:
        pytest.skip(str(reason))
    assert value == pytest.approx(solve(get_solver("dp"), problem, Limits()).objective, rel=1e-12)
    assert objective(problem, counts) == pytest.approx(value, rel=1e-12)
    assert sum(counts) <= problem.nodes


def workload(*cases, runs=3):
    return Workload("toy", "Nothing.", lambda _: cases, runs=runs)


def case(name, seconds=1.0, value=None, **options):
    return Case("group", name, lambda n: Sample(seconds * (n + 1), value), **options)


def figures(work, tmp_path):
    return {one.case.name: one for one in measure(work, Plan(0, tmp_path))}


def test_disagreeing_cases_stop_the_benchmark(tmp_path):
    """Two cases that find different values in one run measure different things: an error that names both."""
    with pytest.raises(RuntimeError, match=r"group, run 0: b finds 2\.0, a finds 1\.0"):
        figures(workload(case("a", value=1.0), case("b", value=2.0)), tmp_path)


def test_a_case_stops_at_its_budget(tmp_path):
    """No run starts once a case has used up its time."""
    found = figures(workload(case("slow", budget_s=2.5), case("brief", budget_s=1e9), runs=10), tmp_path)
    assert len(found["slow"].samples) == 2
    assert len(found["brief"].samples) == 10


def test_ratios_compare_common_runs(tmp_path):
    """A baseline with fewer runs is compared on those that both did."""
    found = figures(workload(case("quick"), case("base", seconds=4.0, most_runs=1), runs=9), tmp_path)
    assert found["quick"].ratio(found["base"]) == pytest.approx(0.25)


def test_what_cannot_run_says_why(tmp_path):
    """A case that cannot be measured has no figures but a reason, and does not stop the others."""

    def refuse():
        raise Unmeasured("size-limit")

    found = figures(workload(case("big", prepare=refuse), case("small")), tmp_path)
    assert (found["big"].note, found["big"].median_s) == ("size-limit", None)
    assert found["small"].median_s == 2.0


def test_percentile_is_one_of_the_runs():
    """The 95th percentile of twenty runs is the nineteenth."""
    one = Measurement(case("a"), {n: Sample(float(n)) for n in range(1, 21)})
    assert one.p95_s == 19.0


def test_fresh_instances(tmp_path):
    """No two runs of a decision case solve the same instance, and all cases of a run solve the same one."""
    cases = list(WORKLOADS["decision"].cases(Plan(5, tmp_path, quick=True)))
    draws = [case.draw for case in cases if case.group == "10 x 130"]
    values = [[reference_optimum(draw(run))[0] for run in range(3)] for draw in draws]
    assert all(row == values[0] for row in values)
    assert len(set(values[0])) == 3


def test_simulations_are_never_repeated(tmp_path):
    """No two runs of the tuning workload simulate a job with one seed, and its cases draw for the same seeds."""
    cases = [case for case in WORKLOADS["zeus"].cases(Plan(5, tmp_path)) if case.group == "embedded, a run"]
    seeds = [[seed for run in range(50) for seed in case.draw(run)] for case in cases]
    assert len(seeds[0]) == len(set(seeds[0])) == 200
    assert seeds[0] == seeds[1]


def test_the_history_can_be_measured():
    """All that is kept of releases is what workloads measure, and it is shown as a table."""
    assert as_markdown(json.loads(HISTORY.read_text())).startswith("| workload | case |")
    assert {workload for workload, _, _ in KEPT} <= set(WORKLOADS)


def test_a_release_is_kept(tmp_path, monkeypatch):
    """Figures of several files join the history, a second time in place of the first; what is not kept is left out."""
    monkeypatch.setattr(history, "HISTORY", tmp_path / "history.json")
    rows = [("decision", "10 x 130", "dp", 0.5), ("decision", "10 x 130", "toy", 1.0)]
    for seconds in (1.0, 2.0):
        named = [dict(zip(("workload", "group", "case", "median_s"), row, strict=True)) for row in rows]
        named[0]["median_s"] *= seconds
        (tmp_path / "figures.json").write_text(json.dumps({"machine": {}, "figures": named}))
        done = CliRunner().invoke(history.main, ["add", "9.0", str(tmp_path / "figures.json")])
        assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(history.main, ["show"]).output
    assert shown.splitlines() == ["| workload | case | 9.0 |", "|---|---|---|", "| decision | 10 x 130: dp | 1 s |"]
