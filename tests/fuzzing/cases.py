"""What a case is: a command, or a call, and the files that it finds; and what must hold when it is done."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bftrainer.cli._shared.group import cli, guarded
from bftrainer.errors import BftrainerError
from tests.fuzzing.seeds import Special

SLOWEST_S, MOST_BYTES = 20.0, 2 << 30
CANARIES = {"kept": b"a canary\n", "kept.csv": b"time,node,idle\n", "folder/kept.pkl": b"\x80\x04N."}
LOCK = ".writing"  # says who wrote last, and is taken to see whether anybody does
VERDICTS = ("audit ", "sweep ")  # tell what is wrong with some of their subjects, by a status of 1
_WARNING = re.compile(r"\.py:\d+: \w*Warning: ")


@dataclass(frozen=True)
class Case:
    """A command in a folder.

    Parameters
    ----------
    family : str
    words : tuple of str
        What is typed behind `bftrainer`; for a call, what describes it.
    files : dict
        By name, below the folder.
    changes : tuple of str
        Beginnings of names that the command may change or delete, as that is what it is for.
    call : callable, optional
        What is called instead of the command.
    documented : tuple of type
        Errors that the call may raise, other than ours.
    """

    family: str
    words: tuple[str, ...]
    files: dict[str, bytes | Special] = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    call: Callable[[], Any] | None = None
    documented: tuple[type[Exception], ...] = ()

    def write(self, folder: Path) -> None:
        """Write its files below an empty folder."""
        for name, content in self.files.items():
            path = folder / name
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True)
            if isinstance(content, Special):
                content.make(path)
            else:
                path.write_bytes(content)


def state(folder: Path) -> dict[str, tuple[int, ...]]:
    """What stands below a folder, and when it was changed."""
    found = {}
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = os.path.join(place, name)
            status = os.lstat(path)
            times = () if stat.S_ISDIR(status.st_mode) else (status.st_ino, status.st_size, status.st_mtime_ns)
            found[os.path.relpath(path, folder)] = (status.st_mode, *times)
    return found


class Scene:
    """A folder for cases, one after the other, and canaries beside it."""

    def __init__(self, root: Path) -> None:
        self.here, self.beside = root / "here", root / "beside"
        self.unseen = [root / name for name in ("home", "tmp")]
        for folder in (*self.unseen, self.here, root / "state"):
            folder.mkdir()
        Case("", (), dict(CANARIES)).write(self.beside)
        (root / "state" / "bftrainer").mkdir()
        self._environment = {name: text for name, text in os.environ.items() if not name.startswith("BFTRAINER_")} | {
            "HOME": str(root / "home"),
            "TMPDIR": str(root / "tmp"),
            "XDG_STATE_HOME": str(root / "state"),
            "BFTRAINER_MAX_GIB": "0.0625",
            "MPLBACKEND": "agg",
            "NO_PROXY": "*",
        }
        self._outside = self._others()

    def _others(self) -> list[Any]:
        for left in (self.unseen[1]).glob("pymp-*"):  # which multiprocessing deletes as its process ends
            shutil.rmtree(left)
        contents = [(self.beside / name).read_bytes() for name in CANARIES]
        return [*map(state, (self.beside, *self.unseen)), contents, sorted(os.listdir(self.here.parent))]

    def play(self, case: Case, streams: tuple[Path, Path]) -> tuple[int, list[str], str]:
        """Run a case; its status, what was wrong with what it did, and the end of what it said."""
        for entry in os.scandir(self.here):  # solvers' processes, which serve several cases, stay in it
            shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
        os.chdir(self.here)
        os.environ.clear()
        os.environ.update(self._environment)
        case.write(self.here)
        before = state(self.here)
        for path in streams:
            os.truncate(path, 0)
        status, wrong = called(case) if case.call else commanded(case)
        said = streams[1].read_text(errors="replace")
        wrong += judged(case, status, said)
        os.chdir(self.here.parent)
        wrong += self._touched(case, before, status, said)
        return status, wrong, said[-2000:]

    def _touched(self, case: Case, before: dict[str, tuple[int, ...]], status: int, said: str) -> list[str]:
        after = state(self.here)
        mine = (*case.changes, "\0")
        changed = {name for name in before if after.get(name) != before[name] and not name.startswith(mine)}
        changed = {name for name in changed if not name.endswith(LOCK)}
        made = {name for name in set(after) - set(before) if not name.startswith(mine)}
        wrong = [f"changed what it read: {sorted(changed)}"] if changed else []
        if status == 2 and made and "they are in" not in said:  # results that only their place is refused to
            wrong.append(f"left behind after a refusal: {sorted(made)}")
        others = self._others()
        if others != self._outside:
            wrong.append(f"changed something outside: {[one for one in others if one not in self._outside]}"[:300])
            self._outside = others
        return wrong


def commanded(case: Case) -> tuple[int, list[str]]:
    """Run the command as its entry point does; its status, and the exception that came out of it."""
    sys.argv = ["bftrainer", *case.words]
    try:
        status = guarded(cli, "bftrainer")
    except BaseException as error:  # this is what is looked for
        return -1, [_where(error)]
    finally:
        sys.stdout.flush()
    return status, [] if status in (0, 1, 2) else [f"status {status}"]


def called(case: Case) -> tuple[int, list[str]]:
    """Make the call; 0 or the status of the error, and any other exception."""
    try:
        assert case.call is not None
        case.call()
    except (BftrainerError, *case.documented) as error:
        return 0, [f"more than a line: {error!r}"] if "\n" in str(error) else []
    except BaseException as error:
        return -1, [_where(error)]
    return 0, []


def _where(error: BaseException) -> str:
    """An exception, and the line of ours that it passed last."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/tests/" not in frame.filename]
    ours = [frame for frame in frames if not re.search("site-packages|/python3|<frozen", frame.filename)]
    last = (ours or frames or [None])[-1]
    place = "" if last is None else f" at {'/'.join(last.filename.split('/')[-3:])}:{last.lineno}"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}{place}"


def judged(case: Case, status: int, said: str) -> list[str]:
    """What is wrong with the status and the words on stderr."""
    errors = [line for line in said.splitlines() if line.startswith("Error: ")]
    is_verdict = " ".join(case.words).startswith(VERDICTS)
    wrong = [f"{len(errors)} lines of errors"] if len(errors) > (len(case.words) if is_verdict else 1) else []
    if status in (1, 2) and not errors and not (is_verdict and status == 1):
        wrong.append(f"status {status} without a line that says why")
    if status == 0 and errors:
        wrong.append(f"status 0 with an error: {errors[0][:200]}")
    if "Traceback" in said or (found := _WARNING.search(said)):
        at = said.find("Traceback") if "Traceback" in said else found.start()
        wrong.append(f"on stderr: {' '.join(said[max(at - 60, 0) :].split())[:300]}")
    if "Out of memory" in said:
        wrong.append("out of memory")
    return wrong
