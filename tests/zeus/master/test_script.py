"""What the master says in the environment, scripts read; what training runs book, measure, stop and report."""

import json
import math
import os

import pytest

from bftrainer.errors import TuningError, TuningInputError
from bftrainer.zeus.master import training_run
from bftrainer.zeus.master.script import RunEnvironment, TrainingReport, read_report
from tests.zeus.master.driven import World, instruct


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
        ("ZEUS_TARGET_METRIC", "nan", "Input should be a finite number, got 'nan'."),
        ("ZEUS_COST_THRESH", "nan", "Input should be greater than or equal to 0"),
        ("ZEUS_ETA_KNOB", "1.5", "Input should be less than or equal to 1, got '1.5'."),
        ("ZEUS_USE_OPTIMAL_PL", "yes", "Expected true or false, got 'yes'."),
        ("ZEUS_PROFILE_PARAMS", "10", "Expected two numbers of iterations"),
        ("ZEUS_PROFILE_PARAMS", "1,0", "Input should be greater than or"),
        ("BFTRAINER_MAX_POWER_W", "1e308", "Input should be less than or equal to"),
        ("BFTRAINER_MEASURE", "nvlm", "Input should be 'auto', 'nvml', 'zeus' or 'model'"),
    ],
)
def test_variables_that_are_refused(name, value, message):
    """A variable that is not what it should be is named, with what was found."""
    said = {"ZEUS_TARGET_METRIC": "0.5"} | {name: value}
    with pytest.raises(TuningInputError) as caught:
        RunEnvironment.read({name: value for name, value in said.items() if value is not None})
    assert f"{name}: {message}" in str(caught.value)


GARBAGE = {
    '{"energy": 1': "Expected JSON, got something else",
    "[" * 100_000: "Expected JSON of at most 100 levels, got more",
    "[1]": "Missing key 'energy'.",
    '{"energy": 1, "time": 1}': "Missing key 'reached'.",
    '{"energy": 1, "time": 1, "reached": 1}': "reached: Input should be a valid boolean",
    '{"energy": NaN, "time": 1, "reached": true}': "energy: Input should be",
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


# --- training runs, on a clock that the tests move --------------------------------------------------------------------


@pytest.fixture(autouse=True)
def say(monkeypatch, tmp_path):
    """Tells a script what it is to do."""

    def tell(folder=tmp_path, **changes):
        instruct(monkeypatch, folder, **changes)

    tell()
    return tell


def train(world, epochs=5, *, epoch_s=1.0, metrics=(), **options):
    """Train epochs that take a second each; give the run."""
    scores = iter(metrics)
    with training_run(8, epochs, meter=world, clock=world.clock, **options) as run:
        for _ in run.epochs():
            world.work(epoch_s)
            run.report(next(scores, math.nan))
    return run


def reported(folder):
    """The one report in a folder."""
    return read_report(folder / "zeus+bs8.train.json")


def test_epochs_are_booked(tmp_path):
    """Three epochs of a second at 200 W, then the target: what comes before, between and after is not the run's."""
    world = World()
    world.work(100.0)
    run = train(world, metrics=[0.1, 0.4, 0.5])
    world.work(100.0)
    assert reported(tmp_path) == TrainingReport(600.0, 3.0, True)
    assert (run.epochs_done, run.stopped_early) == (3, False)
    more = json.loads((tmp_path / "zeus+bs8.train.json").read_text())
    assert more["cost"] == 0.5 * 600 + 0.5 * 250 * 3
    assert (more["num_epochs"], more["measured_by"], more["max_power_w"]) == (3, "fake", 250.0)


def test_targets(tmp_path):
    """The epochs run out, NaN never counts; metrics that are better when lower reach their target from above."""
    train(World(), metrics=[0.4, math.nan])
    assert reported(tmp_path) == TrainingReport(1000.0, 5.0, False)
    run = train(World(), metrics=[0.9, 0.5], higher_is_better=False)
    assert (run.reached, run.epochs_done) == (True, 2)
    with pytest.raises(TuningInputError, match="Expected batch size and epochs of 1 or more, got 8 and 0"):
        train(World(), epochs=0)


@pytest.mark.parametrize(("threshold", "epochs"), [(225.0 * 3, 2), (225.0 * 3 + 0.1, 3), (0.0, 1), ("inf", 5)])
def test_a_run_stops_before_it_costs_too_much(say, tmp_path, threshold, epochs):
    """An epoch costs 225 J: one that would reach the threshold is not begun, the first one always is."""
    say(ZEUS_COST_THRESH=threshold)
    run = train(World())
    assert (run.epochs_done, run.stopped_early, run.reached) == (epochs, epochs < 5, False)
    assert reported(tmp_path).time_s == epochs


def test_a_script_may_leave_early_or_crash(tmp_path):
    """The epoch that a script breaks out of is booked as far as it went; an exception leaves no report behind."""
    world = World()
    with pytest.raises(TypeError):
        train(world, epoch_s="a crash")
    assert list(tmp_path.iterdir()) == []
    with training_run(8, 5, meter=world, clock=world.clock) as run:
        for epoch in run.epochs():
            world.work(1.0)
            if epoch == 1:
                break
    assert reported(tmp_path) == TrainingReport(400.0, 2.0, False)
