"""Model of spot nodes that are preempted and added minute by minute."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError
from bftrainer.model import NS_PER_S, NodeLog
from bftrainer.nodelogs.availability_trace import FORM, churned

BIG_SIZES = (11, 31)
"""Smallest and largest size of a big addition; sizes are uniform between them, both included."""
_MINUTE_NS = 60 * NS_PER_S


@dataclass(frozen=True, slots=True)
class SizeModel:
    """Number of nodes that join or leave at once: ``max(1, |round(Normal(mean, std))|)``.

    Parameters
    ----------
    mean, std : float
        Parameters of the normal distribution, at least 0. Sizes are larger on average, see `expected`.

    Raises
    ------
    SettingsError
        If they are out of range.
    """

    mean: float
    std: float

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            if not 0 <= getattr(self, name) < 1e6:
                raise SettingsError(f"Expected a {name} of sizes from 0 to 1e6, got {getattr(self, name)}.")

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Draw the sizes of `count` changes."""
        normal = self.mean + self.std * rng.standard_normal(count)
        return np.maximum(1, np.abs(np.rint(normal))).astype(np.int64)

    @property
    def expected(self) -> float:
        """Mean size, E[max(1, |round N|)]: larger than `mean`, as sizes are at least 1 and mirrored at 0."""
        if self.std == 0:
            return float(max(1, abs(round(self.mean))))
        reach = math.ceil(self.mean + 10.0 * self.std) + 1
        # E[max(1, K)] = 1 + sum over k >= 1 of P(K > k); K > k where N lies outside of [-k - 1/2, k + 1/2].
        edges = np.arange(1, reach) + 0.5
        scale = self.std * math.sqrt(2.0)
        above = [
            math.erfc((edge - self.mean) / scale) + math.erfc((edge + self.mean) / scale) for edge in edges.tolist()
        ]
        return 1.0 + math.fsum(above) / 2.0

    def exact(self) -> SizeModel:
        """The model whose sizes have the given mean; its spread is kept if possible.

        Raises
        ------
        SettingsError
            If the mean is below 1, the smallest size.
        """
        wanted = self.mean
        if wanted < 1:
            raise SettingsError(f"Expected a mean size >= 1 to be met exactly, got {wanted}.")
        if self.expected == wanted:
            return self
        if SizeModel(0.0, self.std).expected > wanted:
            found = SizeModel(0.0, _root(lambda std: SizeModel(0.0, std).expected - wanted, self.std))
        else:
            found = SizeModel(_root(lambda mean: SizeModel(mean, self.std).expected - wanted, wanted + 1.0), self.std)
        if math.isclose(found.expected, wanted, rel_tol=1e-9):
            return found
        # With hardly any spread all sizes are one or two whole numbers; a larger spread allows any mean.
        return SizeModel(wanted, max(0.01, 2.0 * self.std)).exact()


