"""The facade `run_replay`: wire allocator, loop and recorder, and return the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from bftrainer.errors import SettingsError
from bftrainer.files.cache import refuse_changed
from bftrainer.files.writing import versions
from bftrainer.model import NodeLog, TaskSpec
from bftrainer.model.records import Recording
from bftrainer.nodelogs.offers import idle_node_s
from bftrainer.replay import Allocator, Observer, PowerMeter
from bftrainer.replay.checkpoints import Checkpoints
from bftrainer.replay.compiled import Engine, recorded
from bftrainer.replay.learned_curves import LearnedCurves
from bftrainer.replay.moves import KnownDepartures
from bftrainer.runs.baseline import Efficiency, efficiency
from bftrainer.runs.bounds import WorkBounds, bounds
from bftrainer.runs.config import ReplayConfig
from bftrainer.runs.power import Metered, with_tuning
from bftrainer.runs.result import RunResult, Timings
from bftrainer.runs.run_inputs import Inputs, load_inputs

T = TypeVar("T")


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
        made, replay_s = _timed(lambda: _recorded(given, observers, interrupted, checkpoints))
        (compared, bounded), baseline_s = _timed(partial(_others, given, made[0], interrupted, checkpoints))
    except Exception:  # a node log that was changed meanwhile explains any fault
        refuse_changed(given.log.node)
        raise
    refuse_changed(given.log.node)
    timings = _timings(given.load_s, replay_s, baseline_s, {} if checkpoints is None else checkpoints.earlier_s)
    return _result(given, command, *made, compared, bounded, timings)


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
    learned: dict[str, Any],
    compared: Efficiency | None,
    bounded: WorkBounds | None,
    timings: Timings,
) -> RunResult:
    """Put a result together."""
    config = given.config
    is_partial = (config.baseline and compared is None) or (config.bounds and bounded is None)
    idle_s = None if given.idle_log is None else idle_node_s(given.idle_log, recording.end_s)
    return RunResult(
        config=config,
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
        bounds=bounded,
        is_partial=recording.reason == "interrupted" or is_partial,
        metered=metered,
        idle_node_s=idle_s,
        learned=learned,
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
) -> tuple[Recording, Engine, Metered | None, dict[str, Any]]:
    """Replay the inputs and record everything; power only if tasks are tuned or idle nodes draw power."""
    config, log = inputs.config, inputs.log
    tuner = inputs.tuning.tuner() if inputs.tuning else None
    meter = PowerMeter(config.idle_power_w)
    metering = tuner is not None or config.idle_power_w > 0
    learning = LearnedCurves(config.profile_noise, config.seed, inputs.learned) if inputs.learned else None
    rows, horizon_s = log.row_arrays(), inputs.departure_horizon_s
    departures = None if horizon_s is None else KnownDepartures(rows, horizon_s)
    allocator = Allocator(inputs.tasks, inputs.settings, log.nodes, log.start_ns, tuner, departures, learning)
    recording, engine = recorded(
        rows,
        log.window_s,
        allocator,
        decide_on=config.decide_on,
        until_s=config.until_s(log.start_ns),
        max_events=config.max_events,
        power_caps_w=inputs.power.power_caps_w(log.window_s),
        observers=[*([meter] if metering else []), *observers],
        interrupted=interrupted,
        checkpoints=checkpoints,
    )
    learned = {} if allocator.learning is None else allocator.learning.figures(inputs.tasks)
    if not metering:
        return recording, engine, None, learned
    record = meter.record()
    if tuner is not None:
        recording = with_tuning(recording, record, tuner)
    return recording, engine, Metered(record, inputs.power, tuple(tuner.attempts) if tuner else ()), learned


def _others(
    inputs: Inputs, recording: Recording, interrupted: Callable[[], bool], checkpoints: Checkpoints | None
) -> tuple[Efficiency | None, WorkBounds | None]:
    """What other replays tell about this one."""
    return _compared(inputs, recording, interrupted, checkpoints), _bounded(inputs, recording, interrupted)


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


def _bounded(inputs: Inputs, recording: Recording, interrupted: Callable[[], bool]) -> WorkBounds | None:
    """Bound what the replay could do, if that is wanted and nothing was interrupted."""
    if not inputs.config.bounds or recording.reason == "interrupted":
        return None
    found = bounds(inputs, lambda given: _recorded(given, (), interrupted, None)[0], blind=recording)
    return None if interrupted() else found
