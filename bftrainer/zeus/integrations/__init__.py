"""Training scripts that plug in: run drivers for server and master, several ranks, callbacks, the published loader."""

from bftrainer.zeus.integrations.drivers import (
    Ranks,
    ServerRun,
    ZeusDataLoader,
    keras_callback,
    lightning_callback,
    on_all_ranks,
    server_run,
    transformers_callback,
)
from bftrainer.zeus.master.hardware import Meter, open_meter
from bftrainer.zeus.master.script import TrialDriver, training_run

__all__ = [
    "Meter",
    "Ranks",
    "ServerRun",
    "TrialDriver",
    "ZeusDataLoader",
    "keras_callback",
    "lightning_callback",
    "on_all_ranks",
    "open_meter",
    "server_run",
    "training_run",
    "transformers_callback",
]
