"""Recurring jobs from a TOML file: one `[[job]]` each, checked key by key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bftrainer.errors import TuningInputError
from bftrainer.files.opening import one_line
from bftrainer.files.toml_tables import fault_text, telling_fault, toml_tables
from bftrainer.zeus.policies.job import Job

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = ["read_jobs"]


def read_jobs(path: Path) -> list[Job]:
    """Jobs of a TOML file, in its order.

    Raises
    ------
    TuningInputError
        Naming file and job, if the file is no TOML, has no job, the same one twice, or a key is unknown, missing or of
        the wrong type.
    """
    jobs: list[Job] = []
    for number, table in enumerate(toml_tables(path, "job", TuningInputError), start=1):
        job = _job(path, number, table)
        if job in jobs:
            raise TuningInputError(f"{path}, job {number}: Expected each job once, found {job} again.")
        jobs.append(job)
    if not jobs:
        raise TuningInputError(f"{path}: Expected at least one [[job]], found none.")
    return jobs


def _job(path: Path, number: int, table: dict[str, Any]) -> Job:
    from pydantic import ValidationError

    from bftrainer.zeus.simulation.schema import JobTable

    names = [table.get(key) for key in ("dataset", "network", "optimizer")]
    known = all(isinstance(name, str) and name for name in names)
    where = f"{path}, job {one_line(','.join(map(str, names))) if known else number}"
    try:
        return Job(**JobTable.model_validate(table).model_dump())
    except ValidationError as fault:
        raise TuningInputError(f"{where}: {_message(fault)}") from None
    except TuningInputError as error:
        raise TuningInputError(f"{path}: {error}") from None


def _message(fault: ValidationError) -> str:
    from bftrainer.zeus.simulation.schema import JobTable

    return fault_text(telling_fault(fault), lambda path: [] if path else list(JobTable.model_fields))
