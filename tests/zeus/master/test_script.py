"""What the master says in the environment, the script reads; reports of scripts are never guessed at."""

from __future__ import annotations

import math
import os

import pytest

from bftrainer.errors import TuningError, TuningInputError
from bftrainer.zeus.master.script import RunEnvironment, TrainingReport, read_report, write_report


def test_what_is_said_is_read():
    """All settings go through the environment, bit for bit."""
    environment = RunEnvironment(
        monitor_path="/m",
        max_power_w=123.4,
        gpus=2,
        observer_mode=True,
        profile_warmup_iters=3,
        profile_measure_iters=7,
        set_power_limits=True,
        target_metric=0.1 + 0.2,
        log_dir="/logs",
        job_id="rec03+try01",
        cost_threshold=677.2910851893278,
        eta_knob=0.3,
    )
    assert RunEnvironment.read(environment.variables()) == environment
    assert environment.report_path(32).name == "rec03+try01+bs32.train.json"


def test_published_defaults():
    """All but the target metric may be missing; true and false have any case."""
    environment = RunEnvironment.read({"ZEUS_TARGET_METRIC": "0.5"})
    assert environment == RunEnvironment(target_metric=0.5)
    assert (environment.log_dir, environment.job_id, environment.cost_threshold) == ("zeus_log", "zeus", math.inf)
    assert (environment.profile_warmup_iters, environment.profile_measure_iters) == (10, 40)
    assert (environment.observer_mode, environment.set_power_limits, environment.measure) == (False, False, "auto")
    for text in ("true", "TRUE", "False"):
        environment = RunEnvironment.read({"ZEUS_TARGET_METRIC": "0.5", "ZEUS_USE_OPTIMAL_PL": text})
        assert environment.observer_mode is (text.lower() == "false")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ZEUS_TARGET_METRIC", None, ""),
        ("ZEUS_TARGET_METRIC", "high", "Input should be a valid number"),
        ("ZEUS_TARGET_METRIC", "nan", "Input should be a finite number, got 'nan'."),
        ("ZEUS_COST_THRESH", "nan", "Input should be greater than or equal to 0"),
        ("ZEUS_ETA_KNOB", "1.5", "Input should be less than or equal to 1, got '1.5'."),
        ("ZEUS_USE_OPTIMAL_PL", "yes", "Expected true or false, got 'yes'."),
        ("ZEUS_PROFILE_PARAMS", "10", "Expected two numbers of iterations"),
        ("ZEUS_PROFILE_PARAMS", "1,0", "Input should be greater than or"),
        ("BFTRAINER_MAX_POWER_W", "1e308", "Input should be less than or equal to"),
        ("BFTRAINER_GPUS", "0", "Input should be greater than or equal to 1, got '0'."),
        ("BFTRAINER_MEASURE", "nvlm", "Input should be 'auto', 'nvml', 'zeus' or 'model'"),
    ],
)
def test_variables_that_are_refused(name, value, message):
    """A variable that is not what it should be is named, with what was found."""
    said = {"ZEUS_TARGET_METRIC": "0.5"} | {name: value}
    with pytest.raises(TuningInputError) as caught:
        RunEnvironment.read({name: value for name, value in said.items() if value is not None})
    assert f"{name}: {message}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "report"),
    [
        ('{"energy": 2, "time": 1.5, "reached": true}', TrainingReport(2.0, 1.5, True)),
        ('{"energy": "2e1", "time": "1", "reached": "TRUE", "more": []}', TrainingReport(20.0, 1.0, True)),
        ('{"energy": 2, "time": 1, "reached": "yes"}', TrainingReport(2.0, 1.0, False)),
    ],
)
def test_reports(tmp_path, text, report):
    """Numbers may be text; of texts only "true" is a verdict; what is written is read bit for bit."""
    path = tmp_path / "train.json"
    path.write_text(text)
    assert read_report(path) == report
    report = TrainingReport(0.1 + 0.2, 1e-9, True)
    write_report(path, report, cost=1.0)
    assert read_report(path) == report


GARBAGE = {
    '{"energy": 1': "Expected JSON, got something else",
    "[" * 100_000: "Expected JSON of at most 100 levels, got more",
    "[1]": "Missing key 'energy'.",
    '{"energy": 1, "time": 1}': "Missing key 'reached'.",
    '{"energy": 1, "time": 1, "reached": 1}': "reached: Input should be a valid boolean",
    '{"energy": NaN, "time": 1, "reached": true}': "energy: Input should be",
    '{"energy": 1, "time": "long", "reached": true}': "time: Input should be a valid number",
    '{"energy": 1, "time": -1, "reached": true}': "time: Input should be greater than or equal to 0",
    '{"energy": true, "time": 1, "reached": true}': "energy: Input should be a valid number, got True.",
    '{"energy": "inf", "time": 1, "reached": true}': "energy: Input should be",
}


@pytest.mark.parametrize(("content", "message"), GARBAGE.items(), ids=range(len(GARBAGE)))
def test_garbage_is_named(tmp_path, content, message):
    """File and key, what was expected and what was found, in one line."""
    path = tmp_path / "train.json"
    path.write_text(content)
    with pytest.raises(TuningError) as caught:
        read_report(path)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


def test_no_report(tmp_path):
    """A missing report is told as published; a directory is none, nor is a pipe, which nobody may ever write to."""
    os.mkfifo(tmp_path / "pipe")
    for name, said in (
        ("none.json", r"none.json does not exist\."),
        ("", "Expected a file, got a directory"),
        ("pipe", "pipe: Expected a file, got a pipe"),
    ):
        with pytest.raises(TuningError, match=said):
            read_report(tmp_path / name)
