"""Inputs of a run: read and check all that a configuration names."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import solvers
from bftrainer.errors import InvalidTaskError, SettingsError, SolverError, UnusedOptionsError, legible
from bftrainer.files.budgets import budget
from bftrainer.files.opening import SAMPLE_NODE_LOG, SAMPLE_TASKS, file_stamp, sample_path
from bftrainer.files.writing import file_source
from bftrainer.model import NodeLog, TaskSpec
from bftrainer.nodelogs import read_node_log
from bftrainer.nodelogs.native_logs import metadata_path
from bftrainer.nodelogs.node_spans import nanoseconds
from bftrainer.nodelogs.offers import note_unknown_ages, offered_log, read_departures
from bftrainer.objectives import get_objective
from bftrainer.replay import Settings
from bftrainer.runs.config import OPTIONS, ReplayConfig
from bftrainer.runs.power import (
    CARBON_COLUMN,
    NO_CAP,
    Steps,
    read_cap,
    read_steps,
    read_tuning,
    steps_between,
    value_at,
)
from bftrainer.tasksets import AssumedScaling, TaskSet, read_task_set
from bftrainer.zeus.policies.policy_registry import BATCH_SIZES, POWER_LIMITS
from bftrainer.zeus.tuned_task import GroupTuner
from solvers.reference_solvers import EqualShare
from solvers.registry import declaration, get_solver, isolate_solver, solve

T = TypeVar("T")
LEARNED = "learned"
"""The scaling under which decisions know no curve."""
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
_shared: dict[tuple[Any, ...], tuple[Any, dict[Path, tuple[int, int, int] | None]]] = {}


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
    settings : Settings
    notes : tuple of str
        Notes to the user about how they were read.
    sources : dict
        Per input its path as given and its SHA-256; None for objects.
    assumed_scaling : AssumedScaling, optional
        What tasks were given that came without a curve.
    learned : tuple of str
        Names of the tasks whose curves decisions do not know.
    power_cap_w : Steps
        Cap on the draw of harvested nodes at the site's meter.
    carbon : Steps, optional
        Carbon intensity in gCO2/kWh.
    make_tuner : callable, optional
        Makes a new tuner; None if no task is tuned.
    load_s : float
        Wall-clock seconds that loading took.
    idle_log : NodeLog, optional
        The log before some of its idle time was withheld; None if all of it is offered.
    departure_horizon_s : float, optional
        Given only by `bounds`: decisions know when nodes leave, and leave free ones alone so long before; 0 for all on
        offer.
    """

    config: ReplayConfig
    log: NodeLog
    tasks: tuple[TaskSpec, ...]
    settings: Settings
    notes: tuple[str, ...] = ()
    sources: dict[str, Any] = field(default_factory=dict)
    assumed_scaling: AssumedScaling | None = None
    learned: tuple[str, ...] = ()
    power_cap_w: Steps = NO_CAP
    carbon: Steps | None = None
    make_tuner: Callable[[], GroupTuner] | None = None
    load_s: float = 0.0
    idle_log: NodeLog | None = None
    departure_horizon_s: float | None = None

    @property
    def power_caps_w(self) -> Steps:
        """Times at which the cap changes within the window, and the new caps."""
        return steps_between(self.power_cap_w, 0.0, self.log.window_s)[1:]


def load_inputs(config: ReplayConfig, *, share: bool = False) -> Inputs:
    """Read and validate all inputs that `config` names.

    Parameters
    ----------
    config : ReplayConfig
    share : bool
        Whether many replays of this process read the same files: each is read once, until it changes.

    Raises
    ------
    InputError
        If a file, a setting or an objective cannot be used; nothing is written then.
    SolverError
        If the solver is not installed or has no licence.
    """
    began = time.perf_counter()
    settings, task_set = _settings(config), _read_tasks(config, share)
    tasks, notes = task_set.tasks, list(task_set.warnings)
    if config.tasks is None and config.node_log is not None:
        notes.insert(0, SAMPLE_TASKS_USED)
    node_log = sample_path(SAMPLE_NODE_LOG) if config.node_log is None else config.node_log
    log, idle_log = _read_log(node_log, config, share, notes)
    config.until_s(log.start_ns)  # which refuses what is not within the log
    check = getattr(settings.objective, "check", None)
    if check is not None:
        check(tasks)
    notes += _warnings(config, log, tasks)
    make_tuner = read_tuning(tasks, config)
    if make_tuner is not None:
        notes += make_tuner().warnings()  # made here, so that sections that do not fit their traces are found now
    _refuse_unfit(config, tasks, task_set.learned)
    power_cap_w = read_cap(config, log, tasks)
    return Inputs(
        config=config,
        log=log,
        tasks=tasks,
        settings=replace(settings, power_cap_w=value_at(power_cap_w, 0.0)),
        notes=tuple(map(legible, notes)),
        sources=_sources(config, node_log, task_set),
        assumed_scaling=task_set.assumed_scaling,
        learned=task_set.learned,
        power_cap_w=power_cap_w,
        carbon=read_steps(config.carbon, CARBON_COLUMN, log),
        make_tuner=make_tuner,
        load_s=time.perf_counter() - began,
        idle_log=idle_log,
    )


