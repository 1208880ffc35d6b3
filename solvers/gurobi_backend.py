"""The count-level model through gurobipy.

gurobipy looks for a licence where `GRB_LICENSE_FILE` points, then in the usual places; the one that its wheel brings
covers models of up to 2,000 variables and 2,000 rows, which most count-level models stay below.
"""

from __future__ import annotations

import os
import threading
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from bftrainer.errors import SolverError, SolverUnavailableError
from solvers.count_model import CountModel
from solvers.milp import MOST_BRANCHES, MilpSolver, ModelOutcome
from solvers.problem import Limits, OutOfTime, StopReason

if TYPE_CHECKING:
    import gurobipy

# https://docs.gurobi.com/projects/optimizer/en/current/reference/misc/errorcodes.html
NO_LICENCE, SIZE_LIMIT_EXCEEDED = 10009, 10010
# https://docs.gurobi.com/projects/optimizer/en/current/reference/numericcodes/statuscodes.html
OPTIMAL, INFEASIBLE, INFEASIBLE_OR_UNBOUNDED, NODE_LIMIT, TIME_LIMIT = 2, 3, 4, 8, 9
TIGHTEST = 1e-9
_environments = threading.local()


class GurobiSolver(MilpSolver):
    """Count-level model through gurobipy."""

    name = "gurobi"
    requires = ("gurobipy",)
    finished: ClassVar = {OPTIMAL: StopReason.OPTIMAL, **dict.fromkeys((NODE_LIMIT, TIME_LIMIT), StopReason.TIME_LIMIT)}
    # All columns are bounded, so no model is unbounded.
    infeasible = (INFEASIBLE, INFEASIBLE_OR_UNBOUNDED)

    @staticmethod
    def licence() -> str:
        """Say until when the licence is valid, or why there is none."""
        import gurobipy

        try:
            with gurobipy.Model(env=environment()) as target:
                expires = int(target.LicenseExpiration)
        except SolverError as error:
            return str(error)
        # 0 stands for a licence that does not expire.
        return f"valid until {expires // 10000}-{expires // 100 % 100:02}-{expires % 100:02}" if expires else "valid"

    def _run(self, model: CountModel, limits: Limits) -> ModelOutcome:
        import gurobipy

        deadline = perf_counter() + limits.time_s
        try:
            with gurobipy.Model(env=environment()) as target:
                _write(target, model, deadline)
                target.Params.TimeLimit = max(0.0, deadline - perf_counter())
                if limits.effort < MOST_BRANCHES:
                    target.Params.NodeLimit = limits.effort
                target.Params.MIPGap = limits.gap
                target.Params.MIPGapAbs = 0.0
                target.Params.Threads = limits.threads
                if any(entry % 1.0 for row in model.rows for entry in row.values()):
                    # Within the usual tolerance an allocation could gain value by exceeding a capacity.
                    target.Params.IntFeasTol = target.Params.FeasibilityTol = TIGHTEST
                target.optimize()
                x = np.array(target.getAttr("X")) if target.SolCount else None
                return self.to_outcome(target.Status, x, target.ObjBound)
        except gurobipy.GurobiError as error:
            raise to_solver_error(error.errno, str(error), len(model.upper)) from error


def _write(target: gurobipy.Model, model: CountModel, deadline: float) -> None:
    """Copy the columns and rows of `model` into the empty `target`."""
    import gurobipy

    target.ModelSense = gurobipy.GRB.MAXIMIZE
    kinds = np.where(model.integral, gurobipy.GRB.INTEGER, gurobipy.GRB.CONTINUOUS)
    columns = target.addMVar(
        len(model.upper), lb=np.array(model.lower), ub=np.array(model.upper), obj=model.objective, vtype=kinds
    ).tolist()
    for row, lower, upper in zip(model.rows, model.row_lower, model.row_upper, strict=True):
        if perf_counter() > deadline:
            raise OutOfTime
        total = gurobipy.LinExpr(list(row.values()), [columns[index] for index in row])
        if np.isfinite(lower):
            target.addLConstr(total >= lower)
        if np.isfinite(upper):
            target.addLConstr(total <= upper)


def environment() -> gurobipy.Env:
    """The started, silent environment of this thread; a `SolverUnavailableError` if no licence lets it start."""
    import gurobipy

    # It may take seconds to start (a licence server is asked), belongs to one thread, and ends with it.
    key, started = os.environ.get("GRB_LICENSE_FILE", ""), vars(_environments)
    if key not in started:
        # An environment that is not empty prints its licence before it can be told not to.
        env = gurobipy.Env(empty=True)
        try:
            env.setParam("OutputFlag", 0)
            env.start()
        except gurobipy.GurobiError as error:
            env.dispose()
            raise to_solver_error(error.errno, str(error)) from error
        started[key] = env
    environment: gurobipy.Env = started[key]
    return environment


def to_solver_error(code: int, message: str, variables: int = 0) -> SolverError:
    """Translate an error of Gurobi's: a licence that is missing or too small is no failure."""
    if code == SIZE_LIMIT_EXCEEDED:
        return SolverUnavailableError(
            f"gurobi: model of {variables:,} variables exceeds the size-limited licence; try --solver cbc or highs."
        )
    if code == NO_LICENCE:
        return SolverUnavailableError(f"gurobi: no valid licence ({message.rstrip('.')}); try --solver cbc.")
    return SolverError(f"gurobi: {message.rstrip('.')}.")
