"""The reference replayer: one plain event loop, written from the specifications alone, that judges the product's.

It imports nothing of the product but its data classes, and favours what is short to what is fast: a save at a time,
every allocation compared that may be the best. Docstrings name sections of the specifications: R replay (section 3 is
the order within an event, section 4 the decision), P preemption costs, Z Zeus (A published, E tuned), G what to grant.

Where they leave room, docs/replay.md and docs/dev/solvers.md hold: completions come before departures of their
instant, or with `decide_on` "nodes" are noticed after them; the window's end decides nothing; ties go to the fewest
changed counts, then to the largest counts in order of admission. Under a cap that binds the last rule is not promised:
there the reference follows what it judges, if that is one of the equal allocations.
"""

from __future__ import annotations

import copy
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bftrainer.model import NodeLog, NodePoints, TaskSpec
from tests.reference.rules import NS, Row, Rules, offer_rows
from tests.reference.tuning import Group, MeasuredJob, Run, StuckError

INSTANT_S = 1e-9  # computed times that differ by less are one instant
SAVED_S = 1e-6  # a save that lacks less than this is whole
TIE = 2.0**-36  # values that differ by less, relative to the largest, are equal
FREE = -1
BOOKED = ("gross", "rescale_booked", "give_back_booked", "preemption_cost", "saving_cost", "preempted")

Measured = Mapping[tuple[str, str, str], MeasuredJob]  # by dataset, network and optimizer
Advice = tuple[tuple[int, ...], tuple[int | None, ...]]  # counts and power limits of a decision


def interpolate(points: Sequence[float], values: Sequence[float], most: int) -> list[float]:
    """Values at 0 to `most` nodes: linear between points, constant beyond them."""
    return [float(value) for value in np.interp(range(most + 1), points, values)]


def tabulate(seconds: float | NodePoints | None, most: int) -> list[float]:
    """P1: seconds at 0 to `most` nodes, of a number or of points."""
    if isinstance(seconds, NodePoints):
        return interpolate(seconds.nodes, seconds.seconds, most)
    return [seconds or 0.0] * (most + 1)


@dataclass
class SaveClock:
    """P1: saves of a task that runs, followed one after the other."""

    task: TaskSpec
    hits: int = 0
    ran_s: float = 0.0
    stale: bool = True  # whether it starts anew where the task runs on
    train_s: float = 0.0  # training left until the next save
    save_s: float = 0.0  # left of the save in progress; 0 while it trains
    unsaved: float = 0.0  # work

    def __post_init__(self) -> None:
        self.checkpoints_s = tabulate(self.task.checkpoint_s, self.task.max_nodes)
        self.restarts_s = tabulate(self.task.restart_s, self.task.max_nodes)
        self.intervals_s = tabulate(self.task.checkpoint_interval_s, self.task.max_nodes)

    def start(self, count: int) -> None:
        """Run on with nothing unsaved: the interval is as given, or the optimum of Young and Daly for the hazard."""
        hazard = (1 + self.hits) / (3600.0 + self.ran_s)
        self.checkpoint_s, self.interval_s = self.checkpoints_s[count], self.intervals_s[count]
        if self.task.checkpoint_interval_s is None:
            self.interval_s = max(1.0, math.sqrt(2.0 * self.checkpoint_s / hazard))
        self.train_s, self.save_s, self.unsaved, self.stale = self.interval_s, 0.0, 0.0, False

    def advance(self, elapsed_s: float, work_s: float, rate: float) -> float:
        """Run for a time, or until so many seconds have been trained; return the seconds of that spent on saves."""
        saving_s = 0.0
        while elapsed_s > 0.0 and work_s > SAVED_S:
            if self.save_s > 0.0:
                step = min(elapsed_s, self.save_s)
                self.save_s, saving_s = self.save_s - step, saving_s + step
                is_saved = self.save_s <= SAVED_S
            else:
                step = min(elapsed_s, self.train_s, work_s)
                self.train_s, work_s, self.unsaved = self.train_s - step, work_s - step, self.unsaved + step * rate
                self.save_s = self.checkpoint_s if self.train_s <= SAVED_S and work_s > SAVED_S else 0.0
                is_saved = self.train_s <= SAVED_S and self.save_s == 0.0
            if is_saved:
                self.train_s, self.save_s, self.unsaved = self.interval_s, 0.0, 0.0
            elapsed_s, self.ran_s = elapsed_s - step, self.ran_s + step
        return saving_s

    def wait_for(self, work_s: float) -> float:
        """Seconds until it has trained for so long, with the saves before that."""
        return work_s + copy.copy(self).advance(math.inf, work_s, 0.0)


