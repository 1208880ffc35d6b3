"""Random cases of `scripts/fuzz`: whatever a file, an option or a call holds, it is used or refused in one line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings

from tests.fuzzing.families import FAMILIES

ROOT = Path(__file__).parents[2]


def fuzz(*words: object) -> str:
    """Output of a fuzzing run in a process of its own, which must find nothing."""
    command = [sys.executable, "-m", "tests.fuzzing", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.no_cover
def test_some_cases(tmp_path):
    """Three hundred cases of all families end as they should."""
    assert "300 cases" in fuzz("--cases", 300, "--seed", 1, "--keep", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)  # a case that hangs is ended by its watchdog, which counts no time that others take
@pytest.mark.parametrize("seed", [2, 3])
def test_many_cases(tmp_path, seed):
    """So do thousands: three, or ten with `scripts/test --many`."""
    cases = 50 * settings().max_examples
    assert f"{cases:,} cases" in fuzz("--cases", cases, "--seed", seed, "--keep", tmp_path)


@pytest.mark.long
@pytest.mark.no_cover
def test_commands_work_before_damage():
    """The commands that cases are made of succeed on files that are whole: what they refuse is the damage."""
    assert re.search(r"cases \([\d,]+ of status 0\), 0 findings", fuzz("--whole"))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_case_is_always_the_same(family):
    """The number of a case tells all about it."""
    once, again = (FAMILIES[family][1](Random("7:7")) for _ in range(2))
    assert (once.words, once.files, once.changes) == (again.words, again.files, again.changes)
