"""Model of idle nodes under a batch scheduler: many become idle at once (a hole), and are taken back in groups."""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError
from bftrainer.model import NS_PER_S, NodeLog
from bftrainer.model.node_rows import BLOCK, RowParts
from bftrainer.nodelogs.availability_trace import MOST_NODES
from bftrainer.spot.arrivals import Arrivals, Distribution, EvenArrivals, Quantiles
from bftrainer.spot.statistics import DailyCycle, Holes, fragments

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
_AHEAD = 1 << 16


@dataclass(frozen=True, slots=True)
class SupercomputerModel:
    """Model of a machine whose batch scheduler leaves holes; the defaults describe Summit.

    Parameters
    ----------
    nodes : int
        Number of nodes of the machine.
    idle_share : float
        Mean share of idle nodes, above 0 and below 1.
    fragment_s : Distribution
        Lengths of idle fragments in seconds, 1 to 1e9 on average.
    arrivals : Arrivals
        Times and sizes of holes.
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
    arrivals: Arrivals = EvenArrivals(SUMMIT_HOLES, SUMMIT_CYCLE)  # noqa: RUF009 - frozen
    split_mean: float = SUMMIT_SPLIT_MEAN

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MOST_NODES:
            raise SettingsError(f"Expected 1 <= nodes <= {MOST_NODES:,}, got {self.nodes:,}.")
        if not 1 <= self.fragment_s.mean <= LONGEST_S:
            raise SettingsError(
                f"Expected fragments from 1 s to {LONGEST_S:.0e} s on average, got {self.fragment_s.mean:.5g}."
            )
        if not 0 < self.idle_share < 1:
            raise SettingsError(f"Expected 0 < idle share < 1, got {self.idle_share}.")
        if not 1 <= self.split_mean < math.inf:
            raise SettingsError(f"Expected holes to be split after 1 node or more, got {self.split_mean}.")

    @classmethod
    def fitted(cls, log: NodeLog) -> SupercomputerModel:
        """Fit the model to a log: nodes, idle share, fragments, holes, groups and daily cycle.

        The cycle is flat if the log does not span every hour of the day.

        Raises
        ------
        SettingsError
            If the log has no completed fragment or no hole to fit.
        """
        whole = fragments(log)
        holes = Holes.of(log)
        if not whole.completed_s.size or not holes.nodes.size:
            raise SettingsError("Expected a log with nodes that become idle and are taken back, got one without.")
        share = float(whole.length_s.sum()) / (len(log.nodes) * log.window_s)
        arrivals = EvenArrivals(Quantiles.of(holes.nodes), holes.cycle() or DailyCycle())
        return cls(len(log.nodes), share, Quantiles.of(whole.completed_s), arrivals, _split_mean(holes))

    def generate(
        self, rng: np.random.Generator, window_ns: tuple[int, int], provenance: Mapping[str, Any] | None = None
    ) -> NodeLog:
        """Generate a log of this machine; the same generator state gives the same log.

        Parameters
        ----------
        rng : numpy.random.Generator
        window_ns : tuple of int
            Start and end, nanoseconds since the Unix epoch; whole seconds apart.
        provenance : mapping, optional
        """
        window_s = (window_ns[1] - window_ns[0]) // NS_PER_S
        wanted = round(self.idle_share * self.nodes * window_s / self.fragment_s.mean)
        if wanted < 1:
            raise SettingsError(f"Expected a window in which a node becomes idle, got one of {window_s} s.")
        starts, sizes = np.array(self.arrivals(rng, wanted, self.nodes, window_ns), dtype=np.int64).T
        groups, lengths = self._groups(rng, sizes)
        parts = RowParts(2 * int(sizes.sum()))
        for time, node, idle in _transitions(rng, (starts, sizes), (groups, lengths), self.nodes):
            inside = slice(0, int(np.searchsorted(time, window_s)))
            parts.add(window_ns[0] + time[inside] * NS_PER_S, node[inside], idle[inside])
        rows, nodes, states = parts.joined()
        return NodeLog.of_rows(
            rows,
            nodes=tuple(f"n{index:04d}" for index in range(self.nodes)),
            start_ns=window_ns[0],
            end_ns=window_ns[1],
            node=nodes,
            idle=states,
            provenance=provenance or {},
            unchanged_ns=np.empty(0, dtype=np.int64),
        )

    def _groups(self, rng: np.random.Generator, holes: NDArray[np.int64]) -> tuple[memoryview, memoryview]:
        """Split holes of these sizes into groups that are taken back together: numbers of nodes, lengths in seconds.

        Lengths are an even sample, weighted by nodes, so that fragments have the distribution asked for.
        """
        before = rng.bit_generator.state
        draws = self._splits(rng)
        sizes = array("q")
        for left in holes.data:
            while left > 0:
                sizes.append(min(left, next(draws)))
                left -= sizes[-1]
        # What was drawn ahead is given back.
        rng.bit_generator.state = before
        rng.geometric(1 / self.split_mean, len(sizes))
        flat = np.frombuffer(sizes, dtype=np.int64)
        order = rng.permutation(flat.size)
        share = np.empty(flat.size)
        share[order] = (np.cumsum(flat[order]) - flat[order] / 2) / flat.sum()
        return flat.data, np.rint(self.fragment_s.at(share)).astype(np.int64).clip(min=1).data

    def _splits(self, rng: np.random.Generator) -> Iterator[int]:
        """Numbers of nodes until the next split, drawn ahead."""
        while True:
            yield from rng.geometric(1 / self.split_mean, _AHEAD).tolist()


def _split_mean(holes: Holes) -> float:
    """Mean number of nodes between splits, such that groups have the measured size.

    A hole of n nodes, split after each with chance p, falls into ``1 + (n - 1) p`` groups on average.
    """
    total, count = int(holes.nodes.sum()), holes.nodes.size
    if holes.group_mean is None or total == count:
        return 1.0
    chance = (total / holes.group_mean - count) / (total - count)
    return 1.0 / min(1.0, max(chance, 1.0 / total))


def _transitions(
    rng: np.random.Generator,
    holes: tuple[NDArray[np.int64], NDArray[np.int64]],
    groups: tuple[memoryview, memoryview],
    nodes: int,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]]:
    """Times in s, nodes and states entered, by time and node, as they are drawn.

    A node that is taken back stays busy for at least a second. A group's nodes leave together, as all that end at a
    time do: if too few nodes are busy, the hole waits until after that time.
    """
    is_busy = np.ones(nodes, dtype=np.bool_)
    busy, filled, now = nodes, 0, 0
    ends: list[tuple[int, int, NDArray[np.int64]]] = []
    joined: list[tuple[int, NDArray[np.int64]]] = []
    left: list[tuple[int, NDArray[np.int64]]] = []
    of_groups = enumerate(zip(*groups, strict=True))
    for start, size in zip(holes[0].data, holes[1].data, strict=True):
        now = max(now, start)
        while ends and (ends[0][0] < now or busy < size):
            end, _, members = heapq.heappop(ends)
            now = max(now, end + 1)
            is_busy[members] = True
            busy += members.size
            left.append((end, members))
        if filled > BLOCK // 2 and joined[-1][0] < now:  # nothing that comes is earlier than this
            yield _sorted(joined, left, nodes)
            joined, left, filled = [], [], 0
        first = int(rng.integers(busy))
        chosen = _neighbours(is_busy, first, size)
        is_busy[chosen] = False
        busy -= size
        joined.append((now, chosen))
        filled += size
        begin = 0
        while begin < size:
            number, (count, length) = next(of_groups)
            heapq.heappush(ends, (now + length, number, chosen[begin : begin + count]))
            begin += count
    yield _sorted(joined, left + [(end, members) for end, _, members in ends], nodes)


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


def _sorted(
    joined: list[tuple[int, NDArray[np.int64]]], left: list[tuple[int, NDArray[np.int64]]], nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Times, nodes and states of nodes that become idle, and busy, by time and node."""
    bits = (nodes - 1).bit_length()
    parts = []
    for state, changes in ((1, joined), (0, left)):
        times, members = zip(*changes, strict=True) if changes else ((), (np.empty(0, dtype=np.int64),))
        sizes = np.fromiter(map(len, members), dtype=np.int64, count=len(times))
        # Each transition as a number: time, node, and state in the last bit.
        parts.append((np.repeat(np.array(times, dtype=np.int64) << bits, sizes) + np.concatenate(members)) << 1 | state)
    codes = np.concatenate(parts)
    codes.sort(kind="stable")  # two sequences that are nearly in order
    return codes >> (bits + 1), codes >> 1 & ((1 << bits) - 1), (codes & 1).astype(np.bool_)
