"""What would I get from my idle nodes, and with which settings?

bftrainer replays node idle and preempt events from scheduler logs, decides at each event which malleable
training task runs on how many nodes, and tells throughput, completion times, energy and lost work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bftrainer._version import __version__ as __version__

if TYPE_CHECKING:
    from bftrainer.campaigns.sweep import paired_changes as paired_changes
    from bftrainer.replay import Allocator as Allocator
    from bftrainer.replay import Settings as Settings
    from bftrainer.runs import ReplayConfig as ReplayConfig
    from bftrainer.runs import RunResult as RunResult
    from bftrainer.runs import read_results as read_results
    from bftrainer.runs import run_replay as run_replay

_HOMES = {
    "Allocator": "bftrainer.replay",
    "ReplayConfig": "bftrainer.runs",
    "RunResult": "bftrainer.runs",
    "Settings": "bftrainer.replay",
    "paired_changes": "bftrainer.campaigns.sweep",
    "read_results": "bftrainer.runs",
    "run_replay": "bftrainer.runs",
}
__all__ = sorted(["__version__", *_HOMES])


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import bftrainer` stays fast."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
