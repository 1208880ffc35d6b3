"""One simulated training run: which path it takes, when it stops, what it uses."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bftrainer.errors import TuningProtocolError
from bftrainer.zeus.policies.interfaces import PowerLimitOptimizer
from bftrainer.zeus.policies.job import Job, zeus_cost
from bftrainer.zeus.policies.trace import BatchSizeTrace, JobTrace

__all__ = ["Outcome", "Training"]


class Outcome(NamedTuple):
    """What one run did.

    Parameters
    ----------
    energy_j, time_s : float
        Used by the run; both 0 if it never started.
    reached : bool
        Whether it reached its target.
    epochs : float
        Epochs it trained, the profiling one included.
    """

    energy_j: float
    time_s: float
    reached: bool
    epochs: float

    @property
    def started(self) -> bool:
        """Whether the bound on its cost allowed for an epoch."""
        return self.epochs > 0


class _Plan(NamedTuple):
    """What a run at one batch size and power limit is made of."""

    sized: BatchSizeTrace
    energy_per_epoch_j: float
    time_per_epoch_s: float
    epoch_cost_j: float


class Training:
    """Runs of one job, replayed from its trace.

    Parameters
    ----------
    job : Job
        The job.
    trace : JobTrace
        What was measured of it.
    eta_knob : float
        Weight of energy in costs.
    rng : Generator
        Draws the path of each run; one draw a run, none if there is one path.
    """

    def __init__(self, job: Job, trace: JobTrace, eta_knob: float, rng: np.random.Generator) -> None:
        self.job, self.trace, self.eta_knob, self.rng = job, trace, eta_knob, rng
        self._plans: dict[tuple[int, int], _Plan] = {}

    def cost(self, outcome: Outcome) -> float:
        """A run's cost, time converted with the highest power limit of the whole trace."""
        return zeus_cost(outcome.energy_j, outcome.time_s, self.eta_knob, self.trace.max_power_w)

    def power_limit(self, optimizer: PowerLimitOptimizer, batch_size: int) -> tuple[int, bool]:
        """The limit to use, and whether this run's first epoch profiles all of them to find it.

        Raises
        ------
        TuningProtocolError
            If the optimizer has no answer after it observed all limits.
        """
        limit = optimizer.predict(self.job, batch_size)
        if limit is not None:
            return limit, False
        sized = self.trace.at(batch_size)
        for point in sized.points:
            power = self.eta_knob * point.average_power_w + (1.0 - self.eta_knob) * sized.max_power_w
            optimizer.observe(self.job, batch_size, point.limit_w, power * point.time_per_epoch_s)
        limit = optimizer.predict(self.job, batch_size)
        if limit is None:
            raise TuningProtocolError(
                f"Expected a power limit from {optimizer.name} after it observed all of them, got None."
            )
        return limit, True

    def run(self, batch_size: int, power_limit: int, cost_bound: float, profile: bool) -> Outcome:
        """Train once.

        Parameters
        ----------
        batch_size, power_limit : int
            Settings of the run.
        cost_bound : float
            It stops before an epoch that would take its cost beyond this.
        profile : bool
            Whether the first epoch tries all power limits, and so takes their mean time and energy.
        """
        plan = self._plans.get((batch_size, power_limit)) or self._plan(batch_size, power_limit)
        paths = plan.sized.target_epochs
        target = paths[0 if len(paths) == 1 else self.rng.integers(len(paths))]
        most: float = self.job.max_epochs
        if cost_bound != math.inf:
            most = min(cost_bound // plan.epoch_cost_j, most)
            if most == 0:
                return Outcome(0.0, 0.0, False, 0.0)
        # A target that is never reached is NaN, which compares false.
        reached = target <= most
        epochs = target if reached else most
        if not profile:
            return Outcome(plan.energy_per_epoch_j * epochs, plan.time_per_epoch_s * epochs, reached, epochs)
        energy, time = plan.sized.profiling_epoch
        energy += plan.energy_per_epoch_j * (epochs - 1)
        return Outcome(energy, time + plan.time_per_epoch_s * (epochs - 1), reached, epochs)

    def _plan(self, batch_size: int, power_limit: int) -> _Plan:
        sized = self.trace.at(batch_size)
        point = sized.point(power_limit)
        energy, time = point.energy_per_epoch_j, point.time_per_epoch_s
        plan = _Plan(sized, energy, time, zeus_cost(energy, time, self.eta_knob, sized.max_power_w))
        self._plans[batch_size, power_limit] = plan
        return plan
