"""Replays give what they gave: counts and hand-overs exactly, sums of floats to 12 digits."""

from __future__ import annotations

import pytest

from tests.golden.measures import measure
from tests.golden.replays import PUBLISHED, REPLAYS, SECONDS
from tests.golden.values import differences, load

CASES = [pytest.param(case, marks=[pytest.mark.long] if case in SECONDS else []) for case in REPLAYS]


@pytest.mark.parametrize("case", CASES)
def test_replays_are_unchanged(case):
    """Figures, completion times and hand-overs of a replay are those that are kept."""
    assert list(differences(load("replays.json")[case], measure("replays.json", case))) == []


@pytest.mark.long
@pytest.mark.usefixtures("published")
@pytest.mark.parametrize("case", PUBLISHED)
def test_replays_of_published_data_are_unchanged(case):
    """The same of the published Summit log, from row 1,000 on."""
    assert list(differences(load("replays-published.json")[case], measure("replays-published.json", case))) == []


def test_all_replays_are_kept():
    """The files hold these replays and no others."""
    assert load("replays.json").keys() == REPLAYS.keys()
    assert load("replays-published.json").keys() == PUBLISHED.keys()
