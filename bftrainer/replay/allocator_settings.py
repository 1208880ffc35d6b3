"""Settings of an allocator."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

import solvers
from bftrainer.errors import SettingsError
from bftrainer.model import Objective
from bftrainer.model.type_checks import real_number, whole_number

INITIAL_SOLVE, INITIAL_EMPTY, INITIAL_RANDOM = "solve", "empty", "random"
BUSY, FREE = -2, -1


class Status(IntEnum):
    """Status of a task."""

    WAITING = 0
    ACTIVE = 1
    DONE = 2
    FAILED = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of an allocator.

    Parameters
    ----------
    objective : Objective
        A callable ``credit(task_state, counts, now_s)``; its method ``constraints(problem, tasks)``, if any, returns
        constraints to add to the decision.
    solver : str or solvers.Solver
        A registered solver's name, or a solver.
    forward_time_s : float
        The forward-looking time: how long a decision is expected to stand.
    max_tasks : int
        Maximum number of active tasks.
    limits : solvers.Limits
        Time limit, gap, threads and pruning of one solve.
    startup_cost : {"none", "full"}
        Whether a start from nothing is free, as published, or costs `grow_cost_s` at the new rate.
    initial : {"solve", "empty", "random"}
        The allocation at the first decision.
    completions : {"reported", "noticed"}
        Whether tasks complete by completion events, or when an event finds their work done.
    compat : {"none", "published"}
        Whether to do as the published replayer where it differs (docs/replay.md).
    fallback : str or solvers.Solver, optional
        Solver to ask when the first one fails or cannot run.
    seed : int
        Seed of the random initial allocation.
    power_cap_w : float
        Cap on the draw of harvested nodes at the start, in watts; later caps come as events.
    idle_node_w : float
        Power of a node that does not train.
    pue : float
        Watts that the site draws for each watt of its nodes.

    Raises
    ------
    SettingsError
        If a field is of another type, a number out of range or a choice unknown.
    """

    objective: Objective
    solver: str | solvers.Solver = "cbc"
    forward_time_s: float = 10.0
    max_tasks: int = 10
    limits: solvers.Limits = solvers.Limits()  # noqa: RUF009 - frozen
    startup_cost: Literal["none", "full"] = "none"
    initial: Literal["solve", "empty", "random"] = "solve"
    completions: Literal["reported", "noticed"] = "reported"
    compat: Literal["none", "published"] = "none"
    fallback: str | solvers.Solver | None = None
    seed: int = 0
    power_cap_w: float = math.inf
    idle_node_w: float = 0.0
    pue: float = 1.0

    def __post_init__(self) -> None:
        self._check_types()
        if not (math.isfinite(self.forward_time_s) and self.forward_time_s > 0):
            raise SettingsError(f"Expected forward_time_s > 0, got {self.forward_time_s}.")
        if self.max_tasks < 1:
            raise SettingsError(f"Expected max_tasks >= 1, got {self.max_tasks}.")
        if self.seed < 0:
            raise SettingsError(f"Expected seed >= 0, got {self.seed}.")
        if not (math.isfinite(self.limits.time_s) and self.limits.time_s > 0):
            raise SettingsError(f"Expected a finite time limit > 0 s, got {self.limits.time_s}.")
        if not 0 <= self.limits.gap < 1:
            raise SettingsError(f"Expected 0 <= MIP gap < 1, got {self.limits.gap}.")
        if self.limits.threads < 1:
            raise SettingsError(f"Expected threads >= 1, got {self.limits.threads}.")
        if not self.power_cap_w >= 0:
            raise SettingsError(f"Expected a power cap of 0 W or more, got {self.power_cap_w}.")
        if not 0 <= self.idle_node_w < math.inf:
            raise SettingsError(f"Expected idle power of 0 W or more, got {self.idle_node_w}.")
        if not 1 <= self.pue < math.inf:
            raise SettingsError(f"Expected a PUE of 1 or more, got {self.pue}.")
        for name, value, known in (
            ("startup_cost", self.startup_cost, ("none", "full")),
            ("initial", self.initial, (INITIAL_SOLVE, INITIAL_EMPTY, INITIAL_RANDOM)),
            ("completions", self.completions, ("reported", "noticed")),
            ("compat", self.compat, ("none", "published")),
        ):
            if not isinstance(value, str) or value not in known:
                raise SettingsError(f"Expected {name} to be one of {', '.join(known)}, got {value!r}.")

    def _check_types(self) -> None:
        if not callable(self.objective):
            raise SettingsError(
                f"Expected objective to be a callable credit(task, counts, now_s), got {self.objective!r}."
            )
        for name in ("solver", "fallback"):
            value = getattr(self, name)
            missing = name == "fallback" and value is None
            if not missing and not isinstance(value, str) and not callable(getattr(value, "solve", None)):
                raise SettingsError(f"Expected {name} to be the name of a solver, or one, got {value!r}.")
        if not isinstance(self.limits, solvers.Limits):
            raise SettingsError(f"Expected limits to be Limits, got {self.limits!r}.")
        for name in ("max_tasks", "seed"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), SettingsError))
        for name in ("forward_time_s", "power_cap_w", "idle_node_w", "pue"):
            object.__setattr__(self, name, real_number(name, getattr(self, name), SettingsError))
        limits = replace(
            self.limits,
            threads=whole_number("threads of limits", self.limits.threads, SettingsError),
            time_s=real_number("time_s of limits", self.limits.time_s, SettingsError),
            gap=real_number("gap of limits", self.limits.gap, SettingsError),
            effort=real_number("effort of limits", self.limits.effort, SettingsError),
        )
        object.__setattr__(self, "limits", limits)
        if not isinstance(limits.prune, bool):
            raise SettingsError(f"Expected prune of limits to be true or false, got {limits.prune!r}.")
