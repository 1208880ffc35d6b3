"""Every figure that pages explain exists, and is shown as people read it."""

from dataclasses import replace

import pytest

from bftrainer import run_replay
from bftrainer.errors import SettingsError
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.report.comparison import figures_of
from bftrainer.report.glossary import check_metrics, format_value, suggest_metrics
from bftrainer.tasksets import read_task_set
from bftrainer.terms import COMPARED, GLOSSARY


def test_terms_are_fields_of_the_summary():
    """A tuned run of tasks that save and give nodes back, with idle power and carbon, has them all."""
    saving = {"checkpoint_s": 1.0, "checkpoint_interval_s": 20.0}
    tasks = [replace(task, **saving) for task in read_task_set(sample_path(SAMPLE_TUNED_TASKS)).tasks]
    result = run_replay(tasks=tasks, solver="dp", max_events=60, carbon=100.0, idle_power_w=1.0, give_way="chosen")
    assert set(GLOSSARY) <= set(result.summary()) | set(figures_of(result.summary()))
    assert set(COMPARED) <= set(GLOSSARY)


def test_figures_are_shown_with_their_unit():
    """Three digits and the unit that suits the size."""
    shown = {
        (0.9608, "share"): "96.08 %",
        (0.0, "s"): "0 s",
        (400000.0, "s"): "4.63 d",
        (-5400.0, "s"): "-1.5 h",
        (0.0042, "wall_s"): "4.2 ms",
        (7.2e13, "J"): "20,000 MWh",
        (1234567.0, "count"): "1,234,567",
        (12.34, "rate"): "12.34",
        (None, "share"): "-",
    }
    assert {key: format_value(*key) for key in shown} == shown


def test_unknown_metrics_are_answered_by_the_words_of_pages():
    """Whether a key or words were typed; of a key without words, the key; else where all are listed."""
    assert suggest_metrics("eficiency", GLOSSARY).startswith(" Did you mean 'efficiency U'")
    assert suggest_metrics("Idel nodes", ["eq_nodes", "x"]) == " Did you mean 'idle nodes'?"
    assert suggest_metrics("below_large_idle.ocupancy", ["below_large_idle.occupancy"]).endswith("idle.occupancy'?")
    assert suggest_metrics("happiness", GLOSSARY) == " `bftrainer plot --list` names all."
    with pytest.raises(SettingsError, match="Expected a metric to improve, got 'wall_s'"):
        check_metrics(["wall_s"])
    for names in (("work_done", "work_done"), ("work_done", "rescales", "preemptions")):
        with pytest.raises(SettingsError, match="one metric or two different ones"):
            check_metrics(names)
