"""Settings of an allocator."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

import solvers
from bftrainer.errors import SettingsError
from bftrainer.model import Objective
from bftrainer.model.type_checks import convert_fields, require

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
    give_way : {"named", "chosen"}
        Whether the nodes that leave are those that are named, or as many of their kind as the decision frees.
    notice_s : float
        Seconds before nodes leave from which on tasks that save can save for it.

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
    give_way: Literal["named", "chosen"] = "named"
    notice_s: float = 0.0

    def __post_init__(self) -> None:
        limits = replace(self.limits) if isinstance(self.limits, solvers.Limits) else self.limits
        object.__setattr__(self, "limits", limits)
        convert_fields(self, SettingsError)
        convert_fields(limits, SettingsError, "{} of limits")
        require(
            SettingsError,
            (
                callable(self.objective),
                f"objective to be a callable credit(task, counts, now_s), got {self.objective!r}",
            ),
            (_is_solver(self.solver), f"solver to be the name of a solver, or one, got {self.solver!r}"),
            (
                self.fallback is None or _is_solver(self.fallback),
                f"fallback to be the name of a solver, or one, got {self.fallback!r}",
            ),
            (0 < self.forward_time_s < math.inf, f"forward_time_s > 0, got {self.forward_time_s}"),
            (self.max_tasks >= 1, f"max_tasks >= 1, got {self.max_tasks}"),
            (self.seed >= 0, f"seed >= 0, got {self.seed}"),
            (0 < limits.time_s < math.inf, f"a finite time limit > 0 s, got {limits.time_s}"),
            (0 <= limits.gap < 1, f"0 <= MIP gap < 1, got {limits.gap}"),
            (limits.threads >= 1, f"threads >= 1, got {limits.threads}"),
            (self.power_cap_w >= 0, f"a power cap of 0 W or more, got {self.power_cap_w}"),
            (0 <= self.idle_node_w < math.inf, f"idle power of 0 W or more, got {self.idle_node_w}"),
            (
                self.compat == "none" or (self.give_way, self.notice_s) == ("named", 0.0),
                f"named nodes and no notice with compat published, got {self.give_way} and {self.notice_s} s",
            ),
            (self.notice_s >= 0, f"a notice of 0 s or more, got {self.notice_s}"),
            (1 <= self.pue < math.inf, f"a PUE of 1 or more, got {self.pue}"),
        )


def _is_solver(value: object) -> bool:
    return isinstance(value, str) or callable(getattr(value, "solve", None))
