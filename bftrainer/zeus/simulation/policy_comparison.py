"""Compare policies on jobs over seeds, relative to not tuning at all; totals of groups of jobs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import geometric_mean
from typing import Any, NamedTuple

from bftrainer.errors import SettingsError
from bftrainer.report.intervals import Estimate, estimate
from bftrainer.zeus.policies.configurations import configurations, optimum
from bftrainer.zeus.policies.job import Job
from bftrainer.zeus.policies.trace import TrainingTrace
from bftrainer.zeus.simulation.campaign import Simulation, SimulationResult, with_seeds
from bftrainer.zeus.simulation.optimum import regrets
from bftrainer.zeus.simulation.recurring import usage

MEASURES = {"cost": "cost_j", "energy": "energy_j", "time": "time_s"}


# Power policies for single names: the default tunes neither, and an oracle knows both.
_COMPANIONS = {"default": "max-power", "oracle": "oracle"}


class PolicyPair(NamedTuple):
    """Names of a policy for batch sizes and one for power limits, or ``module:callable``."""

    policy: str
    power_policy: str

    @classmethod
    def parse(cls, text: str) -> PolicyPair:
        """Parse a pair such as ``zeus+jit``; a single name such as ``zeus`` gets a suitable power policy."""
        policy, plus, power_policy = text.partition("+")
        pair = cls(policy, power_policy if plus else _COMPANIONS.get(policy, "jit"))
        if not all(pair):
            raise SettingsError(f"Expected policies as BATCH_SIZE or BATCH_SIZE+POWER_LIMIT, got {text!r}.")
        return pair

    def __str__(self) -> str:
        return f"{self.policy}+{self.power_policy}"


BASELINE = PolicyPair("default", "max-power")


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """One pair of policies on one job; or on all of them, where only `relative` is known, as a geometric mean.

    Parameters
    ----------
    failed : int
        Number of simulations that ended early; they are left out of the means.
    cost_j, energy_j, time_s, regret_j : Estimate or None
        Values of a recurrence, failed tries included, and the cumulative regret: means over the seeds.
    relative : dict of str to Estimate or None
        Cost, energy and time, divided by the baseline's with the same seed: means over the seeds; 1 means equal.
    """

    policies: PolicyPair
    job: Job | None
    failed: int
    cost_j: Estimate | None
    energy_j: Estimate | None
    time_s: Estimate | None
    regret_j: Estimate | None
    relative: dict[str, Estimate | None]

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values."""
        return asdict(self) | {"policies": str(self.policies)}


def simulations_of(jobs: Iterable[Job], pairs: Iterable[PolicyPair], seeds: int, **settings: Any) -> list[Simulation]:
    """Make simulations of each job with each pair and seed, baseline first; `settings` go to `Simulation`."""
    every = dict.fromkeys((BASELINE, *pairs))
    return [
        simulation
        for job in jobs
        for pair in every
        for simulation in with_seeds(
            Simulation(job, policy=pair.policy, power_policy=pair.power_policy, **settings), seeds
        )
    ]


def compare_policies(trace: TrainingTrace, results: Sequence[SimulationResult]) -> list[PolicyComparison]:
    """Compare pairs of policies on each job, in the order in which pairs and jobs occur.

    The results are those of jobs, not groups, and include the baseline's.

    Notes
    -----
    Means are over seeds, intervals by Student's t at 95 %. Relative figures are means of the ratios to the baseline of
    the same seed.
    """
    by_pair = _group_results(results)
    rows = []
    for job in dict.fromkeys(result.simulation.job for result in results):
        baseline = by_pair.get(BASELINE, {}).get(job, [])
        for pair, of_pair in by_pair.items():
            if job not in of_pair:
                continue
            whole = [result for result in of_pair[job] if not result.is_partial]
            used = [usage(result.runs) for result in whole]
            ratios = _ratios(of_pair[job], baseline).values()
            settings = configurations(trace.of(job), job, of_pair[job][0].simulation.eta_knob)
            regrets_j = [math.fsum(regrets(result.runs, optimum(settings))) for result in whole] if settings else []
            means = {
                name: _estimate([getattr(each, name) / each.recurrences for each in used if each.recurrences])
                for name in MEASURES.values()
            }
            relative = {name: _estimate([ratio[name] for ratio in ratios]) for name in MEASURES}
            failed = len(of_pair[job]) - len(whole)
            rows.append(PolicyComparison(pair, job, failed, **means, regret_j=_estimate(regrets_j), relative=relative))
    return rows


