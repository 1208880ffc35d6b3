"""A package of solvers as others may have them: lazy, sure of themselves, broken, or hostile in some way.

Tests copy it to where nothing of theirs can be imported.
"""

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

from solvers import DecidedBy, Held, SolveResult, StopReason, objective
from solvers.registry import get_solver, solve


class Lazy:
    """Nobody gets anything."""

    name = "lazy"
    exact = extra_rows = False
    requires: tuple[str, ...] = ()

    def solve(self, problem, limits):  # noqa: ARG002
        counts = (0,) * len(problem.tasks)
        return SolveResult(counts, 0.0, math.inf, StopReason.HEURISTIC, Held.INCUMBENT, self.name)


class Nothing(Lazy):
    """Nobody gets anything, called the optimum, with a bound to match, and said to have been found by pruning."""

    name, exact, extra_rows, floor = "nothing", True, True, True

    def solve(self, problem, limits):  # noqa: ARG002
        counts = (0,) * len(problem.tasks)
        value = objective(problem, counts)
        ended = StopReason.OPTIMAL, Held.OPTIMAL, self.name
        return SolveResult(counts, value, value, *ended, decided_by=DecidedBy.PRUNING)


class Exact(Lazy):
    """The optimum, which it asks the dynamic programme for."""

    name, exact = "exact", True

    def solve(self, problem, limits):
        return solve(get_solver("dp"), problem, limits)


class Missing(Lazy):
    """One whose library is not there."""

    name, requires = "missing", ("no_such_library",)


class Unlicensed(Lazy):
    """One whose licence server is down."""

    name = "unlicensed"

    def licence(self):
        raise OSError("no route to host")


class Probed(Lazy):
    """Ends its process when it is asked for its licence."""

    name = "probed"

    @staticmethod
    def licence() -> str:
        os._exit(0)


class _Hostile(type):
    @property
    def exact(cls):
        raise RuntimeError("never asked before")


class Hostile(metaclass=_Hostile):
    """One whose capabilities cannot be read."""

    name, extra_rows, requires = "hostile", False, ()


def __getattr__(name):
    if name == "Explosive":
        raise RuntimeError("on import")
    raise AttributeError(name)


def hang() -> None:
    """Never answer, whatever the signal, like C code that is never left."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1.0)


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

    class TwoArgumentsError(RuntimeError):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"no\nanswer {one + two}")

    raise TwoArgumentsError(1, 2)


class Evil:
    """Misbehaves in its way, then answers wrongly, if still there."""

    exact = extra_rows = capacities = floor = True
    requires: tuple[str, ...] = ()
    way: Callable[[], Any]

    def solve(self, problem: Any, limits: Any) -> Any:
        wrong = type(self).way()
        return replace(solve(get_solver("dp"), problem, limits), **wrong)


WAYS: dict[str, Callable[[], Any]] = {
    "hang": hang,
    "crash": lambda: ctypes.string_at(0),
    "exit-0": lambda: os._exit(0),
    "exit-3": lambda: sys.exit(3),
    "raise": refuse,
    "counts": lambda: {"counts": (10**6,), "choices": None},
    "nan": lambda: {"bound": math.nan, "counts": (math.nan,), "choices": None},
    "memory": lambda: np.ones(10 * 2**30, dtype=np.uint8),
    "fork": fork_ten,
    "leave": leave,
    "flood": flood,
}
for way, does in WAYS.items():
    globals()[f"way_{way.replace('-', '_')}"] = type("Way", (Evil,), {"name": f"evil-{way}", "way": staticmethod(does)})


for name, does in {"Gone": WAYS["exit-0"], "Vast": WAYS["memory"], "Slow": hang, "Unmade": refuse}.items():
    globals()[name] = type(name, (Evil,), {"name": name.lower(), "__init__": lambda _, does=does: does()})
