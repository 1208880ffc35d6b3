"""Measured times of a pipeline-parallel training run."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from bftrainer.errors import TrainingProfileError

__all__ = ["TrainingProfile"]

_MOST = 10**9
"""Nodes, or seconds: sums of such times still fit in the nanoseconds of a run."""
_MOST_SAMPLES = 1e15


@dataclass(frozen=True, slots=True)
class TrainingProfile:
    """How long a training run takes for what it does, on as many nodes as were measured.

    Parameters
    ----------
    world_size : tuple of int, shape (K,)
        Node counts, 1 to 1e9, strictly increasing.
    iteration_s : tuple of float, shape (K,)
        Mean time of an iteration on so many nodes, over 0; all times below 1e9 (30 years).
    reconfiguration_s, checkpoint_s, load_s : float
        Mean times to form pipelines anew, to write a checkpoint beside the training, and to load one; at least 0.
    samples_per_iteration : float, optional
        Over 0, at most 1e15.

    Raises
    ------
    TrainingProfileError
        If there is no node count, counts do not increase from 1, or a time is out of range.
    """

    world_size: tuple[int, ...]
    iteration_s: tuple[float, ...]
    reconfiguration_s: float
    checkpoint_s: float
    load_s: float = 0.0
    samples_per_iteration: float | None = None

    def __post_init__(self) -> None:
        if not self.world_size:
            raise TrainingProfileError("Expected iteration times for at least one world size, got none.")
        if len(self.world_size) != len(self.iteration_s):
            raise TrainingProfileError(
                f"Expected as many iteration times as world sizes, got {len(self.iteration_s)} for "
                f"{len(self.world_size)}."
            )
        previous = 0
        for size in self.world_size:
            if size <= previous:
                above = f"above {previous}" if previous else ">= 1"
                raise TrainingProfileError(f"Expected world sizes that increase, the next one {above}, got {size}.")
            previous = size
        if previous > _MOST:
            raise TrainingProfileError(f"Expected world sizes <= {_MOST:g}, got a larger one.")
        for size, time_s in zip(self.world_size, self.iteration_s, strict=True):
            if not 1e-6 <= time_s < _MOST:
                raise TrainingProfileError(f"Expected 1e-6 <= iteration_s < 1e9 at world size {size}, got {time_s}.")
        for name in ("reconfiguration_s", "checkpoint_s", "load_s"):
            if not 0 <= getattr(self, name) < _MOST:
                raise TrainingProfileError(f"Expected 0 <= {name} < 1e9, got {getattr(self, name)}.")
        samples = self.samples_per_iteration
        if samples is not None and not 0 < samples <= _MOST_SAMPLES:
            raise TrainingProfileError(f"Expected 0 < samples_per_iteration <= 1e15, got {samples}.")

    def iteration_time_s(self, world_size: int) -> float:
        """Time of an iteration on any number of nodes from 1 on.

        Between profiled sizes it is linear in ``1 / size``; beyond them iterations are as efficient as at the nearest
        profiled size: node-seconds per iteration stay the same.
        """
        sizes, times = self.world_size, self.iteration_s
        at = bisect_left(sizes, world_size)
        if at < len(sizes) and sizes[at] == world_size:
            return times[at]
        if at in (0, len(sizes)):
            nearest = min(at, len(sizes) - 1)
            return times[nearest] * sizes[nearest] / world_size
        low, high = sizes[at - 1], sizes[at]
        share = (1 / low - 1 / world_size) / (1 / low - 1 / high)
        return times[at - 1] + share * (times[at] - times[at - 1])
