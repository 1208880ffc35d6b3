"""Write histories of simulated recurring jobs as JSON or Parquet, and read them back unchanged."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_type_hints

from bftrainer.errors import InputError, OutputError, SettingsError, TuningInputError
from bftrainer.files.arrow import booleans, integers, parquet_file, reals
from bftrainer.files.documents import json_file, parsed_json
from bftrainer.files.opening import one_line
from bftrainer.files.writing import replacing
from bftrainer.zeus.policies.job import HistoryEntry, Job
from bftrainer.zeus.simulation.campaign import Simulation, SimulationResult
from bftrainer.zeus.simulation.recurring import Corrections, Run
from bftrainer.zeus.simulation.simulator import Group, GroupJob

__all__ = ["check_suffix", "read_history", "read_results", "results_document", "write_history", "write_results"]

SCHEMA = 1
SUFFIXES = (".json", ".parquet")
_META = b"bftrainer.zeus"

# Columns of a run and their kinds, in the order in which they are written: its fields, and what they come to.
_COLUMNS = (*Run._fields[:7], "energy_j", "time_s", *Run._fields[7:])
RUN_COLUMNS = {name: get_type_hints(Run).get(name, float) for name in _COLUMNS}
_RESULT_COLUMNS = {"simulation": int, **RUN_COLUMNS}
HISTORY_COLUMNS = {"bs": int, "pl": int, "energy": float, "reached": bool, "time": float}


def check_suffix(path: Path) -> None:
    """Check the ending of a file name.

    Raises
    ------
    OutputError
        If the name ends neither in .json nor in .parquet.
    """
    if path.suffix not in SUFFIXES:
        raise OutputError(f"{path}: Expected a name that ends in {' or '.join(SUFFIXES)}, got {path.suffix or 'none'}.")


# --- results of campaigns -----------------------------------------------------------------------------------------


def write_results(path: Path, results: Sequence[SimulationResult], about: Mapping[str, Any] | None = None) -> None:
    """Write the results of simulations with all runs; equal results give equal bytes.

    Parameters
    ----------
    path : Path
        Ends in .json or .parquet.
    results : sequence of SimulationResult
        Results; partial ones are marked.
    about : mapping, optional
        Further plain values for JSON to store: inputs, versions.

    Raises
    ------
    OutputError
        If the file cannot be written; an earlier one stays as it was.
    """
    check_suffix(path)
    document = results_document(results, about)
    if path.suffix == ".json":
        _write_json(path, _json_text(document))
        return
    runs = [each.pop("runs") for each in document["simulations"]]
    rows = [{"simulation": number, **row} for number, each in enumerate(runs) for row in each]
    _write_parquet(path, rows, _RESULT_COLUMNS, document)


def results_document(results: Sequence[SimulationResult], about: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Convert results to plain values, in the form of the JSON file."""
    return {
        "schema": SCHEMA,
        "partial": any(result.is_partial for result in results),
        **(about or {}),
        "simulations": [_described(result) for result in results],
    }


def _described(result: SimulationResult) -> dict[str, Any]:
    """Convert a result to plain values."""
    simulation = result.simulation
    group = simulation.group
    return asdict(simulation) | {
        "group": None if group is None else {**group._asdict(), "jobs": [list(job) for job in group.jobs]},
        # JSON has no infinity: null means that no run is stopped.
        "beta_knob": simulation.beta_knob if math.isfinite(simulation.beta_knob) else None,
        "failure": result.failure,
        # A user's policy may choose NumPy integers.
        "runs": [{name: kind(getattr(run, name)) for name, kind in RUN_COLUMNS.items()} for run in result.runs],
    }


def read_results(path: Path) -> list[SimulationResult]:
    """Read a file that `write_results` wrote.

    Raises
    ------
    InputError
        If the file is something else or damaged; the message names file and field.
    """
    document, rows = _read(path, _RESULT_COLUMNS)
    if rows is not None:
        _share_out(path, rows, document)
    checked = _validated(path, document, "ResultsDocument")
    try:
        return [_result(each) for each in checked["simulations"]]
    except (SettingsError, TuningInputError) as error:
        raise InputError(f"{path}: {error}") from None


def _result(described: dict[str, Any]) -> SimulationResult:
    runs, failure = described.pop("runs"), described.pop("failure")
    group = described["group"]
    described |= {
        "job": Job(**described["job"]),
        "beta_knob": math.inf if described["beta_knob"] is None else described["beta_knob"],
        "corrections": Corrections(**described["corrections"]),
    }
    if group is not None:
        described["group"] = Group(group["name"], group["dataset"], tuple(GroupJob(*job) for job in group["jobs"]))
    own = tuple(Run(**{name: row[name] for name in Run._fields}) for row in runs)
    return SimulationResult(Simulation(**described), own, failure)


