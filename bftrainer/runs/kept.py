"""What runs have left: whole, damaged or partial results, unfinished ones, and problems that solvers failed on."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bftrainer.errors import BftrainerError, InputError, RunDirectoryError
from bftrainer.files.claims import LOCK, writer_of
from bftrainer.files.directories import CHECKPOINT, place_of, settle
from bftrainer.files.documents import json_file
from bftrainer.files.manifest import check_intact, written_files
from bftrainer.files.writing import replacing, state_directory
from solvers import AllocationProblem, Limits
from solvers.problem_document import document_of, problem_of

MOST_KEPT = 100
_OTHERS = "another's"


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A result directory, or what is to become one.

    Parameters
    ----------
    path : Path
        Where the results are, or will be.
    state : str
        ``finished``; ``partial`` or ``unfinished``, which can be resumed; ``left over``, which cannot; ``in use``; or
        ``another's``: unfinished or left over, and not this user's.
    files, size : int
        Number of files, and their bytes.
    writer : str
        Who is writing there, if somebody is.
    """

    path: Path
    state: str
    files: int
    size: int
    writer: str = ""


def kept_runs(place: Path) -> list[KeptRun]:
    """Result directories in a place, and unfinished ones; without those inside sweeps.

    Raises
    ------
    RunDirectoryError
        If it is not a directory.
    """
    if not place.is_dir():
        raise RunDirectoryError(f"{place}: Expected a directory, found {'a file' if place.exists() else 'nothing'}.")
    found = []
    for path in sorted(place.iterdir(), key=lambda path: place_of(path)):
        if path.is_dir() and not path.is_symlink() and (written_files(path) or place_of(path) != path):
            found.append(_described(path))
    return found


def _described(path: Path) -> KeptRun:
    if not os.access(path, os.R_OK | os.X_OK):
        return KeptRun(place_of(path), _OTHERS, 0, 0)
    files = [each for each in path.rglob("*") if each.is_file() and each.name != LOCK]
    size = sum(each.stat().st_size for each in files)
    listed = written_files(path)
    writer, resumable = writer_of(path), (path / CHECKPOINT).exists()
    begun = resumable or None in listed.values()  # checksums are those of what is whole
    if writer:
        state = "in use"
    elif place_of(path) == path:
        state = "partial" if begun else "finished"
    elif not os.access(path, os.W_OK):
        state = _OTHERS
    else:
        state = "unfinished" if resumable and not listed else "left over"
    return KeptRun(place_of(path), state, len(files), size, writer)


def faults(path: Path) -> Iterator[str]:
    """What is wrong with a result directory: files that are missing, or not as they were written.

    Raises
    ------
    RunDirectoryError
        If it has no manifest.
    """
    listed = written_files(path)
    if not listed:
        raise RunDirectoryError(f"{path}: Expected a result directory, found no manifest in it.")
    for name, digest in listed.items():
        if digest is None:
            yield f"{path / name}: Has no checksum: it was being written, or an earlier version wrote it."
            continue
        try:
            check_intact(path / name)
        except FileNotFoundError:
            yield f"{path / name}: Missing."
        except RunDirectoryError as error:
            yield str(error)
    for each in path.glob("runs/*"):
        if written_files(each):
            yield from faults(each)


def clean(place: Path, *, unfinished: bool) -> list[KeptRun]:
    """Complete or delete what killed processes have left in a place; return what there was.

    Parameters
    ----------
    place : Path
    unfinished : bool
        Whether runs that could be resumed are deleted as well.

    Raises
    ------
    OutputError
        If something cannot be moved or deleted.
    """
    goes = {"left over", "unfinished"} if unfinished else {"left over"}
    left = [run for run in kept_runs(place) if run.state in goes]
    settle(place, lambda path: any(run.path == path for run in left))
    return left


def keep_problem(name: str, problem: AllocationProblem, limits: Limits) -> str:
    """Keep a problem that the solver of this name failed on; return what to tell of that.

    The last `MOST_KEPT` are kept: a solver that always fails does so at each decision.
    """
    text = json.dumps(document_of(problem, limits, name)).encode()
    try:
        place = state_directory() / "problems"
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = place / f"{hashlib.sha256(text).hexdigest()[:16]}.json"
        if not path.exists():
            there = sorted(place.glob("*.json"), key=lambda kept: kept.stat().st_mtime_ns)
            for old in there[: max(0, len(there) + 1 - MOST_KEPT)]:
                old.unlink(missing_ok=True)
            with replacing(path) as stream:
                stream.write(text)
    except (BftrainerError, OSError) as error:
        return f"The problem could not be kept: {error}"
    return f"Try the problem again: bftrainer solve {shlex.quote(str(path))}"


def kept_problem(path: Path) -> tuple[AllocationProblem, Limits, str]:
    """A problem that was kept, the limits it was solved within, and the name of the solver.

    Raises
    ------
    InputError
        If the file cannot be read, or is of another form.
    """
    try:
        return problem_of(json_file(path, InputError))
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
