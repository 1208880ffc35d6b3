"""Inputs of a run: read and check all that a configuration names."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from bftrainer.errors import InvalidTaskError, SettingsError, SolverError, add_place, ineffective_options, make_legible
from bftrainer.files.opening import SAMPLE_NODE_LOG, SAMPLE_TASKS, file_stamp, sample_path
from bftrainer.files.text_files import number_cell, table_rows
from bftrainer.files.writing import file_source
from bftrainer.model import NS_PER_S, NodeLog, TaskSpec
from bftrainer.nodelogs import read_node_log
from bftrainer.nodelogs.edit import filter_log, note_unknown_ages, partitions_of, read_departures
from bftrainer.nodelogs.node_log_files import instant_cell, metadata_path
from bftrainer.nodelogs.node_spans import nanoseconds
from bftrainer.objectives import get_objective
from bftrainer.replay import Settings
from bftrainer.replay.power_draw import Steps, steps_between, value_at
from bftrainer.runs.config import OPTIONS, ReplayConfig
from bftrainer.tasksets import AssumedScaling, TaskSet, read_task_set
from bftrainer.tasksets.task_files import doubts_of_scaling
from solvers.reference_solvers import EqualShare
from solvers.registry import check_licence, get_solver, isolate_solver

if TYPE_CHECKING:
    from bftrainer.zeus.tuned_task import GroupTuner

T = TypeVar("T")
LEARNED = "learned"
"""The scaling under which decisions know no curve."""
SAMPLE_TASKS_USED = "no task set is given (-bdfn, --tasks): the 40 tasks of the embedded sample are used."

CAP_COLUMN, CARBON_COLUMN = "power_w", "gco2_per_kwh"
NO_CAP: Steps = ((-math.inf, math.inf),)
_LONGEST_S = 1e9  # longer than any log
_read: dict[tuple[Any, ...], tuple[Any, dict[Path, tuple[int, ...] | None]]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """Inputs of a run, read and validated.

    Parameters
    ----------
    log : NodeLog
        What is offered of the node log: nodes selected, rows skipped.
    notes : tuple of str
        Notes to the user about how they were read.
    sources : dict
        Per input its path as given and its SHA-256; None for objects.
    learned : tuple of str
        Names of the tasks whose curves decisions do not know.
    power_cap_w, carbon : Steps
        Cap on the draw of harvested nodes at the site's meter; carbon intensity in gCO2/kWh.
    make_tuner : callable, optional
        Makes a new tuner; None if no task is tuned.
    idle_log : NodeLog, optional
        The log before some of its idle time was withheld; None if all of it is offered.
    planned : tuple of (float, int)
        Departures that are known in advance: seconds after the log's start, and the node's number.
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
    planned: tuple[tuple[float, int], ...] = ()

    @property
    def power_caps_w(self) -> Steps:
        """Times at which the cap changes within the window, and the new caps."""
        return steps_between(self.power_cap_w, 0.0, self.log.window_s)[1:]


def load_inputs(config: ReplayConfig) -> Inputs:
    """Read and validate all inputs that `config` names; files that do not change are read once in a process.

    Raises
    ------
    InputError
        If a file, a setting or an objective cannot be used; nothing is written then.
    SolverError
        If the solver is not installed or has no licence.
    """
    began = time.perf_counter()
    settings, task_set = _settings(config), load_tasks(config)
    tasks, notes = task_set.tasks, list(task_set.warnings)
    if config.tasks is None and config.node_log is not None:
        notes.insert(0, SAMPLE_TASKS_USED)
    node_log = sample_path(SAMPLE_NODE_LOG) if config.node_log is None else config.node_log
    log, idle_log = _offer_log(node_log, config, notes)
    config.until_s(log.start_ns)  # which refuses what is not within the log
    check = getattr(settings.objective, "check", None)
    if check is not None:
        check(tasks)
    notes += _warnings(config, log, tasks)
    notes += doubts_of_scaling(task_set, log.window_s)
    make_tuner = None
    if any(task.tuning is not None for task in tasks):
        from bftrainer.zeus.tuned_task import read_tuner  # takes as long to import as numpy

        make_tuner = read_tuner(tasks, config.seed, config.power_options, (config.policy, config.power_policy))
        make_tuner()  # so that sections that do not fit their traces are found now
    _refuse_unfit(config, tasks, task_set.learned)
    power_cap_w = read_cap(config, log, tasks)
    carbon = read_steps(config.carbon, CARBON_COLUMN, log)  # refused before all of a file that has no end is summed up
    planned, number = list[tuple[float, int]](), {name: place for place, name in enumerate(log.nodes)}
    if config.planned_departures is not None:  # those of nodes of the log that are not replayed do not count
        nodes = (read_log(node_log)[0] if isinstance(node_log, Path) else node_log).nodes
        departures = read_departures(config.planned_departures, nodes)
        planned += [((at_ns - log.start_ns) / NS_PER_S, number[name]) for at_ns, name in departures if name in number]
    return Inputs(
        config=config,
        log=log,
        tasks=tasks,
        settings=replace(settings, power_cap_w=value_at(power_cap_w, 0.0)),
        notes=tuple(map(make_legible, notes)),
        sources=_sources(config, node_log, task_set),
        assumed_scaling=task_set.assumed_scaling,
        learned=task_set.learned,
        power_cap_w=power_cap_w,
        carbon=carbon,
        make_tuner=make_tuner,
        load_s=time.perf_counter() - began,
        idle_log=idle_log,
        planned=tuple(planned),
    )


