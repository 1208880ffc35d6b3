"""Simulate checkpointed pipeline-parallel training on nodes that come and go.

The only events are changes of the trace, the end of a node's preparation and the end of a reconfiguration. Between
them, iterations and checkpoints follow one another at fixed times, so their number is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise, takewhile
from typing import Literal, NamedTuple

import numpy as np

from bftrainer.errors import SettingsError
from bftrainer.model import NS_PER_S, NodeLog
from bftrainer.model.type_checks import require
from bftrainer.nodelogs.node_spans import nanoseconds
from bftrainer.tasksets.measurements import TrainingProfile

Condition = Literal["training", "reconfiguring", "stalled"]


@dataclass(frozen=True, slots=True)
class CheckpointedTraining:
    """Settings of a simulated training run.

    Parameters
    ----------
    profile : TrainingProfile
    depth : int
        Nodes per pipeline, at least 1.
    max_world_size : int
        Largest number of active nodes; at least `depth`.
    preparation_s : float
        Time from a node's arrival until it is on standby.
    load_on_reconfigure : bool
        Whether a reconfiguration includes the time to load a checkpoint.
    on_loss_during_reconfigure : {"restart", "extend"}
        Whether a loss during a reconfiguration starts it again, or adds the length of a whole one to the time left.
    tick_s : float, optional
        Interval at which the run notices changes, the last time before the window's end; by default it does at once.
        Iterations and checkpoints take no longer with ticks.
    cold_start : bool
        Whether nodes that are present when the window opens must first prepare; by default the run is under way.

    Raises
    ------
    SettingsError
        If a number is out of range.
    """

    profile: TrainingProfile
    depth: int = 16
    max_world_size: int = 64
    preparation_s: float = 180.0
    load_on_reconfigure: bool = False
    on_loss_during_reconfigure: Literal["restart", "extend"] = "restart"
    tick_s: float | None = None
    cold_start: bool = False

    def __post_init__(self) -> None:
        most, mode = self.max_world_size, self.on_loss_during_reconfigure
        require(
            SettingsError,
            (self.depth >= 1, f"depth >= 1, got {self.depth}"),
            (most >= self.depth, f"max_world_size >= depth, got {most} < {self.depth}: no pipeline would train"),
            (0 <= self.preparation_s < 1e9, f"0 <= preparation_s < 1e9, got {self.preparation_s}"),
            (mode in ("restart", "extend"), f"on_loss_during_reconfigure to be restart or extend, got {mode!r}"),
            (self.tick_s is None or 1e-6 <= self.tick_s < 1e9, f"1e-6 <= tick_s < 1e9, got {self.tick_s}"),
        )

    def next_tick_ns(self, time_ns: int) -> int:
        """Time at which the run notices a change that happens at `time_ns`."""
        tick_ns = 1 if self.tick_s is None else round(self.tick_s * NS_PER_S)
        return -(-time_ns // tick_ns) * tick_ns


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a run in one condition. Times are nanoseconds since the window's start.

    The run notices what is done in it until `last_look_ns`. When it started, the last checkpoint held `first` of at
    `most` so many iterations done. `world_size` counts active nodes, 0 unless training. It `is_over` if it ended before
    the window did.
    """

    condition: Condition
    start_ns: int
    end_ns: int
    last_look_ns: int
    first: int = 0
    most: int = 0
    world_size: int = 0
    iteration_ns: int = 1
    checkpoint_ns: int = 0
    is_over: bool = True

    @property
    def length_ns(self) -> int:
        """Length in nanoseconds."""
        return self.end_ns - self.start_ns

    @property
    def iterations(self) -> int:
        """Number of iterations done in it."""
        return (self.last_look_ns - self.start_ns) // self.iteration_ns if self.world_size else 0

    @property
    def redone(self) -> int:
        """How many of these had been done before, and were lost."""
        return min(self.iterations, self.most - self.first)

    @property
    def redoing_ns(self) -> int:
        """Time spent on iterations that had been done before, including an unfinished one."""
        return min(self.length_ns, (self.most - self.first) * self.iteration_ns) if self.world_size else 0

    @property
    def period(self) -> int:
        """Iterations from the start of a checkpoint to that of the next; the first one starts after an iteration."""
        return max(1, -(-self.checkpoint_ns // self.iteration_ns))

    @property
    def checkpoints(self) -> int:
        """Number of checkpoints completed in it."""
        since_ns = self.last_look_ns - self.start_ns - self.iteration_ns - self.checkpoint_ns
        return since_ns // (self.period * self.iteration_ns) + 1 if self.world_size and since_ns >= 0 else 0

    @property
    def checkpoints_lost(self) -> int:
        """Number of checkpoints that its end interrupted."""
        started = (self.iterations - 1) // self.period + 1 if self.iterations else 0
        return started - self.checkpoints if self.is_over else 0

    @property
    def safe(self) -> int:
        """Number of iterations that the last checkpoint holds at its end."""
        checkpoints = self.checkpoints
        return self.first + 1 + (checkpoints - 1) * self.period if checkpoints else self.first

    @property
    def lost(self) -> int:
        """Number of iterations done by its end that no checkpoint holds; 0 if the window ends first."""
        return self.first + self.iterations - self.safe if self.is_over else 0


class Step(NamedTuple):
    """A finished iteration (0 is the start of the run), or the start of a reconfiguration, when the run notices it.

    The world size is that of the one, or after the other; the time counts from the window's start.
    """

    world_size: int
    time_ns: int
    event: Literal["step", "reconfig"]
    number: int


@dataclass(frozen=True, slots=True)
class SpotRun:
    """A simulated run on a trace: consecutive phases from the window's start to its end.

    It counts nodes taken, those of them that were active, and how often a further loss restarted or extended a
    reconfiguration.
    """

    log: NodeLog
    settings: CheckpointedTraining
    phases: tuple[Phase, ...]
    preemptions: int
    active_preemptions: int
    restarts: int

    @property
    def available_node_s(self) -> float:
        """Node-seconds of all available nodes."""
        log = self.log
        sign = np.where(log.idle, 1.0, -1.0)
        return float(sign @ ((log.end_ns - np.maximum(log.time_ns, log.start_ns)) / NS_PER_S))

    @property
    def iterations(self) -> int:
        """Number of iterations done at the end, without lost ones."""
        return self.phases[-1].first + self.phases[-1].iterations

    def steps(self) -> Iterator[Step]:
        """Yield the start of the run as step 0, then all iterations and finished reconfigurations, by time."""
        reconfigurations = 0
        end_ns = self.phases[-1].end_ns
        yield Step(self.phases[0].world_size, 0, "step", 0)
        for phase, following in pairwise((*self.phases, Phase("stalled", end_ns, end_ns, end_ns))):
            for number in range(1, phase.iterations + 1):
                at_ns = self.settings.next_tick_ns(phase.start_ns + number * phase.iteration_ns)
                yield Step(phase.world_size, at_ns, "step", phase.first + number)
            if phase.condition == "reconfiguring" and phase.is_over:
                reconfigurations += 1
                yield Step(following.world_size, phase.start_ns, "reconfig", reconfigurations)


@dataclass(slots=True)
class Fleet:
    """Nodes of a pipeline-parallel run: each is preparing, on standby or active, in order of arrival in that state.

    Pipelines have `depth` nodes each, at `most` so many in all are active. Of each node it has the time in nanoseconds
    at which its preparation ends, which does not decrease in a state.
    """

    depth: int
    most: int
    preparing: dict[int, int] = field(default_factory=dict)
    standby: dict[int, int] = field(default_factory=dict)
    active: dict[int, int] = field(default_factory=dict)

    @property
    def can_grow(self) -> bool:
        """Whether enough nodes are on standby for another pipeline, and `most` allows it."""
        return len(self.standby) >= self.depth and len(self.active) + self.depth <= self.most

    def prepare(self, now_ns: int) -> None:
        """Move the nodes whose preparation is finished to standby."""
        for node in [*takewhile(lambda node: self.preparing[node] <= now_ns, self.preparing)]:
            self.standby[node] = self.preparing.pop(node)

    def remove(self, nodes: Iterable[int]) -> None:
        """Remove nodes."""
        for node in nodes:
            for state in (self.active, self.standby, self.preparing):
                state.pop(node, None)

    def form(self) -> int:
        """Form as many pipelines as possible from nodes on standby; returns the number of active nodes."""
        room = min(len(self.standby), self.most - len(self.active))
        for node in list(self.standby)[: room - room % self.depth]:
            self.active[node] = self.standby.pop(node)
        return len(self.active)


class CheckpointedRun:
    """State of a run: `apply` changes of the trace; `next_ns` is when the run next changes without one.

    Nodes of `opening` are ready (on standby) when the window opens.
    """

    def __init__(self, settings: CheckpointedTraining, opening: Iterable[int] = ()) -> None:
        profile = settings.profile
        load_s = profile.load_s if settings.load_on_reconfigure else 0.0
        self._settings = settings
        self._preparation_ns = nanoseconds(settings.preparation_s)
        self._reconfiguration_ns = nanoseconds(profile.reconfiguration_s + load_s)
        self._checkpoint_ns = nanoseconds(profile.checkpoint_s)
        self._ready_ns: int | None = None
        self._started_ns = self._saved = self._most = 0
        self._world_size, self._iteration_ns = 0, 1
        self.fleet = Fleet(settings.depth, settings.max_world_size, standby=dict.fromkeys(opening, 0))
        self.condition: Condition = "stalled"
        self.phases: list[Phase] = []
        self.preemptions = self.active_preemptions = self.restarts = 0
        self._train(0)

    @property
    def next_ns(self) -> int | None:
        """Time at which the next finished preparation or reconfiguration is noticed; None if neither is under way."""
        times = [*self.fleet.preparing.values()][:1]
        times += [] if self._ready_ns is None else [self._ready_ns]
        return self._settings.next_tick_ns(min(times)) if times else None

    def phase(self, end_ns: int, last_look_ns: int | None = None) -> Phase:
        """The current phase until `end_ns`; with the last look, as the window's end cuts it off."""
        return Phase(
            self.condition,
            self._started_ns,
            end_ns,
            end_ns if last_look_ns is None else last_look_ns,
            self._saved,
            max(self._most, self._saved),
            self._world_size,
            self._iteration_ns,
            self._checkpoint_ns,
            is_over=last_look_ns is None,
        )

    def apply(self, now_ns: int, joins_ns: Mapping[int, int], leaves: Iterable[int]) -> None:
        """Apply changes: finished preparations and reconfigurations, then nodes that left, then nodes that joined.

        Nodes that joined are in order of the times at which they did, in nanoseconds.
        """
        fleet, leaves = self.fleet, set(leaves)
        fleet.prepare(now_ns)
        if self._ready_ns is not None and self._ready_ns <= now_ns:
            self._end_phase(now_ns)
            self._train(now_ns)
        active, standby = len(leaves & fleet.active.keys()), len(leaves & fleet.standby.keys())
        fleet.remove(leaves)
        self.preemptions += len(leaves)
        self.active_preemptions += active
        fleet.preparing |= {node: came_ns + self._preparation_ns for node, came_ns in joins_ns.items()}
        if self._ready_ns is None:
            if active or fleet.can_grow:
                self._end_phase(now_ns)
                fleet.standby, fleet.active = fleet.active | fleet.standby, {}
                self.condition, self._world_size, self._started_ns = "reconfiguring", 0, now_ns
                self._ready_ns = now_ns + self._reconfiguration_ns
        elif standby:
            # Nodes are lost while others reconfigure, which takes a whole time from now on, or from its end.
            extends = self._settings.on_loss_during_reconfigure == "extend"
            self._ready_ns = (self._ready_ns if extends else now_ns) + self._reconfiguration_ns
            self.restarts += 1

    def _train(self, now_ns: int) -> None:
        """Form pipelines from nodes on standby, and train on them."""
        self._world_size, self._ready_ns, self._started_ns = self.fleet.form(), None, now_ns
        self.condition = "training" if self._world_size else "stalled"
        if self._world_size:
            iteration_s = self._settings.profile.iteration_time_s(self._world_size)
            self._iteration_ns = max(1, nanoseconds(iteration_s))

    def _end_phase(self, now_ns: int) -> None:
        """End the phase; iterations that no checkpoint holds are lost."""
        phase = self.phase(now_ns)
        self._most = max(self._most, phase.first + phase.iterations)
        self._saved = phase.safe
        self.phases.append(phase)


def simulate(log: NodeLog, settings: CheckpointedTraining) -> SpotRun:
    """Simulate training on the nodes of a trace, in time that grows with its transitions alone."""
    span_ns = log.end_ns - log.start_ns
    # The run looks at the window's end for the last time, or at the last tick before it.
    last_ns = span_ns if settings.tick_s is None else max(0, settings.next_tick_ns(span_ns) - settings.next_tick_ns(1))
    rows = _rows_by_tick(log, settings)
    row = next(rows, None)
    opening: Iterable[int] = ()
    if row is not None and row.time_ns == 0 and not settings.cold_start:
        opening, row = row.joins_ns, next(rows, None)
    run = CheckpointedRun(settings, opening)
    while True:
        own_ns = run.next_ns
        if row is None or (own_ns is not None and own_ns < row.time_ns):
            if own_ns is None or own_ns > last_ns:
                break
            run.apply(own_ns, {}, ())
        elif row.time_ns > last_ns:
            break
        else:
            run.apply(*row)
            row = next(rows, None)
    phases = (*run.phases, run.phase(span_ns, last_ns))
    return SpotRun(log, settings, phases, run.preemptions, run.active_preemptions, run.restarts)


class _Row(NamedTuple):
    """Nodes that joined, and when, and nodes that left, as the run notices them at `time_ns`."""

    time_ns: int
    joins_ns: Mapping[int, int]
    leaves: Iterable[int]


def _rows_by_tick(log: NodeLog, settings: CheckpointedTraining) -> Iterator[_Row]:
    """Rows of a log, merged by tick; a node that left and came back is in both, one that came and left in neither."""
    rows = ((nanoseconds(time_s), joined, gone) for time_s, joined, gone in log.rows())
    for tick_ns, together in groupby(rows, lambda row: settings.next_tick_ns(row[0])):
        joins_ns: dict[int, int] = {}
        leaves: set[int] = set()
        for time_ns, joined, gone in together:
            leaves |= {node for node in gone if joins_ns.pop(node, None) is None}
            joins_ns.update(dict.fromkeys(joined, time_ns))
        yield _Row(tick_ns, joins_ns, leaves)
