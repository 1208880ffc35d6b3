"""Export of a job's trials to a file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args, get_type_hints

from bftrainer.errors import OutputError
from bftrainer.files.documents import disarmed
from bftrainer.files.writing import replacing
from bftrainer.zeus.server.messages import JobSummary, TrialRow

_FORMS = (".json", ".csv", ".parquet")


def check_form(path: Path) -> None:
    """Check that a file name's ending says how to write it.

    Raises
    ------
    OutputError
        If the name ends in none of .json, .csv and .parquet.
    """
    if path.suffix.lower() not in _FORMS:
        raise OutputError(f"{path}: Expected a name that ends in {', '.join(_FORMS)}.")


def write_job(path: Path, job: JobSummary, trials: Iterable[TrialRow]) -> int:
    """Write a job's trials, in JSON with the job; return the number of trials. In CSV, no name is a formula.

    Raises
    ------
    OutputError
        If the name's ending is unknown, or the file cannot be written.
    """
    check_form(path)
    rows = [asdict(trial) for trial in trials]
    with replacing(path) as stream:
        if path.suffix.lower() == ".json":
            document = {"job": job.model_dump(), "trials": rows}
            stream.write(json.dumps(document, indent=2, allow_nan=False).encode() + b"\n")
            return len(rows)
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet

        if path.suffix.lower() == ".csv":
            rows = [{name: disarmed(cell) for name, cell in row.items()} for row in rows]
        table = pa.Table.from_pylist(rows, schema=_schema())
        if path.suffix.lower() == ".csv":
            pyarrow.csv.write_csv(table, stream)
        else:
            pyarrow.parquet.write_table(table, stream)
    return len(rows)


def _schema() -> Any:
    """Return the types of the columns, which also hold if all rows lack a value."""
    import pyarrow

    kinds = {str: pyarrow.string(), int: pyarrow.int64(), bool: pyarrow.bool_(), float: pyarrow.float64()}
    hints = get_type_hints(TrialRow)
    return pyarrow.schema([(name, kinds[(get_args(hint) or (hint,))[0]]) for name, hint in hints.items()])
