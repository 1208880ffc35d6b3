"""What the master says in the environment, the script reads."""

from __future__ import annotations

import math

import pytest

from bftrainer.errors import TuningInputError
from bftrainer.zeus.master.script import RunEnvironment, RunSettings


def test_what_is_said_is_read():
    """All settings go through the environment, bit for bit."""
    settings = RunSettings("/m", 123.4, 2, True, 3, 7, set_power_limits=True)
    told = RunEnvironment(0.1 + 0.2, "/logs", "rec03+try01", 677.2910851893278, 0.3, settings)
    assert RunEnvironment.read(told.variables()) == told
    assert told.report_path(32).name == "rec03+try01+bs32.train.json"


def test_published_defaults():
    """All but the target metric may be missing."""
    told = RunEnvironment.read({"ZEUS_TARGET_METRIC": "0.5"})
    assert (told.log_dir, told.job_id, told.cost_threshold, told.eta_knob) == ("zeus_log", "zeus", math.inf, 0.5)
    settings = told.settings
    assert (settings.profile_warmup_iters, settings.profile_measure_iters, settings.observer_mode) == (10, 40, False)
    assert (settings.max_power_w, settings.gpus, settings.set_power_limits, settings.measure) == (
        None,
        None,
        False,
        "auto",
    )


BAD = {
    "no target": ({"ZEUS_TARGET_METRIC": None}, "ZEUS_TARGET_METRIC: "),
    "target no number": ({"ZEUS_TARGET_METRIC": "high"}, "ZEUS_TARGET_METRIC: Expected a number, got 'high'."),
    "target NaN": ({"ZEUS_TARGET_METRIC": "nan"}, "Expected a finite target metric, got nan."),
    "threshold NaN": ({"ZEUS_COST_THRESH": "nan"}, "Expected a cost threshold of 0 or more, got nan."),
    "eta": ({"ZEUS_ETA_KNOB": "1.5"}, "Expected eta from 0 (time) to 1 (energy), got 1.5."),
    "yes": ({"ZEUS_USE_OPTIMAL_PL": "yes"}, "ZEUS_USE_OPTIMAL_PL: Expected true or false, got 'yes'."),
    "one number": ({"ZEUS_PROFILE_PARAMS": "10"}, "ZEUS_PROFILE_PARAMS: Expected two numbers of iterations"),
    "no numbers": ({"ZEUS_PROFILE_PARAMS": "a,b"}, "ZEUS_PROFILE_PARAMS: Expected a whole number, got 'a'."),
    "none measured": ({"ZEUS_PROFILE_PARAMS": "1,0"}, "Expected 0 or more warm-up and 1 or more measured iterations"),
    "power": ({"BFTRAINER_MAX_POWER_W": "-1"}, "Expected a highest power above 0 W, got -1.0."),
    "much power": ({"BFTRAINER_MAX_POWER_W": "1e308"}, "Expected a highest power of at most 1e+09 W, got 1e+308."),
    "gpus": ({"BFTRAINER_GPUS": "0"}, "Expected 1 or more GPUs, got 0."),
    "many gpus": ({"BFTRAINER_GPUS": "1" + "0" * 400}, "Expected at most 1,000,000 GPUs, got 10"),
    "gpus no number": ({"BFTRAINER_GPUS": "two"}, "BFTRAINER_GPUS: Expected a whole number, got 'two'."),
    "measure": ({"BFTRAINER_MEASURE": "nvlm"}, "Unknown way to measure 'nvlm'. Did you mean 'nvml'?"),
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
    told = RunEnvironment.read({"ZEUS_TARGET_METRIC": "0.5", "ZEUS_USE_OPTIMAL_PL": text})
    assert told.settings.observer_mode is (text.lower() == "false")
