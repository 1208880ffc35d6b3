"""What solvers that go through python-mip share: writing a model, optimising it, reading what came of it.

Models hold no special ordered sets: CBC crashes the process on them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from bftrainer.errors import SolverError
from solvers.count_level import NO_SOLUTION, OUT_OF_TIME, Outcome
from solvers.gurobi_backend import NO_LICENCE, SIZE_LIMIT_EXCEEDED, unavailable
from solvers.problem import Limits, StopReason
from solvers.segments import CountModel

if TYPE_CHECKING:
    import mip

__all__ = ["STATUS", "quiet_model", "run", "solve_written", "write"]

# https://docs.python-mip.com/en/latest/classes.html#mip.OptimizationStatus
# Whatever is not listed is an error.
STATUS = {
    "OPTIMAL": StopReason.OPTIMAL,
    "FEASIBLE": StopReason.TIME_LIMIT,
    "NO_SOLUTION_FOUND": StopReason.TIME_LIMIT,
}
INFEASIBLE = ("INFEASIBLE", "INT_INFEASIBLE")


def quiet_model(engine: str) -> mip.Model:
    """An empty model to maximise, that prints nothing; `engine` is always named, or python-mip would choose."""
    import mip

    model = mip.Model(sense=mip.MAXIMIZE, solver_name=engine)
    model.verbose = 0
    if engine == "CBC":
        # Left alone, CBC counts CPU time, of which a busy machine grants less than has passed.
        mip.cbc.cbc_set_parameter(model.solver, "timeMode", "elapsed")
    return model


def write(target: mip.Model, model: CountModel) -> mip.Model:
    """Copy the arrays of `model` into the empty `target`."""
    import mip

    columns = [
        target.add_var(obj=gain, lb=lower, ub=upper, var_type=mip.INTEGER if integral else mip.CONTINUOUS)
        for gain, lower, upper, integral in zip(
            model.objective.tolist(), model.lower.tolist(), model.upper.tolist(), model.integral.tolist(), strict=True
        )
    ]
    starts, indices, coefficients = model.starts.tolist(), model.indices.tolist(), model.coefficients.tolist()
    for row, (lower, upper) in enumerate(zip(model.row_lower.tolist(), model.row_upper.tolist(), strict=True)):
        entries = slice(starts[row], starts[row + 1])
        variables = [columns[index] for index in indices[entries]]
        for side, sense in ((lower, ">"), (upper, "<")):
            if math.isfinite(side):
                target.add_constr(mip.LinExpr(variables, coefficients[entries], -side, sense))
    return target


def solve_written(target: mip.Model, model: CountModel, name: str, limits: Limits, branches: int | None) -> Outcome:
    """Copy `model` into the empty `target`, and solve that in the time which is left then."""
    deadline = perf_counter() + limits.time_s
    write(target, model)
    left_s = deadline - perf_counter()
    return OUT_OF_TIME if left_s <= 0 else run(target, name, replace(limits, time_s=left_s), branches)


def run(target: mip.Model, name: str, limits: Limits, branches: int | None = None) -> Outcome:
    """Optimise `target` and translate what came of it.

    Raises
    ------
    SolverError
        If the solver fails.
    """
    from mip.exceptions import InterfacingError

    target.max_mip_gap = limits.gap
    target.max_mip_gap_abs = 0.0
    most = {} if branches is None else {"max_nodes": branches}
    try:
        status = target.optimize(max_seconds=limits.time_s, **most)
    except InterfacingError as error:
        # python-mip hands on Gurobi's error code in the text alone.
        code = next((code for code in (NO_LICENCE, SIZE_LIMIT_EXCEEDED) if str(code) in str(error)), 0)
        raise unavailable(name, code, str(error), target.num_cols) from error
    if status.name in INFEASIBLE:
        return NO_SOLUTION
    if status.name not in STATUS:
        raise SolverError(f"{name}: ended with status {status.name}.")
    x = [variable.x for variable in target.vars]
    found = None if None in x else np.array(x, dtype=np.float64)
    return Outcome(STATUS[status.name], found, target.objective_bound)
