"""Model of idle nodes under a batch scheduler: many become idle at once (a hole), and are taken back in groups."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError
from bftrainer.model import NS_PER_S, NodeLog
from bftrainer.model.availability_trace import MOST_NODES
from bftrainer.spot.arrivals import Arrivals, EvenArrivals, Hole
from bftrainer.spot.distributions import Distribution, Quantiles
from bftrainer.spot.statistics import DailyCycle, Holes, fragments

# Measured on the Summit log published with BFTrainer (Liu et al., arXiv:2106.12091; 4,734 nodes, 358 h).
SUMMIT_NODES = 4734
SUMMIT_IDLE_SHARE = 0.0827
SUMMIT_FRAGMENTS = Quantiles(
    (0.0, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 0.999, 1.0),
    (60.0, 81.0, 91.0, 162.0, 475.0, 1397.0, 3269.0, 4723.0, 9246.0, 12585.0, 14400.0),
)
"""Lengths of completed idle fragments in seconds."""
_SUMMIT_HOLES = {
    0.0: 1.0,
    0.25: 1.0,
    0.35: 2.0,
    0.5: 4.0,
    0.6: 6.0,
    0.7: 10.0,
    0.8: 20.0,
    0.85: 32.0,
    0.9: 50.0,
    0.93: 72.0,
    0.95: 108.0,
    0.97: 156.0,
    0.98: 256.0,
    0.985: 340.0,
    0.99: 512.0,
    0.993: 762.0,
    0.995: 979.0,
    0.997: 1024.0,
    0.998: 1208.0,
    0.999: 1600.0,
    0.9995: 1790.0,
    1.0: 2780.0,
}
SUMMIT_HOLES = Quantiles(tuple(_SUMMIT_HOLES), tuple(_SUMMIT_HOLES.values()))
"""Sizes of holes: nodes that become idle together."""
SUMMIT_SPLIT_MEAN = 43.0
"""Makes groups of 17.5 nodes on average, as measured."""
SUMMIT_CYCLE = DailyCycle.cosine(0.375, 16.4)
LONGEST_S = 1e9


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
        holes = self.arrivals(rng, wanted, self.nodes, window_ns)
        time, node, idle = _transitions(rng, holes, self._groups(rng, holes), self.nodes)
        inside = time < window_s
        order = np.lexsort((node[inside], time[inside]))
        return NodeLog(
            nodes=tuple(f"n{index:04d}" for index in range(self.nodes)),
            start_ns=window_ns[0],
            end_ns=window_ns[1],
            time_ns=window_ns[0] + time[inside][order] * NS_PER_S,
            node=node[inside][order].astype(np.int32),
            idle=idle[inside][order],
            provenance=provenance or {},
        )

    def _groups(self, rng: np.random.Generator, holes: list[Hole]) -> list[list[tuple[int, int]]]:
        """Split every hole into groups (nodes, length in s) that are taken back together.

        Lengths are an even sample, weighted by nodes, so that fragments have the distribution asked for.
        """
        sizes: list[list[int]] = []
        for _, left in holes:
            sizes.append([])
            while left:
                sizes[-1].append(min(left, int(rng.geometric(1 / self.split_mean))))
                left -= sizes[-1][-1]
        flat = np.array([size for group in sizes for size in group])
        order = rng.permutation(flat.size)
        share = np.empty(flat.size)
        share[order] = (np.cumsum(flat[order]) - flat[order] / 2) / flat.sum()
        lengths = iter(np.rint(self.fragment_s.at(share)).astype(int).clip(min=1).tolist())
        return [[(size, next(lengths)) for size in group] for group in sizes]


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
    rng: np.random.Generator, holes: list[Hole], groups: list[list[tuple[int, int]]], nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Times in s, nodes and states entered; a node that is taken back stays busy for at least a second."""
    is_busy = np.ones(nodes, dtype=np.bool_)
    busy = nodes
    ends: list[tuple[int, int]] = []
    joined: list[tuple[int, int]] = []
    left: list[tuple[int, int]] = []
    now = 0
    for (start, size), parts in zip(holes, groups, strict=True):
        now = max(now, start)
        while ends and (ends[0][0] < now or busy < size):
            end, node = heapq.heappop(ends)
            now = max(now, end + 1)  # if too few nodes are busy, the hole waits until enough are
            is_busy[node] = True
            busy += 1
            left.append((end, node))
        free = np.flatnonzero(is_busy)
        first = int(rng.integers(free.size))
        chosen = free.take(range(first, first + size), mode="wrap")  # neighbouring nodes, as jobs use them
        is_busy[chosen] = False
        busy -= size
        members = iter(chosen.tolist())
        for count, length in parts:
            for _ in range(count):
                node = next(members)
                joined.append((now, node))
                heapq.heappush(ends, (now + length, node))
    time, node_of = np.array(joined + left + ends, dtype=np.int64).T
    return time, node_of, np.arange(time.size) < len(joined)
