"""What a simulation of recurring jobs says in a few numbers: use, the setting it converged to, regret."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bftrainer.zeus.policies.trace import TrainingTrace
from bftrainer.zeus.simulation.campaign import SimulationResult
from bftrainer.zeus.simulation.optimum import Configuration, best_of, configurations, regrets
from bftrainer.zeus.simulation.recurring import Run

__all__ = ["Converged", "Usage", "ZeusSummary", "converged", "latest_recurrences", "summarise", "usage"]

# The source shows what methods converged to by their last five recurrences.
LATEST = 5


@dataclass(frozen=True, slots=True)
class Usage:
    """What runs used.

    Parameters
    ----------
    recurrences : int
        Recurrences that reached their target.
    runs : int
        Runs that started, failed tries included.
    energy_j, time_s, cost_j : float
        Sums over the runs. In a group all three are scaled by each job's ratio of run times.
    """

    recurrences: int
    runs: int
    energy_j: float
    time_s: float
    cost_j: float


def usage(runs: Sequence[Run]) -> Usage:
    """What runs used; those whose bound allowed for no epoch used nothing."""
    started = [run for run in runs if run.started]
    return Usage(
        sum(run.reached for run in started),
        len(started),
        math.fsum(run.energy_j for run in started),
        math.fsum(run.time_s for run in started),
        math.fsum(run.cost_j * run.runtime_ratio for run in started),
    )


@dataclass(frozen=True, slots=True)
class Converged:
    """The setting that a simulation ended up with.

    Parameters
    ----------
    batch_size, power_limit_w : int
        The setting.
    share : float
        Share of the latest runs that used it.
    expected : Configuration or None
        What a recurrence takes with it on average; None if it does not reach the target in the trace.
    """

    batch_size: int
    power_limit_w: float
    share: float
    expected: Configuration | None


@dataclass(frozen=True, slots=True)
class ZeusSummary:
    """A simulation in numbers.

    Parameters
    ----------
    used : Usage
    converged : Converged or None
        None without a run.
    optimum : Configuration or None
        The trace's cheapest setting; None if none reaches the target.
    regrets_j : tuple of float, shape (recurrences,)
        Cost of each recurrence beyond the optimum's; empty without an optimum.
    """

    used: Usage
    converged: Converged | None
    optimum: Configuration | None
    regrets_j: tuple[float, ...]

    @property
    def cumulative_regret_j(self) -> float | None:
        """Sum of all regrets."""
        return math.fsum(self.regrets_j) if self.regrets_j else None

    @property
    def final_regret_j(self) -> float | None:
        """Mean regret of a recurrence among the latest ones."""
        if not self.regrets_j:
            return None
        latest = self.regrets_j[-latest_recurrences(len(self.regrets_j)) :]
        return math.fsum(latest) / len(latest)

    @property
    def excess(self) -> float | None:
        """Expected cost of the setting it converged to, over the optimum's, less one; 0 is as good as it gets."""
        if self.converged is None or self.converged.expected is None or self.optimum is None:
            return None
        return self.converged.expected.cost_j / self.optimum.cost_j - 1.0 if self.optimum.cost_j else None

    def to_dict(self) -> dict[str, Any]:
        """All figures but the single regrets, fit for JSON."""
        return {
            **asdict(self.used),
            "converged": None if self.converged is None else asdict(self.converged),
            "optimum": None if self.optimum is None else asdict(self.optimum),
            "excess": self.excess,
            "cumulative_regret_j": self.cumulative_regret_j,
            "final_regret_j": self.final_regret_j,
        }


def latest_recurrences(number: int) -> int:
    """How many recurrences at the end of `number` show what tuning converged to: a tenth, at least five."""
    return min(number, max(LATEST, math.ceil(number / 10)))


def converged(runs: Sequence[Run], settings: Sequence[Configuration]) -> Converged | None:
    """The most frequent setting among the runs of the latest recurrences.

    Parameters
    ----------
    runs : sequence of Run
        All runs of a simulation, in their order.
    settings : sequence of Configuration
        What a recurrence takes with each setting.

    Notes
    -----
    The latest recurrences are those with the highest numbers: a tenth of all, at least five. Of settings used equally
    often, the one that was used last counts. Runs whose bound allowed for no epoch count too: they were chosen.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 6.2 shows the last five recurrences; that it is a tenth if that is more, so
    that one draw of the bandit weighs less, is ours.
    """
    if not runs:
        return None
    numbers = sorted({run.recurrence for run in runs})
    since = numbers[-latest_recurrences(len(numbers))]
    latest = [(run.batch_size, run.power_limit_w) for run in runs if run.recurrence >= since]
    # Counted from the end: of equally frequent settings, `most_common` gives the one that it met first.
    (setting, times), *_ = Counter(reversed(latest)).most_common(1)
    expected = (each for each in settings if (each.batch_size, each.power_limit_w) == setting)
    return Converged(*setting, times / len(latest), next(expected, None))


def summarise(trace: TrainingTrace, result: SimulationResult) -> ZeusSummary:
    """A simulation in numbers."""
    simulation = result.simulation
    settings = configurations(trace.of(simulation.job), simulation.job, simulation.eta_knob)
    best = best_of(settings)
    return ZeusSummary(
        usage(result.runs),
        converged(result.runs, settings),
        best,
        () if best is None else tuple(regrets(result.runs, best)),
    )
