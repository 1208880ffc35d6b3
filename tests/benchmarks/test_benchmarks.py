"""The benchmarks run, and compare what is right."""

import subprocess
import sys

import numpy as np
import pytest

from benchmarks.instances import instance
from benchmarks.published import ROOT
from benchmarks.textbook import solve_by_textbook
from solvers import Limits, objective
from solvers.registry import get_solver, solve

QUICK = "10-130 or 4-30 or (bench_events and 10-) or tuned or (bench_spot and 1-) or zeus or start_up or sample-dp"


@pytest.mark.slow
def test_benchmarks_run():
    """Each kind of benchmark runs on its smallest case, and solvers find the same optima."""
    command = [sys.executable, "-m", "pytest", "benchmarks", "--benchmark-disable", "-q", "-k", QUICK]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "failed" not in done.stdout


@pytest.mark.slow
def test_gains_of_grants():
    """A row for each set of tasks and number of them; windows that don't fit the log are refused."""
    command = [sys.executable, "-m", "benchmarks.grants", "--nodes", "8"]
    done = subprocess.run([*command, "--windows", "2"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.count("sample-idle") == 12
    done = subprocess.run([*command, "--windows", "99"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "Expected 99 windows" in done.stderr) == (2, True)


@pytest.mark.parametrize("seed", range(20))
def test_textbook_is_right(seed):
    """The plain dynamic programme finds the optimum of the exact solver, and counts that are worth it."""
    problem = instance(np.random.default_rng(seed), 4, 50)
    value, counts = solve_by_textbook(problem)
    assert value == pytest.approx(solve(get_solver("dp"), problem, Limits()).objective, rel=1e-12)
    assert objective(problem, counts.tolist()) == pytest.approx(value, rel=1e-12)
    assert sum(counts) <= problem.nodes
