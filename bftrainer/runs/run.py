"""The facade `run_replay`: wire allocator, loop and recorder, and return the result."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from bftrainer.errors import ObjectiveError, RunFailedError, SettingsError
from bftrainer.files.cache import refuse_changed
from bftrainer.model import NodeLog, TaskSpec
from bftrainer.model.records import Recording
from bftrainer.plugins import answering
from bftrainer.replay import Allocator, Observer, PowerMeter, Recorder, replay
from bftrainer.replay.learned_curves import LearnedCurves
from bftrainer.replay.node_order import DepartureOrder
from bftrainer.runs.baseline import efficiency
from bftrainer.runs.bounds import bounds
from bftrainer.runs.config import ReplayConfig
from bftrainer.runs.power import Metered, with_tuning
from bftrainer.runs.result import RunResult, Timings
from bftrainer.runs.resumable import DecisionJournal
from bftrainer.runs.run_inputs import Inputs, load_inputs

_YOUNG_OBJECTS = 10_000
"""New objects in between two collections of garbage during a replay."""


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
    node_log, tasks : NodeLog or path, and sequence of TaskSpec or path, optional
        The embedded ones by default.
    config : ReplayConfig, optional
        Base that the other arguments change.
    inputs : Inputs, optional
        Result of `load_inputs(config)`; its configuration is used then.
    observers : sequence of Observer
        Notified of every event and decision.
    interrupted : callable
        Called before each event; True ends the replay there, and the result is marked partial.
    command : str
        Kept in the summary.
    journal : DecisionJournal, optional
        Decisions of an earlier start of the same run, which come first, and where further ones are kept.
    scratch : Path, optional
        Directory for the records of a long run, which are too many for memory; the system's temporary one by default.
    **options
        Fields of `ReplayConfig`; objective and solvers may be callables and objects of your own.

    Raises
    ------
    InputError
        If another program changes the log's entry in the cache meanwhile.
    RunFailedError
        If the objective or an observer fails; its `result` is what was done until then.

    Examples
    --------
    >>> import bftrainer
    >>> result = bftrainer.run_replay(solver="dp", max_events=50, baseline=False)
    >>> result.summary()["events"]
    50
    """
    options |= {name: each for name, each in (("node_log", node_log), ("tasks", tasks)) if each is not None}
    if inputs is None:
        inputs = load_inputs(ReplayConfig(**options) if config is None else replace(config, **options))
    elif config not in (None, inputs.config) or options:
        raise SettingsError("Give either inputs or a configuration, not both.")
    try:
        return _run(inputs, command, list(map(_named_observer, observers)), interrupted, journal, scratch)
    finally:  # a node log that was changed meanwhile explains any fault
        refuse_changed(inputs.log.node)


def _named_observer(observer: Observer) -> Observer:
    """An observer of the caller's, named by the error that ends the run if it fails."""
    named = answering(f"observer {type(observer).__name__}", RunFailedError)
    methods = {name: named(getattr(observer, name)) for name in ("on_event", "on_decision", "on_end")}
    return cast(Observer, SimpleNamespace(**methods))


def _run(
    inputs: Inputs,
    command: str,
    observers: Sequence[Observer],
    interrupted: Callable[[], bool],
    journal: DecisionJournal | None,
    scratch: Path | None,
) -> RunResult:
    """Replay, compare and bound; a failure after the first decisions leaves the result partial."""
    began_s, config = time.perf_counter(), inputs.config
    result = replay_and_record(inputs, command, observers, interrupted, journal, scratch)
    recording, failure, compared, bounded = result.recording, result.failure, None, None

    def replay_bound(changed: Inputs) -> Recording:
        """The recording of a replay that bounds this one."""
        other = replay_and_record(changed, interrupted=interrupted, journal=journal)
        if other.failure is not None:
            raise other.failure
        return other.recording

    if failure is None and recording.reason != "interrupted":
        try:
            compared = efficiency(inputs, recording, interrupted, journal) if config.baseline else None
            bounded = bounds(inputs, replay_bound, blind=recording) if config.bounds else None
            bounded = None if interrupted() else bounded
        except (ObjectiveError, RunFailedError) as error:
            failure = error
    is_whole = recording.reason not in ("interrupted", "failed")
    is_whole &= (compared is not None or not config.baseline) and (bounded is not None or not config.bounds)
    total_s = time.perf_counter() - began_s
    timings = replace(result.timings, baseline_s=total_s - result.timings.replay_s, wall_s=inputs.load_s + total_s)
    result = replace(
        result, efficiency=compared, bounds=bounded, failure=failure, is_partial=not is_whole, timings=timings
    )
    if failure is not None:
        raise RunFailedError(str(failure), result) from failure
    return result


def replay_and_record(
    inputs: Inputs,
    command: str = "",
    observers: Sequence[Observer] = (),
    interrupted: Callable[[], bool] = lambda: False,
    journal: DecisionJournal | None = None,
    scratch: Path | None = None,
) -> RunResult:
    """Replay the inputs and record everything; raise what fails before the first decision."""
    began_s, config, log = time.perf_counter(), inputs.config, inputs.log
    tuner = inputs.make_tuner() if inputs.make_tuner else None
    learning = LearnedCurves(config.profile_noise, config.seed, inputs.learned) if inputs.learned else None
    horizon_s = inputs.departure_horizon_s
    departures = None if horizon_s is None else DepartureOrder(log.rows(), horizon_s)
    allocator = Allocator(inputs.tasks, inputs.settings, log.nodes, log.start_ns, tuner, departures, learning)
    allocator.journal = journal
    recorder = Recorder(scratch)
    meter = PowerMeter(config.idle_power_w, scratch) if tuner is not None or config.idle_power_w > 0 else None
    recorders: list[Recorder | PowerMeter] = [recorder, *([] if meter is None else [meter])]
    failure = None
    try:
        with _collecting_rarely():
            replay(
                log.rows(),
                log.window_s,
                allocator,
                decide_on=config.decide_on,
                until_s=config.until_s(log.start_ns),
                max_events=config.max_events,
                power_caps_w=inputs.power_caps_w,
                observers=[*recorders, *observers],
                interrupted=interrupted,
            )
    except (ObjectiveError, RunFailedError) as error:
        failure = error
        for each in recorders:
            each.on_end(allocator.cluster, "failed")
        if not len(recorder.recording.decisions):
            raise
    recording, metered = recorder.recording, None
    if meter is not None:
        record = meter.record()
        metered = Metered(record, tuple(tuner.attempts) if tuner else ())
        recording = recording if tuner is None else with_tuning(recording, record, tuner)
    replay_s = time.perf_counter() - began_s
    return RunResult(
        inputs=inputs,
        command=command,
        recording=recording,
        timings=Timings(inputs.load_s, replay_s, 0.0, inputs.load_s + replay_s),
        metered=metered,
        learned={} if learning is None else learning.figures(inputs.tasks),
        failure=failure,
    )


@contextmanager
def _collecting_rarely() -> Iterator[None]:
    """Look for cyclic garbage less often: each event makes many objects, none of them in a cycle."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _YOUNG_OBJECTS) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
