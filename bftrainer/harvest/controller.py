"""The controller of a harvest: a state machine that takes in what happens, and says what is to be done.

It reads no clock and no file and starts nothing: events in, effects out. The same events lead to the same state, from
which a harvest goes on whose controller was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bftrainer.errors import InvalidTaskError
from bftrainer.harvest import harvest_events as ev
from bftrainer.harvest.live_allocator import LEAST_WORK, LiveAllocator
from bftrainer.harvest.live_tasks import live_task
from bftrainer.harvest.task_life import Generation, TaskLife, TaskStatus
from bftrainer.model import NS_PER_S, Event, TaskSpec
from bftrainer.replay import Settings

_STEP_S = 1e-6
"""Instants are apart by so much, at least."""
_LONGEST_RETRY_S = 60.0
_PATIENCE_S = 180.0
"""A carrier that did not come for so long is asked for again."""
FIRST_PORT, PORTS = 20_000, 4_000
"""Ports at which ranks meet; generations take them in turn, as some may still be in use by those that ended."""
_REASONS = {"time": "its time is up", "log": "its node log is over"}


@dataclass(frozen=True, slots=True)
class HarvestLimits:
    """How much a harvest takes: at most so many nodes at once, each once it has been idle for `offer_after_s`.

    A carrier that came waits up to `settle_s` for others, as each change of a task's nodes costs it time. One that
    `stays` waits for more tasks when none is left.
    """

    max_nodes: int = 1_000_000
    offer_after_s: float = 0.0
    settle_s: float = 1.0
    stays: bool = False


@dataclass(slots=True)
class Carrier:
    """A carrier that holds a node; the allocator has the node from when it is `offered` until it is `leaving`."""

    name: str
    address: str
    since_s: float
    offered: bool = False
    leaving: bool = False


@dataclass(slots=True)
class CarrierPool:
    """Nodes: those that are `idle` and those for which a carrier was `requested`, since when.

    The allocator does not know yet which have `left` at the present instant; carriers that come `later` wait for the
    next one, as a node cannot leave and join at one. Once it is `closed` no more nodes are taken.
    """

    limits: HarvestLimits
    carriers: dict[str, Carrier] = field(default_factory=dict)
    idle: dict[str, float] = field(default_factory=dict)
    requested: dict[str, float] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    later: list[ev.CarrierUp] = field(default_factory=list)
    closed: bool = False
    _situation: tuple[Any, ...] | None = None

    def add_carrier(self, event: ev.CarrierUp, time_s: float) -> list[ev.Effect]:
        """Take in a carrier; a second one on a node, or one that comes when nothing is taken any more, is sent away."""
        if event.node in self.left:
            self.later.append(event)
        elif event.node in self.carriers or self.closed:
            return [ev.Release(event.node, event.carrier)]
        else:
            self.requested.pop(event.node, None)
            self.carriers[event.node] = Carrier(event.carrier, event.address, time_s)
        return []

    def join_nodes(self, time_s: float) -> list[str]:
        """Nodes that the allocator is to have from now on: those of new carriers, when no other is to be waited for."""
        self.requested = {node: since for node, since in self.requested.items() if time_s - since < _PATIENCE_S}
        new = [node for node, carrier in self.carriers.items() if not (carrier.offered or carrier.leaving)]
        oldest_s = min((self.carriers[node].since_s for node in new), default=time_s)
        if self.requested and time_s - oldest_s < self.limits.settle_s:
            return []
        for node in new:
            self.carriers[node].offered = True
        return new

    def remove_carrier(self, event: ev.CarrierLeaving | ev.CarrierLost) -> bool:
        """Take in that a carrier leaves, or is gone; whether the allocator had its node until now."""
        carrier = self.carriers.get(event.node)
        self.idle.pop(event.node, None)
        if carrier is None or carrier.name != event.carrier:
            self.requested.pop(event.node, None)
            self.forget_demand()  # all may look as it did when it was asked for
            return False
        had, carrier.leaving = carrier.offered and not carrier.leaving, True
        if isinstance(event, ev.CarrierLost):
            del self.carriers[event.node]
        self.left += [event.node] if had else []
        return had

    def free_nodes(self, time_s: float) -> list[str]:
        """Nodes that could be asked for: idle for long enough, and not held yet."""
        due_s, busy = time_s - self.limits.offer_after_s, self.carriers.keys() | self.requested.keys()
        return [] if self.closed else [n for n, since in self.idle.items() if since <= due_s and n not in busy]

    def balance(self, time_s: float, used: Collection[str], count_wanted: Callable[[int], int]) -> list[ev.Effect]:
        """Ask for carriers where more nodes are wanted, and give back those that nobody wants.

        Tasks have `used` nodes; `count_wanted` says how many they would have if the pool grew by a number of nodes.
        """
        active = [node for node, carrier in self.carriers.items() if not carrier.leaving]
        more = self.free_nodes(time_s)
        leaving = len(self.carriers) - len(active)
        situation = (leaving, *active, "", *more, "", *self.requested, "", *sorted(used))
        if situation == self._situation:
            return []
        self._situation = situation
        coming = len(active) + len(self.requested)
        new = sum(not self.carriers[node].offered for node in active)
        count = min(count_wanted(len(more) + len(self.requested) + new), self.limits.max_nodes - leaving)
        if count > coming:
            nodes = tuple(more[: count - coming])
            self.expect(nodes, time_s)
            return [ev.Request(nodes)] if nodes else []
        free = [node for node in active if node not in used]
        return [ev.Release(node, self.carriers[node].name) for node in free[: max(0, len(active) - count)]]

    def expect(self, nodes: Iterable[str], time_s: float) -> None:
        """Note that carriers were asked for."""
        self.requested |= dict.fromkeys(nodes, time_s)

    def forget_demand(self) -> None:
        """Have the next balance count anew: tasks have changed."""
        self._situation = None


class Controller:
    """Decides which task runs on which node, and has ranks and carriers started and ended accordingly.

    Times count from `start_ns` after the Unix epoch; for `down_s` of them no controller ran. A step has `changed`
    nothing if it only took in reports. While it is `replaying` the steps of an earlier process, no carriers are asked
    for.
    """

    def __init__(self, settings: Settings, start_ns: int, limits: HarvestLimits, noise: float = 0.02) -> None:
        self.allocator = LiveAllocator(settings, start_ns, noise)
        self.start_ns, self.epoch_s, self.stays = start_ns, start_ns / NS_PER_S, limits.stays
        self._noise = noise
        self.tasks: dict[str, TaskLife] = {}
        self.pool = CarrierPool(limits)
        self.time_s = self.down_s = 0.0
        self.ending: str | None = None
        self.changed = self.replaying = self._was_down = False
        self._wanted = 0
        self._busy: dict[str, tuple[str, int]] = {}
        self._completed: list[str] = []
        self._submitted: list[TaskLife] = []
        self._effects: list[ev.Effect] = []
        self._serial = start_ns // NS_PER_S  # apart from other harvests on the same nodes

    def step(self, time_s: float, events: Sequence[ev.HarvestEvent] = ()) -> list[ev.Effect]:
        """Take in what happened until a time, and say what is to be done; reports alone change nothing.

        A `SolverError` if the solver fails, and its fallback too.
        """
        self._effects = []
        if events and all(isinstance(event, ev.Progressed) for event in events):
            self.changed = False
            for event in events:
                self._apply_event(event)
            return self._effects
        was_down, before_s, self.time_s = self._was_down, self.time_s, max(time_s, self.time_s + _STEP_S)
        self.down_s += was_down * (self.time_s - before_s)
        self._was_down = False
        pool, self._completed, self._submitted = self.pool, [], []
        events, pool.later, pool.left, self._wanted = [*pool.later, *events], [], [], 0
        for event in events:
            self._apply_event(event)
        for life in self.tasks.values():  # submit the tasks whose time has come
            if life.status is TaskStatus.WAITING and life.task.spec.submit_s <= self.time_s and self.ending is None:
                life.task = replace(life.task, spec=replace(life.task.spec, submit_s=self.time_s))
                self._submitted.append(life)
                if life.task.learned:
                    self.allocator.curves.learn(life.name)
        lives, is_begun = self.tasks.values(), not any(isinstance(event, ev.Restarted) for event in events)
        if is_begun and self.ending is None and lives and not self.stays and all(life.is_over for life in lives):
            self._stop("finished")
        news = self._decide()
        for life in self.tasks.values():
            self._reconcile(life)
        if not self.replaying and self.ending is None:  # ask for carriers, or give some back
            self._give_way()
            used = self._busy.keys() | {node for life in self.tasks.values() for node in life.nodes}
            self._effects += self.pool.balance(self.time_s, used, self.allocator.count_wanted)
        drained = self.pool.closed and not self.pool.requested
        if not self.pool.carriers and (self.ending is not None or drained):
            self._effects.append(ev.HarvestEnded(self.ending or "drained"))
        self.changed = bool(self._effects or events or news or was_down)
        return self._effects

    def finish(self, reason: str) -> None:
        """Close the books, after the last step; tasks whose curves were learnt have them from now on."""
        self.time_s += _STEP_S
        for life in self.tasks.values():
            self._measure_task(life)
        for life in self.tasks.values():
            if life.task.learned and life.is_measured:
                self.allocator.respecify(life.name, scaling=life.measured_spec(self._noise).scaling)
        self.allocator.end(self.time_s, reason)

    def measured_specs(self) -> dict[str, TaskSpec]:
        """Tasks of the allocator with curves and costs that were measured, as far as they were."""
        return {life.name: life.measured_spec(self._noise) for life in self.tasks.values()}

    # --- what happens ------------------------------------------------------------------------------------------------

    def _apply_event(self, event: ev.HarvestEvent) -> None:
        match event:
            case ev.PoolChanged():
                for node in event.busy:
                    self.pool.idle.pop(node, None)
                self.pool.idle |= {node: self.time_s for node in event.idle if node not in self.pool.idle}
            case ev.CarrierUp():
                self._effects += self.pool.add_carrier(event, self.time_s)
            case ev.CarrierLeaving() | ev.CarrierLost():
                self._carrier_went(event)
            case ev.NodesWanted():
                self._wanted += event.count
            case ev.RankExited():
                generation = self.tasks[event.task].current
                if generation is not None and generation.number == event.generation and event.node in generation.live:
                    if event.status and event.node not in generation.asked and generation.failed is None:
                        generation.failed = f"status {event.status}" + (f": {event.tail}" if event.tail else "")
                    self._rank_gone(event.task, event.generation, event.node)
            case ev.Progressed():
                for note in self.tasks[event.task].report(event, self.epoch_s):
                    self._say(note)
            case ev.Submitted():
                self._submit(event)
            case ev.Asked():
                if event.what == "drain" and not self.pool.closed:
                    self._say("Draining: no more nodes are taken.")
                self.pool.closed = True
                if event.what != "drain":
                    self._stop(_REASONS.get(event.what, "interrupted"))
            case ev.Restarted():
                self.stays, self._was_down = event.stays, True
                for node, carrier in [*self.pool.carriers.items()]:
                    self._carrier_went(ev.CarrierLost(node, carrier.name))
                for life in self.tasks.values():
                    life.open_change = None
                self.pool.idle, self.pool.requested = {}, {}
                self.pool.closed, self.ending = False, None

    def _carrier_went(self, event: ev.CarrierLeaving | ev.CarrierLost) -> None:
        """A task that had the node loses it; with the carrier gone, its rank is gone too."""
        if self.pool.remove_carrier(event):
            for life in self.tasks.values():
                life.nodes.discard(event.node)
                if life.current is not None and event.node in life.current.live:
                    life.current.lost = True
        if isinstance(event, ev.CarrierLost) and event.node in self._busy and event.node not in self.pool.carriers:
            self._rank_gone(*self._busy[event.node], event.node)

    def _rank_gone(self, task: str, number: int, node: str) -> None:
        """A node has no rank any more; the last one ends its generation."""
        del self._busy[node]
        life = self.tasks[task]
        generation = life.current
        if generation is None or generation.number != number:
            return
        generation.live.discard(node)
        if generation.live:
            return
        self._measure_task(life)
        life.current = None
        if life.is_over:
            return
        if generation.failed is not None and not generation.lost:
            self._retry_or_park(life, generation.failed)
        elif life.saved >= life.task.spec.work or not (node in generation.asked or generation.lost):
            total = life.task.spec.work
            life.work = total if life.work > total * (1.0 - 1e-9) else life.work
            self._end_task(life, TaskStatus.DONE)
            ending = "" if life.work == total else f", and has reported {life.work:,.6g} of its work of {total:,.6g}"
            self._say(f"{life.name} is done{ending}.")

    def _retry_or_park(self, life: TaskLife, why: str) -> None:
        """Let a task try again after a while, or park it."""
        life.open_change = None  # a crash came in between
        life.failures = 1 if life.saved > life.failed_at else life.failures + 1
        life.failed_at, life.why = life.saved, why
        life.retry_s = self.time_s + min(_LONGEST_RETRY_S, 2.0 ** (life.failures - 1) - 0.5)
        if life.failures < life.task.max_failures:
            self._say(f"{life.name} failed ({life.failures} of {life.task.max_failures}), {why}")
        else:
            self._say(f"{life.name} is parked after {life.failures} failures without progress, {why}")
            self._end_task(life, TaskStatus.PARKED)

    def _end_task(self, life: TaskLife, status: TaskStatus) -> None:
        """Let a task end with what it has done."""
        was, life.status = life.status, status
        life.nodes.clear()
        self.pool.forget_demand()
        if was is TaskStatus.ACTIVE:
            self._measure_task(life)
            if self.allocator.finish_early(life.name, life.done):
                self._completed.append(life.name)

    def _submit(self, event: ev.Submitted) -> None:
        """Add a task; a parked one is tried again, from its checkpoint, as it is defined now."""
        try:
            task = live_task(Path(event.file), 1, event.table)
            parked = self.tasks.get(task.name)
            if parked is not None and parked.status is not TaskStatus.PARKED:
                raise InvalidTaskError(f"{event.file}, task {task.name}: Expected a new name, it is here already.")
        except InvalidTaskError as fault:
            self._say(f"Not added: {fault}")
            return
        due_s = max(self.time_s, task.spec.submission_s(self.start_ns))
        task = replace(task, spec=replace(task.spec, submit_s=due_s, submit_ns=None))
        if parked is None:
            self.tasks[task.name] = TaskLife(task)
        else:
            self._say(f"{task.name} is tried again.")
            parked.task, parked.status = task, TaskStatus.WAITING
            parked.failures, parked.failed_at, parked.retry_s, parked.why = 0, -1.0, 0.0, ""

    # --- what is done about it ---------------------------------------------------------------------------------------

    def _measure_task(self, life: TaskLife) -> None:
        """Let the books have what a task has done, and if its curve is learnt what it has shown."""
        if life.status is TaskStatus.WAITING:
            return
        stretch = life.measure()
        self.allocator.measured[life.name] = life.done, life.rate
        if life.began and not life.is_over:
            self.allocator.respecify(life.name, work=max(life.task.spec.work - life.began, LEAST_WORK))
        if stretch is not None and stretch.work > 0:
            task = self.allocator.task(life.name)
            self.allocator.curves.observe(task.number, task.spec, *stretch)

    def _decide(self) -> bool:
        """Tell the allocator, and take over what it decided; whether there was anything to tell."""
        events = [Event.submission(self.time_s, self.allocator.new_spec(life.task.spec)) for life in self._submitted]
        joined = self.pool.join_nodes(self.time_s)
        news = (Event.completion, self._completed), (Event.leave, self.pool.left), (Event.join, joined)
        events += [make(self.time_s, *names) for make, names in news if names]
        if not events:
            return False
        for life in self.tasks.values():
            self._measure_task(life)
        decision = self.allocator.on_event(*events)
        for life in self._submitted:
            life.status = TaskStatus.ACTIVE
        for name, (count, charged) in self.allocator.charges.items():
            self.tasks[name].note_decision(self.time_s, self.epoch_s, count, charged)
        for name, nodes in decision.removed.items():
            self.tasks[name].nodes.difference_update(nodes)
        for name, nodes in decision.added.items():
            self.tasks[name].nodes.update(nodes)
        self.pool.forget_demand()
        return True

    def _reconcile(self, life: TaskLife) -> None:
        """Bring the ranks of a task to the nodes that it is to have."""
        generation = life.current
        if generation is None:
            if life.nodes and self.time_s >= life.retry_s and not life.nodes & self._busy.keys():
                self._serial += 1
                life.generations += 1
                carriers, nodes, port = self.pool.carriers, tuple(sorted(life.nodes)), FIRST_PORT + self._serial % PORTS
                number = life.generations
                life.current = Generation(number, nodes, set(nodes), rate_before=life.rate)
                meeting = len(nodes), carriers[nodes[0]].address, port
                for rank, node in enumerate(nodes):
                    self._busy[node] = life.name, number
                    self._effects.append(ev.StartRank(node, carriers[node].name, life.task, number, rank, *meeting))
        elif generation.failed is not None or generation.lost or set(generation.nodes) != life.nodes:
            # Ask each rank once; those on a carrier that leaves were asked by it.
            for node in sorted(generation.live - generation.asked):
                generation.asked.add(node)
                if not self.pool.carriers[node].leaving:
                    self._effects.append(ev.StopRank(node, self.pool.carriers[node].name, life.name, generation.number))

    def _give_way(self) -> None:
        """Have carriers leave for jobs that wait: those of which tasks have nothing yet, then as is decided."""
        if not self._wanted:
            return
        active = {node: carrier for node, carrier in self.pool.carriers.items() if not carrier.leaving}
        nodes = [node for node, carrier in active.items() if not carrier.offered][: self._wanted]
        nodes += self.allocator.choose_leaving(self._wanted - len(nodes))
        self._effects += [ev.Release(node, active[node].name, for_others=True) for node in nodes]

    def _stop(self, reason: str) -> None:
        """Give all nodes back, and take no more."""
        self.ending, self.pool.closed = self.ending or reason, True
        for node, carrier in [*self.pool.carriers.items()]:
            if not carrier.leaving:
                self._effects.append(ev.Release(node, carrier.name))
                self._carrier_went(ev.CarrierLeaving(node, carrier.name))

    def _say(self, text: str) -> None:
        self._effects.append(ev.Note(text))
