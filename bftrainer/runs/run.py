"""The facade `run_replay`: load inputs, wire allocator, loop and recorder, and return the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import solvers
from bftrainer.errors import SettingsError, SolverError, UnusedOptionsError, legible
from bftrainer.files.budgets import budget
from bftrainer.files.cache import refuse_changed
from bftrainer.files.opening import SAMPLE_NODE_LOG, SAMPLE_TASKS, sample_path
from bftrainer.files.writing import versions
from bftrainer.model import NodeLog, TaskSpec
from bftrainer.model.records import Recording
from bftrainer.nodelogs.node_spans import nanoseconds
from bftrainer.nodelogs.offers import idle_node_s, offered_log, read_departures
from bftrainer.objectives import get_objective
from bftrainer.replay import Allocator, Observer, PowerMeter, Settings
from bftrainer.replay.checkpoints import Checkpoints
from bftrainer.replay.compiled import Engine, recorded
from bftrainer.runs.baseline import Efficiency, efficiency, work_adds_up
from bftrainer.runs.config import OPTIONS, ReplayConfig
from bftrainer.runs.kept import keep_problem
from bftrainer.runs.power import Metered, PowerPlan, Tuning, power_plan, with_tuning
from bftrainer.runs.readers import Readers
from bftrainer.runs.result import RunResult, Timings
from bftrainer.tasksets import AssumedScaling
from solvers.isolation import BOUNDS, isolated
from solvers.reference_solvers import EqualShare
from solvers.registry import get_solver, solve

T = TypeVar("T")

SAMPLE_TASKS_USED = "no task set is given (-bdfn, --tasks): the 40 tasks of the embedded sample are used."

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
        tasks = task_set.tasks
    else:
        given = {"--scalability": config.scalability, "--scaling": config.scaling}
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
    tuning = Tuning.of(tasks, config.seed, config.power_options)
    if tuning is None:
        _refuse_unused_power(config)
    else:
        notes += tuning.warnings
    power = power_plan(config, log, tasks)
    sources |= _further_sources(config, tuning, readers)
    settings = replace(settings, power_cap_w=power.first_power_cap_w())
    config.foresees(log)  # a model that cannot be made is refused now
    load_s = time.perf_counter() - began
    said = tuple(map(legible, notes))
    of_tasks = tasks, said, sources, assumed_scaling, settings, power, tuning
    return Inputs(config, log, *of_tasks, load_s, idle_log)


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


def _refuse_unused_power(config: ReplayConfig) -> None:
    """Refuse options that have no effect without tuned tasks."""
    vain = {
        OPTIONS[name].flag: why
        for name, why in config.without_effect(tuned=False).items()
        if OPTIONS[name].section == "power" and getattr(config, name) != OPTIONS[name].default
    }
    if vain:
        raise UnusedOptionsError(vain)


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
    if (queue := config.queue_file) is not None:
        found["queue"] = readers.source(queue)
    if tuning is not None:
        files = dict.fromkeys(file for pair in tuning.traces for file in pair)
        found["traces"] = [readers.source(Path(file)) for file in files]
    return found


def _warnings(config: ReplayConfig, log: NodeLog, tasks: Sequence[TaskSpec]) -> list[str]:
    """Warnings that a run, or part of its result, is pointless without being wrong; one line each."""
    warnings = []
    first_s = min((task.submitted_after_s(log.start_ns) for task in tasks), default=0.0)
    if first_s >= log.window_s:
        warnings.append("no task is submitted before the node log ends.")
    if config.baseline and not work_adds_up(tasks):
        warnings.append("no efficiency: tuned tasks count work in epochs over different datasets, which do not add up.")
    longest_s = config.forward_time_s
    if config.startup_cost == "full" and all(task.grow_cost_s >= longest_s for task in tasks):
        warnings.append(f"no start pays within the forward time of {longest_s:g} s: no task will ever run.")
    return warnings


def _settings(config: ReplayConfig) -> Settings:
    solver: str | solvers.Solver = config.solver
    if config.strict_published:
        solver = EqualShare(strict_published=True)
    else:
        allowed = budget()
        bounds = replace(BOUNDS, memory_bytes=int(allowed.solver_bytes * allowed.factor))
        solver = isolated(solver, config.isolate, keep_problem, bounds)
        fallback = config.fallback and isolated(config.fallback, config.isolate, keep_problem, bounds)
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


def run_replay(
    node_log: NodeLog | Path | str | None = None,
    tasks: Sequence[TaskSpec] | Path | str | None = None,
    *,
    config: ReplayConfig | None = None,
    inputs: Inputs | None = None,
    observers: Sequence[Observer] = (),
    interrupted: Callable[[], bool] = lambda: False,
    command: str = "",
    checkpoints: Checkpoints | None = None,
    **options: Any,
) -> RunResult:
    """Replay a node log with a task set.

    Parameters
    ----------
    node_log : NodeLog or path, optional
        The embedded one by default.
    tasks : sequence of TaskSpec or path, optional
    config : ReplayConfig, optional
        Base that the other arguments change.
    inputs : Inputs, optional
        Result of `load_inputs(config)`, if that was called before; its configuration is used then.
    observers : sequence of Observer
        Notified of every event and decision.
    interrupted : callable
        Called before each event; True ends the replay there, and the result is marked partial.
    command : str
        Kept in the summary.
    checkpoints : Checkpoints, optional
        Where to go on from, and to save what is done meanwhile; see `bftrainer.runs.resumable`.
    **options
        Fields of `ReplayConfig`; objective and solvers may be callables and objects of your own.

    Returns
    -------
    RunResult

    Raises
    ------
    InputError
        If another program changes the log's entry in the cache meanwhile.

    Examples
    --------
    >>> import bftrainer
    >>> result = bftrainer.run_replay(solver="dp", max_events=50, baseline=False)
    >>> result.summary()["events"]
    50
    """
    given = _loaded(config, inputs, {"node_log": node_log, "tasks": tasks} | options)
    try:
        (recording, engine, metered), replay_s = _timed(lambda: _recorded(given, observers, interrupted, checkpoints))
        compared, baseline_s = _timed(lambda: _compared(given, recording, interrupted, checkpoints))
    except Exception:
        refuse_changed(given.log.node)  # which explains any fault
        raise
    refuse_changed(given.log.node)
    timings = _timings(given.load_s, replay_s, baseline_s, {} if checkpoints is None else checkpoints.earlier_s)
    return _result(given, command, recording, engine, metered, compared, timings)


def _timings(load_s: float, replay_s: float, baseline_s: float, earlier_s: dict[int, float]) -> Timings:
    """Times of a run, those of its replays before it was resumed among them; the first one is its own."""
    replay_s += earlier_s.get(0, 0.0)
    baseline_s += sum(earlier_s.values()) - earlier_s.get(0, 0.0)
    return Timings(load_s, replay_s, baseline_s, load_s + replay_s + baseline_s)


def _result(
    given: Inputs,
    command: str,
    recording: Recording,
    engine: Engine,
    metered: Metered | None,
    compared: Efficiency | None,
    timings: Timings,
) -> RunResult:
    """Put a result together."""
    idle_s = None if given.idle_log is None else idle_node_s(given.idle_log, recording.end_s)
    return RunResult(
        config=given.config,
        command=command,
        sources=given.sources,
        assumed_scaling=given.assumed_scaling,
        notes=given.notes,
        versions=versions(),
        engine=engine,
        nodes=given.log.nodes,
        log_notes=given.log.notes,
        log_zone=given.log.zone,
        start_ns=given.log.start_ns,
        recording=recording,
        efficiency=compared,
        timings=timings,
        is_partial=recording.reason == "interrupted" or (given.config.baseline and compared is None),
        metered=metered,
        idle_node_s=idle_s,
    )


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """Result of `work`, and the wall-clock seconds it took."""
    began = time.perf_counter()
    done = work()
    return done, time.perf_counter() - began


def _loaded(config: ReplayConfig | None, inputs: Inputs | None, options: dict[str, Any]) -> Inputs:
    """Inputs of a run, loaded unless they were given."""
    options = {name: value for name, value in options.items() if value is not None or name not in ("node_log", "tasks")}
    if inputs is None:
        return load_inputs(ReplayConfig(**options) if config is None else replace(config, **options))
    if config not in (None, inputs.config) or options:
        raise SettingsError("Give either inputs or a configuration, not both.")
    return inputs


def _recorded(
    inputs: Inputs, observers: Sequence[Observer], interrupted: Callable[[], bool], checkpoints: Checkpoints | None
) -> tuple[Recording, Engine, Metered | None]:
    """Replay the inputs and record everything; power only if tasks are tuned or idle nodes draw power."""
    config, log = inputs.config, inputs.log
    tuner = inputs.tuning.tuner() if inputs.tuning else None
    meter = PowerMeter(config.idle_power_w)
    metering = tuner is not None or config.idle_power_w > 0
    recording, engine = recorded(
        log.row_arrays(),
        log.window_s,
        Allocator(inputs.tasks, inputs.settings, log.nodes, log.start_ns, tuner, config.foresees(log)),
        decide_on=config.decide_on,
        until_s=config.until_s(log.start_ns),
        max_events=config.max_events,
        power_caps_w=inputs.power.power_caps_w(log.window_s),
        observers=[*([meter] if metering else []), *observers],
        interrupted=interrupted,
        checkpoints=checkpoints,
    )
    if not metering:
        return recording, engine, None
    record = meter.record()
    if tuner is not None:
        recording = with_tuning(recording, record, tuner)
    return recording, engine, Metered(record, inputs.power, tuple(tuner.attempts) if tuner else ())


def _compared(
    inputs: Inputs, recording: Recording, interrupted: Callable[[], bool], checkpoints: Checkpoints | None
) -> Efficiency | None:
    """Compute the efficiency, if it is wanted and the run was not interrupted."""
    if not inputs.config.baseline or recording.reason == "interrupted":
        return None
    tuning, log = inputs.tuning, inputs.log
    return efficiency(
        recording,
        inputs.tasks,
        inputs.settings,
        log.start_ns,
        interrupted,
        tuner=tuning.tuner if tuning else lambda: None,
        power_caps_w=inputs.power.power_caps_w(log.window_s),
        checkpoints=checkpoints,
    )
