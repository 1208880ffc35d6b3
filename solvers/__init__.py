"""Solvers of the count-level allocation problem: how many nodes each task gets.

Nothing here reads files or knows which objective it serves. Backends are imported when first used, so
that importing `solvers` imports no solver library.
"""

from solvers.evaluation import check, objective
from solvers.problem import (
    AllocationProblem,
    DecidedBy,
    Floor,
    Held,
    Limits,
    LinearRow,
    RangeOptions,
    Solver,
    SolveResult,
    StopReason,
    TaskOptions,
    counts_on_offer,
)

__all__ = [
    "AllocationProblem",
    "DecidedBy",
    "Floor",
    "Held",
    "Limits",
    "LinearRow",
    "RangeOptions",
    "SolveResult",
    "Solver",
    "StopReason",
    "TaskOptions",
    "check",
    "counts_on_offer",
    "objective",
]
