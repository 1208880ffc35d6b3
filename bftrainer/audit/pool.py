"""Pool of idle nodes, and the task that holds each: moves follow from the decided counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from bftrainer.audit.input_files import Log
from bftrainer.audit.parts import Part

BUSY, FREE = -2, -1


class Pool:
    """Nodes of a log by number, and the tasks that hold them.

    `arriving` says that nodes go in the order in which they came, not by number.
    """

    def __init__(self, log: Log, tasks: Sequence[str], *, arriving: bool = False) -> None:
        self._names, self._tasks = log.nodes, list(tasks)
        self._number = {name: number for number, name in enumerate(tasks)}
        self._owner = np.full(len(log.nodes), BUSY, dtype=np.int64)
        self._moved: dict[str, list[str | None]] = defaultdict(list)
        self.size = 0
        self._came, self._changes, self._arriving = np.zeros(len(log.nodes), dtype=np.int64), 0, arriving
        self.part = Part("nodes move as decided: none migrates, and the lowest-numbered go first")

    def change(self, rows: Iterable[tuple[int, int, bool]], spared: set[str]) -> tuple[Counter[str], int, int]:
        """Apply rows of the log; return how many nodes each task lost, and how many left and joined.

        What a task of `spared` loses is not its loss any more: it is through with its work.
        """
        lost: Counter[str] = Counter()
        left = joined = 0
        rows = list(rows)
        self._changes += self._arriving
        for _, node, idle in rows:
            if not idle:
                holder = int(self._owner[node])
                if holder >= 0:
                    self._moved[self._names[node]].append(None)
                    lost[self._tasks[holder]] += 1
                self._owner[node], left = BUSY, left + 1
        for _, node, idle in rows:
            if idle:
                self._owner[node], self._came[node], joined = FREE, self._changes, joined + 1
        self.size += joined - left
        return Counter({name: count for name, count in lost.items() if name not in spared}), left, joined

    def held(self, task: str) -> list[str]:
        """Nodes that a task holds."""
        return [self._names[node] for node in np.flatnonzero(self._owner == self._number[task])]

    def free(self, task: str) -> None:
        """Take all nodes from a task."""
        self.give(None, np.flatnonzero(self._owner == self._number[task]))

    def move(self, changes: Iterable[tuple[str, int]]) -> None:
        """Change task counts: shrinking tasks give up their lowest-numbered nodes, growing ones then take such ones."""
        changes = list(changes)
        for task, change in changes:
            if change < 0:
                self.give(None, self._first(self._owner == self._number[task])[:-change])
        for task, change in changes:
            if change > 0:
                self.give(task, self._first(self._owner == FREE)[:change])

    def _first(self, some: np.ndarray) -> np.ndarray:
        nodes = np.flatnonzero(some)
        return nodes[np.argsort(self._came[nodes], kind="stable")]

    def draw(self, rng: np.random.Generator, tasks: Sequence[tuple[str, int, int]]) -> list[np.ndarray]:
        """Draw each idle node to one of the tasks (name, least, most); the nodes that each would keep."""
        idle = self._first(self._owner != BUSY)
        drawn = rng.integers(len(tasks), size=idle.size)
        nodes = [idle[drawn == place][:most] for place, (_, _, most) in enumerate(tasks)]
        return [each if each.size >= least else each[:0] for each, (_, least, _) in zip(nodes, tasks, strict=True)]

    def give(self, task: str | None, nodes: np.ndarray) -> None:
        """Give nodes to a task, or to none."""
        self._owner[nodes] = FREE if task is None else self._number[task]
        for node in nodes.tolist():
            self._moved[self._names[node]].append(task)

    def compare(self, when: str, recorded: Iterable[tuple[int, str, str | None]]) -> None:
        """Compare an instant's moves with those recorded, node by node."""
        theirs: dict[str, list[str | None]] = defaultdict(list)
        for _, node, task in recorded:
            theirs[node].append(task)
        for node in self._moved.keys() | theirs.keys():
            mine = self._moved.get(node, [])
            self.part.expect(theirs[node] == mine, "{} {}: goes to {} for {}", when, node, theirs[node], mine)
        self._moved.clear()
