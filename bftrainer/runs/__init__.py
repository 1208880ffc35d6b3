"""One run: its configuration, the function that runs it, its result and its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bftrainer.runs.config import ReplayConfig
    from bftrainer.runs.run import run_replay
    from bftrainer.runs.run_files import RunFrames, RunResult, read_results, write_run
    from bftrainer.runs.run_inputs import Inputs, load_inputs

__all__ = ["Inputs", "ReplayConfig", "RunFrames", "RunResult", "load_inputs", "read_results", "run_replay", "write_run"]

_HOMES = {"ReplayConfig": "config", "run_replay": "run"}
_HOMES |= dict.fromkeys(("RunFrames", "RunResult", "read_results", "write_run"), "run_files")


def __getattr__(name: str) -> Any:
    """Import a public name on first use, as help needs the declarations of options only."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'run_inputs')}"), name)


def __dir__() -> list[str]:
    return __all__
