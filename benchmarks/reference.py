"""A deliberately plain dynamic programme: what a textbook gives, to measure the solvers against.

Task by task and count by count, ``best[s] = max_n best[s - n] + v(n)`` over all pool sizes s. No bounds, no pruning,
no ties, no checks; the counts are found on the way back. Once in NumPy, and once in C (``reference.c``).
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workload import Unmeasured
from solvers import AllocationProblem

__all__ = ["compiled_optimum", "compiled_reference", "reference_optimum"]

_INTEGERS = np.ctypeslib.ndpointer(np.int64, flags="C")
_REALS = np.ctypeslib.ndpointer(np.float64, flags="C")


def reference_optimum(problem: AllocationProblem) -> tuple[float, list[int]]:
    """Optimal value and node counts of a problem without extra rows."""
    nodes = problem.nodes
    best = np.zeros(nodes + 1)
    choices = []
    for task in problem.tasks:
        row = np.full(nodes + 1, -np.inf)
        choice = np.zeros(nodes + 1, dtype=np.int64)
        for count, value in zip(task.counts.tolist(), task.values.tolist(), strict=True):
            if count > nodes:
                break
            candidate = best[: nodes + 1 - count] + value
            better = candidate > row[count:]
            row[count:][better] = candidate[better]
            choice[count:][better] = count
        best = row
        choices.append(choice)
    counts = []
    left = nodes
    for choice in reversed(choices):
        counts.append(int(choice[left]))
        left -= counts[-1]
    return float(best[nodes]), counts[::-1]


@cache
def compiled_reference() -> Any:
    """Compile the C function, with the optimisation that a textbook's reader would ask for.

    Raises
    ------
    Unmeasured
        Without a C compiler.
    """
    source = Path(__file__).with_name("reference.c")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "reference.so"
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Unmeasured("no C compiler") from error
        function = ctypes.CDLL(str(library)).optimum
    function.restype = ctypes.c_double
    function.argtypes = [*(ctypes.c_int64,) * 2, *(_INTEGERS,) * 2, *(_REALS,) * 3, *(_INTEGERS,) * 2]
    return function


def compiled_optimum(problem: AllocationProblem) -> tuple[float, list[int]]:
    """As `reference_optimum`, by the compiled function; its arrays are made each time, as the solvers make theirs."""
    tasks, nodes = len(problem.tasks), problem.nodes
    first = np.cumsum([0, *[task.counts.size for task in problem.tasks]])
    counts = np.concatenate([task.counts for task in problem.tasks])
    values = np.concatenate([task.values for task in problem.tasks])
    best, other = np.empty(nodes + 1), np.empty(nodes + 1)
    choice, answer = np.empty(tasks * (nodes + 1), dtype=np.int64), np.empty(tasks, dtype=np.int64)
    value = compiled_reference()(tasks, nodes, first, counts, values, best, other, choice, answer)
    return value, answer.tolist()
