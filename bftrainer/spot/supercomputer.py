"""Model of idle nodes under a batch scheduler: many become idle at once (a hole), and are taken back in groups."""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError
from bftrainer.model import NS_PER_S, NodeLog
from bftrainer.model.node_log import BLOCK
from bftrainer.model.type_checks import require
from bftrainer.nodelogs.availability import ChangeTrace
from bftrainer.nodelogs.hostlist import MOST_NODES
from bftrainer.spot.statistics import HOURS, DailyCycle, Fragments, daily_cycle, hour_cuts, hour_of_day

Floats = NDArray[np.float64]

_GRID = 100_001
"""Number of points at which a mean is computed."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A measured distribution of positive numbers, log-linear between quantiles: both ascend, shares from 0 to 1."""

    share: tuple[float, ...]
    value: tuple[float, ...]

    @classmethod
    def from_sample(cls, sample: NDArray[np.int64] | Floats) -> Quantiles:
        """Quantiles of a sample of positive numbers, closer together at its upper end, which dominates the mean."""
        shares = np.unique(np.concatenate((np.linspace(0.0, 0.99, 100), 1.0 - np.logspace(-2, -5, 31), [1.0])))
        return cls(tuple(shares.tolist()), tuple(np.quantile(sample, shares).tolist()))

    @property
    def mean(self) -> float:
        """Mean."""
        return float(np.trapezoid(self.values(np.linspace(0, 1, _GRID)), dx=1 / (_GRID - 1)))

    def values(self, share: Floats) -> Floats:
        """Values below which those shares lie."""
        return np.exp(np.interp(share, self.share, np.log(self.value)))


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Values whose logarithm is normal: ``mean = median * exp(sigma ** 2 / 2)``, with ``0 < median <= mean < inf``."""

    mean: float
    median: float

    def __post_init__(self) -> None:
        if not 0 < self.median <= self.mean < math.inf:
            got = f"{self.median} and {self.mean}"
            raise SettingsError(f"Expected 0 < median <= mean of a log-normal distribution, got {got}.")

    def values(self, share: Floats) -> Floats:
        """Values below which those shares lie, 0 < share < 1; same shape."""
        scores: Floats = np.vectorize(NormalDist().inv_cdf, otypes=[np.float64])(share)
        return self.median * np.exp(math.sqrt(2.0 * math.log(self.mean / self.median)) * scores)


Distribution = Quantiles | LogNormal
"""Of positive numbers, by its mean and its values at shares."""


def even_shares(count: int) -> Floats:
    """Midpoints of `count` equal parts of the unit interval, shape (count,)."""
    return (np.arange(count) + 0.5) / count


# Measured on the Summit log published with BFTrainer (Liu et al., arXiv:2106.12091; 4,734 nodes, 358 h).
SUMMIT_NODES = 4734
SUMMIT_IDLE_SHARE = 0.0827
SUMMIT_FRAGMENTS = Quantiles(
    (0.0, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 0.999, 1.0),
    (60.0, 81.0, 91.0, 162.0, 475.0, 1397.0, 3269.0, 4723.0, 9246.0, 12585.0, 14400.0),
)
"""Lengths of completed idle fragments in seconds."""
SUMMIT_HOLES = Quantiles(
    (
        *(0.0, 0.25, 0.35, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95),
        *(0.97, 0.98, 0.985, 0.99, 0.993, 0.995, 0.997, 0.998, 0.999, 0.9995, 1.0),
    ),
    (
        *(1.0, 1.0, 2.0, 4.0, 6.0, 10.0, 20.0, 32.0, 50.0, 72.0, 108.0),
        *(156.0, 256.0, 340.0, 512.0, 762.0, 979.0, 1024.0, 1208.0, 1600.0, 1790.0, 2780.0),
    ),
)
"""Sizes of holes: nodes that become idle together."""
SUMMIT_SPLIT_MEAN = 43.0
"""Makes groups of 17.5 nodes on average, as measured."""
SUMMIT_CYCLE = DailyCycle.cosine(0.375, 16.4)
LONGEST_S = 1e9
_MOST_SHARE = 0.6
"""Largest share of the machine in one hole. A larger one would leave no room for the next ones."""
HOLE_OPTIONS = ("nodes", "idle_share", "fragment_mean_s", "fragment_median_s", "daily_amplitude", "peak_hour")
"""Options of `SupercomputerModel.adjust`."""


@dataclass(frozen=True, slots=True)
class SupercomputerModel:
    """Model of a machine whose batch scheduler leaves holes; the defaults describe Summit.

    Parameters
    ----------
    nodes : int
        Number of nodes of the machine.
    idle_share : float
        Mean share of idle nodes, above 0 and below 1.
    fragment_s : Quantiles or LogNormal
        Lengths of idle fragments in seconds, 1 to 1e9 on average.
    hole_nodes : Quantiles or LogNormal
        Sizes of holes in nodes, with a mean of at least 1.
    cycle : DailyCycle
        Of the number of holes.
    split_mean : float
        Mean number of a hole's nodes (geometric) after which the next ones are taken back at another time, at least 1.

    Raises
    ------
    SettingsError
        If a number is out of range.
    """

    nodes: int = SUMMIT_NODES
    idle_share: float = SUMMIT_IDLE_SHARE
    fragment_s: Distribution = SUMMIT_FRAGMENTS
    hole_nodes: Distribution = SUMMIT_HOLES
    cycle: DailyCycle = SUMMIT_CYCLE
    split_mean: float = SUMMIT_SPLIT_MEAN

    def __post_init__(self) -> None:
        mean_s = self.fragment_s.mean
        require(
            SettingsError,
            (1 <= self.nodes <= MOST_NODES, f"1 <= nodes <= {MOST_NODES:,}, got {self.nodes:,}"),
            (1 <= mean_s <= LONGEST_S, f"fragments from 1 s to {LONGEST_S:.0e} s on average, got {mean_s:.5g}"),
            (0 < self.idle_share < 1, f"0 < idle share < 1, got {self.idle_share}"),
            (1 <= self.split_mean < math.inf, f"holes to be split after 1 node or more, got {self.split_mean}"),
        )

    @classmethod
    def fit(cls, log: NodeLog) -> SupercomputerModel:
        """Fit the model to a log: nodes, idle share, fragments, holes, groups and daily cycle.

        The cycle is flat if the log does not span every hour of the day. A `SettingsError` if the log has no completed
        fragment or no hole.
        """
        fragments = Fragments.from_log(log)
        holes = ChangeTrace.from_log(log, joins=True)
        completed_s = fragments.length_s[fragments.is_complete]
        if not completed_s.size or not holes.number.size:
            raise SettingsError("Expected a log with nodes that become idle and are taken back, got one without.")
        share = float(fragments.length_s.sum()) / (len(log.nodes) * log.window_s)
        return cls(
            nodes=len(log.nodes),
            idle_share=share,
            fragment_s=Quantiles.from_sample(completed_s),
            hole_nodes=Quantiles.from_sample(holes.number),
            cycle=daily_cycle(holes.time_ns, (log.start_ns, log.end_ns)) or DailyCycle(),
            split_mean=_split_mean(holes.number, fragments.mean_group()),
        )

    def adjust(self, **options: float) -> SupercomputerModel:
        """The model with the values of some of `HOLE_OPTIONS`.

        Measured sizes of holes scale with the number of nodes. Mean and median of fragments (seconds), both or neither,
        are those of a log-normal distribution. The daily cycle is a cosine with an amplitude, as a share of the mean,
        and its peak at an hour (UTC); one of the two stays if only the other one is named. A `SettingsError` if a value
        is out of range.
        """
        nodes = options.get("nodes", self.nodes)
        sizes, lengths, cycle = self.hole_nodes, self.fragment_s, self.cycle
        if isinstance(sizes, Quantiles) and nodes != self.nodes:
            sizes = Quantiles(sizes.share, tuple(max(1.0, size * nodes / self.nodes) for size in sizes.value))
        named = options.keys() & {"fragment_mean_s", "fragment_median_s"}
        if len(named) == 1:
            raise SettingsError("Expected both fragment_mean_s and fragment_median_s, or neither.")
        if named:
            lengths = LogNormal(options["fragment_mean_s"], options["fragment_median_s"])
        if options.keys() & {"daily_amplitude", "peak_hour"}:
            amplitude, peak_hour = cycle.harmonic()
            cycle = DailyCycle.cosine(options.get("daily_amplitude", amplitude), options.get("peak_hour", peak_hour))
        share = options.get("idle_share", self.idle_share)
        return replace(self, nodes=int(nodes), idle_share=share, fragment_s=lengths, hole_nodes=sizes, cycle=cycle)

    def generate(
        self, rng: np.random.Generator, window_ns: tuple[int, int], provenance: Mapping[str, Any] = MappingProxyType({})
    ) -> NodeLog:
        """Generate a log of this machine, in a window (nanoseconds since the Unix epoch) of whole seconds."""
        window_s = (window_ns[1] - window_ns[0]) // NS_PER_S
        target = round(self.idle_share * self.nodes * window_s / self.fragment_s.mean)
        if target < 1:
            raise SettingsError(f"Expected a window in which a node becomes idle, got one of {window_s} s.")
        starts, sizes = self.draw_holes(rng, target, window_ns)
        groups, lengths = self._groups(rng, sizes)
        bits = (self.nodes - 1).bit_length()
        blocks = _transitions(rng, (starts, sizes), (groups, lengths), self.nodes)
        codes = np.concatenate([block[: np.searchsorted(block, window_s << (bits + 1))] for block in blocks])
        return NodeLog(
            nodes=tuple(f"n{index:04d}" for index in range(self.nodes)),
            start_ns=window_ns[0],
            end_ns=window_ns[1],
            time_ns=window_ns[0] + (codes >> (bits + 1)) * NS_PER_S,
            node=(codes >> 1 & ((1 << bits) - 1)).astype(np.int32),
            idle=(codes & 1).astype(np.bool_),
            provenance=provenance,
        )

    def draw_holes(
        self, rng: np.random.Generator, target: int, window_ns: tuple[int, int]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw when holes come (seconds since the window's start, ascending), and their sizes, `wanted` nodes in total.

        Sizes are an even sample in random order; hours of the day follow the cycle, days and instants are uniform.
        """
        count = max(1, min(target, round(target / self.hole_nodes.mean)))
        most = max(1, int(_MOST_SHARE * self.nodes))
        sizes = rng.permutation(_whole_sizes(self.hole_nodes.values(even_shares(count)), target, most))
        cuts = hour_cuts(*window_ns)
        hour, length_s = hour_of_day(cuts[:-1]), np.diff(cuts) / NS_PER_S
        weight = np.array(self.cycle.weight) * np.bincount(hour, length_s, minlength=HOURS)
        upto = np.cumsum(weight) / weight.sum()
        per_hour = np.bincount(np.searchsorted(upto, even_shares(count), side="right"), minlength=HOURS)
        starts = []
        for of_day in np.flatnonzero(per_hour):
            pieces = hour == of_day
            ends_s = np.cumsum(length_s[pieces])
            at_s = rng.uniform(0.0, ends_s[-1], per_hour[of_day])
            piece = np.searchsorted(ends_s, at_s, side="right").clip(max=ends_s.size - 1)
            into_s = at_s - (ends_s - length_s[pieces])[piece]
            starts.append((cuts[:-1][pieces][piece] - window_ns[0]) / NS_PER_S + into_s)
        return np.sort(np.maximum(1, np.concatenate(starts).astype(np.int64))), sizes

    def _groups(self, rng: np.random.Generator, holes: NDArray[np.int64]) -> tuple[memoryview, memoryview]:
        """Split holes into groups that are taken back together: numbers of nodes, lengths in seconds."""
        # Lengths are an even sample, weighted by nodes, so that fragments have the distribution asked for.
        sizes = array("q")
        for remaining in holes.tolist():
            while remaining > 0:
                sizes.append(min(remaining, rng.geometric(1 / self.split_mean)))
                remaining -= sizes[-1]
        flat = np.frombuffer(sizes, dtype=np.int64)
        order = rng.permutation(flat.size)
        share = np.empty(flat.size)
        share[order] = (np.cumsum(flat[order]) - flat[order] / 2) / flat.sum()
        return flat.data, np.rint(self.fragment_s.values(share)).astype(np.int64).clip(min=1).data


