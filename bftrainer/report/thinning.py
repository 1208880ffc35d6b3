"""Fewer points for the same picture: what a screen cannot resolve is left out, and how much that is told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Spans", "joined", "thinned_steps"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def thinned_steps(time_s: Floats, columns: list[NDArray[np.generic]], end_s: float, width: int) -> Integers:
    """Rows of a step function that a chart `width` points wide can tell apart.

    Of each of `width` equal pieces of the time the first and the last row stay, and those with the smallest and the
    largest value of each column: the outline of the curve is the same.

    Parameters
    ----------
    time_s : ndarray of float64, shape (E,)
        Ascending, from 0 on.
    columns : list of ndarray, shape (E,) each
    end_s : float
    width : int

    Returns
    -------
    ndarray of int64
        Ascending indices.
    """
    count = time_s.size
    if count <= 2 * width or not end_s > 0:
        return np.arange(count)
    piece = np.minimum((time_s / end_s * width).astype(np.int64), width - 1)
    starts = np.flatnonzero(np.append(True, piece[1:] != piece[:-1]))
    keep = [starts, np.append(starts[1:] - 1, count - 1)]
    for values in columns:
        by_value = np.lexsort((values, piece))
        keep += [by_value[starts], by_value[np.append(starts[1:] - 1, count - 1)]]
    return np.unique(np.concatenate(keep))


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Times in which a task holds nodes; arrays of shape (S,), ordered by task and time.

    Parameters
    ----------
    begin_s, end_s : ndarray of float64
    task : ndarray of int64
    nodes : ndarray of float64
        Held on average.
    """

    begin_s: Floats
    end_s: Floats
    task: Integers
    nodes: Floats


def joined(spans: Spans, most: int, end_s: float) -> Spans:
    """At most about `most` spans: those of a task that lie closer together than a screen shows become one.

    The shortest distance that is kept grows until they are few enough; node-time stays the same.
    """
    resolution = end_s / 4000.0
    while spans.begin_s.size > most:
        before = spans.begin_s.size
        spans = _joined_within(spans, resolution)
        if spans.begin_s.size == before and resolution > end_s:
            break
        resolution *= 2.0
    return spans


def _joined_within(spans: Spans, resolution: float) -> Spans:
    """Spans of a task, both short or with a short gap between them, become one."""
    piece = (spans.begin_s / resolution).astype(np.int64)
    new = np.append(True, (spans.task[1:] != spans.task[:-1]) | (piece[1:] != piece[:-1]))
    starts = np.flatnonzero(new)
    begin, end = spans.begin_s[starts], np.maximum.reduceat(spans.end_s, starts)
    node_s = np.add.reduceat((spans.end_s - spans.begin_s) * spans.nodes, starts)
    return Spans(begin, end, spans.task[starts], node_s / (end - begin))
