"""Carriers as jobs of Slurm: one job a node, in a partition whose jobs make room, seen by polls of the scheduler."""

from __future__ import annotations

import math
import os
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bftrainer.errors import PollError, RunFailedError
from bftrainer.harvest.carrier_hub import CarrierHub
from bftrainer.harvest.harvest_events import CarrierLeaving, CarrierLost, CarrierUp, HarvestEvent, PoolChanged
from bftrainer.harvest.scheduler_polls import Pool, SlurmPoll
from bftrainer.harvest.slurm.slurm_jobs import (
    ENDING,
    LONGEST_WAIT_S,
    MINUTE_S,
    SLACK_S,
    CarrierJobs,
    CarrierPartition,
    WaitingJobs,
    ignore_gone,
    job_name,
    write_script,
)
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
"""For so long the carrier of the test waits for its node; then the test is made on another one."""
_ATTEMPTS = 3
"""So many jobs of the test may end before they come up: other jobs may take their nodes."""
_WITHDRAWN = (BusyKind.DRAIN, BusyKind.MAINTENANCE, BusyKind.RESERVED)
"""Why a node is given back that a carrier holds."""
_MAY_START = (None, BusyKind.PLANNED)


class _State(Enum):
    """Where a carrier stands."""

    WAITING = "its job has not begun"
    WITHDRAWN = "its job was cancelled before it came"
    UP = "it holds its node"
    RELEASED = "it was told to give its node back"
    YIELDING = "it was told to give its node to a job that waits"
    LEAVING = "it leaves as it was told to, or as its time is over"
    TAKEN = "it leaves for somebody else"
    CUT_OFF = "it is not heard any more, and its ranks may still be there"


_CONNECTED = {_State.UP, _State.RELEASED, _State.YIELDING, _State.LEAVING, _State.TAKEN}
_GOING = {_State.WITHDRAWN, _State.LEAVING, _State.TAKEN, _State.CUT_OFF}
_FOR_OTHERS = {_State.YIELDING, _State.TAKEN, _State.CUT_OFF}


@dataclass(slots=True)
class _Carrier:
    """A job that is to hold a node, or does, and when it is cancelled."""

    node: str
    since_s: float
    state: _State = _State.WAITING
    until_s: float = math.inf


class _Answer(NamedTuple):
    """What Slurm says: of nodes, of our jobs by their numbers, and how many nodes jobs of others wait for."""

    pool: Pool
    states: dict[str, str]
    waiting: dict[str, int]


