"""Audit a finished run: replay it by its recorded decisions, and compare every table and figure with what was written.

In the second replay `DecisionJudge` answers instead of a solver, values each decision and solves it again. Who owned
which node, and the work of plain tasks, also follow from the tables alone, without the replay's loop.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

import solvers
from bftrainer.errors import OutputError, escape_text
from bftrainer.files.writing import file_source
from bftrainer.model import NS_PER_S, Objective, ScalingCurve, TaskState, instant_ns, is_static
from bftrainer.model.columns import Table
from bftrainer.model.records import HELD, DecisionRecord, Floats
from bftrainer.objectives.modifiers import names_code
from bftrainer.replay import Cluster, ClusterChange, Observer
from bftrainer.replay.power_draw import training_power_w, value_at
from bftrainer.replay.value_tables import with_constraints
from bftrainer.runs.config import ReplayConfig
from bftrainer.runs.efficiency import compute_efficiency
from bftrainer.runs.run import run_replay
from bftrainer.runs.run_files import (
    ALLOCATION,
    ATTEMPTS,
    BELIEFS,
    DECISIONS,
    POWER,
    STEPS,
    TASKS,
    RunResult,
    find_inputs,
    load_options,
    read_run_rows,
    read_summary,
    run_tables,
)
from bftrainer.runs.run_inputs import LEARNED, Inputs, list_kinds, load_inputs, read_tasks
from solvers import AllocationProblem, DecidedBy, Held, Limits, SolveResult, StopReason, TaskOptions, registry
from solvers.reference_solvers import EqualShare

Row = dict[str, Any]
SHOWN = 3  # rows of a column that are told one by one
PROVEN = 1e-7  # share of an optimum by which MIP solvers may miss what they call proven
_CLOCKS = ("load_s", "replay_s", "baseline_s", "wall_s")
_UNCHECKED = ("command", "versions", "engine", "inputs", "more_tasks", *_CLOCKS)
# What a row of decisions.parquet says of how it was decided, copied to the second replay's.
_COPIED = ("bound", "gap", "solver", "solve_s", "model_rows", "model_columns", "backend_s")
_KINDS = {"held": Held, "stop_reason": StopReason, "decided_by": DecidedBy}
_STOPS = {"optimal": ("optimal",), "kept": ("time_limit", "effort_limit")}


class Findings:
    """How much of a run was checked, what is wrong, a line each, and what could not be checked, with how often."""

    def __init__(self) -> None:
        self.checked = 0
        self.wrong: list[str] = []
        self.unchecked: Counter[str] = Counter()

    def expect(self, holds: object, problem: str) -> bool:
        """Count a check; note the problem, one line without control characters, unless it holds."""
        self.checked += 1
        if not holds:
            self.wrong.append(escape_text(problem))
        return bool(holds)

    def compare(self, where: str, recorded: Any, computed: Any, slack: float = 0.0) -> None:
        """Compare a recorded figure with the computed one."""
        self.expect(is_close(recorded, computed, slack), f"{where}: {recorded} recorded, {computed} computed")


def is_close(recorded: Any, computed: Any, slack: float = 0.0) -> bool:
    """Whether figures agree: real numbers up to rounding, and `slack`."""
    if isinstance(computed, float) and isinstance(recorded, float | int):
        return bool(abs(recorded - computed) <= slack + 1e-9 * abs(computed))
    return bool(recorded == computed) and isinstance(recorded, bool) == isinstance(computed, bool)


class RecordedRun(NamedTuple):
    """A run's directory as read: its summary, tables by file, with times in nanoseconds, and rows of decisions."""

    directory: Path
    summary: Row
    tables: dict[str, pa.Table]
    decisions: list[Row]


