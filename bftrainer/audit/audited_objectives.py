"""Objectives, recomputed from the formulas in the documentation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.audit.accounts import Account, Mode
from bftrainer.audit.parts import TOLERANCE, UnusableError, printable

Floats = NDArray[np.float64]
Credit = Callable[["Situation", Mode], Floats]

SUM_WEIGHT = 1e-4
LATE = 0.1
_MODIFIERS = {"priority": "as-given", "quota": "as-given", "fair-share": "scaling-efficiency"}


class EdgeError(Exception):
    """A credit jumps so near that rounding decides, so it cannot be recomputed."""


@dataclass(frozen=True)
class Situation:
    """A task as a decision finds it."""

    account: Account
    held: int
    now_s: float
    start_ns: int


def _energy(situation: Situation, mode: Mode) -> Floats:
    """Rate in nodes at their best, by the share of its energy that was needed."""

    def frugality(each: Mode) -> Floats:
        """Work per joule on 1 node or more."""
        return each.rate[1:] / each.train_w[1:]

    best = _best(situation, frugality)
    credit = np.zeros_like(mode.rate)
    if best > 0.0:
        credit[1:] = mode.rate[1:] / _node_rate(situation) * (frugality(mode) / best)
    return credit


def _energy_delay(situation: Situation, mode: Mode) -> Floats:
    """The least cost of a unit of work over that on each count."""
    account = situation.account
    full_w = max(each.limit_w or 0 for each in account.modes) * account.task.gpus * account.task.most
    eta = account.task.tuned["eta"] if account.task.tuned else 0.0

    def cheapness(each: Mode) -> Floats:
        """Work per cost on 1 node or more."""
        return each.rate[1:] / (eta * each.train_w[1:] + (1.0 - eta) * full_w)

    best = _best(situation, cheapness)
    credit = np.zeros_like(mode.rate)
    if best > 0.0:
        credit[1:] = cheapness(mode) / best
    return credit


def _deadline(situation: Situation, mode: Mode) -> Floats:
    """A tenth of the work, and what the deadline needs where it is met."""
    account, held, per_node = situation.account, situation.held, _node_rate(situation)
    task, counts = account.task, np.arange(mode.rate.size)
    if not per_node > 0.0:
        return np.zeros_like(mode.rate)
    credit = LATE / per_node * mode.rate
    left_s = task.deadline_s - situation.now_s
    if 0.0 < left_s < math.inf:
        left = max(0.0, mode.work - account.progress)
        needed = np.full(mode.rate.size, left)
        if held >= task.least:
            grow_s, shrink_s = task.change_s(held)
            costs = grow_s * (counts > held) + shrink_s * (counts < held)
            needed += mode.rate[min(held, task.most)] * costs
        done = mode.rate * left_s
        if (np.abs(done - needed)[1:] <= TOLERANCE * np.maximum(1.0, needed[1:])).any() and left > 0.0:
            raise EdgeError
        credit[(counts > 0) & (done >= needed)] += (1.0 - LATE) * left / left_s / per_node
    return credit


def _best(situation: Situation, measure: Callable[[Mode], Floats]) -> float:
    """The largest of a measure at any limit and count on offer."""
    least = situation.account.task.least
    return max(float(measure(mode)[least - 1 :].max()) for mode in situation.account.modes)


def _node_rate(situation: Situation) -> float:
    return _best(situation, lambda mode: mode.rate[1:] / np.arange(1, mode.rate.size))


_KNOWN: dict[str, Credit] = {
    "as-given": lambda _, mode: mode.credit,
    "throughput": lambda _, mode: mode.rate,
    "scaling-efficiency": lambda _, mode: mode.rate / mode.rate[1],
    "energy": _energy,
    "energy-delay": _energy_delay,
    "deadline": _deadline,
}


class AuditedObjective:
    """An objective by its name, with what modifies it.

    Parameters
    ----------
    name : str
        As the run's settings have it.
    own : callable, optional
        Code of the user's for an objective that the audit does not know.

    Attributes
    ----------
    sees_progress : bool
        Whether credit may depend on the work that tasks have done.
    unknown : str or None
        The part of the name that the audit does not know; None if it knows all.
    """

    def __init__(self, name: str, own: Callable[..., Any] | None = None) -> None:
        self.name, self.unknown, self._own = name, None, None
        self.fair: str | None = None
        self._weights, self._weights_outside = 0, 0
        self._limits: list[tuple[str, str | None, int | Fraction]] = []
        base = self._parsed(name)
        self._credit = _KNOWN.get(base)
        self.sees_progress = self._credit in (None, _deadline)
        if self._credit is None:
            self._own, self.unknown = own, None if own is not None else base

    def _parsed(self, name: str) -> str:
        """Split modifiers from a name; the rest is the objective that they modify."""
        head, _, rest = name.partition(":")
        if head not in _MODIFIERS:
            return name
        if head == "priority":
            self._weights += 1
            self._weights_outside += self.fair is None
        elif head == "quota":
            written, _, rest = rest.partition(":")
            self._limits += [_limit(text) for text in written.split(",") if text]
        else:
            if self.fair is not None:
                raise UnusableError(f"Expected one fair-share in an objective, got {self.name}")
            by, _, inner = rest.partition(":")
            self.fair, rest = (by, inner) if by in ("task", "user", "group") else ("task", rest)
        return self._parsed(rest or _MODIFIERS[head])

    def credit(self, situation: Situation, mode: Mode) -> Floats:
        """Credit on 0 to the most nodes at one of the task's power limits."""
        factor = situation.account.task.weight**self._weights * (SUM_WEIGHT if self.fair else 1.0)
        if self._credit is not None:
            return factor * self._credit(situation, mode)
        counts, own = np.arange(mode.rate.size), self._own
        with _answering(self.name):
            assert own is not None
            answer = np.asarray(own(_task_view(situation, mode), counts, situation.now_s), dtype=np.float64)
        if answer.shape != counts.shape or not np.isfinite(answer).all():
            raise UnusableError(f"objective {self.name}: Expected finite credit of shape {counts.shape}, got another")
        return factor * answer

    def owed(self, account: Account) -> float:
        """What a task's value counts in the floor: one over the square of weights outside the fairness."""
        return float(account.task.weight ** (-2.0 * self._weights_outside)) if self._weights_outside else 1.0

    def owners(self, accounts: Sequence[Account]) -> list[list[int]]:
        """Indices of the tasks that share a minimum."""
        found: dict[tuple[bool, str], list[int]] = {}
        for place, account in enumerate(accounts):
            owner = None if self.fair in (None, "task") else getattr(account.task, str(self.fair))
            key = (False, account.task.name) if owner is None else (True, owner)
            found.setdefault(key, []).append(place)
        return list(found.values())

    def quotas(self, accounts: Sequence[Account], pool: int) -> list[tuple[list[bool], int]]:
        """Tasks under each limit, and the nodes it allows."""
        rows = []
        named = {(by, owner) for by, owner, _ in self._limits}
        for by, owner, most in self._limits:
            held_by = [getattr(account.task, by) for account in accounts]
            for each in dict.fromkeys(one for one in held_by if one is not None):
                if each == owner or (owner is None and (by, each) not in named):
                    allowed = most if isinstance(most, int) else math.floor(most * pool)
                    rows.append(([one == each for one in held_by], allowed))
        return rows

    @property
    def constraints(self) -> Callable[..., Any] | None:
        """What an objective of the user's adds to decisions."""
        return getattr(self._own, "constraints", None)

    def added(self, problem: Any, situations: Sequence[Situation]) -> list[Any]:
        """Rows that an objective of the user's adds to a decision."""
        seen = tuple(_task_view(each, each.account.mode) for each in situations)
        with _answering(self.name):
            return [] if self.constraints is None else list(self.constraints(problem, seen))


