"""Job files: a job that recurs and how it is tuned, in TOML, checked key by key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bftrainer.errors import TuningInputError
from bftrainer.files.documents import toml_file
from bftrainer.files.toml_tables import fault_text, telling_fault
from bftrainer.zeus.policies.job import Job

if TYPE_CHECKING:
    from bftrainer.zeus.master.schema import JobFile

__all__ = ["read_job_file"]


def read_job_file(path: Path, changes: Mapping[str, Any] | None = None) -> tuple[Job, JobFile]:
    """A job, and how it is tuned.

    Parameters
    ----------
    path : Path
        The file; `workdir`, `log_base` and `monitor_path` in it are relative to its directory.
    changes : mapping, optional
        Values by key that go before those of the file; its paths are relative to the current directory.

    Raises
    ------
    TuningInputError
        Naming file and key, if it cannot be read, is no TOML, or a key is unknown, missing or of the wrong type.
    """
    from pydantic import ValidationError

    from bftrainer.zeus.master.schema import JobFile, LaunchedJob

    content, _ = toml_file(path, TuningInputError)
    keys = ["schema" if name == "schema_" else name for name in JobFile.model_fields]
    known: dict[tuple[int | str, ...], list[str]] = {(): keys, ("job",): list(LaunchedJob.model_fields)}
    try:
        file = JobFile.model_validate(content | dict(changes or {}))
        here = path.parent.resolve()
        job = Job(**file.job.model_dump() | {"workdir": str(here / file.job.workdir)})
    except ValidationError as fault:
        raise TuningInputError(f"{path}: {fault_text(telling_fault(fault), lambda at: known.get(at, []))}") from None
    except TuningInputError as fault:
        raise TuningInputError(f"{path}: {fault}") from None
    given = changes or {}
    for name in ("log_base", "monitor_path"):
        base = Path.cwd() if name in given else here
        setattr(file, name, str(base / getattr(file, name)))
    return job, file