@np.errstate(all="ignore")  # figures of a damaged record may be infinite
def audit(directory: str | Path, objective: Objective | None = None) -> Findings:
    """Audit a run, with its `objective` if that is code of the user's.

    An `InputError` if it is no finished run, or a file or an input is missing or damaged.
    """
    directory, findings = Path(directory), Findings()
    run = read_record(directory)
    inputs, code = load_recorded(run, objective, findings)
    judge = DecisionJudge(inputs, run.decisions, code, findings)
    hits = check_nodes(run, inputs, findings)
    if run.summary["engine"] == "live" or "policy" in code:
        findings.unchecked["work, times, energy and sums: measured by a harvest, or tuned by a policy of yours"] += 1
        judge.check_alone(run.tables[BELIEFS.file].to_pylist() if BELIEFS.file in run.tables else [])
        return findings
    check_work(run, inputs, hits, findings)
    again = replay_again(run, inputs, judge)
    tables = {table.file: table for table in run_tables(again)}
    for name in sorted(run.tables.keys() | tables.keys()):
        if findings.expect(name in run.tables and name in tables, f"{name}: missing, or not of a run of these tasks"):
            compare_tables(name, run.tables[name], plain_times(tables[name].of(again)), findings)
    compare_summaries(run.summary, json.loads(json.dumps(again.summary())), code, findings)
    for at, row in enumerate(run.tables[POWER.file].to_pylist() if POWER.file in run.tables else ()):
        drawn_w, cap_w = inputs.config.pue * (row["tasks_w"] + row["idle_w"]), row["cap_w"]
        findings.expect(cap_w is None or drawn_w <= cap_w * (1 + 1e-9), f"power.parquet row {at} tasks_w: above cap_w")
    return findings


def read_record(directory: Path) -> RecordedRun:
    """Read a result directory: its summary, and the tables that it has."""
    summary = read_summary(directory)
    more = [table for table in (ATTEMPTS, BELIEFS, POWER) if (directory / table.file).exists()]
    schemas = [STEPS, DECISIONS, TASKS, ALLOCATION, *more]
    tables = {schema.file: plain_times(read_run_rows(directory / schema.file, schema)) for schema in schemas}
    decisions = tables[DECISIONS.file].to_pylist()
    for place, row in enumerate(decisions):
        lists = [row["tasks"], row["before"], row["after"]]
        if None in (*lists, row["time"], row["held"]) or len(set(map(len, lists))) > 1:
            raise OutputError(f"{directory / DECISIONS.file} row {place}: Expected no null, lists of one length.")
    return RecordedRun(directory, summary, tables, decisions)


def plain_times(table: pa.Table) -> pa.Table:
    """The table with times as whole nanoseconds since the epoch."""
    columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns]
    return pa.table(dict(zip(table.column_names, columns, strict=True)))


def load_recorded(run: RecordedRun, objective: Objective | None, findings: Findings) -> tuple[Inputs, set[str]]:
    """Inputs of a run, by the files and settings that its summary names; and which settings are code, not run here."""
    settings = run.summary["settings"]
    for name, entry in find_inputs(run.directory, run.summary):
        same = file_source(entry["path"])["sha256"] == entry["sha256"]
        findings.expect(same, f"summary.json inputs.{name}: {entry['path']} has changed since the run")
    chosen = load_options(run.directory, run.summary)
    task_set = read_tasks(chosen["tasks"], chosen.get("scalability"), settings.get("scaling"))
    policies = [settings.get("policy"), settings.get("power_policy")]
    policies += [getattr(task.tuning, kind, None) for task in task_set.tasks for kind in ("policy", "power_policy")]
    code = {name for name in ("solver", "fallback") if settings.get(name) not in (None, *registry.names())}
    code |= {"objective"} if objective is None and names_code(settings["objective"]) else set()
    code |= {"policy"} if any(map(names_code, policies)) else set()
    chosen |= {"scalability": None, "scaling": LEARNED if settings.get("scaling") == LEARNED else None}
    chosen |= {"tasks": task_set.tasks, "isolate": "never"}
    usual = {"objective": "as-given", "solver": "dp", "fallback": None, "policy": "zeus", "power_policy": "jit"}
    chosen |= {name: usual[name] for name in usual if name.removeprefix("power_") in code}
    chosen |= {"objective": objective} if objective is not None else {}
    chosen |= {"tasks": tuple(replace(task, tuning=None) for task in task_set.tasks)} if "policy" in code else {}
    return replace(load_inputs(ReplayConfig(**chosen)), assumed_scaling=task_set.assumed_scaling), code


