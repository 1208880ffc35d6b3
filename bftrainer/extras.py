"""Optional packages: the extras that install them, and the message when one is missing."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from bftrainer.errors import InputError, SettingsError

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
