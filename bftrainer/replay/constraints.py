"""What an objective adds to a decision beyond the value of each option."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from bftrainer.errors import ObjectiveError
from solvers import AllocationProblem, Floor, LinearRow

__all__ = ["constrained"]


def constrained(problem: AllocationProblem, added: Iterable[object], where: str) -> AllocationProblem:
    """The problem with what an objective's ``constraints(problem, tasks)`` answered; `where` begins a message.

    Raises
    ------
    ObjectiveError
        If there is anything but `solvers.LinearRow`s and at most one `solvers.Floor` among it, or a row has NaN.
    ValueError
        If a row or the floor does not fit the tasks.
    """
    rows: list[LinearRow] = []
    floors: list[Floor] = []
    for each in added:
        if isinstance(each, LinearRow):
            if not np.isfinite(each.coefficients).all() or math.isnan(each.lower) or math.isnan(each.upper):
                raise ObjectiveError(
                    f"{where}: Expected finite coefficients and bounds without NaN, got others in row {len(rows)}."
                )
            rows.append(each)
        elif isinstance(each, Floor):
            floors.append(each)
        else:
            raise ObjectiveError(
                f"{where}: Expected constraints to be LinearRows or a Floor, got {type(each).__name__}."
            )
    if len(floors) > 1:
        raise ObjectiveError(f"{where}: Expected at most one Floor, got {len(floors)}.")
    if not (rows or floors):
        return problem
    return replace(problem, rows=tuple(rows), floor=floors[0] if floors else None)