class DecisionJudge(Observer):
    """Objective, solver and observer of a second replay: answers with recorded `rows`, and checks each answer."""

    name, exact, extra_rows, capacities, floor = "recorded", True, True, True, True
    requires: tuple[str, ...] = ()

    def __init__(self, inputs: Inputs, rows: list[Row], code: set[str], findings: Findings) -> None:
        self.inputs, self.rows, self.code, self.findings = inputs, rows, code, findings
        self.settings, self.objective = inputs.settings, inputs.settings.objective
        self.is_static = is_static(self.objective)
        self.now_s, self.states, self.judged = 0.0, list[TaskState](), list[int]()
        self.due: dict[int, list[int]] = defaultdict(list)
        self._tables: dict[tuple[int, int, int], tuple[TaskState, Floats]] = {}
        for number, row in enumerate(rows):
            self.due[row["time"]].append(number)

    def on_event(self, cluster: Cluster, change: ClusterChange) -> None:  # noqa: ARG002 - an observer's
        """Note the time."""
        self.now_s = change.time_s

    def __call__(self, task: TaskState, counts: NDArray[np.int64], now_s: float) -> Floats:
        """Credit as in the run."""
        return np.asarray(self.objective(task, counts, now_s), dtype=np.float64)

    def constraints(self, problem: AllocationProblem, tasks: Sequence[TaskState]) -> list[Any]:
        """Constraints as in the run; notes the tasks that are decided on."""
        self.states = list(tasks)
        return list(getattr(self.objective, "constraints", lambda *_: ())(problem, tasks))

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:  # noqa: ARG002 - a solver's
        """Answer with the recorded decision of this time, after checking it; with the optimum if none fits."""
        names = [state.spec.name for state in self.states]
        due = self.due.get(self.inputs.log.start_ns + round(self.now_s * NS_PER_S))
        self.judged.append(due.pop(0) if due else -1)
        row: Row = self.rows[self.judged[-1]] if self.judged[-1] >= 0 else {"tasks": None}
        where = f"decisions.parquet row {self.judged[-1]} tasks"
        if self.findings.expect(row["tasks"] == names, f"{where}: {row['tasks']} recorded, {names} at {self.now_s} s"):
            self.check(self.judged[-1], self.states, problem.nodes, self.now_s)
            if row["held"] == "kept":
                return SolveResult(None, math.nan, math.inf, StopReason.TIME_LIMIT, Held.NOTHING, self.name)
            with suppress(ValueError):  # of what cannot be, which `check` has told
                choices = pick_options(problem, row, self.states)
                value, verdict = solvers.check(problem, choices=choices), (StopReason.TIME_LIMIT, Held.INCUMBENT)
                return SolveResult(tuple(row["after"]), value, math.inf, *verdict, self.name, choices=choices)
        return solve_exactly(problem)

    def check_alone(self, beliefs: list[Row]) -> None:
        """Check decisions without a replay, as far as they do not depend on what tasks have done."""
        specs, start_ns = {task.name: task for task in self.inputs.tasks}, self.inputs.log.start_ns
        for number, row in enumerate(self.rows if self.is_static and "policy" not in self.code else ()):
            for name in row["tasks"]:
                points = [belief for belief in beliefs if (belief["event"], belief["task"]) == (row["event"], name)]
                if points:
                    curve = zip(*((point["nodes"], point["throughput"]) for point in points), strict=True)
                    specs[name] = replace(specs[name], scaling=ScalingCurve(*curve))
            pairs = zip(row["tasks"], row["before"], strict=True)
            states = [TaskState(specs[name], nodes, 0.0, 0.0, start_ns) for name, nodes in pairs]
            self.check(number, states, row["nodes"], (row["time"] - start_ns) / NS_PER_S)

    def check(self, number: int, states: list[TaskState], nodes: int, now_s: float) -> None:
        """Check what a decision says of itself, its counts and value, and whether anything better is possible."""
        row, where, expect = self.rows[number], f"decisions.parquet row {number}", self.findings.expect
        status, by, is_kept, config = row["held"], row["decided_by"], row["held"] == "kept", self.inputs.config
        marks = {
            "stop_reason": row["stop_reason"] in _STOPS.get(status, tuple(StopReason)),
            "held": status in HELD and (row["objective"] is None) == is_kept and (status != "claimed" or self.code),
            "decided_by": by in tuple(DecidedBy) and (by == "kept") == is_kept,
            "backend_s": by != "backend" or row["backend_s"] is not None,
            "solve_s": 0 <= (row["backend_s"] or 0.0) <= row["solve_s"],
            "model_rows": (row["model_rows"] is None) == (row["model_columns"] is None),
            "solver": row["solver"] in (config.solver, config.fallback) or self.code & {"solver", "fallback"},
        }
        for column, holds in marks.items():
            expect(holds, f"{where} {column}: {row[column]} does not go with {status}, decided by {by}")
        if is_kept:
            self.findings.unchecked["decisions.parquet objective, bound: no solver had an answer"] += 1
            return
        tables = [self._values(state, now_s) for state in states]
        problem = self._problem(states, tables, nodes, now_s)
        try:
            worth = solvers.check(problem, choices=pick_options(problem, row, states))
        except ValueError as fault:
            expect(False, f"{where} after: {row['after']} cannot be: {fault}")
            return
        if "objective" in self.code:
            self.findings.unchecked["decisions.parquet objective, bound: by code of yours, see --objective"] += 1
            return
        scale = math.fsum(float(np.abs(table).max()) for table in tables)
        self.findings.compare(f"{where} objective", row["objective"], worth, 1e-9 * scale)
        self._check_optimum(row, where, problem, worth)

    def _check_optimum(self, row: Row, where: str, problem: AllocationProblem, worth: float) -> None:
        """Check gap and bound; solve the decision again, and compare."""
        findings, bound, gap, config = self.findings, row["bound"], row["gap"], self.inputs.config
        slack = PROVEN * max(1.0, abs(worth))
        if row["solver"] == EqualShare.name:
            shares = EqualShare(strict_published=config.strict_published or config.compat == "published")
            findings.compare(f"{where} after", tuple(row["after"]), shares.solve(problem, Limits()).counts)
        if row["held"] == "optimal":
            findings.compare(f"{where} gap", gap, 0.0)
            findings.compare(f"{where} bound", bound, worth, max(slack, config.mip_gap * abs(worth)))
        elif gap is not None and worth:
            findings.compare(f"{where} gap", gap, max(0.0, (bound - worth) / abs(worth)), 1e-9)
        best = solve_exactly(problem) if bound is not None else None
        if best is None or best.held is not Held.OPTIMAL:
            findings.unchecked["decisions.parquet bound: none, or too large to be solved again"] += 1
            return
        least, text = best.objective - slack, f"but {best.objective} is possible"
        findings.expect(bound >= least, f"{where} bound: {bound}, {text}")
        holds = row["held"] not in ("optimal", "claimed") or worth >= least - config.mip_gap * abs(best.objective)
        findings.expect(holds, f"{where} held: {row['held']} with {worth}, {text}")

    def _values(self, state: TaskState, now_s: float) -> Floats:
        """Values ``Tfwd O(n) - r (Tcup [n > C] + Tcdw [n < C])``, by power limit and count from 0 on."""
        spec, before, key = state.spec, state.nodes, (id(state.spec), id(state.modes[0]), state.nodes)
        cached = self._tables.get(key)
        if cached is not None and self.is_static and cached[0].modes == state.modes:
            return cached[1]
        counts = np.arange(spec.max_nodes + 1)
        credit: Floats = np.array([self(replace(state, spec=mode), counts, now_s) for mode in state.modes])
        table = self.settings.forward_time_s * credit
        if before >= spec.min_nodes:
            at_stake = float(self(state, counts, now_s)[before])
            grow_s, shrink_s = spec.change_s(before)
            table = table - at_stake * np.where(counts > before, grow_s, shrink_s) * (counts != before)
        elif self.settings.startup_cost == "full":
            table = table - credit * spec.start_s(slice(None)) * (counts > before)
        self._tables[key] = state, table
        return table

    def _problem(self, states: list[TaskState], tables: list[Floats], nodes: int, now_s: float) -> AllocationProblem:
        """The decision as the specification has it."""
        options, cap, idle_w = [], self.inputs.config.power_cap, self.settings.idle_node_w
        for state, table in zip(states, tables, strict=True):
            own = state.nodes, state.spec.min_nodes, state.spec.max_nodes
            counts = solvers.counts_on_offer(*own[1:])
            values, uses, some = table.max(axis=0)[counts], None, counts[1:]
            if cap is not None:  # each power limit at each count
                above_w = [training_power_w(mode, state.progress)[some] - idle_w * some for mode in state.modes]
                uses = np.append(0.0, np.maximum(0.0, above_w).T.ravel())[None]
                values = np.append(table[0, 0], table[:, some].T.ravel())
                counts = np.append(0, np.repeat(some, len(above_w)))
            options.append(TaskOptions(counts, values, *own, uses))
        cap_w = value_at(self.inputs.power_cap_w, now_s + 1e-9)
        spare_w = () if cap is None else (max(0.0, cap_w / self.settings.pue - nodes * idle_w),)
        problem = AllocationProblem(tuple(options), nodes, capacities=spare_w)
        return with_constraints(problem, self.constraints(problem, states), "objective")