def compare_all(results: Sequence[SimulationResult]) -> list[PolicyComparison]:
    """Compare pairs of policies on all jobs together, relative to the baseline.

    Notes
    -----
    The value of a seed is the geometric mean of the jobs' ratios; seeds that failed on a job are left out. A geometric
    mean weighs a job by how much it changed, not by how large it is.
    """
    by_pair = _group_results(results)
    rows = []
    for pair, of_pair in by_pair.items():
        of_jobs = [_ratios(of_job, by_pair.get(BASELINE, {}).get(job, [])) for job, of_job in of_pair.items()]
        seeds = [seed for seed in of_jobs[0] if all(seed in ratios for ratios in of_jobs)]
        relative = {}
        for name in MEASURES:
            by_seed = [[ratios[seed][name] for ratios in of_jobs] for seed in seeds]
            relative[name] = _estimate([geometric_mean(ratios) if all(ratios) else 0.0 for ratios in by_seed])
        failed = sum(result.is_partial for of_job in of_pair.values() for result in of_job)
        rows.append(PolicyComparison(pair, None, failed, None, None, None, None, relative))
    return rows


def _group_results(results: Sequence[SimulationResult]) -> dict[PolicyPair, dict[Job, list[SimulationResult]]]:
    """Results by pair of policies and job."""
    by_pair: dict[PolicyPair, dict[Job, list[SimulationResult]]] = {}
    for result in results:
        pair = PolicyPair(result.simulation.policy, result.simulation.power_policy)
        by_pair.setdefault(pair, {}).setdefault(result.simulation.job, []).append(result)
    return by_pair


def _ratios(results: Sequence[SimulationResult], baseline: Sequence[SimulationResult]) -> dict[int, dict[str, float]]:
    """Divide cost, energy and time by the baseline's, for each seed that has both."""
    used, plain = (
        {result.simulation.seed: usage(result.runs) for result in each if not result.is_partial}
        for each in (results, baseline)
    )
    return {
        seed: {name: getattr(own, field) / getattr(plain[seed], field) for name, field in MEASURES.items()}
        for seed, own in used.items()
        if seed in plain and all(getattr(plain[seed], field) > 0 for field in MEASURES.values())
    }


def _estimate(sample: Sequence[float]) -> Estimate | None:
    """Estimate a mean; None if every simulation failed."""
    return estimate(sample) if sample else None


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """Totals of the groups of a dataset, or of all groups: means over the seeds of sums over the groups.

    Retries are tries after the first; what simulations that ended early used still counts.
    """

    dataset: str | None
    groups: int
    jobs: int
    failed: int
    retries: Estimate
    energy_j: Estimate
    time_s: Estimate
    cost_j: Estimate


def group_totals(results: Sequence[Sequence[SimulationResult]]) -> list[GroupTotals]:
    """Sum up groups: a row for each dataset, in the order of the groups, and one for all.

    The results are of the same groups in the same order for each seed: shape (seeds, groups).
    """
    rows = []
    for dataset in [*dict.fromkeys(result.simulation.job.dataset for result in results[0]), None]:
        seeds = [[one for one in seed if dataset in (None, one.simulation.job.dataset)] for seed in results]
        used = [[usage(result.runs) for result in seed] for seed in seeds]
        retries = [math.fsum(run.attempt > 0 for result in seed for run in result.runs) for seed in seeds]
        sums = {
            name: estimate([math.fsum(getattr(one, name) for one in seed) for seed in used])
            for name in MEASURES.values()
        }
        jobs = sum(result.simulation.length for result in seeds[0])
        failed = sum(result.is_partial for seed in seeds for result in seed)
        rows.append(GroupTotals(dataset, len(seeds[0]), jobs, failed, estimate(retries), **sums))
    return rows
