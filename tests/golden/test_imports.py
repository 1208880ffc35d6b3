"""Imports give the node logs that they gave, and drop what they dropped."""

from __future__ import annotations

import pytest

from tests.golden.imports import IMPORTS, MINUTES_LONG, SHARED
from tests.golden.measures import measure
from tests.golden.values import differences, load

SHARED_CASES = [pytest.param(case, marks=[pytest.mark.slow] if case in MINUTES_LONG else []) for case in SHARED]


@pytest.mark.parametrize("case", IMPORTS)
def test_imports_are_unchanged(case):
    """Nodes, transitions, idle time and counts of an import are those that are kept."""
    assert list(differences(load("imports.json")[case], measure("imports.json", case))) == []


@pytest.mark.usefixtures("sample_logs")
@pytest.mark.parametrize("case", SHARED_CASES)
def test_imports_of_shared_logs_are_unchanged(case):
    """The same of real logs."""
    assert list(differences(load("imports-shared.json")[case], measure("imports-shared.json", case))) == []


def test_all_imports_are_kept():
    """The files hold these imports and no others, and of the small ones all but one are accepted."""
    kept = load("imports.json")
    assert kept.keys() == IMPORTS.keys()
    assert load("imports-shared.json").keys() == SHARED.keys()
    assert [case for case in kept if "status" in kept[case]] == ["page of slurm, not trusted"]


def test_all_forms_say_the_same():
    """One history of a machine gives one idle time in all forms, those that tell of its downtimes and the others."""
    kept = load("imports.json")
    forms = [case for case in IMPORTS if kept[case].get("window") == ["2026-09-01T00:01:40Z", "2026-09-01T00:06:40Z"]]
    assert len(forms) > 30
    assert {round(3600 * kept[case]["idle_node_h"]) for case in forms} == {1052, 1082}
