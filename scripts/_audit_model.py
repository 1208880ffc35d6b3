"""The audit's own arithmetic: values of an allocation, the best one, and the booking of progress.

Written from the specification alone (Liu et al., arXiv:2106.12091, section 3), so that it shares no error with the
package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from _audit_inputs import NS, Task

# Objectives that are sums of a task's credit; others cannot be audited for optimality.
CREDITS: dict[str, Callable[[Task], np.ndarray]] = {
    "as-given": lambda task: task.credit,
    "throughput": lambda task: task.rate,
    "scaling-efficiency": lambda task: task.rate / task.rate[1],
    "priority": lambda task: task.weight * task.credit,
}


def values(task: Task, credit: np.ndarray, current: int, forward_s: float, full_start: bool) -> np.ndarray:
    """Value of every node count, -inf where the bounds forbid it.

    A start is free, or with `full_start` costs what the task would earn meanwhile.
    """
    counts = np.arange(task.most + 1)
    current = min(current, task.most)
    before = credit[current] if current >= task.least else 0.0
    table = forward_s * credit - before * np.where(counts > current, task.grow_s, task.shrink_s) * (counts != current)
    if full_start and current < task.least:
        table = table - credit * task.grow_s * (counts > current)
    table[1 : task.least] = -np.inf
    return table


def optimum(tables: Sequence[np.ndarray], nodes: int) -> float:
    """Largest sum of values over counts that share `nodes`: max-plus dynamic programme, one task after the other."""
    best = np.zeros(1)
    for table in tables:
        size = min(nodes, best.size + table.size - 2) + 1
        old = np.full(size, -np.inf)
        old[: best.size] = best[:size]
        new = np.full(size, -np.inf)
        for count in np.flatnonzero(np.isfinite(table[:size])):
            np.maximum(new[count:], old[: size - count] + table[count], out=new[count:])
        best = new
    return float(best.max())


def rescale_cost(task: Task, before: int, after: int, full_start: bool) -> float:
    """Work that a decision costs: its rate before, for as long as the rescaling takes."""
    if before == after:
        return 0.0
    if before < task.least:
        return float(task.rate[after]) * task.grow_s if full_start and after > before else 0.0
    return float(task.rate[before]) * (task.grow_s if after > before else task.shrink_s)


@dataclass
class Account:
    """What one task has done and paid so far; `pending` is booked at the next event."""

    task: Task
    count: int = 0
    rate: float = 0.0
    pending: float = 0.0
    progress: float = 0.0
    rescale_cost: float = 0.0
    preemption_cost: float = 0.0
    node_s: float = 0.0
    rescales: int = 0
    preemptions: int = 0
    started_ns: int | None = None
    completed_ns: int | None = None

    def advance(self, elapsed_ns: int) -> None:
        """Book the time since the last event."""
        self.progress += elapsed_ns / NS * self.rate - self.pending
        self.rescale_cost += self.pending
        self.node_s += elapsed_ns / NS * self.count
        self.pending = 0.0

    def preempt(self, lost: int) -> None:
        """Lose nodes to the main scheduler: one cost, however many."""
        cost = self.task.shrink_s * self.rate
        self.progress -= cost
        self.preemption_cost += cost
        self.preemptions += 1
        self.count -= lost

    def complete(self, time_ns: int) -> None:
        """All work is done; what was done beyond it does not count."""
        self.progress, self.completed_ns, self.count, self.rate = self.task.work, time_ns, 0, 0.0

    def adopt(self, count: int, full_start: bool, time_ns: int) -> None:
        """Follow a decision, as far as the task can: counts beyond its curve are reported elsewhere."""
        count = min(max(count, 0), self.task.most)
        self.pending += rescale_cost(self.task, self.count, count, full_start)
        self.rescales += count != self.count and self.count >= self.task.least  # a start is none
        self.hold(count, time_ns)

    def hold(self, count: int, time_ns: int) -> None:
        """Have so many nodes from now on; the first time that gives any work is the start."""
        self.count = count
        if self.started_ns is None and self.task.speed(count) > 0.0:
            self.started_ns = time_ns

    def settle(self) -> None:
        """The rate until the next event."""
        self.rate = self.task.speed(self.count)


@dataclass
class Queue:
    """Tasks that wait, in file order, and those that are active, in order of admission."""

    waiting: list[Account]
    limit: int
    active: dict[str, Account] = field(default_factory=dict)

    def admit(self, time_ns: int) -> bool:
        """Admit what is submitted, up to the limit; tells whether anything was."""
        later = []
        for account in self.waiting:
            if len(self.active) < self.limit and account.task.submit_ns <= time_ns:
                self.active[account.task.name] = account
            else:
                later.append(account)
        admitted = len(later) < len(self.waiting)
        self.waiting = later
        return admitted
