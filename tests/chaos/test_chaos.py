"""Whatever long commands meet, nothing half-written is taken for whole, and the next call gives what is wanted."""

from __future__ import annotations

import random

import pytest

from tests.chaos.commands import COMMANDS
from tests.chaos.kill_trials import CASES, run_whole, try_kill
from tests.chaos.trials import trial

SEEDS = range(1, 6)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # which waiting within has limits for
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", COMMANDS)
def test_trials(name, seed):
    """Killed, without room, beside another writer, in a place that cannot be written, with a clock that goes back."""
    trial(name, seed)


@pytest.mark.long
@pytest.mark.no_cover
def test_a_trial():
    """One of them, which takes little: an import that is killed, of two files that belong together."""
    trial("import", 8)


@pytest.mark.long
@pytest.mark.no_cover
@pytest.mark.parametrize("case", CASES)
def test_a_killed_replay_goes_on(tmp_path, case):
    """Whatever decides: from the decisions that it has journalled on, to the same tables."""
    whole = run_whole(case, tmp_path / "whole")
    try_kill(case, whole, tmp_path / "killed", random.Random(case))
