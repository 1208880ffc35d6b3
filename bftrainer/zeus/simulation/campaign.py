"""Run many simulations of recurring jobs in parallel: jobs, groups, policies and seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from bftrainer.errors import BftrainerError, InputError, SettingsError
from bftrainer.parallel import in_order, usable_processors
from bftrainer.zeus.policies.job import HistoryEntry, Job, check_knobs
from bftrainer.zeus.policies.policy_registry import PolicyContext, batch_size_optimizer, power_limit_optimizer
from bftrainer.zeus.policies.trace import TrainingTrace
from bftrainer.zeus.simulation.simulator import (
    MAX_GROUP_RETRIES,
    Corrections,
    Group,
    Run,
    SimulationObserver,
    Simulator,
)

# Same seed as published.
SEED = 123456
# Number of recurrences that one process simulates while another process would still be starting.
RECURRENCES_PER_WORKER = 20_000
# Pieces of work for each worker: enough to even out long and short ones.
CHUNKS_PER_WORKER = 8


@dataclass(frozen=True, slots=True)
class Simulation:
    """All that the result of one simulation depends on, besides the traces: a job's recurrences, or a group's jobs."""

    job: Job
    recurrences: int | None = 100  # times that the job must reach its target
    group: Group | None = None  # jobs that may overlap, each a recurrence of `job`
    policy: str = "zeus"  # names of policies, or ``module:callable``
    power_policy: str = "jit"
    eta_knob: float = 0.5  # weight of energy in costs
    beta_knob: float = 2.0  # multiple of the lowest cost at which a run stops; inf: never
    seed: int = SEED  # for drawing paths, and of the policies
    corrections: Corrections = field(default_factory=Corrections)
    max_group_retries: int = MAX_GROUP_RETRIES  # of a group's job before the simulation gives up

    def __post_init__(self) -> None:
        if (self.recurrences is None) == (self.group is None):
            raise SettingsError(f"{self.job}: Expected either recurrences or a group, got both or neither.")
        for name in ("recurrences", "seed", "max_group_retries"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise SettingsError(f"Expected {name} >= 0, got {value}.")
        check_knobs(self.eta_knob, self.beta_knob)

    @property
    def length(self) -> int:
        """Number of recurrences to simulate."""
        return len(self.group.jobs) if self.group is not None else self.recurrences or 0

    @property
    def policies(self) -> str:
        """Names of both policies, in the form of the option ``--policy``."""
        return f"{self.policy}+{self.power_policy}"

    def __str__(self) -> str:
        group = f", group {self.group.name}" if self.group is not None else ""
        return f"{self.job}{group}, {self.policies}, seed {self.seed}"


@dataclass(frozen=True, slots=True, eq=False)
class SimulationResult:
    """All runs of a simulation in the order of their ends, and why it ended early, if it did."""

    simulation: Simulation
    runs: tuple[Run, ...]
    failure: str | None = None

    @property
    def is_partial(self) -> bool:
        """Whether the simulation ended early."""
        return self.failure is not None

    @property
    def history(self) -> list[HistoryEntry]:
        """The runs that started, as the simulator returns them."""
        return [run.entry() for run in self.runs if run.started]


class _Recorder(SimulationObserver):
    """Records the runs, so that they survive a simulation that fails."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def ran(self, run: Run) -> None:
        """Record a run."""
        self.runs.append(run)


def simulate(trace: TrainingTrace, simulation: Simulation) -> SimulationResult:
    """Simulate a job or a group; the result is partial if tuning could not go on, `InputError` if it cannot start."""
    recorder, failure, job, group = _Recorder(), None, simulation.job, simulation.group
    knobs = (simulation.beta_knob, simulation.eta_knob)
    try:
        context = PolicyContext(trace, job, *knobs[::-1], simulation.seed, concurrency=group is not None)
        simulator = Simulator(
            trace,
            None,
            batch_size_optimizer(simulation.policy, context),
            power_limit_optimizer(simulation.power_policy, context),
            simulation.seed,
            verbose=False,
            corrections=simulation.corrections,
            observers=[recorder],
            max_group_retries=simulation.max_group_retries,
        )
        if group is None:
            simulator.job_runs(job, simulation.length, *knobs)
        else:
            simulator.group_runs(job, group, *knobs)
    except BftrainerError as error:
        if isinstance(error, InputError) and not recorder.runs:
            raise
        failure = str(error)
    except MemoryError:
        raise
    except Exception as error:  # A user's policy may raise anything; the runs so far are kept.
        failure = " ".join(f"{simulation}: {type(error).__name__}: {error}".split())
    return SimulationResult(simulation, tuple(recorder.runs), failure)


def simulate_all(
    trace: TrainingTrace,
    simulations: Iterable[Simulation],
    workers: int | None = None,
    progress: Callable[[SimulationResult], None] = lambda result: None,  # noqa: ARG005
) -> list[SimulationResult]:
    """Run all simulations in processes, by default one per 20,000 recurrences; results are in the same order.

    `progress` is called with each result. The error of the first simulation that cannot start is raised.
    """
    simulations = list(simulations)
    if workers is not None and workers < 1:
        raise SettingsError(f"Expected at least one worker, got {workers}.")
    if workers is None:
        recurrences = sum(simulation.length for simulation in simulations)
        workers = min(math.ceil(recurrences / RECURRENCES_PER_WORKER), usable_processors())
    workers = max(1, min(workers, len(simulations)))
    chunk = max(1, math.ceil(len(simulations) / (workers * CHUNKS_PER_WORKER)))
    results = []
    with closing(in_order(partial(simulate, trace), simulations, workers, chunk)) as outcomes:
        for result in outcomes:
            results.append(result)
            progress(result)
    return results


def with_seeds(simulation: Simulation, number: int) -> list[Simulation]:
    """Repeat a simulation with `number` seeds: its own and those that follow."""
    return [replace(simulation, seed=simulation.seed + offset) for offset in range(number)]


def group_seed(seed: int, name: str) -> int:
    """Draw a seed from a campaign's and a group's name: with one seed for all, equal jobs would draw equal paths."""
    return int(np.random.SeedSequence([seed, *name.encode()]).generate_state(1)[0])
