"""Objectives by name: registered ones, modified ones, and any ``module:callable``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bftrainer.errors import BftrainerError, ObjectiveError
from bftrainer.plugins import Plugins

__all__ = ["get_objective", "name_of_objective", "objective_names"]

_OBJECTIVES = Plugins("bftrainer.objectives", "objective", ObjectiveError)
_MODIFIERS = Plugins("bftrainer.objective_modifiers", "objective", ObjectiveError)


def objective_names() -> list[str]:
    """Names of the registered objectives, and of those that modify another one, sorted."""
    return sorted({*_OBJECTIVES.names(), *_MODIFIERS.names()})


def name_of_objective(objective: object) -> str:
    """What the records of a run call an objective: by its name, or ``module:qualname`` if it was handed over."""
    return _OBJECTIVES.name_of(objective)


def get_objective(name: str) -> Callable[..., Any]:
    """Find the objective called `name`.

    Parameters
    ----------
    name : str
        An entry point of `bftrainer.objectives`; one of `bftrainer.objective_modifiers` with what it takes and the name
        of the objective that it modifies, all with colons between them; or ``module:callable``. Modules are looked for
        as Python does, and in the current directory.

    Raises
    ------
    ObjectiveError
        If there is none of that name, or what is there cannot be called.

    Examples
    --------
    >>> get_objective("throughput").__name__, get_objective("priority:throughput").__name__
    ('throughput', 'priority:throughput')
    """
    head, _, text = name.partition(":")
    if name in _OBJECTIVES.names() or head not in _MODIFIERS.names():
        return _OBJECTIVES.get(name, others=_MODIFIERS.names())
    modifier: Any = _MODIFIERS.get(head)
    try:
        modify, inner = modifier.parsed(text)
        return modify(get_objective(inner))  # type: ignore[no-any-return]
    except BftrainerError:
        raise
    except Exception as error:  # a modifier may be anybody's code
        raise ObjectiveError(f"objective {head}: Expected an answer, got {type(error).__name__}: {error}.") from error
