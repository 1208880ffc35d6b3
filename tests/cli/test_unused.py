"""Options that change nothing are refused, all in one manner, before anything is done."""

from __future__ import annotations

import pytest

from tests.cli.conftest import check_refusal
from tests.tiny import contents

SWEEP = """\
schema = 1
[base]
node_log = "evt.pkl"
tasks = "tasks.toml"
baseline = false
"""
OF_SWEEPS = {
    "[grid]\nseed = [1, 2]\n": (7, "seed (nothing is drawn without --initial random, tuned tasks or learned curves)"),
    "power_options = 'all'\n": (6, "power_options (no task is tuned)"),
    "pue = 1.5\n": (6, "pue (no power is known without tuned tasks or --idle-power)"),
}


@pytest.mark.parametrize(("text", "line", "said"), [(text, *told) for text, told in OF_SWEEPS.items()])
def test_options_of_sweeps_that_have_no_effect(call, here, text, line, said):
    """They are refused in the file as on the command line, with their line, before anything is written."""
    (here / "sweep.toml").write_text(SWEEP + text)
    before = contents(here)
    done = call("sweep", "sweep.toml")
    check_refusal(done)
    assert f"sweep.toml: line {line}: Options that have no effect: {said}" in done.err
    assert contents(here) == before


def test_options_of_sweeps_that_have_an_effect_somewhere(call, here):
    """What has an effect on one point is no slip, though it has none on another one."""
    text = '[grid]\nsolver = ["highs", "dp"]\n[[point]]\ninitial = "random"\nseed = 3\nsolver = "dp"\n'
    (here / "sweep.toml").write_text(SWEEP + text)
    assert call("sweep", "sweep.toml", "--workers", 1).status == 0
