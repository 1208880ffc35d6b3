"""Carriers on this machine, which come and go as the nodes of a log do, but faster: a process each, or none at all."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from bftrainer.errors import RunFailedError
from bftrainer.files.writing import lock_file
from bftrainer.harvest import harvest_events as ev
from bftrainer.harvest.agent import KEY
from bftrainer.harvest.carrier_hub import CarrierHub
from bftrainer.model import NodeLog

_HELD = ".carriers"
_LAST_S = 5.0
"""What carriers may take to end beyond the grace time of their ranks."""
_ATTEMPTS = 3
"""So many carriers in a row may end before they come up."""


class LogPool:
    """Which nodes are idle, as a node log says, played from its start on, `speed` times as fast.

    Without a log, so many `nodes` are idle all the time. `since_s` have passed before it is first asked.
    """

    def __init__(self, log: NodeLog | None, speed: float = 1.0, nodes: int = 0, since_s: float = 0.0) -> None:
        self.is_over, self.idle = False, set[str]()
        self._since_s, self._start_s = since_s, math.nan
        self._end_s = math.inf if log is None else log.window_s / speed
        always = ev.PoolChanged(tuple(f"n{number}" for number in range(1, nodes + 1)))
        self._rows = deque([(0.0, always)] if log is None else [])
        if log is not None:
            for time_s, joined, left in log.rows():
                idle, busy = (tuple(log.nodes[node] for node in changed) for changed in (joined, left))
                self._rows.append((time_s / speed, ev.PoolChanged(idle, busy)))

    def due_s(self) -> float:
        """Seconds until it may change."""
        if math.isnan(self._start_s):
            return 0.0
        return max(0.0, self._start_s + self._rows[0][0] - time.monotonic()) if self._rows else math.inf

    def changes(self) -> list[ev.PoolChanged]:
        """What has changed since this was asked last."""
        if math.isnan(self._start_s):
            self._start_s = time.monotonic() - self._since_s
        passed_s, changes = time.monotonic() - self._start_s, list[ev.PoolChanged]()
        while self._rows and self._rows[0][0] <= passed_s:
            changes.append(self._rows.popleft()[1])
            self.idle |= set(changes[-1].idle)
            self.idle -= set(changes[-1].busy)
        self.is_over = passed_s >= self._end_s
        return changes


@dataclass(slots=True)
class _Agent:
    """An agent's node and process, when it is killed, and whether it came up."""

    node: str
    process: subprocess.Popen[bytes]
    until_s: float = 1e18
    up: bool = False


class LocalCarriers:
    """Carriers that are agents on this machine, each of which holds a node for `hold_s` at most.

    When a node is taken back, ranks have `grace_s` before they are killed. An `OutputError` if processes of an earlier
    controller do not end.
    """

    def __init__(self, directory: Path, pool: LogPool, grace_s: float = 10.0, hold_s: float = 1e9) -> None:
        self._pool, self._grace_s, self._hold_s = pool, grace_s, hold_s
        self._open, place = ExitStack(), directory / _HELD
        self._lock = self._open.enter_context(lock_file(place, place, grace_s + _LAST_S, stays=True))
        self._hub = CarrierHub(directory, grace_s)
        self._log, self._failures = (directory / "carriers.log").open("ab"), 0
        self._carriers: dict[str, _Agent] = {}
        self._lost: list[ev.CarrierLost] = []
        self._number = count(1)
        self.start, self.stop = self._hub.start, self._hub.stop

    @property
    def is_over(self) -> bool:
        """Whether the log has ended."""
        return self._pool.is_over

    def poll(self, timeout_s: float) -> list[ev.HarvestEvent]:
        """Wait for something to happen; a `RunFailedError` if carriers cannot come up here.

        Nodes that the log takes back are taken from carriers that hold them.
        """
        # A carrier is lost when all that it has started is gone, which is later than its connection.
        messages = self._hub.poll(min(timeout_s, self._pool.due_s()))
        events: list[ev.HarvestEvent] = [event for event in messages if not isinstance(event, ev.CarrierLost)]
        for event in messages:
            if isinstance(event, ev.CarrierUp):
                self._failures = 0
                if event.carrier in self._carriers:  # else it has ended meanwhile
                    self._carriers[event.carrier].up = True
        now_s = time.monotonic()
        for change in self._pool.changes():
            events.append(change)
            for agent in self._carriers.values():
                if agent.node in change.busy:
                    agent.process.terminate()
                    agent.until_s = min(agent.until_s, now_s + self._grace_s)
        for lost in self._lost:
            events += [lost, *([ev.PoolChanged((lost.node,))] if lost.node in self._pool.idle else [])]
        self._lost.clear()
        if self._failures >= _ATTEMPTS:
            raise RunFailedError(f"Carriers end before they come up; see {self._log.name}.")
        for agent in self._carriers.values():
            if now_s > agent.until_s:
                agent.process.kill()
        return events

    def request(self, nodes: tuple[str, ...]) -> None:
        """Start an agent for each of these nodes."""
        for node in nodes:
            carrier = f"{node}.{os.getpid()}.{next(self._number)}"
            alive, pipe_end = os.pipe()
            where = "127.0.0.1", str(self._hub.port), node, carrier, str(self._hold_s), str(self._lock), str(pipe_end)
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "bftrainer.harvest.agent", *where],
                env=os.environ | {KEY: self._hub.key},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(self._lock, pipe_end),
                start_new_session=True,
            )
            os.close(pipe_end)
            self._carriers[carrier] = _Agent(node, process)
            self._hub.watch(alive, partial(self._on_end, alive, carrier))

    def release(self, carrier: str, *, for_others: bool = False) -> None:  # noqa: ARG002
        """Have a carrier end its ranks, and itself."""
        self._hub.release(carrier)
        if carrier in self._carriers:
            agent = self._carriers[carrier]
            agent.until_s = min(agent.until_s, time.monotonic() + self._grace_s + _LAST_S)

    def _on_end(self, alive: int, carrier: str) -> None:
        """An agent, and all that it has started, is gone."""
        self._hub.forget(alive)
        os.close(alive)
        agent = self._carriers.pop(carrier)
        self._failures += agent.process.wait() > 0 and not agent.up
        self._lost.append(ev.CarrierLost(agent.node, carrier))

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
        self._open.close()
