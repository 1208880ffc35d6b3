"""Tuning of real recurring training jobs: a master that runs them, and the reporting API for their scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bftrainer.zeus.master.recurrences import Booked, Launch, MasterObserver
    from bftrainer.zeus.master.training import TrainingRun, training_run
    from bftrainer.zeus.master.zeus_master import Driver, ZeusMaster

__all__ = ["Booked", "Driver", "Launch", "MasterObserver", "TrainingRun", "ZeusMaster", "training_run"]

# Where they are; first what a training script needs, which has no use for the master.
_MODULES = ("training", "recurrences", "zeus_master")


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for."""
    from importlib import import_module

    for module in _MODULES if name in __all__ else ():
        names = vars(import_module(f"{__name__}.{module}"))
        if name in names:
            return names[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
