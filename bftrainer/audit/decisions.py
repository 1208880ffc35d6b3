"""Checks of each decision: bounds, values, power, and whether anything better was possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.audit.accounts import Account, Mode
from bftrainer.audit.audited_objectives import SUM_WEIGHT, AuditedObjective, EdgeError, Situation
from bftrainer.audit.best_allocation import Choice, best_sum, best_with_floor, better_than
from bftrainer.audit.input_files import NS, Series
from bftrainer.audit.parts import MEASURED, TOLERANCE, NotCheckableError, Part, close

Floats = NDArray[np.float64]
EDGE = "a deadline is so near that rounding decides"
_STOPS = {
    "optimal": ("optimal",),
    "incumbent": ("optimal", "time_limit", "effort_limit", "heuristic"),
    "kept": ("time_limit", "effort_limit"),
}
# What may have decided an allocation.
_SETTLERS = ("trivial", "dominance", "search", "backend", "kept")
LARGE = "there are too many allocations to try"


@dataclass(frozen=True)
class Rules:
    """Settings of the run on which books and decisions depend."""

    max_tasks: int
    forward_s: float
    solvers: tuple[str, ...]
    decide_on: str = "all"
    initial: str = "solve"
    full_start: bool = False
    strict: bool = False
    gap: float = 0.0
    seed: int = 0
    start_ns: int = 0
    end_ns: int = 0
    stopped: bool = False  # by a limit or an interrupt: what was due at the end did not happen any more
    idle_w: float = 0.0
    pue: float = 1.0
    cap: Series | None = None
    published: bool = False  # what the published replayer does otherwise is done
    live: bool = False  # a harvest, whose tasks are real

    def cap_w(self, time_ns: int) -> float | None:
        """The cap at an instant, at the site's meter; None without one."""
        return None if self.cap is None else self.cap.at((time_ns - self.start_ns) / NS)


@dataclass(frozen=True)
class _Asked:
    """Problem of a decision: options of each task, by power limit, and further limits."""

    objective: AuditedObjective
    row: dict[str, Any]
    accounts: list[Account]
    tables: list[list[Floats]]
    extra: list[Any]
    spare_w: float | None

    @property
    def pool(self) -> int:
        """Nodes to hand out."""
        return int(self.row["nodes"])

    @cached_property
    def best(self) -> float:
        """The most that any allocation is worth, if nothing but the pool limits it."""
        merged = [np.maximum.reduce(table) for table in self.tables]
        if self.objective.fair is None:
            return best_sum(merged, self.pool)
        owners = self.objective.owners(self.accounts)
        owed = [{self.objective.owed(self.accounts[place]) for place in group} for group in owners]
        if any(len(each) > 1 for each in owed):
            raise NotCheckableError("the audit cannot compute the optimum of fair-share over owners of several weights")
        return best_with_floor(merged, owners, [each.pop() for each in owed], 1.0 / SUM_WEIGHT, self.pool)


