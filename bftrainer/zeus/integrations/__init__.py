"""Training scripts that plug in: run drivers for server and master, several ranks, callbacks, the published loader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bftrainer.zeus.integrations.callbacks import keras_callback, lightning_callback, transformers_callback
    from bftrainer.zeus.integrations.data_loader import ZeusDataLoader
    from bftrainer.zeus.integrations.ranks import Ranks, on_all_ranks
    from bftrainer.zeus.integrations.served import ServerRun, server_run
    from bftrainer.zeus.master.meters import Meter, open_meter
    from bftrainer.zeus.master.training import TrialDriver, training_run

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

# Where they are.
_MODULES = {
    "bftrainer.zeus.integrations.callbacks": ("keras_callback", "lightning_callback", "transformers_callback"),
    "bftrainer.zeus.integrations.data_loader": ("ZeusDataLoader",),
    "bftrainer.zeus.integrations.ranks": ("Ranks", "on_all_ranks"),
    "bftrainer.zeus.integrations.served": ("ServerRun", "server_run"),
    "bftrainer.zeus.master.meters": ("Meter", "open_meter"),
    "bftrainer.zeus.master.training": ("TrialDriver", "training_run"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: a script for the master needs no client of the server."""
    from importlib import import_module

    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
