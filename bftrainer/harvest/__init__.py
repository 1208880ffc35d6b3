"""Harvest: watch a scheduler's idle nodes, and train on them. A script needs `training` alone, which is light."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bftrainer.harvest.malleable import MalleableTraining, training

__all__ = ["MalleableTraining", "training"]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: agents import this package, and are to start fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bftrainer.harvest import malleable

    return getattr(malleable, name)


def __dir__() -> list[str]:
    return __all__
