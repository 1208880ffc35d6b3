"""Pipeline-parallel training on preemptible nodes: the measured profile."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise

from bftrainer.errors import TrainingProfileError
from bftrainer.model.type_checks import require

_MOST = 10**9
"""Largest number of nodes, or of seconds: sums of such times in nanoseconds still fit."""
_MOST_SAMPLES = 1e15


@dataclass(frozen=True, slots=True)
class TrainingProfile:
    """Measured times of a training run, by number of nodes.

    Parameters
    ----------
    world_size : tuple of int, shape (K,)
        Node counts, 1 to 1e9, strictly increasing.
    iteration_s : tuple of float, shape (K,)
        Mean time of an iteration at those counts, 1e-6 to below 1e9 (30 years).
    reconfiguration_s, checkpoint_s, load_s : float
        Mean times to form new pipelines, to write a checkpoint during training, and to load one; 0 to below 1e9.
    samples_per_iteration : float, optional
        Above 0, at most 1e15.

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
        sizes, times_s, samples = self.world_size, self.iteration_s, self.samples_per_iteration
        require(
            TrainingProfileError,
            (len(sizes) > 0, "iteration times for at least one world size, got none"),
            (
                len(sizes) == len(times_s),
                f"as many iteration times as world sizes, got {len(times_s)} for {len(sizes)}",
            ),
            *(
                (
                    size > last,
                    f"world sizes that increase, the next one {f'above {last}' if last else '>= 1'}, got {size}",
                )
                for last, size in pairwise((0, *sizes))
            ),
            (max(sizes, default=0) <= _MOST, f"world sizes <= {_MOST:g}, got a larger one"),
            *(
                (1e-6 <= time_s < _MOST, f"1e-6 <= iteration_s < 1e9 at world size {size}, got {time_s}")
                for size, time_s in zip(sizes, times_s, strict=False)
            ),
            *(
                (0 <= getattr(self, name) < _MOST, f"0 <= {name} < 1e9, got {getattr(self, name)}")
                for name in ("reconfiguration_s", "checkpoint_s", "load_s")
            ),
            (samples is None or 0 < samples <= _MOST_SAMPLES, f"0 < samples_per_iteration <= 1e15, got {samples}"),
        )

    def iteration_time_s(self, world_size: int) -> float:
        """Time of an iteration on any number of nodes from 1 on.

        Between profiled sizes it is linear in ``1 / size``; beyond them node-seconds per iteration are the same as at
        the nearest profiled size.
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