def _share_out(path: Path, rows: list[dict[str, Any]], document: Any) -> None:
    """Give the rows of a table to the simulations that they belong to."""
    simulations = document.get("simulations") if isinstance(document, dict) else None
    if not isinstance(simulations, list) or not all(isinstance(each, dict) for each in simulations):
        raise InputError(f"{path}: Expected results of simulations, got other metadata.")
    for each in simulations:
        each["runs"] = []
    for row in rows:
        number = row.pop("simulation")
        if not 0 <= number < len(simulations):
            raise InputError(f"{path}: Expected simulation from 0 to {len(simulations) - 1}, got {number}.")
        simulations[number]["runs"].append(row)


# --- plain histories ----------------------------------------------------------------------------------------------


def write_history(path: Path, history: Sequence[HistoryEntry]) -> None:
    """Write a history as the simulator returns it: bs, pl, energy (J), reached and time (s) of each run.

    Raises
    ------
    OutputError
        If the file cannot be written; an earlier one stays as it was.
    """
    check_suffix(path)
    rows = [asdict(entry) for entry in history]
    if path.suffix == ".json":
        _write_json(path, f'{{"schema": {SCHEMA}, "history": [\n{_lines(rows)}\n]}}\n')
    else:
        _write_parquet(path, rows, HISTORY_COLUMNS, {"schema": SCHEMA})


def read_history(path: Path) -> list[HistoryEntry]:
    """Read a file that `write_history` wrote.

    Raises
    ------
    InputError
        If the file is something else or damaged; the message names file and field.
    """
    document, rows = _read(path, HISTORY_COLUMNS)
    if rows is not None:
        document["history"] = rows
    return [HistoryEntry(**row) for row in _validated(path, document, "HistoryDocument")["history"]]


# --- both ---------------------------------------------------------------------------------------------------------


def _json_text(document: dict[str, Any]) -> str:
    """Convert a document to JSON text with a line for each run."""
    parts = []
    for each in document["simulations"]:
        head = json.dumps({name: value for name, value in each.items() if name != "runs"}, allow_nan=False)
        parts.append(f'{head[:-1]}, "runs": [\n{_lines(each["runs"])}\n]}}')
    rest = json.dumps({name: value for name, value in document.items() if name != "simulations"}, allow_nan=False)
    return f'{rest[:-1]}, "simulations": [\n' + ",\n".join(parts) + "\n]}\n"


def _lines(rows: Sequence[dict[str, Any]]) -> str:
    return ",\n".join(json.dumps(row, allow_nan=False) for row in rows)


def _write_json(path: Path, text: str) -> None:
    with replacing(path) as stream:
        stream.write(text.encode())


def _write_parquet(
    path: Path, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, type], document: Mapping[str, Any]
) -> None:
    """Write rows as a table of these columns, with the document in its metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = {float: reals, bool: booleans, int: integers}
    table = pa.table({name: made[kind]([row[name] for row in rows]) for name, kind in columns.items()})
    table = table.replace_schema_metadata({_META: json.dumps(document, allow_nan=False)})
    with replacing(path) as stream:
        pq.write_table(table, stream, compression="zstd")


def _read(path: Path, columns: Mapping[str, type]) -> tuple[Any, list[dict[str, Any]] | None]:
    """Read a file's document, and the rows of its table, which has exactly these columns; JSON has no table."""
    check_suffix(path)
    if path.suffix == ".json":
        return json_file(path, InputError), None
    with parquet_file(path, InputError) as file:
        table = file.read()
        table.validate(full=True)
    document = parsed_json(path, (table.schema.metadata or {}).get(_META, b"null"), InputError, "JSON in the metadata")
    if table.column_names != list(columns):
        got = one_line(", ".join(table.column_names))
        raise InputError(f"{path}: Expected columns {', '.join(columns)}, got {got}.")
    if not isinstance(document, dict):
        raise InputError(f"{path}: Expected histories of recurring jobs, got a table without their metadata.")
    return document, table.to_pylist()


def _validated(path: Path, document: Any, model: str) -> Any:
    """Check that a document has the form of `model`, and return its values."""
    from bftrainer.zeus import file_schemas

    return file_schemas.validated(getattr(file_schemas, model), document, path, InputError, "the document")
