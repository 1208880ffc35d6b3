"""The replay's state machine: events in, effects out; no files, no clock, no solver.

Task numbers index the list of all tasks (file order); node numbers index the node names. Arrays of active tasks share
one order, that of admission.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import TaskSpec, rounding_s
from bftrainer.model.records import Overrun
from bftrainer.replay.allocator_settings import BUSY, FREE, Effects, Floats, Indices, Settings, Status
from bftrainer.replay.moves import Moved, Moves, arrivals, moved, moved_by_departure, pooled
from bftrainer.replay.saving import SaveClock, begun, hit_s, running_clocks, saved

NO_NODES: Indices = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class ReplayState:
    """Pool, active tasks and the nodes each holds, at an instant.

    Parameters
    ----------
    settings : Settings
    specs : tuple of TaskSpec, length T
        All tasks.
    submit_s : ndarray of float64, shape (T,)
        Submission times in seconds since the window's start.
    owner : ndarray of int32, shape (M,)
        Task number that holds each node, or FREE or BUSY.
    status : ndarray of int8, shape (T,)
    time_s : float
    pool : int
        Number of idle nodes, held or free.
    active : ndarray of int32, shape (A,)
        Task numbers in order of admission.
    counts : ndarray of int64, shape (A,)
    work, progress, rate, pending : ndarray of float64, shape (A,)
        Work to do, work done, work/s now, and work that the next event deducts.
    clocks : mapping of int to SaveClock
        Of those tasks that save, by number.
    arrived : ndarray of int32, shape (M,), or None
        Number of each node's last arrival, if that is the order they move in.
    """

    settings: Settings
    specs: tuple[TaskSpec, ...]
    submit_s: Floats
    owner: Indices
    status: NDArray[np.int8]
    time_s: float = 0.0
    pool: int = 0
    active: Indices = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    counts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    work: Floats = field(default_factory=lambda: np.empty(0))
    progress: Floats = field(default_factory=lambda: np.empty(0))
    rate: Floats = field(default_factory=lambda: np.empty(0))
    pending: Floats = field(default_factory=lambda: np.empty(0))
    clocks: Mapping[int, SaveClock] = field(default_factory=dict)
    arrived: Indices | None = None

    @classmethod
    def initial(cls, settings: Settings, specs: Sequence[TaskSpec], submit_s: Floats, nodes: int) -> ReplayState:
        """The state with all nodes busy and no task submitted yet."""
        owner = np.full(nodes, BUSY, dtype=np.int32)
        arrived = np.zeros(nodes, dtype=np.int32) if settings.compat == "published" else None
        return cls(settings, tuple(specs), submit_s, owner, np.zeros(len(specs), dtype=np.int8), arrived=arrived)

    @property
    def needs_decision(self) -> bool:
        """Whether there are nodes to allocate and tasks to run."""
        return self.pool > 0 and self.active.size > 0

    @property
    def is_finished(self) -> bool:
        """Whether nothing is active and nothing will be submitted."""
        return self.active.size == 0 and bool((self.status >= Status.DONE).all())

    @property
    def kept(self) -> list[int]:
        """The present allocation, without the nodes of tasks that hold fewer than their minimum."""
        held = zip(self.active.tolist(), self.counts.tolist(), strict=True)
        return [count if count >= self.specs[task].min_nodes else 0 for task, count in held]

    def next_completion(self) -> tuple[float, NDArray[np.bool_]]:
        """Time at which the next active task completes its work at the present rates, and which ones do then.

        Returns
        -------
        time_s : float
            Infinity if no task is running.
        reaching : ndarray of bool, shape (A,)
        """
        running = self.rate > 0
        if not running.any():
            return np.inf, running
        times = self._reached_s(running)
        first = float(times.min())
        return first, times <= first + rounding_s(first)

    def _reached_s(self, running: NDArray[np.bool_]) -> Floats:
        """Time at which each running active task completes its work at the present rates; infinity for the others."""
        times: Floats = np.full(self.active.size, np.inf)
        np.divide(self.work - self.progress + self.pending, self.rate, out=times, where=running)
        for slot, clock in running_clocks(self.clocks, self.active, self.rate):
            times[slot] = clock.reached_s(times.item(slot))
        # Rounding may leave progress slightly above the work: such a task completes now, not in the past.
        return self.time_s + np.maximum(times, 0.0)

    def _saved(self, time_s: float) -> tuple[dict[int, SaveClock], Floats]:
        """Clocks at `time_s`, and the work that saves have cost since; a task whose work is done saves no more."""
        if not self.clocks:
            return {}, np.zeros(self.active.size)
        until_s = np.minimum(time_s, self._reached_s(self.rate > 0))
        return saved(self.clocks, self.active, self.rate, until_s - self.time_s)

    def apply(
        self, time_s: float, joined: Indices = NO_NODES, left: Indices = NO_NODES, completed: Sequence[int] = ()
    ) -> tuple[ReplayState, Effects]:
        """Book the time since the last event, then departures, completions, arrivals and admissions.

        Parameters
        ----------
        time_s : float
            Not before the state's own time.
        joined, left : ndarray of int32
            Numbers of busy nodes that become idle, and of idle nodes that become busy.
        completed : sequence of int
            Active tasks that the event reports as complete.
        """
        clocks, saving = self._saved(time_s)
        progress, lost, preemption, ended = self._book_progress(time_s, left, completed, clocks, saving)
        gross = progress - self.progress + self.pending + preemption + saving
        owner, released = self._release_nodes(left, ended)
        done, again = self._split_ended(ended)
        if joined.size:
            owner = owner if owner is not self.owner else owner.copy()
            owner[joined] = FREE
        active, work, counts, begun = self.active, self.work, self.counts - lost, progress
        if again is not None:
            counts, begun = np.where(again, 0, counts), np.where(again, 0.0, progress)
        if done is not None:
            going = ~done
            active, work, counts, begun = active[going], work[going], counts[going], begun[going]
        status, pool, nothing = self._mark_done(done), self.pool + joined.size - left.size, np.zeros(active.size)
        # The constructor is called, here and in `adopt`, as `replace` would take a tenth of an event's time.
        same = self.settings, self.specs, self.submit_s
        came = arrivals(self.arrived, joined, self.owner.size)
        state = ReplayState(
            *same, owner, status, time_s, pool, active, counts, work, begun, nothing, nothing, clocks, came
        )
        state, admitted = state._admit()
        return state, Effects(
            time_s=time_s,
            elapsed_s=time_s - self.time_s,
            tasks=self.active,
            gross=gross,
            rescale_cost=self.pending,
            preemption_cost=preemption,
            saving_cost=saving,
            lost=lost,
            completed=() if done is None else tuple(self.active[done].tolist()),
            admitted=admitted,
            joined=int(joined.size),
            left=int(left.size),
            released=released,
            retrying=() if again is None else tuple(self.active[again].tolist()),
            overruns=self._overruns(time_s, gross) if self.settings.completions == "noticed" else (),
        )

    def _book_progress(
        self, time_s: float, left: Indices, completed: Sequence[int], clocks: dict[int, SaveClock], saving: Floats
    ) -> tuple[Floats, NDArray[np.int64], Floats, NDArray[np.bool_] | None]:
        """Compute progress at `time_s`, nodes lost, the work that costs, and which active tasks ended; note hits."""
        done = np.isin(self.active, np.asarray(completed, dtype=np.int32)) if len(completed) else None
        progress = self.progress + (time_s - self.time_s) * self.rate - self.pending - saving
        if done is not None:
            progress[done] = self.work[done]
        lost, preemption = self._losses(left, done, progress, clocks)
        progress -= preemption
        if self.settings.completions == "noticed":
            reached = progress >= self.work - rounding_s(time_s) * self.rate
            progress[reached] = self.work[reached]
            done = reached if done is None else done | reached
        # Rounding at the end of a replay, and late reports, must not give more progress than work.
        np.minimum(progress, self.work, out=progress)
        return progress, lost, preemption, done

    def _overruns(self, time_s: float, gross: Floats) -> tuple[Overrun, ...]:
        """Running tasks that completed their work before `time_s`, given the work done until then."""
        reached_s = self._reached_s(self.rate > 0)
        return tuple(
            Overrun(
                task=int(self.active[slot]),
                rate=float(self.rate[slot]),
                reached_s=float(reached_s[slot]),
                idle_from_s=min(time_s, self.time_s + float(gross[slot] / self.rate[slot])),
            )
            for slot in np.flatnonzero(reached_s < time_s).tolist()
        )

    def _split_ended(
        self, ended: NDArray[np.bool_] | None
    ) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
        """Which active tasks are done, and which ended a run without reaching its target."""
        if ended is None:
            return None, None
        runs = [self.specs[task].run for task in self.active.tolist()]
        again = ended & np.array([run is not None and not run.reaches for run in runs], dtype=np.bool_)
        return (ended & ~again, again) if again.any() else (ended, None)

    def _losses(
        self, left: Indices, done: NDArray[np.bool_] | None, progress: Floats, clocks: dict[int, SaveClock]
    ) -> tuple[NDArray[np.int64], Floats]:
        """Nodes lost per active task and the work that costs: once per event, however many nodes; clocks note hits."""
        lost = np.zeros(self.active.size, dtype=np.int64)
        cost = np.zeros(self.active.size)
        if not left.size:
            return lost, cost
        holders = self.owner[left]
        holders = holders[holders >= 0]
        if holders.size:
            lost = np.bincount(holders, minlength=len(self.specs))[self.active]
            if done is not None:
                lost[done] = 0
            for slot in lost.nonzero()[0].tolist():
                task, rate = self.active.item(slot), self.rate.item(slot)
                clock = clocks.get(task)
                if clock is None:
                    cost[slot] = self.specs[task].shrink_cost_s * rate
                elif rate > 0:
                    # What was done is not lost, whether or not an event has noticed that.
                    if progress.item(slot) < self.work.item(slot) - rounding_s(self.time_s) * rate:
                        cost[slot] = clock.unsaved + self.specs[task].start_s(self.counts.item(slot)) * rate
                    clocks[task] = clock.hit()
        return lost, cost

    def _release_nodes(
        self, left: Indices, done: NDArray[np.bool_] | None
    ) -> tuple[Indices, tuple[tuple[int, Indices], ...]]:
        """Owners after departures and completions, and the nodes that tasks lost."""
        if done is None and not left.size:
            return self.owner, ()
        owner = self.owner.copy()
        released: list[tuple[int, Indices]] = []
        if done is not None:
            for task in self.active[done].tolist():
                nodes = np.flatnonzero(owner == task).astype(np.int32)
                owner[nodes] = FREE
                released.append((task, nodes))
        if left.size:
            holders = owner[left]
            for task in sorted(set(holders.tolist())):
                if task >= 0:
                    released.append((task, left[holders == task]))
            owner[left] = BUSY
        return owner, tuple(released)

    def _mark_done(self, done: NDArray[np.bool_] | None) -> NDArray[np.int8]:
        if done is None or not done.any():
            return self.status
        status = self.status.copy()
        status[self.active[done]] = Status.DONE
        return status

    def _admit(self) -> tuple[ReplayState, tuple[int, ...]]:
        """Admit waiting tasks that are due, in file order, while there is room."""
        room = self.settings.max_tasks - self.active.size
        if room <= 0:
            return self, ()
        due = ((self.status == Status.WAITING) & (self.submit_s <= self.time_s)).nonzero()[0][:room]
        if not due.size:
            return self, ()
        status = self.status.copy()
        status[due] = Status.ACTIVE
        nothing = np.zeros(due.size)
        more = {"active": due.astype(np.int32), "counts": nothing.astype(np.int64)}
        more |= {"work": np.array([self.specs[task].work for task in due])}
        more |= dict.fromkeys(("progress", "rate", "pending"), nothing)
        clocks = {**self.clocks, **{task: SaveClock() for task in due.tolist() if self.specs[task].saves}}
        longer: dict[str, Any] = {name: np.concatenate((getattr(self, name), values)) for name, values in more.items()}
        return replace(self, status=status, clocks=clocks, **longer), tuple(due.tolist())

    def respecified(self, specs: Mapping[int, TaskSpec]) -> ReplayState:
        """The same instant with new specs for some tasks: new work to do, and new rates for those that run."""
        roster = list(self.specs)
        for task, spec in specs.items():
            roster[task] = spec
        work = np.array([roster[task].work for task in self.active.tolist()])
        state = replace(self, specs=tuple(roster), work=work)
        return replace(state, rate=np.where(self.rate > 0, state._rates(self.counts), 0.0))

    def given_up(self, tasks: Collection[int]) -> tuple[ReplayState, tuple[int, ...], tuple[tuple[int, Indices], ...]]:
        """The same instant without some waiting or active tasks, with those admitted instead and the nodes freed."""
        status = self.status.copy()
        status[list(tasks)] = Status.FAILED
        lost = np.isin(self.active, list(tasks))
        owner, released = self._release_nodes(NO_NODES, lost)
        keep = ~lost
        fields = ("active", "counts", "work", "progress", "rate", "pending")
        kept = {name: getattr(self, name)[keep] for name in fields}
        state, admitted = replace(self, owner=owner, status=status, **kept)._admit()
        return state, admitted, released

    def adopt(self, counts: Sequence[int], remaining_s: Floats | None = None) -> tuple[ReplayState, Moves]:
        """Give each active task its new count, without migration.

        Shrinking tasks give up their lowest-numbered nodes first; then growing ones take free nodes in node order. With
        `remaining_s`, by node number how long each stays, they give up those that leave first, and those
        tasks that lose most when they lose nodes are the first to take those that stay longest.
        """
        after = np.array(counts, dtype=np.int64)
        changed = (after != self.counts).nonzero()[0].tolist()
        owner, added, removed = self._moved(after, changed, remaining_s)
        pending = self._rescale_costs(after, changed)
        return self._with_allocation(owner, after, pending), Moves(added, removed, pending)

    def _moved(
        self, after: NDArray[np.int64], changed: list[int], remaining_s: Floats | None
    ) -> tuple[Indices, Moved, Moved]:
        """Owners when the slots `changed` have `after` nodes, and the nodes that tasks gain and give up."""
        if not changed:
            return self.owner, (), ()
        if remaining_s is not None:
            tasks = zip(self.active.tolist(), after.tolist(), strict=True)
            lost_s = [hit_s(self.specs[task], self.clocks.get(task), count) for task, count in tasks]
            at_stake = self._rates(after) * lost_s
            changed = sorted(changed, key=lambda slot: -at_stake[slot])
        sizes = [(self.active.item(slot), after.item(slot) - self.counts.item(slot)) for slot in changed]
        if remaining_s is not None:
            return moved_by_departure(self.owner, sizes, remaining_s)
        return moved(self.owner, sizes, self.arrived)

    def _with_allocation(self, owner: Indices, counts: NDArray[np.int64], pending: Floats) -> ReplayState:
        """The same instant with another allocation."""
        clocks = begun(self.clocks, self.specs, self.active, self.counts, counts)
        same, status, time_s, pool = (self.settings, self.specs, self.submit_s), self.status, self.time_s, self.pool
        active, work, progress, rate = self.active, self.work, self.progress, self._rates(counts)
        return ReplayState(
            *same, owner, status, time_s, pool, active, counts, work, progress, rate, pending, clocks, self.arrived
        )

    def adopt_random(
        self, rng: np.random.Generator, within: Callable[[list[int]], list[int]] = lambda counts: counts
    ) -> tuple[ReplayState, Moves]:
        """Give every idle node to a random active task; clear tasks below their minimum, trim those above maximum.

        `within` may clear further tasks. The start-up cost `grow_cost_s * rate` is booked as in the published code.
        """
        pool = pooled(self.owner, self.arrived)
        draw = rng.integers(self.active.size, size=pool.size)
        specs = [self.specs[task] for task in self.active.tolist()]
        drawn = [pool[draw == slot][: spec.max_nodes] for slot, spec in enumerate(specs)]
        counts = within([own.size if own.size >= spec.min_nodes else 0 for own, spec in zip(drawn, specs, strict=True)])
        given = zip(self.active.tolist(), drawn, counts, strict=True)
        owner, added = self.owner.copy(), tuple((task, nodes) for task, nodes, count in given if count)
        for task, nodes in added:
            owner[nodes] = task
        after = np.array(counts, dtype=np.int64)
        start_s = [spec.start_s(count) for spec, count in zip(specs, counts, strict=True)]
        pending = self._rates(after) * np.array(start_s)
        return self._with_allocation(owner, after, pending), Moves(added, (), pending)

    def _rates(self, counts: NDArray[np.int64]) -> Floats:
        """Work/s per active task at `counts`; 0 below its minimum."""
        slots = zip([self.specs[task] for task in self.active.tolist()], counts.tolist(), strict=True)
        return np.array([spec.rates.item(count) if count >= spec.min_nodes else 0.0 for spec, count in slots])

    def _rescale_costs(self, after: NDArray[np.int64], changed: Sequence[int]) -> Floats:
        """Cost in work, for each active task, of going from the present counts to `after`, in the slots `changed`."""
        costs = np.zeros(self.active.size)
        for slot in changed:
            spec = self.specs[self.active.item(slot)]
            old, new = self.counts.item(slot), after.item(slot)
            if old >= spec.min_nodes or (old and self.settings.compat == "published"):
                grow_s, shrink_s = spec.change_s(old)
                costs[slot] = spec.rates[old] * (grow_s if new > old else shrink_s)
            elif self.settings.startup_cost == "full" and new > old:
                costs[slot] = spec.rates[new] * spec.start_s(new)
        return costs
