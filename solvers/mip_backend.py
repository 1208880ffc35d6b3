"""The count-level model through python-mip: HiGHS and Gurobi."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from bftrainer.errors import SolverError, SolverUnavailableError
from solvers.count_level import NO_SOLUTION, OUT_OF_TIME, CountModelSolver, ModelOutcome, apart, solve_count_model
from solvers.gurobi_backend import NO_LICENCE, SIZE_LIMIT_EXCEEDED, unavailable
from solvers.highs_backend import claim_threads
from solvers.problem import AllocationProblem, Limits, SolveResult, StopReason
from solvers.segments import CountModel

if TYPE_CHECKING:
    import mip

# https://docs.python-mip.com/en/latest/classes.html#mip.OptimizationStatus
# Whatever is not listed is an error.
STATUS = {
    "OPTIMAL": StopReason.OPTIMAL,
    "FEASIBLE": StopReason.TIME_LIMIT,
    "NO_SOLUTION_FOUND": StopReason.TIME_LIMIT,
}
INFEASIBLE = ("INFEASIBLE", "INT_INFEASIBLE")


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


def optimised(target: mip.Model, name: str, limits: Limits, branches: int | None = None) -> ModelOutcome:
    """Optimise `target` and translate the outcome.

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
        # python-mip passes Gurobi's error code on in the text only.
        code = next((code for code in (NO_LICENCE, SIZE_LIMIT_EXCEEDED) if str(code) in str(error)), 0)
        raise unavailable(name, code, str(error), target.num_cols) from error
    if status.name in INFEASIBLE:
        return NO_SOLUTION
    if status.name not in STATUS:
        raise SolverError(f"{name}: ended with status {status.name}.")
    x = [variable.x for variable in target.vars]
    found = None if None in x else np.array(x, dtype=np.float64)
    return ModelOutcome(STATUS[status.name], found, target.objective_bound)


class _PythonMip(CountModelSolver):
    """Base of the two solvers below; `_engine` is always named, or python-mip would choose."""

    name: str
    requires: tuple[str, ...] = ("mip",)
    _engine: str

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:
        """Answer `problem` within `limits`."""
        return solve_count_model(self.name, apart(self.name, self._run), problem, limits)

    def _run(self, model: CountModel, limits: Limits, branches: int | None) -> ModelOutcome:
        deadline = perf_counter() + limits.time_s
        target = self._empty()
        self._set_threads(target, limits.threads)
        write(target, model)
        left_s = deadline - perf_counter()
        return OUT_OF_TIME if left_s <= 0 else optimised(target, self.name, replace(limits, time_s=left_s), branches)

    def licence(self) -> str:
        """Whether python-mip finds the engine, and may start it, or why not."""
        try:
            self._empty()
        except SolverUnavailableError as error:
            return str(error)
        return "valid"

    def _empty(self) -> mip.Model:
        """An empty model to maximise, that prints nothing."""
        import mip

        model = mip.Model(sense=mip.MAXIMIZE, solver_name=self._engine)
        model.verbose = 0
        return model

    def _set_threads(self, target: mip.Model, threads: int) -> None:
        target.threads = threads


class MipHighsSolver(_PythonMip):
    """Count-level model through python-mip and HiGHS."""

    name = "mip-highs"
    requires = ("mip", "highspy")
    _engine = "HIGHS"

    def _empty(self) -> mip.Model:
        # It logs where it looked for the library; what matters of that is in the error.
        logging.getLogger("mip").addHandler(logging.NullHandler())
        try:
            return super()._empty()
        except FileNotFoundError as error:
            raise SolverUnavailableError(
                f"{self.name}: python-mip finds no HiGHS, which highspy hides from version 1.16 on; try --solver highs."
            ) from error

    def _set_threads(self, target: mip.Model, threads: int) -> None:
        claim_threads(threads)
        super()._set_threads(target, threads)


class MipGurobiSolver(_PythonMip):
    """Count-level model through python-mip and Gurobi; the licence in gurobipy's wheel serves gurobipy alone."""

    name = "mip-gurobi"
    requires = ("mip", "gurobipy")
    _engine = "GUROBI"

    def _empty(self) -> mip.Model:
        from mip.exceptions import InterfacingError

        try:
            return super()._empty()
        except (InterfacingError, FileNotFoundError) as error:
            raise SolverUnavailableError(
                f"{self.name}: Gurobi did not start (python-mip needs a full licence); try --solver gurobi."
            ) from error
