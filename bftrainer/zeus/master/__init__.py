"""Real training jobs that recur: a master that tunes them from run to run, and what their scripts report with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bftrainer.zeus.master.driver import Driver
    from bftrainer.zeus.master.recurrences import Booked, Launch, MasterObserver
    from bftrainer.zeus.master.training import TrainingRun, training_run
    from bftrainer.zeus.master.zeus_master import ZeusMaster

__all__ = ["Booked", "Driver", "Launch", "MasterObserver", "TrainingRun", "ZeusMaster", "training_run"]

_HOMES = {
    "Booked": "bftrainer.zeus.master.recurrences",
    "Driver": "bftrainer.zeus.master.driver",
    "Launch": "bftrainer.zeus.master.recurrences",
    "MasterObserver": "bftrainer.zeus.master.recurrences",
    "TrainingRun": "bftrainer.zeus.master.training",
    "ZeusMaster": "bftrainer.zeus.master.zeus_master",
    "training_run": "bftrainer.zeus.master.training",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: a training script has no use for the master."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
