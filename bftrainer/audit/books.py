"""Replay of a recorded run by the audit: events, nodes that tasks hold, and work done.

`Books` walks over all instants at which anything can happen, in the order that the specification of an event
prescribes. From the record it takes only what cannot be recomputed: the decided counts and power limits, and the
completion times, which it checks. All else is recomputed from the inputs, and compared.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bftrainer.audit.accounts import Account, AuditedStep, Mode, Queue, Timeline
from bftrainer.audit.decisions import Judge, Rules
from bftrainer.audit.group_policies import StuckError
from bftrainer.audit.group_tuning import EndedRun, TuningGroup
from bftrainer.audit.input_files import NS, Log, Task
from bftrainer.audit.parts import MEASURED, TOLERANCE, Part
from bftrainer.audit.pool import Pool
from bftrainer.audit.recorded_run import RecordedRun

# A recomputed time equals the recorded one if they are as near as this: both are sums of rounded times.
SNAP_NS = 10_000


@dataclass(frozen=True)
class _Due:
    """Events of an instant: rows of the log, completing tasks, runs that end short of their target."""

    changes: list[tuple[int, int, bool]]
    completing: set[str]
    missing: list[Account]


class Books:
    """Progress of every task, recomputed event by event."""

    def __init__(
        self,
        log: Log,
        tasks: Sequence[Task],
        settings: Rules,
        record: RecordedRun,
        judge: Judge,
        groups: Iterable[TuningGroup] = (),
    ) -> None:
        self.settings, self.record, self.log, self.judge = settings, record, log, judge
        self.accounts = {task.name: Account(task) for task in tasks}
        never = {row["task"] for row in record.tasks if settings.live and row["started"] is row["completed"] is None}
        # One that was taken back from a harvest while it waited has next to no work, and kept no other out.
        waiting = [each for each in self.accounts.values() if each.task.name not in never or each.task.work > 1e-9]
        self.queue = Queue(waiting, settings.max_tasks)
        self.groups = {group.name: group for group in groups}
        self.attempts: list[EndedRun] = []
        self.nodes = Pool(log, list(self.accounts), arriving=settings.published)
        self.time = Timeline(settings.start_ns, settings.idle_w, noticed=not self._exact)
        self.now = settings.start_ns
        self._opened = False
        self._recorded_times = sorted(row["time"] for row in record.steps)
        self._moves = _by_time(record.moves)
        self.events = Part("each event has its row in the step log, and nothing happens between events")
        self.due = Part("there is a decision at each event that changes the pool or the active tasks, and at no other")
        self.pool = Part("the pool holds the nodes that are idle by the log")
        self.active = Part("each decision covers the active tasks, and no others")
        self.before = Part("tasks come to a decision with the nodes that departures and completions left them")
        self.beliefs = Part("what decisions believed of scaling are curves, each believed at a decision on its task")
        self._beliefs: dict[tuple[int, str], list[tuple[int, float]]] = defaultdict(list)
        for belief in record.beliefs or ():
            self._beliefs[belief["event"], belief["task"]].append((belief["nodes"], belief["throughput"]))
        self._believed: dict[str, Mode] = {}
        self.start = Part("the random initial allocation is the one that the seed draws")
        self.completion = Part("tasks complete exactly when their work is done")

    @property
    def parts(self) -> list[Part]:
        """All parts that the books check."""
        drawn = [self.start] if self.settings.initial == "random" else []
        found = [self.events, self.due, self.pool, self.active, self.before, self.nodes.part, self.completion]
        return found + drawn + ([] if self.record.beliefs is None else [self.beliefs])

    @property
    def saves(self) -> bool:
        """Whether any task saves."""
        return any(account.task.saving is not None for account in self.accounts.values())

    @property
    def _exact(self) -> bool:
        """Whether completions are events at their exact times."""
        return self.settings.decide_on == "all"

    def run(self) -> None:
        """Walk over the window."""
        rows = _by_time(zip(self.log.time_ns.tolist(), self.log.node.tolist(), self.log.idle.tolist(), strict=True))
        done = _by_time((time, name) for name, time in self.record.completed.items())
        steps, decisions = (
            _by_time((row["time"], row) for row in kept) for kept in (self.record.steps, self.record.decisions)
        )
        known, end = self._known(set(rows), set(done)), self.settings.end_ns
        instants = sorted({*known, *decisions, *self._moves, *steps, end, *[self.now] * self.settings.published})
        place = 0
        while place < len(instants) and (time := min(instants[place], self._next_miss())) <= end:
            place += time == instants[place]
            for account in self.queue.active.values():
                account.advance(time - self.now)
            self.now = time
            is_stop = time == end and self.settings.stopped
            missing = self._missing(is_stop) if self._exact else []
            # Of what is due where a run was stopped, only completions that have been noticed have happened.
            changes = [] if is_stop else rows.get(time, [])
            due = _Due(changes, {row[1] for row in done.get(time, ())}, missing)
            happens = not is_stop and (time in known or bool(missing))
            counts = [len(each.get(time, ())) for each in (steps, decisions, self._moves)]
            fits = bool(counts[0]) if happens else not counts[0] and (time == end or not any(counts))
            self.events.expect(fits, "{}: {} rows in the step log, {} decisions, {} moves", _iso(time), *counts)
            recorded = [row[1] for row in steps.get(time, ())]
            self._instant(recorded, due, [row[1] for row in decisions.get(time, ())])
            self.nodes.compare(_iso(time), self._moves.get(time, ()))
        for event, name in self._beliefs:
            self.beliefs.expect(False, "event {} {}: believed at no decision on it", event, name)
        for time in instants[place:]:
            self.events.expect(False, "{}: after the end of the run", _iso(time))

    def _known(self, rows: set[int], done: set[int]) -> set[int]:
        """Rows of the log and changes of the cap; also submissions and completions, unless rows alone count."""
        start, end, cap = self.settings.start_ns, self.settings.end_ns, self.settings.cap
        known = {time for time in rows if time >= start}
        if cap is not None:
            known |= {start + round(time_s * NS) for time_s in cap.changes((self.log.end_ns - start) / NS)}
        if self._exact:
            known |= done | {max(account.task.submit_ns, start) for account in self.accounts.values()}
        return {time for time in known if time <= end}

    def _next_miss(self) -> int:
        """When the next run ends that will miss its target; where that is no event of its own, after the end."""
        never = soonest = self.settings.end_ns + 1
        for account in self.queue.active.values() if self._exact else ():
            if _will_miss_target(account) and account.rate > 0:
                left_s = account.reached_s(account.mode.work - account.progress + account.pending)
                soonest = min(soonest, self.now + max(0, round(left_s * NS)))
        if soonest == never:
            return never
        place = bisect_left(self._recorded_times, max(soonest - SNAP_NS, self.now + 1))
        recorded: int = self._recorded_times[place] if place < len(self._recorded_times) else never
        return recorded if recorded <= soonest + SNAP_NS else soonest

    def _missing(self, is_stop: bool = False) -> list[Account]:
        """Active tasks whose run has just ended short of its target."""
        found = []
        for account in self.queue.active.values():
            if not _will_miss_target(account) or not account.rate > 0:
                continue
            left, near = account.mode.work - account.progress, account.rate * SNAP_NS / NS
            # Where rounding decides, or all was stopped, a run that ended is known by the nodes that it gave back.
            sure = left <= near if self._exact and not is_stop else left < -near
            if sure or (left <= near and self._moves_all_nodes(account)):
                found.append(account)
        return found

    def _moves_all_nodes(self, account: Account) -> bool:
        held = set(self.nodes.held(account.task.name))
        return bool(held) and held <= {node for _, node, _ in self._moves.get(self.now, ())}

    def _instant(self, recorded: list[dict[str, Any]], due: _Due, decisions: list[dict[str, Any]]) -> None:
        """All events of one instant: mostly one, more where their times differ by less than a nanosecond."""
        rows: list[dict[str, Any] | None] = [*recorded] or [None]
        takes = next((place for place, row in enumerate(rows) if row and row["Nleft"] + row["Njoin"]), 0)
        left, undecided = set(due.completing), list(decisions)
        for place, row in enumerate(rows):
            last = place == len(rows) - 1
            decision = next((each for each in undecided if last or (row and each["event"] == row["evt"])), None)
            undecided = [each for each in undecided if each is not decision]
            through = {name for name in left if last or (decision and name not in decision["tasks"])}
            left -= through
            changes = due.changes if place == takes else []
            self._event(row, _Due(changes, through, due.missing if last else []), decision)
        for each in undecided:
            self.due.expect(False, "event {}: another decision at {}", each["event"], _iso(self.now))

    def _event(self, row: dict[str, Any] | None, due: _Due, decision: dict[str, Any] | None) -> None:
        """Departures, completions, arrivals, admissions, tuning, the decision, in this order."""
        figures = self._changed(due)
        missing = due.missing if self._exact else self._missing()
        self._ended(due.completing, missing)
        interval = self.time.close(self.now, self.accounts.values())
        figures |= {"Thr": interval.net, "SaveCost": interval.saving}
        self._launched(missing, self.queue.admit(self.now))
        ends = self.now >= self.settings.end_ns
        if ends and self.settings.published and due.changes:  # there the last row is decided
            ends = self.now < self.log.end_ns
        deciding = not ends and bool(self.queue.active) and self.nodes.size > 0
        opening, self._opened = deciding and not self._opened, self._opened or deciding
        if opening and self.settings.initial == "random":
            self._drawn()
        solves = deciding and not (opening and self.settings.initial != "solve")
        what = "{}: {} idle nodes, {} active tasks, {} decision"
        counts = (self.nodes.size, len(self.queue.active), "a" if decision else "no")
        self.due.expect((decision is not None) == solves, what, _iso(self.now), *counts)
        if decision is not None:
            if row is not None:
                self.due.same(f"{_iso(self.now)} event", decision["event"], row["evt"])
            self._decided(decision)
        active = list(self.queue.active.values())
        for account in active:
            account.settle(ends=ends)
        self.time.steps.append(AuditedStep(self.now, row, figures | self.time.open(self.now, self.nodes.size, active)))

    def _changed(self, due: _Due) -> dict[str, float]:
        """Nodes leave and join; a task that loses some pays once.

        Completions are events of their own, before departures, unless rows alone count and they are merely noticed.
        """
        through = due.completing | {account.task.name for account in due.missing} if self._exact else set()
        lost, left, joined = self.nodes.change(due.changes, through)
        costs = [self.accounts[name].preempt(count) for name, count in lost.items()]
        paid = sum(map(bool, costs)) if self.settings.published else len(lost)
        return {"Nleft": left, "Njoin": joined, "Npre": paid, "PreCost": sum(costs)}

    def _ended(self, completing: set[str], missing: list[Account]) -> None:
        """Tasks complete, and runs end that missed their target; all give their nodes back."""
        for name, account in list(self.queue.active.items()):
            short, run = (account.mode.work - account.progress) / account.mode.work, account.mode.run
            if name in completing:
                right = abs(short) < TOLERANCE if self._exact else short < TOLERANCE
                problem = "{} {}: completes with {:.3g} of its work left"
                if self.settings.live:
                    self.completion.leave_out(MEASURED)
                else:
                    right = right and not _will_miss_target(account)
                    self.completion.expect(right, problem, _iso(self.now), name, short)
                account.completed_ns = self.now
                del self.queue.active[name]
            elif not any(account is each for each in missing):
                goes_on = self.settings.live or (short > -TOLERANCE if self._exact else short > -1e-12)
                self.completion.expect(goes_on, "{} {}: has done all its work but goes on", _iso(self.now), name)
                continue
            account.end()
            self.nodes.free(name)
            if run is not None:
                self.attempts.append(self.groups[_group(account)].end(name, dict(account.work_at)))
                account.work_at.clear()
        for name in completing:
            right = name in self.accounts and self.accounts[name].completed_ns == self.now
            self.completion.expect(right, "{} {}: completes without being active", _iso(self.now), name)
        for account in missing:
            account.retry()

    def _launched(self, missing: list[Account], admitted: list[Account]) -> None:
        """Runs begin; what belongs to a group that cannot go on is given up, which may let others in."""
        self._launch([*missing, *admitted])
        while lost := self._stuck_tasks():
            for account in lost:
                account.failed, account.stopped = True, any(account is each for each in missing)
                if account.task.name in self.queue.active:
                    self.nodes.free(account.task.name)
                account.count, account.rate = 0, 0.0
            self.queue.give_up(lost)
            self._launch(self.queue.admit(self.now))

    def _launch(self, accounts: list[Account]) -> None:
        for account in accounts:
            group = self.groups.get(_group(account)) if account.task.tuned else None
            if group is not None and group.failure is None:
                try:
                    account.launch(group.launch(account.task.name))
                except StuckError as why:
                    group.failure = str(why)

    def _stuck_tasks(self) -> list[Account]:
        """Tasks, waiting or active, of groups that cannot go on."""
        failed = {group.name for group in self.groups.values() if group.failure is not None}
        everyone = [*self.queue.waiting, *self.queue.active.values()] if failed else []
        return [account for account in everyone if account.task.tuned and _group(account) in failed]

    def _drawn(self) -> None:
        """A random initial allocation is no decision; it costs a start-up each."""
        active = list(self.queue.active.values())
        bounds = [(account.task.name, account.task.least, account.task.most) for account in active]
        rng = np.random.default_rng(self.settings.seed)
        cap_w, idle_w = self.settings.cap_w(self.now), self.settings.idle_w
        spare_w = math.inf if cap_w is None else cap_w / self.settings.pue - self.nodes.size * idle_w
        for account, nodes in zip(active, self.nodes.draw(rng, bounds), strict=True):
            above_w = account.most_w(account.mode, len(nodes)) - len(nodes) * idle_w
            if above_w > spare_w:
                nodes = nodes[:0]
            spare_w -= max(0.0, above_w) if nodes.size else 0.0
            self.nodes.give(account.task.name, nodes)
            account.hold(len(nodes), self.now)
            start_s = float(account.task.start_s[account.count])
            account.pending = account.speed(account.count) * start_s
            account.rescaling_s = start_s if account.pending else 0.0
            theirs = [move[2] for move in self._moves.get(self.now, ()) if move[2] == account.task.name]
            self.start.same(f"{_iso(self.now)} {account.task.name}", len(theirs), len(nodes))

    def _believe(self, event: int, account: Account) -> None:
        """Let a task have the curve that the decision at an event believed, if that was learnt."""
        task, name = account.task, account.task.name
        points = self._beliefs.pop((event, name), None)
        if points is not None:
            nodes, rates = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
            reaches = nodes[0] == 0 and rates[0] == 0 and nodes[-1] >= task.most and bool((np.diff(nodes) > 0).all())
            sound = reaches and bool((rates >= 0).all()) and bool(np.isfinite(rates).all())
            self.beliefs.expect(sound, "event {} {}: no curve from 0 to {} nodes", event, name, task.most)
            rate = np.interp(np.arange(task.most + 1), nodes, rates)
            self._believed[name] = replace(Mode.plain(task), rate=rate, credit=rate)
        if name in self._believed:
            account.modes, account.mode = [self._believed[name]], self._believed[name]

    def _decided(self, row: dict[str, Any]) -> None:
        """Follow a decision."""
        where, names = f"event {row['event']}", list(self.queue.active)
        self.pool.same(where, row["nodes"], self.nodes.size)
        if not self.active.expect(names == row["tasks"], "{}: {} decided, {} active", where, row["tasks"], names):
            return
        accounts = list(self.queue.active.values())
        for account, before in zip(accounts, row["before"], strict=True):
            self.before.same(f"{where} {account.task.name}", before, account.count)
        now_s = (self.now - self.settings.start_ns) / NS
        true = [account.mode for account in accounts]
        for account in accounts:
            self._believe(row["event"], account)
        modes = self.judge.judge(row, accounts, now_s, self.settings.cap_w(self.now))
        for place, account in enumerate(accounts):
            if account.task.name in self._believed:
                # Work is booked at the true rates.
                account.modes, account.mode, modes[place] = [true[place]], true[place], true[place]
        held = [account.count for account in accounts]
        for account, mode, after in zip(accounts, modes, row["after"], strict=True):
            account.adopt(after, mode, self.settings.full_start, self.now, published=self.settings.published)
        changes = [(each.task.name, each.count - before) for each, before in zip(accounts, held, strict=True)]
        self.nodes.move(changes)


def _group(account: Account) -> str:
    return account.task.name if account.task.group is None else account.task.group


def _will_miss_target(account: Account) -> bool:
    """Whether a task is in a run that will end short of its target."""
    return account.mode.run is not None and not account.mode.run.reached


def _by_time(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    """Rows, each beginning with its time, by time; those of one time in the order they came in."""
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    return dict(found)


def _iso(time_ns: float) -> str:
    return str(np.datetime64(int(time_ns), "ns"))
