"""Callables by name: those that entry points register, and any ``module:callable``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from bftrainer.errors import InputError, suggestion

__all__ = ["Plugins"]


@dataclass(frozen=True, slots=True)
class Plugins:
    """The callables of one kind.

    Parameters
    ----------
    group : str
        Entry-point group that they are registered in.
    noun : str
        What one is called in messages.
    error : type
        Raised about those that cannot be had.
    """

    group: str
    noun: str
    error: type[InputError]

    def names(self) -> list[str]:
        """Names of the registered ones, sorted; reading them imports none."""
        return sorted(_entries(self.group))

    def get(self, name: str, others: Iterable[str] = ()) -> Callable[..., Any]:
        """Find the one called `name`: an entry point of the group, or ``module:callable``.

        Modules are looked for as Python does, and in the current directory. `others` are names known elsewhere, which
        may have been meant as well.

        Raises
        ------
        InputError
            Of the class given, if there is none of that name, or what is there cannot be called.
        """
        entries = _entries(self.group)
        if name in entries:
            with self._importing(name):
                found = entries[name].load()
        elif ":" in name:
            found = self._imported(name, {*entries, *others})
        else:
            raise self._unknown(name, name, {*entries, *others})
        if not callable(found):
            raise self.error(f"{self.noun} {name}: Expected a callable, got {type(found).__name__}.")
        return found  # type: ignore[no-any-return]

    def _unknown(self, name: str, word: str, known: Iterable[str]) -> InputError:
        return self.error(f"Expected a known {self.noun} or module:callable, got {name!r}.{suggestion(word, known)}")

    def _imported(self, name: str, known: Iterable[str]) -> Any:
        module_name, _, attribute = name.partition(":")
        if not all(part.isidentifier() for part in (*module_name.split("."), attribute)):
            raise self._unknown(name, module_name, known)
        here = os.getcwd()
        added = here not in sys.path
        if added:
            sys.path.insert(0, here)  # as `python -m` does; an installed command has no script directory
        try:
            with self._importing(name):
                module = importlib.import_module(module_name)
        finally:
            if added:
                sys.path.remove(here)
        if not hasattr(module, attribute):
            there = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            raise self.error(
                f"{self.noun} {name}: Expected {module_name} to define {attribute!r}.{suggestion(attribute, there)}"
            )
        return getattr(module, attribute)

    @contextmanager
    def _importing(self, name: str) -> Iterator[None]:
        """Turn whatever a module does wrong while it is imported, a syntax error included, into one line."""
        try:
            yield
        except Exception as error:  # a module of the user's may raise anything while it is imported
            raise self.error(
                f"{self.noun} {name}: Expected an importable module, got {type(error).__name__}: {error}."
            ) from error


@cache
def _entries(group: str) -> dict[str, EntryPoint]:
    """Entry points by name; reading them takes milliseconds, so it is done once a process."""
    return {point.name: point for point in entry_points(group=group)}
