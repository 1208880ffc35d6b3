"""The scheduler's jobs beside a node log: when each was submitted, started and ended, its nodes and its limit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bftrainer.errors import SettingsError
from bftrainer.files.documents import table_rows
from bftrainer.files.writing import replacing
from bftrainer.model.lifetime import JobQueue

_COLUMNS = ("submit", "start", "end", "nodes", "limit_s")


def queue_path(log: Path) -> Path:
    """Where an import writes the queue of a node log: its name up to the first dot, and ``.queue.csv``."""
    return log.parent / f"{log.name.split('.')[0]}.queue.csv"


def write_queue(path: Path, queue: JobQueue) -> None:
    """Write a queue as CSV; times are seconds since the Unix epoch, a limit that is unknown is empty.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    rows = zip(*(getattr(queue, f"{name}_s").tolist() for name in _COLUMNS[:3]), strict=True)
    sizes = zip(queue.nodes.tolist(), queue.limit_s.tolist(), strict=True)
    with replacing(path) as stream:
        stream.write((",".join(_COLUMNS) + "\n").encode())
        for times, (nodes, limit_s) in zip(rows, sizes, strict=True):
            limit = f"{limit_s:.9g}" if limit_s < np.inf else ""
            stream.write((",".join(f"{time_s:.6f}" for time_s in times) + f",{nodes},{limit}\n").encode())


def read_queue(path: Path) -> JobQueue:
    """Read a queue; rows may come in any order.

    Raises
    ------
    SettingsError
        If the file cannot be read, a cell is no number, or a job's times run backwards; names file and line.
    """
    rows = []
    for where, row in table_rows(path, _COLUMNS, SettingsError):
        values = []
        for name in _COLUMNS:
            text = row[name].strip() or ("inf" if name == "limit_s" else "")
            try:
                values.append(float(text))
            except ValueError:
                raise SettingsError(f"{where}, column {name}: Expected a number, got {row[name]!r}.") from None
        submit, start, end, nodes, limit_s = values
        if not -np.inf < submit <= start <= end < np.inf:
            raise SettingsError(
                f"{where}: Expected submit <= start <= end, got {submit:.15g}, {start:.15g}, {end:.15g}."
            )
        if not (0 < nodes < 2**31 and nodes == int(nodes)):
            raise SettingsError(f"{where}, column nodes: Expected a number of nodes above 0, got {row['nodes']!r}.")
        if not limit_s > 0:
            raise SettingsError(f"{where}, column limit_s: Expected seconds above 0, got {row['limit_s']!r}.")
        rows.append(values)
    table = np.array(rows).reshape(-1, len(_COLUMNS))
    submit, start, end, nodes, limit_s = table[np.argsort(table[:, 0], kind="stable")].T
    return JobQueue(submit, start, end, nodes.astype(np.int64), limit_s)
