"""Inputs of a run: read and check all that a configuration names, and what its decisions may foresee."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import solvers
from bftrainer.errors import SettingsError, SolverError, UnusedOptionsError, legible
from bftrainer.files.budgets import budget
from bftrainer.files.opening import SAMPLE_NODE_LOG, SAMPLE_TASKS, sample_path
from bftrainer.lifetimes import AgeLifetimes, get_lifetimes, reads_queue
from bftrainer.model import NodeLog, TaskSpec
from bftrainer.model.lifetime import JobQueue, LifetimeModel
from bftrainer.nodelogs.job_queue import queue_path, read_queue
from bftrainer.nodelogs.node_spans import nanoseconds
from bftrainer.nodelogs.offers import offered_log, read_departures
from bftrainer.objectives import get_objective
from bftrainer.replay import Settings
from bftrainer.replay.foresight import Foresight
from bftrainer.runs.baseline import work_adds_up
from bftrainer.runs.config import OPTIONS, ReplayConfig
from bftrainer.runs.power import PowerPlan, Tuning, power_plan, refuse_unused_power
from bftrainer.runs.readers import LEARNED, Readers
from bftrainer.tasksets import AssumedScaling
from bftrainer.zeus.policies.policy_registry import BATCH_SIZES, POWER_LIMITS
from solvers.isolation import BOUNDS, isolated
from solvers.reference_solvers import EqualShare
from solvers.registry import declaration, get_solver, solve

SAMPLE_TASKS_USED = "no task set is given (-bdfn, --tasks): the 40 tasks of the embedded sample are used."

CODE: dict[str, Callable[[str], Any]] = {
    "objective": get_objective,
    **dict.fromkeys(("solver", "fallback"), declaration),
    "foresight": lambda name: name == "none" or reads_queue(name),
    "policy": BATCH_SIZES.get,
    "power_policy": POWER_LIMITS.get,
}
"""Options whose values are names of code, perhaps as ``module:callable``, and what looks them up."""

# Longer than any log.
_LONGEST_S = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """Inputs of a run, read and validated.

    Parameters
    ----------
    config : ReplayConfig
        The configuration that names them.
    log : NodeLog
        Selection and skipped rows already applied.
    tasks : tuple of TaskSpec
    notes : tuple of str
        Notes to the user about how they were read.
    sources : dict
        Per input its path as given and its SHA-256; None for objects.
    assumed_scaling : AssumedScaling or None
        What tasks were given that came without a curve.
    settings : Settings
    power : PowerPlan
        Cap and carbon intensity over the window.
    tuning : Tuning or None
        Inputs of tuned tasks' tuning; None if there are none.
    load_s : float
        Wall-clock seconds that loading took.
    idle_log : NodeLog or None
        The log before some of its idle time was withheld; None if all of it is offered.
    learned : tuple of str
        Names of the tasks whose curves decisions do not know.
    queue : JobQueue or None
        The scheduler's jobs, if the model of lifetimes reads them.
    """

    config: ReplayConfig
    log: NodeLog
    tasks: tuple[TaskSpec, ...]
    notes: tuple[str, ...]
    sources: dict[str, Any]
    assumed_scaling: AssumedScaling | None
    settings: Settings
    power: PowerPlan
    tuning: Tuning | None
    load_s: float
    idle_log: NodeLog | None = None
    learned: tuple[str, ...] = ()
    queue: JobQueue | None = None


def load_inputs(config: ReplayConfig, readers: Readers | None = None) -> Inputs:
    """Read and validate all inputs that `config` names.

    Raises
    ------
    InputError
        If a file, a setting or an objective cannot be used; nothing is written then.
    SolverError
        If the solver is not installed or has no licence.
    """
    began = time.perf_counter()
    readers = Readers() if readers is None else readers
    settings = _settings(config)
    node_log = sample_path(SAMPLE_NODE_LOG) if config.node_log is None else config.node_log
    tasks = sample_path(SAMPLE_TASKS) if config.tasks is None else config.tasks
    sources: dict[str, Any] = {"node_log": None, "tasks": None, "scalability": None}
    assumed_scaling = None
    notes: list[str] = []
    if config.tasks is None and config.node_log is not None:
        notes.append(SAMPLE_TASKS_USED)
    if isinstance(tasks, Path):
        task_set = readers.task_set(tasks, config.scalability, config.scaling)
        notes += task_set.warnings
        sources |= {
            name: readers.source(path) for name, path in zip(("tasks", "scalability"), task_set.sources, strict=False)
        }
        assumed_scaling = task_set.assumed_scaling
        tasks, learned = task_set.tasks, task_set.learned
    else:
        learned = tuple(task.name for task in tasks) if config.scaling == LEARNED else ()
        given = {"--scalability": config.scalability, "--scaling": None if learned else config.scaling}
        vain = {option: "tasks that are no file have a scaling" for option, value in given.items() if value is not None}
        if vain:
            raise UnusedOptionsError(vain)
    log, idle_log = _read_log(node_log, config, readers, notes)
    if isinstance(node_log, Path):
        sources["node_log"] = readers.source(node_log)
    config.until_s(log.start_ns)
    check = getattr(settings.objective, "check", None)
    if check is not None:
        check(tasks)
    notes += _warnings(config, log, tasks)
    tasks = tuple(tasks)
    tuning = Tuning.of(tasks, config)
    if tuning is None:
        refuse_unused_power(config)
    else:
        notes += tuning.warnings
    power = power_plan(config, log, tasks)
    sources |= _further_sources(config, tuning, readers)
    settings = replace(settings, power_cap_w=power.first_power_cap_w())
    refuse_unfit(config, log, tasks, learned)
    queue = queue_file(config)
    if queue is not None:
        sources["queue"] = readers.source(queue)
    jobs = None if queue is None else read_queue(queue)
    load_s = time.perf_counter() - began
    said = tuple(map(legible, notes))
    of_tasks = tasks, said, sources, assumed_scaling, settings, power, tuning
    return Inputs(config, log, *of_tasks, load_s, idle_log, learned, jobs)


def _read_log(
    node_log: Path | NodeLog, config: ReplayConfig, readers: Readers, notes: list[str]
) -> tuple[NodeLog, NodeLog | None]:
    """The part of a log, in time and nodes, that is offered; and that which is idle, if it is more."""
    if isinstance(node_log, Path):
        whole = readers.node_log(node_log, config.skip_events, notes.append, cache=config.cache)
    else:
        whole = node_log.skipped(config.skip_events)
    departures = None if config.planned_departures is None else read_departures(config.planned_departures)
    after_ns, lead_ns = (nanoseconds(min(each, _LONGEST_S)) for each in (config.offer_after_s, config.forward_time_s))
    log = offered_log(whole, after_ns, departures, lead_ns)
    chosen = [each.since(config.start_ns(each)).selected(config.first_node, config.node_count) for each in (log, whole)]
    return chosen[0], None if log is whole else chosen[1]


def log_start_ns(config: ReplayConfig, readers: Readers) -> int:
    """Start of the log of a configuration, whatever part of it is replayed; nanoseconds since the Unix epoch."""
    return load_inputs(replace(config, since=None, until=None, baseline=False), readers).log.start_ns


def _further_sources(config: ReplayConfig, tuning: Tuning | None, readers: Readers) -> dict[str, Any]:
    """Sources that only some runs have: series, and training traces."""
    found: dict[str, Any] = {}
    for name, option in OPTIONS.items():
        given = getattr(config, name)
        if (option.units or name == "planned_departures") and isinstance(given, Path):
            found[name] = readers.source(given)
    if tuning is not None:
        files = dict.fromkeys(file for pair in tuning.traces for file in pair)
        found["traces"] = [readers.source(Path(file)) for file in files]
    return found


def _warnings(config: ReplayConfig, log: NodeLog, tasks: Sequence[TaskSpec]) -> list[str]:
    """Warnings that a run, or part of its result, is pointless without being wrong; one line each."""
    if config.bounds and not work_adds_up(tasks):
        what = "Expected tasks that count work in one unit for bounds"
        raise SettingsError(f"{what}, got epochs over different datasets.")
    warnings = []
    first_s = min((task.submitted_after_s(log.start_ns) for task in tasks), default=0.0)
    if first_s >= log.window_s:
        warnings.append("no task is submitted before the node log ends.")
    if config.baseline and not work_adds_up(tasks):
        warnings.append("no efficiency: tuned tasks count work in epochs over different datasets, which do not add up.")
    longest_s = config.forward_time_s
    if config.startup_cost == "full" and all(np.min(task.start_s(slice(1, None))) >= longest_s for task in tasks):
        warnings.append(f"no start pays within the forward time of {longest_s:g} s: no task will ever run.")
    return warnings


def _settings(config: ReplayConfig) -> Settings:
    solver: str | solvers.Solver = config.solver
    if config.strict_published or (config.compat == "published" and solver == "equal-share"):
        solver = EqualShare(strict_published=True)
    else:
        allowed = budget()
        bounds = replace(BOUNDS, memory_bytes=int(allowed.solver_bytes * allowed.factor))
        solver = isolated(solver, config.isolate, bounds)
        fallback = config.fallback and isolated(config.fallback, config.isolate, bounds)
        config = replace(config, solver=solver, fallback=fallback)
        _check_solvers(config)
    objective = get_objective(config.objective) if isinstance(config.objective, str) else config.objective
    return config.settings(objective, solver)


def _check_solvers(config: ReplayConfig) -> None:
    """Check before the replay that the solvers can be used, instead of failing at the first decision."""
    solver, fallback = config.solver, config.fallback
    if isinstance(fallback, str):
        fallback = get_solver(fallback)
    try:
        _check_licence(get_solver(solver) if isinstance(solver, str) else solver)
    except SolverError:
        if fallback is None:
            raise
        _check_licence(fallback)


def _check_licence(solver: solvers.Solver) -> None:
    if hasattr(solver, "licence"):
        counts = np.arange(3)
        one = solvers.TaskOptions(counts, np.array([0.0, 1.0, 3.0]), maximum=2)
        solve(solver, solvers.AllocationProblem((one, one), 2), solvers.Limits(prune=False))


def queue_file(config: ReplayConfig) -> Path | None:
    """The scheduler's jobs, if the model of lifetimes reads them: those given, or what is beside the node log.

    Raises
    ------
    LifetimeError
        If there is no such model.
    SettingsError
        If the model needs them and there are none.
    UnusedOptionsError
        If they are given, and it does not read them.
    """
    model, given = config.foresight, config.queue
    if model == "none" or not reads_queue(model):
        if given is not None:
            raise UnusedOptionsError({"--queue": f"foresight {model} does not read it"})
        return None
    if given is not None:
        return given
    if isinstance(config.node_log, Path) and (beside := queue_path(config.node_log)).exists():
        return beside
    raise SettingsError(f"Missing --queue, the scheduler's jobs, which foresight {model} plans.")


def foreseen(config: ReplayConfig, log: NodeLog, queue: JobQueue | None) -> Foresight | None:
    """What the decisions of a replay of a log foresee, by a new model; None if that is nothing.

    Raises
    ------
    LifetimeError
        If there is no such model, or it cannot be made.
    SettingsError
        If a use is unknown, or a number out of range.
    """
    if config.foresight == "none":
        return None
    return _foresight(config, get_lifetimes(config.foresight, log.row_arrays()), log, queue)


def _foresight(config: ReplayConfig, model: LifetimeModel, log: NodeLog, queue: JobQueue | None) -> Foresight:
    return Foresight(
        model,
        config.foresight_use.split(","),
        horizon_s=config.foresight_horizon_s,
        least_survival=config.foresight_least,
        start_ns=log.start_ns,
        forward_time_s=config.forward_time_s,
        queue=queue,
    )


def refuse_unfit(config: ReplayConfig, log: NodeLog, tasks: Sequence[TaskSpec], learned: Collection[str]) -> None:
    """Refuse a use of foresight that cannot be, and what does not go with learning the curves of tasks.

    Raises
    ------
    SettingsError
        If a use is unknown, a number is out of range, a task that learns its curve is tuned, foresight would tell its
        curve, or noise is given and nothing learns.
    """
    if config.foresight != "none":
        _foresight(config, AgeLifetimes(), log, None)  # whatever the model, which is made when the replay begins
    tuned = next((task.name for task in tasks if task.name in learned and task.tuning is not None), None)
    if tuned is not None:
        why = "its batch size and power limit scale a curve that decisions know"
        raise SettingsError(f"Expected no tuned task among those whose curves are learned, got {tuned}: {why}.")
    if learned and config.foresight != "none" and {"order", "cohort"} & set(config.foresight_use.split(",")):
        why = "order, the default, and cohort go by curves, which are learned here"
        raise SettingsError(f"Expected --foresight-use value, forward or pool (add one): {why}.")
    if not learned and config.profile_noise != OPTIONS["profile_noise"].default:
        raise UnusedOptionsError({"--profile-noise": "no curve is learned"})
