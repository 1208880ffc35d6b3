"""Ask each question once: what pruning leaves of a plain problem, relative to the least of each task.

Two problems whose tasks with a choice may gain the same from as many nodes have the same best choices, whatever their
other tasks hold. In a replay most such questions come again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from solvers.problem import AllocationProblem, TaskOptions

MOST_ANSWERS = 10_000
Part = Sequence[NDArray[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What is left of a problem without capacities, rows and floor.

    Parameters
    ----------
    least : list of int, length J
        First choice that is left, per task.
    free : list of int, length F
        Tasks with a choice.
    left : list of ndarray of int64, length F
        Choices of these that are left.
    counts, values : list of ndarray, length F
        Nodes and value of these choices, less those of the first.
    nodes : int
        Nodes beside the least of all tasks.
    """

    least: list[int]
    free: list[int]
    left: Part
    counts: list[NDArray[np.int64]]
    values: list[NDArray[np.float64]]
    nodes: int

    @classmethod
    def of(cls, problem: AllocationProblem, part: Part) -> Question:
        """What to ask about `problem` if these choices are left."""
        free = [number for number, left in enumerate(part) if left.size > 1]
        pairs = [(problem.tasks[number], part[number]) for number in free]
        return cls(
            [left.item(0) for left in part],
            free,
            [left for _, left in pairs],
            [task.counts[left] - task.counts[left[0]] for task, left in pairs],
            [task.values[left] - task.values[left[0]] for task, left in pairs],
            problem.nodes - sum([task.counts.item(left[0]) for task, left in zip(problem.tasks, part, strict=True)]),
        )

    @property
    def problem(self) -> AllocationProblem:
        """The question as a problem of its own, whose first options are worth nothing."""
        return AllocationProblem(tuple(map(TaskOptions, self.counts, self.values)), self.nodes)

    @property
    def whole(self) -> Part:
        """All choices of that problem."""
        return [np.arange(left.size) for left in self.left]

    @property
    def key(self) -> bytes:
        """Digest of the question."""
        sizes = [self.nodes, *[left.size for left in self.left]]
        return sha256(b"".join([repr(sizes).encode(), *map(bytes, self.counts), *map(bytes, self.values)])).digest()

    def lifted(self, places: Sequence[int]) -> tuple[int, ...]:
        """Choices of the whole problem, given those of the question's."""
        choices = list(self.least)
        for number, left, place in zip(self.free, self.left, places, strict=True):
            choices[number] = left.item(place)
        return tuple(choices)

    def lowered(self, choices: Sequence[int]) -> tuple[int, ...]:
        """Choices of the question's problem, given those of the whole one."""
        pairs = zip(self.free, self.left, strict=True)
        return tuple([int(left.searchsorted(choices[number])) for number, left in pairs])


class Memory(dict[bytes, tuple[int, ...]]):
    """Proven answers by their question's key; the oldest are forgotten where there are too many."""

    def keep(self, key: bytes, places: tuple[int, ...]) -> None:
        """Remember an answer."""
        if len(self) >= MOST_ANSWERS:
            del self[next(iter(self))]
        self[key] = places
