"""What of many steps and intervals a screen can show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def thin_steps(time_s: Floats, columns: list[NDArray[np.generic]], end_s: float, width: int) -> Integers:
    """Rows of a step function that a chart `width` points wide can show.

    Of each of `width` equal pieces of the time, the first and last row are kept, and those with the least and the
    greatest value of each column, so the outline of the curve is the same. Times ascend from 0 on; the indices do too.
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
class TaskSpans:
    """Spans of time in which a task holds so many nodes on average; arrays of shape (S,), by task and time."""

    begin_s: Floats
    end_s: Floats
    task: Integers
    nodes: Floats


def join_spans(spans: TaskSpans, most: int, end_s: float) -> TaskSpans:
    """Join spans of a task that are too close for a screen to show, until about `most` are left.

    The shortest gap that stays grows until they are few enough; node-time stays the same.
    """
    resolution = end_s / 4000.0
    while spans.begin_s.size > most and resolution <= 2.0 * end_s:
        spans = _join_within(spans, resolution)
        resolution *= 2.0
    return spans


def _join_within(spans: TaskSpans, resolution: float) -> TaskSpans:
    """Join spans of a task that are both short or have a short gap between them."""
    piece = (spans.begin_s / resolution).astype(np.int64)
    new = np.append(True, (spans.task[1:] != spans.task[:-1]) | (piece[1:] != piece[:-1]))
    starts = np.flatnonzero(new)
    begin, end = spans.begin_s[starts], np.maximum.reduceat(spans.end_s, starts)
    node_s = np.add.reduceat((spans.end_s - spans.begin_s) * spans.nodes, starts)
    return TaskSpans(begin, end, spans.task[starts], node_s / (end - begin))
