"""The count-level model through python-mip: CBC, HiGHS and Gurobi."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bftrainer.errors import SolverUnavailableError
from solvers.count_level import Outcome, apart, solve_count_model
from solvers.highs_backend import claim_threads
from solvers.problem import AllocationProblem, Limits, SolveResult
from solvers.python_mip import quiet_model, solve_written
from solvers.segments import CountModel

if TYPE_CHECKING:
    import mip

__all__ = ["CbcSolver", "MipGurobiSolver", "MipHighsSolver"]


class _PythonMip:
    """What the three have in common."""

    name: str
    exact = True
    extra_rows = True
    capacities = True
    floor = True
    requires: tuple[str, ...] = ("mip",)
    _engine: str

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:
        """Answer `problem` within `limits`."""
        run = apart(self.name, self._run)
        return solve_count_model(self.name, run, problem, limits, order_equals=self._engine == "CBC")

    def _run(self, model: CountModel, limits: Limits, branches: int | None) -> Outcome:
        target = self._empty()
        self._set_threads(target, limits.threads)
        return solve_written(target, model, self.name, limits, branches)

    def _empty(self) -> mip.Model:
        return quiet_model(self._engine)

    def _set_threads(self, target: mip.Model, threads: int) -> None:
        target.threads = threads


class CbcSolver(_PythonMip):
    """Count-level model through python-mip and CBC, on one thread whatever the limits say."""

    name = "cbc"
    heeds = frozenset({"time", "gap", "prune"})
    _engine = "CBC"

    def _empty(self) -> mip.Model:
        from mip.cbc import cbc_set_parameter

        model = super()._empty()
        # These models are so small and tight that preprocessing, heuristics and cuts cost more than they save.
        model.cuts = 0
        model.preprocess = 0
        cbc_set_parameter(model.solver, "heur", "off")
        return model

    def _set_threads(self, target: mip.Model, threads: int) -> None:
        # Any number, 1 included, starts CBC's threaded search. About one tiny model in 4,000 then waits for a
        # signal that it missed until its time is over, so CBC is left without threads.
        del target, threads


class MipHighsSolver(_PythonMip):
    """Count-level model through python-mip and HiGHS."""

    name = "mip-highs"
    requires = ("mip", "highspy")
    heeds = frozenset({"time", "gap", "threads", "prune"})
    _engine = "HIGHS"

    def _set_threads(self, target: mip.Model, threads: int) -> None:
        claim_threads(threads)
        super()._set_threads(target, threads)


class MipGurobiSolver(_PythonMip):
    """Count-level model through python-mip and Gurobi; the licence in gurobipy's wheel serves gurobipy alone."""

    name = "mip-gurobi"
    requires = ("mip", "gurobipy")
    heeds = frozenset({"time", "gap", "threads", "prune"})
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
