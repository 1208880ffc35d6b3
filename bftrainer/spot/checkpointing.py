"""Simulate checkpointed pipeline-parallel training on nodes that come and go.

The only events are changes of the trace, the end of a node's preparation and the end of a reconfiguration. Between
them, iterations and checkpoints follow one another at fixed times, so their number is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np

from bftrainer.errors import SettingsError
from bftrainer.model import NS_PER_S, NodeLog
from bftrainer.model.spot_training import Condition, Phase, SpotRun, TrainingProfile
from bftrainer.nodelogs.node_spans import nanoseconds


class Fleet:
    """Nodes of a pipeline-parallel run; each is in one state, in the order in which it came to it.

    Parameters
    ----------
    depth : int
        Nodes of a pipeline.
    most : int
        Active nodes at most.
    """

    __slots__ = ("active", "depth", "most", "preparing", "standby")

    def __init__(self, depth: int, most: int) -> None:
        self.depth = depth
        self.most = most
        # Dictionaries for their order: a set's would depend on how it was filled.
        self.preparing: dict[int, int] = {}
        self.standby: dict[int, None] = {}
        self.active: dict[int, None] = {}

    @property
    def can_grow(self) -> bool:
        """Whether a whole pipeline stands by, and may become active."""
        return len(self.standby) >= self.depth and len(self.active) + self.depth <= self.most

    @property
    def ready_ns(self) -> int | None:
        """When the next node has prepared."""
        return next(iter(self.preparing.values()), None)

    def join(self, ready_ns: Mapping[int, int]) -> None:
        """Nodes come; each prepares until its time, which never falls from node to node and call to call."""
        self.preparing.update(ready_ns)

    def prepare(self, now_ns: int) -> None:
        """Nodes that have prepared by now stand by."""
        ready = []
        for node, ready_ns in self.preparing.items():
            if ready_ns > now_ns:
                break
            ready.append(node)
        for node in ready:
            del self.preparing[node]
            self.standby[node] = None

    def leave(self, nodes: Iterable[int]) -> tuple[int, int]:
        """Nodes go; how many of them were active, and how many stood by."""
        active = standby = 0
        for node in nodes:
            if node in self.active:
                del self.active[node]
                active += 1
            elif node in self.standby:
                del self.standby[node]
                standby += 1
            else:
                del self.preparing[node]
        return active, standby

    def dissolve(self) -> None:
        """Active nodes stand by, before those that did."""
        self.standby = self.active | self.standby
        self.active = {}

    def form(self) -> int:
        """As many pipelines of the nodes that stand by as there can be; the number of active nodes."""
        room = min(len(self.standby), self.most - len(self.active))
        for node in list(self.standby)[: room - room % self.depth]:
            del self.standby[node]
            self.active[node] = None
        return len(self.active)


Row = tuple[int, Mapping[int, int], Sequence[int]]
"""When something is noticed, nanoseconds since the window's start; nodes that came, and when; nodes that went."""


@dataclass(frozen=True, slots=True)
class CheckpointedTraining:
    """How a run behaves.

    Parameters
    ----------
    profile : TrainingProfile
    depth : int
        Nodes of a pipeline, at least 1.
    max_world_size : int
        Active nodes at most; at least `depth`.
    preparation_s : float
        From a node's coming to its standing by.
    load_on_reconfigure : bool
        Whether a reconfiguration takes the time to load a checkpoint as well.
    on_loss_during_reconfigure : {"restart", "extend"}
        Whether a further loss starts a reconfiguration again, or adds a whole one to what is left of it.
    tick_s : float, optional
        What happens is noticed at multiples of it only, the last one before the window's end; by default at once.
        Nothing takes longer for that: iterations and checkpoints follow one another as ever, and only what waits to be
        noticed (a node, the end of a reconfiguration) waits.
    cold_start : bool
        Whether nodes that are there when the window opens have yet to prepare and to form pipelines. By default they
        are active at once, as far as they make whole pipelines: the run is under way.

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
        if self.depth < 1:
            raise SettingsError(f"Expected depth >= 1, got {self.depth}.")
        if self.max_world_size < self.depth:
            raise SettingsError(
                f"Expected max_world_size >= depth, got {self.max_world_size} < {self.depth}: no pipeline would train."
            )
        if not 0 <= self.preparation_s < 1e9:
            raise SettingsError(f"Expected 0 <= preparation_s < 1e9, got {self.preparation_s}.")
        if self.on_loss_during_reconfigure not in ("restart", "extend"):
            raise SettingsError(
                f"Expected on_loss_during_reconfigure to be restart or extend, got {self.on_loss_during_reconfigure!r}."
            )
        if self.tick_s is not None and not 1e-6 <= self.tick_s < 1e9:
            raise SettingsError(f"Expected 1e-6 <= tick_s < 1e9, got {self.tick_s}.")

    @property
    def tick_ns(self) -> int:
        """Nanoseconds from one look at the run to the next."""
        return 1 if self.tick_s is None else round(self.tick_s * NS_PER_S)

    def noticed_ns(self, time_ns: int) -> int:
        """When it is noticed what happens at a time: at the next tick."""
        if self.tick_s is None:
            return time_ns
        return -(-time_ns // self.tick_ns) * self.tick_ns

    def last_look_ns(self, span_ns: int) -> int:
        """The last time at which anything is noticed: the window's end, or the last tick before it."""
        return span_ns if self.tick_s is None else max(0, self.noticed_ns(span_ns) - self.tick_ns)


