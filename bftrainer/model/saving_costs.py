"""What saving and restoring a task's progress takes: seconds, by node count."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import InvalidTaskError
from bftrainer.model.type_checks import convert_fields, require

SAVING_FIELDS = ("checkpoint_s", "restart_s", "checkpoint_interval_s")
"""Fields of a task that say what saving takes."""
LEAST_INTERVAL_S = 1.0
"""Nothing is saved more often."""


@dataclass(frozen=True, slots=True)
class NodePoints:
    """Seconds against the node count: linear between points, constant before the first and after the last.

    Parameters
    ----------
    nodes : tuple of int, shape (K,)
        Node counts of 1 or more, strictly increasing.
    seconds : tuple of float, shape (K,)

    Raises
    ------
    InvalidTaskError
        If lengths differ, there is no point, counts are not whole or do not increase strictly, or seconds are no
        numbers.
    """

    nodes: tuple[int, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        convert_fields(self, InvalidTaskError)
        increases = all(a < b for a, b in itertools.pairwise((0, *self.nodes)))
        count, seconds = len(self.nodes), len(self.seconds)
        require(
            InvalidTaskError,
            (
                count > 0 and increases,
                f"node counts that increase strictly from 1 or more, got {list(self.nodes)}",
            ),
            (seconds == count, f"{count} seconds, one per node count, got {seconds}"),
        )


Seconds = float | NodePoints
"""Seconds at any node count, or by node count."""


@dataclass(frozen=True, slots=True, eq=False)
class SavingCosts:
    """Seconds that saving takes at every node count; arrays of shape (max_nodes + 1,).

    Parameters
    ----------
    checkpoint_s, restart_s : ndarray of float64
        Time to save, and time to load and warm up.
    interval_s : ndarray of float64, or None
        Time between the end of a save and the begin of the next; None for the Young/Daly optimum.
    """

    checkpoint_s: NDArray[np.float64]
    restart_s: NDArray[np.float64]
    interval_s: NDArray[np.float64] | None

    @classmethod
    def of(cls, given: Mapping[str, Seconds | None], max_nodes: int) -> SavingCosts | None:
        """Tables of the fields `SAVING_FIELDS`; None if none of them is given.

        Raises
        ------
        InvalidTaskError
            If one is negative or not finite, the interval is below `LEAST_INTERVAL_S`, or `checkpoint_s` is missing.
        """
        tables = {name: _table(name, value, max_nodes) for name, value in given.items() if value is not None}
        if tables and "checkpoint_s" not in tables:
            raise InvalidTaskError(f"Expected checkpoint_s with {next(iter(tables))}, got none.")
        restart_s = tables.get("restart_s", np.zeros(max_nodes + 1))
        return cls(tables["checkpoint_s"], restart_s, tables.get("checkpoint_interval_s")) if tables else None


def _table(name: str, given: Seconds, max_nodes: int) -> NDArray[np.float64]:
    """The seconds at 0 to `max_nodes` nodes, checked."""
    nodes, seconds = (given.nodes, given.seconds) if isinstance(given, NodePoints) else ((1,), (given,))
    least = LEAST_INTERVAL_S if name == "checkpoint_interval_s" else 0.0
    for value in seconds:
        if not (math.isfinite(value) and value >= least):
            raise InvalidTaskError(f"Expected {name} to be finite and >= {least:g}, got {value}.")
    return np.interp(np.arange(max_nodes + 1), nodes, seconds)
