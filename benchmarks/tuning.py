"""Workload *zeus*: simulated recurrences of jobs that tune batch size and power limit."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.children import command_sample
from benchmarks.published import published_traces
from benchmarks.workload import Case, Plan, Sample
from bftrainer.zeus import JITPowerLimitOptimizer, Job, PruningGTSBatchSizeOptimizer, Simulator, TrainingTrace
from bftrainer.zeus.policies.trace import configurations
from bftrainer.zeus.simulation.inputs import PUBLISHED_JOBS, SAMPLE_JOBS, zeus_sample

__all__ = ["DRAWS", "zeus_cases"]

DRAWS = "draws alone"
ETA, BETA = 0.5, 2.0
RECURRENCES, MANY, QUICK_MANY = 100, 100_000, 1_000
# Number of a run that is not timed.
WARM_UP = 999
_SIMULATE = """
import json, sys
from bftrainer.zeus import Job, JITPowerLimitOptimizer, PruningGTSBatchSizeOptimizer, Simulator
train, power, job, recurrences, eta, beta, seed = sys.argv[1:]
sizes = PruningGTSBatchSizeOptimizer(seed=int(seed), verbose=False)
simulator = Simulator(train, power, sizes, JITPowerLimitOptimizer(verbose=False), int(seed), verbose=False)
history = simulator.simulate_one_job(Job(**json.loads(job)), int(recurrences), float(beta), float(eta))
sys.exit(len(history) < int(recurrences))
"""


@dataclass(frozen=True, slots=True)
class _Traces:
    """Traces, and jobs that are in them."""

    name: str
    train: Path
    power: Path
    jobs: Sequence[Job]


def zeus_cases(plan: Plan) -> Iterator[Case]:
    """A run as part of 100 recurrences, and many recurrences in a process of their own, on all traces that are here."""
    for traces in _traces():
        yield from _run_cases(traces, plan)
    for traces in _traces():
        yield from _many_cases(traces, plan)


def _traces() -> Iterator[_Traces]:
    embedded = zeus_sample()
    yield _Traces("embedded", embedded.train, embedded.power, SAMPLE_JOBS)
    given = published_traces()
    if given is not None:
        yield _Traces("published", *given, PUBLISHED_JOBS)


def _run_cases(traces: _Traces, plan: Plan) -> Iterator[Case]:
    group = f"{traces.name}, a run"
    trace = TrainingTrace(traces.train, traces.power)
    # No two simulations of a plan have the same job and seed.
    seeds = partial(_seeds, plan.seed, len(traces.jobs))
    simulate = partial(_simulate, trace, traces.jobs)
    yield Case(group, "simulation", simulate, seeds, prepare=partial(simulate, seeds(WARM_UP)))
    arms = [len({each.batch_size for each in configurations(trace.of(job), job, ETA)}) for job in traces.jobs]
    yield Case(group, DRAWS, partial(_draw, arms), seeds)


def _seeds(seed: int, jobs: int, run: int) -> list[int]:
    return [(1000 * seed + run) * jobs + number for number in range(jobs)]


def _simulate(trace: TrainingTrace, jobs: Sequence[Job], seeds: Sequence[int]) -> Sample:
    """Median over the jobs of the time of one run, as part of a simulation of 100 recurrences."""
    taken = []
    for job, seed in zip(jobs, seeds, strict=True):
        sizes = PruningGTSBatchSizeOptimizer(seed=seed, verbose=False)
        simulator = Simulator(trace, None, sizes, JITPowerLimitOptimizer(verbose=False), seed, verbose=False)
        began = perf_counter()
        history = simulator.simulate_one_job(job, RECURRENCES, BETA, ETA)
        taken.append((perf_counter() - began) / len(history))
    return Sample(statistics.median(taken))


def _draw(arms: Sequence[int], seeds: Sequence[int]) -> Sample:
    """The same for nothing but the random numbers of a run: its path, an order of the arms, a normal for each."""
    taken = []
    for count, seed in zip(arms, seeds, strict=True):
        paths, bandit = (np.random.default_rng(seed) for _ in range(2))
        began = perf_counter()
        for _ in range(RECURRENCES):
            paths.integers(5)
            bandit.choice(count, count, replace=False)
            bandit.standard_normal(count)
        taken.append((perf_counter() - began) / RECURRENCES)
    return Sample(statistics.median(taken))


def _many_cases(traces: _Traces, plan: Plan) -> Iterator[Case]:
    job = traces.jobs[0]
    for recurrences in (1, QUICK_MANY if plan.quick else MANY):
        name = f"{recurrences:,} recurrence{'s' if recurrences > 1 else ''}"
        yield Case(f"{traces.name}, process", name, partial(_process, traces, job, recurrences, plan), most_runs=5)


def _process(traces: _Traces, job: Job, recurrences: int, plan: Plan, run: int) -> Sample:
    settings = (json.dumps(job.to_dict()), recurrences, ETA, BETA, plan.seed + run)
    return command_sample(
        [sys.executable, "-c", _SIMULATE, traces.train, traces.power, *map(str, settings)], plan.scratch
    )