def read_log(path: Path, skip_events: int, warn: Callable[[str], None], *, cache: bool, share: bool) -> NodeLog:
    """See `read_node_log`; with `cache` it is kept for other processes, too, and `share` is that of `load_inputs`."""

    def read() -> tuple[tuple[NodeLog, list[str]], Iterable[Path]]:
        """Log and warnings."""
        notes: list[str] = []
        digest = (lambda: checksum(path)["sha256"]) if cache else None
        return (read_node_log(path, skip_events, notes.append, digest), notes), [path, metadata_path(path)]

    log, notes = _once(("node log", path, skip_events, cache), read, share)
    for note in notes:
        warn(note)
    return log


def read_tasks(path: Path, scalability: Path | None, scaling: str | None, *, share: bool = False) -> TaskSet:
    """See `read_task_set`; under the scaling `learned`, decisions are to learn the curves of all.

    Raises
    ------
    InvalidTaskError
        If there is nothing to learn, as a task has no curve.
    """

    def read() -> tuple[TaskSet, Iterable[Path]]:
        """Tasks, which may come from further files than the named one."""
        tasks = read_task_set(path, scalability, None if scaling == LEARNED else scaling)
        if scaling == LEARNED:
            if tasks.assumed_scaling is not None:
                raise InvalidTaskError(f"{path}: Expected curves for --scaling learned to hide; -scfn names them.")
            tasks = replace(tasks, learned=tuple(task.name for task in tasks.tasks))
        return tasks, tasks.sources

    return _once(("tasks", path, scalability, scaling), read, share)


def checksum(path: Path) -> dict[str, str]:
    """See `file_source`; computed once."""
    return _once(("checksum", path), lambda: (file_source(path), [path]), share=True)


def _once(key: tuple[Any, ...], read: Callable[[], tuple[T, Iterable[Path]]], share: bool) -> T:
    """Result of `read`, or of an earlier call of this process that shares it, if its files have not changed."""
    if key in _shared:
        value: T
        value, stamps = _shared[key]
        if stamps == {path: file_stamp(path) for path in stamps}:
            return value
    value, files = read()
    if share:
        _shared[key] = value, {path: file_stamp(path) for path in files}
    return value


def _read_tasks(config: ReplayConfig, share: bool) -> TaskSet:
    """Tasks of the file that is named, or those that were handed over."""
    tasks = sample_path(SAMPLE_TASKS) if config.tasks is None else config.tasks
    if isinstance(tasks, Path):
        return read_tasks(tasks, config.scalability, config.scaling, share=share)
    learned = tuple(task.name for task in tasks) if config.scaling == LEARNED else ()
    given = {"--scalability": config.scalability, "--scaling": None if learned else config.scaling}
    vain = {option: "tasks that are no file have a scaling" for option, value in given.items() if value is not None}
    if vain:
        raise UnusedOptionsError(vain)
    return TaskSet(tuple(tasks), learned=learned)