class SlurmCarriers:
    """A `CarrierEngine` of jobs; the numbers of jobs are the names of carriers, which hold nodes for `hold_s` at most.

    All nodes see the harvest's directory under the same name, and reach this machine at an address; it listens at all
    of its own by default. A `RunFailedError` if carriers of an earlier controller do not end; a `PollError` if Slurm
    does not answer.
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
        if former := self._jobs.wait_until_gone(self._grace_s):
            self._say(f"Carriers of an earlier controller have ended: {', '.join(former)}.")
        self._hub = CarrierHub(directory, self._grace_s, listen)
        self.start, self.stop = self._hub.start, self._hub.stop
        own_s = hold_s // MINUTE_S * MINUTE_S - self._grace_s - SLACK_S
        self._script = write_script(directory, self._hub.key, address, self._hub.port, own_s)
        self._worker = ThreadPoolExecutor(1, "slurm")
        self._answers: deque[tuple[Callable[[Future[Any]], list[HarvestEvent]], Future[Any]]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._hub.watch(self._wake, partial(os.eventfd_read, self._wake))
        self._idle: set[str] = set()
        self._due_s = self._settled_s = self._refused_until_s = 0.0
        self._trouble = self._refusal = ""
        self._turned_away: list[HarvestEvent] = []
        self._is_tested, self._failures, self._attempts = False, 0, Counter[str]()

    def _ask(self, then: Callable[[Future[Any]], list[HarvestEvent]], do: Callable[..., Any], *words: Any) -> None:
        """Ask Slurm something, in order, while the harvest goes on; what is answered is dealt with by `poll`."""

        def keep_answer(future: Future[Any]) -> None:
            self._answers.append((then, future))
            os.eventfd_write(self._wake, 1)

        self._worker.submit(do, *words).add_done_callback(keep_answer)

    # --- what happens ------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> list[HarvestEvent]:
        """Wait for carriers or Slurm to say something, at most so long."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = math.inf
            self._ask(self._on_poll, self._poll_slurm)
        heard = self._hub.poll(min(timeout_s, self._due_s - now_s))
        events, self._turned_away = self._turned_away, []
        while self._answers:
            then, future = self._answers.popleft()
            events += then(future)
        for event in heard:
            events += self._on_carrier_event(event)
        return events

    def _on_carrier_event(self, event: HarvestEvent) -> list[HarvestEvent]:
        """Pass on what a carrier says; one whose connection breaks before it has left does so now."""
        if not isinstance(event, CarrierUp | CarrierLeaving | CarrierLost):
            return [event]
        carrier = self._carriers.get(event.carrier)
        if carrier is None:
            self._hub.release(event.node, event.carrier)
            return []
        match event:
            case CarrierUp() if carrier.state is _State.WITHDRAWN:
                carrier.state = _State.LEAVING
                self._hub.release(event.node, event.carrier)
                return []
            case CarrierUp():
                carrier.state = _State.UP
                # Slurm may have told its job to end before there was a step that could hear it.
                self._due_s = min(self._due_s, time.monotonic() + _TICK_S)
            case CarrierLeaving():
                is_ours = carrier.state is _State.RELEASED or event.is_over
                self._leaves(carrier, _State.LEAVING if is_ours else _State.TAKEN)
            case CarrierLost() if carrier.state in _GOING:
                return self._forget_carrier(event.carrier)
            case CarrierLost():
                self._leaves(carrier, _State.CUT_OFF)
                self._ask(ignore_gone, self._jobs.cancel, event.carrier)
                # Its ranks, which are asked to end, may take so long.
                return [CarrierLeaving(event.node, event.carrier)]
        return [event]

    def _leaves(self, carrier: _Carrier, state: _State) -> None:
        """If somebody wants its node, and perhaps others, those that have not come yet do not come in between."""
        carrier.state = state
        carrier.until_s = min(carrier.until_s, time.monotonic() + self._grace_s + SLACK_S)
        self._idle.discard(carrier.node)
        if state in _FOR_OTHERS:
            self._others.begin()
            for number, other in self._carriers.items():
                if other.state is _State.WAITING:
                    self._withdraw(number, other)

    def _withdraw(self, number: str, carrier: _Carrier) -> None:
        """Cancel a carrier that has not come yet."""
        carrier.state, carrier.until_s = _State.WITHDRAWN, time.monotonic()
        self._ask(ignore_gone, self._jobs.cancel, number)

    @property
    def _is_contended(self) -> bool:
        """Whether a job is waiting for nodes that carriers leave, or may be about to begin on them."""
        states = {carrier.state for carrier in self._carriers.values()}
        return time.monotonic() < self._settled_s or not states.isdisjoint(_FOR_OTHERS)

    def _forget_carrier(self, number: str) -> list[HarvestEvent]:
        """A carrier is gone, with all that it has started, or never came."""
        carrier, now_s = self._carriers.pop(number), time.monotonic()
        self._idle.discard(carrier.node)
        if carrier.state in _FOR_OTHERS:
            self._settled_s = now_s + _SETTLE_S
        if carrier.state is not _State.WITHDRAWN:  # it may come again
            self._due_s = min(self._due_s, max(self._settled_s, now_s + _TICK_S))
        return [CarrierLost(carrier.node, number)]

    # --- what Slurm says ---------------------------------------------------------------------------------------------

    def _poll_slurm(self) -> _Answer:
        return _Answer(self._seen(), self._jobs.list_states(), self._others.list_waiting())

    def _on_poll(self, future: Future[_Answer]) -> list[HarvestEvent]:
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
                events += self._job_gone(number, carrier)
            elif listed[number] == "PENDING":
                if cause not in _MAY_START or now_s > carrier.since_s + LONGEST_WAIT_S:
                    self._withdraw(number, carrier)
            elif now_s > carrier.until_s:
                self._ask(ignore_gone, self._jobs.cancel, number)
            elif listed[number] == ENDING and carrier.state not in _GOING:
                self._hub.release(carrier.node, number)
                if carrier.state is _State.WAITING:
                    self._withdraw(number, carrier)
            elif carrier.state is _State.UP and cause in _WITHDRAWN:
                self.release(carrier.node, number)
        held = {carrier.node for carrier in self._carriers.values()}
        idle = {node for node, cause in pool.items() if cause is None}
        idle -= {carrier.node for carrier in self._carriers.values() if carrier.state in _GOING}
        if not self._is_contended:  # have carriers leave for jobs that wait though Slurm has none leave for them
            up = [number for number, carrier in self._carriers.items() if carrier.state is _State.UP]
            for number in up[: self._others.carriers_to_release(waiting, len(idle - held), len(up))]:
                self._send_away(number, _State.YIELDING)
        if self._is_contended or now_s < self._refused_until_s:
            idle &= held
        came, went = sorted(idle - self._idle), sorted(self._idle - idle)
        self._idle = idle
        return [*events, PoolChanged(tuple(came), tuple(went))] if came or went else events

    def _job_gone(self, number: str, carrier: _Carrier) -> list[HarvestEvent]:
        """A job is gone; if its carrier still talks to us, its node has lost touch with Slurm: it is sent away."""
        if carrier.state is _State.UP:
            self.release(carrier.node, number)
        elif carrier.state not in _GOING | _CONNECTED:
            return self._forget_carrier(number)
        elif time.monotonic() >= carrier.until_s:
            is_heard = carrier.state in _CONNECTED
            return [*([CarrierLeaving(carrier.node, number)] if is_heard else []), *self._forget_carrier(number)]
        return []

    def _on_submitted(self, node: str, future: Future[str]) -> list[HarvestEvent]:
        """Remember a job, or that Slurm has refused it."""
        try:
            number = future.result()
        except PollError as fault:
            self._refuse(str(fault))
            self._idle.discard(node)
            return [CarrierLost(node, "")]
        self._refusal = ""
        self._carriers[number] = _Carrier(node, time.monotonic())
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
        """Submit a carrier for each of these nodes; none while somebody waits for nodes that carriers leave.

        At first a carrier is tested on one of them, while nothing else goes on: nothing is held yet. If carriers cannot
        come up here, or are not told when their node is taken back, that is a `RunFailedError`.
        """
        if not self._is_contended and not self._is_tested:
            node = min(nodes, key=self._attempts.__getitem__)
            self._attempts[node] += 1
            try:
                self._is_tested = self._test_signal(node)
            except PollError as fault:
                self._refuse(str(fault))
        if self._is_contended or not self._is_tested:
            self._turned_away += [CarrierLost(node, "") for node in nodes]
            self._idle.difference_update(nodes)
            return
        for node in nodes:
            self._ask(partial(self._on_submitted, node), self._jobs.submit, node, self._script)

    def _test_signal(self, node: str) -> bool:
        """Have a carrier come to a node, and see that SIGTERM reaches its step; False if it does not come."""
        number, begun_s = self._jobs.submit(node, self._script), time.monotonic()
        signalled_s, is_told = math.inf, False
        try:
            while time.monotonic() < signalled_s + _SIGNAL_S or is_told:
                for event in self._hub.poll(_TICK_S):
                    match event:
                        case CarrierUp(carrier=carrier) if carrier == number:
                            self._jobs.cancel(number, signal="TERM")
                            signalled_s = time.monotonic()
                        case CarrierLeaving(carrier=carrier) if carrier == number:
                            is_told = True
                        case CarrierLost(carrier=carrier) if carrier == number:
                            return is_told
                if signalled_s == math.inf and not self._may_come(number, node, begun_s):
                    return False
        finally:
            if not is_told:
                self._hub.release(node, number)
                with suppress(PollError):  # it may be gone
                    self._jobs.cancel(number)
        raise RunFailedError(
            f"Job {number} was sent SIGTERM, and its step heard nothing of it within {_SIGNAL_S:g} s: "
            f"carriers here would be killed without a warning."
        )

    def _may_come(self, number: str, node: str, begun_s: float) -> bool:
        """Whether the carrier of the test can still come; too many that have ended before it are a `RunFailedError`."""
        cause, state = self._seen().get(node, BusyKind.AWAY), self._jobs.list_states().get(number)
        self._failures += state is None
        if self._failures >= _ATTEMPTS:
            raise RunFailedError(f"Job {number} has ended before its carrier could come up; see {self._jobs.log}.")
        is_patient = cause in _MAY_START and time.monotonic() <= begun_s + _TEST_WAIT_S
        return state is not None and (state != "PENDING" or is_patient)

    def release(self, node: str, carrier: str) -> None:
        """Have a carrier end its ranks, and itself."""
        if carrier in self._carriers:
            self._send_away(carrier, _State.RELEASED)
        else:
            self._hub.release(node, carrier)

    def _send_away(self, number: str, state: _State) -> None:
        """Tell a carrier to give its node back, for whomever."""
        carrier = self._carriers[number]
        self._hub.release(carrier.node, number)
        carrier.state = state if carrier.state is _State.UP else carrier.state
        carrier.until_s = min(carrier.until_s, time.monotonic() + self._grace_s + SLACK_S)

    def close(self) -> None:
        """End all carriers, cancel those that have not begun, and wait until they are gone."""
        self._hub.close()
        self._worker.shutdown(cancel_futures=True)
        try:
            self._jobs.wait_until_gone(self._grace_s)
        except (RunFailedError, PollError) as fault:
            self._say(f"{fault} Look for jobs named {self._jobs.name}: they end by themselves.")
        self._script.unlink(missing_ok=True)
        os.close(self._wake)
