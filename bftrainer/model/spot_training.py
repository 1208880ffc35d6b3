"""Pipeline-parallel training on preemptible nodes: the measured profile, and the record of a simulated run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from bftrainer.errors import TrainingProfileError

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


Condition = Literal["training", "reconfiguring", "stalled"]


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a run in one condition. Times are nanoseconds since the window's start.

    Parameters
    ----------
    condition : {"training", "reconfiguring", "stalled"}
    start_ns, end_ns : int
    world_size : int
        Number of active nodes; 0 unless training.
    iteration_ns : int
        Time of an iteration; 0 unless training.
    first : int
        Number of iterations done when it started; it continues after them.
    iterations : int
        Number of iterations done in it.
    repeated : int
        How many of these had been done before, and were lost.
    redoing_ns : int
        Time spent on iterations that had been done before, including an unfinished one.
    saved : int
        Number of iterations that the last checkpoint holds at its end.
    checkpoints : int
        Number of checkpoints completed in it.
    checkpoints_lost : int
        Number of checkpoints that its end interrupted.
    is_over : bool
        Whether it ended before the window did.
    """

    condition: Condition
    start_ns: int
    end_ns: int
    world_size: int = 0
    iteration_ns: int = 0
    first: int = 0
    iterations: int = 0
    repeated: int = 0
    redoing_ns: int = 0
    saved: int = 0
    checkpoints: int = 0
    checkpoints_lost: int = 0
    is_over: bool = True

    @property
    def length_ns(self) -> int:
        """Length in nanoseconds."""
        return self.end_ns - self.start_ns

    @property
    def lost(self) -> int:
        """Number of iterations done by its end that no checkpoint holds; 0 if the window ends first."""
        return self.first + self.iterations - self.saved if self.is_over else 0


@dataclass(frozen=True, slots=True)
class Step:
    """A finished iteration, or the start of a reconfiguration.

    Parameters
    ----------
    world_size : int
        Number of active nodes: in the iteration, or after the reconfiguration.
    time_ns : int
        Time at which the run notices it, nanoseconds since the window's start.
    event : {"step", "reconfig"}
    number : int
        Number of the iteration (0 for the start of the run), or of the reconfiguration (from 1).
    """

    world_size: int
    time_ns: int
    event: Literal["step", "reconfig"]
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class SpotRun:
    """A simulated run, from the trace's start to its end.

    Parameters
    ----------
    start_ns : int
        Start of the window, nanoseconds since the Unix epoch.
    span_ns : int
        Length of the window in nanoseconds.
    phases : tuple of Phase
        Consecutive phases from 0 to `span_ns`.
    iterations : int
        Number of iterations done at the end, without lost ones.
    held_node_s : float
        Node-seconds of all available nodes.
    preemptions, active_preemptions : int
        Number of nodes taken, and how many of them were active.
    restarts : int
        Number of times that a further loss restarted or extended a reconfiguration.
    tick_ns : int
        The run notices changes at multiples of this time, in nanoseconds.
    """

    start_ns: int
    span_ns: int
    phases: tuple[Phase, ...]
    iterations: int
    held_node_s: float
    preemptions: int
    active_preemptions: int
    restarts: int
    tick_ns: int = 1

    def of(self, condition: Condition) -> tuple[Phase, ...]:
        """Phases of the run in a given condition."""
        return tuple(phase for phase in self.phases if phase.condition == condition)

    def steps(self) -> Iterator[Step]:
        """Yield the start of the run as step 0, then all iterations and finished reconfigurations, by time."""
        reconfigured = 0
        nothing = Phase("stalled", self.span_ns, self.span_ns)
        yield Step(self.phases[0].world_size, 0, "step", 0)
        for phase, following in pairwise((*self.phases, nothing)):
            for number in range(1, phase.iterations + 1):
                done_ns = phase.start_ns + number * phase.iteration_ns
                noticed_ns = -(-done_ns // self.tick_ns) * self.tick_ns
                yield Step(phase.world_size, noticed_ns, "step", phase.first + number)
            if phase.condition == "reconfiguring" and phase.is_over:
                reconfigured += 1
                yield Step(following.world_size, phase.start_ns, "reconfig", reconfigured)
