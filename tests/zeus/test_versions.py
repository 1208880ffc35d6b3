"""Results don't depend on the version of NumPy or pandas, nor on how the tables are given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.zeus.fingerprint import fingerprint

ROOT = Path(__file__).parents[2]


def test_paths_and_frames_give_the_same_bits():
    """Files, frames of their text and frames as pandas parses them: one digest per trace, of thousands of entries."""
    found = fingerprint()
    for name in ("tiny", "embedded"):
        digests = {value for key, value in found.items() if key.startswith(name)}
        assert len(digests) == 1
        ((_, entries),) = digests
        assert entries > 2000


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "versions",
    [
        ("numpy==2.0.*", "pandas==2.2.*"),
        ("numpy==2.2.*", "pandas==2.3.*"),
        ("numpy==2.3.*", "pandas==3.0.*"),
        ("numpy>=2.4", "pandas>=3.1"),
    ],
    ids=" ".join,
)
def test_versions_give_the_same_bits(versions, tmp_path):
    """In an environment of its own with these two alone, the same digests as here, whatever runs here."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment["PIP_NO_COMPILE"] = "0"  # most of pandas is never imported here
    python = tmp_path / "env" / "bin" / "python"

    def run(*command):
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(sys.executable, "-m", "venv", tmp_path / "env")
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:", *versions)
    there = json.loads(run(python, "-W", "error", "-m", "tests.zeus.fingerprint"))
    assert {key: tuple(value) for key, value in there.items()} == fingerprint()
