"""The journal of a recurring job: a line for the plan, then one for each launch and each result.

A line is on the disk before a run is launched, and as soon as it has ended. A job is resumed by registering it and
replaying its events: policies choose and learn again, so that any deterministic policy comes back to where it was. A
line that a kill cut off is none: its run is made again.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bftrainer.errors import OutputError, ResumeError
from bftrainer.files.line_journal import LineJournal
from bftrainer.files.opening import open_file
from bftrainer.zeus.master.plan import Plan, describe_policy, restore_policy
from bftrainer.zeus.master.recurrences import Recurrences
from bftrainer.zeus.master.script import RunSettings, check_table
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer
from bftrainer.zeus.policies.job import Job

JOURNAL = "journal.jsonl"
LOCK = "lock"
SCHEMA = 1
POLL_S = 0.05


class JobJournal:
    """The journal of a job, in the directory of its logs, and where the job stands after the lines read so far."""

    def __init__(self, logdir: Path) -> None:
        self.path, self._applied = logdir / JOURNAL, 0

    def begin(self, progress: Recurrences) -> None:
        """Write the plan of a new job."""
        assert progress.policy is not None
        policy = describe_policy(progress.policy)
        self._write("plan", {"schema": SCHEMA, **plan_document(progress), "policy": policy})
        self._applied = 1

    def append(self, progress: Recurrences, event: str, fields: Mapping[str, Any]) -> None:
        """Append an event, and apply it once it is on the disk: `OutputError` if it cannot be written."""
        self._write(event, fields)
        progress.apply(event, fields)
        self._applied += 1

    def _write(self, event: str, fields: Mapping[str, Any]) -> None:
        LineJournal(self.path).append([json.dumps({"event": event, **fields}, allow_nan=False)])

    def replay(self, policy: BatchSizeOptimizer | None = None, *, only_look: bool = False) -> Recurrences:
        """Register the job of the plan, the first line, and replay its events.

        Parameters
        ----------
        policy : BatchSizeOptimizer, optional
            A new policy like the one that the job began with, if the journal cannot say how to make it.
        only_look : bool
            Whether no policy is needed, as nothing will be decided.

        Raises
        ------
        ResumeError
            If there is no journal, it is damaged, or the policy cannot be made again or decides otherwise.
        """
        logdir = self.path.parent
        if not self.path.exists():
            missing = (
                f"Not the logs of a recurring job: {JOURNAL} is missing" if logdir.is_dir() else "No such directory"
            )
            raise ResumeError(f"{logdir}: {missing}.")
        with self._name_line(1, "the plan of a job"):
            first = json.loads(LineJournal(self.path).read()[0])
            if first["event"] != "plan" or first["schema"] != SCHEMA:
                raise ResumeError(f"Expected a plan of schema {SCHEMA}, got {first['event']} of {first['schema']}.")
            values = first["plan"]
            values["job"], values["batch_sizes"] = Job(**values["job"]), tuple(values["batch_sizes"])
            values["beta_knob"] = math.inf if values["beta_knob"] is None else values["beta_knob"]
            plan, settings = Plan(**values), check_table(RunSettings, first["settings"], ResumeError, "settings")
            if policy is None and not only_look:
                policy = restore_policy(first["policy"])
            progress = Recurrences(plan, settings, policy)
        self._applied = 1
        self.catch_up(progress)
        return progress

    def catch_up(self, progress: Recurrences) -> None:
        """Apply the events since the last one that is known, which another master may have appended."""
        for line in LineJournal(self.path).read()[self._applied :]:
            with self._name_line(self._applied + 1, "an event of a job"):
                fields = json.loads(line)
                progress.apply(fields.pop("event"), fields)
            self._applied += 1

    @contextmanager
    def _name_line(self, number: int, expected: str) -> Iterator[None]:
        """Turn whatever a line that is no such thing raises into `ResumeError` that names it."""
        try:
            yield
        except ResumeError as fault:
            raise ResumeError(f"{self.path}:{number}: {fault}") from None
        except (ValueError, TypeError, LookupError, AttributeError, AssertionError, RecursionError) as fault:
            reason = str(fault).partition("\n")[0]
            raise ResumeError(f"{self.path}:{number}: Expected {expected}, got something else ({reason}).") from None


def plan_document(progress: Recurrences) -> dict[str, Any]:
    """Return the plan of a job and the settings of its runs as plain values for JSON."""
    plan = asdict(progress.plan)
    # JSON has no infinity: null means that no run is stopped.
    beta_knob = plan["beta_knob"] if math.isfinite(plan["beta_knob"]) else None
    return {"plan": plan | {"beta_knob": beta_knob}, "settings": progress.settings.model_dump()}


@contextmanager
def lock_directory(logdir: Path, patience_s: float = 0.0) -> Iterator[int]:
    """Keep other masters out of a directory, waiting for another one to end; yields a descriptor that holds the lock.

    `ResumeError` if another master still holds the lock after `patience_s`, `OutputError` if the directory cannot be
    written to.
    """
    # Scripts inherit the descriptor, so that the lock lasts until all processes of a killed master are gone: of
    # filelock that is private.
    try:
        lock = os.open(logdir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as cause:
        raise OutputError(f"{logdir / LOCK}: cannot be written ({cause.strerror or cause}).") from None
    try:
        deadline = time.monotonic() + patience_s
        while not _try_lock(lock, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                holder = os.pread(lock, 1000, 0).decode(errors="replace") or "its processes are being ended"
                raise ResumeError(f"{logdir}: Locked: another master is running this job ({holder}).")
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
            return not _try_lock(lock.fileno(), fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
