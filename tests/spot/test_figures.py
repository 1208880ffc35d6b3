"""Figures say what the numbers say; equal ones are equal bytes."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from bftrainer.nodelogs.availability_trace import CountTrace, churned
from bftrainer.report.drawing import plot_counts, rendered
from bftrainer.spot import CheckpointedTraining, run_figures, simulate
from bftrainer.spot.run_plots import run_figure, trace_figure
from bftrainer.spot.statistics import Survival
from bftrainer.tasksets.measurements import TrainingProfile

S = 10**9
LOG = churned((0, 7200 * S), 4, [(1800 * S, 1, 0), (3600 * S, 2, 3)])
SETTINGS = CheckpointedTraining(TrainingProfile((2,), (10.0,), 60.0, 30.0), depth=2)
RUN = simulate(LOG, SETTINGS)


def test_traces_are_drawn():
    """The step line has the counts over hours; survival falls from 1 at its times, and may be empty."""
    line = plot_counts(CountTrace.of(LOG)).lines[0]
    assert line.get_xdata().tolist() == [0.0, 0.5, 1.0, 2.0]
    assert line.get_ydata().tolist() == [4, 3, 4, 4]
    _, below = trace_figure(None, Survival(np.array([10.0, 20.0]), np.array([0.5, 0.0]))).axes
    assert below.lines[0].get_ydata().tolist() == [1.0, 0.5, 0.0]
    assert not trace_figure(None, Survival(np.empty(0), np.empty(0))).axes[1].lines


def test_a_run_is_drawn():
    """Active nodes over the hours of the run, and bars of shares of time that fill the axis and say what they are."""
    figure = run_figure(RUN, run_figures(RUN))
    assert any("reconfiguring" in text for text in ElementTree.fromstring(rendered(figure, "svg")).itertext())
    above, below = figure.axes
    outline = above.collections[0].get_paths()[0].vertices
    assert outline[:, 1].max() == max(phase.world_size for phase in RUN.phases)
    assert outline[:, 0].max() == 2.0
    assert sum(bar.get_width() for bar in below.patches) == pytest.approx(100.0)
    assert [text.get_text().split()[0] for text in below.get_legend().texts] == [
        *("training", "redoing", "reconfiguring", "stalled"),
    ]