def pick_options(problem: AllocationProblem, row: Row, states: list[TaskState]) -> tuple[int, ...]:
    """Options that a row takes, by its counts and power limits; a ValueError if one is not on offer."""
    choices, limits = [], row.get("power_limit_w") or [None] * len(states)
    for state, task, count, limit_w in zip(states, problem.tasks, row["after"], limits, strict=True):
        place = [mode.run and mode.run.power_limit_w for mode in state.modes].index(limit_w)
        fits = np.flatnonzero(task.counts == count).tolist() or [len(task.counts)]
        choices.append(fits[place % len(fits)])
    return tuple(choices)


def solve_exactly(problem: AllocationProblem) -> SolveResult:
    """The optimum, by `dp`, or by `cbc` with constraints that it does not take."""
    name = "cbc" if problem.rows or problem.floor is not None else "dp"
    return registry.solve(registry.get_solver(name), problem, Limits(time_s=60.0))


def replay_again(run: RecordedRun, inputs: Inputs, judge: DecisionJudge) -> RunResult:
    """The result of the same run, by its recorded decisions; what only the run knows is copied from its records."""
    summary, config = run.summary, inputs.config
    is_cut, has_failed = (summary["end_reason"] == reason for reason in ("interrupted", "failed"))
    settings = replace(inputs.settings, objective=judge, solver=judge, fallback=None)
    limited = replace(config, baseline=False, max_events=max(1, summary["events"]) if is_cut else config.max_events)
    limited = replace(limited, until=summary["window_s"]) if has_failed else limited  # at a decision, which is left out
    again = run_replay(inputs=replace(inputs, config=limited, settings=settings), observers=[judge])
    for number in sorted(number for due in judge.due.values() for number in due):
        judge.findings.expect(False, f"decisions.parquet row {number} time: no decision is due then")
    records = []
    for record, number in zip(again.recording.decisions, judge.judged, strict=True):
        row = run.decisions[number] | {"held": run.decisions[number]["held"].replace("kept", "nothing")}
        kinds = {name: kind(row[name]) for name, kind in _KINDS.items() if row[name] in tuple(kind)}
        copied = {name: row[name] for name in (*_COPIED, *judge.code & {"objective"})}
        records.append(replace(record, **copied | kinds) if number >= 0 else record)
    reason = summary["end_reason"] if is_cut or has_failed else again.recording.reason
    recording = replace(again.recording, decisions=Table.of(DecisionRecord, records), reason=reason)
    is_compared = config.baseline and not judge.code and not summary["partial"]
    compared = compute_efficiency(inputs, recording, lambda: False) if is_compared else None
    is_partial = is_cut or has_failed or (config.baseline and summary["efficiency_horizon_s"] is None)
    timings = {name: summary[name] for name in _CLOCKS}
    changes: dict[str, Any] = {"timings": timings, "efficiency": compared, "is_partial": is_partial}
    return replace(again, inputs=inputs, recording=recording, **changes)


