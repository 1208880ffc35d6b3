"""More tasks at once: tried by short replays where too few of them limited a run."""

from __future__ import annotations

import pytest

from bftrainer.campaigns import bound
from bftrainer.campaigns.bound import LEVELS, try_more_tasks
from bftrainer.model import ScalingCurve, TaskSpec
from bftrainer.report.glossary import more_tasks_in_words
from bftrainer.runs import ReplayConfig, run_replay
from tests.report.test_ledger import log_of


def run(max_tasks=1, **options):
    """An hour of eight idle nodes, and more tasks of two nodes than are admitted."""
    tasks = [TaskSpec(f"J{number}", 1, 2, 1e6, ScalingCurve.linear(1.0, 2)) for number in range(8)]
    log = log_of([(node, 0, 3600) for node in range(8)], 3600, 8)
    return run_replay(config=ReplayConfig(log, tasks, solver="dp", max_tasks=max_tasks, **options))


def test_more_tasks_use_what_one_leaves():
    """One task of two nodes leaves six of eight free, which 30 at once hold: four times the work, to the digit."""
    result = try_more_tasks(run())
    summary = result.summary()
    levels = summary["more_tasks"]["levels"]
    assert [*levels] == [str(level) for level in LEVELS]
    assert levels["30"]["work_done"] == pytest.approx(4 * summary["work_done"])
    assert (
        more_tasks_in_words(summary) == "30 would have done 300.00 % more work, 70 would have done 300.00 % more work"
    )


def test_runs_that_are_not_limited_are_left_as_they_are():
    """Where all nodes are held, where a comparison is not asked for, and where as many run already."""
    for result in (run(max_tasks=8), run(baseline=False), run(max_tasks=70)):
        assert try_more_tasks(result) is result
        assert "more_tasks" not in result.summary()


def test_large_runs_get_the_command_instead(monkeypatch):
    """Beyond a number of events times tasks nothing is replayed, whatever the clock says."""
    monkeypatch.setattr(bound, "MOST_WORK", 1)
    monkeypatch.setattr(bound, "run_replay", lambda **_: pytest.fail("replayed"))
    summary = try_more_tasks(run()).summary()
    assert summary["more_tasks"] == {"levels": {}}
    assert "try a larger -maxJ, as 30 or 70" in more_tasks_in_words(summary)
