"""A job with all its trials, written to a file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bftrainer.errors import OutputError
from bftrainer.files.writing import replacing
from bftrainer.zeus.server.schemas import JobSummary, TrialRow

__all__ = ["FORMS", "check_form", "write_job"]

FORMS = (".json", ".csv", ".parquet")


def check_form(path: Path) -> None:
    """Refuse a name that does not say how to write.

    Raises
    ------
    OutputError
        If it ends in none of `FORMS`.
    """
    if path.suffix.lower() not in FORMS:
        raise OutputError(f"{path}: Expected a name that ends in {', '.join(FORMS)}.")


def write_job(path: Path, job: JobSummary, trials: Iterable[TrialRow]) -> int:
    """Write a job's trials; JSON has the job too. Tells how many trials there were.

    Raises
    ------
    OutputError
        If the name does not say how to write, or the file cannot be written.
    """
    check_form(path)
    rows = [trial.model_dump() for trial in trials]
    with replacing(path) as stream:
        if path.suffix.lower() == ".json":
            document = {"job": job.model_dump(), "trials": rows}
            stream.write(json.dumps(document, indent=2, allow_nan=False).encode() + b"\n")
            return len(rows)
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet

        table = pa.Table.from_pylist(rows, schema=_schema())
        if path.suffix.lower() == ".csv":
            pyarrow.csv.write_csv(table, stream)
        else:
            pyarrow.parquet.write_table(table, stream)
    return len(rows)


def _schema() -> Any:
    """Types of the columns, also where all rows lack a value."""
    import pyarrow

    kinds = {
        "job_id": pyarrow.string(),
        "batch_size": pyarrow.int64(),
        "trial_number": pyarrow.int64(),
        "type": pyarrow.string(),
        "status": pyarrow.string(),
        "converged": pyarrow.bool_(),
        "observation": pyarrow.int64(),
    }
    return pyarrow.schema([(name, kinds.get(name, pyarrow.float64())) for name in TrialRow.model_fields])
