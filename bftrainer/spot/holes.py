"""What a node log shows of idle nodes: fragments and their lifetimes, and holes that open and close together."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import NS_PER_S, NodeLog
from bftrainer.model.availability import ChangeTrace, Survival

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Fragments:
    """Maximal intervals in which a node is there (idle, live), within the window.

    Parameters
    ----------
    start_ns, end_ns : ndarray of int64, shape (F,)
        Ordered by node, then time; clipped to the window.
    cut_at_start, cut_at_end : ndarray of bool, shape (F,)
        Whether the window opens or closes on it, so that it may have lasted longer.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    cut_at_start: NDArray[np.bool_]
    cut_at_end: NDArray[np.bool_]

    @property
    def length_s(self) -> Floats:
        """Lengths in seconds, shape (F,)."""
        return (self.end_ns - self.start_ns) / NS_PER_S

    @property
    def completed_s(self) -> Floats:
        """Lengths of those that begin and end within the window."""
        return self.length_s[~self.cut_at_start & ~self.cut_at_end]


def fragments(log: NodeLog, *, come_at_start: bool = False) -> Fragments:
    """The fragments of a log.

    A node that leaves just at the window's end has completed its fragment.

    Parameters
    ----------
    log : NodeLog
    come_at_start : bool
        Whether nodes that are there from the window's start on come then, as a spot event trace says; else they were
        there before, nobody knows since when.
    """
    order = np.lexsort((log.time_ns, log.node))
    time, node, idle = log.time_ns[order], log.node[order], log.idle[order]
    # States alternate, so the end of an interval is the next transition of the same node, if there is one.
    begins = np.flatnonzero(idle)
    following = np.minimum(begins + 1, max(time.size - 1, 0))
    ended = (following > begins) & (node[following] == node[begins])
    start = np.maximum(time[begins], log.start_ns)
    end = np.where(ended, time[following], log.end_ns)
    seen = end > log.start_ns
    opened = time[begins] < log.start_ns + (0 if come_at_start else 1)
    return Fragments(start[seen], end[seen], opened[seen], ~ended[seen])


def survival(length_s: Floats, censored: NDArray[np.bool_]) -> Survival:
    """Survival curve of lifetimes, some of which were seen in part only (Kaplan-Meier).

    Parameters
    ----------
    length_s : ndarray of float64, shape (F,)
    censored : ndarray of bool, shape (F,)
        True where a node was still there when it was last seen: it counts among those at risk until then.

    References
    ----------
    Kaplan and Meier, Nonparametric estimation from incomplete observations, JASA 53 (1958).
    """
    times, place = np.unique(length_s, return_inverse=True)
    deaths = np.bincount(place, ~censored, minlength=times.size)
    gone = np.bincount(place, minlength=times.size)
    at_risk = length_s.size - np.concatenate(([0], np.cumsum(gone)[:-1])) if times.size else np.empty(0)
    share = np.cumprod(1.0 - deaths / at_risk).astype(np.float64)
    fell = deaths > 0
    return Survival(times[fell], share[fell], float(times[-1]) if times.size else 0.0)


HOURS = 24
_HOUR_NS = 3600 * NS_PER_S


def hour_of_day(time_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Hours of the day (UTC) of instants, 0 to 23."""
    return time_ns // _HOUR_NS % HOURS


def observed_s_by_hour(start_ns: int, end_ns: int) -> NDArray[np.float64]:
    """Seconds of a window in each hour of the day (UTC), shape (24,)."""
    cuts = hour_cuts(start_ns, end_ns)
    return np.bincount(hour_of_day(cuts[:-1]), np.diff(cuts) / NS_PER_S, minlength=HOURS).astype(np.float64)


def hour_cuts(start_ns: int, end_ns: int) -> NDArray[np.int64]:
    """A window's start, the full hours within it, and its end."""
    edges = np.arange(start_ns // _HOUR_NS + 1, -(-end_ns // _HOUR_NS), dtype=np.int64) * _HOUR_NS
    return np.concatenate((np.array([start_ns]), edges, np.array([end_ns])))


@dataclass(frozen=True, slots=True)
class DailyCycle:
    """How often something happens by the hour of the day (UTC), against its mean.

    Parameters
    ----------
    weight : tuple of float, shape (24,)
        At least 0, not all 0; only their ratios count.
    """

    weight: tuple[float, ...] = (1.0,) * HOURS

    @classmethod
    def cosine(cls, amplitude: float, peak_hour: float) -> DailyCycle:
        """``1 + amplitude * cos(2 pi (hour - peak_hour) / 24)`` at the middle of each hour."""
        hours = np.arange(HOURS) + 0.5
        return cls(tuple((1.0 + amplitude * np.cos(2.0 * np.pi * (hours - peak_hour) / HOURS)).tolist()))

    def harmonic(self) -> tuple[float, float]:
        """Amplitude, as a share of the mean, and peak (h) of the cosine of one day that is in the weights."""
        weight = np.array(self.weight)
        wave = (weight * np.exp(2j * np.pi * (np.arange(HOURS) + 0.5) / HOURS)).mean()
        return float(2.0 * abs(wave) / weight.mean()), float(np.angle(wave)) / (2.0 * math.pi) * HOURS % HOURS


@dataclass(frozen=True, slots=True, eq=False)
class Holes:
    """Instants of a log, after its window opens, at which nodes become idle.

    Parameters
    ----------
    time_ns, nodes : ndarray of int64, shape (H,)
        When, and how many at once.
    group_mean : float or None
        Mean number of nodes of one hole that are taken back together.
    window_ns : tuple of int
    """

    time_ns: NDArray[np.int64]
    nodes: NDArray[np.int64]
    group_mean: float | None
    window_ns: tuple[int, int]

    @classmethod
    def of(cls, log: NodeLog) -> Holes:
        """Those of a log."""
        opened = ChangeTrace.of(log, joins=True)
        whole = fragments(log)
        done = ~whole.cut_at_end & ~whole.cut_at_start
        start, end = whole.start_ns[done], whole.end_ns[done]
        order = np.lexsort((end, start))
        groups = int(done.any()) + int(((np.diff(start[order]) != 0) | (np.diff(end[order]) != 0)).sum())
        mean = float(done.sum()) / groups if groups else None
        return cls(opened.time_ns, opened.number, mean, (log.start_ns, log.end_ns))

    @property
    def per_hour(self) -> float | None:
        """Holes an hour; None in a window without length."""
        start_ns, end_ns = self.window_ns
        return self.nodes.size * _HOUR_NS / (end_ns - start_ns) if end_ns > start_ns else None

    def cycle(self) -> DailyCycle | None:
        """Holes per hour by the hour of the day; None unless the window has something of every hour, and a hole."""
        seconds = observed_s_by_hour(*self.window_ns)
        if not (seconds > 0).all() or not self.time_ns.size:
            return None
        return DailyCycle(tuple((np.bincount(hour_of_day(self.time_ns), minlength=HOURS) / seconds * 3600.0).tolist()))
