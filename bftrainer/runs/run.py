"""One run: the facade `run_replay` wires allocator, loop and recorder, and returns the result."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import astuple, dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, cast

from bftrainer.errors import BftrainerError, OutputError, RunFailedError, SettingsError, SolverError, suggestion
from bftrainer.files.directories import JOURNAL, ResultDirectory
from bftrainer.files.writing import LineJournal, versions
from bftrainer.model import NS_PER_S, NodeLog, TaskSpec, iso
from bftrainer.model.records import RUN_SCHEMA, PowerRecord, Recording
from bftrainer.objectives import name_of_objective
from bftrainer.plugins import answering, full_name
from bftrainer.replay import Allocator, Observer, PowerMeter, Recorder, replay, stop_after, stop_at, stop_when
from bftrainer.replay.decision_journal import Beginning, DecisionJournal
from bftrainer.replay.departure_order import DepartureOrder
from bftrainer.replay.learned_curves import LearnedCurves
from bftrainer.report import metrics
from bftrainer.report.comparison import figures_of
from bftrainer.report.glossary import headline
from bftrainer.report.ledger import find_limit, ledger_of
from bftrainer.report.metrics import idle_node_s, ratio
from bftrainer.runs.config import OPTIONS, ReplayConfig
from bftrainer.runs.efficiency import Efficiency, compute_efficiency
from bftrainer.runs.run_inputs import LEARNED, Inputs, list_kinds, load_inputs
from bftrainer.terms import ON_SCALING
from solvers.registry import describe_solver

if TYPE_CHECKING:
    import pandas as pd

    from bftrainer.zeus.tuned_task import Attempt

_EFFICIENCY: tuple[str, ...] = ("efficiency", "efficiency_horizon_s", "efficiency_eq_nodes")
_EFFICIENCY += ("ideal_work", "loss_variability_share", "loss_horizon_share")
# Errors of an objective, an observer or a solver, after which a run keeps what was done.
_FAILURES = (SettingsError, RunFailedError, SolverError)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RunResult:
    """Result of a replay.

    Parameters
    ----------
    inputs : Inputs
        What was replayed, and how.
    command : str
    recording : Recording
    timings : dict
        Wall-clock seconds, in which alone two equal runs differ: `load_s`, `replay_s`, `baseline_s` and `wall_s`.
    efficiency : Efficiency or None
        None without a comparison with constant pools.
    is_partial : bool
        Whether the run was interrupted or failed, in the replay or in that comparison.
    metered : PowerRecord or None
        None if power is unknown.
    attempts : tuple of Attempt
        Those of tuned tasks, in the order in which they ended.
    learned : dict
        Figures of learnt curves; empty if decisions knew all.
    more_tasks : dict
        What other replays with more tasks at once did; empty if few of them did not limit the run.
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
    timings: Mapping[str, float]
    efficiency: Efficiency | None = None
    is_partial: bool = False
    metered: PowerRecord | None = None
    attempts: tuple[Attempt, ...] = ()
    learned: Mapping[str, Any] = field(default_factory=dict)
    more_tasks: Mapping[str, Any] = field(default_factory=dict)
    failure: BftrainerError | None = None
    engine: Literal["replay", "live"] = "replay"
    versions: Mapping[str, str] = field(default_factory=versions)
    _summary: dict[str, Any] = field(default_factory=dict, init=False)

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
        if self._summary:  # sums over a long replay take seconds
            return deepcopy(self._summary)
        recording, inputs, config, settings = self.recording, self.inputs, self.config, self._settings()
        intervals = metrics.Intervals.of(recording)
        pool = metrics.pool_metrics(intervals)
        return_on_investment = pool.pop("return_on_investment")
        fallback = describe_solver(config.fallback) if isinstance(config.fallback, str) else config.fallback
        decisions = metrics.decision_metrics(recording.decisions, None if fallback is None else fallback.name)
        solve_s = math.fsum(recording.decisions["solve_s"])
        idle_node_s_before_offers = 0.0 if inputs.idle_log is None else idle_node_s(inputs.idle_log, recording.end_s)
        ledger = ledger_of(recording, max(0.0, idle_node_s_before_offers - pool["idle_node_s"]))
        power: dict[str, Any] = {}  # if it is known, as that of tuned tasks is
        if self.metered is not None:
            power |= metrics.power_metrics(self.metered, inputs.carbon, config.pue, recording.end_s)
        if tuned := [task.tuned for task in recording.tasks if task.tuned is not None]:
            chosen = [(attempt.batch_size, attempt.power_limit_w) for attempt in self.attempts]
            power |= metrics.tuning_metrics(tuned, chosen)
        summary = {
            "schema": RUN_SCHEMA,
            "partial": self.is_partial,
            "end_reason": recording.reason,
            "command": self.command,
            "versions": dict(self.versions),
            "engine": self.engine,
            "inputs": dict(inputs.sources),
            "settings": settings,
            "seed": config.seed,
            "solver": full_name(config.solver),
            "objective": name_of_objective(config.objective),
            "forward_time_s": config.forward_time_s,
            "max_tasks": config.max_tasks,
            "window_start": self.iso(0.0),
            "window_end": self.iso(recording.end_s),
            "window_s": recording.end_s,
            "nodes_total": len(inputs.log.nodes),
            "node_log_notes": inputs.log.notes,
            "node_log_zone": inputs.log.zone,
            "events": len(recording.events),
            "decisions": decisions.pop("decisions"),
            **pool,
            "ledger": ledger,
            "limited_by": find_limit(ledger),
            **({"more_tasks": dict(self.more_tasks)} if self.more_tasks else {}),
            **dict(zip(_EFFICIENCY, astuple(self.efficiency) if self.efficiency else [None] * 6, strict=True)),
            "return_on_investment": return_on_investment,
            **metrics.task_metrics(recording.tasks, pool["used_node_s"]),
            **power,
            **self.learned,
            **decisions,
            **self.timings,
            "solve_wall_share": ratio(solve_s, self.timings["wall_s"]),
            "below_large_idle": metrics.metrics_below(intervals, settings["large_idle"]),
        }
        assumed, figures = inputs.assumed_scaling, figures_of(summary)
        resting = [key.rpartition(".")[2] for key in ON_SCALING if figures.get(key) is not None]
        summary["assumed_scaling"] = None if assumed is None else assumed.to_dict() | {"figures": resting}
        self._summary.update(summary)
        return deepcopy(self._summary)

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
        from bftrainer.runs.run_files import run_tables

        tables = {Path(run_table.file).stem: run_table for run_table in run_tables(self)[1:]}
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
        from bftrainer.report.run_page import write_page
        from bftrainer.runs.run_files import convert_result

        output = Path(path)
        write_page([convert_result(self, output.stem.removesuffix("-itrOut"))], output, force=force)
        return output

    def __repr__(self) -> str:
        return f"<RunResult: {headline(self.summary())}>"

    def _repr_html_(self) -> str | None:
        """Show the brief in notebooks."""
        from bftrainer.report.run_page import notebook_view
        from bftrainer.runs.run_files import convert_result

        return notebook_view(convert_result(self, "this run"))

    def _settings(self) -> dict[str, Any]:
        """Settings that affect the result, besides the inputs; those of power and learning only where they matter."""
        config, assumed = self.config, self.inputs.assumed_scaling
        until_s, quarter = config.until_s(self.start_ns), max(1, len(self.inputs.log.nodes) // 4)
        derived = {
            "since": None if config.since is None else self.iso(0.0),
            "until_s": until_s if math.isfinite(until_s) else None,
            "large_idle": quarter if config.large_idle is None else config.large_idle,
            "scaling": LEARNED if config.scaling == LEARNED else assumed and str(assumed.model),
        }
        ineffective = {"power": not self.metered, "learning": not self.learned}
        plain = {}
        for name, option in OPTIONS.items():
            value = getattr(config, name)
            if name in derived or not option.is_setting or ineffective.get(option.section):
                continue
            if option.default_told or value != option.default:
                value = full_name(value) if hasattr(value, "solve") else value
                plain[name] = str(value) if isinstance(value, Path) else value
        return plain | {"objective": name_of_objective(config.objective)} | derived


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