@dataclass(eq=False)
class Mode:
    """How a task runs: its only way, or a run of a tuned task at one power limit. Lists are by node count."""

    work: float
    rates: list[float]
    credits: list[float]
    power_w: float = 0.0  # of a node
    profiling_w: float = 0.0
    profiled_work: float = 0.0
    limit_w: int | None = None
    run: Run | None = None

    @classmethod
    def of_task(cls, task: TaskSpec) -> Mode:
        """R1.2: a task as it is described; its credit is its throughput unless it has one."""
        curve = task.scaling
        tables = [interpolate(curve.nodes, some, task.max_nodes) for some in (curve.throughput, curve.credit) if some]
        return cls(task.work, tables[0], tables[-1])

    @classmethod
    def of_run(cls, task: TaskSpec, run: Run) -> list[Mode]:
        """Z-E3, E4: a run at each limit on offer; traces measure one node, and the curve scales that to more."""
        plain, modes = cls.of_task(task), []
        one_node = interpolate(task.scaling.nodes, task.scaling.throughput, 1)[1]
        for point in run.points:
            rates = [rate / one_node / point.time_s for rate in plain.rates]
            profiling_w = run.profiling[0] / run.profiling[1] if run.profiling else point.power_w
            watts = task.gpus_per_node * point.power_w, task.gpus_per_node * profiling_w
            credit = rates if task.scaling.credit is None else plain.credits
            modes.append(cls(run.work, rates, credit, *watts, run.profiled_work, point.limit_w, run))
        return modes


