"""One run: the facade `run_replay` wires allocator, loop and recorder, and returns the result."""

from __future__ import annotations

import gc
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, cast

from bftrainer.errors import (
    BftrainerError,
    ObjectiveError,
    RunFailedError,
    SettingsError,
    SolverError,
    escaped,
    suggestion,
)
from bftrainer.files.cache import refuse_changed
from bftrainer.files.writing import versions
from bftrainer.model import NS_PER_S, NodeLog, TaskSpec, iso
from bftrainer.model.records import RUN_SCHEMA, PowerRecord, Recording
from bftrainer.nodelogs.offers import idle_node_s
from bftrainer.objectives import name_of_objective
from bftrainer.plugins import answering, full_name
from bftrainer.replay import Allocator, Observer, PowerMeter, Recorder, replay, stop_after, stop_at, stop_when
from bftrainer.replay.departure_order import DepartureOrder
from bftrainer.replay.learned_curves import LearnedCurves
from bftrainer.report.brief import headline
from bftrainer.report.comparison import figures_of
from bftrainer.report.finished_run import FinishedRun
from bftrainer.report.glossary import ON_SCALING
from bftrainer.report.ledger import ledger_of, limited_by
from bftrainer.report.metrics import Intervals, decision_metrics, pool_metrics, task_metrics
from bftrainer.runs.config import OPTIONS, ReplayConfig
from bftrainer.runs.power import power_summary, with_tuning
from bftrainer.runs.reference_runs import Efficiency, WorkBounds, bounds, efficiency
from bftrainer.runs.resumable import DecisionJournal
from bftrainer.runs.run_inputs import LEARNED, Inputs, load_inputs
from bftrainer.zeus.tuned_task import Attempt
from solvers.registry import declaration

if TYPE_CHECKING:
    import pandas as pd

