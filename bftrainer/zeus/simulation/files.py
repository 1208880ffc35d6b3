"""Write runs of simulated recurring jobs as JSON or Parquet, and histories as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from bftrainer.errors import InputError, OutputError
from bftrainer.files.text_files import fault_text, json_file
from bftrainer.files.writing import replacing
from bftrainer.zeus.policies.job import HistoryEntry
from bftrainer.zeus.simulation.campaign import SimulationResult
from bftrainer.zeus.simulation.simulator import Run

__all__ = ["check_suffix", "read_history", "results_document", "write_history", "write_results"]

SCHEMA = 1
SUFFIXES = (".json", ".parquet")
_META = b"bftrainer.zeus"

# Columns of a run and their kinds, in the order in which they are written: its fields, and what they come to.
RUN_COLUMNS = {
    name: get_type_hints(Run).get(name, float) for name in (*Run._fields[:7], "energy_j", "time_s", *Run._fields[7:])
}


def check_suffix(path: Path) -> None:
    """Check that a file name ends in .json or .parquet; otherwise raise `OutputError`."""
    if path.suffix not in SUFFIXES:
        raise OutputError(f"{path}: Expected a name that ends in {' or '.join(SUFFIXES)}, got {path.suffix or 'none'}.")


def write_results(path: Path, results: Sequence[SimulationResult], about: Mapping[str, Any] | None = None) -> None:
    """Write results with all runs to .json or .parquet, whole or not at all; `about` are further values to store."""
    check_suffix(path)
    document = results_document(results, about)
    runs = [simulation.pop("runs") for simulation in document["simulations"]]
    if path.suffix == ".json":
        parts = [_append_rows(*each, "runs") for each in zip(document.pop("simulations"), runs, strict=True)]
        text = f'{json.dumps(document, allow_nan=False)[:-1]}, "simulations": [\n' + ",\n".join(parts) + "\n]}\n"
        with replacing(path) as stream:
            stream.write(text.encode())
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    schema = pa.schema([("simulation", pa.int64()), *((name, kinds[kind]) for name, kind in RUN_COLUMNS.items())])
    rows = [{"simulation": number, **row} for number, own in enumerate(runs) for row in own]
    table = pa.Table.from_pylist(rows, schema.with_metadata({_META: json.dumps(document, allow_nan=False)}))
    with replacing(path) as stream:
        pq.write_table(table, stream, compression="zstd")


def results_document(results: Sequence[SimulationResult], about: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Convert results to plain values, in the form of the JSON file."""
    simulations = []
    for result in results:
        simulation = asdict(result.simulation)
        if (group := result.simulation.group) is not None:
            simulation["group"] = group._asdict() | {"jobs": [list(job) for job in group.jobs]}
        # JSON has no infinity: null means that no run is stopped.
        simulation["beta_knob"] = None if math.isinf(simulation["beta_knob"]) else simulation["beta_knob"]
        # A user's policy may choose NumPy integers.
        runs = [{name: kind(getattr(run, name)) for name, kind in RUN_COLUMNS.items()} for run in result.runs]
        simulations.append(simulation | {"failure": result.failure, "runs": runs})
    is_partial = any(result.is_partial for result in results)
    return {"schema": SCHEMA, "partial": is_partial, **(about or {}), "simulations": simulations}


def write_history(path: Path, history: Sequence[HistoryEntry]) -> None:
    """Write a history as JSON: bs, pl, energy (J), reached and time (s) of each run."""
    text = f"{_append_rows({'schema': SCHEMA}, [asdict(entry) for entry in history], 'history')}\n"
    with replacing(path) as stream:
        stream.write(text.encode())


def read_history(path: Path) -> list[HistoryEntry]:
    """Read a file that `write_history` wrote: `InputError` that names file and field if it is something else."""
    document = json_file(path, InputError)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA or "history" not in document:
        raise InputError(f"{path}: Expected a history of schema {SCHEMA}, got something else.")
    try:
        # As JSON, because only there a strict validation makes dataclasses of tables.
        return TypeAdapter(list[HistoryEntry]).validate_json(json.dumps(document["history"]), strict=True)
    except ValidationError as fault:
        raise InputError(f"{path}: {fault_text(fault)}") from None


def _append_rows(document: dict[str, Any], rows: Sequence[dict[str, Any]], name: str) -> str:
    """Convert a document to JSON text that ends with rows, a line for each."""
    lines = ",\n".join(json.dumps(row, allow_nan=False) for row in rows)
    return f'{json.dumps(document, allow_nan=False)[:-1]}, "{name}": [\n{lines}\n]}}'
