"""A job as the commands and the status page show it, and with all its trials as a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

from bftrainer.errors import OutputError
from bftrainer.files.writing import replacing
from bftrainer.zeus.server.messages import JobSummary, TrialRow

__all__ = ["FEW", "FORMS", "check_form", "few", "write_job"]

# Numbers that are shown in a row.
FEW = 16


def few(numbers: Sequence[int], between: str = ", ") -> str:
    """Numbers in a row; of many, the first and the last, and how many there are."""
    if len(numbers) <= FEW:
        return between.join(map(str, numbers))
    first, last = numbers[: FEW - 2], numbers[-1]
    return f"{between.join(map(str, first))}{between}...{between}{last} ({len(numbers):,} in all)"


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

    kinds = {str: pyarrow.string(), int: pyarrow.int64(), bool: pyarrow.bool_(), float: pyarrow.float64()}
    hints = {name: field.annotation for name, field in TrialRow.model_fields.items()}
    return pyarrow.schema([(name, kinds[(get_args(hint) or (hint,))[0]]) for name, hint in hints.items()])
