"""Offer parts of shared nodes: which GPUs or cores of each node no job holds."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer.files.fields import stretches
from bftrainer.nodelogs.node_spans import NodeSpans
from bftrainer.schedulers.busy_records import ALL_UNITS, BusyKind, BusyRecords, column

UNIT_PLACEMENT = (
    "the lowest-numbered free {unit}s of each node, kept as long as a job runs: the log only counts them. "
    "Idle counts are exact, which {unit}s are idle and for how long at a stretch is not."
)


@dataclass(frozen=True, slots=True, eq=False)
class UnitSpans:
    """When GPUs or cores of nodes were in use.

    Parameters
    ----------
    names : tuple of str
        `node/gpu0` and so on.
    by_kind : mapping of BusyKind to NodeSpans
        Merged spans on units, by their index in `names`.
    crowded : int
        Number of times that a job asked more of a node than it had free; the rest is left out.
    """

    names: tuple[str, ...]
    by_kind: Mapping[BusyKind, NodeSpans]
    crowded: int


def unit_spans(
    records: BusyRecords, place: NDArray[np.int32], nodes: Sequence[str], units: Mapping[str, int], unit: str
) -> UnitSpans:
    """Put each job on the lowest-numbered free units of its nodes; what else keeps a node busy takes all of it.

    Parameters
    ----------
    records : BusyRecords
    place : ndarray of int32, shape (M,)
        Index in `nodes` of each node of the records; -1 for one that is left out.
    nodes : sequence of str
    units : mapping of str to int
        How many units each node has.
    unit : str
        What they are called.
    """
    sizes = np.array([units[name] for name in nodes], dtype=np.int64)
    base = np.append(0, np.cumsum(sizes))
    counts = np.diff(records.set_ends)[records.node_set]
    of = np.repeat(np.arange(len(records)), counts)
    node = place[records.set_nodes[stretches(records.set_ends[:-1][records.node_set], counts)]]
    of, node = of[node >= 0], node[node >= 0]
    order = np.argsort(records.start_ns[of], kind="stable")
    free_at = np.full(int(base[-1]), np.iinfo(np.int64).min)
    spans: dict[BusyKind, tuple[array[int], array[int], array[int]]] = {}
    crowded = 0
    for row, at in zip(of[order].tolist(), node[order].tolist(), strict=True):
        kind, asked = BusyKind(records.kind[row]), int(records.units[row])
        start, end, first = int(records.start_ns[row]), int(records.end_ns[row]), int(base[at])
        mine = range(first, int(base[at + 1]))
        if asked != ALL_UNITS:
            mine = [one for one in mine if free_at[one] <= start][:asked]  # type: ignore[assignment]
            crowded += len(mine) < asked
        held = spans.setdefault(kind, (array("i"), array("q"), array("q")))
        for one in mine:
            if kind in (BusyKind.JOB, BusyKind.UNKNOWN):
                free_at[one] = max(int(free_at[one]), end)
            for values, value in zip(held, (one, start, end), strict=True):
                values.append(value)
    by_kind = {kind: NodeSpans(*map(column, some)).merged() for kind, some in spans.items()}
    names = tuple(f"{name}/{unit}{number}" for name in nodes for number in range(units[name]))
    return UnitSpans(names, by_kind, crowded)
