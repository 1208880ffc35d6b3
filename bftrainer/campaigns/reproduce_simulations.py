"""The evaluations of Zeus and Bamboo made again: means over seeds, compared with paired intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from bftrainer.campaigns.reproduction_page import Comparison, Levels, Reported, Reproduction, mean_of
from bftrainer.nodelogs.availability import read_availability
from bftrainer.parallel import in_order
from bftrainer.report.intervals import Estimate, ratio
from bftrainer.spot.checkpointing import CheckpointedTraining
from bftrainer.spot.generation import fit_minutes
from bftrainer.spot.run import TIME_ACCOUNTS, Prices, load_profile
from bftrainer.spot.sweep import SpotSweep
from bftrainer.zeus.policies.job import Job
from bftrainer.zeus.policies.trace import TrainingTrace, configurations, optimum
from bftrainer.zeus.simulation.campaign import SEED, Simulation, SimulationResult, group_seed, simulate_all
from bftrainer.zeus.simulation.inputs import PUBLISHED_JOBS, SAMPLE_JOBS, load_groups, load_traces
from bftrainer.zeus.simulation.optimum import BASELINE, PolicyPair, compare_policies, regrets, simulations_of
from bftrainer.zeus.simulation.simulator import usage

_ETAS, _USUAL = (0.0, 0.25, 0.5, 0.75, 1.0), 0.5
_TUNED, _OTHERS = PolicyPair("zeus", "jit"), (PolicyPair("grid", "jit"), PolicyPair("ucb", "jit"))
_RECURRENCES = (10, 20, 40, 60, 80, 100)


def reproduce_zeus(log: Path | None, workers: int, *, quick: bool) -> Reproduction:
    """Simulate recurring jobs over eta and policies, and groups of them, against not tuning at all.

    Parameters
    ----------
    log : Path, optional
        A folder with the published traces; by default the embedded synthetic ones.
    workers : int
    quick : bool
        Whether 5 seeds are enough, instead of 20.

    Raises
    ------
    InputError
        If the traces cannot be used.
    """
    trace = load_traces(*(log and log / f"summary_{name}.csv" for name in ("train", "power_v100"))).trace
    jobs, seeds = SAMPLE_JOBS if log is None else PUBLISHED_JOBS, 5 if quick else 20
    asked = {
        eta: simulations_of(jobs, (_TUNED, *(_OTHERS if eta == _USUAL else ())), seeds, eta_knob=eta) for eta in _ETAS
    }
    results = {eta: simulate_all(trace, each, workers) for eta, each in asked.items()}
    rows = [
        (eta, row) for eta, each in results.items() for row in compare_policies(trace, each) if row.policies == _TUNED
    ]
    over_eta = []
    for what in ("energy", "time"):
        lines: dict[str, dict[float, Estimate]] = {job.dataset: {} for job in jobs}
        for eta, row in rows:
            if row.job is not None:
                lines[row.job.dataset][eta] = _less_one(row.relative[what])
        reading = f"The {what} of all recurrences with Zeus, exploring included, against the default's."
        over_eta.append(Comparison(f"eta-{what}", reading, f"change in {what}", "eta", lines, even=0.0))
    saved = [-over_eta[0].lines[job.dataset][_USUAL].mean for job in jobs]
    why = "Not comparable: the traces are synthetic."
    if log is not None:
        why = "Comparable in part: the published V100 traces and jobs; recurrences and seeds are ours."
    here = f"{100 * min(saved):.1f} to {100 * max(saved):.1f} % by job"
    claim = Reported("energy saved at eta 0.5", "15.3 to 75.8 %", here, why)
    caveats = (
        f"{seeds} seeds of 100 recurrences a job; differences are paired by seed.",
        "The default is not to tune: default batch size, highest power limit.",
        "Groups that overlap are the embedded synthetic ones, not Alibaba's; the jobs take their datasets in turn.",
    )
    settings = f"{len(jobs)} jobs of {'the embedded synthetic' if log is None else 'the published V100'} traces"
    figures = (*over_eta, _regret(results[_USUAL], jobs, trace), _groups(jobs, trace, seeds, workers))
    source = "You, Chung and Chowdhury, NSDI '23, arXiv:2208.06102"
    return Reproduction("Zeus", source, settings, (claim,), figures, caveats)


def _less_one(found: Estimate | None) -> Estimate:
    return mean_of([]) if found is None else Estimate(found.mean - 1.0, found.half_width, found.number)


def _regret(results: Sequence[SimulationResult], jobs: Sequence[Job], trace: TrainingTrace) -> Comparison:
    """Cumulative regret, in costs of a recurrence at the optimum: of each seed the mean over the jobs."""
    best = {job: optimum(configurations(trace.of(job), job, _USUAL)) for job in jobs}
    paths: dict[str, dict[int, list[list[float]]]] = {}
    for each in results:
        if not each.is_partial:
            at = best[each.simulation.job]
            path = [regret / at.cost_j for regret in regrets(each.runs, at)]
            paths.setdefault(each.simulation.policies, {}).setdefault(each.simulation.seed, []).append(path)
    lines = {
        policy: {
            until: mean_of([math.fsum(sum(path[:until]) for path in of) / len(of) for of in by_seed.values()])
            for until in _RECURRENCES
        }
        for policy, by_seed in paths.items()
    }
    reading = "What tuning has cost so far beyond the optimum, in costs of one run there: mean of the jobs."
    return Comparison("regret", reading, "regret (runs at optimum)", "recurrences", lines, "number")


def _groups(jobs: Sequence[Job], trace: TrainingTrace, seeds: int, workers: int) -> Comparison:
    """Energy, time and cost of all groups of jobs that overlap against the default's, paired by seed."""
    groups = list(load_groups(None)[0].values())
    kinds = dict(zip(dict.fromkeys(group.dataset for group in groups), jobs, strict=False))
    asked = [
        Simulation(kinds[group.dataset], None, group, pair.policy, pair.power_policy, seed=group_seed(seed, group.name))
        for pair, seed, group in product((_TUNED, BASELINE), range(SEED, SEED + seeds), groups)
    ]
    used = list(zip(asked, map(usage, (each.runs for each in simulate_all(trace, asked, workers))), strict=True))
    lines: dict[str, Levels] = {}
    for name in ("energy_j", "time_s", "cost_j"):
        lines[name.partition("_")[0]] = changes = {}
        for job in kinds.values():
            sums = [
                math.fsum(getattr(each, name) for of, each in used[at : at + len(groups)] if of.job == job)
                for at in range(0, len(used), len(groups))
            ]
            changes[job.dataset] = mean_of(
                [one / two - 1.0 for one, two in zip(sums[:seeds], sums[seeds:], strict=True)]
            )
    reading = "All recurrences of groups whose jobs overlap, tuned by Zeus, against the default."
    return Comparison("groups", reading, "change in groups", "dataset", lines, even=0.0)