def read_log(path: Path) -> tuple[NodeLog, list[str]]:
    """Read a node log, and notes about it; see `read_node_log`."""
    notes: list[str] = []
    files = [path, metadata_path(path)]
    return _read_once(("node log", path), lambda: (read_node_log(path, warn=notes.append), notes), lambda _: files)


def read_tasks(path: Path, scalability: Path | None, scaling: str | None) -> TaskSet:
    """Read a task set, see `read_task_set`; under the scaling `learned`, decisions are to learn the curves of all."""

    def read() -> TaskSet:
        tasks = read_task_set(path, scalability, None if scaling == LEARNED else scaling)
        if scaling == LEARNED:
            if tasks.assumed_scaling is not None:
                raise InvalidTaskError(f"{path}: Expected curves for --scaling learned to hide; -scfn names them.")
            tasks = replace(tasks, learned=tuple(task.name for task in tasks.tasks))
        return tasks

    return _read_once(("tasks", path, scalability, scaling), read, lambda tasks: tasks.sources)


def checksum(path: Path) -> dict[str, str]:
    """Path and SHA-256 of a file."""
    return _read_once(("checksum", path), lambda: file_source(path), lambda _: [path])


def _read_once(key: tuple[Any, ...], read: Callable[[], T], files: Callable[[T], Iterable[Path]]) -> T:
    """Result of `read`, or of an earlier call in this process if its files have not changed."""
    value, stamps = _read.get(key, (None, None))
    if stamps is None or stamps != {path: file_stamp(path) for path in stamps}:
        value = read()
        _read[key] = value, {path: file_stamp(path) for path in files(value)}
    return cast(T, value)


def load_tasks(config: ReplayConfig) -> TaskSet:
    """Load the tasks of the file that is named, or those that were handed over."""
    tasks = sample_path(SAMPLE_TASKS) if config.tasks is None else config.tasks
    if isinstance(tasks, Path):
        return read_tasks(tasks, config.scalability, config.scaling)
    learned = tuple(task.name for task in tasks) if config.scaling == LEARNED else ()
    options = {"--scalability": config.scalability, "--scaling": None if learned else config.scaling}
    unused = {name: "tasks that are no file have a scaling" for name, value in options.items() if value is not None}
    if unused:
        raise ineffective_options(unused)
    return TaskSet(tuple(tasks), learned=learned)


def _offer_log(node_log: Path | NodeLog, config: ReplayConfig, notes: list[str]) -> tuple[NodeLog, NodeLog | None]:
    """Select what is offered of a log, in time and nodes; and what is idle, if it is more."""
    log, log_notes = read_log(node_log) if isinstance(node_log, Path) else (node_log, [])
    notes += log_notes
    with add_place(node_log if isinstance(node_log, Path) else None, SettingsError):
        idle = log.skip_rows(config.skip_events)
    start_ns = config.start_ns(idle)
    after_ns = nanoseconds(min(config.offer_after_s, _LONGEST_S))
    offered = idle
    if after_ns:  # rows before the window tell since when nodes are idle
        notes += note_unknown_ages(log.select_nodes(config.first_node, config.node_count), start_ns, after_ns)
        offered = filter_log(log, offer_after_ns=after_ns)
    windows = [each.since(start_ns).select_nodes(config.first_node, config.node_count) for each in (offered, idle)]
    return windows[0], windows[1] if after_ns else None


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
    sources: dict[str, Any] = {name: None if path is None else checksum(path) for name, path in files.items()}
    sections = [task.tuning for task in task_set.tasks if task.tuning is not None]
    traces = dict.fromkeys(file for section in sections for file in (section.train_trace, section.power_trace))
    return sources | ({"traces": [checksum(Path(file)) for file in traces]} if traces else {})


def work_adds_up(tasks: Iterable[TaskSpec]) -> bool:
    """Whether tasks count work in one unit; epochs of tuned tasks over different datasets are different units."""
    return len({None if task.tuning is None else task.tuning.dataset for task in tasks}) <= 1


def _warnings(config: ReplayConfig, log: NodeLog, tasks: Sequence[TaskSpec]) -> list[str]:
    """Warnings that a run, or part of its result, is pointless without being wrong; one line each."""
    warnings = []
    submitted_s = [task.submission_s(log.start_ns) for task in tasks]
    if min(submitted_s, default=0.0) >= min(log.window_s, config.until_s(log.start_ns)):
        warnings.append("no task is submitted before the window ends.")
    early = [time_s for time_s in submitted_s if time_s < 0.0]
    if early:
        warnings.append(
            f"{len(early):,} tasks were submitted before the window, up to {-min(early) / 3600:.1f} h: makespan, "
            "turnaround and waiting count that time too."
        )
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
    solver = isolate_solver(config.solver, config.isolate)
    fallback = config.fallback and isolate_solver(config.fallback, config.isolate)
    other = get_solver(fallback) if isinstance(fallback, str) else fallback
    try:
        check_licence(get_solver(solver) if isinstance(solver, str) else solver)
    except SolverError:
        if other is None:
            raise
        check_licence(other)
    return replace(config, solver=solver, fallback=fallback).settings(objective, solver)


