"""Carriers and ranks that are none: what a harvest would do is said, and nothing is started."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count

from bftrainer.errors import PollError
from bftrainer.harvest.harvest_events import (
    CarrierLeaving,
    CarrierLost,
    CarrierUp,
    HarvestEvent,
    PoolChanged,
    RankExited,
    StartRank,
    StopRank,
)
from bftrainer.harvest.local_engine import LogPool
from bftrainer.harvest.pool_states import Pool


class PolledPool:
    """Which nodes are idle, as polls of a scheduler say; a poll that fails changes nothing.

    Parameters
    ----------
    poll : callable
    every_s : float
        Seconds between polls.
    say : callable
        Told which ones failed.
    """

    is_over = False

    def __init__(self, poll: Callable[[], Pool], every_s: float, say: Callable[[str], object]) -> None:
        self._poll, self._every_s, self._say, self._due_s = poll, every_s, say, 0.0
        self.idle = set[str]()

    def due_s(self) -> float:
        """Seconds until it may change."""
        return max(0.0, self._due_s - time.monotonic())

    def changes(self) -> list[PoolChanged]:
        """What has changed since this was asked last."""
        if self.due_s():
            return []
        before, self._due_s = self.idle, time.monotonic() + self._every_s
        try:
            self.idle = {node for node, cause in self._poll().items() if cause is None}
        except PollError as fault:
            self._say(str(fault))
        came, went = sorted(self.idle - before), sorted(before - self.idle)
        return [PoolChanged(tuple(came), tuple(went))] if came or went else []


class ShadowCarriers:
    """A `CarrierEngine` that starts nothing: carriers come at once, and ranks do nothing until they are ended.

    Parameters
    ----------
    pool : LogPool or PolledPool
        Which nodes are idle.
    say : callable
        Told what would be done.
    """

    def __init__(self, pool: LogPool | PolledPool, say: Callable[[str], object]) -> None:
        self._pool, self._say, self._number = pool, say, count(1)
        self._events: list[HarvestEvent] = []
        self.carriers: dict[str, str] = {}
        self.ranks: dict[tuple[str, int, str], StartRank] = {}

    @property
    def is_over(self) -> bool:
        """Whether no node will be idle any more."""
        return self._pool.is_over

    def poll(self, timeout_s: float) -> list[HarvestEvent]:
        """What has happened; waits for the pool to change."""
        changes = self._pool.changes()
        if not changes and not self._events:
            time.sleep(min(timeout_s, self._pool.due_s()))
        return self.happened(changes)

    def happened(self, changes: list[PoolChanged]) -> list[HarvestEvent]:
        """What follows of changes of the pool, and of what was asked since this was asked last."""
        taken = {node for change in changes for node in change.busy} & self.carriers.keys()
        for node in sorted(taken):
            self._lose(node, self.carriers[node])
        events, self._events = [*changes, *self._events], []
        return events

    def _lose(self, node: str, carrier: str) -> None:
        del self.carriers[node]
        self._events += [CarrierLeaving(node, carrier), CarrierLost(node, carrier)]
        self._events += [PoolChanged((node,))] if node in self._pool.idle else []
        for key in [key for key in self.ranks if key[2] == node]:
            del self.ranks[key]

    def request(self, nodes: tuple[str, ...]) -> None:
        """Have carriers come."""
        self._say(f"would take {' '.join(nodes)}")
        for node in nodes:
            self.carriers[node] = f"{node}.{next(self._number)}"
            self._events.append(CarrierUp(node, self.carriers[node]))

    def release(self, node: str, carrier: str) -> None:
        """Have a carrier go."""
        self._say(f"would give {node} back")
        if self.carriers.get(node) == carrier:
            self._lose(node, carrier)

    def start(self, rank: StartRank) -> None:
        """Have a rank be there."""
        self._say(f"would start {rank.task.name} on {rank.node}, rank {rank.rank} of {rank.world_size}")
        self.ranks[rank.task.name, rank.generation, rank.node] = rank

    def stop(self, rank: StopRank) -> None:
        """Have a rank end."""
        self._say(f"would stop {rank.task} on {rank.node}")
        if self.ranks.pop((rank.task, rank.generation, rank.node), None) is not None:
            self._events.append(RankExited(rank.task, rank.generation, rank.node, 0))

    def close(self) -> None:
        """Do nothing: nothing is there."""
