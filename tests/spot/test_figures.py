"""Figures say what the numbers say; equal ones are equal bytes."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from bftrainer.nodelogs.availability_trace import AvailabilityTrace, CountTrace, churned
from bftrainer.report.drawing import plot_counts, render_figure
from bftrainer.spot import CheckpointedTraining, run_figures, simulate, trace_statistics
from bftrainer.spot.run_plots import run_figure, trace_figure
from bftrainer.spot.statistics import Survival
from bftrainer.tasksets.measurements import TrainingProfile

S = 10**9
LOG = churned((0, 7200 * S), 4, [(1800 * S, 1, 0), (3600 * S, 2, 3)])
SETTINGS = CheckpointedTraining(TrainingProfile((2,), (10.0,), 60.0, 30.0), depth=2)
RUN = simulate(LOG, SETTINGS)


def test_counts_are_drawn_in_hours():
    """The step line has the counts over hours."""
    line = plot_counts(CountTrace.of(LOG)).lines[0]
    assert line.get_xdata().tolist() == [0.0, 0.5, 1.0, 2.0]
    assert line.get_ydata().tolist() == [4, 3, 4, 4]


def test_survival_starts_at_one():
    """The curve falls from 1 at its times; a trace without lifetimes has an empty one."""
    _, below = trace_figure(None, Survival(np.array([10.0, 20.0]), np.array([0.5, 0.0]))).axes
    assert below.lines[0].get_ydata().tolist() == [1.0, 0.5, 0.0]
    assert not trace_figure(None, Survival(np.empty(0), np.empty(0))).axes[1].lines


def test_a_run_is_drawn():
    """Active nodes over the hours of the run, and bars of shares of time that fill the axis and say what they are."""
    above, below = run_figure(RUN, run_figures(RUN)).axes
    outline = above.collections[0].get_paths()[0].vertices
    assert outline[:, 1].max() == max(phase.world_size for phase in RUN.phases)
    assert outline[:, 0].max() == 2.0
    assert sum(bar.get_width() for bar in below.patches) == pytest.approx(100.0)
    assert [text.get_text().split()[0] for text in below.get_legend().texts] == [
        *("training", "redoing", "reconfiguring", "stalled"),
    ]


def test_whole_figures_are_drawn():
    """Those of a trace and of a run are well-formed, and name what they show."""
    statistics = trace_statistics(AvailabilityTrace.of_log(LOG))
    of_trace = trace_figure(CountTrace.of(LOG), statistics.survival)
    of_run = run_figure(RUN, run_figures(RUN))
    for figure, said in ((of_trace, "lifetime (s)"), (of_run, "reconfiguring")):
        texts = list(ElementTree.fromstring(render_figure(figure, "svg")).itertext())
        assert any(said in text for text in texts)