def _refuse_unfit(config: ReplayConfig, tasks: Sequence[TaskSpec], learned: Collection[str]) -> None:
    """Refuse tuned tasks whose curves are learned; noise where none is, and options of power where nothing is tuned."""
    tuned = [task.name for task in tasks if task.tuning is not None]
    both = next((name for name in tuned if name in learned), None)
    if both is not None:
        why = "its batch size and power limit scale a curve that decisions know"
        raise SettingsError(f"Expected no tuned task among those whose curves are learned, got {both}: {why}.")
    reasons = config.list_ineffective(tuned=bool(tuned), learned=bool(learned))
    reasons.pop("seed", None)  # of which several may be compared, whether or not something is drawn
    changed = [name for name in reasons if getattr(config, name) != OPTIONS[name].default]
    if changed:
        raise ineffective_options({OPTIONS[name].flag: reasons[name] for name in changed})


def read_series(path: Path, column: str, start_ns: int, window_s: float) -> Steps:
    """Read a step function that covers the window from CSV: columns time (ISO 8601, or seconds since it) and `column`.

    Each value holds until the next row's time; the last one as long as the one before it; a single one forever.
    """
    steps = list[tuple[float, float]]()
    for where, cells in table_rows(path, ("time", column), SettingsError):
        time_s = _time(where, cells["time"], start_ns)
        value = number_cell(where, column, cells[column], SettingsError)
        if value < 0:
            raise SettingsError(f"{where}: Expected {column} of 0 or more, got {value:g}.")
        if steps and not time_s > steps[-1][0]:
            raise SettingsError(f"{where}: Expected times that increase, got {time_s:g} s after {steps[-1][0]:g} s.")
        steps.append((time_s, value))
    if not steps:
        raise SettingsError(f"{path}: Expected rows, found none.")
    end_s = math.inf if len(steps) == 1 else steps[-1][0] + (steps[-1][0] - steps[-2][0])
    if steps[0][0] > 0 or end_s < window_s:
        what = f"Expected values from the window's start to its end at {window_s:g} s"
        until = "" if end_s == math.inf else f" to {end_s:g} s"
        raise SettingsError(f"{path}: {what}, got them from {steps[0][0]:g} s{until}.")
    return tuple(steps)


def _time(where: str, cell: str, start_ns: int) -> float:
    """Seconds since the window's start of such a number, or of a time."""
    with suppress(ValueError):  # not a number, perhaps a date
        if math.isfinite(seconds := float(cell)):
            return seconds
    return (instant_cell(where, "time", cell.strip(), SettingsError) - start_ns) / NS_PER_S


def read_steps(value: float | Path | None, column: str, log: NodeLog) -> Steps | None:
    """Step function of an option that is a number or a file with such a column."""
    if isinstance(value, Path):
        return read_series(value, column, log.start_ns, log.window_s)
    return None if value is None else ((-math.inf, value),)


def read_cap(config: ReplayConfig, log: NodeLog, tasks: Sequence[TaskSpec]) -> Steps:
    """Read the cap on what harvested nodes draw at the meter; refuse one below what idle nodes draw, or plain tasks."""
    cap_w = read_steps(config.power_cap, CAP_COLUMN, log)
    if cap_w is None:
        return NO_CAP
    pool, rows = 0, list(log.rows()) if config.idle_power_w else []
    for (time_s, joined, leaving), end_s in zip(rows, [*(row[0] for row in rows[1:]), log.window_s], strict=False):
        pool += len(joined) - len(leaving)
        idle_w = pool * config.idle_power_w * config.pue
        least = min((watts for _, watts in steps_between(cap_w, time_s, end_s)), default=math.inf)
        if least < idle_w:
            raise SettingsError(
                f"Expected a power cap that covers the idle draw, got {least:g} W for {pool} idle nodes that draw "
                f"{idle_w:g} W, {time_s:g} s after the window's start."
            )
    unknown = next((task.name for task in tasks if task.tuning is None), None)
    if unknown is not None:
        raise InvalidTaskError(f"No zeus section, which a power cap requires (task {unknown}).")
    return cap_w


def list_kinds(log: NodeLog) -> dict[int, frozenset[str]]:
    """The partitions of each node that is in any, by its number: `LogError` if they are malformed."""
    groups = {partition: set(nodes) for partition, nodes in partitions_of(log).items()}
    kinds = (frozenset(some for some, nodes in groups.items() if name in nodes) for name in log.nodes)
    return {number: some for number, some in enumerate(kinds) if some}
