"""Cut a task's options into concave runs of linear segments, of which the count-level model is made.

Along a run the counts are consecutive, and everything that the model adds up over tasks is concave: the value, minus
each use of a further resource, each credit. Its earlier segments are then at least as good as its later ones in every
respect, so a solver fills them first without a constraint that says so.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Slopes that differ by less than this share of a task's largest value differ by rounding.
SLOPE_TOLERANCE = 2.0**-44
# Uses per node that differ by less than this share are those of one mode.
MODE_TOLERANCE = 2.0**-30


@dataclass(frozen=True, slots=True)
class ConcaveRun:
    """Options of consecutive counts, concave in everything that they add to the model.

    Parameters
    ----------
    start : int
        First count.
    gains : tuple of float, length P
        What the first option brings: its value, then whatever else is added up.
    segments : tuple of (int, tuple of float)
        Length in nodes and gains per node of each linear segment, steepest first.
    """

    start: int
    gains: tuple[float, ...]
    segments: tuple[tuple[int, tuple[float, ...]], ...]

    @property
    def options(self) -> int:
        """Number of options."""
        return 1 + sum([length for length, _ in self.segments])


def runs(counts: NDArray[np.int64], gains: NDArray[np.float64]) -> list[ConcaveRun]:
    """Cut options into as few concave runs of maximal linear segments as a scan from the left finds.

    Parameters
    ----------
    counts : ndarray of int64, shape (K,)
        Node counts, not decreasing.
    gains : ndarray of float64, shape (P, K)
        What each option brings.
    """
    starts, rows = counts.tolist(), gains.tolist()
    # Short lists are gone through faster in Python.
    scales = [(row, SLOPE_TOLERANCE * max(max(row), -min(row))) for row in rows]
    found = []
    first = 0
    while first < len(starts):
        last = len(starts) - 1
        corners: list[int] = []
        for row, tolerance in scales:
            last, more = _concave(starts, row, first, last, tolerance)
            corners += more
        if len(rows) > 1:
            corners = sorted({corner for corner in corners if corner < last})
        bounds = itertools.pairwise((*corners, last))
        segments = [(end - at, tuple([(row[end] - row[at]) / (end - at) for row in rows])) for at, end in bounds]
        found.append(ConcaveRun(starts[first], tuple([row[first] for row in rows]), tuple(segments)))
        first = last + 1
    return found


def _concave(counts: list[int], row: list[float], first: int, last: int, tolerance: float) -> tuple[int, list[int]]:
    """Find where the concave run from `first` on ends (at `last` at most), and where its segments begin."""
    slope = math.inf
    corners: list[int] = []
    count, here = counts[first], row[first]
    for place in range(first, last):
        after = row[place + 1]
        step = after - here
        count += 1
        if step > slope + tolerance or counts[place + 1] != count:
            return place, corners
        if step < slope - tolerance:
            corners.append(place)
            slope = step
        here = after
    return last, corners


def modes(counts: NDArray[np.int64], uses: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    """Divide options so that uses are linear in the count within each mode, as far as the data allow.

    Options of one power limit use the same watts per node, which identifies their mode. Where hardly two options share
    that, options are grouped by their rank among those of the same count instead. A poor division makes short runs,
    which cost time; it changes no optimum.

    Parameters
    ----------
    counts : ndarray of int64, shape (K,)
        Node counts, not decreasing.
    uses : ndarray of float64, shape (R, K)

    Returns
    -------
    list of ndarray of int64
        Places of the options of each mode, increasing. Options of 0 nodes come first: in the only mode if there is one,
        else by themselves.
    """
    idle = int(counts.searchsorted(0, "right"))
    places = np.arange(idle, counts.size)
    label = np.zeros(places.size, dtype=np.int64)
    for use in uses[:, idle:]:
        each = _grouped(use / counts[idle:])
        label = label * (each.max(initial=0) + 1) + each
    label = np.unique(label, return_inverse=True)[1]
    if 2 * label.max(initial=0) >= places.size > 1:
        order = np.lexsort((*uses[:, idle:], counts[idle:]))
        ordered = counts[idle:][order]
        label[order] = np.arange(places.size) - ordered.searchsorted(ordered)
    found = [places[label == number] for number in range(int(label.max(initial=-1)) + 1)]
    nothing = np.arange(idle)
    return [np.concatenate((nothing, *found))] if len(found) <= 1 else [nothing, *found] if idle else found


def _grouped(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Label values by group: values that are neighbours in size and close share a label."""
    order = numbers.argsort(kind="stable")
    ordered = numbers[order]
    group = np.zeros(numbers.size, dtype=np.int64)
    group[order[1:]] = (ordered[1:] - ordered[:-1] > MODE_TOLERANCE * ordered[-1:]).cumsum()
    return group
