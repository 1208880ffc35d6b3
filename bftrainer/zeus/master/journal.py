"""Read and write the files of a recurring job: the job file, and the journal from which a job is resumed.

The journal is written to disk before each launch and after each run. Each version replaces the one before it
atomically, so the journal is whole whenever the master is killed. It holds either a run that is still to be made,
which a resumed master makes again, or the result of that run.
"""

from __future__ import annotations

import fcntl
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bftrainer.errors import JournalError, OutputError, SettingsError, TrainingReportError, TuningInputError, suggestion
from bftrainer.files.documents import fault_text, json_file, telling_fault, toml_file
from bftrainer.files.opening import open_file
from bftrainer.zeus.master.recurrences import Decisions, LocalDecisions, Plan, Recurrences
from bftrainer.zeus.master.script import RunSettings, write_json
from bftrainer.zeus.master.server_decisions import ServerDecisions
from bftrainer.zeus.policies.baselines import UCB, DefaultBatchSize, GridSearch
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer
from bftrainer.zeus.policies.job import Job
from bftrainer.zeus.policies.published import (
    NUM_EXPLORATION,
    GTSBatchSizeOptimizer,
    PruningGTSBatchSizeOptimizer,
)

# Policies that need no trace of measured runs, by their names in `bftrainer zeus`.
POLICIES: Mapping[str, Any] = {
    "zeus": PruningGTSBatchSizeOptimizer,
    "gts": GTSBatchSizeOptimizer,
    "default": DefaultBatchSize,
    "grid": GridSearch,
    "ucb": UCB,
}


def named_policy(name: str, seed: int, window_size: int = 0) -> BatchSizeOptimizer:
    """Make a policy by its name.

    Parameters
    ----------
    name : str
        One of `POLICIES`.
    seed : int
        Seed for policies that draw at random.
    window_size : int
        Number of latest runs of a batch size that count, 0 for all; only `zeus` uses it.

    Raises
    ------
    TuningInputError
        If there is no policy of that name, or a number is out of range.
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

# Stands in place of a policy's name if a server decides.
SERVER = "server"

SCHEMA = 1
POLL_S = 0.05


def journal_document(progress: Recurrences) -> dict[str, Any]:
    """Return all state of a recurring job as plain values for JSON."""
    plan = asdict(progress.plan)
    return {
        "schema": SCHEMA,
        # JSON has no infinity: null means that no run is stopped.
        "plan": plan | {"beta_knob": plan["beta_knob"] if math.isfinite(plan["beta_knob"]) else None},
        "settings": asdict(progress.settings),
        "policy": _kept(progress.decisions),
        "progress": progress.to_dict(),
    }


def write_journal(logdir: Path, progress: Recurrences) -> None:
    """Write all state to disk atomically.

    Raises
    ------
    OutputError
        If the journal cannot be written; the previous one stays.
    """
    write_json(logdir / JOURNAL, journal_document(progress))


def read_journal(logdir: Path, token: str | None = None) -> Recurrences:
    """Read the state of a job from the journal in its directory.

    Parameters
    ----------
    logdir : Path
    token : str, optional
        Token for a server that decides; journals don't store it.

    Raises
    ------
    JournalError
        If there is no journal, it is damaged, or its policy cannot be restored; the message names file and field.
    """
    path = logdir / JOURNAL
    document = _document(path)
    try:
        kept = document["plan"]
        kept |= {"job": Job(**kept["job"]), "batch_sizes": tuple(kept["batch_sizes"])}
        plan = Plan(**kept | {"beta_knob": math.inf if kept["beta_knob"] is None else kept["beta_knob"]})
        settings = RunSettings(**document["settings"])
        if document["policy"] is None:
            raise JournalError("This policy is not one of bftrainer: its state cannot be restored from a journal.")
        progress = Recurrences(plan, settings, _restored(document["policy"], plan, token))
        progress.restore(document["progress"])
    except (TuningInputError, SettingsError, TrainingReportError, JournalError) as fault:
        raise JournalError(f"{path}: {fault}") from None
    return progress


def runs_booked(logdir: Path) -> int:
    """Count the runs in the journal of a directory, even if its policy cannot be restored.

    Raises
    ------
    JournalError
        See `read_journal`.
    """
    return len(_document(logdir / JOURNAL)["progress"]["booked"])


@contextmanager
def locked(logdir: Path, patience_s: float = 0.0) -> Iterator[int]:
    """Keep other masters out of a directory; yields a file descriptor that holds the lock while it is open.

    Parameters
    ----------
    logdir : Path
    patience_s : float
        Time to wait for another master to end.

    Raises
    ------
    JournalError
        If another master still holds the lock.
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
                    holder = os.pread(lock, 1000, 0).decode(errors="replace") or "its processes are being ended"
                    raise JournalError(f"{logdir}: Locked: another master is running this job ({holder}).") from None
                time.sleep(POLL_S)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield lock
    finally:
        os.close(lock)


def is_running(logdir: Path) -> bool:
    """Whether a master is running the job of a directory, or its processes are still being ended."""
    try:
        with open_file(logdir / LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _kept(decisions: Decisions) -> dict[str, Any] | None:
    """Return the policy or server as plain values; None for a user's own policy, which cannot be restored."""
    if isinstance(decisions, ServerDecisions):
        return {"name": SERVER, "state": decisions.to_dict()}
    policy: Any = decisions.policy if isinstance(decisions, LocalDecisions) else None
    name = next((name for name, kind in POLICIES.items() if type(policy) is kind), None)
    return None if name is None else {"name": name, "state": policy.to_dict()}


def _restored(kept: dict[str, Any], plan: Plan, token: str | None) -> Decisions:
    name = kept.get("name")
    if name == SERVER:
        return ServerDecisions.from_dict(kept.get("state", {}), token)
    # These two print each choice on standard output by default.
    quiet = {"verbose": False} if name in ("zeus", "gts") else {}
    try:
        policy = POLICIES[kept["name"]].from_dict(kept["state"], **quiet)
    except (LookupError, TypeError, ValueError, AttributeError) as fault:
        raise JournalError(f"Expected the state of a policy, got something else ({fault!r}).") from None
    return LocalDecisions(policy, plan.job)


def _document(path: Path) -> dict[str, Any]:
    """Read a journal as plain values, whose form is checked."""
    from bftrainer.zeus.file_schemas import JournalDocument, validated

    if path.parent.is_dir() and not path.exists():
        raise JournalError(f"{path.parent}: Not the logs of a recurring job: {path.name} is missing.")
    document = json_file(path, JournalError)
    return validated(JournalDocument, document, path, JournalError, "the journal")


def read_job_file(path: Path, changes: Mapping[str, Any] | None = None) -> tuple[Job, Any]:
    """Read a job and its tuning settings from a job file; the settings are attributes named like the keys.

    Parameters
    ----------
    path : Path
        The job file; its `workdir`, `log_base` and `monitor_path` are relative to its directory.
    changes : mapping, optional
        Values by key that override those of the file; paths here are relative to the current directory.

    Raises
    ------
    TuningInputError
        If the file cannot be read or is not TOML, or a key is unknown, missing or mistyped; it names file and key.
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
