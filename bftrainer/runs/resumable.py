"""Runs that can be resumed: what is kept beside their checkpoints, and what must be as it was."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from bftrainer.errors import ResumeError
from bftrainer.files.directories import CHECKPOINT, ResultDirectory
from bftrainer.files.signed_journal import SignedJournal
from bftrainer.files.writing import versions
from bftrainer.replay.checkpoints import Checkpoints
from bftrainer.runs.run_inputs import Inputs

BEGUN = "begun"
"""File that describes a run from its start on, until it is finished."""
_RUN = b"run"


def begun_run(directory: ResultDirectory) -> tuple[tuple[str, ...], Path]:
    """Arguments of the unfinished run in a directory, which is brought there, and the directory that it was begun in.

    Raises
    ------
    ResumeError
        If there is none, or another user's.
    """
    if not (directory.working / BEGUN).exists():
        if not (directory.path / BEGUN).exists():
            found = "a finished run" if (directory.path / "summary.json").exists() else "no run"
            raise ResumeError(f"{directory.path}: Expected an unfinished run to resume, found {found}.")
        for name in (BEGUN, CHECKPOINT):
            if (directory.path / name).exists():
                shutil.copy2(directory.path / name, directory.working / name)
    with closing(SignedJournal(directory.working / BEGUN, _RUN)) as begun:
        about = _about(begun)
    return tuple(about["arguments"]), Path(about["directory"])


def _about(begun: SignedJournal) -> dict[str, Any]:
    text = next(iter(begun), None)
    if text is None:
        raise ResumeError(f"{begun.path}: Expected the description of a run, found none.")
    about: dict[str, Any] = json.loads(text)
    return about


def refuse_other_options(given: Mapping[str, Any], begun: Mapping[str, Any]) -> None:
    """Refuse options that differ from those of the run that is resumed.

    Parameters
    ----------
    given, begun : mapping of str to object
        Values by option.

    Raises
    ------
    ResumeError
        Naming them.
    """
    odd = sorted(name for name in given.keys() | begun.keys() if given.get(name) != begun.get(name))
    if odd:
        raise ResumeError(f"Expected the options that the run was begun with, or none; these differ: {', '.join(odd)}.")


@contextmanager
def checkpointed(
    directory: ResultDirectory, arguments: Sequence[str], inputs: Inputs, every_s: float
) -> Iterator[Checkpoints]:
    """Keep checkpoints of a run while it goes on, and give those that there are.

    Parameters
    ----------
    directory : ResultDirectory
    arguments : sequence of str
        Those of the command, to repeat it by.
    inputs : Inputs
        Their files' checksums, and the versions of the software, must be as they were.
    every_s : float
        How many seconds may have to be done again.

    Raises
    ------
    ResumeError
        If something has changed.
    OutputError
        If nothing can be written.
    """
    about = {"arguments": list(arguments), "versions": versions(), "sources": inputs.sources, "directory": os.getcwd()}
    with ExitStack() as opened:
        begun = opened.enter_context(closing(SignedJournal(directory.working / BEGUN, _RUN)))
        if len(begun):
            _refuse_changes(_about(begun), json.loads(json.dumps(about)))
        else:
            begun.append(json.dumps(about).encode())
        journal = opened.enter_context(closing(SignedJournal(directory.working / CHECKPOINT, begun.signature)))
        yield Checkpoints(journal, every_s)


def _refuse_changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for what in ("versions", "sources"):
        for name in sorted({*then[what], *now[what]}):
            before, after = then[what].get(name), now[what].get(name)
            if before != after:
                raise ResumeError(
                    f"Cannot be resumed: {_told(name, before)} when it was begun, {_told(name, after)} now."
                )


def _told(name: str, found: Any) -> str:
    if isinstance(found, Mapping):
        return f"{found['path']} had SHA-256 {found['sha256'][:12]}..."
    return f"{name} {'missing' if found is None else found}"


def forget_checkpoints(directory: ResultDirectory) -> None:
    """Have what a finished run needs no more deleted when its results are whole: writing these may fail, too."""
    directory.unneeded.update((BEGUN, CHECKPOINT))


def last_checkpoint(directory: ResultDirectory) -> datetime | None:
    """When the last checkpoint was made; None if there is none."""
    path: Path = directory.working / CHECKPOINT
    with (
        closing(SignedJournal(directory.working / BEGUN, _RUN)) as begun,
        closing(SignedJournal(path, begun.signature)) as journal,  # the first one may be cut off
    ):
        return datetime.fromtimestamp(path.stat().st_mtime).astimezone() if len(journal) else None