@contextmanager
def _answering(name: str) -> Iterator[None]:
    """Turn whatever a user's objective raises into an error that names it."""
    try:
        yield
    except Exception as fault:  # an objective of the user's may raise anything
        raise UnusableError(printable(f"objective {name}: raised {type(fault).__name__}: {fault}")) from fault


def _limit(text: str) -> tuple[str, str | None, int | Fraction]:
    key, _, most = text.partition("=")
    by, _, owner = key.partition("/")
    share = Fraction(most.removesuffix("%")) / 100 if most.endswith("%") else int(most)
    return by, owner or None, share


def _task_view(situation: Situation, mode: Mode) -> SimpleNamespace:
    """A task as a user's objective sees it, with the documented attributes of `TaskState` and `TaskSpec`."""
    account = situation.account
    task, specs = account.task, {id(each): _spec(account, each) for each in (*account.modes, mode)}
    return SimpleNamespace(
        spec=specs[id(mode)],
        nodes=situation.held,
        progress=account.progress,
        submitted_s=task.submit_s,
        start_ns=situation.start_ns,
        deadline_s=task.deadline_s,
        modes=tuple(specs[id(each)] for each in account.modes),
    )


def _spec(account: Account, mode: Mode) -> SimpleNamespace:
    task, tuned = account.task, account.task.tuned
    run = None
    if mode.run is not None:
        run = SimpleNamespace(
            attempt=mode.run.attempt,
            batch_size=mode.run.batch_size,
            power_limit_w=mode.limit_w,
            reaches=mode.run.reached,
            power_w=mode.train_w,
            profiling_work=mode.profiled_work,
            profiling_power_w=mode.profiling_w,
        )
    return SimpleNamespace(
        name=task.name,
        min_nodes=task.least,
        max_nodes=task.most,
        work=mode.work,
        grow_cost_s=task.grow_s,
        shrink_cost_s=task.shrink_s,
        submit_s=task.submit_s,
        weight=task.weight,
        gpus_per_node=task.gpus,
        group=task.group,
        user=task.user,
        tuning=None if tuned is None else SimpleNamespace(**tuned),
        run=run,
        rates=mode.rate,
        credits=mode.credit,
    )