_EFFICIENCY = ["efficiency", "efficiency_horizon_s", "efficiency_eq_nodes", "ideal_work", "loss_variability_share"]
_EFFICIENCY += ["loss_horizon_share"]
# Errors of an objective, an observer or a solver, after which a run keeps what was done.
_FAILURES = (ObjectiveError, RunFailedError, SolverError)


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall-clock seconds, the only difference between two equal runs."""

    load_s: float
    replay_s: float
    baseline_s: float
    wall_s: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RunResult:
    """Result of a replay.

    Parameters
    ----------
    inputs : Inputs
        What was replayed, and how.
    command : str
    recording : Recording
    timings : Timings
    efficiency : Efficiency or None
    is_partial : bool
        Whether the run was interrupted, in the replay or in the comparison with constant pools.
    metered : PowerRecord or None
        None if power is unknown.
    attempts : tuple of Attempt
        Those of tuned tasks, in the order in which they ended.
    bounds : WorkBounds or None
        How much more could be done, if that was asked for.
    learned : dict
        Figures of learnt curves; empty if decisions knew all.
    failure : BftrainerError or None
        What ended the run before its time.
    engine : {"replay", "live"}
        What decided: a replay, or a harvest.
    versions : dict
        Those of the software that computed it.
    """

    inputs: Inputs
    command: str
    recording: Recording
    timings: Timings
    efficiency: Efficiency | None = None
    is_partial: bool = False
    metered: PowerRecord | None = None
    attempts: tuple[Attempt, ...] = ()
    bounds: WorkBounds | None = None
    learned: Mapping[str, Any] = field(default_factory=dict)
    failure: BftrainerError | None = None
    engine: Literal["replay", "live"] = "replay"
    versions: Mapping[str, str] = field(default_factory=versions)
    _summaries: list[dict[str, Any]] = field(default_factory=list, init=False)

    @property
    def config(self) -> ReplayConfig:
        """Options of the run."""
        return self.inputs.config

    @property
    def start_ns(self) -> int:
        """Start of the window, nanoseconds since the Unix epoch."""
        return self.inputs.log.start_ns

    def iso(self, time_s: float) -> str:
        """Format a time of this run in ISO 8601, UTC."""
        return iso(self.start_ns + round(time_s * NS_PER_S), "ns")

    def summary(self) -> dict[str, Any]:
        """All figures of the run, ready for JSON, in the order of the schema."""
        if not self._summaries:  # sums over a long replay take seconds
            self._summaries.append(self._summarise())
        return deepcopy(self._summaries[0])

    def _summarise(self) -> dict[str, Any]:
        recording, inputs, config = self.recording, self.inputs, self.config
        intervals = Intervals.of(recording)
        pool = pool_metrics(intervals)
        returned = pool.pop("return_on_investment")
        fallback = declaration(config.fallback) if isinstance(config.fallback, str) else config.fallback
        decisions = decision_metrics(recording.decisions, None if fallback is None else fallback.name)
        solve_s = math.fsum(recording.decisions["solve_s"])
        whole_s = 0.0 if inputs.idle_log is None else idle_node_s(inputs.idle_log, recording.end_s)
        ledger = ledger_of(recording, max(0.0, whole_s - pool["idle_node_s"]))
        summary = {
            "schema": RUN_SCHEMA,
            "partial": self.is_partial,
            "end_reason": recording.reason,
            "command": self.command,
            "versions": dict(self.versions),
            "engine": self.engine,
            "inputs": dict(inputs.sources),
            "settings": self._settings(),
            "seed": config.seed,
            "solver": full_name(config.solver),
            "objective": name_of_objective(config.objective),
            "forward_time_s": config.forward_time_s,
            "max_tasks": config.max_tasks,
            "window_start": self.iso(0.0),
            "window_end": self.iso(recording.end_s),
            "window_s": recording.end_s,
            "nodes_total": len(inputs.log.nodes),
            "node_log_notes": list(inputs.log.notes),
            "node_log_zone": inputs.log.zone,
            "events": len(recording.events),
            "decisions": decisions.pop("decisions"),
            **pool,
            "ledger": ledger,
            "limited_by": limited_by(ledger),
            **dict(zip(_EFFICIENCY, astuple(self.efficiency) if self.efficiency else [None] * 6, strict=True)),
            "return_on_investment": returned,
            **task_metrics(recording.tasks, pool["used_node_s"]),
            **self._power(),
            **({"bounds": self.bounds and self.bounds.to_dict()} if config.bounds else {}),
            **self.learned,
            **decisions,
            **asdict(self.timings),
            "solve_wall_share": solve_s / self.timings.wall_s if self.timings.wall_s else None,
            "below_large_idle": self._below_large_idle(intervals),
        }
        return summary | {"assumed_scaling": self._assumed_scaling(summary)}

    def frame(self, table: str = "tasks") -> pd.DataFrame:
        """Table of the run, as written to the Parquet file of that name.

        Parameters
        ----------
        table : str
            ``tasks``, ``decisions`` or ``allocation``; ``power`` and ``attempts`` if the run has them.

        Raises
        ------
        SettingsError
            If the run has no such table.
        """
        from bftrainer.runs.run_tables import run_tables

        tables = {Path(each.file).stem: each for each in run_tables(self)[1:]}
        if table not in tables:
            raise SettingsError(f"Expected a table of this run, got {table!r}.{suggestion(table, tables)}")
        return tables[table].of(self).to_pandas()

    def report(self, path: str | Path, *, force: bool = False) -> Path:
        """Write a page about the run; the same as `bftrainer report`.

        Raises
        ------
        OutputError
            If it exists and not `force`, or cannot be written.
        SettingsError
            If the extra `report` is not installed.
        """
        from bftrainer.runs.run_pages import write_page_of

        output = Path(path)
        run = self._finished(escaped(output.stem.removesuffix("-itrOut")))
        write_page_of([run], [Path()], output, force=force)
        return output

    def __repr__(self) -> str:
        return f"<RunResult: {headline(self.summary())}>"

    def _repr_html_(self) -> str:
        """Show the brief in notebooks."""
        from bftrainer.runs.run_pages import notebook_view

        return notebook_view(self._finished("this run"))

    def _finished(self, name: str) -> FinishedRun:
        """The run as if read from its files, for a page."""
        from bftrainer.runs.finished import finished_run

        summary = json.loads(json.dumps(self.summary()))  # converted as in its file
        return finished_run(name, summary, lambda table: table.of(self))

    def _power(self) -> dict[str, Any]:
        """Energy figures and final settings of tuned tasks; empty if power is unknown."""
        if self.metered is None:
            return {}
        carbon, pue = self.inputs.carbon, self.config.pue
        figures = power_summary(self.metered, carbon, pue, self.recording.end_s)
        tuned = [task.tuned for task in self.recording.tasks if task.tuned is not None]
        if not tuned:
            return figures
        sizes = Counter(each.batch_size for each in self.attempts)
        limits = Counter(each.power_limit_w for each in self.attempts)
        return figures | {
            "tasks_reached": sum(task.reached for task in tuned),
            "tasks_failed": sum(task.failure is not None for task in tuned),
            "attempts": sum(task.attempts for task in tuned),
            "train_s": math.fsum(task.train_s for task in tuned),
            "batch_sizes": {str(size): sizes[size] for size in sorted(sizes)},
            "power_limits_w": {str(limit): limits[limit] for limit in sorted(limits)},
            "failures": sorted({task.failure for task in tuned if task.failure is not None}),
        }

    def _assumed_scaling(self, summary: Mapping[str, Any]) -> dict[str, Any] | None:
        """Assumption about how tasks scale, and the figures of the summary that rest on it."""
        found = self.inputs.assumed_scaling
        if found is None:
            return None
        return {
            "model": str(found.model),
            "work_per_s_on_one_node": found.model.rate_1,
            "tasks": found.tasks,
            "is_default": found.is_default,
            "note": found.note,
            "figures": [key.rpartition(".")[2] for key in ON_SCALING if figures_of(summary).get(key) is not None],
        }

    def _settings(self) -> dict[str, Any]:
        """Settings that affect the result, besides the inputs; those of power and learning only where they matter."""
        config, assumed = self.config, self.inputs.assumed_scaling
        until_s = config.until_s(self.start_ns)
        found = {
            "since": None if config.since is None else self.iso(0.0),
            "until_s": until_s if math.isfinite(until_s) else None,
            "large_idle": self._large_idle,
            "scaling": LEARNED if config.scaling == LEARNED else assumed and str(assumed.model),
        }
        given = {name: option for name, option in OPTIONS.items() if name not in found and option.is_setting}
        absent = {"power": not self.metered, "learning": not self.learned}
        told = {
            name: _plain(getattr(config, name))
            for name, option in given.items()
            if not absent.get(option.section) and (option.default_told or getattr(config, name) != option.default)
        }
        return told | {"objective": name_of_objective(config.objective)} | found

    @property
    def _large_idle(self) -> int:
        return self.config.large_idle if self.config.large_idle is not None else max(1, len(self.inputs.log.nodes) // 4)

    def _below_large_idle(self, intervals: Intervals) -> dict[str, Any]:
        """The same shares over the intervals with fewer idle nodes than the limit."""
        small = intervals.where(intervals.idle < self._large_idle)
        total_s, total_idle = math.fsum(intervals.length_s), math.fsum(intervals.idle * intervals.length_s)
        metrics = pool_metrics(small)
        return {
            "large_idle": self._large_idle,
            "time_share": math.fsum(small.length_s) / total_s if total_s else None,
            "idle_node_s_share": metrics["idle_node_s"] / total_idle if total_idle else None,
            **metrics,
        }


def _plain(value: Any) -> Any:
    """A setting in the form of the summary: files by their paths, solvers by their names."""
    if isinstance(value, Path):
        return str(value)
    return full_name(value) if hasattr(value, "solve") else value


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
        result = replay_and_record(inputs, command, [*map(_named_observer, observers)], interrupted, journal, scratch)
        return _compare_and_bound(result, interrupted, journal)
    finally:  # a node log that was changed meanwhile explains any fault
        refuse_changed(inputs.log.node)


def _named_observer(observer: Observer) -> Observer:
    """An observer of the caller's, named by the error that ends the run if it fails."""
    name, methods = type(observer).__name__, ("on_event", "on_decision", "on_end")
    if isinstance(observer, type) or not all(callable(getattr(observer, method, None)) for method in methods):
        raise SettingsError(f"Expected an object with {', '.join(methods)} as observer, got {name}.")
    named = answering(f"observer {name}", RunFailedError)
    return cast(Observer, SimpleNamespace(**{method: named(getattr(observer, method)) for method in methods}))


