"""What counts as a difference, and what the command says of one."""

from tests.golden.values import differences

KEPT = {"events": 5, "work": 1.0, "times": [1, None], "ledger": {"useful": 0.1}, "by": "demand"}


def test_differences():
    """Counts and texts are compared exactly, floats to 12 digits; what differs is named with both values."""
    for change, told in (
        ({"work": 1.0 + 4e-13}, []),  # another order of adding up
        ({"work": 1.0 + 4e-12}, ["work: 1.0 -> 1.000000000004"]),
        ({"work": 1}, ["work: 1.0 -> 1"]),  # a number has become a count
        ({"times": [2, None]}, ["times[0]: 1 -> 2"]),
        ({"ledger": {}}, ['ledger/useful: 0.1 -> "absent"']),
        ({"by": "pool", "new": True}, ['by: "demand" -> "pool"', 'new: "absent" -> true']),
    ):
        assert list(differences(KEPT, KEPT | change)) == told