def compare_tables(file: str, recorded: pa.Table, again: pa.Table, findings: Findings) -> None:
    """Compare a table with the one computed again, column by column."""
    findings.compare(f"{file} rows", recorded.num_rows, again.num_rows)
    rows = min(recorded.num_rows, again.num_rows)
    for name in set(recorded.column_names) - set(again.column_names):
        findings.unchecked[f"{file} {name}: a column that is not known"] += 1
    for name in again.column_names:
        if not findings.expect(name in recorded.column_names, f"{file} {name}: no such column"):
            continue
        theirs, mine = recorded[name].to_pylist()[:rows], again[name].to_pylist()[:rows]
        slack = 1e-12 * max([1.0, *(abs(value) for value in mine if isinstance(value, float))])
        pairs = enumerate(zip(theirs, mine, strict=True))
        wrong = [place for place, (one, two) in pairs if one != two and not is_close(one, two, slack)]
        findings.checked += rows
        more = f" ({len(wrong)} rows differ)" if len(wrong) > SHOWN else ""
        for place in wrong[:SHOWN]:
            findings.expect(False, f"{file} row {place} {name}: {theirs[place]} recorded, {mine[place]} computed{more}")


def compare_summaries(recorded: Row, again: Row, code: set[str], findings: Findings) -> None:
    """Compare all figures of the summary with those computed again."""
    names = {*_UNCHECKED, *code, *(f"settings.{name}" for name in code)}
    if code or recorded["partial"]:  # there was no comparison with constant pools
        names |= {name for name in recorded if name.startswith(("efficiency", "ideal_", "loss_"))}
    theirs, mine = (pd.json_normalize(summary).to_dict("records")[0] for summary in (recorded, again))
    scale = 1e-12 * math.fsum(abs(value or 0.0) for key, value in mine.items() if key.endswith(("_work", "work_done")))
    uncompared = set()
    for key in sorted(theirs.keys() | mine.keys()):
        top = key.partition(".")[0]
        is_known = key in mine or (top != "settings" and top in again)
        if is_known and not {key, top} & names:
            findings.compare(f"summary.json {key}", theirs.get(key), mine.get(key), scale if "work" in key else 0.0)
        elif top != "inputs":  # whose checksums were compared
            uncompared.add(top if top in names else key)
    findings.unchecked[f"summary.json {', '.join(sorted(uncompared))}: not computed again, or unknown"] = 1


