"""Task sets as CSV: one row a task, lists within a cell separated by spaces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bftrainer.errors import InvalidTaskError, suggestion
from bftrainer.files.csv_rows import csv_rows, write_csv
from bftrainer.files.writing import replacing
from bftrainer.model import ScalingCurve, TaskSpec, iso
from bftrainer.tasksets.task_set import Draft, located, time_fields

__all__ = ["COLUMNS", "csv_drafts", "write_csv_tasks"]

_WHOLE = ("min_nodes", "max_nodes", "gpus_per_node")
_NUMBER = ("work", "grow_cost_s", "shrink_cost_s", "weight")
_TEXT = ("group", "user")
_REQUIRED = ("name", "min_nodes", "max_nodes", "work")
COLUMNS = (
    "name",
    "submit",
    "min_nodes",
    "max_nodes",
    "work",
    "grow_cost_s",
    "shrink_cost_s",
    "weight",
    "deadline",
    "gpus_per_node",
    "group",
    "user",
    "nodes",
    "throughput",
    "credit",
)


def csv_drafts(path: Path) -> list[Draft]:
    """Tasks of a CSV file, in its order; empty cells and absent columns mean the default.

    Raises
    ------
    InvalidTaskError
        Naming file and line.
    """
    rows = csv_rows(path, InvalidTaskError)
    _, header = next(rows, ("", []))
    _check_header(path, header)
    return [_draft(where, header, row) for where, row in rows]


def _check_header(path: Path, header: list[str]) -> None:
    for column in header:
        if column not in COLUMNS:
            raise InvalidTaskError(f"{path}:1: Unknown column {column!r}.{suggestion(column, COLUMNS)}")
        if header.count(column) > 1:
            raise InvalidTaskError(f"{path}:1: Expected unique columns, got {column!r} twice.")
    for column in _REQUIRED:
        if column not in header:
            raise InvalidTaskError(f"{path}:1: Missing column {column!r}.")


def _draft(where: str, header: list[str], row: list[str]) -> Draft:
    if len(row) != len(header):
        raise InvalidTaskError(f"{where}: Expected {len(header)} values, got {len(row)}.")
    cells = {column: cell for column, cell in zip(header, row, strict=True) if cell.strip()}
    for column in _REQUIRED:
        if column not in cells:
            raise InvalidTaskError(f"{where}: Expected {column}, got nothing.")
    with located(where):
        fields: dict[str, Any] = {"name": cells["name"]}
        fields |= {key: _whole(key, cells[key]) for key in _WHOLE if key in cells}
        fields |= {key: _number(key, cells[key]) for key in _NUMBER if key in cells}
        fields |= {key: cells[key] for key in _TEXT if key in cells}
        for key in ("submit", "deadline"):
            if key in cells:
                fields |= time_fields(key, _instant(cells[key]))
        return Draft(where, fields, _curve(cells))


def _curve(cells: dict[str, str]) -> ScalingCurve | None:
    if "nodes" not in cells and "throughput" not in cells and "credit" not in cells:
        return None
    for key in ("nodes", "throughput"):
        if key not in cells:
            raise InvalidTaskError(f"Expected {key} with the rest of the scaling, got nothing.")
    credit = tuple(_number("credit", text) for text in cells["credit"].split()) if "credit" in cells else None
    return ScalingCurve(
        tuple(_whole("nodes", text) for text in cells["nodes"].split()),
        tuple(_number("throughput", text) for text in cells["throughput"].split()),
        credit,
    )


def _whole(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidTaskError(f"Expected {key} to be a whole number, got {text!r}.") from None


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidTaskError(f"Expected {key} to be a number, got {text!r}.") from None


def _instant(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text.strip()


def write_csv_tasks(path: Path, tasks: Sequence[TaskSpec]) -> None:
    """Write tasks so that reading them gives the same ones."""
    with replacing(path) as stream:
        write_csv(stream, COLUMNS, map(_row, tasks))


def _row(task: TaskSpec) -> list[str]:
    curve = task.scaling
    cells = {key: repr(getattr(task, key)) for key in (*_WHOLE, *_NUMBER)}
    cells |= {key: getattr(task, key) or "" for key in _TEXT}
    cells |= {
        "name": task.name,
        "submit": repr(task.submit_s) if task.submit_ns is None else iso(task.submit_ns),
        "deadline": _deadline(task),
        "nodes": " ".join(map(repr, curve.nodes)),
        "throughput": " ".join(map(repr, curve.throughput)),
        "credit": " ".join(map(repr, curve.credit or ())),
    }
    return [cells[column] for column in COLUMNS]


def _deadline(task: TaskSpec) -> str:
    if task.deadline_ns is not None:
        return iso(task.deadline_ns)
    return "" if task.deadline_s is None else repr(task.deadline_s)
