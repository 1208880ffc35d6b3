"""Problems as documents of numbers and texts, to be kept and solved again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.problem import AllocationProblem, Floor, Limits, LinearRow, TaskOptions

FORM = "bftrainer problem 1"


def document_of(problem: AllocationProblem, limits: Limits, solver: str) -> dict[str, Any]:
    """A document of `problem`, the limits it was to be solved within, and the name of the solver.

    Returns
    -------
    dict
        Of what JSON can hold, but that numbers may be infinite.
    """
    floor = problem.floor
    return {
        "form": FORM,
        "solver": solver,
        "limits": asdict(limits),
        "nodes": problem.nodes,
        "capacities": list(problem.capacities),
        "tasks": [_columns(task) for task in problem.tasks],
        "rows": [_columns(row) for row in problem.rows],
        "floor": None if floor is None else asdict(floor) | {"credits": [each.tolist() for each in floor.credits]},
    }


def problem_of(document: Any) -> tuple[AllocationProblem, Limits, str]:
    """The problem, limits and name of the solver of a document.

    Raises
    ------
    ValueError
        If it is no such document.
    """
    if not isinstance(document, Mapping) or document.get("form") != FORM:
        raise ValueError(f"Expected a problem of the form {FORM!r}.")
    try:
        rows = [LinearRow(_floats(row["coefficients"]), row["lower"], row["upper"]) for row in document["rows"]]
        floor = document["floor"]
        if floor is not None:
            groups = tuple(tuple(map(int, group)) for group in floor["groups"])
            floor = Floor(groups, tuple(map(_floats, floor["credits"])), float(floor["weight"]))
        capacities = tuple(map(float, document["capacities"]))
        tasks = tuple(map(_task, document["tasks"]))
        nodes, solver = document["nodes"], document["solver"]
        if not isinstance(nodes, int) or isinstance(nodes, bool) or not nodes < 2**63:
            raise ValueError(f"Expected a number of nodes below 2^63, got {str(nodes)[:40]}.")
        if not isinstance(solver, str):
            raise ValueError(f"Expected the name of a solver, got {str(solver)[:40]}.")
        problem = AllocationProblem(tasks, nodes, tuple(rows), capacities, floor)
        return problem, _limits(**document["limits"]), solver
    except KeyError as error:
        raise ValueError(f"Expected {error} in the problem.") from None
    except (TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"Expected a problem: {error}.") from None


def _limits(**given: Any) -> Limits:
    limits = Limits(**given)
    if not isinstance(limits.prune, bool):
        raise ValueError(f"Expected prune to be true or false, got {limits.prune!r}.")
    for name, least in (("time_s", 0), ("gap", 0), ("threads", 1), ("effort", 0)):
        value = getattr(limits, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
            raise ValueError(f"Expected {name} to be a number of {least} or more, got {value!r}.")
    return limits


def _task(given: Mapping[str, Any]) -> TaskOptions:
    uses = None if given["uses"] is None else np.array(given["uses"], dtype=np.float64)
    current, minimum, maximum = (int(given[name]) for name in ("current", "minimum", "maximum"))
    counts = np.array(given["counts"], dtype=np.int64)
    return TaskOptions(counts, _floats(given["values"]), current, minimum, maximum, uses)


def _floats(given: Any) -> NDArray[np.float64]:
    return np.array(given, dtype=np.float64)


def _columns(each: TaskOptions | LinearRow) -> dict[str, Any]:
    """Fields by name, arrays as lists."""
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in asdict(each).items()}
