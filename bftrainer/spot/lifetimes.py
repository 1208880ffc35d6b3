"""How long nodes stay: idle fragments of a node log, and the survival curve of lifetimes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import NS_PER_S, NodeLog
from bftrainer.model.trace_statistics import Survival

__all__ = ["Fragments", "fragments", "survival"]

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