def _read_log(
    node_log: Path | NodeLog, config: ReplayConfig, share: bool, notes: list[str]
) -> tuple[NodeLog, NodeLog | None]:
    """The part of a log, in time and nodes, that is offered; and that which is idle, if it is more."""
    if isinstance(node_log, Path):
        kept = read_log(node_log, config.skip_events, notes.append, cache=config.cache, share=share)
    else:
        kept = node_log.skipped(config.skip_events)
    whole, start_ns = kept, config.start_ns(kept)
    departures = None if config.planned_departures is None else read_departures(config.planned_departures)
    after_ns, lead_ns = (nanoseconds(min(each, _LONGEST_S)) for each in (config.offer_after_s, config.forward_time_s))
    if after_ns:  # rows before the window tell since when nodes are idle
        if not isinstance(node_log, Path):
            whole = node_log
        elif config.skip_events:
            whole = read_log(node_log, 0, lambda _: None, cache=config.cache, share=share)
        notes += note_unknown_ages(whole.selected(config.first_node, config.node_count), start_ns, after_ns)
    log = offered_log(whole, after_ns, departures, lead_ns)
    chosen = [each.since(start_ns).selected(config.first_node, config.node_count) for each in (log, kept)]
    return chosen[0], None if log is whole else chosen[1]


def log_start_ns(config: ReplayConfig) -> int:
    """Start of the log of a configuration, whatever part of it is replayed; nanoseconds since the Unix epoch."""
    return load_inputs(replace(config, since=None, until=None, baseline=False), share=True).log.start_ns


def _sources(
    config: ReplayConfig, node_log: Path | NodeLog, task_set: TaskSet
) -> dict[str, dict[str, str] | list[dict[str, str]] | None]:
    """Paths and checksums of all files that were read; None for objects."""
    files: dict[str, Path | None] = {"node_log": node_log if isinstance(node_log, Path) else None}
    files |= dict(zip_longest(("tasks", "scalability"), task_set.sources[:2]))
    for name, option in OPTIONS.items():
        if option.units or name == "planned_departures":
            value = getattr(config, name)
            files |= {name: value} if isinstance(value, Path) else {}
    found: dict[str, Any] = {name: None if path is None else checksum(path) for name, path in files.items()}
    sections = [task.tuning for task in task_set.tasks if task.tuning is not None]
    traces = dict.fromkeys(file for section in sections for file in (section.train_trace, section.power_trace))
    return found | ({"traces": [checksum(Path(file)) for file in traces]} if traces else {})


def work_adds_up(tasks: Iterable[TaskSpec]) -> bool:
    """Whether tasks count work in one unit; epochs of tuned tasks over different datasets are different units."""
    return len({None if task.tuning is None else task.tuning.dataset for task in tasks}) <= 1


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
    """Settings of the allocator, with an objective and solvers that can be used."""
    objective = get_objective(config.objective) if isinstance(config.objective, str) else config.objective
    if config.strict_published or (config.compat == "published" and config.solver == "equal-share"):
        return config.settings(objective, EqualShare(strict_published=True))
    allowed = budget()
    memory_bytes = int(allowed.solver_bytes * allowed.factor)
    solver = isolate_solver(config.solver, config.isolate, memory_bytes)
    fallback = config.fallback and isolate_solver(config.fallback, config.isolate, memory_bytes)
    other = get_solver(fallback) if isinstance(fallback, str) else fallback
    try:
        _check_solver(get_solver(solver) if isinstance(solver, str) else solver)
    except SolverError:
        if other is None:
            raise
        _check_solver(other)
    return replace(config, solver=solver, fallback=fallback).settings(objective, solver)


def _check_solver(solver: solvers.Solver) -> None:
    """Have a solver with a licence solve something, instead of failing at the first decision."""
    if hasattr(solver, "licence"):
        counts = np.arange(3)
        one = solvers.TaskOptions(counts, np.array([0.0, 1.0, 3.0]), maximum=2)
        solve(solver, solvers.AllocationProblem((one, one), 2), solvers.Limits(prune=False))


def _refuse_unfit(config: ReplayConfig, tasks: Sequence[TaskSpec], learned: Collection[str]) -> None:
    """Refuse tuned tasks whose curves are learned; noise where none is, and options of power where nothing is tuned."""
    tuned = [task.name for task in tasks if task.tuning is not None]
    both = next((name for name in tuned if name in learned), None)
    if both is not None:
        why = "its batch size and power limit scale a curve that decisions know"
        raise SettingsError(f"Expected no tuned task among those whose curves are learned, got {both}: {why}.")
    reasons = {} if tuned else config.without_effect(tuned=False)
    vain = {name: why for name, why in reasons.items() if OPTIONS[name].section == "power"}
    vain |= {} if learned else {"profile_noise": "no curve is learned"}
    given = {OPTIONS[name].flag: why for name, why in vain.items() if getattr(config, name) != OPTIONS[name].default}
    if given:
        raise UnusedOptionsError(given)
