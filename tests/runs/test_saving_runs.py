"""Runs of tasks that save: what they write and show."""

from __future__ import annotations

from io import StringIO

import pytest

from bftrainer.campaigns.bound import bound_work
from bftrainer.cli.replay import render_summary
from bftrainer.runs import ReplayConfig, load_inputs, run_replay, write_run
from bftrainer.runs.run_files import read_run
from tests.runs.test_resumable import SAVING


@pytest.fixture(scope="module")
def result():
    return run_replay(tasks=SAVING, solver="dp", max_events=150, baseline=False, forward_time_s=120.0)


def test_what_saves_cost_is_written_and_read(result, tmp_path):
    """It is in the summary, in the ledger of node-time, in both tables, and in what people read."""
    summary = result.summary()
    lost = sum(task.saving_cost for task in result.recording.tasks)
    assert lost > 0
    assert summary["saving_loss_work"] == pytest.approx(lost)
    assert summary["saving_loss_share"] > 0
    assert summary["ledger"]["saving"] > 0
    write_run(result, tmp_path)
    run = read_run(tmp_path)
    assert run.summary["saving_loss_work"] == summary["saving_loss_work"]
    assert result.frame("tasks")["saving_cost"].sum() == pytest.approx(lost)
    head, *rows = ((line.split(",")) for line in (tmp_path / "step-logs.csv").read_text().splitlines())
    booked = result.recording.events["saving_cost"].tolist()
    assert [float(row[head.index("SaveCost")]) for row in rows] == pytest.approx(booked)
    shown = StringIO()
    render_summary(summary, shown)
    assert "saving " in shown.getvalue()


def test_the_ceiling_is_free_of_saves_too():
    """Where changes are free, tasks neither save nor lose anything; all others do less."""
    config = ReplayConfig(tasks=SAVING, solver="dp", forward_time_s=120.0, max_events=60)
    found = bound_work(load_inputs(config), [60.0, 600.0, 3600.0])
    *others, free = found.bounds
    assert free.rescale_share == free.departure_share == 0.0
    assert all(each.work < free.work for each in others)
