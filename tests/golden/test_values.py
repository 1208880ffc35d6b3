"""What counts as a difference, and what the command says of one."""

from __future__ import annotations

import pytest

from tests.golden.values import differences

KEPT = {"events": 5, "work": 1.0, "times": [1, None], "ledger": {"useful": 0.1}, "by": "demand"}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, []),
        ({"work": 1.0 + 4e-13}, []),  # another order of adding up
        ({"work": 1.0 + 4e-12}, ["work: 1.0 -> 1.000000000004"]),
        ({"work": 1}, ["work: 1.0 -> 1"]),  # a number has become a count
        ({"events": 6}, ["events: 5 -> 6"]),
        ({"times": [2, None]}, ["times[0]: 1 -> 2"]),
        ({"times": [1]}, ["times: [1, null] -> [1]"]),
        ({"ledger": {}}, ['ledger/useful: 0.1 -> "absent"']),
        ({"new": True}, ['new: "absent" -> true']),
        ({"by": "pool"}, ['by: "demand" -> "pool"']),
    ],
)
def test_differences(change, found):
    """Counts and texts are compared exactly, floats to 12 digits; what differs is named with both values."""
    assert list(differences(KEPT, KEPT | change)) == found
