"""The facade `run_replay`: wire allocator, loop and recorder, and return the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from bftrainer.errors import SettingsError
from bftrainer.files.cache import refuse_changed
from bftrainer.files.writing import versions
from bftrainer.model import NodeLog, TaskSpec
from bftrainer.model.records import Recording
from bftrainer.nodelogs.offers import idle_node_s
from bftrainer.replay import Allocator, Observer, PowerMeter, Recorder, replay
from bftrainer.replay.learned_curves import LearnedCurves
from bftrainer.replay.node_order import DepartureOrder
from bftrainer.runs.baseline import Efficiency, efficiency
from bftrainer.runs.bounds import WorkBounds, bounds
from bftrainer.runs.config import ReplayConfig
from bftrainer.runs.power import Metered, with_tuning
from bftrainer.runs.result import RunResult, Timings
from bftrainer.runs.resumable import DecisionJournal
from bftrainer.runs.run_inputs import Inputs, load_inputs

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """What a replay has recorded; power only if tasks are tuned or idle nodes draw power."""

    recording: Recording
    metered: Metered | None = None
    learned: dict[str, Any] = field(default_factory=dict)


def run_replay(
    node_log: NodeLog | Path | str | None = None,
    tasks: Sequence[TaskSpec] | Path | str | None = None,
    *,
    config: ReplayConfig | None = None,
    inputs: Inputs | None = None,
    observers: Sequence[Observer] = (),
    interrupted: Callable[[], bool] = lambda: False,
    command: str = "",
    journal: DecisionJournal | None = None,
    scratch: Path | None = None,
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
    journal : DecisionJournal, optional
        Decisions of an earlier start of the same run, which come first, and where further ones are kept.
    scratch : Path, optional
        Directory for the records of a long run, which do not stay in memory; the system's for temporary files by
        default. What is there has no name, and goes with the result.
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
    given = resolve_inputs(config, inputs, {"node_log": node_log, "tasks": tasks} | options)
    try:
        replayed, replay_s = _timed(lambda: replay_and_record(given, observers, interrupted, journal, scratch))
        others, baseline_s = _timed(lambda: compare_and_bound(given, replayed.recording, interrupted, journal))
    except Exception:  # a node log that was changed meanwhile explains any fault
        refuse_changed(given.log.node)
        raise
    refuse_changed(given.log.node)
    timings = Timings(given.load_s, replay_s, baseline_s, given.load_s + replay_s + baseline_s)
    return _result(given, command, replayed, *others, timings)


def _result(
    given: Inputs,
    command: str,
    replayed: Replayed,
    compared: Efficiency | None,
    bounded: WorkBounds | None,
    timings: Timings,
) -> RunResult:
    """Put a result together."""
    recording, config, log = replayed.recording, given.config, given.log
    is_partial = (config.baseline and compared is None) or (config.bounds and bounded is None)
    return RunResult(
        config=config,
        command=command,
        sources=given.sources,
        assumed_scaling=given.assumed_scaling,
        notes=given.notes,
        versions=versions(),
        nodes=log.nodes,
        log_notes=log.notes,
        log_zone=log.zone,
        start_ns=log.start_ns,
        recording=recording,
        efficiency=compared,
        timings=timings,
        bounds=bounded,
        is_partial=recording.reason == "interrupted" or is_partial,
        metered=replayed.metered,
        idle_node_s=None if given.idle_log is None else idle_node_s(given.idle_log, recording.end_s),
        learned=replayed.learned,
    )


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """Result of `work`, and the wall-clock seconds it took."""
    began = time.perf_counter()
    done = work()
    return done, time.perf_counter() - began


def resolve_inputs(config: ReplayConfig | None, inputs: Inputs | None, options: dict[str, Any]) -> Inputs:
    """Inputs of a run, loaded unless they were given."""
    options = {name: value for name, value in options.items() if value is not None or name not in ("node_log", "tasks")}
    if inputs is None:
        return load_inputs(ReplayConfig(**options) if config is None else replace(config, **options))
    if config not in (None, inputs.config) or options:
        raise SettingsError("Give either inputs or a configuration, not both.")
    return inputs


def replay_and_record(
    inputs: Inputs,
    observers: Sequence[Observer] = (),
    interrupted: Callable[[], bool] = lambda: False,
    journal: DecisionJournal | None = None,
    scratch: Path | None = None,
) -> Replayed:
    """Replay the inputs and record everything."""
    config, log = inputs.config, inputs.log
    tuner = inputs.tuning.tuner() if inputs.tuning else None
    learning = LearnedCurves(config.profile_noise, config.seed, inputs.learned) if inputs.learned else None
    horizon_s = inputs.departure_horizon_s
    departures = None if horizon_s is None else DepartureOrder(log.row_arrays(), horizon_s)
    allocator = Allocator(inputs.tasks, inputs.settings, log.nodes, log.start_ns, tuner, departures, learning)
    allocator.journal = journal
    recorder = Recorder(scratch)
    meter = PowerMeter(config.idle_power_w, scratch) if tuner is not None or config.idle_power_w > 0 else None
    replay(
        log.rows(),
        log.window_s,
        allocator,
        decide_on=config.decide_on,
        until_s=config.until_s(log.start_ns),
        max_events=config.max_events,
        power_caps_w=inputs.power.power_caps_w(log.window_s),
        observers=[recorder, *([] if meter is None else [meter]), *observers],
        interrupted=interrupted,
    )
    learned = {} if learning is None else learning.figures(inputs.tasks)
    if meter is None:
        return Replayed(recorder.recording, None, learned)
    record, recording, attempts = meter.record(), recorder.recording, tuple(tuner.attempts) if tuner else ()
    if tuner is not None:
        recording = with_tuning(recording, record, tuner)
    return Replayed(recording, Metered(record, inputs.power, attempts), learned)


def compare_and_bound(
    inputs: Inputs, recording: Recording, interrupted: Callable[[], bool], journal: DecisionJournal | None
) -> tuple[Efficiency | None, WorkBounds | None]:
    """Compute efficiency and bounds by further replays, as far as they are wanted."""
    compared = compute_efficiency(inputs, recording, interrupted, journal)
    return compared, compute_bounds(inputs, recording, interrupted)


def compute_efficiency(
    inputs: Inputs, recording: Recording, interrupted: Callable[[], bool], journal: DecisionJournal | None
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
        journal=journal,
    )


def compute_bounds(inputs: Inputs, recording: Recording, interrupted: Callable[[], bool]) -> WorkBounds | None:
    """Bound what the replay could do, if that is wanted and nothing was interrupted."""
    if not inputs.config.bounds or recording.reason == "interrupted":
        return None
    found = bounds(inputs, lambda given: replay_and_record(given, (), interrupted).recording, blind=recording)
    return None if interrupted() else found
