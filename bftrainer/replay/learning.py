"""Learned curves in a replay: what tasks do is measured, and decisions go by what is believed of their throughput."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np

from bftrainer.errors import SettingsError
from bftrainer.model import Decision, ScalingCurve, TaskSpec
from bftrainer.model.columns import GrowingTable
from bftrainer.replay.allocator_settings import Effects
from bftrainer.replay.curve_learner import NOISE_S, CurveLearner
from bftrainer.replay.moves import Moves
from bftrainer.replay.observers import Observer
from bftrainer.replay.state import ReplayState

OPTIMISM = 1.0
"""Standard deviations above what is believed, at which counts are valued that could still be learnt."""
_STREAM = 0xC0  # of random numbers, apart from those that others draw of the seed
_PROBE = 0.01  # share of the believed throughput that a probe's worth adds at least
_LEAST_S = 1.0  # shorter stretches of training are not measured


class LearnedCurves:
    """Keeps a learner for each task whose curve decisions do not know, and measures for them in the simulator.

    Parameters
    ----------
    noise : float
        Relative standard deviation of what is measured in a minute.
    seed : int
        Of the noise.
    names : collection of str, optional
        Tasks whose curves are learnt; all by default.
    optimism : float
        See `CurveLearner`.

    Raises
    ------
    SettingsError
        If the noise is negative or not finite.
    """

    def __init__(
        self, noise: float = 0.0, seed: int = 0, names: Collection[str] | None = None, optimism: float = OPTIMISM
    ) -> None:
        if not 0 <= noise < math.inf:
            raise SettingsError(f"Expected profile noise of 0 or more, got {noise}.")
        self._noise, self._optimism, self._names = noise, optimism, None if names is None else frozenset(names)
        self._rng = np.random.default_rng((seed, _STREAM))
        self._groups: dict[str, list[CurveLearner]] = {}
        self.learners: dict[int, CurveLearner] = {}
        self.probes = 0
        # Of active tasks the specs that decisions see, unless these are out of date.
        self._believed: dict[int, TaskSpec] = {}

    def checkpoint(self) -> Callable[[], None]:
        """What brings the learners back to their present state."""
        believed = dict(self._believed)
        kept = copy.deepcopy({name: each for name, each in vars(self).items() if name != "_believed"})
        return lambda: vars(self).update(kept | {"_believed": believed})

    def applied(self, before: ReplayState, effects: Effects) -> None:
        """Measure what running tasks have done since the last instant, after they had rescaled."""
        slots = (array.tolist() for array in (before.active, before.counts, before.rate, before.pending))
        for number, count, rate, pending in zip(*slots, strict=True):
            learner = self._learner(number, before.specs[number])
            seconds = effects.elapsed_s - pending / rate if rate > 0 else 0.0
            if learner is None or seconds < _LEAST_S:
                continue
            work = rate * seconds
            if self._noise:
                # Of mean 1, and never negative.
                spread = self._noise * math.sqrt(NOISE_S / seconds)
                work *= math.exp(spread * self._rng.standard_normal() - spread**2 / 2.0)
            at = np.array([count])
            self.probes += count not in learner.seen and learner.worth(at).item() > _PROBE
            if learner.observe(count, work, seconds):
                self._learnt(number, learner)

    def _learnt(self, number: int, learner: CurveLearner) -> None:
        """Forget the beliefs that a measurement changes, and expect of new tasks what others have shown."""
        stale = {number, *(each for each in self._believed if self.learners[each].mates is learner.mates)}
        fresh = [each for each in self.learners.values() if not each.seen]
        if fresh:
            one = np.ones(1, dtype=np.int64)
            levels = [each.believed(one)[0].item() for each in self.learners.values() if each.seen]
            for each in fresh:
                each.level = math.fsum(levels) / len(levels)
            stale |= {number for number, each in self.learners.items() if not each.seen}
        for other in stale:
            self._believed.pop(other, None)

    def _learner(self, number: int, spec: TaskSpec) -> CurveLearner | None:
        if self._names is not None and spec.name not in self._names:
            return None
        if number not in self.learners:
            mates = [] if spec.group is None else self._groups.setdefault(spec.group, [])
            self.learners[number] = CurveLearner(spec.max_nodes, self._noise, self._optimism, mates)
            mates.append(self.learners[number])
        return self.learners[number]

    def believed(self, state: ReplayState) -> tuple[ReplayState, dict[int, ScalingCurve]]:
        """The state as decisions see it, and the curves of active tasks that are believed anew."""
        specs, changed = list(state.specs), {}
        for number in state.active.tolist():
            spec = state.specs[number]
            learner = self._learner(number, spec)
            if learner is None:
                continue
            if number not in self._believed:
                changed[number] = learner.curve()
                self._believed[number] = replace(spec, scaling=changed[number])
            specs[number] = self._believed[number]
        return replace(state, specs=tuple(specs)), changed


@dataclass(frozen=True, slots=True)
class BeliefRecord:
    """What a decision believed of a task's throughput, from that decision until the task's next record.

    Parameters
    ----------
    event : int
        Number of the decision's event.
    task : str
    nodes : int
    throughput : float
        Work/s at that count; linear between counts.
    """

    event: int
    task: str
    nodes: int
    throughput: float


class BeliefRecorder(Observer):
    """Keeps what decisions believed."""

    def __init__(self) -> None:
        self._beliefs = GrowingTable(BeliefRecord)
        self._event = -1

    @property
    def tables(self) -> tuple[GrowingTable[BeliefRecord], ...]:
        """What was recorded so far."""
        return (self._beliefs,)

    def applied(self, state: ReplayState, effects: Effects, *, is_event: bool) -> None:
        """Count events."""
        del state, effects
        self._event += is_event

    def decided(self, state: ReplayState, decision: Decision, moves: Moves) -> None:
        """Keep the curves that are new."""
        del state, moves
        for task, curve in (decision.beliefs or {}).items():
            for nodes, throughput in zip(curve.nodes, curve.throughput, strict=True):
                self._beliefs.append(BeliefRecord(self._event, task, nodes, throughput))
