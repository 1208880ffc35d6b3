"""Workload *decision*: how long one decision takes, by solver, tasks x nodes and largest count.

``python -m benchmarks.decision`` prints medians and 95th percentiles in milliseconds. Instances are seeded and each
is solved once, so nothing is warm but the interpreter.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.instances import SIZES, instance
from bftrainer.errors import SolverUnavailableError
from solvers import Limits
from solvers.registry import get_solver, solve

__all__ = ["Timing", "decision_times", "main"]

DEFAULT_SOLVERS = ("dp", "cbc", "highs", "mip-highs", "gurobi", "equal-share")
# The first solves load libraries and start environments.
WARM_UP = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one solver on one size.

    Parameters
    ----------
    solver : str
    tasks, nodes, max_nodes : int
        Size of the instances; `max_nodes` is the largest count of any task.
    times_s : tuple of float
        One a decision.
    note : str
        Why there are no times, or how many decisions were not proven optimal; mostly empty.
    """

    solver: str
    tasks: int
    nodes: int
    max_nodes: int
    times_s: tuple[float, ...]
    note: str = ""

    def quantile_ms(self, share: float) -> float:
        """Milliseconds that `share` of the decisions stay below; NaN without times."""
        return float(np.quantile(self.times_s, share)) * 1e3 if self.times_s else float("nan")

    def __str__(self) -> str:
        size = f"{self.tasks} x {self.nodes}, Jmax {self.max_nodes}"
        times = f"median {self.quantile_ms(0.5):9.3f} ms, p95 {self.quantile_ms(0.95):9.3f} ms" if self.times_s else ""
        return f"{size:24} {self.solver:12} {times} {self.note}".rstrip()


def decision_times(
    solver: str, tasks: int, nodes: int, *, count: int, seed: int = 1, max_nodes: int = 64, limits: Limits | None = None
) -> Timing:
    """Time `count` fresh decisions of one size, every fourth of them with equal tasks."""
    chosen = get_solver(solver)
    limits = limits or Limits()
    rng = np.random.default_rng([seed, tasks, nodes])
    asked = [
        instance(rng, tasks, nodes, max_nodes=max_nodes, equal=number % 4 == 3) for number in range(WARM_UP + count)
    ]
    try:
        results = [solve(chosen, one, limits) for one in asked][WARM_UP:]
    except SolverUnavailableError as error:
        note = "size-limit" if "size-limited" in str(error) else str(error)
        return Timing(solver, tasks, nodes, max_nodes, (), note)
    unproven = sum(result.stop_reason == "time_limit" for result in results)
    note = f"{unproven} of {count} at the time limit" if unproven else ""
    return Timing(solver, tasks, nodes, max_nodes, tuple(result.solve_s for result in results), note)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the times of chosen solvers on chosen sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solvers", nargs="+", default=DEFAULT_SOLVERS)
    parser.add_argument("--sizes", nargs="+", default=[f"{tasks}x{nodes}" for tasks, nodes in SIZES])
    parser.add_argument("--max-nodes", type=int, default=64)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--no-prune", action="store_true")
    chosen = parser.parse_args(arguments)
    limits = Limits(time_s=chosen.time_limit, prune=not chosen.no_prune)
    for size in chosen.sizes:
        tasks, nodes = map(int, size.split("x"))
        for name in chosen.solvers:
            timing = decision_times(
                name, tasks, nodes, count=chosen.count, seed=chosen.seed, max_nodes=chosen.max_nodes, limits=limits
            )
            print(timing, flush=True)


if __name__ == "__main__":
    main()