def _compare_and_bound(
    result: RunResult, interrupted: Callable[[], bool], journal: DecisionJournal | None
) -> RunResult:
    """Add efficiency and bounds, if they are asked for; a failure leaves the result partial."""
    began_s, inputs, recording, config = time.perf_counter(), result.inputs, result.recording, result.config
    failure, compared, bounded = result.failure, None, None

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
        except _FAILURES as error:
            failure = error
    is_whole = recording.reason not in ("interrupted", "failed")
    is_whole &= (compared is not None or not config.baseline) and (bounded is not None or not config.bounds)
    baseline_s = time.perf_counter() - began_s
    timings = replace(result.timings, baseline_s=baseline_s, wall_s=result.timings.wall_s + baseline_s)
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
    failure, until_s = None, config.until_s(log.start_ns)
    try:
        with _collecting_rarely():
            replay(
                log.rows(),
                log.window_s,
                allocator,
                stops=[stop_when(interrupted), stop_after(config.max_events or math.inf), stop_at(until_s)],
                power_caps_w=inputs.power_caps_w,
                observers=[*recorders, *observers],
            )
    except _FAILURES as error:
        failure = error
        for each in recorders:
            each.on_end(allocator.cluster, "failed")
        if not len(recorder.recording.decisions):
            raise
    recording, metered = recorder.recording, None if meter is None else meter.record()
    if tuner is not None and metered is not None:
        recording = with_tuning(recording, metered, tuner)
    replay_s = time.perf_counter() - began_s
    return RunResult(
        inputs=inputs,
        command=command,
        recording=recording,
        timings=Timings(inputs.load_s, replay_s, 0.0, inputs.load_s + replay_s),
        metered=metered,
        attempts=tuple(tuner.attempts) if tuner else (),
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
