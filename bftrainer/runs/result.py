"""Result of a run: its figures, tables and page."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bftrainer.errors import BftrainerError, SettingsError, escaped, suggestion
from bftrainer.files.writing import refuse_existing, versions
from bftrainer.model import NS_PER_S, iso
from bftrainer.model.records import RUN_SCHEMA, FinishedRun, Recording
from bftrainer.nodelogs.offers import idle_node_s
from bftrainer.objectives import name_of_objective
from bftrainer.plugins import full_name
from bftrainer.report.brief import headline
from bftrainer.report.comparison import figures_of
from bftrainer.report.glossary import ON_SCALING
from bftrainer.report.ledger import ledger_of, limited_by
from bftrainer.report.metrics import Intervals, decision_metrics, pool_metrics, task_metrics
from bftrainer.runs.baseline import Efficiency
from bftrainer.runs.bounds import WorkBounds
from bftrainer.runs.config import OPTIONS, ReplayConfig
from bftrainer.runs.power import Metered, power_summary
from bftrainer.runs.readers import LEARNED
from bftrainer.runs.run_inputs import Inputs
from solvers import Solver
from solvers.registry import declaration

if TYPE_CHECKING:
    import pandas as pd


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
    metered : Metered or None
        Power and tuning; None if power is unknown.
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
    metered: Metered | None = None
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
        decisions = decision_metrics(recording.decisions, _fallback_name(config.fallback))
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
            **self._efficiency(),
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
        from bftrainer.runs.run_pages import check_pages, write_page_of

        output = Path(path)
        check_pages()
        refuse_existing(output, force=force)
        write_page_of([self._finished(escaped(output.stem.removesuffix("-itrOut")))], [Path()], output)
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

    def _efficiency(self) -> dict[str, Any]:
        names = ("efficiency", "efficiency_horizon_s", "efficiency_eq_nodes", "ideal_work")
        values = [None] * 6 if self.efficiency is None else astuple(self.efficiency)
        return dict(zip((*names, "loss_variability_share", "loss_horizon_share"), values, strict=True))

    def _power(self) -> dict[str, Any]:
        """Energy figures and final settings of tuned tasks; empty if power is unknown."""
        if self.metered is None:
            return {}
        carbon, pue = self.inputs.carbon, self.config.pue
        figures = power_summary(self.metered.record, carbon, pue, self.recording.end_s)
        tuned = [task.tuned for task in self.recording.tasks if task.tuned is not None]
        if not tuned:
            return figures
        sizes = Counter(each.batch_size for each in self.metered.attempts)
        limits = Counter(each.power_limit_w for each in self.metered.attempts)
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


def _fallback_name(given: str | Solver | None) -> str | None:
    """The name that stands in the table of decisions."""
    found = declaration(given) if isinstance(given, str) else given
    return None if found is None else found.name


def _plain(value: Any) -> Any:
    """A setting in the form of the summary: files by their paths, solvers by their names."""
    if isinstance(value, Path):
        return str(value)
    return full_name(value) if hasattr(value, "solve") else value
