"""docs/spot.md names what the commands take and give."""

from __future__ import annotations

import pytest

from benchmarks.published import ROOT
from bftrainer.cli.logs.trace import generate, stats
from bftrainer.cli.spot import simulate, sweep
from bftrainer.nodelogs.availability_trace import AvailabilityTrace, churned
from bftrainer.spot import CheckpointedTraining, trace_statistics
from bftrainer.spot import simulate as simulate_training
from bftrainer.spot.run import load_profile, summarise_run

PAGE = (ROOT / "docs" / "spot.md").read_text(encoding="utf-8")
LOG = churned((0, 60 * 10**9), 2, [])


@pytest.mark.parametrize("command", [generate, simulate, stats, sweep], ids=lambda command: command.name)
def test_every_option_is_described(command):
    """Each option of each command stands on the page."""
    options = [max(option.opts, key=len) for option in command.params if option.opts[0].startswith("-")]
    assert [name for name in options if f"`{name}" not in PAGE and f" {name}" not in PAGE] == []


def test_every_figure_of_a_trace_is_described():
    """Each key of `trace stats --json` stands on the page."""
    found = trace_statistics(AvailabilityTrace.of_log(LOG)).as_json()
    assert [name for name in found if f"`{name}`" not in PAGE] == []


def test_every_figure_of_a_run_is_described():
    """Each key of a run's summary stands on the page."""
    settings = CheckpointedTraining(load_profile(None)[0])
    found = summarise_run(simulate_training(LOG, settings), None, {})
    assert [name for name in found if f"`{name}`" not in PAGE] == []