class CheckpointedRun:
    """The state of a run: `apply` what happens at an instant, ask `next_ns` for what happens by itself.

    Parameters
    ----------
    settings : CheckpointedTraining
    opening : sequence of int
        Nodes that are ready when the window opens.
    """

    def __init__(self, settings: CheckpointedTraining, opening: Sequence[int] = ()) -> None:
        load_s = settings.profile.load_s if settings.load_on_reconfigure else 0.0
        self._settings = settings
        self._preparation_ns = nanoseconds(settings.preparation_s)
        self._reconfiguration_ns = nanoseconds(settings.profile.reconfiguration_s + load_s)
        self._checkpoint_ns = nanoseconds(settings.profile.checkpoint_s)
        self._reconfigured_ns: int | None = None
        self._high = 0
        self._saved = 0
        self._begun_ns = 0
        self._iteration_ns = 0
        self._world_size = 0
        self.fleet = Fleet(settings.depth, settings.max_world_size)
        self.condition: Condition = "stalled"
        self.phases: list[Phase] = []
        self.preemptions = 0
        self.active_preemptions = 0
        self.restarts = 0
        self.fleet.join(dict.fromkeys(opening, 0))
        self.fleet.prepare(0)
        self._begin(0)

    @property
    def next_ns(self) -> int | None:
        """When it is noticed that a node has prepared, or the reconfiguration is over, whichever comes first."""
        times = [time for time in (self.fleet.ready_ns, self._reconfigured_ns) if time is not None]
        return self._settings.noticed_ns(min(times)) if times else None

    def progress(self, now_ns: int) -> tuple[int, int]:
        """Iterations done by now, and how many of them the last checkpoint holds."""
        if self.condition != "training":
            return self._saved, self._saved
        phase = self._phase(now_ns, now_ns, is_over=True)
        return phase.first + phase.iterations, phase.saved

    def apply(self, now_ns: int, joined: Mapping[int, int], left: Sequence[int]) -> None:
        """Something is noticed: what is over by now comes first, then nodes that went, then nodes that came.

        Parameters
        ----------
        now_ns : int
        joined : mapping of int to int
            Nodes that came, in the order of the times at which they did.
        left : sequence of int
        """
        self.fleet.prepare(now_ns)
        if self._reconfigured_ns is not None and self._reconfigured_ns <= now_ns:
            self._end(now_ns)
            self._begin(now_ns)
        active, standby = self.fleet.leave(left)
        self.preemptions += len(left)
        self.active_preemptions += active
        self.fleet.join({node: came_ns + self._preparation_ns for node, came_ns in joined.items()})
        if self._reconfigured_ns is not None:
            if standby:
                self._draw_out(now_ns)
        elif active or self.fleet.can_grow:
            self._end(now_ns)
            self.fleet.dissolve()
            self.condition, self._begun_ns = "reconfiguring", now_ns
            self._reconfigured_ns = now_ns + self._reconfiguration_ns

    def close(self, end_ns: int) -> int:
        """The window closes; iterations done at the end, as far as that was noticed."""
        seen_ns = self._settings.last_look_ns(end_ns)
        done, _ = self.progress(seen_ns)
        self.phases.append(self._phase(end_ns, seen_ns, is_over=False))
        return done

    def _draw_out(self, now_ns: int) -> None:
        """A further loss during a reconfiguration."""
        from_ns = now_ns
        if self._settings.on_loss_during_reconfigure == "extend" and self._reconfigured_ns is not None:
            from_ns = self._reconfigured_ns
        self._reconfigured_ns = from_ns + self._reconfiguration_ns
        self.restarts += 1

    def _begin(self, now_ns: int) -> None:
        """Form what pipelines there can be, and train with them."""
        self._world_size = self.fleet.form()
        self._reconfigured_ns = None
        self._begun_ns = now_ns
        self.condition = "training" if self._world_size else "stalled"
        if self._world_size:
            iteration_s = self._settings.profile.iteration_time_s(self._world_size)
            self._iteration_ns = max(1, nanoseconds(iteration_s))

    def _end(self, now_ns: int) -> None:
        """End the phase; what training no checkpoint holds is lost."""
        phase = self._phase(now_ns, now_ns, is_over=True)
        if phase.condition == "training":
            self._high = max(self._high, phase.first + phase.iterations)
            self._saved = phase.saved
        self.phases.append(phase)

    def _phase(self, now_ns: int, seen_ns: int, *, is_over: bool) -> Phase:
        """The phase that has lasted until now, and was last looked at when it was `seen_ns`.

        The first checkpoint starts after the first iteration, each further one after the first iteration that ends when
        the one before it is complete, which is every `period` iterations.
        """
        if self.condition != "training":
            return Phase(self.condition, self._begun_ns, now_ns, first=self._saved, saved=self._saved, is_over=is_over)
        seen, iteration, checkpoint = seen_ns - self._begun_ns, self._iteration_ns, self._checkpoint_ns
        done = seen // iteration
        period = max(1, -(-checkpoint // iteration))
        begun = (done - 1) // period + 1 if done else 0
        since = seen - iteration - checkpoint
        complete = since // (period * iteration) + 1 if since >= 0 else 0
        behind = max(0, self._high - self._saved)
        return Phase(
            "training",
            self._begun_ns,
            now_ns,
            self._world_size,
            iteration,
            first=self._saved,
            iterations=done,
            repeated=min(done, behind),
            redoing_ns=min(now_ns - self._begun_ns, behind * iteration),
            saved=self._saved + 1 + (complete - 1) * period if complete else self._saved,
            checkpoints=complete,
            checkpoints_lost=begun - complete if is_over else 0,
            is_over=is_over,
        )


def simulate(
    log: NodeLog,
    settings: CheckpointedTraining,
    watch: Callable[[int, CheckpointedRun], None] | None = None,
) -> SpotRun:
    """Run training over a trace.

    Parameters
    ----------
    log : NodeLog
        Nodes are there while they are idle in it.
    settings : CheckpointedTraining
    watch : callable, optional
        Called with the time (ns since the window's start) and the state after each instant.

    Returns
    -------
    SpotRun
        Time and space grow with the log's transitions, whatever the iterations or ticks.
    """
    span_ns = log.end_ns - log.start_ns
    rows = _noticed(log, settings)
    row = next(rows, None)
    opening: Sequence[int] = ()
    last_ns = settings.last_look_ns(span_ns)
    if row is not None and row[0] == 0 and not settings.cold_start:
        opening, row = tuple(row[1]), next(rows, None)
    run = CheckpointedRun(settings, opening)
    while True:
        own = run.next_ns
        now = min((time for time in (own, row and row[0]) if time is not None), default=None)
        if now is None or now > last_ns:
            break
        if row is not None and row[0] == now:
            run.apply(*row)
            row = next(rows, None)
        else:
            run.apply(now, {}, ())
        if watch is not None:
            watch(now, run)
    iterations = run.close(span_ns)
    sign = np.where(log.idle, 1.0, -1.0)
    held_node_s = float(sign @ ((log.end_ns - np.maximum(log.time_ns, log.start_ns)) / NS_PER_S))
    return SpotRun(
        start_ns=log.start_ns,
        span_ns=span_ns,
        phases=tuple(run.phases),
        iterations=iterations,
        held_node_s=held_node_s,
        preemptions=run.preemptions,
        active_preemptions=run.active_preemptions,
        restarts=run.restarts,
        tick_ns=settings.tick_ns,
    )


def _noticed(log: NodeLog, settings: CheckpointedTraining) -> Iterator[Row]:
    """Rows of a log, those of one tick together: who went and came back has gone, who came and went was never seen."""
    rows = ((nanoseconds(time_s), joined.tolist(), left.tolist()) for time_s, joined, left in log.rows())
    for noticed_ns, together in groupby(rows, lambda row: settings.noticed_ns(row[0])):
        came: dict[int, int] = {}
        went: dict[int, None] = {}
        for time_ns, joined, left in together:
            for node in left:
                if came.pop(node, None) is None:
                    went[node] = None
            came.update(dict.fromkeys(joined, time_ns))
        yield noticed_ns, came, tuple(went)