def _whole_sizes(sizes: NDArray[np.float64], target: int, most: int) -> NDArray[np.int64]:
    """Scale sizes by one factor and round them to 1 to `most`, so that their sum is as near to `wanted` as possible."""

    def round_sizes(factor: float) -> NDArray[np.int64]:
        return np.rint(factor * sizes).clip(1, most).astype(np.int64)

    low, high = 0.0, 1.0
    while round_sizes(high).sum() < min(target, most * sizes.size) and math.isfinite(high):
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if round_sizes(middle).sum() < target else (low, middle)
    return round_sizes(high)


def _split_mean(holes: NDArray[np.int64], group_mean: float | None) -> float:
    """Mean number of nodes between splits, such that groups of holes of these sizes have the measured mean."""
    # A hole of n nodes, split after each with chance p, falls into 1 + (n - 1) p groups on average.
    total, count = int(holes.sum()), holes.size
    if group_mean is None or total == count:
        return 1.0
    chance = (total / group_mean - count) / (total - count)
    return 1.0 / min(1.0, max(chance, 1.0 / total))


def _transitions(
    rng: np.random.Generator,
    holes: tuple[NDArray[np.int64], NDArray[np.int64]],
    groups: tuple[memoryview, memoryview],
    nodes: int,
) -> Iterator[NDArray[np.int64]]:
    """Transitions as they are drawn, as `_sort_changes` gives them."""
    # A group's nodes leave together, and stay busy for a second: with too few busy ones the hole waits until then.
    is_busy = np.ones(nodes, dtype=np.bool_)
    busy, filled, now = nodes, 0, 0
    ends: list[tuple[int, int, NDArray[np.int64]]] = []
    changes: list[tuple[int, int, NDArray[np.int64]]] = []
    of_groups = enumerate(zip(*groups, strict=True))
    for start, size in zip(holes[0].data, holes[1].data, strict=True):
        now = max(now, start)
        while ends and (ends[0][0] < now or busy < size):
            end, _, members = heapq.heappop(ends)
            now = max(now, end + 1)
            is_busy[members] = True
            busy += members.size
            changes.append((end, 0, members))
        if filled > BLOCK // 2 and changes[-1][0] < now:  # nothing that comes is earlier than this
            yield _sort_changes(changes, nodes)
            changes, filled = [], 0
        first = int(rng.integers(busy))
        chosen = _neighbours(is_busy, first, size)
        is_busy[chosen] = False
        busy -= size
        changes.append((now, 1, chosen))
        filled += size
        begin = 0
        while begin < size:
            number, (count, length) = next(of_groups)
            heapq.heappush(ends, (now + length, number, chosen[begin : begin + count]))
            begin += count
    yield _sort_changes(changes + [(end, 0, members) for end, _, members in sorted(ends)], nodes)


