"""`bftrainer bso quickstart`: a real job whose batch size changes from run to run, until one is chosen."""

from __future__ import annotations

import pytest

from tests.cli.conftest import assert_matches

pytest.importorskip("sklearn")


@pytest.mark.long
def test_batch_sizes_are_tried_and_one_is_chosen(call, here):
    """Each run has its line; the second one tries another batch size; nothing is left behind."""
    before = sorted(here.iterdir())
    done = call("bso", "quickstart", "--runs", 2, "--json")
    assert done.status == 0, done.err
    assert_matches(r"run +1: batch size +16, +\d+ epochs, .* J: reached the target", done.err)
    assert_matches(r"run +2: batch size +8, ", done.err)
    assert [each["batch_size"] for each in done.json["batch_sizes"]] == [8, 16]
    assert done.json["default"] == 16
    assert done.json["chosen"] in (8, 16)
    assert sorted(here.iterdir()) == before
