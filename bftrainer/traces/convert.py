"""Conversion between the legacy and the native forms of node logs and task sets."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bftrainer.errors import InputError
from bftrainer.traces.opening import Form, form_of, one_line, open_pickle, open_plain
from bftrainer.traces.pickled_frame import read_pickled_frame
from bftrainer.traces.store import read_node_log, read_task_set, write_node_log, write_task_set

__all__ = ["Conversion", "convert", "kind_of"]

Kind = Literal["node log", "task set"]


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a conversion did.

    Parameters
    ----------
    kind : {"node log", "task set"}
    count : int
        Nodes, or tasks.
    warnings : tuple of str
        What had to be assumed, or was lost, one line each.
    """

    kind: Kind
    count: int
    warnings: tuple[str, ...]

    def summary(self) -> str:
        """One line for people."""
        return f"{self.kind} of {self.count:,} {'nodes' if self.kind == 'node log' else 'tasks'}"


def convert(
    source: str | Path,
    target: str | Path,
    scaling_path: str | Path | None = None,
    scaling: str | None = None,
) -> Conversion:
    """Read a node log or task set in any form and write it in the form that the target's name ends in.

    Parameters
    ----------
    source, target : str or Path
        A legacy task set is named by its bounds, whose name says `Jbnd` when written.
    scaling_path, scaling : optional
        As for `read_task_set`.

    Raises
    ------
    InputError
        If the source is neither, or the target cannot be written.
    """
    source, target = Path(source), Path(target)
    heard: list[str] = []
    if kind_of(source) == "node log":
        log = read_node_log(source, warn=heard.append)
        write_node_log(target, log)
        return Conversion("node log", len(log.nodes), tuple(heard))
    given = read_task_set(source, scaling_path, scaling)
    lost = write_task_set(target, given.tasks)
    return Conversion("task set", len(given.tasks), given.warnings + lost)


def kind_of(path: Path) -> Kind:
    """What a file holds, told by its columns.

    Raises
    ------
    InputError
        If it is neither a node log nor a task set.
    """
    form = form_of(path)
    if form is Form.PARQUET:
        return "node log"
    if form is Form.TOML:
        return "task set"
    columns = _csv_columns(path) if form is Form.CSV else _pickled_columns(path)
    if {"Ns", "Ps"} <= columns:
        raise InputError(
            f"{path}: Expected a node log or task bounds, got scalability: name its bounds (Jbnd) instead."
        )
    if columns & {"Jmin", "Jmax", "Pmax", "min_nodes", "max_nodes"}:
        return "task set"
    if form is Form.CSV and not columns & {"time", "node", "idle"}:
        raise InputError(
            f"{path}:1: Expected the columns of a node log or a task set, got {one_line(', '.join(sorted(columns)))}."
        )
    return "node log"


def _csv_columns(path: Path) -> set[str]:
    with open_plain(path) as stream:
        header = stream.readline(100_000).decode("utf-8-sig", errors="replace")
    return set(next(csv.reader([header]), []))


def _pickled_columns(path: Path) -> set[str]:
    with open_pickle(path) as stream:
        return set(read_pickled_frame(stream, str(path)).columns)
