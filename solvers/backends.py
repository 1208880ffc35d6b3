"""The count-level model through CBC, HiGHS and Gurobi; their libraries are imported when first used."""

from __future__ import annotations

import math
import os
import threading
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bftrainer.errors import SolverError, SolverUnavailableError
from solvers.count_model import CountModel
from solvers.milp import MOST_BRANCHES, MilpSolver, ModelOutcome
from solvers.problem import Limits, OutOfTime, StopReason

if TYPE_CHECKING:
    import gurobipy

# CBC took 0.25 s at most for hundreds of models of fewer columns with a limited tree; this limit leaves time for that.
SMALL_FOR_CBC, LEAST_S = 100, 1.0
CBC_TOLERANCE = 1e-6
CONTINUOUS, INTEGER = b"\0", b"\1"
AT_LEAST, AT_MOST = b"G", b"L"
ROW_WISE, MAXIMISE, FEASIBLE = 2, -1, 2
# For models with totals: presolving would take these out, what HiGHS does to find a first solution takes longer than
# the rest, and within the usual tolerance allocations could gain value by exceeding a capacity. Cuts at nodes cost more
# than they save, and once cut off the optimum (HiGHS 1.15.1).
WITH_TOTALS = {
    "presolve": "off",
    "mip_detect_symmetry": False,
    "mip_allow_cut_separation_at_nodes": False,
    "mip_heuristic_effort": 0.0,
    "mip_heuristic_run_rins": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_root_reduced_cost": False,
    "mip_pscost_minreliable": 2,
    "mip_feasibility_tolerance": 1e-9,
    "primal_feasibility_tolerance": 1e-9,
}
# With fewer columns HiGHS exceeds its time limit by some 0.1 s at most; with 30,000 it took 3 s instead of 2.
SMALL_FOR_HIGHS = 1_000
# Threads that HiGHS's scheduler (one per process) was last started with.
_scheduled: list[int] = []
# https://docs.gurobi.com/projects/optimizer/en/current/reference/misc/errorcodes.html
NO_LICENCE, SIZE_LIMIT_EXCEEDED = 10009, 10010
# https://docs.gurobi.com/projects/optimizer/en/current/reference/numericcodes/statuscodes.html
OPTIMAL, INFEASIBLE, INFEASIBLE_OR_UNBOUNDED, NODE_LIMIT, TIME_LIMIT = 2, 3, 4, 8, 9
TIGHTEST = 1e-9
_environments = threading.local()


class CbcSolver(MilpSolver):
    """Count-level model through the C functions of CBC that python-mip brings, on one thread whatever the limits say.

    About one tiny model in 4,000 waits in CBC's threaded search for a signal that it missed until its time is over.
    python-mip's own objects for models, columns and rows take longer than CBC does for most of these models. Models
    hold no special ordered sets: CBC crashes the process on them.
    """

    name = "cbc"
    requires = ("mip",)
    # The first of the functions `Cbc_is...` that is true.
    statuses = ("Abandoned", "ProvenInfeasible", "ProvenOptimal", "ContinuousUnbounded")
    finished: ClassVar = {"ProvenOptimal": StopReason.OPTIMAL, "unfinished": StopReason.TIME_LIMIT}
    infeasible = ("ProvenInfeasible",)
    # These models are so small and tight that preprocessing, heuristics and cuts cost more than they save.
    off: tuple[bytes, ...] = (b"preprocess", b"heur", b"cuts")

    def _keeps_limits(self, model: CountModel, limits: Limits) -> bool:
        return limits.effort < MOST_BRANCHES and len(model.upper) < SMALL_FOR_CBC and limits.time_s >= LEAST_S

    def _run(self, model: CountModel, limits: Limits) -> ModelOutcome:
        from mip.cbc import DBL_PARAM_INT_TOL, cbclib, ffi

        target = cbclib.Cbc_newModel()
        try:
            cbclib.Cbc_setLogLevel(target, 0)
            cbclib.Cbc_setObjSense(target, -1.0)
            self._write(target, model)
            # By default CBC counts CPU time, which passes more slowly than the clock on a busy machine.
            cbclib.Cbc_setParameter(target, b"timeMode", b"elapsed")
            if math.isfinite(limits.time_s):
                cbclib.Cbc_setMaximumSeconds(target, limits.time_s)
            if limits.effort < MOST_BRANCHES:
                cbclib.Cbc_setMaximumNodes(target, int(limits.effort))
            cbclib.Cbc_setAllowableFractionGap(target, limits.gap)
            cbclib.Cbc_setAllowableGap(target, 0.0)
            cbclib.Cbc_setDblParam(target, DBL_PARAM_INT_TOL, CBC_TOLERANCE)
            cbclib.Cbc_setPrimalTolerance(target, CBC_TOLERANCE)
            cbclib.Cbc_setDualTolerance(target, CBC_TOLERANCE)
            for feature in self.off:
                cbclib.Cbc_setParameter(target, feature, b"off")
            cbclib.Cbc_solve(target)
            holds = (name for name in self.statuses if getattr(cbclib, f"Cbc_is{name}")(target))
            status, x = next(holds, "unfinished"), None
            if status == "ProvenOptimal" or cbclib.Cbc_numberSavedSolutions(target):
                x = np.array(ffi.unpack(cbclib.Cbc_getColSolution(target), len(model.upper)))
            return self.to_outcome(status, x, cbclib.Cbc_getBestPossibleObjValue(target))
        finally:
            cbclib.Cbc_deleteModel(target)

    def _write(self, target: Any, model: CountModel) -> None:
        """Copy the columns and rows of `model` into the empty `target`."""
        from mip.cbc import cbclib, ffi

        kinds = [INTEGER if integral else CONTINUOUS for integral in model.integral.tolist()]
        columns = zip(model.lower, model.upper, model.objective.tolist(), kinds, strict=True)
        for number, column in enumerate(columns):
            cbclib.Cbc_addCol(target, b"%d" % number, *column, 0, ffi.NULL, ffi.NULL)
        for number, (row, *ends) in enumerate(zip(model.rows, model.row_lower, model.row_upper, strict=True)):
            # CBC takes a row without entries for satisfied.
            entries = row or {0: 0.0}
            for side, sense in zip(ends, (AT_LEAST, AT_MOST), strict=True):
                if math.isfinite(side):
                    name = b"%d%b" % (number, sense)
                    cbclib.Cbc_addRow(target, name, len(entries), list(entries), list(entries.values()), sense, side)


