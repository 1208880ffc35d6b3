"""Carriers on this machine, which come and go as the nodes of a log do, but faster: a process each, or none at all."""

from __future__ import annotations

import fcntl
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from bftrainer.errors import CarrierError, OutputError
from bftrainer.harvest.agent import KEY
from bftrainer.harvest.carrier_hub import CarrierHub
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
from bftrainer.model import NodeLog

if TYPE_CHECKING:
    from bftrainer.harvest.slurm.slurm_jobs import PolledPool

_HELD = ".carriers"
_LAST_S = 5.0
"""What carriers may take to end beyond the grace time of their ranks."""
_ATTEMPTS = 3
"""So many carriers in a row may end before they come up."""


class LogPool:
    """Which nodes are idle, as a node log says, played from its start on.

    Parameters
    ----------
    log : NodeLog or None
        None: some nodes are idle all the time.
    speed : float
        Seconds of the log in one second.
    nodes : int
        Number of nodes without a log.
    since_s : float
        Seconds that have passed before it is first asked.
    """

    def __init__(self, log: NodeLog | None, speed: float = 1.0, nodes: int = 0, since_s: float = 0.0) -> None:
        self._since_s = since_s
        self.is_over, self.idle = False, set[str]()
        self._log, self._speed = log, speed
        self._begun_s: float | None = None
        self._names = tuple(f"n{number}" for number in range(1, nodes + 1)) if log is None else log.nodes
        self._rows = iter([(0.0, PoolChanged(self._names))]) if log is None else self._changes(log)
        self._next = next(self._rows, None)

    def _changes(self, log: NodeLog) -> Iterator[tuple[float, PoolChanged]]:
        for time_s, joined, left in log.rows():
            names = ([self._names[node] for node in nodes] for nodes in (joined, left))
            yield time_s / self._speed, PoolChanged(*map(tuple, names))

    def due_s(self) -> float:
        """Seconds until it may change."""
        if self._begun_s is None:
            return 0.0
        return math.inf if self._next is None else max(0.0, self._begun_s + self._next[0] - time.monotonic())

    def changes(self) -> list[PoolChanged]:
        """What has changed since this was asked last."""
        now_s = time.monotonic()
        self._begun_s = now_s - self._since_s if self._begun_s is None else self._begun_s
        found = []
        while self._next is not None and self._begun_s + self._next[0] <= now_s:
            self.idle |= set(self._next[1].idle)
            self.idle -= set(self._next[1].busy)
            found.append(self._next[1])
            self._next = next(self._rows, None)
        self.is_over = self._log is not None and now_s - self._begun_s >= self._log.window_s / self._speed
        return found


@dataclass(slots=True)
class _Agent:
    """An agent's node and process, when it is killed, and whether it came up."""

    node: str
    process: subprocess.Popen[bytes]
    until_s: float = 1e18
    up: bool = False


class LocalCarriers:
    """A `CarrierEngine` of agents on this machine.

    Parameters
    ----------
    directory : Path
        Of the harvest.
    pool : LogPool
    grace_s : float
        Time that ranks have to end when a node is taken back, before they are killed.
    hold_s : float
        For how long a carrier holds a node at most.

    Raises
    ------
    OutputError
        If processes of an earlier controller do not end.
    """

    def __init__(self, directory: Path, pool: LogPool, grace_s: float = 10.0, hold_s: float = 1e9) -> None:
        self._pool, self._grace_s, self._hold_s = pool, grace_s, hold_s
        self._lock = _locked(directory / _HELD, grace_s + _LAST_S)
        self._hub = CarrierHub(directory, grace_s)
        self._log, self._failures = (directory / "carriers.log").open("ab"), 0
        self._carriers: dict[str, _Agent] = {}
        self._gone: list[str] = []
        self._number = count(1)
        self.start, self.stop = self._hub.start, self._hub.stop

    @property
    def is_over(self) -> bool:
        """Whether the log has ended."""
        return self._pool.is_over

    def poll(self, timeout_s: float) -> list[HarvestEvent]:
        """Wait for something to happen; nodes that the log takes back are taken from carriers that hold them.

        Raises
        ------
        CarrierError
            If carriers cannot come up here.
        """
        found = self._hub.poll(min(timeout_s, self._pool.due_s()))
        for event in found:
            if isinstance(event, CarrierUp):
                self._carriers[event.carrier].up, self._failures = True, 0
        # A carrier is lost when all that it has started is gone, which is later than its connection.
        events: list[HarvestEvent] = [event for event in found if not isinstance(event, CarrierLost)]
        now_s = time.monotonic()
        for change in self._pool.changes():
            events.append(change)
            for agent in self._carriers.values():
                if agent.node in change.busy:
                    agent.process.terminate()
                    agent.until_s = min(agent.until_s, now_s + self._grace_s)
        for carrier in self._gone:
            agent = self._carriers.pop(carrier)
            self._failures += not agent.up and agent.process.returncode > 0
            node = agent.node
            events += [CarrierLost(node, carrier), *([PoolChanged((node,))] if node in self._pool.idle else [])]
        self._gone.clear()
        if self._failures >= _ATTEMPTS:
            raise CarrierError(f"Carriers end before they come up; see {self._log.name}.")
        for agent in self._carriers.values():
            if now_s > agent.until_s:
                agent.process.kill()
        return events

    def request(self, nodes: tuple[str, ...]) -> None:
        """Start an agent for each of these nodes."""
        for node in nodes:
            carrier = f"{node}.{os.getpid()}.{next(self._number)}"
            alive, held = os.pipe()
            where = "127.0.0.1", str(self._hub.port), node, carrier, str(self._hold_s), str(self._lock), str(held)
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "bftrainer.harvest.agent", *where],
                env=os.environ | {KEY: self._hub.key},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(self._lock, held),
                start_new_session=True,
            )
            os.close(held)
            self._carriers[carrier] = _Agent(node, process)
            self._hub.watch(alive, partial(self._ended, alive, carrier))

    def release(self, node: str, carrier: str) -> None:
        """Have a carrier end its ranks, and itself."""
        self._hub.release(node, carrier)
        if carrier in self._carriers:
            agent = self._carriers[carrier]
            agent.until_s = min(agent.until_s, time.monotonic() + self._grace_s + _LAST_S)

    def _ended(self, alive: int, carrier: str) -> None:
        """An agent, and all that it has started, is gone."""
        self._hub.forget(alive)
        os.close(alive)
        self._carriers[carrier].process.wait()
        self._gone.append(carrier)

    def close(self) -> None:
        """Have all agents end, and wait until they, and all that they started, are gone."""
        self._hub.close()
        deadline = time.monotonic() + self._grace_s + _LAST_S
        for agent in self._carriers.values():
            with suppress(subprocess.TimeoutExpired):
                agent.process.wait(max(0.0, deadline - time.monotonic()))
            agent.process.kill()
            agent.process.wait()
        self._log.close()
        os.close(self._lock)


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


def _locked(path: Path, patience_s: float) -> int:
    """Lock a file that carriers keep open, once none of an earlier controller's does so any more."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(file)
                raise OutputError(f"{path}: Processes of an earlier controller hold it, and do not end.") from None
            time.sleep(0.05)
        else:
            return file
