"""One answer of the allocator."""

from __future__ import annotations

from dataclasses import dataclass

from solvers.problem import SolveResult

__all__ = ["Decision"]


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Who gets how many nodes from now on, and which nodes move for it.

    Parameters
    ----------
    time_s : float
        Seconds since the window's start.
    nodes : int
        Idle nodes, held or free.
    tasks : tuple of str, length A
        Active tasks in order of admission.
    before, after : tuple of int, length A
        Node counts around the decision.
    added, removed : dict of str to tuple of str
        Node names that a task gains and gives up; tasks without moves are absent.
    result : SolveResult or None
        What the solver said; None if there was nothing to decide or the allocation was given.
    drawn_w : float, optional
        The most that the pool's nodes draw until the next event, idle ones included; None if no task is tuned.
    cap_w : float, optional
        What they may draw; None without a cap.
    batch_sizes, power_limits_w : tuple of int or None, optional
        Settings of each active task after the decision, None for those not tuned; None if no task is.
    """

    time_s: float
    nodes: int
    tasks: tuple[str, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    added: dict[str, tuple[str, ...]]
    removed: dict[str, tuple[str, ...]]
    result: SolveResult | None = None
    drawn_w: float | None = None
    cap_w: float | None = None
    batch_sizes: tuple[int | None, ...] | None = None
    power_limits_w: tuple[int | None, ...] | None = None
