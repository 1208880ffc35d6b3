"""What is in a directory, but for what differs between any two runs: time that passed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

TIMED = re.compile(r"solve_|_solve|^solvers$|^backend_s$|^(load|replay|baseline|wall)_s$|^engine$")
MOMENT = re.compile(rb"\+20\d{12}(\+\d+)?")  # jobs that begin within one second are numbered
MANIFEST = ".bftrainer"


def facts(folder: Path, wanted: Callable[[str], bool] = lambda _: True) -> dict[str, Any]:
    """Paths below a folder, hidden ones too, and what is in the files, but for place and moment."""
    paths = {MOMENT.sub(b"", bytes(path.relative_to(folder))).decode(): path for path in sorted(folder.rglob("*"))}
    return {name: content(path, folder) for name, path in paths.items() if wanted(name)}


def content(path: Path, folder: Path) -> Any:
    """Names alone of a manifest, values of tables and summaries, else bytes."""
    if not path.is_file():
        return "directory"
    if path.name == "lock":
        return "who had it last"
    if path.name == MANIFEST:
        return [line.rpartition("  ")[2] for line in path.read_text().splitlines()[1:]]
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        timeless = table.drop_columns([name for name in table.column_names if TIMED.search(name)])
        with pa.BufferOutputStream() as stream, pa.ipc.new_stream(stream, timeless.schema) as writer:
            writer.write_table(timeless.combine_chunks())
        return hashlib.sha256(stream.getvalue()).hexdigest()
    found = MOMENT.sub(b"", path.read_bytes().replace(bytes(folder), b""))
    return repr(without_times(json.loads(found))) if path.suffix == ".json" else found


def without_times(value: Any) -> Any:
    """A summary without what was measured by a clock."""
    if isinstance(value, dict):
        return {key: without_times(each) for key, each in value.items() if not TIMED.search(key)}
    return [without_times(each) for each in value] if isinstance(value, list) else value
