"""What a user gets who installs bftrainer: from the wheel, and by the README's first command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.zeus.server.processes import free_port

ROOT = Path(__file__).parents[1]
RUN_FILES = {"step-logs.csv", "decisions.parquet", "tasks.parquet", "allocation.parquet", "summary.json"}
LIST_TRACED_JOBS = """
from bftrainer.zeus.simulation.sample import zeus_sample
from bftrainer.zeus import TrainingTrace
sample = zeus_sample()
print(*(job[0] for job in TrainingTrace(sample.train, sample.power).jobs))
"""
LIST_JOBS = """
import re, sys
import httpx
from bftrainer.zeus.server import BatchSizeClient
with BatchSizeClient(sys.argv[1], retries=8) as client:
    print(client.jobs())
print(re.search("No jobs here", httpx.get(sys.argv[1]).text)[0])
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without the caller's Python settings; its output stands in the failure."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV", "COV"))}
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} exits {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clean copy of the sources in a path with a space: no build leftovers, no environment."""
    copy = tmp_path / "a checkout"
    copy.mkdir()
    for name in ("README.md", "LICENSE", "setup.cfg", "pyproject.toml"):
        shutil.copy2(ROOT / name, copy)
    for name in ("bftrainer", "solvers", "datasets", "scripts"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_wheel_runs_the_sample_in_an_empty_environment(checkout, tmp_path):
    """The wheel carries code and sample: the command without arguments replays all of it, decided optimally."""
    built = run(sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "-w", tmp_path, checkout, cwd=tmp_path)
    assert "Deprecat" not in built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    data = {f"bftrainer/data/{path.name}" for path in (ROOT / "datasets").iterdir()}
    assert data <= set(zipfile.ZipFile(wheel).namelist())

    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    run(tmp_path / "env/bin/python", "-m", "pip", "install", "-q", wheel, cwd=tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    summary = json.loads(run(tmp_path / "env/bin/bftrainer-replay", "--json", cwd=work).stdout)

    assert (summary["nodes_total"], summary["tasks_total"], summary["partial"]) == (512, 40, False)
    assert summary["decisions"] == summary["decisions_optimal"] > 0
    assert summary["tasks_completed"] == 40
    assert {path.name for path in (work / "sample-1-itrOut").iterdir()} >= RUN_FILES
    listed = run(tmp_path / "env/bin/python", "-c", LIST_TRACED_JOBS, cwd=work).stdout
    assert listed.split() == ["synth-images", "synth-ratings", "synth-speech", "synth-text"]


def test_quickstart_works_twice_from_any_directory(checkout, tmp_path):
    """`scripts/quickstart` installs once, replays each time into the next free directory, and says where."""
    first = run(checkout / "scripts/quickstart", cwd=tmp_path)
    second = run(checkout / "scripts/quickstart", cwd=tmp_path)
    assert "Installing" in first.stderr
    assert "Installing" not in second.stderr
    for number, done in enumerate((first, second), start=1):
        results = tmp_path / f"sample-{number}-itrOut"
        assert f"Results: {results.name}\n(in {tmp_path})\n" in done.stdout
        assert {path.name for path in results.iterdir()} >= RUN_FILES


def test_the_server_runs_with_its_extra_alone(checkout, tmp_path):
    """The extra `server` brings all that serving takes: tables, templates and the page."""
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, checkout, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    run(tmp_path / "env/bin/python", "-m", "pip", "install", "-q", f"{wheel}[server]", cwd=tmp_path)
    words = [tmp_path / "env/bin/bftrainer", "bso", "serve", "--port", str(free_port())]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*map(str, words)], cwd=tmp_path, stderr=log)
    try:
        listed = [tmp_path / "env/bin/python", "-c", LIST_JOBS, f"http://127.0.0.1:{words[-1]}"]
        assert run(*listed, cwd=tmp_path).stdout == "[]\nNo jobs here\n"
    finally:
        process.terminate()
        process.wait(60)
    assert (tmp_path / "bftrainer-bso.db").exists()
