"""What simulations cost: regrets against the best settings of a trace, and policies against no tuning."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from bftrainer.errors import SettingsError
from bftrainer.report.metrics import Estimate, estimate
from bftrainer.zeus.policies.job import Job
from bftrainer.zeus.policies.trace import Configuration, JobKey, TrainingTrace, configurations, optimum, pareto_front
from bftrainer.zeus.simulation.campaign import Simulation, SimulationResult, with_seeds
from bftrainer.zeus.simulation.simulator import Run, Usage, usage

# The paper shows what methods converged to by their last five recurrences.
LATEST = 5


def regrets(runs: Sequence[Run], best: Configuration) -> list[float]:
    """Compute the regret of each recurrence: its cost minus the mean cost at the optimum, in joules, in order.

    All tries count, with epochs that profile and those that were stopped early; tries whose bound allowed no epoch used
    nothing. In a group, costs are those of the traced job. That failed tries count, and that the optimum is a mean over
    the paths of the trace, is our reading: the source defines regret for single runs.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 6: regret is cost beyond that of the best batch size and power limit.
    """
    spent: dict[int, float] = {}
    for run in runs:
        spent[run.recurrence] = spent.get(run.recurrence, 0.0) + (run.cost_j if run.started else 0.0)
    return [spent[recurrence] - best.cost_j for recurrence in sorted(spent)]


def describe_job(trace: TrainingTrace, key: JobKey) -> dict[str, Any]:
    """Describe a job of the traces as plain values: its names, and what was measured, increasing."""
    targets = trace.targets(*key)
    sizes = trace.of(Job(*key, targets[0], max_epochs=1)).batch_sizes
    limits = {point.limit_w for sized in sizes.values() for point in sized.points}
    return key._asdict() | {"batch_sizes": list(sizes), "power_limits_w": sorted(limits), "target_metrics": targets}


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
    """The setting that a simulation ended up with, the share of the latest runs with it, and what it should take."""

    batch_size: int
    power_limit_w: float
    share: float
    expected: Configuration | None


@dataclass(frozen=True, slots=True)
class ZeusSummary:
    """A simulation in numbers; None where there is no run, no optimum, or the target is not reached."""

    used: Usage
    converged: Converged | None  # the setting that it ended up with
    optimum: Configuration | None  # the trace's cheapest one
    excess: float | None  # expected cost of the setting converged to, divided by the optimum's, minus one; 0 is best
    cumulative_regret_j: float | None
    final_regret_j: float | None  # mean regret of a recurrence among the latest ones

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values for JSON."""
        return asdict(self.used) | {name: value for name, value in asdict(self).items() if name != "used"}


def latest_recurrences(number: int) -> int:
    """Return how many of the last of `number` recurrences show what tuning converged to: a tenth, at least five."""
    return min(number, max(LATEST, math.ceil(number / 10)))


def find_converged(runs: Sequence[Run], settings: Sequence[Configuration]) -> Converged | None:
    """Find the most frequent setting of the latest recurrences; of equally frequent ones the last used.

    Zeus's paper shows the last five (section 6.2); that it is a tenth if that is more is ours.
    """
    if not runs:
        return None
    numbers = sorted({run.recurrence for run in runs})
    since = numbers[-latest_recurrences(len(numbers))]
    latest = [(run.batch_size, run.power_limit_w) for run in runs if run.recurrence >= since]
    # Counted from the end: of equally frequent settings, `most_common` gives the one that it met first.
    (setting, times), *_ = Counter(reversed(latest)).most_common(1)
    expected = (option for option in settings if (option.batch_size, option.power_limit_w) == setting)
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
    """One pair of policies on one job: means over the seeds of a recurrence, and of the cumulative regret."""

    policies: PolicyPair
    job: Job
    failed: int  # simulations that ended early, which are left out of the means
    cost_j: Estimate | None
    energy_j: Estimate | None
    time_s: Estimate | None
    regret_j: Estimate | None
    relative: dict[str, Estimate | None]  # cost, energy and time, divided by the baseline's with the same seed

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
    """Compare pairs of policies on each job; the results are those of jobs, and include the baseline's.

    Means are over seeds, intervals by Student's t at 95 %; ratios are to the baseline of the same seed.
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
                name: _estimate([getattr(entry, name) / entry.recurrences for entry in used if entry.recurrences])
                for name in MEASURES.values()
            }
            relative = {name: _estimate([ratio[name] for ratio in ratios]) for name in MEASURES}
            failed = len(of_pair[job]) - len(whole)
            rows.append(PolicyComparison(pair, job, failed, **means, regret_j=_estimate(regrets_j), relative=relative))
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
        {result.simulation.seed: usage(result.runs) for result in entry if not result.is_partial}
        for entry in (results, baseline)
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
    """Totals of the groups of a dataset (None: all): means over seeds of sums; retries are tries after the first."""

    dataset: str | None
    groups: int
    jobs: int
    failed: int
    retries: Estimate
    energy_j: Estimate
    time_s: Estimate
    cost_j: Estimate


def group_totals(results: Sequence[Sequence[SimulationResult]]) -> list[GroupTotals]:
    """Sum up groups, a row for each dataset and one for all; the results have shape (seeds, groups)."""
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
