"""Read and write node logs in any form; the form is told by content on reading, by name on writing."""

from __future__ import annotations

from pathlib import Path

from bftrainer.errors import NodeLogError, OutputError, SettingsError
from bftrainer.files.opening import Form, form_of, suffix_form
from bftrainer.files.writing import refuse_existing
from bftrainer.model import NodeLog
from bftrainer.nodelogs.csv_file import metadata_path, read_csv_node_log, write_csv_node_log
from bftrainer.nodelogs.native import Warn
from bftrainer.nodelogs.parquet import read_parquet_node_log, write_parquet_node_log
from bftrainer.nodelogs.pickled import read_legacy_node_log, write_legacy_node_log

__all__ = ["node_log_files", "node_log_form", "read_node_log", "refuse_node_log", "write_node_log"]

_NODE_LOG_WRITERS = {
    Form.PARQUET: write_parquet_node_log,
    Form.CSV: write_csv_node_log,
    Form.PICKLE: write_legacy_node_log,
}


def _unheard(_: str) -> None:
    """Nobody asked to be warned."""


def read_node_log(path: str | Path, skip_events: int = 0, warn: Warn = _unheard) -> NodeLog:
    """Read a node log: native Parquet or CSV(.gz), or a pickled DataFrame, bare, gzipped or in a tar.

    Parameters
    ----------
    path : str or Path
    skip_events : int
        Rows dropped from the start, as `NodeLog.skipped` counts them. The nodes they leave idle open the window.
    warn : callable
        Told in one line each what had to be assumed.

    Raises
    ------
    NodeLogError
        If the file is missing or not a node log; the message names file and row.
    UnsafePickleError
        If a pickle asks for more than pandas and numpy data.
    SettingsError
        If no row is left.
    """
    path = Path(path)
    form = form_of(path, NodeLogError)
    if form in (Form.PICKLE, Form.TAR):
        log = read_legacy_node_log(path)
    elif form is Form.PARQUET:
        log = read_parquet_node_log(path, warn)
    elif form is Form.CSV:
        log = read_csv_node_log(path, warn)
    else:
        raise NodeLogError(f"{path}: Expected a node log (Parquet, CSV or pickle), got {form.value}.")
    try:
        return log.skipped(skip_events)
    except SettingsError as fault:
        raise SettingsError(f"{path}: {fault}") from None


def write_node_log(path: str | Path, log: NodeLog) -> None:
    """Write a node log in the form its name ends in: .parquet, .csv, .csv.gz, .pkl or .pkl.gz.

    Raises
    ------
    OutputError
        If the name promises no such form, or the file cannot be written.
    """
    path = Path(path)
    _NODE_LOG_WRITERS[node_log_form(path)](path, log)


def node_log_form(path: Path) -> Form:
    """Form in which a node log of this name is written.

    Raises
    ------
    OutputError
        If the name promises none.
    """
    form = suffix_form(path)
    if form not in _NODE_LOG_WRITERS:
        raise OutputError(f"{path}: Expected a name ending in .parquet, .csv, .csv.gz or .pkl.")
    return form


def node_log_files(path: Path) -> tuple[Path, ...]:
    """The files that a node log of that name is written to.

    Raises
    ------
    OutputError
        If the name promises no form of node log.
    """
    return (path, metadata_path(path)) if node_log_form(path) is Form.CSV else (path,)


def refuse_node_log(path: Path, *, force: bool) -> None:
    """Refuse to write a node log: as `refuse_existing`, also for what stands beside a table; or for its name.

    Raises
    ------
    OutputError
        If the name promises no form of node log, a file exists, or its directory does not.
    """
    for target in node_log_files(path):
        refuse_existing(target, force=force)