class Judge:
    """Check each decision.

    Parameters
    ----------
    objective : AuditedObjective
    rules : Rules
    tuned : bool
        Whether decisions have batch sizes and power limits.
    """

    def __init__(self, objective: AuditedObjective, rules: Rules, tuned: bool) -> None:
        self.objective, self.rules = objective, rules
        self.bounds = Part("decisions keep within the pool and each task's bounds")
        self.value = Part("objective values follow from the counts and power limits")
        self.best = Part("decisions proven optimal are optimal, and none is worth more than the best")
        self.bound = Part("nothing possible is worth more than a bound, and gaps follow from the bounds")
        self.limits = Part("decisions respect the limits that the objective sets")
        self.shares = Part("equal-share decisions follow the published rule")
        self.kept = Part("where no solver had an answer, tasks keep their nodes as far as they can")
        self.marks = Part("solver, stop_reason, held and decided_by fit together")
        self.tuned = Part("tuned tasks have the batch size of their run, and a power limit that was open to them")
        self.cap = Part("decisions respect the power cap, and drawn_w and cap_w are right")
        self._tuned = tuned

    @property
    def parts(self) -> list[Part]:
        """All parts that were checked."""
        found = [self.bounds, self.value, self.best, self.bound, self.marks]
        found += [part for part in (self.limits, self.shares, self.kept) if part.looked or part.left_out]
        return found + ([self.tuned, self.cap] if self._tuned else [])

    def judge(self, row: dict[str, Any], accounts: list[Account], now_s: float, cap_w: float | None) -> list[Mode]:
        """Check a decision before it is adopted; return the mode of each task from then on."""
        modes = self._modes(row, accounts)
        self._bounds(row, accounts)
        self._marks(row)
        counts = [min(max(count, 0), each.task.most) for count, each in zip(row["after"], accounts, strict=True)]
        spare_w = None if cap_w is None else max(0.0, cap_w / self.rules.pue - row["nodes"] * self.rules.idle_w)
        if self._tuned:
            self._power(row, accounts, modes, counts, cap_w)
        if row["held"] == "kept":
            self._kept(row, accounts, spare_w)
            return modes
        if row["solver"] == "equal-share":
            self._equal_share(row, accounts)
        if self.objective.unknown is not None:
            why = f"objective {self.objective.unknown} is not known to the audit; --objective MODULE:CALLABLE runs it"
            self._not_judged(why)
            return modes
        if self.rules.live and self.objective.sees_progress:
            self._not_judged(MEASURED)
            return modes
        situations = [
            Situation(account, min(before, account.task.most), now_s, self.rules.start_ns)
            for account, before in zip(accounts, row["before"], strict=True)
        ]
        try:
            tables = [self._tables(each) for each in situations]
        except EdgeError:
            self._not_judged(EDGE)
            return modes
        extra = []
        if self.objective.constraints is not None:
            extra = self.objective.added(self._problem(row, situations, tables), situations)
        self._valued(_Asked(self.objective, row, accounts, tables, extra, spare_w), modes, counts)
        return modes

    def _modes(self, row: dict[str, Any], accounts: list[Account]) -> list[Mode]:
        """How tasks run by the recorded limits; as they did where these are none of theirs."""
        if not self._tuned:
            return [account.mode for account in accounts]
        found = []
        for account, size, limit in zip(accounts, row["batch_size"], row["power_limit_w"], strict=True):
            run = account.mode.run
            mode = next((each for each in account.modes if each.limit_w == limit), None)
            right = size == (None if run is None else run.batch_size) and mode is not None
            limits_w = [each.limit_w for each in account.modes]
            self.tuned.expect(
                right, "event {} {}: {} at {} W, open: {} W", row["event"], account.task.name, size, limit, limits_w
            )
            found.append(account.mode if mode is None else mode)
        return found

    def _bounds(self, row: dict[str, Any], accounts: list[Account]) -> None:
        """Counts within the pool and each task's bounds."""
        total = sum(row["after"])
        self.bounds.expect(0 <= total <= row["nodes"], "event {}: {} of {} nodes", row["event"], total, row["nodes"])
        for account, after in zip(accounts, row["after"], strict=True):
            inside = after == 0 or account.task.least <= after <= account.task.most
            self.bounds.expect(inside, "event {} {}: {} nodes", row["event"], account.task.name, after)

    def _marks(self, row: dict[str, Any]) -> None:
        held, stop, where = row["held"], row["stop_reason"], f"event {row['event']}"
        own = next((name for name in self.rules.solvers if ":" in name), None)
        if own is None or row["solver"] in self.rules.solvers:
            self.marks.expect(row["solver"] in self.rules.solvers, "{}: {} answered", where, row["solver"])
        else:
            self.marks.leave_out(f"which solver answered: {own} may give its answers any name")
        self.marks.expect(stop in _STOPS.get(held, ()), "{}: {} held, stopped by {}", where, held, stop)
        self.marks.expect((row["objective"] is None) == (held == "kept"), "{}: {} of {}", where, row["objective"], held)
        self._settled(row, where)

    def _settled(self, row: dict[str, Any], where: str) -> None:
        """Check what decided against what was held and whether the backend was asked."""
        by, held, asked_s = row["decided_by"], row["held"], row["backend_s"]
        right = by in _SETTLERS and (by == "kept") == (held == "kept")
        self.marks.expect(right, "{}: {} held, decided by {}", where, held, by)
        self.marks.expect(asked_s is not None or by != "backend", "{}: decided by a backend that was not asked", where)
        within = asked_s is None or 0.0 <= asked_s <= row["solve_s"]
        self.marks.expect(within, "{}: {} s within the backend, of {} s", where, asked_s, row["solve_s"])
        sizes = [row[name] for name in ("model_rows", "model_columns") if row[name] is not None]
        sound = not sizes or (asked_s is not None and len(sizes) == 2 and min(sizes) >= 0)
        self.marks.expect(sound, "{}: a model of {} rows and columns, {} s within the backend", where, sizes, asked_s)

    def _kept(self, row: dict[str, Any], accounts: list[Account], spare_w: float | None) -> None:
        """Without an answer tasks keep what they can run on, as far as the cap allows."""
        left_w = np.inf if spare_w is None else spare_w
        for account, before, after in zip(accounts, row["before"], row["after"], strict=True):
            wanted = before if before >= account.task.least else 0
            above_w = self._above_w(account, account.mode, wanted)
            wanted, left_w = (0, left_w) if above_w > left_w else (wanted, left_w - above_w)
            where = f"event {row['event']} {account.task.name}"
            self.kept.expect(after == wanted, "{}: {} nodes for {}", where, after, wanted)
        self._not_judged("nothing was found, the allocation was kept")

    def _not_judged(self, why: str) -> None:
        """Record why a decision's value was not checked."""
        for part in (self.value, self.best, self.bound):
            part.leave_out(why)

    def _above_w(self, account: Account, mode: Mode, count: int) -> float:
        """Maximum power of this many nodes beyond the pool's idle power."""
        return max(0.0, account.most_w(mode, count) - count * self.rules.idle_w)

    def _power(
        self,
        row: dict[str, Any],
        accounts: list[Account],
        modes: list[Mode],
        counts: list[int],
        cap_w: float | None,
    ) -> None:
        where = f"event {row['event']}"
        allowed = None if cap_w is None else cap_w / self.rules.pue
        above = [self._above_w(*each) for each in zip(accounts, modes, counts, strict=True)]
        drawn = row["nodes"] * self.rules.idle_w + sum(above)
        self.cap.same(f"{where} drawn_w", row["drawn_w"], drawn)
        self.cap.same(f"{where} cap_w", row["cap_w"], allowed)
        if allowed is not None:
            within = drawn <= allowed or close(drawn, allowed)
            self.cap.expect(within, "{}: {:.6g} W drawn, {:.6g} W allowed", where, drawn, allowed)

    def _equal_share(self, row: dict[str, Any], accounts: list[Account]) -> None:
        """An equal share to every task, what is left over in task order."""
        share = row["nodes"] // max(1, len(accounts))
        counts = []
        for account in accounts:
            enough = share > account.task.least if self.rules.strict else share >= account.task.least
            counts.append(min(share, account.task.most) if enough else 0)
        left = row["nodes"] - sum(counts)
        for place, account in enumerate(accounts):
            more = min(counts[place] + left, account.task.most)
            if more > counts[place] and more >= account.task.least:
                left, counts[place] = left - (more - counts[place]), more
        self.shares.expect(counts == list(row["after"]), "event {}: {} for {}", row["event"], row["after"], counts)

    def _tables(self, situation: Situation) -> list[Floats]:
        """Values by node count at each of the task's limits, -inf where the bounds forbid it.

        A start is free, or with full start-up costs what the task would earn meanwhile.
        """
        account, held, rules = situation.account, situation.held, self.rules
        task, counts = account.task, np.arange(account.task.most + 1)
        worth = {id(mode): self.objective.credit(situation, mode) for mode in (*account.modes, account.mode)}
        seconds = np.where(counts > held, *task.change_s(held)) * (counts != held)
        found = []
        for mode in account.modes:
            credit = worth[id(mode)]
            table = rules.forward_s * credit
            if held >= task.least or (held and rules.published):
                table = table - worth[id(account.mode)][held] * seconds
            elif rules.full_start:
                table = table - credit * task.start_s * (counts > held)
            table[1 : task.least] = -np.inf
            found.append(table)
        return found

    @staticmethod
    def _problem(row: dict[str, Any], situations: list[Situation], tables: list[list[Floats]]) -> SimpleNamespace:
        """A decision as an objective of the user's sees it."""
        tasks = []
        for situation, table in zip(situations, tables, strict=True):
            task, best = situation.account.task, np.maximum.reduce(table)
            counts = np.flatnonzero(np.isfinite(best))
            tasks.append(
                SimpleNamespace(
                    counts=counts,
                    values=best[counts],
                    current=situation.held,
                    minimum=task.least,
                    maximum=task.most,
                    uses=None,
                )
            )
        return SimpleNamespace(tasks=tuple(tasks), nodes=row["nodes"], rows=(), capacities=(), floor=None)

    def _valued(self, asked: _Asked, modes: list[Mode], counts: list[int]) -> None:
        """The claimed objective, and what was possible."""
        row, where = asked.row, f"event {asked.row['event']}"
        picked = [
            table[account.modes.index(mode) if mode in account.modes else 0]
            for account, mode, table in zip(asked.accounts, modes, asked.tables, strict=True)
        ]
        worth = [float(table[count]) for table, count in zip(picked, counts, strict=True)]
        if not np.isfinite(worth).all() or any(hasattr(each, "groups") for each in asked.extra):
            why = "a count that no task may have" if not np.isfinite(worth).all() else "the objective adds a floor"
            self._not_judged(why)
            return
        mine = sum(worth)
        if self.objective.fair is not None:
            owed = [self.objective.owed(account) for account in asked.accounts]
            owners = self.objective.owners(asked.accounts)
            mine += min(sum(worth[place] * owed[place] for place in group) for group in owners) / SUM_WEIGHT
        self.value.same(where, row["objective"], mine)
        for weights, lower, upper in self._rows(asked):
            total = float(np.dot(weights, counts))
            inside = lower - TOLERANCE <= total <= upper + TOLERANCE
            self.limits.expect(inside, "{}: {} of {} nodes", where, total, upper)
        self._optimal(asked, mine)

    def _rows(self, asked: _Asked) -> list[tuple[Floats, float, float]]:
        """Linear limits on the counts: coefficients, lower and upper bound."""
        quotas = self.objective.quotas(asked.accounts, asked.pool)
        rows = [(np.array(theirs, dtype=np.float64), -np.inf, float(most)) for theirs, most in quotas]
        return rows + [(np.asarray(row.coefficients, dtype=np.float64), row.lower, row.upper) for row in asked.extra]

    def _optimal(self, asked: _Asked, mine: float) -> None:
        """Nothing better is possible where that was claimed, and no bound is below what is."""
        row, where = asked.row, f"event {asked.row['event']}"
        if row["gap"] is not None:
            self.bound.expect(row["gap"] >= 0.0, "{}: gap {}", where, row["gap"])
        if row["held"] == "optimal":
            self.bound.expect(close(row["gap"], 0.0), "{}: proven optimal with a gap of {}", where, row["gap"])
            slack = self.rules.gap * abs(mine)
            self.bound.same(f"{where}, proven optimal, bound", row["bound"], row["objective"], slack)
        elif row["bound"] is not None and row["gap"] is not None and row["objective"]:
            gap = max(0.0, row["bound"] - row["objective"]) / abs(row["objective"])
            self.bound.same(f"{where} gap", row["gap"], gap)
        claims = [(self.best, mine)] if row["held"] == "optimal" else []
        if row["bound"] is not None:
            claims.append((self.bound, row["bound"]))
        if not claims:
            self.best.leave_out("a decision that was neither proven optimal nor bounded")
            return
        settled = np.inf  # nothing is worth more than this
        for part, claim in claims:
            scale = max(1.0, abs(claim))
            slack = max(TOLERANCE, self.rules.gap if part is self.best else 0.0) * scale
            try:
                better = None if claim + slack >= settled else self._better(asked, claim + slack)
            except (OverflowError, NotCheckableError) as why:
                part.leave_out(str(why) or LARGE)
            else:
                settled = claim + slack if better is None else settled
                part.expect(better is None, "{}: {} is claimed, {} is possible", where, claim, better)

    def _better(self, asked: _Asked, claim: float) -> float | None:
        """A value above the claim that is possible; None if there is none."""
        rows = self._rows(asked)
        if not rows and asked.spare_w is None:
            return asked.best if asked.best > claim else None
        if self.objective.fair is not None:
            raise NotCheckableError("the audit cannot compute the optimum of fair-share under further limits")
        if any((weights < 0).any() or lower > 0 or upper < 0 for weights, lower, upper in rows):
            raise NotCheckableError("the audit cannot compute the optimum under rows other than upper limits")
        caps = [upper for _, _, upper in rows] + ([] if asked.spare_w is None else [asked.spare_w])
        choices = [self._choice(asked, place, rows) for place in range(len(asked.accounts))]
        return better_than(claim, choices, asked.pool, np.array(caps) * (1.0 + 1e-12))

    def _choice(self, asked: _Asked, place: int, rows: Sequence[tuple[Floats, float, float]]) -> Choice:
        """All options of a task: nothing, and each limit at each count."""
        account, tables = asked.accounts[place], asked.tables[place]
        if asked.spare_w is None:
            tables = [np.maximum.reduce(tables)]
        counts, values, watts = [np.zeros(1, dtype=np.int64)], [tables[0][:1]], [np.zeros(1)]
        for mode, table in zip(account.modes, tables, strict=False):
            some = np.flatnonzero(np.isfinite(table))[1:]
            counts.append(some)
            values.append(table[some])
            watts.append(np.array([self._above_w(account, mode, count) for count in some.tolist()]))
        every = np.concatenate(counts)
        uses = [weights[place] * every for weights, _, _ in rows]
        uses += [] if asked.spare_w is None else [np.concatenate(watts)]
        return Choice(every, np.concatenate(values), np.array(uses))
