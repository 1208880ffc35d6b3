"""The audit's second look at a run: who held which node when, and what work that gave.

`Books` walks over all instants at which anything can happen, in the order that the specification of an event
prescribes, and compares each step with what the run recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np
from _audit_inputs import Log, Task
from _audit_model import Account, Queue

TOLERANCE = 1e-6


@dataclass
class Check:
    """One claim about the run: how often it was looked at, and where it does not hold."""

    claim: str
    looked: int = 0
    problems: list[str] = field(default_factory=list)

    def expect(self, holds: bool, problem: str, *details: object) -> None:
        """Look once; `problem` is filled with `details` if the claim does not hold."""
        self.looked += 1
        if not holds:
            self.problems.append(problem.format(*details))


@dataclass(frozen=True)
class Settings:
    """What the run was asked to do, as far as the books depend on it."""

    max_tasks: int
    decide_on: str = "all"
    initial: str = "solve"
    full_start: bool = False
    start_ns: int = 0
    end_ns: int = 0
    stopped: bool = False  # by a limit or an interrupt: what was due at the end did not happen any more


@dataclass(frozen=True)
class Records:
    """What the run recorded: decisions, and (time, node, task or None) in order; completion times by task."""

    decisions: Sequence[dict]
    moves: Sequence[tuple[int, str, str | None]]
    completed: dict[str, int]


class Books:
    """Progress of every task, booked again event by event."""

    def __init__(self, log: Log, tasks: Sequence[Task], settings: Settings, records: Records) -> None:
        self.settings, self.records, self.log = settings, records, log
        self.accounts = {task.name: Account(task) for task in tasks}
        self.queue = Queue(list(self.accounts.values()), settings.max_tasks)
        self.holder: dict[str, str] = {}
        self.idle: set[str] = set()
        self.now = settings.start_ns
        self.opening_ns: int | None = None  # the first instant with both tasks and nodes: the initial allocation
        self.idle_node_ns = 0
        self.last_booked = 0.0  # work of the last interval, which may end without an event
        self.events = Check("decisions and moves fall on events of the run")
        self.due = Check("events that change the pool or the active tasks have a decision")
        self.active = Check("decisions are about the tasks that are active")
        self.before = Check("counts before a decision are what departures and completions left")
        self.after = Check("node moves add up to the counts decided")
        self.nodes = Check("tasks hold idle nodes only, and give up those that leave")
        self.migration = Check("a growing task keeps its nodes, a shrinking one takes none")
        self.completion = Check("tasks complete exactly when their work is done")

    @property
    def checks(self) -> list[Check]:
        """All that the books look at."""
        return [
            self.events,
            self.due,
            self.active,
            self.before,
            self.after,
            self.nodes,
            self.migration,
            self.completion,
        ]

    def run(self) -> None:
        """Walk over the window."""
        rows = _by_time(zip(self.log.time_ns.tolist(), self.log.node.tolist(), self.log.idle.tolist(), strict=True))
        decisions = _by_time((row["time"], row) for row in self.records.decisions)
        moves = _by_time(self.records.moves)
        done = _by_time((time, name) for name, time in self.records.completed.items())
        known = self._event_times(set(rows), set(done))
        end = self.settings.end_ns
        for time in sorted(set(decisions) | set(moves)):
            self.events.expect(time in known and time <= end, "{}: nothing happens here", _iso(time))
        for time in sorted(time for time in known | set(decisions) | set(moves) | {end} if time <= end):
            before = self._progress()
            self._advance(time)
            self.last_booked = self._progress() - before
            is_stop = time == end and self.settings.stopped
            # Of what is due where a run was stopped, only completions have happened.
            changes = () if is_stop else rows.get(time, ())
            completing = {row[1] for row in done.get(time, ())}
            freed = self._changes(changes, completing) | self._completions(time, completing)
            self.last_booked = self._progress() - before
            admitted = self.queue.admit(time)
            if self.opening_ns is None and time < end and self.queue.active and self.idle:
                self.opening_ns = time
            if time < end and (time in rows or time in done or admitted):
                self._due(time, time in decisions)
            self._decisions(time, [row[1] for row in decisions.get(time, ())])
            self._moves(time, moves.get(time, ()), freed, decisions.get(time, ()))
            for account in self.queue.active.values():
                account.settle()

    def _progress(self) -> float:
        return sum(account.progress for account in self.accounts.values())

    def _event_times(self, rows: set[int], done: set[int]) -> set[int]:
        """Rows of the log, and unless these alone count, submissions (the early ones at the start) and completions.

        Where rows alone count, a completion may still be noticed by the end of the run.
        """
        start, end = self.settings.start_ns, self.settings.end_ns
        known = {time for time in rows if time >= start}
        if self.settings.decide_on == "nodes":
            return known | (done & {end})
        return known | done | {max(account.task.submit_ns, start) for account in self.accounts.values()}

    def _advance(self, time: int) -> None:
        elapsed = time - self.now
        self.idle_node_ns += elapsed * len(self.idle)
        for account in self.queue.active.values():
            account.advance(elapsed)
        self.now = time

    def _changes(self, rows: Sequence[tuple], completing: set[str]) -> set[str]:
        """Nodes leave and join; returns those that tasks lost.

        Completions are events of their own, before departures, unless rows alone count and they are merely noticed.
        """
        through = completing if self.settings.decide_on == "all" else set()
        lost: Counter[str] = Counter()
        taken = set()
        for _, index, idle in rows:
            node = self.log.nodes[index]
            (self.idle.add if idle else self.idle.discard)(node)
            if not idle and node in self.holder:
                lost[self.holder.pop(node)] += 1
                taken.add(node)
        for name, count in lost.items():
            if name not in through:
                self.accounts[name].preempt(count)
        return taken

    def _completions(self, time: int, names: set[str]) -> set[str]:
        """Tasks complete; returns the nodes that they give back."""
        exact = self.settings.decide_on == "all"
        for name, account in list(self.queue.active.items()):
            short = (account.task.work - account.progress) / account.task.work
            if name not in names:
                problem = "{} {}: has done all its work but goes on"
                self.completion.expect(short > -TOLERANCE if exact else short > 0, problem, _iso(time), name)
                continue
            right = abs(short) < TOLERANCE if exact else short < TOLERANCE
            self.completion.expect(right, "{} {}: completes with {:.3g} of its work left", _iso(time), name, short)
            account.complete(time)
            del self.queue.active[name]
        for name in names - {name for name in names if self.accounts[name].completed_ns == time}:
            self.completion.expect(False, "{} {}: completes without being active", _iso(time), name)
        freed = {node for node, name in self.holder.items() if name in names} if names else set()
        for node in freed:
            del self.holder[node]
        return freed

    def _decisions(self, time: int, rows: Sequence[dict]) -> None:
        if self.settings.initial == "random" and time == self.opening_ns:
            self._draw(time, rows)
        for row in rows:
            names, where = list(self.queue.active), f"event {row['event']}"
            self.active.expect(
                names == list(row["tasks"]), "{}: {} decided, {} active", where, list(row["tasks"]), names
            )
            for name, before, after in zip(row["tasks"], row["before"], row["after"], strict=True):
                account = self.accounts[name]
                self.before.expect(before == account.count, "{} {}: {} for {}", where, name, before, account.count)
                account.adopt(int(after), self.settings.full_start, time)

    def _due(self, time: int, decided: bool) -> None:
        """A decision is due while there are tasks and nodes, but for the initial allocation only if that is solved."""
        opening = time == self.opening_ns and self.settings.initial != "solve"
        due = bool(self.queue.active and self.idle) and not opening
        self.due.expect(decided or not due, "{}: {} idle nodes, no decision", _iso(time), len(self.idle))

    def _draw(self, start: int, rows: Sequence[dict]) -> None:
        """A random initial allocation is no decision; it costs a start-up each."""
        counts = Counter(task for time, _, task in self.records.moves if time == start and task is not None)
        if rows:
            counts = Counter(dict(zip(rows[0]["tasks"], map(int, rows[0]["before"]), strict=True)))
        for name, count in (+counts).items():
            account = self.accounts[name]
            account.hold(count, start)
            account.pending = float(account.task.rate[count]) * account.task.grow_s

    def _moves(self, time: int, rows: Sequence[tuple], freed: set[str], decisions: Sequence[tuple]) -> None:
        """Follow the recorded moves of nodes, and compare with counts and log."""
        gave, took = Counter(), Counter()
        for _, node, name in rows:
            old = self.holder.pop(node, None)
            known = name is None or (name in self.accounts and node in self.idle)
            changes = old != name or (name is None and node in freed)
            self.nodes.expect(known and changes, "{} {}: goes from {} to {}", _iso(time), node, old, name)
            freed.discard(node)
            if old is not None:
                gave[old] += 1
            if name is not None:
                self.holder[node] = name
                took[name] += 1
        self.nodes.expect(not freed, "{}: no release recorded of {}", _iso(time), sorted(freed))
        if len(decisions) == 1:
            self._no_migration(decisions[0][1], gave, took)
        if rows or decisions:
            held = Counter(self.holder.values())
            for name, account in self.queue.active.items():
                where = f"{_iso(time)} {name}"
                self.after.expect(held[name] == account.count, "{}: holds {} for {}", where, held[name], account.count)

    def _no_migration(self, row: dict, gave: Counter[str], took: Counter[str]) -> None:
        for name, before, after in zip(row["tasks"], row["before"], row["after"], strict=True):
            fault = (after >= before and gave[name]) or (after <= before and took[name])
            problem = "event {} {}: {} to {} nodes, gives {} and takes {}"
            self.migration.expect(not fault, problem, row["event"], name, before, after, gave[name], took[name])


def _by_time(rows: Iterable[tuple]) -> dict[int, list[tuple]]:
    """Rows, each beginning with its time, by time; those of one time in the order they came in."""
    return {time: list(group) for time, group in groupby(sorted(rows, key=itemgetter(0)), key=itemgetter(0))}


def _iso(time_ns: int) -> str:
    return str(np.datetime64(int(time_ns), "ns"))
