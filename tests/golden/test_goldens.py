"""Replays and imports give what they gave: counts, hand-overs and transitions exactly, sums of floats to 12 digits."""

import pytest

from tests.golden.imports import IMPORTS
from tests.golden.measures import GOLDENS, measure
from tests.golden.values import differences, load

CASES = [
    pytest.param(name, case, marks=[getattr(pytest.mark, golden.times[case])] if case in golden.times else [])
    for name, golden in GOLDENS.items()
    for case in golden.cases
]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_values_are_unchanged(name, case, request):
    """Figures of a replay or an import are those that are kept; those of shared data where they are here."""
    if GOLDENS[name].shared:
        request.getfixturevalue("published")
    assert list(differences(load(name)[case], measure(name, case))) == []


@pytest.mark.parametrize("name", GOLDENS)
def test_all_cases_are_kept(name):
    """A file holds its cases and no others, and of the small imports all but one are accepted."""
    kept = load(name)
    assert kept.keys() == GOLDENS[name].cases.keys()
    refused = ["page of slurm, not trusted"] if name == "imports.json" else []
    assert [case for case in kept if "status" in kept[case]] == refused or name == "imports-shared.json"


def test_all_forms_say_the_same():
    """One history of a machine gives one idle time in all forms, those that tell of its downtimes and the others."""
    kept = load("imports.json")
    forms = [case for case in IMPORTS if kept[case].get("window") == ["2026-09-01T00:01:40Z", "2026-09-01T00:06:40Z"]]
    assert len(forms) > 30
    assert {round(3600 * kept[case]["idle_node_h"]) for case in forms} == {1052, 1082}


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
