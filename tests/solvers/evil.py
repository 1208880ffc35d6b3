"""A package of solvers that misbehave, each in its own way; copied to where nothing of the tests can be imported."""

from __future__ import annotations

import ctypes
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np


def hang() -> None:
    """Never answer, whatever the signal, like C code that is never left."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1.0)


def crash() -> None:
    """Read where nothing is."""
    ctypes.string_at(0)


def ten_gigabytes() -> None:
    """Ask for more memory than there may be."""
    np.ones(10 * 2**30, dtype=np.uint8)


def fork_ten() -> None:
    """Start ten processes that never end, write down which, and never answer."""
    for _ in range(10):
        child = os.fork()
        if child == 0:
            while True:
                time.sleep(1.0)
        with open(os.environ["EVIL_CHILDREN"], "a") as file:
            file.write(f"{child}\n")
    hang()


def leave() -> None:
    """Start a process in a session of its own, write down which, and hold Python's lock in C code for ever."""
    child = subprocess.Popen(["sleep", "7777"], start_new_session=True)
    with open(os.environ["EVIL_CHILDREN"], "a") as file:
        file.write(f"{child.pid}\n")
    re.match(r"(a+)+$", "a" * 60 + "b")


def flood() -> None:
    """Write more than any disk holds."""
    while True:
        os.write(2, b"x" * 2**20)


def refuse() -> None:
    """Raise what others may not be able to read back."""

    class TwoArguments(Exception):  # noqa: N818 - as plug-ins may
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"no\nanswer {one + two}")

    raise TwoArguments(1, 2)


class Evil:
    """Answers nothing but what its way says."""

    name = "evil"
    exact = extra_rows = capacities = floor = True
    requires: tuple[str, ...] = ()
    way: Callable[[], Any]

    def solve(self, problem: Any, limits: Any) -> Any:
        """Misbehave, then answer wrongly, if still there."""
        given = type(self).way()
        from solvers.registry import get_solver, solve

        return replace(solve(get_solver("dp"), problem, limits), **given)


WAYS: dict[str, Callable[[], Any]] = {
    "hang": hang,
    "crash": crash,
    "exit-0": lambda: os._exit(0),
    "exit-3": lambda: sys.exit(3),
    "raise": refuse,
    "counts": lambda: {"counts": (10**6,), "choices": None},
    "nan": lambda: {"bound": math.nan, "counts": (math.nan,), "choices": None},
    "memory": ten_gigabytes,
    "fork": fork_ten,
    "leave": leave,
    "flood": flood,
}
for way, does in WAYS.items():
    globals()[f"way_{way.replace('-', '_')}"] = type("Way", (Evil,), {"name": f"evil-{way}", "way": staticmethod(does)})


def end_in(name: str, make: Callable[[], Any]) -> type[Evil]:
    """A solver that misbehaves as it is made."""
    return type(name, (Evil,), {"name": f"evil-{name.lower()}", "__init__": lambda _: make()})


Unmade = end_in("Unmade", lambda: os._exit(0))
Vast = end_in("Vast", ten_gigabytes)
Slow = end_in("Slow", hang)


class Probed(Evil):
    """Ends its process when it is asked for its licence."""

    name = "evil-probed"

    @staticmethod
    def licence() -> str:
        """Say nothing."""
        os._exit(0)
