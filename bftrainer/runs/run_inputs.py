"""Inputs of a run: read and check all that a configuration names."""

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
from bftrainer.model import NodeLog, TaskSpec
from bftrainer.nodelogs.node_spans import nanoseconds
from bftrainer.nodelogs.offers import note_unknown_ages, offered_log, read_departures
from bftrainer.objectives import get_objective
from bftrainer.replay import Settings
from bftrainer.runs.baseline import work_adds_up
from bftrainer.runs.config import OPTIONS, ReplayConfig
from bftrainer.runs.power import PowerPlan, Tuning, power_plan, refuse_unused_power
from bftrainer.runs.readers import LEARNED, Readers
from bftrainer.tasksets import AssumedScaling
from bftrainer.zeus.policies.policy_registry import BATCH_SIZES, POWER_LIMITS
from solvers.isolation import isolated
from solvers.reference_solvers import EqualShare
from solvers.registry import declaration, get_solver, solve

SAMPLE_TASKS_USED = "no task set is given (-bdfn, --tasks): the 40 tasks of the embedded sample are used."

CODE: dict[str, Callable[[str], Any]] = {
    "objective": get_objective,
    **dict.fromkeys(("solver", "fallback"), declaration),
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
    departure_horizon_s : float or None
        Given only by `bounds`: decisions know when nodes leave, and leave free ones alone so long before; 0 for all on
        offer.
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
    departure_horizon_s: float | None = None


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
    _refuse_unfit(config, tasks, learned)
    load_s = time.perf_counter() - began
    said = tuple(map(legible, notes))
    of_tasks = tasks, said, sources, assumed_scaling, settings, power, tuning
    return Inputs(config, log, *of_tasks, load_s, idle_log, learned)


def _read_log(
    node_log: Path | NodeLog, config: ReplayConfig, readers: Readers, notes: list[str]
) -> tuple[NodeLog, NodeLog | None]:
    """The part of a log, in time and nodes, that is offered; and that which is idle, if it is more."""
    if isinstance(node_log, Path):
        kept = readers.node_log(node_log, config.skip_events, notes.append, cache=config.cache)
    else:
        kept = node_log.skipped(config.skip_events)
    whole, start_ns = kept, config.start_ns(kept)
    departures = None if config.planned_departures is None else read_departures(config.planned_departures)
    after_ns, lead_ns = (nanoseconds(min(each, _LONGEST_S)) for each in (config.offer_after_s, config.forward_time_s))
    if after_ns:  # rows before the window tell since when nodes are idle
        if not isinstance(node_log, Path):
            whole = node_log
        elif config.skip_events:
            whole = readers.node_log(node_log, 0, lambda _: None, cache=config.cache)
        notes += note_unknown_ages(whole.selected(config.first_node, config.node_count), start_ns, after_ns)
    log = offered_log(whole, after_ns, departures, lead_ns)
    chosen = [each.since(start_ns).selected(config.first_node, config.node_count) for each in (log, kept)]
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
        memory_bytes = int(allowed.solver_bytes * allowed.factor)
        solver = isolated(solver, config.isolate, memory_bytes)
        fallback = config.fallback and isolated(config.fallback, config.isolate, memory_bytes)
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


def _refuse_unfit(config: ReplayConfig, tasks: Sequence[TaskSpec], learned: Collection[str]) -> None:
    """Refuse tuned tasks whose curves are learned, and noise where none is."""
    tuned = next((task.name for task in tasks if task.name in learned and task.tuning is not None), None)
    if tuned is not None:
        why = "its batch size and power limit scale a curve that decisions know"
        raise SettingsError(f"Expected no tuned task among those whose curves are learned, got {tuned}: {why}.")
    if not learned and config.profile_noise != OPTIONS["profile_noise"].default:
        raise UnusedOptionsError({"--profile-noise": "no curve is learned"})
