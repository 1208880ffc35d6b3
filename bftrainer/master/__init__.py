"""Real training jobs that recur: a master that tunes them from run to run, and what their scripts report with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bftrainer.master.driver import Driver
    from bftrainer.master.observers import MasterObserver
    from bftrainer.master.recurrences import Booked, Launch
    from bftrainer.master.training import TrainingRun, training_run
    from bftrainer.master.zeus_master import ZeusMaster

__all__ = ["Booked", "Driver", "Launch", "MasterObserver", "TrainingRun", "ZeusMaster", "training_run"]

_HOMES = {
    "Booked": "bftrainer.master.recurrences",
    "Driver": "bftrainer.master.driver",
    "Launch": "bftrainer.master.recurrences",
    "MasterObserver": "bftrainer.master.observers",
    "TrainingRun": "bftrainer.master.training",
    "ZeusMaster": "bftrainer.master.zeus_master",
    "training_run": "bftrainer.master.training",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: a training script has no use for the master."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
