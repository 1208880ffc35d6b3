"""How near a simulation came to the best possible cost of its traced job: regrets, and a summary in numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bftrainer.zeus.policies.configurations import Configuration, configurations, optimum, pareto_front
from bftrainer.zeus.policies.job import Job
from bftrainer.zeus.policies.trace import TrainingTrace
from bftrainer.zeus.simulation.campaign import SimulationResult
from bftrainer.zeus.simulation.recurring import Run, Usage, usage

# The paper shows what methods converged to by their last five recurrences.
LATEST = 5


def regrets(runs: Sequence[Run], best: Configuration) -> list[float]:
    """Compute the regret of each recurrence of a simulation: its cost minus the mean cost at the optimum, in joules.

    Regrets are in the order of recurrences, and negative where one drew a better path than the mean.

    Notes
    -----
    The cost of a recurrence is that of all its tries: epochs that profile power limits and tries that were stopped
    early count; tries whose bound allowed for no epoch used nothing, whatever the policy was told. In a group, costs
    are those of the traced job, before they are scaled by the ratio of run times. That failed tries count, and that the
    optimum is a mean over the paths of the trace, is our reading: the source defines regret for single runs.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 6: regret is cost beyond that of the best batch size and power limit.
    """
    spent: dict[int, float] = {}
    for run in runs:
        spent[run.recurrence] = spent.get(run.recurrence, 0.0) + (run.cost_j if run.started else 0.0)
    return [spent[recurrence] - best.cost_j for recurrence in sorted(spent)]


def describe_job(trace: TrainingTrace, key: tuple[str, str, str]) -> dict[str, Any]:
    """Describe a job of the traces as plain values: its names, and what was measured, increasing."""
    targets = trace.targets(*key)
    sizes = trace.of(Job(*key, targets[0], max_epochs=1)).batch_sizes
    limits = {point.limit_w for sized in sizes.values() for point in sized.points}
    names = dict(zip(("dataset", "network", "optimizer"), key, strict=True))
    return names | {"batch_sizes": list(sizes), "power_limits_w": sorted(limits), "target_metrics": targets}


def describe_target(trace: TrainingTrace, job: Job, eta_knob: float) -> dict[str, Any]:
    """Describe a job with its target as plain values: batch sizes that reach it, optimum (or None), Pareto front."""
    settings = configurations(trace.of(job), job, eta_knob)
    return {
        "job": job.to_dict(),
        "eta_knob": eta_knob,
        "reaching": list(dict.fromkeys(setting.batch_size for setting in settings)),
        "optimum": asdict(optimum(settings)) if settings else None,
        "front": [asdict(setting) for setting in pareto_front(settings)],
    }


@dataclass(frozen=True, slots=True)
class Converged:
    """The setting that a simulation ended up with, and the share of the latest runs that used it.

    `expected` has the means of a recurrence with the setting; None if it does not reach the target in the trace.
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
    converged, optimum : Converged and Configuration, or None
        The setting converged to, None without a run, and the trace's cheapest one, None if none reaches the target.
    excess : float or None
        Expected cost of the setting converged to, divided by the optimum's, minus one; 0 is best.
    cumulative_regret_j, final_regret_j : float or None
        Sum of all regrets, and mean regret of a recurrence among the latest ones; None without an optimum.
    """

    used: Usage
    converged: Converged | None
    optimum: Configuration | None
    excess: float | None
    cumulative_regret_j: float | None
    final_regret_j: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values for JSON."""
        return asdict(self.used) | {name: value for name, value in asdict(self).items() if name != "used"}


def latest_recurrences(number: int) -> int:
    """Return how many of the last of `number` recurrences show what tuning converged to: a tenth, at least five."""
    return min(number, max(LATEST, math.ceil(number / 10)))


def find_converged(runs: Sequence[Run], settings: Sequence[Configuration]) -> Converged | None:
    """Find the most frequent setting among the runs of the latest recurrences, see `latest_recurrences`.

    Of settings used equally often, the one that was used last counts. Runs whose bound allowed for no epoch count too:
    they were chosen.

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
    """Summarise a simulation in numbers."""
    simulation, used = result.simulation, usage(result.runs)
    settings = configurations(trace.of(simulation.job), simulation.job, simulation.eta_knob)
    converged = find_converged(result.runs, settings)
    best = optimum(settings) if settings else None
    regrets_j = regrets(result.runs, best) if best is not None else []
    expected = None if converged is None else converged.expected
    excess = expected.cost_j / best.cost_j - 1.0 if expected is not None and best is not None and best.cost_j else None
    if not regrets_j:
        return ZeusSummary(used, converged, best, excess, None, None)
    latest = regrets_j[-latest_recurrences(len(regrets_j)) :]
    return ZeusSummary(used, converged, best, excess, math.fsum(regrets_j), math.fsum(latest) / len(latest))
