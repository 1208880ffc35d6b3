"""Lives of tasks in a harvest: generations of ranks, what these report, and what throughput and changes cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from bftrainer.harvest.harvest_events import Progressed
from bftrainer.harvest.live_tasks import LiveTask

_LEAST_S = 1.0
"""Shorter stretches of training are not measured."""


class TaskStatus(StrEnum):
    """Where a task stands."""

    WAITING = "waiting"
    ACTIVE = "active"
    DONE = "done"
    PARKED = "parked"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a task's nodes that is under way: when it was decided, with how much work done, and from what."""

    time_s: float
    work: float
    rate: float
    count: int


@dataclass(slots=True)
class Generation:
    """Ranks of a task that run together.

    Parameters
    ----------
    number : int
    nodes : tuple of str
        In the order of ranks.
    port : int
        At which they meet.
    live : set of str
        Nodes whose rank has not ended.
    change : Change or None
        The one that led to it.
    asked : set of str
        Nodes whose rank was asked to end.
    lost : bool
        Whether one of its nodes was lost.
    failed : str or None
        What the first rank said that ended by itself and badly.
    first, last : Progressed or None
        Its reports.
    measured : Progressed or None
        Report up to which its throughput was taken in.
    """

    number: int
    nodes: tuple[str, ...]
    port: int
    live: set[str]
    change: Change | None
    asked: set[str] = field(default_factory=set)
    lost: bool = False
    failed: str | None = None
    first: Progressed | None = None
    last: Progressed | None = None
    measured: Progressed | None = None

    @property
    def rate(self) -> float:
        """Work per second while it trained; 0 if that is not known."""
        if self.first is None or self.last is None or self.last.time_s - self.first.time_s < _LEAST_S:
            return 0.0
        return max(0.0, (self.last.work - self.first.work) / (self.last.time_s - self.first.time_s))

    def unmeasured(self) -> tuple[float, float]:
        """Work and seconds since this was asked last; nothing if they are too few."""
        if self.measured is None or self.last is None or self.last.time_s - self.measured.time_s < _LEAST_S:
            return 0.0, 0.0
        found = self.last.work - self.measured.work, self.last.time_s - self.measured.time_s
        self.measured = self.last
        return found


@dataclass(slots=True)
class TaskLife:
    """A task: where it stands, the nodes that it is to have, and what was measured of it.

    Attributes
    ----------
    seen : dict of int to (float, float)
        By count of nodes, work and seconds.
    costs : list of (str, float)
        Changes, ``grow``, ``shrink`` or ``start``, and the seconds of progress that each cost.
    generations, failures : int
        How many there were; failures since there was progress.
    """

    task: LiveTask
    status: TaskStatus = TaskStatus.WAITING
    nodes: set[str] = field(default_factory=set)
    current: Generation | None = None
    generations: int = 0
    work: float = 0.0
    saved: float = 0.0
    rate: float = 0.0
    failures: int = 0
    failed_at: float = -1.0
    retry_s: float = 0.0
    why: str = ""
    seen: dict[int, tuple[float, float]] = field(default_factory=dict)
    costs: list[tuple[str, float]] = field(default_factory=list)
    change: Change | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.task.name

    @property
    def is_over(self) -> bool:
        """Whether it will not run any more."""
        return self.status in (TaskStatus.DONE, TaskStatus.PARKED, TaskStatus.REMOVED)

    def report(self, event: Progressed) -> float:
        """Take in a report; the work by which it is behind what had been saved, if it is the first of a generation."""
        generation, behind = self.current, 0.0
        if generation is None or event.generation != generation.number:
            return 0.0
        if generation.first is None:
            generation.first = generation.measured = event
            behind = max(0.0, self.saved - event.work)
        generation.last = event
        # Where a script does not say what it has saved, that is what it was seen to go on from.
        self.work, self.saved = event.work, event.saved if event.saved >= 0 else generation.first.work
        self.rate = generation.rate or self.rate
        return behind

    def begin_change(self, time_s: float, epoch_s: float) -> None:
        """Note that its nodes change from now on; of several changes before it trains again the first one counts."""
        if self.change is not None:
            return
        generation, work = self.current, self.work
        rate = 0.0 if generation is None else self.rate
        if generation is not None and generation.last is not None:
            work += rate * max(0.0, epoch_s + time_s - generation.last.time_s)
        self.change = Change(time_s, work, rate, 0 if generation is None else len(generation.nodes))

    def start(self, nodes: tuple[str, ...], port: int) -> Generation:
        """Begin a generation on these nodes."""
        self.generations += 1
        self.current = Generation(self.generations, nodes, port, set(nodes), self.change)
        self.change = None
        return self.current

    def reshape(self, nodes: tuple[str, ...]) -> Generation:
        """Go on with the generation on other nodes, of which some may have no rank yet."""
        former = self.current
        assert former is not None
        self.end_generation(0.0)
        live = former.live | set(nodes)
        self.current = Generation(former.number, nodes, former.port, live, self.change, former.asked)
        self.change = None
        return self.current

    def measure(self) -> tuple[int, float, float]:
        """Count of nodes, work and seconds that the present generation has shown since this was asked last."""
        if self.current is None:
            return 0, 0.0, 0.0
        count, (work, seconds) = len(self.current.nodes), self.current.unmeasured()
        if seconds:
            before = self.seen.get(count, (0.0, 0.0))
            self.seen[count] = before[0] + work, before[1] + seconds
        return count, work, seconds

    def end_generation(self, epoch_s: float) -> None:
        """Book what the change that led to it has cost, now that it is known how fast it was.

        A replay lets the new rate count from the decision on, and deducts the cost at the former rate: this is the cost
        that leads to the same work.
        """
        generation, self.current = self.current, None
        if generation is None or generation.change is None:
            return
        if generation.first is None:
            self.change = generation.change
            return
        change, first, rate, count = generation.change, generation.first, generation.rate, len(generation.nodes)
        if rate and count != change.count:
            lost = change.work - first.work + rate * (first.time_s - epoch_s - change.time_s)
            kind = "start" if not change.count else "grow" if count > change.count else "shrink"
            self.costs.append((kind, max(0.0, lost / (change.rate or rate))))
