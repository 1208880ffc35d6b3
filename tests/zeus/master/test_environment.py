"""What the master says in the environment, the script reads."""

from __future__ import annotations

import math

import pytest

from bftrainer.errors import TuningInputError
from bftrainer.zeus.master.script import RunEnvironment


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
    """All but the target metric may be missing."""
    environment = RunEnvironment.read({"ZEUS_TARGET_METRIC": "0.5"})
    assert environment == RunEnvironment(target_metric=0.5)
    assert (environment.log_dir, environment.job_id, environment.cost_threshold) == ("zeus_log", "zeus", math.inf)
    assert (environment.profile_warmup_iters, environment.profile_measure_iters) == (10, 40)
    assert (environment.observer_mode, environment.set_power_limits, environment.measure) == (False, False, "auto")


BAD = {
    "no target": ({"ZEUS_TARGET_METRIC": None}, "ZEUS_TARGET_METRIC: "),
    "target no number": ({"ZEUS_TARGET_METRIC": "high"}, "ZEUS_TARGET_METRIC: Input should be a valid number"),
    "target NaN": ({"ZEUS_TARGET_METRIC": "nan"}, "ZEUS_TARGET_METRIC: Input should be a finite number, got 'nan'."),
    "threshold NaN": ({"ZEUS_COST_THRESH": "nan"}, "ZEUS_COST_THRESH: Input should be greater than or equal to 0"),
    "eta": ({"ZEUS_ETA_KNOB": "1.5"}, "ZEUS_ETA_KNOB: Input should be less than or equal to 1, got '1.5'."),
    "yes": ({"ZEUS_USE_OPTIMAL_PL": "yes"}, "ZEUS_USE_OPTIMAL_PL: Expected true or false, got 'yes'."),
    "one number": ({"ZEUS_PROFILE_PARAMS": "10"}, "ZEUS_PROFILE_PARAMS: Expected two numbers of iterations"),
    "no numbers": ({"ZEUS_PROFILE_PARAMS": "a,b"}, "ZEUS_PROFILE_PARAMS: Input should be a valid integer"),
    "none measured": (
        {"ZEUS_PROFILE_PARAMS": "1,0"},
        "ZEUS_PROFILE_PARAMS: Input should be greater than or",
    ),
    "power": ({"BFTRAINER_MAX_POWER_W": "-1"}, "BFTRAINER_MAX_POWER_W: Input should be greater than 0, got '-1'."),
    "much power": ({"BFTRAINER_MAX_POWER_W": "1e308"}, "BFTRAINER_MAX_POWER_W: Input should be less than or equal to"),
    "gpus": ({"BFTRAINER_GPUS": "0"}, "BFTRAINER_GPUS: Input should be greater than or equal to 1, got '0'."),
    "many gpus": ({"BFTRAINER_GPUS": "1" + "0" * 400}, "BFTRAINER_GPUS: Input should be less than or equal to"),
    "gpus no number": ({"BFTRAINER_GPUS": "two"}, "BFTRAINER_GPUS: Input should be a valid integer"),
    "measure": ({"BFTRAINER_MEASURE": "nvlm"}, "BFTRAINER_MEASURE: Input should be 'auto', 'nvml', 'zeus' or 'model'"),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD)
def test_what_is_refused(changes, message):
    """A variable that is not what it should be is named, with what was found."""
    said = {"ZEUS_TARGET_METRIC": "0.5"} | changes
    with pytest.raises(TuningInputError) as caught:
        RunEnvironment.read({name: value for name, value in said.items() if value is not None})
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["true", "TRUE", "False"])
def test_booleans_have_any_case(text):
    """True and false, however they are written."""
    environment = RunEnvironment.read({"ZEUS_TARGET_METRIC": "0.5", "ZEUS_USE_OPTIMAL_PL": text})
    assert environment.observer_mode is (text.lower() == "false")
