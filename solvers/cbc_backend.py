"""The count-level model through CBC, by the C functions that python-mip brings.

Its own objects for models, columns and rows take longer than CBC does for most of these models. Models hold no special
ordered sets: CBC crashes the process on them.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from solvers.count_model import CountModel
from solvers.milp import MOST_BRANCHES, MilpSolver, ModelOutcome
from solvers.problem import Limits, StopReason

# CBC took 0.25 s at most for hundreds of models of fewer columns with a limited tree; this limit leaves time for that.
SMALL, LEAST_S = 100, 1.0
TOLERANCE = 1e-6
CONTINUOUS, INTEGER = b"\0", b"\1"
AT_LEAST, AT_MOST = b"G", b"L"


class CbcSolver(MilpSolver):
    """Count-level model through python-mip's CBC, on one thread whatever the limits say."""

    name = "cbc"
    requires = ("mip",)
    # About one tiny model in 4,000 waits in CBC's threaded search for a signal that it missed until its time is over.

    # The first of the functions `Cbc_is...` that is true.
    statuses = ("Abandoned", "ProvenInfeasible", "ProvenOptimal", "ContinuousUnbounded")
    finished: ClassVar = {"ProvenOptimal": StopReason.OPTIMAL, "unfinished": StopReason.TIME_LIMIT}
    infeasible = ("ProvenInfeasible",)
    # These models are so small and tight that preprocessing, heuristics and cuts cost more than they save.
    off: tuple[bytes, ...] = (b"preprocess", b"heur", b"cuts")

    def _keeps_limits(self, model: CountModel, limits: Limits) -> bool:
        return limits.effort < MOST_BRANCHES and len(model.upper) < SMALL and limits.time_s >= LEAST_S

    def _run(self, model: CountModel, limits: Limits) -> ModelOutcome:
        from mip.cbc import cbclib, ffi

        target = cbclib.Cbc_newModel()
        try:
            cbclib.Cbc_setLogLevel(target, 0)
            cbclib.Cbc_setObjSense(target, -1.0)
            _write(target, model)
            _set_limits(target, limits)
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


def _write(target: Any, model: CountModel) -> None:
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


def _set_limits(target: Any, limits: Limits) -> None:
    from mip.cbc import DBL_PARAM_INT_TOL, cbclib

    # By default CBC counts CPU time, which passes more slowly than the clock on a busy machine.
    cbclib.Cbc_setParameter(target, b"timeMode", b"elapsed")
    if math.isfinite(limits.time_s):
        cbclib.Cbc_setMaximumSeconds(target, limits.time_s)
    if limits.effort < MOST_BRANCHES:
        cbclib.Cbc_setMaximumNodes(target, int(limits.effort))
    cbclib.Cbc_setAllowableFractionGap(target, limits.gap)
    cbclib.Cbc_setAllowableGap(target, 0.0)
    cbclib.Cbc_setDblParam(target, DBL_PARAM_INT_TOL, TOLERANCE)
    cbclib.Cbc_setPrimalTolerance(target, TOLERANCE)
    cbclib.Cbc_setDualTolerance(target, TOLERANCE)
