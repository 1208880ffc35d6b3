"""Profiles of training runs: TOML, or a directory with the raw measurements in CSV."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bftrainer.errors import TrainingProfileError, suggestion
from bftrainer.files.documents import number, table_rows, toml_content, whole
from bftrainer.files.opening import form_of, one_line, translated
from bftrainer.model.training_profile import TrainingProfile

__all__ = ["read_training_profile"]

_REQUIRED = ("world_size", "iteration_s", "reconfiguration_s", "checkpoint_s")
_OPTIONAL = ("load_s", "samples_per_iteration")

# The raw measurements: files by pattern, and their columns, in the order that files without a header have.
_RECONFIGURATIONS = "reconfig.csv", ("ws", "start", "end", "elapsed")
_ITERATIONS = (
    "loop_times_*.csv",
    ("ws", "step", "loop start", "loop end", "train time", "start chkpt thread", "total loop time"),
)
_CHECKPOINTS = "async-checkpoint_*.csv", ("elapsed",)
_LOADS = "load_times_*.csv", ("ws", "step", "elapsed")


def read_training_profile(path: str | Path) -> TrainingProfile:
    """Read a profile.

    Parameters
    ----------
    path : str or Path
        A TOML file with the fields of `TrainingProfile` and ``schema = 1``; or a directory with ``reconfig.csv``
        (`ws,start,end,elapsed`), ``loop_times_*.csv`` (`ws,step,loop start,loop end,train time,start chkpt
        thread,total loop time`), ``async-checkpoint_*.csv`` (`elapsed`) and, optional, ``load_times_*.csv``
        (`ws,step,elapsed`), each with these columns in this order or with a header. Of the measurements the means are
        taken, of iterations that of `train time` per world size; the first reconfiguration is the launch and left out.

    Raises
    ------
    TrainingProfileError
        Naming file, and line or key.
    """
    path = Path(path)
    with translated(path, TrainingProfileError):
        return _measured(path) if path.is_dir() else _declared(path)


def _declared(path: Path) -> TrainingProfile:
    form_of(path, TrainingProfileError)
    table = toml_content(path, TrainingProfileError)
    del table["schema"]
    for key in table:
        if key not in (*_REQUIRED, *_OPTIONAL):
            raise TrainingProfileError(f"{path}: Unknown key {key!r}.{suggestion(key, (*_REQUIRED, *_OPTIONAL))}")
    for key in _REQUIRED:
        if key not in table:
            raise TrainingProfileError(f"{path}: Missing key {key!r}.")
    fields: dict[str, Any] = {key: _number(path, key, value) for key, value in table.items() if key not in _LISTS}
    fields["world_size"] = tuple(_list(path, "world_size", table["world_size"], int, "whole numbers"))
    times = _list(path, "iteration_s", table["iteration_s"], float, "numbers")
    fields["iteration_s"] = tuple(_number(path, "iteration_s", time) for time in times)
    return _made(path, fields)


_LISTS = ("world_size", "iteration_s")


def _number(path: Path, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TrainingProfileError(f"{path}: Expected {key} to be a number, got {one_line(repr(value))}.")
    try:
        return float(value)
    except OverflowError:
        raise TrainingProfileError(f"{path}: Expected {key} to be a number, got one of too many digits.") from None


def _list(path: Path, key: str, value: Any, kind: type, what: str) -> list[Any]:
    kinds = (int,) if kind is int else (int, float)
    if not isinstance(value, list) or not all(isinstance(one, kinds) and not isinstance(one, bool) for one in value):
        raise TrainingProfileError(f"{path}: Expected {key} to be a list of {what}, got {one_line(repr(value))}.")
    return value


def _measured(path: Path) -> TrainingProfile:
    by_size: dict[int, list[float]] = defaultdict(list)
    for where, cells in _rows(path, *_ITERATIONS, needed=("ws", "train time")):
        size = whole(where, "ws", cells["ws"], TrainingProfileError, least=1, most=10**9)
        by_size[size].append(_seconds(where, cells, "train time"))
    sizes = sorted(by_size)
    launches = _elapsed(path, *_RECONFIGURATIONS)
    if len(launches) < 2:
        raise TrainingProfileError(
            f"{path / _RECONFIGURATIONS[0]}: Expected a reconfiguration after the launch, got {len(launches)} rows."
        )
    loads = _elapsed(path, *_LOADS) if any(path.glob(_LOADS[0])) else [0.0]
    fields = {
        "world_size": tuple(sizes),
        "iteration_s": tuple(_mean(by_size[size]) for size in sizes),
        "reconfiguration_s": _mean(launches[1:]),
        "checkpoint_s": _mean(_elapsed(path, *_CHECKPOINTS)),
        "load_s": _mean(loads),
    }
    return _made(path, fields)


def _rows(
    path: Path, pattern: str, columns: tuple[str, ...], needed: tuple[str, ...]
) -> list[tuple[str, dict[str, str]]]:
    """Rows of all files of a pattern, in the order of their names."""
    files = sorted(path.glob(pattern))
    if not files:
        raise TrainingProfileError(f"{path}: Expected {pattern} there, found none.")
    rows = [row for file in files for row in table_rows(file, needed, TrainingProfileError, headless=columns)]
    if not rows:
        raise TrainingProfileError(f"{files[0]}: Expected measurements, got none.")
    return rows


def _elapsed(path: Path, pattern: str, columns: tuple[str, ...]) -> list[float]:
    """Seconds in the column `elapsed` of all files of a pattern."""
    return [_seconds(where, cells, "elapsed") for where, cells in _rows(path, pattern, columns, ("elapsed",))]


def _seconds(where: str, cells: dict[str, str], column: str) -> float:
    value = number(where, column, cells[column], TrainingProfileError)
    if value < 0:
        raise TrainingProfileError(f"{where}: Expected {column} >= 0, got {cells[column]}.")
    return value


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _made(path: Path, fields: dict[str, Any]) -> TrainingProfile:
    try:
        return TrainingProfile(**fields)
    except TrainingProfileError as fault:
        raise TrainingProfileError(f"{path}: {fault}") from None
