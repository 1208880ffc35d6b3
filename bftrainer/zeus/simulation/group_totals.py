"""What groups of recurring jobs use, by dataset and in all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bftrainer.report.intervals import Estimate, estimate
from bftrainer.zeus.simulation.campaign import SimulationResult
from bftrainer.zeus.simulation.summary import usage

__all__ = ["GroupTotals", "group_totals"]


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """What the groups of a dataset use.

    Parameters
    ----------
    dataset : str or None
        None for all groups.
    groups, jobs : int
        How many there are of them.
    failed : int
        Simulations that ended before their time; what they used until then counts.
    retries, energy_j, time_s, cost_j : Estimate
        Sums over the groups: means over the seeds. Retries are tries after the first.
    """

    dataset: str | None
    groups: int
    jobs: int
    failed: int
    retries: Estimate
    energy_j: Estimate
    time_s: Estimate
    cost_j: Estimate

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain values."""
        return asdict(self)


def group_totals(results: Sequence[Sequence[SimulationResult]]) -> list[GroupTotals]:
    """What groups use, a row for each dataset and one for all.

    Parameters
    ----------
    results : sequence of sequence of SimulationResult, shape (seeds, groups)
        The same groups in the same order for each seed.

    Returns
    -------
    list of GroupTotals
        By dataset, in the order of the groups; the last one is for all.
    """
    datasets = dict.fromkeys(_dataset(result) for result in results[0])
    rows = [_totals(name, [[one for one in seed if _dataset(one) == name] for seed in results]) for name in datasets]
    return [*rows, _totals(None, results)]


def _dataset(result: SimulationResult) -> str:
    return result.simulation.job.dataset


def _totals(dataset: str | None, results: Sequence[Sequence[SimulationResult]]) -> GroupTotals:
    used = [[usage(result.runs) for result in seed] for seed in results]
    sums = {
        name: estimate([math.fsum(getattr(each, name) for each in seed) for seed in used])
        for name in ("energy_j", "time_s", "cost_j")
    }
    retries = [math.fsum(run.attempt > 0 for result in seed for run in result.runs) for seed in results]
    return GroupTotals(
        dataset,
        groups=len(results[0]),
        jobs=sum(result.simulation.length for result in results[0]),
        failed=sum(result.is_partial for seed in results for result in seed),
        retries=estimate(retries),
        **sums,
    )
