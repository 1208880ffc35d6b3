"""What a run is made of: one frozen configuration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from bftrainer.errors import SettingsError
from bftrainer.model import NS_PER_S, NodeLog, Objective, TaskSpec, instant_ns
from bftrainer.replay.allocator_settings import Settings
from solvers import Limits, Solver

__all__ = ["ReplayConfig"]


@dataclass(frozen=True, slots=True)
class ReplayConfig:
    """Inputs and settings of one replay; the defaults are the published ones where there are any.

    Parameters
    ----------
    node_log : Path (a str becomes one), NodeLog or None
        None is the embedded sample.
    tasks : Path, sequence of TaskSpec or None
        None is the embedded sample.
    scalability : path, optional
        Of a legacy task set.
    scaling : str, optional
        ``linear`` or ``amdahl:F``, for a legacy task set without scalability.
    first_node, node_count : int
        Which nodes of the log are used; None for all from the first on.
    skip_events : int
        Rows of the log that are dropped from its front.
    since : datetime, float or None
        Where the replay begins, its window's start then; a number is seconds since the log's start.
    until : datetime, float or None
        Where the replay ends at the latest; a number is seconds since the window's start.
    max_events : int, optional
    decide_on : {"all", "nodes"}
        Whether submissions and completions are events too, or noticed at the next row of the log.
    initial : {"solve", "empty", "random"}
    startup_cost : {"none", "full"}
    objective : str or Objective
        A name that `bftrainer.objectives.get_objective` knows (registered, modified, or ``module:callable``), or a
        callable ``credit(task, counts, now_s)``.
    solver, fallback : str or solvers.Solver
        A registered solver's name, or a solver.
    forward_time_s, time_limit_s, mip_gap : float
    threads, max_tasks, seed : int
    prune : bool
    strict_published : bool
        Whether `equal-share` follows the published rule to the letter.
    baseline : bool
        Whether the efficiency against constant pools is computed.
    large_idle : int, optional
        Intervals with as many idle nodes are left out of the second set of shares; a quarter of the nodes by default.
    power_cap : float, Path or None
        What harvested nodes may draw, in watts at the site's meter: constant, or a CSV over time. All tasks must be
        tuned then.
    idle_power_w : float
        What a node draws that does not train.
    pue : float
        Watts at the meter for each watt of the nodes.
    carbon : float, Path or None
        Carbon intensity in gCO2/kWh: constant, or a CSV over time.
    power_options : {"chosen", "pareto", "all"}
        Power limits of a tuned task that decisions choose from: the one its group chose, those on the energy-time
        Pareto front of its batch size, or all that were measured.

    Raises
    ------
    SettingsError
        If a number is out of range.
    """

    node_log: Path | NodeLog | None = None
    tasks: Path | Sequence[TaskSpec] | None = None
    scalability: Path | None = None
    scaling: str | None = None
    first_node: int = 0
    node_count: int | None = None
    skip_events: int = 0
    since: datetime | float | None = None
    until: datetime | float | None = None
    max_events: int | None = None
    decide_on: Literal["all", "nodes"] = "all"
    initial: Literal["solve", "empty", "random"] = "solve"
    startup_cost: Literal["none", "full"] = "none"
    objective: str | Objective = "as-given"
    solver: str | Solver = "cbc"
    fallback: str | Solver | None = None
    forward_time_s: float = 10.0
    time_limit_s: float = 10.0
    mip_gap: float = 1e-9
    threads: int = 1
    max_tasks: int = 10
    seed: int = 0
    prune: bool = True
    strict_published: bool = False
    baseline: bool = True
    large_idle: int | None = None
    power_cap: float | Path | None = None
    idle_power_w: float = 0.0
    pue: float = 1.0
    carbon: float | Path | None = None
    power_options: Literal["chosen", "pareto", "all"] = "chosen"

    def __post_init__(self) -> None:
        for name in ("node_log", "tasks", "scalability", "power_cap", "carbon"):
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, Path(getattr(self, name)))
        for name, least in (
            ("first_node", 0),
            ("skip_events", 0),
            ("node_count", 1),
            ("max_events", 1),
            ("large_idle", 1),
            ("seed", 0),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise SettingsError(f"Expected {name} >= {least}, got {value}.")
        if not callable(self.objective) and not isinstance(self.objective, str):
            raise SettingsError(f"Expected the name of an objective or a callable, got {self.objective!r}.")
        _check_solver("solver", self.solver)
        if self.fallback is not None:
            _check_solver("fallback", self.fallback)
        if self.strict_published and self.solver != "equal-share":
            raise SettingsError(f"Expected strict_published with the solver equal-share, got {self.solver!r}.")
        if self.decide_on not in ("all", "nodes"):
            raise SettingsError(f"Expected decide_on to be all or nodes, got {self.decide_on!r}.")
        if self.power_options not in ("chosen", "pareto", "all"):
            raise SettingsError(f"Expected power_options to be chosen, pareto or all, got {self.power_options!r}.")
        for name in ("power_cap", "carbon"):
            value = getattr(self, name)
            if isinstance(value, int | float) and not 0 <= value < math.inf:
                raise SettingsError(f"Expected {name} of 0 or more, got {value}.")

    def settings(self, objective: Objective, solver: str | Solver) -> Settings:
        """How decisions are made, by that objective and solver.

        Raises
        ------
        SettingsError
            If a number is out of range or a choice unknown.
        """
        return Settings(
            objective=objective,
            solver=solver,
            forward_time_s=self.forward_time_s,
            max_tasks=self.max_tasks,
            limits=Limits(self.time_limit_s, self.mip_gap, self.threads, self.prune),
            startup_cost=self.startup_cost,
            initial=self.initial,
            completions="reported" if self.decide_on == "all" else "noticed",
            fallback=self.fallback,
            seed=self.seed,
            idle_node_w=self.idle_power_w,
            pue=self.pue,
        )

    def start_ns(self, log: NodeLog) -> int:
        """Where the replay of a log begins, in nanoseconds since the Unix epoch.

        Raises
        ------
        SettingsError
            If that is before the log's start, or a date that no log reaches.
        """
        if self.since is None:
            return log.start_ns
        return _instant_ns(log.start_ns, self.since, "since")

    def until_s(self, start_ns: int) -> float:
        """Where the replay ends at the latest, in seconds since the window's start.

        Raises
        ------
        SettingsError
            If that is not after the window's start, or a date that no log reaches.
        """
        if self.until is None:
            return math.inf
        if isinstance(self.until, datetime):
            # Exact, as the times of the log's rows are: one that it names is not missed by a rounding.
            seconds = (_instant_ns(start_ns, self.until, "until") - start_ns) / NS_PER_S
        else:
            seconds = float(self.until)
        if not seconds > 0:
            raise SettingsError(f"Expected --until after the window's start, got {self.until}.")
        return seconds


def _check_solver(option: str, solver: object) -> None:
    """Refuse what is neither a name nor a solver."""
    if isinstance(solver, str):
        return
    if isinstance(solver, type):
        raise SettingsError(
            f"Expected {option} to be a name or a solver, got the class {solver.__name__}: make one of it."
        )
    if not callable(getattr(solver, "solve", None)) or not isinstance(getattr(solver, "name", None), str):
        raise SettingsError(f"Expected {option} to be a name or an object with name and solve, got {solver!r}.")


def _instant_ns(start_ns: int, moment: datetime | float, option: str) -> int:
    """Nanoseconds since the Unix epoch of a moment; a number is seconds after the start."""
    if not isinstance(moment, datetime) and not math.isfinite(moment):
        raise SettingsError(f"Expected --{option} to be a time, got {moment}.")
    try:
        return instant_ns(moment) if isinstance(moment, datetime) else start_ns + round(float(moment) * NS_PER_S)
    except OverflowError as error:
        raise SettingsError(f"--{option}: {error}") from None