def _neighbours(is_busy: NDArray[np.bool_], first: int, size: int) -> NDArray[np.int64]:
    """The `first`-th busy node and those that follow it, `size` in all: neighbouring nodes, as jobs use them."""
    # Before it are as many busy nodes, and some idle ones: few nodes beyond `first` have to be looked at.
    skip = first - int(np.count_nonzero(is_busy[:first]))
    near = is_busy[first : first + 2 * (skip + size)].nonzero()[0]
    chosen = near[skip : skip + size] + first
    if chosen.size < size:
        free = is_busy.nonzero()[0]
        chosen = np.concatenate((free[first : first + size], free[: max(0, first + size - free.size)]))
    return chosen


def _sort_changes(changes: list[tuple[int, int, NDArray[np.int64]]], nodes: int) -> NDArray[np.int64]:
    """Transitions of changes (time, whether to idle, nodes), ascending: time in s, node, and state in the last bit."""
    bits = (nodes - 1).bit_length()
    times, states, members = zip(*changes, strict=True)
    sizes = [group.size for group in members]
    places = np.repeat(np.array(times) << bits, sizes) + np.concatenate(members)
    codes: NDArray[np.int64] = places << 1 | np.repeat(states, sizes)
    codes.sort(kind="stable")  # nearly in order
    return codes
