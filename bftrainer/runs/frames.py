"""A finished run as pandas frames, for notebooks and scripts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bftrainer.errors import RunDirectoryError
from bftrainer.files.arrow import open_native, parquet_file
from bftrainer.files.opening import translated
from bftrainer.runs.finished import read_summary
from bftrainer.runs.run_tables import ALLOCATION, DECISIONS, STEPS, TASKS, RunTable

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class RunFrames:
    """What a run wrote; the columns are those of its files.

    Parameters
    ----------
    summary : dict
        All settings and figures.
    events : DataFrame
        A row an event: idle nodes, nodes in use, throughput.
    decisions : DataFrame
        A row a decision of the allocator.
    tasks : DataFrame
        A row a task.
    allocation : DataFrame
        A row for each time that a node came to a task, or left it.
    """

    summary: dict[str, Any]
    events: pd.DataFrame
    decisions: pd.DataFrame
    tasks: pd.DataFrame
    allocation: pd.DataFrame


def load_results(path: str | Path) -> RunFrames:
    """Read a result directory.

    Parameters
    ----------
    path : str or Path

    Raises
    ------
    RunDirectoryError
        If it is none, or a file is missing or damaged.

    Examples
    --------
    >>> frames = load_results("my-run")  # doctest: +SKIP
    >>> frames.events.plot(x="time", y="idle")  # doctest: +SKIP
    """
    directory = Path(path)
    summary = read_summary(directory)
    return RunFrames(summary, *(_read_frame(directory, table) for table in (STEPS, DECISIONS, TASKS, ALLOCATION)))


def _read_frame(directory: Path, table: RunTable) -> pd.DataFrame:
    import pyarrow as pa
    from pyarrow import csv

    path = directory / table.file
    if table is not STEPS:
        with parquet_file(path, RunDirectoryError) as file:
            return file.read().to_pandas()
    with translated(path, RunDirectoryError), open_native(path) as stream:
        try:
            return csv.read_csv(stream).to_pandas()
        except pa.ArrowException as fault:
            reason = " ".join(str(fault).split()).removesuffix(".")
            raise RunDirectoryError(f"{path}: Expected this table of a run ({reason}).") from None