class HighsSolver(MilpSolver):
    """Count-level model through highspy, HiGHS's own interface."""

    name = "highs"
    requires = ("highspy",)
    # https://ergo-code.github.io/HiGHS/stable/structures/enums/#HighsModelStatus
    finished: ClassVar = {
        "kOptimal": StopReason.OPTIMAL,
        "kTimeLimit": StopReason.TIME_LIMIT,
        # The limit on nodes of the tree.
        "kSolutionLimit": StopReason.TIME_LIMIT,
    }
    infeasible = ("kInfeasible",)

    def _keeps_limits(self, model: CountModel, limits: Limits) -> bool:  # noqa: ARG002 - whatever they are
        # With whole numbers beyond 1, as of alike tasks and along slopes, it may not.
        upper = np.array(model.upper)
        return upper.size < SMALL_FOR_HIGHS and not bool((upper[model.integral] > 1.0).any())

    def _run(self, model: CountModel, limits: Limits) -> ModelOutcome:
        silent = _silent_highs()
        # HiGHS fails if its running scheduler has another number of threads.
        if _scheduled != [limits.threads]:
            silent.resetGlobalScheduler(True)
            _scheduled[:] = [limits.threads]
        highs = silent()
        options = {
            "output_flag": False,
            "mip_rel_gap": limits.gap,
            "mip_abs_gap": 0.0,
            "time_limit": limits.time_s,
            "threads": limits.threads,
            **(WITH_TOTALS if model.totals else {}),
        }
        if limits.effort < MOST_BRANCHES:
            options["mip_max_nodes"] = int(limits.effort)
        for option, value in options.items():
            highs.setOptionValue(option, value)
        indices = np.array([column for row in model.rows for column in row], dtype=np.int32)
        highs.passModel(
            len(model.upper), len(model.rows), indices.size, ROW_WISE, MAXIMISE, 0.0, model.objective,
            np.array(model.lower), np.array(model.upper), np.array(model.row_lower), np.array(model.row_upper),
            np.cumsum([0, *map(len, model.rows)], dtype=np.int32), indices,
            np.array([entry for row in model.rows for entry in row.values()], dtype=np.float64),
            model.integral.astype(np.int32),
        )  # fmt: skip
        highs.run()
        info = highs.getInfo()
        x = np.array(highs.getSolution().col_value) if info.primal_solution_status == FEASIBLE else None
        return self.to_outcome(highs.getModelStatus().name, x, info.mip_dual_bound)


@cache
def _silent_highs() -> type[Any]:
    """HiGHS whose constructor enables no callbacks: that prints a line before options count (1.16.0)."""
    import highspy

    return type("Silent", (highspy.Highs,), {"enableCallbacks": lambda _: None})


class GurobiSolver(MilpSolver):
    """Count-level model through gurobipy.

    gurobipy looks for a licence where `GRB_LICENSE_FILE` points, then in the usual places; the one that its wheel
    brings covers models of up to 2,000 variables and 2,000 rows, which most count-level models stay below.
    """

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
            with gurobipy.Model(env=gurobi_environment()) as target:
                expires = int(target.LicenseExpiration)
        except SolverError as error:
            return str(error)
        # 0 stands for a licence that does not expire.
        return f"valid until {expires // 10000}-{expires // 100 % 100:02}-{expires % 100:02}" if expires else "valid"

    def _run(self, model: CountModel, limits: Limits) -> ModelOutcome:
        import gurobipy

        deadline = perf_counter() + limits.time_s
        try:
            with gurobipy.Model(env=gurobi_environment()) as target:
                self._write(target, model, deadline)
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

    def _write(self, target: gurobipy.Model, model: CountModel, deadline: float) -> None:
        """Copy the columns and rows of `model` into the empty `target`."""
        import gurobipy

        target.ModelSense = gurobipy.GRB.MAXIMIZE
        kinds = np.where(model.integral, gurobipy.GRB.INTEGER, gurobipy.GRB.CONTINUOUS)
        lower, upper = np.array(model.lower), np.array(model.upper)
        columns = target.addMVar(upper.size, lb=lower, ub=upper, obj=model.objective, vtype=kinds).tolist()
        for row, least, most in zip(model.rows, model.row_lower, model.row_upper, strict=True):
            if perf_counter() > deadline:
                raise OutOfTime
            total = gurobipy.LinExpr(list(row.values()), [columns[index] for index in row])
            if np.isfinite(least):
                target.addLConstr(total >= least)
            if np.isfinite(most):
                target.addLConstr(total <= most)


def gurobi_environment() -> gurobipy.Env:
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
