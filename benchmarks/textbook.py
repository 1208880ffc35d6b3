"""A plain dynamic programme, compiled: what a textbook gives, to measure the solvers against.

Task by task and count by count, ``best[s] = max_n best[s - n] + v(n)`` over all pool sizes s. No bounds, no pruning,
no ties, no checks; the counts are found on the way back.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers import AllocationProblem

_INTEGERS, _REALS = (np.ctypeslib.ndpointer(kind, flags="C") for kind in (np.int64, np.float64))


@cache
def compile_textbook() -> Any:
    """Compile the C function, with the optimisation that a textbook's reader would ask for."""
    with tempfile.TemporaryDirectory() as folder:
        library, source = Path(folder, "textbook.so"), Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True, capture_output=True)
        function = ctypes.CDLL(str(library)).optimum
    function.restype = ctypes.c_double
    function.argtypes = [*(ctypes.c_int64,) * 2, *(_INTEGERS,) * 2, *(_REALS,) * 3, *(_INTEGERS,) * 2]
    return function


def solve_by_textbook(problem: AllocationProblem) -> tuple[float, NDArray[np.int64]]:
    """Optimal value of a problem without extra rows, and node counts; arrays are made each time, as solvers do."""
    tasks, nodes = len(problem.tasks), problem.nodes
    first = np.cumsum([0, *[task.counts.size for task in problem.tasks]])
    offered = np.concatenate([task.counts for task in problem.tasks])
    values = np.concatenate([task.values for task in problem.tasks])
    best, other = np.empty(nodes + 1), np.empty(nodes + 1)
    choice, answer = np.empty(tasks * (nodes + 1), dtype=np.int64), np.empty(tasks, dtype=np.int64)
    value = compile_textbook()(tasks, nodes, first, offered, values, best, other, choice, answer)
    return value, answer
