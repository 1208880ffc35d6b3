"""Settings of a job that mean nothing are refused where they are made."""

from __future__ import annotations

import pytest

from bftrainer.errors import TuningInputError
from bftrainer.zeus.server.messages import GpuConfig, JobSpec, TuningParams
from tests.zeus.server.support import SPEC


@pytest.mark.parametrize(
    ("senseless", "told"),
    [
        (
            {"max_epochs": 1.5},
            "max_epochs: Input should be a valid integer, got a number with a fractional part, got 1.5.",
        ),
        ({"max_epochs": True}, "max_epochs: Input should be a valid integer, got True."),
        (
            {"batch_sizes": [16, 8.5]},
            "batch_sizes.1: Input should be a valid integer, got a number with a fractional part, got 8.5.",
        ),
        ({"batch_sizes": [16, 16]}, "batch_sizes: Expected each batch size once, got 16, 16."),
        ({"target_metric": float("nan")}, "target_metric: Input should be a finite number, got nan."),
        ({"mab_prior_precision": -1}, "mab_prior_precision: Input should be greater than or equal to 0, got -1.0."),
        ({"window_size": -1}, "window_size: Input should be greater than or equal to 0, got -1."),
    ],
)
def test_settings_that_are_senseless(senseless, told):
    """A script is told before it asks a server, whether it names its GPUs or not; 12.0 epochs are 12."""
    tuning = {name: value for name, value in SPEC.items() if name not in GpuConfig.model_fields}
    for model, settings in ((TuningParams, tuning), (JobSpec, SPEC)):
        with pytest.raises(TuningInputError) as caught:
            model(**settings | senseless)
        assert str(caught.value) == f"{model.__name__}: {told}"
        assert model(**settings | {"max_epochs": 12.0}).max_epochs == 12
