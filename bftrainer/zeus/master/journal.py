"""The journal of a recurring job: a line for the plan, then one for each launch, result, and verdict of a server.

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

from bftrainer.errors import OutputError, RunDirectoryError
from bftrainer.files.line_journal import LineJournal
from bftrainer.files.opening import open_file
from bftrainer.zeus.master.plan import Plan, restore_policy
from bftrainer.zeus.master.recurrences import Decisions, LocalDecisions, Recurrences
from bftrainer.zeus.master.script import RunSettings, check_table
from bftrainer.zeus.master.server_decisions import ServerDecisions
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer
from bftrainer.zeus.policies.job import Job

JOURNAL = "journal.jsonl"
LOCK = "lock"
SCHEMA = 1
POLL_S = 0.05


class JobJournal:
    """The journal of a job, in the directory of its logs, which its master appends to, and replays to where it stands.

    `applied` is the number of its lines that the master knows.
    """

    def __init__(self, logdir: Path) -> None:
        self.path, self.applied = logdir / JOURNAL, 0
        self._file = LineJournal(self.path)

    def append(self, event: str, fields: Mapping[str, Any]) -> None:
        """Append an event; it is on the disk when this returns, or `OutputError`."""
        self._file.append([json.dumps({"event": event, **fields}, allow_nan=False)])
        self.applied += 1

    def append_plan(self, progress: Recurrences) -> None:
        """Begin the journal of a new job."""
        self.append("plan", {"schema": SCHEMA, **plan_document(progress), **progress.decisions.describe()})

    def replay(
        self, token: str | None = None, policy: BatchSizeOptimizer | None = None, *, only_look: bool = False
    ) -> Recurrences:
        """Register the job of the plan, the first line, and replay its events.

        Parameters
        ----------
        token, policy : str and BatchSizeOptimizer, optional
            A token for a server that decides, as journals store none; and a new policy like the one that the job began
            with, if the journal cannot say how to make it.
        only_look : bool
            Whether neither policy nor server is needed, as nothing will be decided.

        Raises
        ------
        RunDirectoryError
            If there is no journal, it is damaged, or the policy cannot be made again or decides otherwise.
        """
        logdir = self.path.parent
        if not self.path.exists():
            missing = (
                f"Not the logs of a recurring job: {JOURNAL} is missing" if logdir.is_dir() else "No such directory"
            )
            raise RunDirectoryError(f"{logdir}: {missing}.")
        with self._name_line(1, "the plan of a job"):
            first = json.loads(self._file.read()[0])
            if first["event"] != "plan" or first["schema"] != SCHEMA:
                raise RunDirectoryError(
                    f"Expected a plan of schema {SCHEMA}, got {first['event']} of {first['schema']}."
                )
            values = first["plan"]
            values["job"], values["batch_sizes"] = Job(**values["job"]), tuple(values["batch_sizes"])
            values["beta_knob"] = math.inf if values["beta_knob"] is None else values["beta_knob"]
            plan, settings = Plan(**values), check_table(RunSettings, first["settings"], RunDirectoryError, "settings")
            decisions: Decisions
            if only_look:
                decisions = Decisions(alone="server" not in first)
            elif "server" in first:
                decisions = ServerDecisions.restore(first["server"], token)
            else:
                policy = policy or restore_policy(first["policy"])
                policy.register_job(plan.job, list(plan.batch_sizes))
                decisions = LocalDecisions(policy, plan.job)
            progress = Recurrences(plan, settings, decisions)
        self.applied = 1
        self.catch_up(progress)
        return progress

    def catch_up(self, progress: Recurrences) -> None:
        """Apply the events that another master may have appended since the last one that is known."""
        self._file = LineJournal(self.path)
        lines = self._file.read()
        for number, line in enumerate(lines[self.applied :], start=self.applied + 1):
            with self._name_line(number, "an event of a job"):
                fields = json.loads(line)
                progress.apply(fields.pop("event"), fields)
        self.applied = len(lines)

    @contextmanager
    def _name_line(self, number: int, expected: str) -> Iterator[None]:
        """Turn whatever a line that is no such thing raises into `RunDirectoryError` that names it."""
        try:
            yield
        except RunDirectoryError as fault:
            raise RunDirectoryError(f"{self.path}:{number}: {fault}") from None
        except (ValueError, TypeError, LookupError, AttributeError, AssertionError, RecursionError) as fault:
            reason = str(fault).partition("\n")[0]
            raise RunDirectoryError(
                f"{self.path}:{number}: Expected {expected}, got something else ({reason})."
            ) from None


def plan_document(progress: Recurrences) -> dict[str, Any]:
    """Return the plan of a job and the settings of its runs as plain values for JSON."""
    plan = asdict(progress.plan)
    # JSON has no infinity: null means that no run is stopped.
    beta_knob = plan["beta_knob"] if math.isfinite(plan["beta_knob"]) else None
    return {"plan": plan | {"beta_knob": beta_knob}, "settings": progress.settings.model_dump()}


@contextmanager
def lock_directory(logdir: Path, patience_s: float = 0.0) -> Iterator[int]:
    """Keep other masters out of a directory, waiting for another one to end; yields a descriptor that holds the lock.

    `RunDirectoryError` if another master still holds the lock after `patience_s`, `OutputError` if the directory cannot
    be written to.
    """
    # Scripts inherit the descriptor, so that the lock lasts until all processes of a killed master are gone: of
    # filelock that is private.
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
                    raise RunDirectoryError(
                        f"{logdir}: Locked: another master is running this job ({holder})."
                    ) from None
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