def check_nodes(run: RecordedRun, inputs: Inputs, findings: Findings) -> set[tuple[int, str]]:
    """Check that nodes are owned once, idle while they are, and as many as decided; return who lost some, and when."""
    log, names, end_ns = inputs.log, [task.name for task in inputs.tasks], instant_ns(run.summary["window_end"])
    columns = {"time": run.tables[ALLOCATION.file]["time"].to_pylist()}
    for column, values in (("node", log.nodes), ("task", names)):  # by number, -1 for none
        numbers = {name: number for number, name in enumerate(values)}
        columns[column] = [numbers.get(name, -1) for name in run.tables[ALLOCATION.file][column].to_pylist()]
    moves = pd.DataFrame(columns, dtype=np.int64).rename_axis("row").reset_index().sort_values("time", kind="stable")
    moves["former"] = moves.groupby("node")["task"].shift(fill_value=-1)
    changes = pd.DataFrame({"time": log.time_ns, "node": log.node.astype(np.int64), "idle": log.idle})
    changes["busy_from"] = changes.groupby("node")["time"].shift(-1, fill_value=np.iinfo(np.int64).max)
    moves = pd.merge_asof(moves, changes, on="time", by="node")
    ends, is_idle = moves.groupby("node")["time"].shift(-1, fill_value=end_ns), moves["idle"].eq(True)
    gives, is_owned = moves["task"] >= 0, moves["former"] >= 0
    rules = {
        "is owned already": gives & is_owned,
        "is released, but nobody owns it": ~gives & ~is_owned,
        "is not idle": gives & ~is_idle,
        "is busy before it is released": gives & (moves["busy_from"] < ends),
    }
    for rule, broken in rules.items():
        findings.checked += len(moves)
        for row in moves["row"][broken].head(SHOWN).tolist():
            findings.expect(False, f"allocation.parquet row {row} node: {rule}")
    times, places = np.unique(moves["time"], return_inverse=True)
    counts = np.zeros((times.size, len(names) + 1), dtype=np.int64)  # by task, and of none
    np.add.at(counts, (places, moves["task"]), 1)
    np.add.at(counts, (places, moves["former"]), -1)
    counts = counts.cumsum(axis=0)
    spans_s = np.diff(np.append(times, end_ns)) / NS_PER_S
    recorded = run.tables[TASKS.file]["node_s"].to_pylist()
    for place, (node_s, summed_s) in enumerate(zip(recorded, (spans_s @ counts[:, :-1]).tolist(), strict=False)):
        findings.compare(f"tasks.parquet row {place} node_s, by allocation.parquet", node_s, summed_s, 1e-6)
    for time, place in {row["time"]: place for place, row in enumerate(run.decisions)}.items():  # the last of each
        at, row = np.searchsorted(times, time, side="right"), run.decisions[place]
        owned = dict(zip(names, counts[at - 1].tolist() if at else [0] * len(names), strict=False))
        after = [owned.get(name, 0) for name in row["tasks"]]
        findings.compare(f"decisions.parquet row {place} after, by allocation.parquet", row["after"], after)
    hits = moves[is_owned & ~gives & ~is_idle]
    if inputs.settings.give_way == "chosen":  # then nodes are lost only where all leave, or nothing is decided
        rows = run.tables[STEPS.file].to_pydict()
        lossy = [time for time, idle in zip(rows["evtTime"], rows["nNd"], strict=True) if not idle]
        lossy += [] if run.summary["end_reason"] == "finished" else [end_ns]
        hits = hits[hits["time"].isin(lossy)]
    return {(time, names[task]) for time, task in zip(hits["time"], hits["former"], strict=True)}


