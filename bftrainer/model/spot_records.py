"""What a simulated training run on preemptible nodes leaves behind, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

__all__ = ["Condition", "Phase", "SpotRun", "Step"]

Condition = Literal["training", "reconfiguring", "stalled"]


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a run in one condition. Times are nanoseconds since the window's start.

    Parameters
    ----------
    condition : {"training", "reconfiguring", "stalled"}
    start_ns, end_ns : int
    world_size : int
        Active nodes; 0 unless training.
    iteration_ns : int
        Time of an iteration; 0 unless training.
    first : int
        Iterations that were done when it started: it goes on with the one after them.
    iterations : int
        Done in it.
    repeated : int
        Of these, how many had been done before.
    redoing_ns : int
        Time spent on iterations that had been done before, one that was broken off included.
    saved : int
        Iterations that the last checkpoint holds when it ends.
    checkpoints : int
        Completed in it.
    checkpoints_lost : int
        Under way when it was broken off.
    is_over : bool
        False if the window closes on it.
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
        """How long it lasts."""
        return self.end_ns - self.start_ns

    @property
    def lost(self) -> int:
        """Iterations that were done when it was broken off, and that no checkpoint holds."""
        return self.first + self.iterations - self.saved if self.is_over else 0


@dataclass(frozen=True, slots=True)
class Step:
    """An iteration that is done, or a reconfiguration that starts.

    Parameters
    ----------
    world_size : int
        Active nodes: of the iteration, or after the reconfiguration.
    time_ns : int
        When that was noticed, since the window's start.
    event : {"step", "reconfig"}
    number : int
        Of the iteration, 0 where the run begins; of the reconfiguration, from 1.
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
        Its length.
    phases : tuple of Phase
        One after another, from 0 to `span_ns`.
    iterations : int
        Done at the end, what was lost not among them.
    held_node_s : float
        Node-seconds of all nodes that were there.
    preemptions, active_preemptions : int
        Nodes that were taken, and how many of them were active.
    restarts : int
        Reconfigurations that a further loss drew out.
    tick_ns : int
        What happens is noticed at multiples of it.
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
        """Phases in a condition."""
        return tuple(phase for phase in self.phases if phase.condition == condition)

    def steps(self) -> Iterator[Step]:
        """The run's beginning as step 0, then all iterations and all reconfigurations that ended, by time."""
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
