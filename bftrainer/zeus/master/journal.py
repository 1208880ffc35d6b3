"""Read and write the files of a recurring job: the job file, and the journal from which a job is resumed.

The journal is written to disk before each launch and after each run. Each version replaces the one before it
atomically, so the journal is whole whenever the master is killed. It holds either a run that is still to be made,
which a resumed master makes again, or the result of that run.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bftrainer.errors import JournalError, OutputError, SettingsError, TrainingReportError, TuningInputError, suggestion
from bftrainer.files.documents import fault_text, json_file, telling_fault, toml_file
from bftrainer.files.writing import replacing
from bftrainer.zeus.master.recurrences import Decisions, LocalDecisions, Plan, Recurrences
from bftrainer.zeus.master.script import RunSettings
from bftrainer.zeus.master.server_decisions import ServerDecisions
from bftrainer.zeus.policies.baselines import UCB, DefaultBatchSize, GridSearch
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer
from bftrainer.zeus.policies.job import Job
from bftrainer.zeus.policies.published import (
    NUM_EXPLORATION,
    GTSBatchSizeOptimizer,
    PruningGTSBatchSizeOptimizer,
)

# Those that need no trace of measured runs, by the names that `bftrainer zeus` has for them.
POLICIES: Mapping[str, Any] = {
    "zeus": PruningGTSBatchSizeOptimizer,
    "gts": GTSBatchSizeOptimizer,
    "default": DefaultBatchSize,
    "grid": GridSearch,
    "ucb": UCB,
}


def named_policy(name: str, seed: int, window_size: int = 0) -> BatchSizeOptimizer:
    """A new policy.

    Parameters
    ----------
    name : str
        One of `POLICIES`.
    seed : int
        For those that draw.
    window_size : int
        Latest runs of a batch size that count, 0 for all; `zeus` alone heeds it.

    Raises
    ------
    TuningInputError
        If there is none of that name, or a number is not usable.
    """
    if name not in POLICIES:
        raise TuningInputError(f"Unknown batch-size policy {name!r}.{suggestion(name, POLICIES)}")
    if name == "zeus":
        return PruningGTSBatchSizeOptimizer(window_size=window_size, seed=seed, verbose=False)
    if name == "gts":
        return GTSBatchSizeOptimizer(True, num_exploration=NUM_EXPLORATION, seed=seed, verbose=False)
    policy: BatchSizeOptimizer = POLICIES[name]()
    return policy


JOURNAL = "master.json"
LOCK = "lock"

# In place of a policy's name.
SERVER = "server"

SCHEMA = 1
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Journal:
    """A recurring job as its journal has it.

    Parameters
    ----------
    plan : Plan
    settings : RunSettings
    progress : Recurrences
    """

    plan: Plan
    settings: RunSettings
    progress: Recurrences


def journal_document(journal: Journal) -> dict[str, Any]:
    """All state in plain values, fit for JSON."""
    plan = asdict(journal.plan)
    return {
        "schema": SCHEMA,
        # JSON knows no infinity: null is a bound that never stops a run.
        "plan": plan | {"beta_knob": plan["beta_knob"] if math.isfinite(plan["beta_knob"]) else None},
        "settings": asdict(journal.settings),
        "policy": _kept(journal.progress.decisions),
        "progress": journal.progress.to_dict(),
    }


def write_journal(logdir: Path, journal: Journal) -> None:
    """Put all state on disk, in one step.

    Raises
    ------
    OutputError
        If it cannot be written; the one before stays.
    """
    document = journal_document(journal)
    with replacing(logdir / JOURNAL) as stream:
        stream.write(f"{json.dumps(document, allow_nan=False)}\n".encode())
        # Killing this process would not need it, but a machine may lose its power.
        stream.flush()
        os.fsync(stream.fileno())


def read_journal(logdir: Path, token: str | None = None) -> Journal:
    """What the journal of a directory says.

    Parameters
    ----------
    logdir : Path
    token : str, optional
        For a server that decides; journals don't keep it.

    Raises
    ------
    JournalError
        Naming file and field, if there is none, it is damaged, or the policy is one that cannot be restored.
    """
    path = logdir / JOURNAL
    document = _validated(path, _document(path))
    try:
        kept = document["plan"]
        kept |= {"job": Job(**kept["job"]), "batch_sizes": tuple(kept["batch_sizes"])}
        plan = Plan(**kept | {"beta_knob": math.inf if kept["beta_knob"] is None else kept["beta_knob"]})
        settings = RunSettings(**document["settings"])
        if document["policy"] is None:
            raise JournalError("This policy is not one of bftrainer: its state cannot be restored from a journal.")
        progress = Recurrences(plan, _restored(document["policy"], plan, token), settings.total_power_w)
        progress.restore(document["progress"])
    except (TuningInputError, SettingsError, TrainingReportError, JournalError) as fault:
        raise JournalError(f"{path}: {fault}") from None
    return Journal(plan, settings, progress)


def runs_booked(logdir: Path) -> int:
    """How many runs the journal of a directory has, whatever policy it keeps.

    Raises
    ------
    JournalError
        As for `read_journal`.
    """
    path = logdir / JOURNAL
    return len(_validated(path, _document(path))["progress"]["booked"])


@contextmanager
def locked(logdir: Path, patience_s: float = 0.0) -> Iterator[int]:
    """Keep other masters out of a directory; gives a file descriptor that holds the lock as long as it is open.

    Parameters
    ----------
    logdir : Path
    patience_s : float
        Time to wait for another one to end.

    Raises
    ------
    JournalError
        If another one is still there.
    OutputError
        If the directory cannot be written to.
    """
    try:
        lock = os.open(logdir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as cause:
        raise OutputError(f"{logdir / LOCK}: cannot be written ({cause.strerror or cause}).") from None
    try:
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise JournalError(f"{logdir}: Locked: another master is running this job.") from None
                time.sleep(POLL_S)
        yield lock
    finally:
        os.close(lock)


def is_running(logdir: Path) -> bool:
    """Whether a master runs the job of a directory now, or what it left is still being ended."""
    try:
        with (logdir / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _kept(decisions: Decisions) -> dict[str, Any] | None:
    """Who decides, in plain values; None for a policy that is not of ours, which only its maker could restore."""
    if isinstance(decisions, ServerDecisions):
        return {"name": SERVER, "state": decisions.to_dict()}
    policy: Any = decisions.policy if isinstance(decisions, LocalDecisions) else None
    name = next((name for name, kind in POLICIES.items() if type(policy) is kind), None)
    return None if name is None else {"name": name, "state": policy.to_dict()}


def _restored(kept: dict[str, Any], plan: Plan, token: str | None) -> Decisions:
    name = kept.get("name")
    if name == SERVER:
        return ServerDecisions.from_dict(kept.get("state", {}), token)
    # These two say each choice on standard output unless told not to.
    quiet = {"verbose": False} if name in ("zeus", "gts") else {}
    try:
        policy = POLICIES[kept["name"]].from_dict(kept["state"], **quiet)
    except (LookupError, TypeError, ValueError, AttributeError) as fault:
        raise JournalError(f"Expected the state of a policy, got something else ({fault!r}).") from None
    return LocalDecisions(policy, plan.job)


def _document(path: Path) -> Any:
    if path.parent.is_dir() and not path.exists():
        raise JournalError(f"{path.parent}: Not the logs of a recurring job: {path.name} is missing.")
    return json_file(path, JournalError)


def _validated(path: Path, document: Any) -> dict[str, Any]:
    from bftrainer.zeus.file_schemas import JournalDocument, validated

    return validated(JournalDocument, document, path, JournalError, "the journal")


def read_job_file(path: Path, changes: Mapping[str, Any] | None = None) -> tuple[Job, Any]:
    """A job, and how it is tuned: keys of the file as attributes.

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

    from bftrainer.zeus.file_schemas import JobFile, LaunchedJob

    content, _ = toml_file(path, TuningInputError)
    keys = ["schema" if name == "schema_" else name for name in JobFile.model_fields]
    known: dict[tuple[int | str, ...], list[str]] = {(): keys, ("job",): list(LaunchedJob.model_fields)}
    try:
        file: Any = JobFile.model_validate(content | dict(changes or {}))
        here = path.parent.resolve()
        launched = file.job.model_dump()
        job = Job(**launched | {"workdir": str(here / launched["workdir"])})
    except ValidationError as fault:
        raise TuningInputError(f"{path}: {fault_text(telling_fault(fault), lambda at: known.get(at, []))}") from None
    except TuningInputError as fault:
        raise TuningInputError(f"{path}: {fault}") from None
    given = changes or {}
    for name in ("log_base", "monitor_path"):
        base = Path.cwd() if name in given else here
        setattr(file, name, str(base / getattr(file, name)))
    return job, file