def reproduce_bamboo(log: Path | None, workers: int, *, quick: bool) -> Reproduction:
    """Simulate checkpointed training over levels of preemption.

    Parameters
    ----------
    log : Path, optional
        A trace of spot instances that the model of preemptions is fitted to; by default figures of one of 64.
    workers : int
    quick : bool
        Whether 10 traces a level are enough, instead of 100.

    Raises
    ------
    InputError
        If the trace cannot be used.
    """
    notes: list[str] = []
    model = fit_minutes(None if log is None else read_availability(log, notes.append), log)
    settings, repeats = CheckpointedTraining(load_profile(None)[0]), 10 if quick else 100
    levels = (0.0, 0.25, 0.5, 1.0, 2.0) if quick else (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
    sweep = SpotSweep(model, settings, levels, repeats=repeats, prices=Prices(0.3, 1.0))
    points = list(product(sweep.levels, range(repeats)))
    with closing(in_order(sweep.run, points, workers, 8)) as results:
        runs = dict(zip(points, results, strict=True))

    def line(size: Callable[[Mapping[str, Any], Mapping[str, Any]], float | None]) -> Levels:
        """Means of a figure of each run and of that of the same seed without preemption."""
        pairs = {at: [(runs[(at, 1.0), seed], runs[(0.0, 1.0), seed]) for seed in range(repeats)] for at in levels}
        return {at: mean_of([size(*pair) for pair in of]) for at, of in pairs.items()}

    kept = line(lambda run, undisturbed: ratio(run["iterations_done"], undisturbed["iterations_done"]))
    worth = line(lambda run, _: run["value_against_on_demand"])
    times = {name[:-2]: line(partial(_time_share, name)) for name in TIME_ACCOUNTS}
    axis, spot = "preemption level", "checkpointing on spot instances"
    done = "Iterations done, as a share of those without preemption."
    paid = "Work for money against that of on-demand nodes; above 1 spot instances pay."
    figures = (
        Comparison("throughput", done, "throughput kept", axis, {spot: kept}, within=(0.0, 1.0)),
        Comparison("value", paid, "value against on demand", axis, {spot: worth}, "number", (0.0, math.inf), 1.0),
        Comparison("time", "What a run does with its time.", "share of the time", axis, times, within=(0.0, 1.0)),
    )
    why = "Not comparable: checkpointing alone is simulated, not Bamboo's redundant pipelines"
    room = f"x {1 / kept[1.0].mean:.1f} at most" if kept[1.0].mean > 0 else "all, as checkpointing gets nothing done"
    most = f"{why}; ours is what no preemption would give, at level 1."
    value = f"x {worth[1.0].mean:.2f}" if worth[1.0].number else "-"
    claims = (
        Reported("throughput beyond checkpointing", "x 3.7", room, most),
        Reported("work for money against on demand", "x 2.4", value, f"{why}; prices are assumed."),
    )
    caveats = (
        f"{repeats} traces of a day a level, the same seeds at all levels; shares are paired by seed.",
        "A node-hour on spot costs 0.3 of one on demand: an assumption.",
        f"Level 1 is the rate of {'a trace of 64 instances' if log is None else log.name}, in a model of each minute.",
        *notes,
    )
    text = f"Pipelines of {settings.depth} nodes; {model.initial_nodes} nodes at first, {model.max_nodes} at most"
    return Reproduction("Bamboo", "Thorpe et al., NSDI '23, arXiv:2204.12013", text, claims, figures, caveats)


def _time_share(name: str, run: Mapping[str, Any], _: Mapping[str, Any]) -> float:
    """Share of a run's time of one account."""
    return float(run[name] / run["span_s"])
