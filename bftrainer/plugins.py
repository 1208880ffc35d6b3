"""Look up what others bring: callables by name (entry points, and any ``module:callable``), and optional packages."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bftrainer.errors import BftrainerError, InputError, SettingsError, suggestion

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

EXTRAS = {
    "advise": ("optuna",),
    "client": ("httpx",),
    "dask": ("distributed", "dask_jobqueue"),
    "gpu": ("pynvml",),
    "gurobi": ("gurobipy",),
    "postgresql": ("psycopg",),
    "report": ("jinja2", "matplotlib"),
    "sample": ("sklearn",),
    "server": ("fastapi", "httpx", "jinja2", "prometheus_client", "sqlalchemy", "uvicorn"),
    "zeus": ("zeus", "zeus.monitor"),
}
"""Modules of each extra that are checked for."""


@contextmanager
def answering(where: str, kind: type[BftrainerError]) -> Iterator[None]:
    """Turn whatever third-party code raises into an error of this kind that names it; our errors stay what they are."""
    try:
        yield
    except (kind, MemoryError):
        raise
    except (Exception, SystemExit) as error:  # what is not ours may raise anything, and does not end our process
        if isinstance(error, BftrainerError) and not _line_of(error):
            raise
        raise blame(where, kind, error) from error


def blame(where: str, kind: type[BftrainerError], error: BaseException) -> BftrainerError:
    """The error in one line that says what third-party code raised, and where."""
    text = textwrap.shorten(str(error).removesuffix("."), 200, placeholder=" ...")
    return kind(f"{where}: raised {type(error).__name__}: {text}{_line_of(error)}.")


def _line_of(error: BaseException) -> str:
    """Where third-party code raised an error, as `` (file.py, line 12)``; empty if the error is raised by our code."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    file = Path(frame.filename)
    ours = Path(__file__).parent
    is_ours = any(file.is_relative_to(place) for place in (ours, ours.with_name("solvers")))
    return "" if is_ours else f" ({file.name}, line {frame.lineno})"


@dataclass(frozen=True, slots=True)
class Plugins:
    """The callables of one kind: their entry-point group, their name in messages, the error of unusable ones."""

    group: str
    noun: str
    error: type[InputError]

    def names(self) -> list[str]:
        """Names of the registered callables, sorted; nothing is imported."""
        return sorted(entries_of(self.group))

    def name_of(self, target: object) -> str:
        """Name of a callable in records: its registered name, or its `full_name`."""
        name, entries = full_name(target), entries_of(self.group)
        return next((key for key, points in entries.items() if {point.value for point in points} == {name}), name)

    def entry(self, name: str, more_names: Iterable[str] = ()) -> EntryPoint:
        """Find the entry point `name` of the group, or make one of ``module:callable``; nothing is imported.

        An `error`, which suggests `more_names` too, if there is none, or different ones are registered under it.
        """
        from importlib.metadata import EntryPoint

        entries = entries_of(self.group)
        values = sorted({point.value for point in entries.get(name, ())})
        if len(values) > 1:
            raise self.error(f"{self.noun} {name}: Registered as {' and '.join(values)}; name one as module:callable.")
        if values:
            return entries[name][0]
        if ":" not in name:
            raise self.unknown(name, name, {*entries, *more_names})
        return EntryPoint(name, name, self.group)

    def get(self, name: str, more_names: Iterable[str] = ()) -> Callable[..., Any]:
        """Find the callable `name`: an entry point of the group, or ``module:callable`` on Python's path or right here.

        For `more_names` see `entry`. An `error` also if it cannot be imported or called.
        """
        point = self.entry(name, more_names)
        if name == point.value:
            target = self.import_attribute(name, {*entries_of(self.group), *more_names})
        else:
            with self._translate_import_errors(name):
                target = point.load()
        if not callable(target):
            raise self.error(f"{self.noun} {name}: Expected a callable, got {type(target).__name__}.")
        return target  # type: ignore[no-any-return]

    def unknown(self, name: str, word: str, choices: Iterable[str]) -> InputError:
        """The error that says that there is no `name`, and which of the choices is like `word`."""
        return self.error(f"Expected a known {self.noun} or module:callable, got {name!r}.{suggestion(word, choices)}")

    def import_attribute(self, name: str, choices: Iterable[str] = ()) -> Any:
        """Import what ``module:attribute`` names; see `get`."""
        module_name, _, attribute = name.partition(":")
        if not all(word.isidentifier() for word in (*module_name.split("."), attribute)):
            raise self.unknown(name, module_name, choices)
        here = os.getcwd()
        sys.path.insert(0, here)  # as `python -m` does; an installed command has no script directory
        try:
            with self._translate_import_errors(name):
                module = importlib.import_module(module_name)
        finally:
            sys.path.remove(here)
        if not hasattr(module, attribute):
            names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            reason = f"Expected {module_name} to define {attribute!r}.{suggestion(attribute, names)}"
            raise self.error(f"{self.noun} {name}: {reason}")
        return getattr(module, attribute)

    @contextmanager
    def _translate_import_errors(self, name: str) -> Iterator[None]:
        """Turn any exception while a module is imported, including a syntax error, into one line."""
        try:
            yield
        except (Exception, SystemExit) as error:  # a user's module may raise anything while it is imported
            reason = f"Cannot import the module: {type(error).__name__}: {error}."
            raise self.error(f"{self.noun} {name}: {reason}") from error


