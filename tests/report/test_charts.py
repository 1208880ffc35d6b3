"""Charts hold what runs recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bftrainer.model.records import FinishedRun, Holdings
from bftrainer.report import charts
from bftrainer.report.charts import (
    completion_chart,
    decision_chart,
    fragment_chart,
    gantt_chart,
    ledger_share,
    loss_chart,
    node_classes,
    pool_chart,
    power_chart,
)
from bftrainer.report.ledger import PARTS
from bftrainer.runs.config import ReplayConfig
from bftrainer.runs.finished import read_run, read_runs
from bftrainer.runs.run import load_inputs
from tests.finished import write_sample_run, write_tuned_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of one log."""
    folder = tmp_path_factory.mktemp("charts")
    return read_runs([write_sample_run(folder / "a"), write_sample_run(folder / "b", events=100)])


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A run that knows what nodes draw, under a cap."""
    folder = tmp_path_factory.mktemp("power")
    return read_run(write_tuned_run(folder / "run", solver="highs", power_cap=1e7, events=60))


def roster(count, *, name="J{}"):
    """So many tasks, of which number i holds i + 1 nodes for 10 s from second 20 i on."""
    numbers = np.arange(count)
    started = 20.0 * numbers
    tasks = {
        "name": np.array([name.format(number) for number in numbers], dtype=object),
        "submitted_s": np.zeros(count),
        "started_s": started,
        "completed_s": started + 10.0,
        "node_s": 10.0 * (numbers + 1),
    }
    held = np.column_stack((numbers + 1, 0 * numbers)).ravel()
    holdings = Holdings(np.column_stack((started, started + 10.0)).ravel(), np.repeat(numbers, 2), held)
    return FinishedRun("made-up", {"window_s": 20.0 * count}, None, None, tasks, holdings, None)


def test_pool_is_the_step_log(runs):
    """Idle and used nodes at each event, the last ones until the end."""
    run = runs[0]
    idle, used = pool_chart([run]).traces
    assert (idle["name"], used["name"]) == ("idle", "used")
    assert idle["y"] == [*run.steps["idle"].tolist(), int(run.steps["idle"][-1])]
    assert used["y"][:-1] == run.steps["used"].tolist()
    assert idle["x"][-1] == pytest.approx(run.window_s / 3600, abs=1e-5)


def test_runs_of_one_log_share_its_idle_nodes(runs):
    """They are drawn once, those of the run that lasts longest; used nodes are drawn for each run."""
    assert [trace["name"] for trace in pool_chart(runs).traces] == ["idle", "a: used", "b: used"]


def test_what_is_left_out_is_told(runs, monkeypatch):
    """Thinned lines have fewer points, and the note says how many."""
    monkeypatch.setattr(charts, "WIDTH", 20)
    chart = pool_chart(runs[:1])
    drawn = len(chart.traces[0]["x"]) - 1
    assert drawn < 300
    assert f"{drawn} of 300 points of a" in chart.note


def test_gantt_by_hand():
    """A row a task in order of its start; the piece of each begins and ends with its holding."""
    chart = gantt_chart(roster(3), 1)
    pieces = {trace["y"][0]: trace["x"][:2] for trace in chart.traces}
    assert pieces == {0: [0, 0.0028], 1: [0.0056, 0.0083], 2: [0.0111, 0.0139]}
    assert [trace["name"] for trace in chart.traces] == ["1 node", "2 nodes", "3 nodes"]
    assert chart.layout["yaxis"]["ticktext"] == ["J0", "J1", "J2"]
    assert chart.note == ""


def test_gantt_of_many_tasks_is_thinned():
    """Of 10,000 tasks those with the most node-time stay, without names, and the note says so."""
    chart = gantt_chart(roster(10_000), 1)
    rows = {row for trace in chart.traces for row in trace["y"] if row is not None}
    assert rows == set(range(1000))
    assert "the 1,000 tasks of 10,000 with the most node-time" in chart.note
    assert "ticktext" not in chart.layout["yaxis"]


def test_gantt_intervals_are_joined(monkeypatch):
    """More intervals than a screen shows become fewer, and the note says so."""
    monkeypatch.setattr(charts, "MOST_SPANS", 2)
    run = roster(1)
    holdings = Holdings(np.arange(12.0) * 1e-4, np.zeros(12, dtype=int), np.arange(12) % 2)
    run = FinishedRun(run.name, run.summary, None, None, run.tasks, holdings, None)
    chart = gantt_chart(run, 1)
    assert "6 intervals are joined to 1" in chart.note


def test_names_are_no_markup():
    """Names that look like HTML reach the chart as text, long ones cut."""
    chart = gantt_chart(roster(1, name="<b>bold</b> &amp;" + "x" * 40), 1)
    assert chart.layout["yaxis"]["ticktext"] == ["&lt;b&gt;bold&lt;/b&gt; &amp;amp;xx…"]
    assert "<b>" not in chart.traces[0]["text"][0]


@pytest.mark.parametrize(
    ("most", "labels"), [(1, ["1 node"]), (6, ["1 to 2 nodes", "3 nodes", "4 to 5 nodes", "6 nodes"])]
)
def test_every_count_has_a_class(most, labels):
    """Each count from 1 to the most is in exactly one class."""
    counts = np.arange(1.0, most + 1)
    classes = node_classes(counts)
    assert [label for _, label, _ in classes] == labels
    assert sum(mask.astype(int) for mask, _, _ in classes).tolist() == [1] * most


def test_completions_end_with_all_that_are_done(runs):
    """Of one run submissions, starts and completions; of several, completions."""
    traces = completion_chart(runs[:1]).traces
    assert [trace["name"] for trace in traces] == ["submitted", "started", "completed"]
    assert traces[2]["y"][-1] == runs[0].summary["tasks_completed"]
    assert [trace["name"] for trace in completion_chart(runs).traces] == ["a: completed", "b: completed"]


def test_shares_add_up(runs):
    """The parts of the ledger are all idle node-time, and the bars show them."""
    assert sum(ledger_share(runs[0], part) for part in PARTS) == pytest.approx(1.0)
    bars = {trace["name"]: trace["x"] for trace in loss_chart(runs).traces}
    assert bars["useful"] == [pytest.approx(100 * ledger_share(run, "useful"), abs=1e-4) for run in runs]


def test_decisions_are_all_counted(runs):
    """The bars hold every decision once."""
    assert sum(sum(trace["y"]) for trace in decision_chart(runs[:1]).traces) == runs[0].summary["decisions"]


def test_power_and_cap(tuned, runs):
    """Drawn power in kW, and the cap; no chart where nobody knows."""
    drawn, cap = power_chart([tuned]).traces
    assert max(drawn["y"]) == pytest.approx(tuned.summary["peak_power_w"] / 1e3, abs=1e-4)
    assert set(cap["y"]) == {1e4}
    assert power_chart(runs) is None


def test_fragments_rise():
    """The share of intervals that are over by a time, in percent over minutes."""
    trace = fragment_chart([("log", np.array([60.0, 120.0]), np.array([0.5, 0.0]))]).traces[0]
    assert (trace["x"], trace["y"]) == ([1, 2], [50, 100])


def test_submissions_after_the_window_are_not_drawn():
    """A task that is to come in years does not squeeze the window into a line."""
    run = roster(2)
    run.tasks["submitted_s"][1] = 1e9
    chart = completion_chart([run])
    assert max(hours for trace in chart.traces for hours in trace["x"]) == pytest.approx(run.window_s / 3600, abs=1e-5)
    submitted = next(trace for trace in chart.traces if trace["name"] == "submitted")
    assert submitted["y"][-1] == 1


def test_charts_without_data_say_so(tmp_path):
    """Where no task ran and nothing was decided, the chart has words instead."""
    run = read_run(write_sample_run(tmp_path / "idle", tasks=late_tasks()))
    assert gantt_chart(run, 1).layout["annotations"][0]["text"] == "No task held nodes."
    assert decision_chart([run]).layout["annotations"][0]["text"] == "No decision was made."


def late_tasks():
    """Tasks of the sample that nobody submits within its log."""
    tasks = load_inputs(ReplayConfig(solver="dp")).tasks
    return [replace(task, submit_s=1e9) for task in tasks[:2]]


def test_long_decisions_are_drawn_where_they_are():
    """A decision of 500 s is not told as one of 100 s."""
    run = roster(2)
    chart = decision_chart([replace(run, decisions=decisions_of([1e-4, 500.0]))])
    low, high = chart.traces[0]["x"]
    assert low == pytest.approx(0.1, rel=0.2)
    assert high == pytest.approx(500e3, rel=0.2)


def decisions_of(solve_s):
    """Proven decisions that took so long."""
    return {"solve_s": np.array(solve_s), "held": np.array(["optimal"] * len(solve_s), dtype=object)}


def test_names_of_runs_stay_short_and_apart():
    """Long ones are cut, those that are alike then have numbers, and none is markup."""
    runs = [replace(roster(2), name=name) for name in ("<b>x", "n" * 50 + "1", "n" * 50 + "2")]
    names = [trace["y"][0] for trace in loss_chart(runs).traces[:1]]
    assert names == ["1. &lt;b&gt;x: idle node-time"]
    assert len({y for trace in loss_chart(runs).traces for y in trace["y"]}) == 3
    assert max(len(y) for trace in loss_chart(runs).traces for y in trace["y"]) < 45


def test_what_is_left_out_of_curves_is_told():
    """Of many idle intervals a curve has fewer points, and says so."""
    time_s = np.arange(1.0, 5001.0)
    chart = fragment_chart([("log", time_s, 1 - time_s / 5000)])
    assert len(chart.traces[0]["x"]) == 1000
    assert chart.note == "For the screen, the curve is drawn from 1,000 of 5,000 points of log."
    assert fragment_chart([("log", time_s[:9], 1 - time_s[:9] / 5000)]).note == ""
