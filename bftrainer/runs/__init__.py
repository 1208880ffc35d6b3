"""One run: a frozen configuration in, a result and its files out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bftrainer.runs.config import ReplayConfig
    from bftrainer.runs.files import write_run
    from bftrainer.runs.result import RunResult
    from bftrainer.runs.run import Inputs, load_inputs, run_replay

__all__ = ["Inputs", "ReplayConfig", "RunResult", "load_inputs", "run_replay", "write_run"]

_HOMES = {"ReplayConfig": "config", "write_run": "files", "RunResult": "result"}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: help needs the declarations of options alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'run')}"), name)


def __dir__() -> list[str]:
    return __all__
