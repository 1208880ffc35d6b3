"""The count-level model through highspy, HiGHS's own interface."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import numpy as np

from solvers.count_model import CountModel
from solvers.milp import MOST_BRANCHES, MilpSolver, ModelOutcome
from solvers.problem import Limits, StopReason

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
SMALL = 1_000
# Threads that HiGHS's scheduler (one per process) was last started with.
_scheduled: list[int] = []


class HighsSolver(MilpSolver):
    """Count-level model through highspy and HiGHS."""

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
        return upper.size < SMALL and not bool((upper[model.integral] > 1.0).any())

    def _run(self, model: CountModel, limits: Limits) -> ModelOutcome:
        silent = _silent_class()
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
def _silent_class() -> type[Any]:
    """HiGHS whose constructor enables no callbacks: that prints a line before options count (1.16.0)."""
    import highspy

    return type("Silent", (highspy.Highs,), {"enableCallbacks": lambda _: None})
