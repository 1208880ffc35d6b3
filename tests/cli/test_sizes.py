"""Counts and lengths out of their range are refused, by the name of the option as it is typed."""

from __future__ import annotations

import click
import pytest

from bftrainer.cli._shared.group import cli
from tests.cli.conftest import check_refusal
from tests.tiny import contents

REFUSED = {
    "zeus simulate --recurrences 1000000000": "'--recurrences': 1000000000 is not in the range 1<=x<=1000000.",
    "zeus compare --seeds 0": "'--seeds': 0 is not in the range 1<=x<=1000000.",
    "tasks generate --scenario hpo -o t.toml --count 0": "'--count': 0 is not in the range 1<=x<=1000000.",
    "advise --trials 0": "'--trials': 0 is not in the range 1<=x<=1000000.",
    "sweep s.toml --workers 1000000000": "'--workers': 1000000000 is not in the range 1<=x<=1000.",
    "spot sweep --days 0": "'--days': 0.0 is not in the range x>0.",
    "replay -Tfwd -5": "'-Tfwd' / '--forward-time': -5.0 is not in the range x>0.",
    "replay --max-events 0": "'--max-events': 0 is not in the range x>=1.",
    "forecast --deadline 5d -maxJ 0": "'-maxJ' / '--max-tasks': 0 is not in the range x>=1.",
}


@pytest.mark.parametrize(("words", "said"), REFUSED.items(), ids=REFUSED.keys())
def test_sizes_out_of_range(call, here, words, said):
    """One line names the option as it is typed and its range, and nothing is written."""
    before = contents(here)
    done = call(*words.split())
    check_refusal(done)
    assert f"Invalid value for {said}" in done.err
    assert contents(here) == before


def test_numbers_that_nothing_foresaw(monkeypatch, call):
    """What follows from numbers may be too large although each of them is fine: that is bad input, in one line."""

    def grows(*_, **__):
        return float(10**400)

    monkeypatch.setattr(cli.get_command(click.Context(cli), "convert"), "callback", grows)
    check_refusal(call("convert", "evt.pkl", "out.csv"))