def check_work(run: RecordedRun, inputs: Inputs, hits: set[tuple[int, str]], findings: Findings) -> None:
    """Derive work and costs of plain tasks from counts, curves and costs, by the tables alone."""
    settings, end_ns = inputs.settings, instant_ns(run.summary["window_end"])
    specs = {task.name: task for task in inputs.tasks if task.saves is None and task.tuning is None}
    if settings.give_way == "chosen" and list_kinds(inputs.log):
        findings.unchecked["tasks.parquet work_done, by decisions: nodes of some partitions cost more to exchange"] += 1
        specs = {}
    specs = {} if settings.initial == "random" else specs  # which is no decision
    if run.summary["end_reason"] in ("max_events", "interrupted"):  # nothing that was due at the end has happened
        hits = {hit for hit in hits if hit[0] != end_ns}
    tasks = run.tables[TASKS.file].to_pylist()
    completed = {row["task"]: row["completed"] for row in tasks if settings.completions == "reported"}
    times = [*run.tables[STEPS.file]["evtTime"].to_pylist(), end_ns, end_ns]
    totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    unbooked_ns = end_ns if settings.compat == "published" else None  # what is decided then costs in no later row
    for row in (row for row in run.decisions if row["time"] != unbooked_ns):
        until = times[min(bisect_right(times, row["time"]), len(times) - 1)]
        is_short = sum(row["before"]) > row["nodes"]  # then who shrinks gives nodes back
        for name, before, after in zip(row["tasks"], row["before"], row["after"], strict=True):
            if name not in specs or not 0 <= max(before, after) <= specs[name].max_nodes:
                continue
            spec, cost, books = specs[name], 0.0, totals[name]
            rate = float(spec.rates[after]) if after >= spec.min_nodes else 0.0
            if after != before and (before >= spec.min_nodes or (before and settings.compat == "published")):
                cost = float(spec.rates[before]) * spec.change_s(before)[after < before]
            elif after > before and settings.startup_cost == "full":
                cost = rate * spec.grow_cost_s
            is_hit = row["time"] < until and (until, name) in hits and completed.get(name) != until
            loss = spec.shrink_cost_s * rate if is_hit else 0.0
            books[0] = min(books[0] + rate * (until - row["time"]) / NS_PER_S - cost - loss, spec.work)
            books[3 if is_short and after < before else 1] += cost
            books[2] += loss
    for place, row in enumerate(tasks):
        columns = ("work_done", "rescale_cost", "preemption_cost", "give_back_cost")
        for column, total in zip(columns, totals[row["task"]], strict=True):
            if row["task"] in specs and column in row:
                slack = 1e-8 * (specs[row["task"]].work + specs[row["task"]].rates.max())  # times are in ns
                findings.compare(f"tasks.parquet row {place} {column}, by decisions", row[column], total, slack)
