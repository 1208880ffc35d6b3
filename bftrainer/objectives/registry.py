"""Objectives by name: registered ones, and any ``module:callable``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from bftrainer.errors import ObjectiveError, suggestion

__all__ = ["get_objective", "objective_names"]

GROUP = "bftrainer.objectives"


@cache
def _registered() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def objective_names() -> list[str]:
    """Names of the registered objectives, sorted."""
    return sorted(_registered())


def get_objective(name: str) -> Callable[..., Any]:
    """Find the objective called `name`: an entry point of `bftrainer.objectives`, or ``module:callable``.

    Modules are looked for as Python does, and in the current directory.

    Raises
    ------
    ObjectiveError
        If there is none of that name, or what is there cannot be called.
    """
    if name in _registered():
        with _importing(name):
            found = _registered()[name].load()
    elif ":" in name:
        found = _imported(name)
    else:
        raise ObjectiveError(
            f"Expected a known objective or module:callable, got {name!r}.{suggestion(name, _registered())}"
        )
    if not callable(found):
        raise ObjectiveError(f"objective {name}: Expected a callable, got {type(found).__name__}.")
    return found  # type: ignore[no-any-return]


def _imported(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), attribute)):
        raise ObjectiveError(f"Expected a known objective or module:callable, got {name!r}.")
    here = os.getcwd()
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)  # as `python -m` does; an installed command has no script directory
    try:
        with _importing(name):
            module = importlib.import_module(module_name)
    finally:
        if added:
            sys.path.remove(here)
    if not hasattr(module, attribute):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ObjectiveError(
            f"objective {name}: Expected {module_name} to define {attribute!r}.{suggestion(attribute, known)}"
        )
    return getattr(module, attribute)


@contextmanager
def _importing(name: str) -> Iterator[None]:
    """Turn whatever a module does wrong while it is imported, a syntax error included, into one line."""
    try:
        yield
    except Exception as error:  # a module of the user's may raise anything while it is imported
        raise ObjectiveError(
            f"objective {name}: Expected an importable module, got {type(error).__name__}: {error}."
        ) from error
