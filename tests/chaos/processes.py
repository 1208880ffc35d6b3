"""Commands as processes that meet trouble: killed, without room, with a clock that goes back."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.tiny import installed
from tests.waiting import alive, until

INSIDE = Path(__file__).parent / "inside"
NEVER = 10**9
_numbers = count()


@dataclass(frozen=True)
class Trouble:
    """What a command meets: at which event, or after how many seconds, and what.

    `what` is "main", "group" or "self": who is killed; "full", "read-only" or "broken": how calls fail from then on; or
    "stop": the command stands still.
    """

    what: str = "main"
    at: int = NEVER
    after_s: float | None = None
    clock: bool = False
    file_bytes: int | None = None

    @property
    def told(self) -> str:
        """In a few words."""
        fields = {"at": self.at, "after_s": self.after_s, "file_bytes": self.file_bytes}
        return " ".join([self.what, *(f"{name}={value}" for name, value in fields.items() if value)])


@dataclass(frozen=True)
class Ended:
    """How a command ended, and how many events it had."""

    status: int
    out: str
    err: str
    events: int


def _family(mark: str) -> list[int]:
    """Processes that a command has started, whoever their parent is now."""
    found = []
    for each in Path("/proc").iterdir():
        with suppress(OSError):
            if each.name.isdecimal() and mark.encode() in (each / "environ").read_bytes():
                found.append(int(each.name))
    return [pid for pid in found if alive(pid)]


class Running:
    """A command that runs, and may meet trouble."""

    def __init__(self, words: list[str], cwd: Path, trouble: Trouble, env: dict[str, str]) -> None:
        self._trouble, self._mark = trouble, f"CHAOS_ID={os.getpid()}-{next(_numbers)}"
        self._folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        self._count = self._folder / "count"
        self._count.touch()
        path = os.pathsep.join([str(INSIDE), *filter(None, [os.environ.get("PYTHONPATH")])])
        known = {"PYTHONPATH": path, "CHAOS_COUNT": str(self._count), "CHAOS_AT": str(trouble.at)}
        known |= {"CHAOS_WHAT": trouble.what, "CHAOS_MAIN": "", "CHAOS_CLOCK": "back" if trouble.clock else ""}
        limit = [] if trouble.file_bytes is None else ["prlimit", f"--fsize={trouble.file_bytes}"]
        self._process = subprocess.Popen(
            [*limit, installed(words[0]), *words[1:]],
            cwd=cwd,
            env=os.environ | known | dict([self._mark.split("=")]) | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # which has room for all that these commands say
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def is_stopped(self) -> bool:
        """Whether it stands still, or has ended."""
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state in "TZ"

    def go_on(self) -> None:
        """Continue a command that was stopped."""
        os.kill(self.pid, signal.SIGCONT)

    def ended(self) -> Ended:
        """How it ends, once nothing of it is left."""
        try:
            self._process.wait(timeout=self._trouble.after_s)
        except subprocess.TimeoutExpired:
            (os.killpg if self._trouble.what == "group" else os.kill)(self.pid, signal.SIGKILL)
            self._process.wait()
        until(lambda: not _family(self._mark))
        out, err = self._process.communicate()
        events = self._count.stat().st_size
        shutil.rmtree(self._folder)
        return Ended(self._process.returncode, out, err, events)


def run(words: list[str], cwd: Path, trouble: Trouble | None = None, env: dict[str, str] | None = None) -> Ended:
    """Run a command, which may meet trouble, until nothing of it is left."""
    return Running(words, cwd, trouble or Trouble(), env or {}).ended()