def full_name(target: object) -> str:
    """Name of a callable in records: ``module:qualname``, for an object that of its class.

    The arguments of a dataclass or a `functools.partial` are included.

    Examples
    --------
    >>> full_name(full_name), full_name("throughput")
    ('bftrainer.plugins:full_name', 'throughput')
    >>> full_name(partial(full_name, target=3))
    'functools:partial(bftrainer.plugins:full_name, target=3)'
    """
    if isinstance(target, str):
        return target
    if hasattr(target, "__qualname__"):
        return f"{target.__module__}:{target.__qualname__}"
    name, arguments = f"{type(target).__module__}:{type(target).__qualname__}", []
    if isinstance(target, partial):
        arguments = [*map(_value_text, (target.func, *target.args))]
        arguments += [f"{key}={_value_text(value)}" for key, value in target.keywords.items()]
    elif is_dataclass(target):
        shown = [field.name for field in fields(target) if field.repr]
        arguments = [f"{field}={_value_text(getattr(target, field))}" for field in shown]
    else:
        return name
    return f"{name}({', '.join(arguments)})"


def _value_text(value: object) -> str:
    """Text of a value, without the memory addresses in Python's default representation."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value_text, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_value_text(key)}: {_value_text(item)}' for key, item in value.items())}}}"
    return full_name(value)


@cache
def entries_of(group: str) -> dict[str, list[EntryPoint]]:
    """Entry points of a group by name, sorted; reading them takes milliseconds, so it is done once a process."""
    from importlib.metadata import entry_points

    points = sorted(entry_points(group=group), key=lambda point: (point.name, point.value))
    return {name: list(alike) for name, alike in groupby(points, lambda point: point.name)}


def pip_install(what: str) -> str:
    """The command that installs something into this Python, whichever environment is active."""
    return f"{shlex.quote(sys.executable or 'python')} -m pip install {what}"


def installing(extra: str) -> str:
    """How an extra is installed; the package is on no index."""
    command = pip_install(f"'.[{extra}]'")
    return f"in the checkout of bftrainer: {command}"


def absent(*modules: str) -> list[str]:
    """Modules that are not installed; none is imported."""
    return [name for name in modules if not _is_installed(name)]


def missing_extra(what: str, extra: str, modules: list[str]) -> str:
    """The message about an extra that is needed."""
    return f"{what} the extra {extra} (no {', '.join(modules)} here); {installing(extra)}"


def require_extra(what: str, extra: str, *modules: str, error: type[InputError] = SettingsError) -> None:
    """Raise an `error` if `modules` of an extra, all by default, are missing for `what`, such as "Pages need"."""
    missing = absent(*(modules or EXTRAS[extra]))
    if missing:
        raise error(missing_extra(what, extra, missing))


@contextmanager
def requiring(what: str, extra: str, *modules: str) -> Iterator[None]:
    """Make imports in the block fail, by a `ModuleNotFoundError`, with a message that names the extra."""
    missing = absent(*modules)
    if missing:
        raise ModuleNotFoundError(missing_extra(what, extra, missing), name=missing[0])
    yield


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # the parent package of a dotted name is missing
        return False
