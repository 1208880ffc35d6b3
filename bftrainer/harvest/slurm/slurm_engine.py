"""Carriers as jobs of Slurm: one job a node, in a partition whose jobs make room, seen by polls of the scheduler."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bftrainer.errors import CarrierError, PollError
from bftrainer.harvest.carrier_hub import CarrierHub
from bftrainer.harvest.harvest_events import (
    CarrierLeaving,
    CarrierLost,
    CarrierUp,
    HarvestEvent,
    PoolChanged,
)
from bftrainer.harvest.pool_states import Pool
from bftrainer.harvest.scheduler_polls import SlurmPoll
from bftrainer.harvest.slurm.slurm_jobs import (
    ENDING,
    LONGEST_WAIT_S,
    MINUTE_S,
    SLACK_S,
    CarrierJobs,
    CarrierPartition,
    job_name,
    may_be_gone,
    written_script,
)
from bftrainer.harvest.slurm.waiting_jobs import WaitingJobs
from bftrainer.schedulers.busy_records import BusyKind

LOG = "carriers.log"
_TICK_S = 0.2
_SETTLE_S = 3.0
"""While carriers leave, and so long after that, no others come: the job that they left for has not begun."""
_SIGNAL_S = 10.0
"""Within that a carrier has to say that it was asked to end."""
_REFUSED_S = 60.0
"""For so long no carriers are submitted after one was refused."""
_TEST_WAIT_S = 15.0
"""For so long the carrier of the test waits for its node, if there are others to try it on."""
_ATTEMPTS = 3
"""So many jobs of the test may end before they come up: other jobs may take their nodes."""
_WITHDRAWN = (BusyKind.DRAIN, BusyKind.MAINTENANCE, BusyKind.RESERVED)
"""Why a node is given back that a carrier holds."""
_MAY_START = (None, BusyKind.PLANNED)


@dataclass(slots=True)
class _Carrier:
    """A job that is to hold a node, or does, and when it is cancelled; `taken` is one that leaves for somebody else."""

    node: str
    since_s: float
    up: bool = False
    leaving: bool = False
    released: bool = False
    taken: bool = False
    vanished: bool = False
    until_s: float = 1e18


class SlurmCarriers:
    """A `CarrierEngine` of jobs; the numbers of jobs are the names of carriers.

    Parameters
    ----------
    directory : Path
        Of the harvest, which all nodes see under the same name.
    partition : CarrierPartition
    hold_s : float
        For how long a carrier holds a node at most.
    every_s : float
        Seconds between polls.
    address : str
        At which nodes reach this machine.
    listen : str
        Address to listen at; all of this machine by default.
    say : callable
        Told what people should know.

    Raises
    ------
    CarrierError
        If carriers of an earlier controller do not end.
    PollError
        If Slurm does not answer.
    """

    is_over = False

    def __init__(
        self,
        directory: Path,
        partition: CarrierPartition,
        hold_s: float,
        every_s: float,
        address: str,
        listen: str = "",
        say: Callable[[str], object] = print,
    ) -> None:
        directory = directory.resolve()
        self._every_s, self._say = every_s, say
        # Ranks end before Slurm kills them.
        self._grace_s = max(1.0, partition.grace_s - 1.0)
        self._jobs = CarrierJobs(partition.name, job_name(directory), directory / LOG, hold_s)
        self._carriers: dict[str, _Carrier] = {}
        self._others = WaitingJobs(partition.above)
        self._seen = SlurmPoll(partition.name, lambda number, _: number in self._carriers)
        if former := self._jobs.outlive(self._grace_s):
            self._say(f"Carriers of an earlier controller have ended: {', '.join(former)}.")
        self._hub = CarrierHub(directory, self._grace_s, listen)
        self.start, self.stop = self._hub.start, self._hub.stop
        own_s = hold_s // MINUTE_S * MINUTE_S - self._grace_s - SLACK_S
        self._script = written_script(directory, self._hub.key, address, self._hub.port, own_s)
        self._worker = ThreadPoolExecutor(1, "slurm")
        self._answers: deque[tuple[Callable[[Future[Any]], list[HarvestEvent]], Future[Any]]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._hub.watch(self._wake, partial(os.eventfd_read, self._wake))
        self._idle: set[str] = set()
        self._due_s = self._settled_s = self._refused_until_s = 0.0
        self._trouble = self._refusal = ""
        self._turned_away: list[str] = []
        self._test: str | None = None
        self._tested, self._waiting, self._failures = False, list[str](), 0
        self._attempts = Counter[str]()

    def _ask(self, then: Callable[[Future[Any]], list[HarvestEvent]], do: Callable[..., Any], *words: Any) -> None:
        """Ask Slurm something, in order, while the harvest goes on; what is answered is dealt with by `poll`."""

        def answered(future: Future[Any]) -> None:
            self._answers.append((then, future))
            os.eventfd_write(self._wake, 1)

        self._worker.submit(do, *words).add_done_callback(answered)

    # --- what happens ------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> list[HarvestEvent]:
        """Wait for carriers or Slurm to say something, at most so long.

        Raises
        ------
        CarrierError
            If carriers cannot come up here, or are not told when their node is taken back.
        """
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = 1e18
            self._ask(self._looked, self._look)
        heard = self._hub.poll(min(timeout_s, self._due_s - now_s))
        events: list[HarvestEvent] = [CarrierLost(node, "") for node in self._turned_away]
        self._turned_away.clear()
        while self._answers:
            then, future = self._answers.popleft()
            events += then(future)
        for event in heard:
            events += self._heard(event)
        test = None if self._tested or not self._test else self._carriers.get(self._test)
        if test is not None and test.up and not test.released and test.until_s < now_s:
            raise CarrierError(
                f"Job {self._test} was sent SIGTERM, and its step heard nothing of it within {_SIGNAL_S:g} s: "
                f"carriers here would be killed without a warning."
            )
        return events

    def _heard(self, event: HarvestEvent) -> list[HarvestEvent]:
        """Pass on what a carrier says; one whose connection breaks before it has left does so now."""
        if not isinstance(event, CarrierUp | CarrierLeaving | CarrierLost):
            return [event]
        carrier = self._carriers.get(event.carrier)
        if carrier is None:
            self._hub.release(event.node, event.carrier)
            return []
        is_test = event.carrier == self._test
        if isinstance(event, CarrierUp):
            carrier.up = True
            # Slurm may have told its job to end before there was a step that could hear it.
            self._due_s = min(self._due_s, time.monotonic() + _TICK_S)
            if is_test:
                told = partial(self._told_to_end, event.carrier, carrier)
                self._ask(told, partial(self._jobs.cancel, event.carrier, signal="TERM"))
        elif isinstance(event, CarrierLeaving):
            self._tested |= is_test and not carrier.released
            self._leaves(carrier, taken=carrier.taken or not (is_test or carrier.released or event.is_over))
        elif not carrier.leaving:
            self._leaves(carrier, taken=True)
            carrier.up = False
            self._ask(may_be_gone, self._jobs.cancel, event.carrier)
            # Its ranks, which are asked to end, may take so long.
            return [CarrierLeaving(event.node, event.carrier)]
        else:
            return self._buried(event.carrier)
        return [] if is_test else [event]

    def _told_to_end(self, number: str, carrier: _Carrier, future: Future[None]) -> list[HarvestEvent]:
        """The carrier of the test has to hear soon of the signal that was sent to it; if none was, another one is."""
        carrier.until_s = min(carrier.until_s, time.monotonic() + _SIGNAL_S)
        try:
            future.result()
        except PollError as fault:
            if not carrier.leaving:  # else it has heard of it, or was gone before
                self._refuse(str(fault))
                self.release(carrier.node, number)
        return []

    def _leaves(self, carrier: _Carrier, *, taken: bool) -> None:
        """If somebody wants its node, and perhaps others, those that have not come yet do not come in between."""
        carrier.leaving, carrier.taken = True, taken
        carrier.until_s = min(carrier.until_s, time.monotonic() + self._grace_s + SLACK_S)
        self._idle.discard(carrier.node)
        if taken:
            self._others.begin()
        for number, other in self._carriers.items() if taken else ():
            if not (other.up or other.leaving):
                self._withdraw(number, other)

    def _withdraw(self, number: str, carrier: _Carrier) -> None:
        """Cancel a carrier that has not come yet."""
        carrier.leaving = carrier.released = True
        carrier.until_s = time.monotonic()
        self._ask(may_be_gone, self._jobs.cancel, number)

    @property
    def _is_contended(self) -> bool:
        """Whether a job is waiting for nodes that carriers leave, or may be about to begin on them."""
        return time.monotonic() < self._settled_s or any(carrier.taken for carrier in self._carriers.values())

    def _buried(self, number: str) -> list[HarvestEvent]:
        """A carrier is gone, with all that it has started, or never came."""
        carrier = self._carriers.pop(number)
        node = carrier.node
        self._idle.discard(node)
        now_s = time.monotonic()
        if carrier.taken:
            self._settled_s = now_s + _SETTLE_S
        if not carrier.released:  # it may come again
            self._due_s = min(self._due_s, self._settled_s if carrier.taken else now_s + _TICK_S)
        if number == self._test:
            self._waiting[:0] = [node] if self._tested else []
            return [*([] if self._tested else [CarrierLost(node, number)]), *self._after_test()]
        return [CarrierLost(node, number)]

    def _after_test(self) -> list[HarvestEvent]:
        """Ask for the nodes that waited for the test, of which one is tested now if that has not succeeded."""
        self._test, waiting, self._waiting = None, self._waiting, []
        if time.monotonic() >= self._refused_until_s:
            self.request(tuple(waiting))
            return []
        self._idle.difference_update(waiting)
        return [CarrierLost(node, "") for node in waiting]

    # --- what Slurm says ---------------------------------------------------------------------------------------------

    def _look(self) -> tuple[Pool, dict[str, str], dict[str, int]]:
        return self._seen(), self._jobs.listed(), self._others.listed()

    def _looked(self, future: Future[tuple[Pool, dict[str, str], dict[str, int]]]) -> list[HarvestEvent]:
        """Compare with what is known what Slurm says of nodes and of carriers."""
        now_s = time.monotonic()
        self._due_s = min(self._due_s, now_s + self._every_s)
        try:
            pool, listed, waiting = future.result()
        except PollError as fault:
            self._complain(f"{fault} Going on with the nodes that are held.")
            return []
        self._complain("")
        events: list[HarvestEvent] = []
        for number, carrier in [*self._carriers.items()]:
            cause = pool.get(carrier.node, BusyKind.AWAY)
            if number not in listed:
                events += self._vanished(number, carrier)
            elif listed[number] == "PENDING":
                most_s = _TEST_WAIT_S if number == self._test and self._waiting else LONGEST_WAIT_S
                if cause not in _MAY_START or now_s > carrier.since_s + most_s:
                    self._withdraw(number, carrier)
            elif now_s > carrier.until_s:
                self._ask(may_be_gone, self._jobs.cancel, number)
            elif carrier.leaving or number == self._test:
                continue
            elif listed[number] == ENDING:
                self._hub.release(carrier.node, number)
                if not carrier.up:
                    self._withdraw(number, carrier)
            elif carrier.up and cause in _WITHDRAWN:
                self.release(carrier.node, number)
        idle = {node for node, cause in pool.items() if cause is None}
        events += [CarrierLost(node, "") for node in self._waiting if node not in idle]
        self._waiting = [node for node in self._waiting if node in idle]
        idle -= {carrier.node for carrier in self._carriers.values() if carrier.leaving}
        if not self._is_contended:
            self._make_room(waiting, len(idle - {carrier.node for carrier in self._carriers.values()}))
        if self._is_contended or now_s < self._refused_until_s:
            idle &= {carrier.node for carrier in self._carriers.values()}
        came, went = sorted(idle - self._idle), sorted(self._idle - idle)
        self._idle = idle
        return [*events, PoolChanged(tuple(came), tuple(went))] if came or went else events

    def _make_room(self, waiting: dict[str, int], free: int) -> None:
        """Have carriers leave for jobs that wait though Slurm has none leave for them."""
        held = [number for number, each in self._carriers.items() if each.up and not (each.leaving or each.released)]
        held = [number for number in held if number != self._test]
        for number in held[: self._others.owed(waiting, free, len(held))]:
            self._carriers[number].taken = True
            self.release(self._carriers[number].node, number)

    def _vanished(self, number: str, carrier: _Carrier) -> list[HarvestEvent]:
        """A job is gone; if its carrier still talks to us, its node has lost touch with Slurm: it is sent away."""
        if not carrier.up:
            self._failures += number == self._test and not carrier.leaving
            if self._failures >= _ATTEMPTS:
                raise CarrierError(f"Job {number} has ended before its carrier could come up; see {self._jobs.log}.")
            return [] if carrier.leaving and time.monotonic() < carrier.until_s else self._buried(number)
        if not carrier.vanished:
            carrier.vanished = True
            self.release(carrier.node, number)
            return []
        if time.monotonic() < carrier.until_s:
            return []
        return [CarrierLeaving(carrier.node, number), *self._buried(number)]

    def _submitted(self, node: str, future: Future[str]) -> list[HarvestEvent]:
        """Remember a job, or that Slurm has refused it."""
        try:
            number = future.result()
        except PollError as fault:
            self._refuse(str(fault))
            self._idle.discard(node)
            return [CarrierLost(node, ""), *(self._after_test() if self._test == "" else [])]
        self._refusal = ""
        self._carriers[number] = _Carrier(node, time.monotonic())
        if self._test == "":
            self._test = number
        if self._is_contended:
            self._withdraw(number, self._carriers[number])
        return []

    def _complain(self, trouble: str) -> None:
        """Say what is wrong, once; and that it is over."""
        if trouble != self._trouble:
            self._say(trouble or "Slurm answers again.")
        self._trouble = trouble

    def _refuse(self, why: str) -> None:
        """Submit nothing for a while, and say why unless that was the last reason, too."""
        self._refused_until_s = time.monotonic() + _REFUSED_S
        if why != self._refusal:
            self._say(f"{why} No carriers are submitted for {_REFUSED_S:g} s.")
        self._refusal = why

    # --- what is done ------------------------------------------------------------------------------------------------

    def request(self, nodes: tuple[str, ...]) -> None:
        """Submit a carrier for each of these nodes; one is tested, and the others wait for that.

        While somebody waits for nodes that carriers leave, none are asked for.
        """
        if self._is_contended:
            self._turned_away += nodes
            self._idle.difference_update(nodes)
            return
        if not self._tested:
            self._waiting += [node for node in nodes if node not in self._waiting]
            if self._test is not None or not self._waiting:
                return
            node = min(self._waiting, key=self._attempts.__getitem__)
            self._waiting.remove(node)
            self._attempts[node] += 1
            self._test, nodes = "", (node,)
        for node in nodes:
            self._ask(partial(self._submitted, node), self._jobs.submit, node, self._script)

    def release(self, node: str, carrier: str) -> None:
        """Have a carrier end its ranks, and itself."""
        self._hub.release(node, carrier)
        if carrier in self._carriers:
            known = self._carriers[carrier]
            known.released = True
            known.until_s = min(known.until_s, time.monotonic() + self._grace_s + SLACK_S)

    def close(self) -> None:
        """End all carriers, cancel those that have not begun, and wait until they are gone."""
        self._hub.close()
        self._worker.shutdown(cancel_futures=True)
        try:
            self._jobs.outlive(self._grace_s)
        except (CarrierError, PollError) as fault:
            self._say(f"{fault} Look for jobs named {self._jobs.name}: they end by themselves.")
        self._script.unlink(missing_ok=True)
        os.close(self._wake)
