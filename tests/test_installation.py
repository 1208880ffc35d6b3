"""What a user gets who installs bftrainer: from the wheel, and by the README's first command."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bftrainer.files.opening import SAMPLE_NODE_LOG
from bftrainer.nodelogs.edit import select_window
from bftrainer.nodelogs.node_log_files import read_node_log, write_node_log

ROOT = Path(__file__).parents[1]
DAY_NS = 86_400 * 10**9
RUN_FILES = {"step-logs.csv", "decisions.parquet", "tasks.parquet", "allocation.parquet", "summary.json"}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without the caller's settings of Python and ours; its output stands in the failure."""
    apart = ("PYTHON", "VIRTUAL_ENV", "COV", "BFTRAINER")
    env = {key: value for key, value in os.environ.items() if not key.startswith(apart)}
    # What pip would compile of pandas and all the others takes longer than all that is done with it here.
    env["PIP_NO_COMPILE"] = "0"
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} exits {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def clean_copy(folder: Path) -> Path:
    """Copy the sources to a path with a space: no build leftovers, no environment."""
    copy = folder / "a checkout"
    copy.mkdir()
    for name in ("README.md", "LICENSE", "setup.cfg", "setup.py", "pyproject.toml"):
        shutil.copy2(ROOT / name, copy)
    for name in ("bftrainer", "solvers", "datasets", "scripts"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    return copy


def test_the_wheel_carries_the_samples(tmp_path):
    """It is built without a warning of something that is to go, and has code and data."""
    command = (sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "-w", tmp_path, clean_copy(tmp_path))
    built = run(*command, cwd=tmp_path)
    assert "Deprecat" not in built.stdout + built.stderr
    (path,) = tmp_path.glob("*.whl")
    data = {f"bftrainer/data/{path.name}" for path in (ROOT / "datasets").iterdir()}
    assert data <= set(zipfile.ZipFile(path).namelist())


def test_quickstart_works_twice_from_any_directory(tmp_path, monkeypatch):
    """`scripts/quickstart` installs once, replays each time into the next free directory, says where, and shows it."""
    monkeypatch.setenv("BROWSER", "echo Opened %s")
    checkout = clean_copy(tmp_path)
    sample = checkout / "datasets" / SAMPLE_NODE_LOG
    # All of it is replayed from the wheel; here a day of it is.
    log = read_node_log(sample)
    write_node_log(sample, select_window(log, None, log.start_ns + DAY_NS))
    first = run(checkout / "scripts/quickstart", cwd=tmp_path)
    second = run(checkout / "scripts/quickstart", "--open", cwd=tmp_path)
    assert "Installing" in first.stderr
    assert "Installing" not in second.stderr
    for number, done in enumerate((first, second), start=1):
        results = tmp_path / f"sample-{number}-itrOut"
        page = tmp_path / f"sample-{number}.html"
        assert f"Results: {results.name}\nPage: {page.name}\n" in done.stdout
        assert f"\n(in {tmp_path})\n" in done.stdout
        assert (f"Opened {page.as_uri()}" in done.stdout) == (number == 2)
        assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
        assert {path.name for path in results.iterdir()} >= RUN_FILES
