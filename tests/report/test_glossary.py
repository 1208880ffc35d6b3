"""Every figure that pages explain exists, and is shown as people read it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer import run_replay
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.report.comparison import figures_of
from bftrainer.report.glossary import GLOSSARY, HEADLINES, format_value
from bftrainer.tasksets import read_task_set


def test_terms_are_fields_of_the_summary():
    """A tuned run of tasks that save and give nodes back, with idle power and carbon, has them all."""
    saving = {"checkpoint_s": 1.0, "checkpoint_interval_s": 20.0}
    tasks = [replace(task, **saving) for task in read_task_set(sample_path(SAMPLE_TUNED_TASKS)).tasks]
    result = run_replay(tasks=tasks, solver="dp", max_events=60, carbon=100.0, idle_power_w=1.0, give_way="chosen")
    assert set(GLOSSARY) <= set(result.summary()) | set(figures_of(result.summary()))
    assert set(HEADLINES) <= set(GLOSSARY)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.9608, "share", "96.08 %"),
        (90.0, "s", "1.5 min"),
        (0.0, "s", "0 s"),
        (400000.0, "s", "4.63 d"),
        (0.0042, "wall_s", "4.2 ms"),
        (3.6e9, "J", "1 MWh"),
        (7.2e13, "J", "20,000 MWh"),
        (-5400.0, "s", "-1.5 h"),
        (1234567.0, "count", "1,234,567"),
        (12.34, "rate", "12.34"),
        (None, "share", "-"),
    ],
)
def test_figures_are_shown_with_their_unit(value, unit, text):
    """Three digits and the unit that suits the size."""
    assert format_value(value, unit) == text
