"""The count-level model through python-mip: CBC, HiGHS and Gurobi.

python-mip picks Gurobi by itself wherever gurobipy is installed, so each class names its solver.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from bftrainer.errors import SolverError, SolverUnavailableError
from solvers.count_level import Outcome, solve_count_model
from solvers.gurobi_backend import NO_LICENCE, SIZE_LIMIT_EXCEEDED, unavailable
from solvers.problem import AllocationProblem, Limits, SolveResult, StopReason
from solvers.segments import CountModel

if TYPE_CHECKING:
    import mip

__all__ = ["STATUS", "CbcSolver", "MipGurobiSolver", "MipHighsSolver", "quiet_model", "run"]

# https://docs.python-mip.com/en/latest/classes.html#mip.OptimizationStatus
# Whatever is not listed is an error.
STATUS = {
    "OPTIMAL": StopReason.OPTIMAL,
    "FEASIBLE": StopReason.TIME_LIMIT,
    "NO_SOLUTION_FOUND": StopReason.TIME_LIMIT,
}
INFEASIBLE = ("INFEASIBLE", "INT_INFEASIBLE")


class _PythonMip:
    """What the three have in common."""

    name: str
    exact = True
    extra_rows = True
    requires: tuple[str, ...] = ("mip",)
    _engine: str

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:
        """Answer `problem` within `limits`."""
        return solve_count_model(self.name, self._run, problem, limits)

    def _run(self, model: CountModel, limits: Limits) -> Outcome:
        return run(write(self._empty(), model), self.name, limits)

    def _empty(self) -> mip.Model:
        return quiet_model(self._engine)


class CbcSolver(_PythonMip):
    """Count-level model through python-mip and CBC."""

    name = "cbc"
    _engine = "CBC"

    def _empty(self) -> mip.Model:
        from mip.cbc import cbc_set_parameter

        model = super()._empty()
        # These models are so small and tight that branching decides them at once.
        model.cuts = 0
        model.preprocess = 0
        cbc_set_parameter(model.solver, "heur", "off")
        return model


class MipHighsSolver(_PythonMip):
    """Count-level model through python-mip and HiGHS."""

    name = "mip-highs"
    requires = ("mip", "highspy")
    _engine = "HIGHS"


class MipGurobiSolver(_PythonMip):
    """Count-level model through python-mip and Gurobi; the licence in gurobipy's wheel does not serve it."""

    name = "mip-gurobi"
    requires = ("mip", "gurobipy")
    _engine = "GUROBI"

    @staticmethod
    def licence() -> str:
        """Whether Gurobi starts from python-mip, or why not."""
        try:
            MipGurobiSolver()._empty()
        except SolverUnavailableError as error:
            return str(error)
        return "valid"

    def _empty(self) -> mip.Model:
        from mip.exceptions import InterfacingError

        try:
            return super()._empty()
        except (InterfacingError, FileNotFoundError) as error:
            raise SolverUnavailableError(
                f"{self.name}: Gurobi did not start (python-mip needs a full licence); try --solver gurobi."
            ) from error

    def _run(self, model: CountModel, limits: Limits) -> Outcome:
        from mip.exceptions import InterfacingError

        try:
            return super()._run(model, limits)
        except InterfacingError as error:
            # python-mip hands on Gurobi's code in the text alone.
            code = next((code for code in (NO_LICENCE, SIZE_LIMIT_EXCEEDED) if str(code) in str(error)), 0)
            raise unavailable(self.name, code, str(error), model.objective.size) from error


def quiet_model(engine: str) -> mip.Model:
    """An empty model to maximise, that prints nothing."""
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
        target.add_var(obj=gain, ub=upper, var_type=mip.INTEGER)
        for gain, upper in zip(model.objective.tolist(), model.upper.tolist(), strict=True)
    ]
    starts, indices, coefficients = model.starts.tolist(), model.indices.tolist(), model.coefficients.tolist()
    for row, (lower, upper) in enumerate(zip(model.row_lower.tolist(), model.row_upper.tolist(), strict=True)):
        entries = slice(starts[row], starts[row + 1])
        variables = [columns[index] for index in indices[entries]]
        for side, sense in ((lower, ">"), (upper, "<")):
            if math.isfinite(side):
                target.add_constr(mip.LinExpr(variables, coefficients[entries], -side, sense))
    return target


def run(target: mip.Model, name: str, limits: Limits) -> Outcome:
    """Optimise `target` and translate what came of it.

    Raises
    ------
    SolverError
        If the solver fails, or proves that there is no solution.
    """
    target.max_mip_gap = limits.gap
    target.max_mip_gap_abs = 0.0
    # CBC's "one thread" is a master that waits for one worker, and a wake-up that gets lost (one solve in thousands,
    # cbcbox 2.935) costs ten seconds; python-mip's default of 0 solves in the calling thread.
    is_alone = limits.threads == 1 and target.solver_name.upper() == "CBC"
    target.threads = 0 if is_alone else limits.threads
    status = target.optimize(max_seconds=limits.time_s)
    if status.name in INFEASIBLE:
        raise SolverError(f"{name}: no allocation satisfies the extra rows.")
    if status.name not in STATUS:
        raise SolverError(f"{name}: ended with status {status.name}.")
    x = [variable.x for variable in target.vars]
    found = None if None in x else np.array(x, dtype=np.float64)
    return Outcome(STATUS[status.name], found, target.objective_bound)
