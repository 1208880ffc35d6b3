"""Objectives by name: registered ones, and any ``module:callable``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bftrainer.errors import ObjectiveError
from bftrainer.plugins import Plugins

__all__ = ["get_objective", "objective_names"]

_OBJECTIVES = Plugins("bftrainer.objectives", "objective", ObjectiveError)


def objective_names() -> list[str]:
    """Names of the registered objectives, sorted."""
    return _OBJECTIVES.names()


def get_objective(name: str) -> Callable[..., Any]:
    """Find the objective called `name`: an entry point of `bftrainer.objectives`, or ``module:callable``.

    Modules are looked for as Python does, and in the current directory.

    Raises
    ------
    ObjectiveError
        If there is none of that name, or what is there cannot be called.
    """
    return _OBJECTIVES.get(name)