@dataclass(eq=False)
class Account:
    """R2: a task, the nodes that it holds, and its books."""

    number: int
    task: TaskSpec
    rules: Rules
    nodes: list[int] = field(default_factory=list)
    progress: float = 0.0
    rate: float = 0.0
    pending: float = 0.0
    rescaling_s: float = 0.0  # for which it draws idle power from the last instant on
    totals: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    started_s: float | None = None
    completed_s: float | None = None
    attempts: int = 0
    work_at: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    earlier: float = 0.0  # work of runs that ended short of their target
    stopped: bool = False  # given up at the end of a run
    gives_back: bool = False  # whether what is pending is for nodes given back

    def __post_init__(self) -> None:
        self.mode = Mode.of_task(self.task)
        self.modes, self.group = [self.mode], self.task.group or self.task.name
        self.clock = SaveClock(self.task) if self.task.checkpoint_s is not None else None

    @property
    def left(self) -> float:
        """Work that is left of the run."""
        return self.mode.work - self.progress

    def rate_at(self, count: int) -> float:
        """R3.8: work per second; none below the minimum."""
        return self.mode.rates[count] if count >= self.task.min_nodes else 0.0

    def change_s(self, new: int, old: int) -> float:
        """R3.7, P1: seconds of work that a decision costs that changes a count; a start has only its restart to pay."""
        if self.clock is not None:
            saves = old >= self.task.min_nodes
            return self.clock.checkpoints_s[old] + self.clock.restarts_s[old] if saves else self.clock.restarts_s[new]
        return self.task.grow_cost_s if new > old else self.task.shrink_cost_s

    def charge(self, new: int, mode: Mode, rates: str) -> float:
        """R4: what going to `new` nodes in a mode costs, in work (of `rates`) or in credit (of `credits`)."""
        old, starts = len(self.nodes), len(self.nodes) < self.task.min_nodes
        if new == old or (starts and not (new > old and self.rules.startup_cost == "full")):
            return 0.0
        rate = getattr(mode, rates)[new] if starts else getattr(self.mode, rates)[old]
        return float(rate * self.change_s(new, old))

    def seconds_for(self, work: float) -> float:
        """Seconds until it has done so much more work, with the saves before that."""
        if not self.rate > 0.0:
            return math.inf
        seconds = max(0.0, work / self.rate)
        return seconds if self.clock is None else self.clock.wait_for(seconds)

    def book(self, elapsed_s: float, lost: int, is_reported: bool, notice_s: float) -> dict[str, float]:
        """R3.1 to R3.3, P1: book the time since the last instant and a loss of nodes; progress never exceeds work.

        Returns what was booked: gross work, costs of rescaling, preemption and saving, and whether it lost nodes.
        """
        before, rate, count = self.progress, self.rate, len(self.nodes)
        profiling_s = self.seconds_for(self.mode.profiled_work - self.progress)
        left_s = (self.left + self.pending) / rate if rate > 0.0 else 0.0
        saving = 0.0 if self.clock is None else self.clock.advance(elapsed_s, left_s, rate) * rate
        self.progress = before + elapsed_s * rate - self.pending - saving
        hit, hit_s = self.lose(count, notice_s) if lost else (0.0, 0.0)
        self.progress -= hit
        near = INSTANT_S * rate if self.rules.decide_on == "nodes" else 0.0
        if is_reported or self.progress >= self.mode.work - near:
            self.progress = self.mode.work
        net = self.progress - before
        pending = (0.0, self.pending) if self.gives_back else (self.pending, 0.0)
        booked = {"gross": net + self.pending + hit + saving, "rescale_booked": pending[0]}
        booked["give_back_booked"] = pending[1]
        booked |= {"preemption_cost": hit, "saving_cost": saving, "preempted": int(lost > 0)}
        self.draw(elapsed_s, booked["gross"], profiling_s)
        for name, value in {**booked, "work_done": net, "node_s": count * elapsed_s}.items():
            self.totals[name] += value
        if self.mode.limit_w is not None and len(self.modes) > 1:
            self.work_at[self.mode.limit_w] += net
        self.pending, self.gives_back, self.rescaling_s = 0.0, False, hit_s if hit else 0.0
        return booked

    def lose(self, count: int, notice_s: float) -> tuple[float, float]:
        """R3.2, P1: work that losing nodes costs, once whatever their number, and the seconds of restarting in it."""
        if self.clock is None:
            return self.task.shrink_cost_s * self.rate, self.task.shrink_cost_s
        if not self.rate > 0.0:
            return 0.0, 0.0
        self.clock.hits, self.clock.stale = self.clock.hits + 1, True
        restart_s, save_s = self.clock.restarts_s[count], self.clock.checkpoints_s[count]
        # G2: if it knows in time, it saves before that, should a save take less.
        unsaved = min(self.clock.unsaved, save_s * self.rate if 0 < notice_s >= save_s else math.inf)
        # What was done is not lost, whether or not an event has noticed that.
        is_done = self.progress >= self.mode.work - INSTANT_S * self.rate
        return (0.0, 0.0) if is_done else (unsaved + restart_s * self.rate, restart_s)

    def expect_loss_s(self, count: int) -> float:
        """P3, G2: seconds that losing nodes costs on average: hits come at a constant hazard, and a save may be due."""
        if self.clock is None:
            return self.task.shrink_cost_s
        save_s, hazard = self.clock.checkpoints_s[count], (1 + self.clock.hits) / (3600.0 + self.clock.ran_s)
        best_s = max(1.0, math.sqrt(2.0 * save_s / hazard))
        train_s = best_s if self.task.checkpoint_interval_s is None else self.clock.intervals_s[count]
        cycle = math.exp(-hazard * (train_s + save_s))
        unsaved_s = ((1.0 - math.exp(-hazard * train_s)) / hazard - train_s * cycle) / (1.0 - cycle)
        save_s = save_s if 0 < self.rules.expected_s >= save_s else math.inf
        return min(unsaved_s, save_s) + self.clock.restarts_s[count]

    def stake(self, option: Option) -> float:
        """G2: work that losing nodes costs on average: in the mode that it pays for, if it starts, else in its own."""
        pays, enough = self.rules.startup_cost == "full", self.task.min_nodes
        mode = option.mode if pays and len(self.nodes) < enough else self.mode
        return mode.rates[option.nodes] * self.expect_loss_s(option.nodes) if option.nodes >= enough else 0.0

    def gains(self, lasting: int, leaving: int, stay_s: float) -> bool:
        """G2: whether it gains by growing onto so many nodes that stay, and others that leave."""
        old, most, worth, least = len(self.nodes), self.task.max_nodes, self.modes[0].credits, self.task.min_nodes
        low, high = min(old + lasting, most), min(old + lasting + leaving, most)
        growing = worth[old] * self.change_s(high, old) if low == old >= least else 0.0
        gain = stay_s * (worth[high] - (worth[low] if low >= least else 0.0)) - growing
        return high > low and high >= least and gain > worth[high] * self.expect_loss_s(high)

    def idle_w(self, pool_w: float) -> float:
        """Z-E4: power of each of its nodes while it does not train: its own, else that of nodes of the pool."""
        own = self.task.tuning.idle_power_w if self.task.tuning else None
        return pool_w if own is None else own * self.task.gpus_per_node

    def draw(self, elapsed_s: float, gross: float, profiling_s: float) -> None:
        """Z-E4: energy since the last instant: idle while it rescales, then profiling, training, idle once done."""
        count, mode = len(self.nodes), self.mode
        if mode.run is None or not count:
            return
        busy_s = min(elapsed_s, gross / self.rate) if self.rate > 0.0 else 0.0
        trains_s = max(0.0, busy_s - self.rescaling_s)
        profiles_s = min(trains_s, profiling_s)
        energy_j = (elapsed_s - trains_s) * self.idle_w(self.rules.idle_power_w)
        energy_j += profiles_s * mode.profiling_w + (trains_s - profiles_s) * mode.power_w
        self.totals["train_s"] += trains_s
        self.totals["energy_j"] += count * energy_j

    def most_above_idle_w(self, mode: Mode, count: int) -> float:
        """Z-E7: the most that a count draws in a mode until the next decision, above the idle draw of the pool."""
        if mode.run is None:
            return 0.0
        profiling_w = mode.profiling_w if self.progress < mode.profiled_work else 0.0
        return count * max(0.0, max(mode.power_w, profiling_w, self.idle_w(0.0)) - self.rules.idle_power_w)

    def begin(self, run: Run) -> None:
        """Begin a run, at the limit that its group chose."""
        self.modes = Mode.of_run(self.task, run)
        self.mode, self.attempts = self.modes[0], self.attempts + 1

    def pay(self, option: Option, cost: float, now_s: float) -> None:
        """R3.7, R3.8: a decision costs work at the next event; a save clock starts anew where the count changes."""
        old, new = len(self.nodes), option.nodes
        self.pending = cost
        self.rescaling_s += self.change_s(new, old) if cost else 0.0
        self.totals["rescales"] += new != old and old >= self.task.min_nodes
        self.mode = option.mode
        self.rate = self.rate_at(new)
        if self.clock is not None and (new != old or self.clock.stale):
            self.clock.start(new)
        if self.rate > 0.0 and self.started_s is None:
            self.started_s = now_s

    def give_back(self, option: Option, now_s: float, shrinks: bool, notice_s: float) -> None:
        """G1: pay for what a decision takes as for losing nodes; who shrinks so has not been rescaled."""
        old = len(self.nodes)
        self.rate = self.rate_at(old)
        cost, seconds = self.lose(old, notice_s)
        self.pay(option, 0.0, now_s)
        self.totals["rescales"] -= shrinks and old >= self.task.min_nodes
        self.totals["give_backs"] += 1
        self.pending, self.gives_back, self.rescaling_s = cost, True, self.rescaling_s + (seconds if cost else 0.0)

    def list_options(self) -> list[Option]:
        """R4: the counts that the task may have, in each of its modes, with the value of each."""
        counts = range(self.task.min_nodes, self.task.max_nodes + 1)
        some = [self.value_option(n, mode, place) for n in counts for place, mode in enumerate(self.modes)]
        return [self.value_option(0, self.modes[0], 0), *some]

    def value_option(self, count: int, mode: Mode, place: int) -> Option:
        """v(n) = Tfwd O(n) - what the change costs."""
        value = self.rules.forward_time_s * mode.credits[count] - self.charge(count, mode, "credits")
        return Option(count, mode, place, value, self.most_above_idle_w(mode, count), count == len(self.nodes))


