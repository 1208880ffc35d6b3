"""Histories of simulated recurring jobs as JSON or Parquet: data only, and read back as they were."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bftrainer.errors import InputError, OutputError, SettingsError, TuningInputError
from bftrainer.files.arrow import booleans, integers, parquet_file, reals
from bftrainer.files.documents import json_file, parsed_json
from bftrainer.files.opening import one_line
from bftrainer.files.writing import replacing
from bftrainer.zeus.policies.job import HistoryEntry, Job
from bftrainer.zeus.simulation.campaign import Simulation, SimulationResult
from bftrainer.zeus.simulation.groups import Group, GroupJob
from bftrainer.zeus.simulation.recurring import Corrections, Run
from bftrainer.zeus.simulation.training import Outcome

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["check_suffix", "read_history", "read_results", "results_document", "write_history", "write_results"]

SCHEMA = 1
SUFFIXES = (".json", ".parquet")
_META = b"bftrainer.zeus"

# Columns of a run and their kinds, in the order in which they are written.
RUN_COLUMNS = {
    "recurrence": int,
    "attempt": int,
    "batch_size": int,
    "power_limit_w": int,
    "profiled": bool,
    "reached": bool,
    "epochs": float,
    "energy_j": float,
    "time_s": float,
    "cost_j": float,
    "runtime_ratio": float,
    "traced_energy_j": float,
    "traced_time_s": float,
}
HISTORY_COLUMNS = {"bs": int, "pl": int, "energy": float, "reached": bool, "time": float}


def check_suffix(path: Path) -> None:
    """Refuse a file name that doesn't say what to write.

    Raises
    ------
    OutputError
        If it ends neither in .json nor in .parquet.
    """
    if path.suffix not in SUFFIXES:
        raise OutputError(f"{path}: Expected a name that ends in {' or '.join(SUFFIXES)}, got {path.suffix or 'none'}.")


# --- results of campaigns -----------------------------------------------------------------------------------------


def write_results(path: Path, results: Sequence[SimulationResult], about: Mapping[str, Any] | None = None) -> None:
    """Write what came of simulations, every run of them; equal results give equal bytes.

    Parameters
    ----------
    path : Path
        Ends in .json or .parquet.
    results : sequence of SimulationResult
        Partial ones are marked.
    about : mapping, optional
        More to keep with them, fit for JSON: inputs, versions.

    Raises
    ------
    OutputError
        If the file cannot be written; an earlier one stays as it was.
    """
    check_suffix(path)
    document = results_document(results, about)
    if path.suffix == ".json":
        with replacing(path) as stream:
            stream.write(_json_text(document).encode())
        return
    import pyarrow as pa

    runs = [each.pop("runs") for each in document["simulations"]]
    numbers = [number for number, rows in enumerate(runs) for _ in rows]
    rows = [row for each in runs for row in each]
    columns = {"simulation": integers(numbers)}
    columns |= {name: _column(name, kind, rows) for name, kind in RUN_COLUMNS.items()}
    _write_parquet(path, pa.table(columns), document)


def results_document(results: Sequence[SimulationResult], about: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Results in plain values, as the JSON file holds them."""
    return {
        "schema": SCHEMA,
        "partial": any(result.is_partial for result in results),
        **(about or {}),
        "simulations": [{**_described(result), "runs": [_run_row(run) for run in result.runs]} for result in results],
    }


def _described(result: SimulationResult) -> dict[str, Any]:
    """All of a result but its runs."""
    simulation = result.simulation
    group = simulation.group
    return {
        "job": simulation.job.to_dict(),
        "recurrences": simulation.recurrences,
        "group": None if group is None else {**group._asdict(), "jobs": [list(job) for job in group.jobs]},
        "policy": simulation.policy,
        "power_policy": simulation.power_policy,
        "eta_knob": simulation.eta_knob,
        # JSON knows no infinity: null is a bound that never stops a run.
        "beta_knob": simulation.beta_knob if math.isfinite(simulation.beta_knob) else None,
        "seed": simulation.seed,
        "corrections": asdict(simulation.corrections),
        "max_group_retries": simulation.max_group_retries,
        "failure": result.failure,
    }


def _run_row(run: Run) -> dict[str, Any]:
    entry, outcome = run.entry(), run.outcome
    values = {
        **run._asdict(),
        "reached": outcome.reached,
        "epochs": outcome.epochs,
        "energy_j": entry.energy,
        "time_s": entry.time,
        "traced_energy_j": outcome.energy_j,
        "traced_time_s": outcome.time_s,
    }
    # A policy of the user's may choose NumPy's integers.
    return {name: kind(values[name]) for name, kind in RUN_COLUMNS.items()}


