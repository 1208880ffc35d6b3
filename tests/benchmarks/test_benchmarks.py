"""The benchmarks run, and compare what is right."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.published import ROOT

QUICK = "10-130 or 4-30 or (bench_events and 10-) or tuned or (bench_spot and 1-) or zeus or start_up or sample-dp"


@pytest.mark.slow
def test_benchmarks_run():
    """Each kind of benchmark runs on its smallest case, and solvers find the same optima."""
    command = [sys.executable, "-m", "pytest", "benchmarks", "--benchmark-disable", "-q", "-k", QUICK]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "failed" not in done.stdout