class Option(NamedTuple):
    """A count that a task may have in a mode, what it is worth and draws, and whether it keeps the task's count."""

    nodes: int
    mode: Mode
    place: int
    value: float
    watts: float
    keeps: bool


class Plan(NamedTuple):
    """Options of the first tasks, and their sums."""

    options: tuple[Option, ...] = ()
    nodes: int = 0
    value: float = 0.0
    watts: float = 0.0

    def extend(self, option: Option) -> Plan:
        """The plan with an option of the next task."""
        nodes, value, watts = self.nodes + option.nodes, self.value + option.value, self.watts + option.watts
        return Plan((*self.options, option), nodes, value, watts)

    @property
    def kept(self) -> int:
        """Tasks that keep their count."""
        return sum(option.keeps for option in self.options)

    @property
    def settings(self) -> Advice:
        """Counts and power limits, in order of admission."""
        return tuple(each.nodes for each in self.options), tuple(each.mode.limit_w for each in self.options)

    @property
    def rank(self) -> tuple[int, tuple[int, ...], list[int]]:
        """What decides among plans of equal value: most counts kept, largest counts, earlier limits."""
        return self.kept, self.settings[0], [-option.place for option in self.options]


def decide(tasks: Sequence[list[Option]], nodes: int, spare_w: float) -> list[Plan]:
    """R4: the best plans, by a dynamic programme over nodes used (and watts); the first is the one that is taken.

    Plans of the first tasks that use the same nodes are dropped if another draws no more and is worth more.
    """
    plans, slack = [Plan()], TIE * max(abs(option.value) for options in tasks for option in options)
    for options in tasks:
        longer = [plan.extend(option) for plan in plans for option in options]
        fitting = [plan for plan in longer if plan.nodes <= nodes and plan.watts <= spare_w * (1.0 + 1e-12)]
        plans = drop_worse(fitting, slack)
    most = max(plan.value for plan in plans)
    best = [plan for plan in plans if plan.value >= most - slack]
    return sorted(best, key=lambda plan: plan.rank, reverse=True)


