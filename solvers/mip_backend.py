"""The count-level model through python-mip: CBC, HiGHS and Gurobi.

Models hold no special ordered sets: CBC crashes the process on them.
"""

from __future__ import annotations

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
# CBC took 0.25 s at most for hundreds of models of fewer columns with a limited tree; this limit leaves time for that.
SMALL, LEAST_S = 100, 1.0
INFEASIBLE = ("INFEASIBLE", "INT_INFEASIBLE")


def quiet_model(engine: str) -> mip.Model:
    """An empty model to maximise, that prints nothing; `engine` is always named, or python-mip would choose."""
    import mip

    model = mip.Model(sense=mip.MAXIMIZE, solver_name=engine)
    model.verbose = 0
    if engine == "CBC":
        # By default CBC counts CPU time, which passes more slowly than the clock on a busy machine.
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


def solve_written(
    target: mip.Model, model: CountModel, name: str, limits: Limits, branches: int | None
) -> ModelOutcome:
    """Copy `model` into the empty `target`, and solve that in the time that is left."""
    deadline = perf_counter() + limits.time_s
    write(target, model)
    left_s = deadline - perf_counter()
    return OUT_OF_TIME if left_s <= 0 else optimised(target, name, replace(limits, time_s=left_s), branches)


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
    """Base of the three solvers below."""

    name: str
    requires: tuple[str, ...] = ("mip",)
    _engine: str

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:
        """Answer `problem` within `limits`."""
        run = apart(self.name, self._run, self._stays_here)
        return solve_count_model(self.name, run, problem, limits, order_equals=self._engine == "CBC")

    def _run(self, model: CountModel, limits: Limits, branches: int | None) -> ModelOutcome:
        target = self._empty()
        self._set_threads(target, limits.threads)
        return solve_written(target, model, self.name, limits, branches)

    def _stays_here(self, model: CountModel, limits: Limits, branches: int | None) -> bool:
        """Whether the backend may run in this process."""
        del model, limits, branches
        return False

    def _empty(self) -> mip.Model:
        return quiet_model(self._engine)

    def _set_threads(self, target: mip.Model, threads: int) -> None:
        target.threads = threads


class CbcSolver(_PythonMip):
    """Count-level model through python-mip and CBC, on one thread whatever the limits say."""

    name = "cbc"
    heeds = frozenset({"time", "gap", "prune", "effort"})
    _engine = "CBC"

    def _empty(self) -> mip.Model:
        from mip.cbc import cbc_set_parameter

        model = super()._empty()
        # These models are so small and tight that preprocessing, heuristics and cuts cost more than they save.
        model.cuts = 0
        model.preprocess = 0
        cbc_set_parameter(model.solver, "heur", "off")
        return model

    def _stays_here(self, model: CountModel, limits: Limits, branches: int | None) -> bool:
        return branches is not None and model.objective.size < SMALL and limits.time_s >= LEAST_S

    def _set_threads(self, target: mip.Model, threads: int) -> None:
        # Any number, 1 included, starts CBC's threaded search. About one tiny model in 4,000 then waits for a
        # signal that it missed until its time is over, so CBC is left without threads.
        del target, threads


class MipHighsSolver(_PythonMip):
    """Count-level model through python-mip and HiGHS."""

    name = "mip-highs"
    requires = ("mip", "highspy")
    _engine = "HIGHS"

    def _set_threads(self, target: mip.Model, threads: int) -> None:
        claim_threads(threads)
        super()._set_threads(target, threads)


class MipGurobiSolver(_PythonMip):
    """Count-level model through python-mip and Gurobi; the licence in gurobipy's wheel serves gurobipy alone."""

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
