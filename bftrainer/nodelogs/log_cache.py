"""Parsed node logs in the user's cache, by the contents of their files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.errors import NodeLogError
from bftrainer.files.cache import KeptArrays, user_cache
from bftrainer.files.opening import Form, translated
from bftrainer.files.writing import file_source
from bftrainer.model import NodeLog
from bftrainer.model.node_rows import Rows
from bftrainer.nodelogs.native_logs import Warn, metadata_path, without_metadata

READER = 1
"""Version of the readers; to be raised when they make something else of a file."""
SLOW_BYTES = 1 << 20
"""Smaller Parquet files are read as fast as an entry of the cache."""
_TYPES = {"times_ns": np.int64, "starts": np.int64, "node": np.int32, "idle": np.bool_, "unchanged_ns": np.int64}


def read_once(
    path: Path, form: Form, digest: Callable[[], str], read: Callable[[Warn], NodeLog], warn: Warn
) -> NodeLog:
    """Take a log from the cache, or read and keep it; what the file is called makes no difference.

    Parameters
    ----------
    path : Path
    form : Form
    digest : callable
        Gives the SHA-256 of the file.
    read, warn : callable
        `read(warn)` parses the file; it is not called if the log was kept.
    """
    cache = None if form is Form.PARQUET and path.stat().st_size < SLOW_BYTES else user_cache()
    if cache is None:
        return read(warn)
    beside = metadata_path(path)
    parts = [str(READER), form.value, digest()]
    if form is Form.CSV and beside.is_file():
        with translated(beside, NodeLogError):
            parts.append(file_source(beside)["sha256"])
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    found = cache.find(key)
    log = None if found is None else _log(found, path, form)
    if found is not None and log is not None:
        if found.about["assumed"]:
            warn(without_metadata(str(path)))
        return log
    notes: list[str] = []
    log = read(notes.append)
    for note in notes:
        warn(note)
    cache.keep(key, *_parts(log, assumed=bool(notes)))
    kept = cache.find(key)
    # The memory of the entry can be given back and shared, unlike that of what was parsed.
    return (kept and _log(kept, path, form)) or log


def _parts(log: NodeLog, *, assumed: bool) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """What is kept of a log."""
    about = {
        "nodes": list(log.nodes),
        "window": [int(log.start_ns), int(log.end_ns)],
        "provenance": dict(log.provenance),
        "assumed": assumed,
    }
    rows = log.row_index
    values = (rows.time_ns, rows.start, log.node, log.idle, log.unchanged_ns)
    return about, {name: np.asarray(value, kind) for (name, kind), value in zip(_TYPES.items(), values, strict=True)}


def _log(found: KeptArrays, path: Path, form: Form) -> NodeLog | None:
    """The log of an entry, whose checksum says that it is as it was written; None if it is something else."""
    about, arrays = found.about, found.arrays
    if {name: array.dtype for name, array in arrays.items()} != _TYPES:
        return None
    provenance = about["provenance"]
    if form in (Form.PICKLE, Form.TAR):
        provenance["source"] = path.name  # the same contents may have been read under another name
    return NodeLog.of_rows(
        Rows(arrays["times_ns"], arrays["starts"]),
        checked=True,
        nodes=tuple(about["nodes"]),
        start_ns=about["window"][0],
        end_ns=about["window"][1],
        node=arrays["node"],
        idle=arrays["idle"],
        provenance=provenance,
        unchanged_ns=arrays["unchanged_ns"],
    )
