"""Callables by name: those that entry points register, and any ``module:callable``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from bftrainer.errors import InputError, suggestion


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

    def name_of(self, found: object) -> str:
        """What records call one: the name under which it is registered, or its `full_name`."""
        name = full_name(found)
        entries = _entries(self.group)
        return next((known for known, points in entries.items() if {point.value for point in points} == {name}), name)

    def get(self, name: str, others: Iterable[str] = ()) -> Callable[..., Any]:
        """Find the one called `name`: an entry point of the group, or ``module:callable``.

        Modules are looked for as Python does, and in the current directory. `others` are names known elsewhere, which
        may have been meant as well.

        Raises
        ------
        InputError
            Of the class given, if there is none of that name, packages register different ones under it, or what is
            there cannot be called.
        """
        entries = _entries(self.group)
        if name in entries:
            entry = self._only(name, entries[name])
            with self._importing(name):
                found = entry.load()
        elif ":" in name:
            found = self._imported(name, {*entries, *others})
        else:
            raise self._unknown(name, name, {*entries, *others})
        if not callable(found):
            raise self.error(f"{self.noun} {name}: Expected a callable, got {type(found).__name__}.")
        return found  # type: ignore[no-any-return]

    def _only(self, name: str, points: Sequence[EntryPoint]) -> EntryPoint:
        """The entry point of a name; none may take the place of another one unnoticed."""
        fault = clash(points)
        if fault:
            raise self.error(f"{self.noun} {name}: {fault}; name one as module:callable, or uninstall the other.")
        return points[0]

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


def full_name(found: object) -> str:
    """What records call a callable or an object that was handed over: ``module:qualname``, an object by its class.

    What a dataclass or a `functools.partial` was made with is told, too; no name is that of two different functions of
    one module.

    Examples
    --------
    >>> full_name(full_name), full_name("throughput")
    ('bftrainer.plugins:full_name', 'throughput')
    >>> full_name(partial(clash, points=3))
    'functools:partial(bftrainer.plugins:clash, points=3)'
    """
    if isinstance(found, str):
        return found
    if hasattr(found, "__qualname__"):
        return f"{found.__module__}:{found.__qualname__}"
    made = f"{type(found).__module__}:{type(found).__qualname__}"
    if isinstance(found, partial):
        given = [
            *map(_told, (found.func, *found.args)),
            *(f"{key}={_told(each)}" for key, each in found.keywords.items()),
        ]
        return f"{made}({', '.join(given)})"
    if is_dataclass(found):
        given = [f"{each.name}={_told(getattr(found, each.name))}" for each in fields(found) if each.repr]
        return f"{made}({', '.join(given)})"
    return made


def _told(value: object) -> str:
    """A value as it is written, without the addresses that Python gives to what it cannot write."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_told, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_told(key)}: {_told(each)}' for key, each in value.items())}}}"
    return full_name(value)


@cache
def _entries(group: str) -> dict[str, tuple[EntryPoint, ...]]:
    """Entry points by name; reading them takes milliseconds, so it is done once a process."""
    return by_name(entry_points(group=group))


def by_name(points: Iterable[EntryPoint]) -> dict[str, tuple[EntryPoint, ...]]:
    """Entry points by name, sorted; those of one name by the packages that register them."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for point in sorted(points, key=lambda point: (point.name, _distribution(point))):
        found[point.name] = (*found.get(point.name, ()), point)
    return found


def clash(points: Sequence[EntryPoint]) -> str:
    """What is wrong with entry points of one name, as the beginning of a message; nothing if all mean the same."""
    if len({point.value for point in points}) <= 1:
        return ""
    places = " and ".join(f"{point.value} of {_distribution(point)}" for point in points)
    return f"Expected one package to register that name, got {places}"


def _distribution(point: EntryPoint) -> str:
    """Name and version of the package that registers it."""
    return "an unknown package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
