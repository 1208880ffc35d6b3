"""Packages that only some commands need: what brings them, and the one way in which messages say so."""

from __future__ import annotations

from importlib.util import find_spec

from bftrainer.errors import InputError, SettingsError

__all__ = ["EXTRAS", "INSTALL", "absent", "missing_extra", "require_extra"]

EXTRAS = {
    "advise": ("optuna",),
    "client": ("httpx",),
    "dask": ("distributed", "dask_jobqueue"),
    "gpu": ("pynvml",),
    "gurobi": ("gurobipy",),
    "mysql": ("aiomysql",),
    "postgresql": ("asyncpg",),
    "report": ("jinja2", "matplotlib", "plotly"),
    "sample": ("sklearn",),
    "server": ("aiosqlite", "alembic", "fastapi", "httpx", "jinja2", "prometheus_client", "sqlalchemy", "uvicorn"),
    "zeus": ("zeus", "zeus.monitor"),
}
"""Of each extra the modules that it brings and that are looked for."""

INSTALL = "in the checkout of bftrainer: pip install '.[{}]'"
"""How an extra is installed; the package is on no index."""


def absent(*modules: str) -> list[str]:
    """Those of the modules that are not installed; none is imported."""
    return [name for name in modules if not _is_installed(name)]


def missing_extra(what: str, extra: str, modules: list[str]) -> str:
    """The message about an extra that is needed."""
    return f"{what} the extra {extra} (no {', '.join(modules)} here); {INSTALL.format(extra)}"


def require_extra(what: str, extra: str, *modules: str, error: type[InputError] = SettingsError) -> None:
    """Refuse to go on without an extra.

    Parameters
    ----------
    what : str
        What needs it, as the beginning of a message: "Pages need".
    extra : str
    *modules : str
        Those that are needed here, all of the extra by default.
    error : type

    Raises
    ------
    InputError
        Of the class given, if one of them is not installed.
    """
    missing = absent(*(modules or EXTRAS[extra]))
    if missing:
        raise error(missing_extra(what, extra, missing))


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # the package that a dotted name belongs to is not there
        return False