def read_results(path: Path) -> list[SimulationResult]:
    """Read what `write_results` wrote.

    Raises
    ------
    InputError
        Naming file and field, if it is something else or damaged.
    """
    check_suffix(path)
    if path.suffix == ".json":
        document = json_file(path, InputError)
    else:
        table, document = _read_parquet(path, {"simulation": int} | RUN_COLUMNS)
        _share_out(path, table, document)
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
    return SimulationResult(Simulation(**described), tuple(map(_run, runs)), failure)


def _run(row: dict[str, Any]) -> Run:
    row["outcome"] = Outcome(
        row.pop("traced_energy_j"), row.pop("traced_time_s"), row.pop("reached"), row.pop("epochs")
    )
    return Run(**{name: value for name, value in row.items() if name not in ("energy_j", "time_s")})


def _share_out(path: Path, table: pa.Table, document: Any) -> None:
    """Give the rows of a table to the simulations that they belong to."""
    simulations = document.get("simulations") if isinstance(document, dict) else None
    if not isinstance(simulations, list) or not all(isinstance(each, dict) for each in simulations):
        raise InputError(f"{path}: Expected results of simulations, got other metadata.")
    for each in simulations:
        each["runs"] = []
    for row in table.to_pylist():
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
        with replacing(path) as stream:
            stream.write(f'{{"schema": {SCHEMA}, "history": [\n{_lines(rows)}\n]}}\n'.encode())
        return
    import pyarrow as pa

    table = pa.table({name: _column(name, kind, rows) for name, kind in HISTORY_COLUMNS.items()})
    _write_parquet(path, table, {"schema": SCHEMA})


def read_history(path: Path) -> list[HistoryEntry]:
    """Read what `write_history` wrote.

    Raises
    ------
    InputError
        Naming file and field, if it is something else or damaged.
    """
    check_suffix(path)
    if path.suffix == ".json":
        document = json_file(path, InputError)
    else:
        table, document = _read_parquet(path, HISTORY_COLUMNS)
        document["history"] = table.to_pylist()
    return [HistoryEntry(**row) for row in _validated(path, document, "HistoryDocument")["history"]]


# --- both ---------------------------------------------------------------------------------------------------------


def _json_text(document: dict[str, Any]) -> str:
    """A document with a line for each run."""
    parts = []
    for each in document["simulations"]:
        head = json.dumps({name: value for name, value in each.items() if name != "runs"}, allow_nan=False)
        parts.append(f'{head[:-1]}, "runs": [\n{_lines(each["runs"])}\n]}}')
    rest = json.dumps({name: value for name, value in document.items() if name != "simulations"}, allow_nan=False)
    return f'{rest[:-1]}, "simulations": [\n' + ",\n".join(parts) + "\n]}\n"


def _lines(rows: Sequence[dict[str, Any]]) -> str:
    return ",\n".join(json.dumps(row, allow_nan=False) for row in rows)


def _column(name: str, kind: type, rows: Sequence[Mapping[str, Any]]) -> pa.Array:
    values = [row[name] for row in rows]
    if kind is float:
        return reals(values)
    return booleans(values) if kind is bool else integers(values)


def _write_parquet(path: Path, table: pa.Table, document: Mapping[str, Any]) -> None:
    import pyarrow.parquet as pq

    table = table.replace_schema_metadata({_META: json.dumps(document, allow_nan=False)})
    with replacing(path) as stream:
        pq.write_table(table, stream, compression="zstd")


def _read_parquet(path: Path, columns: Mapping[str, type]) -> tuple[pa.Table, Any]:
    """The table, which has just those columns, and what its metadata hold."""
    with parquet_file(path, InputError) as file:
        table = file.read()
        table.validate(full=True)
    document = parsed_json(path, (table.schema.metadata or {}).get(_META, b"null"), InputError, "JSON in the metadata")
    if table.column_names != list(columns):
        got = one_line(", ".join(table.column_names))
        raise InputError(f"{path}: Expected columns {', '.join(columns)}, got {got}.")
    if not isinstance(document, dict):
        raise InputError(f"{path}: Expected histories of recurring jobs, got a table without their metadata.")
    return table, document


def _validated(path: Path, document: Any, model: str) -> Any:
    """The document's values once it has the form of `model`."""
    from bftrainer.zeus.simulation import result_schema

    return result_schema.validated(getattr(result_schema, model), document, path, InputError, "the document")
