"""Charts hold what runs recorded."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace

import numpy as np
import pytest

from bftrainer.report import timeline
from bftrainer.report.drawing import axes_or_new, svg_of
from bftrainer.report.finished_run import FinishedRun, Holdings, short_names
from bftrainer.report.ledger import PARTS
from bftrainer.report.run_figures import draw_losses, losses_picture
from bftrainer.report.timeline import time_charts, timeline_of
from bftrainer.runs.run_files import read_run, read_runs
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
        "group": np.full(count, "", dtype=object),
        "submitted_s": np.zeros(count),
        "started_s": started,
        "completed_s": started + 10.0,
        "node_s": 10.0 * (numbers + 1),
        "work_done": np.ones(count),
        "work_total": np.ones(count),
        "preemptions": np.zeros(count),
        "rescales": np.zeros(count),
        "energy_j": np.full(count, np.nan),
    }
    held = np.column_stack((numbers + 1, 0 * numbers)).ravel()
    summary = {
        "nodes_total": 9,
        "window_s": 20.0 * count,
        "window_start": "2026-01-01T00:00:00Z",
        "window_end": "2026-01-01T00:00:00Z",
    }
    holdings = Holdings(np.column_stack((started, started + 10.0)).ravel(), np.repeat(numbers, 2), held)
    steps = dict.fromkeys(("time_s", "idle", "used"), np.zeros(1))
    return FinishedRun("made-up", summary, steps, decisions_of([]), tasks, holdings, None)


def lines(runs, key):
    """Lines of a chart, by name."""
    return {line.name: line for line in next(chart for chart in time_charts(runs) if chart.key == key).lines}


def unpacked(runs):
    """Data of the page's script."""
    return json.loads(zlib.decompress(base64.b64decode(timeline_of(runs).data)))


def test_pool_is_the_step_log(runs):
    """Idle and used nodes at each event, the last ones until the end."""
    run = runs[0]
    found = lines([run], "pool")
    assert list(found) == ["idle", "used"]
    assert found["idle"].value.tolist() == [*run.steps["idle"].tolist(), int(run.steps["idle"][-1])]
    assert found["used"].value[:-1].tolist() == run.steps["used"].tolist()
    assert found["idle"].time[-1] == run.window_s


def test_each_run_has_its_lines(runs):
    """Idle nodes lie below used ones, and names say whose they are."""
    assert list(lines(runs, "pool")) == ["a: idle", "b: idle", "a: used", "b: used"]


def test_long_series_keep_their_outline(runs, monkeypatch):
    """Of more points than are visible fewer are left, the largest among them."""
    monkeypatch.setattr(timeline, "MOST_POINTS", 1)
    run = runs[0]
    long = np.linspace(0.0, run.window_s, 100_000)
    steps = {"time_s": long, "idle": np.arange(long.size), "used": np.zeros(long.size)}
    idle = lines([replace(run, steps=steps)], "pool")["idle"].value
    assert idle.size < 5_000
    assert idle.max() == long.size - 1


def test_spans_by_hand():
    """Each task's interval begins and ends with its holding, and has its nodes."""
    spans = unpacked([roster(3)])["runs"][0]["spans"]
    assert spans == {"begin": [0, 20, 40], "length": [10, 10, 10], "task": [0, 1, 2], "nodes": [1, 2, 3]}


def test_many_tasks_are_all_there():
    """Of 10,000 tasks each has its name and its intervals."""
    data = unpacked([roster(10_000)])["runs"][0]
    assert data["tasks"] == [f"J{number}" for number in range(10_000)]
    assert len({*data["spans"]["task"]}) == 10_000


def test_what_is_left_out_is_told(runs, monkeypatch):
    """More intervals than a page holds are joined, and a note says so."""
    monkeypatch.setattr(timeline, "MOST_SPANS", 40)
    (note,) = timeline_of(runs[:1]).notes
    assert note.startswith("a: for the screen, ")
    assert "intervals of tasks are joined to" in note


def test_completions_end_with_all_that_are_done(runs):
    """Of one run submissions, starts and completions; of several, completions."""
    found = lines(runs[:1], "completion")
    assert list(found) == ["submitted", "started", "completed"]
    assert found["completed"].value[-1] == runs[0].summary["tasks_completed"]
    assert list(lines(runs, "completion")) == ["a: completed", "b: completed"]


def test_shares_add_up(runs):
    """The parts of the ledger are all idle node-time, and the bars of each run show them."""
    assert sum(runs[0].summary["ledger"].get(part, 0.0) for part in PARTS) == pytest.approx(1.0)
    ax = axes_or_new(None)
    draw_losses(runs, ax)
    drawn = np.sum([[bar.get_width() for bar in bars] for bars in ax.containers], axis=0)
    assert drawn == pytest.approx([100.0, 100.0], abs=1e-4)
    assert len({bars[0].get_hatch() for bars in ax.containers}) == len(ax.containers)


def test_power_and_cap(tuned, runs):
    """Drawn power in kW, and the cap; no chart where nobody knows."""
    found = lines([tuned], "power")
    assert found["drawn"].value.max() == pytest.approx(tuned.summary["peak_power_w"] / 1e3, abs=1e-4)
    assert set(found["cap"].value) == {1e4}
    assert "power" not in {chart.key for chart in time_charts(runs)}


def test_submissions_after_the_window_are_not_drawn():
    """A task that is to come in years does not squeeze the window into a line."""
    run = roster(2)
    run.tasks["submitted_s"][1] = 1e9
    found = lines([run], "completion")
    assert max(line.time.max() for line in found.values()) == run.window_s
    assert found["submitted"].value[-1] == 1


def test_drawings_without_data_say_so(runs):
    """Where no run has a ledger, the drawing has words instead."""
    bare = replace(runs[0], summary={**runs[0].summary, "ledger": None})
    ax = axes_or_new(None)
    draw_losses([bare, bare], ax)
    assert [text.get_text() for text in ax.texts] == ["No idle node-time, or no ledger of it."]


def decisions_of(solve_s):
    """Proven decisions that took so long."""
    count = len(solve_s)
    held = np.array(["optimal"] * count, dtype=object)
    return {"time_s": np.arange(float(count)), "solve_s": np.array(solve_s), "held": held, "gap": np.zeros(count)}


def test_names_of_runs_stay_short_and_apart():
    """Long ones are cut, and those that are alike then have numbers."""
    names = [
        run.name
        for run in short_names([replace(roster(2), name=name) for name in ("<b>x", "n" * 50 + "1", "n" * 50 + "2")])
    ]
    assert names[0] == "1. <b>x"
    assert len(set(names)) == 3
    assert max(map(len, names)) < 30


def test_names_are_no_markup_in_drawings(runs):
    """Names of runs that look like elements or formulas are drawn as text."""
    named = [replace(run, name=name) for run, name in zip(runs, ("<b>$x_", "&amp;</svg>"), strict=True)]
    picture = losses_picture(named).svg()
    assert "<b>" not in picture
    assert picture.count("</svg>") == 1


def test_drawings_have_the_colours_of_the_page():
    """What is drawn takes its colours from the page's style, so that it can be read in the dark."""
    picture = svg_of(lambda ax: ax.plot([1, 2]), "key", 2.0)
    assert "var(--blue," in picture
    assert "var(--ink," in picture
