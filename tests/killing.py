"""Work that is killed before any of its changes to the names in directories."""

import os
import signal
import sys
from collections.abc import Callable, Collection
from typing import Any

CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "open"}


def run_killed(number: int, work: Callable[[], object], changes: Collection[str] = CHANGES) -> bool:
    """Do something in a process that is killed before its change of this number; return whether it came so far."""
    child = os.fork()
    if not child:
        left = [number]

        def watch(event: str, _: Any) -> None:
            if event in changes:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        work()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])