def _root(rising: Callable[[float], float], high: float) -> float:
    """Find where a rising function crosses 0, between 0 and `high`."""
    low = 0.0
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return low


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Changes drawn for some minutes, before the bounds on the number of nodes cut them.

    Parameters
    ----------
    minutes : int
    taken_at, added_at : ndarray of int64, shape (P,) and (A,)
        Indices of minutes with a preemption, or an addition.
    taken, added : ndarray of int64, shape (P,) and (A,)
        Number of nodes taken, or added.
    is_big : ndarray of bool, shape (A,)
        Whether each addition is big.
    """

    minutes: int
    taken_at: NDArray[np.int64]
    taken: NDArray[np.int64]
    added_at: NDArray[np.int64]
    added: NDArray[np.int64]
    is_big: NDArray[np.bool_]

    def changes(self, start_ns: int, initial: int, most: int) -> Iterator[tuple[int, int, int]]:
        """Times, nodes taken and nodes added, limited to the nodes available and to `most`.

        Preemptions fall in the middle of their minute, additions at its end.
        """
        nodes = initial
        steps = np.concatenate((2 * self.taken_at, 2 * self.added_at + 1))
        sizes = np.concatenate((-self.taken, self.added))
        order = np.argsort(steps, kind="stable")
        for step, size in zip(steps[order].tolist(), sizes[order].tolist(), strict=True):
            change = max(-nodes, min(size, most - nodes))
            nodes += change
            if change:
                yield start_ns + (step + 1) * _MINUTE_NS // 2, max(0, -change), max(0, change)


@dataclass(frozen=True, slots=True)
class MinuteModel:
    """Each minute nodes may be taken, and others added; the defaults were measured on a trace of 64 spot instances.

    Parameters
    ----------
    preemption_chance, addition_chance : float
        Probability of a preemption, or an addition, in a minute, 0 to 1.
    preemption, addition : SizeModel
        Number of nodes taken at once, and number added by a regular addition.
    big_addition_share : float
        Share of additions that are big, 0 to 1: uniform from 11 to 31 nodes.

    Raises
    ------
    SettingsError
        If a chance or share is out of range.
    """

    preemption_chance: float = 0.16338
    addition_chance: float = 0.14366
    preemption: SizeModel = SizeModel(2.4138, 2.0862)
    addition: SizeModel = SizeModel(2.5417, 1.9456)
    big_addition_share: float = 0.0588

    def __post_init__(self) -> None:
        for name in ("preemption_chance", "addition_chance", "big_addition_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingsError(f"Expected {name} from 0 to 1, got {getattr(self, name)}.")

    @classmethod
    def fitted(cls, figures: Mapping[str, Any]) -> MinuteModel:
        """Fit the model to the figures of a trace, see `trace_statistics`; what never happens gets chance 0.

        Raises
        ------
        SettingsError
            If the trace does not give preemptions and additions, or has more than one per minute.
        """
        for name in ("preemption_chance", "addition_chance"):
            chance = figures[name]
            if chance is None:
                raise SettingsError("Expected a trace that tells preemptions and additions over time, got one without.")
            if chance > 1:
                raise SettingsError(
                    f"Expected at most one event a minute for the model minutes, got {name} {chance:.3g}; "
                    "try --model supercomputer."
                )
        sizes = (("preemption_mean", "preemption_std"), ("regular_addition_mean", "regular_addition_std"))
        preemption, addition = (SizeModel(figures[mean] or 1.0, figures[std] or 0.0) for mean, std in sizes)
        chances = figures["preemption_chance"], figures["addition_chance"]
        return cls(*chances, preemption, addition, figures["big_addition_share"] or 0.0)

    def scaled(self, preemption: float = 1.0, addition: float = 1.0) -> MinuteModel:
        """The model with its chances multiplied by factors.

        Raises
        ------
        SettingsError
            If a factor is negative, or makes a chance larger than 1.
        """
        chances = {}
        for name, factor in (("preemption", preemption), ("addition", addition)):
            chance = getattr(self, f"{name}_chance")
            if not 0 <= factor * chance <= 1:
                most = f" <= {1 / chance:.4g} (a chance of 1 a minute)" if chance else ""
                raise SettingsError(f"Expected 0 <= {name} scale{most}, got {factor}.")
            chances[f"{name}_chance"] = factor * chance
        return replace(self, **chances)

    def exact(self) -> MinuteModel:
        """The model whose preemptions and regular additions have exactly the mean sizes asked for."""
        return replace(self, preemption=self.preemption.exact(), addition=self.addition.exact())

    def draw(self, rng: np.random.Generator, minutes: int) -> Drawn:
        """Draw the changes of some minutes.

        Preemptions and additions come from streams of their own: another level of one leaves the other as it is, and
        a higher level has the minutes of a lower one among its own.
        """
        taking, adding = rng.spawn(2)
        taken_at = np.flatnonzero(taking.random(minutes) < self.preemption_chance)
        added_at = np.flatnonzero(adding.random(minutes) < self.addition_chance)
        taken = self.preemption.draw(taking, taken_at.size)
        added = self.addition.draw(adding, added_at.size)
        is_big = adding.random(added_at.size) < self.big_addition_share
        added[is_big] = adding.integers(*BIG_SIZES, endpoint=True, size=int(is_big.sum()))
        return Drawn(minutes, taken_at, taken, added_at, added, is_big)

    def generate(self, rng: np.random.Generator, drawn: Drawn, start_ns: int, initial: int, most: int) -> NodeLog:
        """Make a log of drawn changes; the nodes to take are drawn among those available.

        Parameters
        ----------
        rng : numpy.random.Generator
        drawn : Drawn
        start_ns : int
            Start of the window, nanoseconds since the Unix epoch.
        initial, most : int
            Number of nodes at the start, and largest number at any time.

        Raises
        ------
        SettingsError
            Unless ``0 <= initial <= most``.
        """
        if not 0 <= initial <= most:
            raise SettingsError(f"Expected 0 <= initial nodes <= the {most} nodes there are at most, got {initial}.")
        window_ns = (start_ns, start_ns + drawn.minutes * _MINUTE_NS)
        shares = iter(rng.random(int(drawn.taken.sum())).tolist())
        changes = drawn.changes(start_ns, initial, most)
        return churned(window_ns, initial, changes, lambda live: int(next(shares) * live), {FORM: "spot"})


@dataclass(frozen=True, slots=True)
class MinuteOptions:
    """Options of the minute model; None stands for its default, or for the value fitted to a trace.

    Parameters
    ----------
    preemption_scale, addition_scale : float, optional
        Factors for the two chances.
    initial_nodes, max_nodes : int, optional
        Nodes at the start (32; of a trace: its mean) and at most (64; of a trace: its largest number).
    exact_mean : bool, optional
        Whether sizes have exactly the means asked for.
    preemption_chance, addition_chance : float, optional
        Probability of a preemption, or an addition, in a minute, before the factors.
    preemption_mean, preemption_std, addition_mean, addition_std : float, optional
        Parameters of the normal distributions of the sizes of preemptions, and of regular additions.
    big_addition_share : float, optional
        Share of additions that are big.
    """

    preemption_chance: float | None = None
    preemption_mean: float | None = None
    preemption_std: float | None = None
    addition_chance: float | None = None
    addition_mean: float | None = None
    addition_std: float | None = None
    big_addition_share: float | None = None
    preemption_scale: float | None = None
    addition_scale: float | None = None
    initial_nodes: int | None = None
    max_nodes: int | None = None
    exact_mean: bool | None = None

    def changed(self, model: MinuteModel) -> MinuteModel:
        """The model with the chances and sizes of these options, then with their factors.

        Raises
        ------
        SettingsError
            If one of them is out of range.
        """

        def size(name: str, of_model: SizeModel) -> SizeModel:
            given = (getattr(self, f"{name}_{key}") for key in ("mean", "std"))
            return SizeModel(*map(_first, given, (of_model.mean, of_model.std)))

        made = replace(
            model,
            preemption=size("preemption", model.preemption),
            addition=size("addition", model.addition),
            preemption_chance=_first(self.preemption_chance, model.preemption_chance),
            addition_chance=_first(self.addition_chance, model.addition_chance),
            big_addition_share=_first(self.big_addition_share, model.big_addition_share),
        )
        return made.scaled(_first(self.preemption_scale, 1.0), _first(self.addition_scale, 1.0))


def _first(given: float | None, default: float) -> float:
    return default if given is None else given
