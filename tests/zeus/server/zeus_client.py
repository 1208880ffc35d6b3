"""Drives the published client against a server; runs with its package installed, on a machine without GPUs.

Usage: zeus_client.py URL SCENARIO. Prints what the client gave, as JSON.
"""

import json
import sys
from unittest import mock

import zeus.monitor
from zeus.monitor.energy import Measurement


class Monitor(zeus.monitor.ZeusMonitor):
    """Measures a second and half a kilojoule for each window."""

    def __init__(self):
        self.gpu_indices = [0, 1]

    def begin_window(self, *_, **__):
        pass

    def end_window(self, *_, **__):
        return Measurement(time=1.0, gpu_energy={0: 300.0, 1: 200.0})


def gpus():
    """Two GPUs of one model, 250 W each."""
    found = mock.MagicMock()
    found.__len__.return_value = 2
    # As they have been called over the versions.
    for name in ("get_name", "getName"):
        getattr(found, name).return_value = "V100"
    for name in ("get_power_management_limit_constraints", "getPowerManagementLimitConstraints"):
        getattr(found, name).return_value = (100_000, 250_000)
    return found


def main(url, scenario):
    """Register, ask for a batch size, and report until the server has heard enough."""
    import zeus.optimizer.batch_size as published

    with mock.patch.object(published.client, "get_gpus", return_value=gpus()):
        spec = published.JobSpec(
            job_id="t-zeus", job_id_prefix="t", batch_sizes=[8, 16, 32], default_batch_size=16, mab_seed=1, max_epochs=3
        )
        optimizer = published.BatchSizeOptimizer(monitor=Monitor(), server_url=url, job=spec)
        size = optimizer.get_batch_size()
        said = {"batch_size": size, "again": optimizer.get_batch_size(), "error": None}
        optimizer.on_train_begin()
        if scenario == "leave":
            # The interpreter's end tells the server that the trial is over.
            print(json.dumps(said))
            return
        try:
            for metric in (0.1, 0.2, 0.9 if scenario == "converge" else 0.3):
                optimizer.on_evaluate(metric)
        except Exception as error:  # which one it is, the test asks
            said["error"] = type(error).__name__
        print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
