"""One run: the facade `run_replay` wires allocator, loop and recorder, and returns the result."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from bftrainer.errors import OutputError, RunFailedError, SettingsError, SolverError
from bftrainer.files.directories import JOURNAL, ResultDirectory
from bftrainer.files.writing import LineJournal, versions
from bftrainer.model import NodeLog, TaskSpec
from bftrainer.plugins import answering
from bftrainer.replay import Allocator, Observer, PowerMeter, Recorder, replay, stop_after, stop_at, stop_when
from bftrainer.replay.decision_journal import Beginning, DecisionJournal
from bftrainer.replay.departure_order import DepartureOrder
from bftrainer.replay.learned_curves import LearnedCurves
from bftrainer.runs.config import ReplayConfig
from bftrainer.runs.efficiency import compute_efficiency
from bftrainer.runs.run_files import RunResult
from bftrainer.runs.run_inputs import Inputs, list_kinds, load_inputs

# Errors of an objective, an observer or a solver, after which a run keeps what was done.
_FAILURES = (SettingsError, RunFailedError, SolverError)


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
    details: bool = True,
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
    interrupted : callable
        Called before each event; True ends the replay there, and the result is marked partial.
    command : str
        Kept in the summary.
    journal : DecisionJournal, optional
        Decisions of an earlier start of the same run, which come first, and where further ones are kept.
    scratch : Path, optional
        Directory for records that are too many for memory; the system's temporary one by default.
    details : bool
        Whether to record which nodes change hands, and the tasks and counts of decisions; the summary needs neither.
    **options
        Fields of `ReplayConfig`; objective and solvers may be callables and objects of your own.

    Raises
    ------
    InputError
        If an input cannot be read, or does not fit the others.
    RunFailedError
        If the objective, an observer or the solver fails; its `result` is what was done until then.

    Examples
    --------
    >>> run_replay(solver="dp", max_events=50, baseline=False).summary()["events"]
    50
    """
    options |= {name: value for name, value in (("node_log", node_log), ("tasks", tasks)) if value is not None}
    if inputs is None:
        inputs = load_inputs(ReplayConfig(**options) if config is None else replace(config, **options))
    elif config not in (None, inputs.config) or options:
        raise SettingsError("Give either inputs or a configuration, not both.")
    result = _replay_and_record(inputs, command, observers, interrupted, journal, scratch, details=details)
    result = _compare_with_constant_pools(result, interrupted, journal) if inputs.config.baseline else result
    if result.failure is not None:
        raise RunFailedError(str(result.failure), result) from result.failure
    return result


def _name_in_errors(observer: Observer) -> Observer:
    """An observer of the caller's, named by the error that ends the run if it fails."""
    name, methods = type(observer).__name__, ("on_event", "on_decision", "on_end")
    if isinstance(observer, type) or not all(callable(getattr(observer, method, None)) for method in methods):
        raise SettingsError(f"Expected an object with {', '.join(methods)} as observer, got {name}.")
    wrap = answering(f"observer {name}", RunFailedError)
    calls = {method: getattr(observer, method) for method in methods}
    is_idle = {method: getattr(call, "__func__", None) is getattr(Observer, method) for method, call in calls.items()}
    wrapped = {method: call if is_idle[method] else wrap(call) for method, call in calls.items()}
    return cast(Observer, SimpleNamespace(**wrapped))


