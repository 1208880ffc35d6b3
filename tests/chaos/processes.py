"""Commands as processes that meet trouble: killed, or without room."""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.tiny import Done, installed
from tests.waiting import alive, until

INSIDE = Path(__file__).parent / "inside"
NEVER = 10**9
_numbers = count()


@dataclass(frozen=True)
class Trouble:
    """What a command meets, and at which event.

    `what` is "main", "group" or "self": who is killed; or "full", "read-only" or "broken": how calls fail from then on.
    """

    what: str = "main"
    at: int = NEVER
    file_bytes: int | None = None


@dataclass(frozen=True)
class Ended:
    """How a command ended, and how many events it had."""

    done: Done
    events: int


def _family(mark: str) -> list[int]:
    """Processes that a command has started, whoever their parent is now."""
    family = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and mark.encode() in (entry / "environ").read_bytes():
                family.append(int(entry.name))
    return [pid for pid in family if alive(pid)]


def run(words: list[str], cwd: Path, trouble: Trouble, env: dict[str, str]) -> Ended:
    """Run a command, which may meet trouble, until nothing of it is left."""
    mark = f"{os.getpid()}-{next(_numbers)}"
    path = os.pathsep.join([str(INSIDE), *filter(None, [os.environ.get("PYTHONPATH")])])
    limit = [] if trouble.file_bytes is None else ["prlimit", f"--fsize={trouble.file_bytes}"]
    with tempfile.NamedTemporaryFile() as counter:
        inside = {"PYTHONPATH": path, "CHAOS_COUNT": counter.name, "CHAOS_AT": str(trouble.at), "CHAOS_ID": mark}
        inside |= {"CHAOS_WHAT": trouble.what, "CHAOS_MAIN": ""}
        process = subprocess.Popen(
            [*limit, installed(words[0]), *words[1:]],
            cwd=cwd,
            env=os.environ | inside | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # which has room for all that these commands say
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        process.wait()
        until(lambda: not _family(f"CHAOS_ID={mark}"))
        out, err = process.communicate()
        return Ended(Done(process.returncode, out, err), os.stat(counter.name).st_size)