def drop_worse(plans: list[Plan], slack: float) -> list[Plan]:
    """Plans than which no other of the same nodes is worth more and draws no more."""
    kept, most = list[Plan](), defaultdict[int, float](lambda: -math.inf)
    for plan in sorted(plans, key=lambda plan: (plan.nodes, plan.watts, -plan.value)):
        most[plan.nodes] = max(most[plan.nodes], plan.value)
        if plan.value >= most[plan.nodes] - slack:
            kept.append(plan)
    return kept


class Replay:
    """R3: one replay, from the first event to the last.

    `measured` has what was measured of the jobs of tuned tasks. `advice` is what the judged replay decided; it is
    followed only where a cap binds and the rules leave a choice, which `ties` counts. `moves` are times, nodes, and the
    tasks that get them, -1 where they are released; `attempts` are runs of tuned tasks that ended: group, task,
    recurrence, attempt, batch size, limit, energy, time, and whether they reached their target.
    """

    def __init__(
        self, log: NodeLog, tasks: Sequence[TaskSpec], rules: Rules, measured: Measured, advice: Sequence[Advice] = ()
    ) -> None:
        self.rules, self.advice, self.end_s = rules, advice, (log.end_ns - log.start_ns) / NS
        self.rows, self.owed = offer_rows(log, rules.offer_after_s), set[int]()
        lists = log.provenance.get("partitions", {}).items()
        self.leaves = [(time_s, node) for time_s, row in self.rows.items() for node in row.left]
        self.kinds = [frozenset(name for name, some in lists if node in some.split(",")) for node in log.nodes]
        self.accounts = [Account(number, task, rules) for number, task in enumerate(tasks)]
        self.waiting, self.active = list(self.accounts), list[Account]()
        changes = [after[0] for before, after in pairwise(rules.power_cap) if after[1] != before[1]]
        submissions = [max(0.0, task.submit_s) for task in tasks] if rules.decide_on == "all" else []
        self.times_s = {*self.rows, *changes, *submissions}
        self.groups: dict[str, Group] = {}
        for account in self.accounts:
            spec = account.task.tuning
            if spec is not None and account.group not in self.groups:
                seed, job = rules.seed if spec.seed is None else spec.seed, (spec.dataset, spec.network, spec.optimizer)
                self.groups[account.group] = Group(spec, measured[job], seed, rules.power_options)
        self.now_s, self.pool, self.is_over, self.is_first = 0.0, set[int](), False, True
        self.events, self.decisions = list[dict[str, Any]](), list[dict[str, Any]]()
        self.moves, self.attempts = list[tuple[float, int, int]](), list[tuple[Any, ...]]()
        self.idle_node_s, self.idle_energy_j, self.ties = 0.0, 0.0, 0

    def run(self) -> Replay:
        """Play until everything is done, or the window ends."""
        while not self.is_over:
            self.play_instant()
        return self

    def play_instant(self) -> None:
        """R3: book, complete, admit and decide at the next instant; the window's end decides nothing."""
        time_s, reported = self.find_instant()
        row, is_event = self.rows.get(time_s, Row()), bool(reported) or time_s in self.times_s
        self.times_s.discard(time_s)
        event = self.apply(time_s, row, reported)
        self.is_over = time_s >= self.end_s or not (self.active or self.waiting)
        for account in self.active:
            account.rate = 0.0
        if self.pool and self.active and not self.is_over:
            self.allocate()
        if is_event:
            self.record_event(event, row)

    def find_instant(self) -> tuple[float, list[Account]]:
        """The next instant, and the tasks whose work is done there; what is computed gives way to what is given."""
        given_s = min([self.end_s, *self.times_s])
        if self.rules.decide_on == "nodes":
            return given_s, []
        due_s = [(self.now_s + account.seconds_for(account.left + account.pending), account) for account in self.active]
        first_s = min([at_s for at_s, _ in due_s], default=math.inf)
        time_s = first_s if first_s < given_s - INSTANT_S else given_s
        return time_s, [account for at_s, account in due_s if at_s <= time_s + INSTANT_S]

    def apply(self, time_s: float, row: Row, reported: list[Account]) -> dict[str, float]:
        """R3.1 to R3.5; what was booked since the last instant."""
        elapsed_s, self.now_s = time_s - self.now_s, time_s
        held = sum(len(account.nodes) for account in self.active if account.mode.run is not None)
        self.idle_node_s += len(self.pool) * elapsed_s
        self.idle_energy_j += (len(self.pool) - held) * self.rules.idle_power_w * elapsed_s
        sums: dict[str, float] = dict.fromkeys(BOOKED, 0)
        # G1: who gives way is chosen where that makes a difference, and a decision follows.
        has_choice = self.rules.give_way == "chosen" and time_s < self.end_s
        has_choice = has_choice and len(self.pool) + len(row.joined) > len(row.left)
        taken, self.owed = (set[int](), row.left) if has_choice else (row.left, set[int]())
        self.owed_notice_s = self.rules.known_before_s(row.left, time_s)
        for account in self.active:
            gone = set[int]() if account in reported else taken & set(account.nodes)
            notice_s = self.rules.known_before_s(gone, time_s)
            for name, value in account.book(elapsed_s, len(gone), account in reported, notice_s).items():
                sums[name] += value
        noticed = [a for a in self.active if self.rules.decide_on == "nodes" and a.progress == a.mode.work]
        ended = reported + noticed
        for account in ended:
            self.end_run(account)
        for account in self.active:
            self.release(account, sorted(taken & set(account.nodes)))
        self.pool = (self.pool - row.left) | row.joined
        retrying = [account for account in ended if account in self.active]
        self.launch([*retrying, *self.admit()], retrying)
        return sums

    def release(self, account: Account, nodes: list[int]) -> None:
        """Take nodes from a task."""
        account.nodes = [node for node in account.nodes if node not in nodes]
        self.moves += [(self.now_s, node, FREE) for node in nodes]

    def give(self, account: Account, nodes: list[int]) -> None:
        """Give nodes to a task, which keeps those that it has."""
        account.nodes = sorted(account.nodes + nodes)
        self.moves += [(self.now_s, node, account.number) for node in nodes]

    def end_run(self, account: Account) -> None:
        """R3.3, Z-E5: a task completes, or its run ends short of its target; its group learns."""
        self.release(account, account.nodes)
        run, name = account.mode.run, account.task.name
        if run is not None:
            energy_j, time_s = self.groups[account.group].end(name, account.work_at)
            place = (account.group, name, run.recurrence, run.attempt, run.batch_size, run.chosen.limit_w)
            self.attempts.append((*place, energy_j, time_s, run.reached))
            account.work_at.clear()
        if run is None or run.reached:
            account.completed_s = self.now_s
            self.active.remove(account)
        else:
            account.earlier, account.progress = account.earlier + account.mode.work, 0.0

    def admit(self) -> list[Account]:
        """R3.5: tasks that are due are admitted in file order, while there is room."""
        due = [account for account in self.waiting if account.task.submit_s <= self.now_s]
        admitted = due[: max(0, self.rules.max_tasks - len(self.active))]
        self.waiting = [account for account in self.waiting if account not in admitted]
        self.active += admitted
        return admitted

    def launch(self, accounts: list[Account], retrying: list[Account]) -> None:
        """Z-E1, E6: runs begin; tasks of groups that cannot go on are given up, which may let others in."""
        for account in accounts:
            group = self.groups.get(account.group) if account.task.tuning else None
            if group is not None and not group.failed:
                try:
                    account.begin(group.launch(account.task.name))
                except StuckError:
                    group.failed = True
        failed = {name for name, group in self.groups.items() if group.failed}
        lost = [a for a in (*self.waiting, *self.active) if a.task.tuning and a.group in failed]
        for account in lost:
            self.release(account, account.nodes)
            account.stopped = account in retrying
        self.waiting = [account for account in self.waiting if account not in lost]
        self.active = [account for account in self.active if account not in lost]
        if lost:
            self.launch(self.admit(), retrying)

    def allocate(self) -> None:
        """R3.7, R4: decide, pay, and move nodes: tasks that shrink give up their lowest, then those that grow take."""
        is_first, self.is_first = self.is_first, False
        if is_first and self.rules.initial == "random":
            self.draw_allocation()
        if is_first and self.rules.initial != "solve":
            return
        plan, before = self.choose_plan(), [len(account.nodes) for account in self.active]
        pairs, is_short = list(zip(self.active, plan.options, strict=True)), sum(before) > len(self.pool)
        known = self.rules.expected_s > 0  # G2: then tasks that lose most get the nodes that stay longest
        stakes = {account: known * account.stake(option) for account, option in pairs}
        kept, losers = self.choose_nodes({account: option.nodes for account, option in pairs})
        for account, option in pairs:
            shrinks = is_short and option.nodes < len(account.nodes)
            if shrinks or account in losers:
                account.give_back(option, self.now_s, shrinks, self.owed_notice_s)
            else:
                account.pay(option, account.charge(option.nodes, option.mode, "rates"), self.now_s)
            self.release(account, sorted({*account.nodes} - {*kept[account]}))
        for account, _ in pairs:
            self.give(account, sorted({*kept[account]} - {*account.nodes}))
        free = sorted(self.pool - {node for account in self.active for node in account.nodes})
        free.sort(key=lambda node: -self.stay_s(node))
        for account, option in sorted(pairs, key=lambda pair: -stakes[pair[0]]):
            self.give(account, [free.pop(0) for _ in range(option.nodes - len(account.nodes))])
        self.record_decision(plan, before)

    def choose_nodes(self, counts: Mapping[Account, int]) -> tuple[dict[Account, list[int]], set[Account]]:
        """G1: what tasks keep, or get in exchange for nodes that leave; and those that lose one, as none is like it.

        Tasks that shrink give up first what leaves, then what is like it, then their lowest. Who keeps a node that
        leaves gets the lowest free one of its kind; if there is none, the lowest.
        """
        held = {node for account in counts for node in account.nodes}
        kinds = [self.kinds[node] for node in self.owed & held] if self.owed & held else self.kinds
        kept, losers = dict[Account, list[int]](), set[Account]()
        for account, count in counts.items():
            soon = {node: 0.0 if self.owed & held else self.stay_s(node) for node in account.nodes}
            given = sorted(soon, key=lambda n: (n not in self.owed, self.kinds[n] not in kinds, soon[n], n))
            kept[account] = given[max(0, len(given) - count) :]
        for node in sorted(self.owed):
            for account in (account for account, nodes in kept.items() if node in nodes):
                free = sorted(self.pool - {each for nodes in kept.values() for each in nodes})
                alike = [each for each in free if self.kinds[each] == self.kinds[node]]
                losers |= set() if alike else {account}
                kept[account] = [each for each in kept[account] if each != node] + [(alike or free)[0]]
        return kept, losers

    def choose_plan(self) -> Plan:
        """R4: the best allocation; under a cap that binds, of equal ones with as many counts kept the advised one."""
        spare_w, nodes = self.cap_w() / self.rules.pue - len(self.pool) * self.rules.idle_power_w, len(self.pool)
        options = [account.list_options() for account in self.active]
        nodes -= self.count_declined()
        plans = decide(options, nodes, max(0.0, spare_w))
        equal = [plan for plan in plans if plan.kept == plans[0].kept]
        if len(equal) > 1 and decide(options, nodes, math.inf)[0].watts > spare_w:
            self.ties += 1
            advised = self.advice[len(self.decisions) : len(self.decisions) + 1]
            return next((plan for plan in equal if plan.settings in advised), plans[0])
        return plans[0]

    def stay_s(self, node: int) -> float:
        """G2: seconds until a node leaves, if that is known."""
        stays_s = [at_s - self.now_s for at_s, each in self.leaves if each == node and at_s > self.now_s]
        planned_s = [at_s - self.now_s for at_s, each in self.rules.planned if each == node and at_s > self.now_s]
        noticed_s = [stay_s for stay_s in stays_s if stay_s <= self.rules.notice_s > 0]
        return min([*noticed_s, *planned_s], default=math.inf)

    def count_declined(self) -> int:
        """G2: free nodes that leave so soon that no task gains by them; chosen ones leave in place of those held."""
        held = {node for account in self.active for node in account.nodes}
        free, stays_s = self.pool - held, list[float]()
        spare = Counter(self.kinds[each] for each in free) - Counter(self.kinds[each] for each in self.owed & held)
        leaving = self.pool if self.rules.give_way == "chosen" else free
        for stay_s, node in sorted((self.stay_s(each), each) for each in leaving):
            if stay_s < math.inf and spare[self.kinds[node]]:
                spare[self.kinds[node]] -= 1
                stays_s.insert(0, stay_s)
        for offered in range(len(stays_s), 0, -1):
            if offered == len(stays_s) or stays_s[offered - 1] > stays_s[offered]:
                staying = max(0, len(free) - len(self.owed & held) - len(stays_s))
                if any(account.gains(staying, offered, stays_s[offered - 1]) for account in self.active):
                    return len(stays_s) - offered
        return len(stays_s)

    def cap_w(self) -> float:
        """Z-E: the cap at the meter at this instant."""
        return max([cap for cap in self.rules.power_cap if cap[0] <= self.now_s], default=(0.0, math.inf))[1]

    def draw_allocation(self) -> None:
        """R3, initial allocation: each idle node is drawn to a task; too few are none, too many are trimmed."""
        pool = sorted(self.pool)
        drawn = np.random.default_rng(self.rules.seed).integers(len(self.active), size=len(pool))
        for place, account in enumerate(self.active):
            nodes = [node for node, slot in zip(pool, drawn, strict=True) if slot == place][: account.task.max_nodes]
            nodes = nodes if len(nodes) >= account.task.min_nodes else []
            cost = account.rate_at(len(nodes)) * account.change_s(len(nodes), 0)
            account.pay(account.value_option(len(nodes), account.mode, 0), cost, self.now_s)
            self.give(account, nodes)

    def record_decision(self, plan: Plan, before: list[int]) -> None:
        """What a decision chose, and what it may draw."""
        runs = [account.mode.run for account in self.active]
        above_w = sum(account.most_above_idle_w(account.mode, len(account.nodes)) for account in self.active)
        self.decisions.append(
            {
                "event": len(self.events),
                "time_s": self.now_s,
                "nodes": len(self.pool),
                "tasks": tuple(account.number for account in self.active),
                "before": tuple(before),
                "after": plan.settings[0],
                "objective": plan.value,
                "batch_sizes": tuple(None if run is None else run.batch_size for run in runs),
                "power_limits_w": plan.settings[1],
                "drawn_w": len(self.pool) * self.rules.idle_power_w + above_w,
                "cap_w": self.cap_w() / self.rules.pue,
            }
        )

    def record_event(self, booked: Mapping[str, float], row: Row) -> None:
        """R5: a row of the step log."""
        self.events.append(
            {
                **booked,
                "time_s": self.now_s,
                "rate": sum(account.rate for account in self.active),
                "rescale_cost": sum(account.pending for account in self.active if not account.gives_back),
                "give_back_cost": sum(account.pending for account in self.active if account.gives_back),
                "gave_back": sum(account.gives_back for account in self.active),
                "left": len(row.left),
                "joined": len(row.joined),
                "tasks": tuple(account.number for account in self.active),
                "idle": len(self.pool),
                "running": sum(account.rate > 0.0 for account in self.active),
                "used": sum(len(account.nodes) for account in self.active),
            }
        )
