"""What the master says in the environment, scripts read; what training runs book, measure, stop and report."""

from __future__ import annotations

import json
import math
import os

import pytest

from bftrainer.errors import SettingsError, TuningError, TuningInputError
from bftrainer.zeus.master import training_run
from bftrainer.zeus.master.hardware import ProfiledLimit, best_limit, read_profile
from bftrainer.zeus.master.script import RunEnvironment, TrainingReport, read_report
from tests.zeus.master.driven import Device, World, instruct, plug


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


def test_what_is_refused(say):
    """No target metric, no epochs, or nothing that says the highest power."""
    for epochs, changes, error, message in (
        (5, {"ZEUS_TARGET_METRIC": None}, TuningInputError, "ZEUS_TARGET_METRIC: "),
        (0, {}, TuningInputError, "Expected batch size and epochs of 1 or more, got 8 and 0"),
        (5, {"BFTRAINER_MAX_POWER_W": None}, SettingsError, "highest power"),
    ):
        say(**changes)
        with pytest.raises(error, match=message), training_run(8, epochs):
            pass


def test_work_given_to_a_gpu_is_waited_for():
    """Before each look at clock or meter, what was asked for has to be done: 1 at an epoch's start, 2 at its end."""
    calls = []
    with training_run(8, 2, meter=World(), synchronize=lambda: calls.append(1)) as run:
        list(run.epochs())
    assert len(calls) == 2 * (1 + 2)


# --- power limits ------------------------------------------------------------------------------------------------

SETTING = {"BFTRAINER_SET_POWER_LIMITS": True, "ZEUS_PROFILE_PARAMS": "1,2", "ZEUS_ETA_KNOB": 1}
# A step takes this long at a limit: slower below 200 W, which is all that the work draws.
STEP_S = {250: 1.0, 225: 1.0, 200: 1.0, 175: 1.1, 150: 2.0, 125: 4.0, 100: 8.0}


@pytest.fixture
def train_steps(say, monkeypatch, tmp_path):
    """Trains epochs of 25 steps on a GPU, to a crash at a limit; gives the run and the limits of each step."""

    def go(device=None, folder=tmp_path, epochs=3, steps=25, crash=None, **changes):
        device = device or Device()
        world, seen = World(device), []
        plug(monkeypatch, device)
        say(folder, **SETTING | changes)
        with training_run(8, epochs, meter=world, clock=world.clock) as run:
            for _ in run.epochs():
                for _ in run.steps(range(steps)):
                    limit = device.limit_mw // 1000
                    seen.append(limit)
                    world.work(STEP_S[None if limit == crash else limit])
                if not steps:
                    world.work(1.0)
        return run, seen

    return go


def test_power_limits_are_measured_in_the_first_epoch(train_steps, tmp_path):
    """Three steps at each of seven limits, then the best: 175 W, where a step takes 192.5 J, for all that follows."""
    device = Device()
    run, seen = train_steps(device)
    assert seen[:21] == [limit for limit in STEP_S for _ in range(3)]
    assert set(seen[21:]) == {175}
    assert run.power_limit_w == 175
    assert device.limit_mw == 250_000
    limits = read_profile(tmp_path / "bs8.power.json")
    assert (limits[3].limit_w, limits[3].power_w, limits[3].steps_per_s) == pytest.approx((175, 175.0, 1 / 1.1))
    first_s = 3 * sum(STEP_S.values()) + 4 * 1.1
    assert reported(tmp_path).time_s == pytest.approx(first_s + 2 * 25 * 1.1)
    # The next run at that batch size starts at the best limit; of limits that cost the same, the highest.
    assert set(train_steps()[1]) == {175}
    same = [ProfiledLimit(limit_w=limit, power_w=100.0, steps_per_s=1.0) for limit in (100, 200, 150)]
    assert best_limit(same, 0.5, 250.0).limit_w == 200


def test_profiling_goes_on_in_the_next_epoch(train_steps):
    """Ten steps an epoch are too few: the third epoch ends the measurement; no early stop before."""
    run, seen = train_steps(epochs=5, steps=10, ZEUS_COST_THRESH=1.0)
    assert seen[:21] == [limit for limit in STEP_S for _ in range(3)]
    assert (run.epochs_done, run.stopped_early) == (3, True)


def test_the_profile_predicts_the_first_epoch_after_it(train_steps, tmp_path):
    """25 steps of 192.5 J: the second epoch is begun just below the threshold that it would reach."""
    first, _ = train_steps(folder=tmp_path / "a", epochs=1)
    bound = first.cost_j + 25 * 192.5
    below, _ = train_steps(folder=tmp_path / "b", ZEUS_COST_THRESH=bound * (1 - 1e-9))
    above, _ = train_steps(folder=tmp_path / "c", ZEUS_COST_THRESH=bound * (1 + 1e-9))
    assert (below.epochs_done, above.epochs_done) == (1, 2)


def test_observers_train_at_the_highest_limit(train_steps):
    """Observer mode changes nothing of the training, and books what the best limit would have taken."""
    run, seen = train_steps(ZEUS_USE_OPTIMAL_PL=False)
    assert set(seen[21:]) == {250}
    first_s, first_j = 3 * sum(STEP_S.values()) + 4, 3 * sum(time * min(limit, 200) for limit, time in STEP_S.items())
    assert run.time_s == pytest.approx(first_s + 2 * 25 * 1.1)
    assert run.energy_j == pytest.approx(first_j + 4 * 200 + 2 * 25 * 192.5)


def test_power_limits_are_given_back_or_left_alone(train_steps, tmp_path):
    """Whatever happens while limits are tried, they are given back; without --set-power-limits nothing is set."""
    device = Device(limit_mw=200_000)
    with pytest.raises(KeyError):
        train_steps(device, crash=150)
    assert device.limit_mw == 200_000
    run, seen = train_steps(Device(root=False), BFTRAINER_SET_POWER_LIMITS=False)
    assert (set(seen), run.power_limit_w) == ({250}, None)
    assert not (tmp_path / "bs8.power.json").exists()


def test_limits_cannot_be_measured_without_steps(train_steps, caplog):
    """A script that does not show its steps is told so, and trains on as usual."""
    run, _ = train_steps(epochs=9, steps=0, ZEUS_COST_THRESH=700)
    assert "Power limits are measured only if batches go through steps()" in caplog.text
    assert (run.epochs_done, run.stopped_early) == (3, True)


@pytest.mark.parametrize("text", ["", "[]", '[{"limit_w": 1}]', '[{"limit_w": 400, "power_w": 400, "steps_per_s": 1}]'])
def test_a_profile_that_cannot_be_used_is_measured_again(train_steps, tmp_path, text):
    """A damaged profile is none, nor is one of another version, or with limits that this GPU cannot have."""
    (tmp_path / "bs8.power.json").write_text(text)
    _, seen = train_steps()
    assert seen[0] == 250
    assert read_profile(tmp_path / "bs8.power.json")