def _replay_and_record(
    inputs: Inputs,
    command: str,
    observers: Sequence[Observer],
    interrupted: Callable[[], bool],
    journal: DecisionJournal | None,
    scratch: Path | None,
    *,
    details: bool,
) -> RunResult:
    """Replay the inputs and record everything; raise what fails before the first decision."""
    named = [_name_in_errors(observer) for observer in observers]
    began_s, config, log = time.perf_counter(), inputs.config, inputs.log
    tuner = inputs.make_tuner() if inputs.make_tuner else None
    learning = LearnedCurves(config.profile_noise, config.seed, inputs.learned) if inputs.learned else None
    notice_s = inputs.settings.notice_s
    departures = DepartureOrder(log.rows(), notice_s, inputs.planned) if notice_s or inputs.planned else None
    allocator = Allocator(inputs.tasks, inputs.settings, log.nodes, log.start_ns, tuner, departures, learning)
    allocator.journal = journal
    recorder = Recorder(scratch, details=details)
    if inputs.settings.give_way == "chosen":
        allocator.cluster.kinds = list_kinds(log)
    meter = PowerMeter(config.idle_power_w, scratch) if tuner is not None or config.idle_power_w > 0 else None
    recorders: list[Recorder | PowerMeter] = [recorder, *([] if meter is None else [meter])]
    failure, until_s = None, config.until_s(log.start_ns)
    stops = [stop_when(interrupted), stop_after(config.max_events or math.inf)]
    stops += [stop_at(until_s)] if until_s < log.window_s else []
    try:
        replay(
            log.rows(),
            log.window_s,
            allocator,
            stops=stops,
            power_caps_w=inputs.power_caps_w,
            observers=[*recorders, *named],
        )
    except _FAILURES as error:
        failure = error
        for observer in recorders:
            observer.on_end(allocator.cluster, "failed")
        if not len(recorder.recording.decisions):
            raise
    recording, metered = recorder.recording, None if meter is None else meter.record()
    if tuner is not None and metered is not None:
        from bftrainer.zeus.tuned_task import record_tuning

        recording = record_tuning(recording, metered, tuner)
    replay_s = time.perf_counter() - began_s
    return RunResult(
        inputs=inputs,
        command=command,
        recording=recording,
        timings={"load_s": inputs.load_s, "replay_s": replay_s, "baseline_s": 0.0, "wall_s": inputs.load_s + replay_s},
        is_partial=recording.reason in ("interrupted", "failed"),
        metered=metered,
        attempts=tuple(tuner.attempts) if tuner else (),
        learned={} if learning is None else learning.figures(inputs.tasks),
        failure=failure,
    )


def _compare_with_constant_pools(
    result: RunResult, interrupted: Callable[[], bool], journal: DecisionJournal | None
) -> RunResult:
    """Add the efficiency to a whole result; an interruption or a failure leaves it partial."""
    if result.is_partial:
        return result
    began_s, efficiency, failure = time.perf_counter(), None, None
    try:
        efficiency = compute_efficiency(result.inputs, result.recording, interrupted, journal)
    except _FAILURES as error:
        failure = error
    baseline_s = time.perf_counter() - began_s
    timings = {**result.timings, "baseline_s": baseline_s, "wall_s": result.timings["wall_s"] + baseline_s}
    return replace(result, efficiency=efficiency, is_partial=efficiency is None, failure=failure, timings=timings)


def find_unfinished(directory: ResultDirectory) -> Beginning:
    """Find how the run in a directory was begun: `OutputError` if there is none to resume."""
    path, in_results = directory.working / JOURNAL, directory.path / JOURNAL
    if not path.exists() and in_results.exists():
        LineJournal(in_results)  # refuses another user's
        shutil.copy2(in_results, path)
    journal = DecisionJournal(path)
    if journal.beginning is None:
        is_over = (directory.path / "summary.json").exists()
        reason = "a finished run, or one without its decisions (--checkpoint-every 0)" if is_over else "no run"
        raise OutputError(f"{directory.path}: Expected an unfinished run to resume, found {reason}.")
    return journal.beginning


def keep_decisions(
    directory: ResultDirectory, arguments: Sequence[str], inputs: Inputs, every_s: float
) -> DecisionJournal:
    """Keep the decisions of a run while it goes on: `OutputError` if an input or a version is not as it was."""
    files = chain.from_iterable(file if isinstance(file, list) else [file] for file in inputs.sources.values())
    checksums = {file["path"]: f"SHA-256 {file['sha256']}" for file in files if file is not None}
    journal = DecisionJournal(directory.working / JOURNAL, every_s)
    journal.begin(Beginning([*arguments], str(Path.cwd()), versions() | checksums))
    return journal
