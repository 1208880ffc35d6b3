"""Learned curves in a replay: what tasks do is measured, and decisions go by what is believed of their throughput."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bftrainer.model import ScalingCurve, TaskSpec
from bftrainer.replay.cluster import Cluster, ClusterChange
from bftrainer.replay.curve_learner import LEVEL_SD, NOISE_S, CurveLearner

OPTIMISM = 0.5
"""Standard deviations above what is believed, at which counts are valued that could still be learnt."""
_STREAM = 0xC0  # of random numbers, apart from those that others draw of the seed
_PROBE = 0.01  # share of throughput that matters: less is no probe, and no news of tasks that have not run yet
_FEW = 3  # tasks that tell how much levels differ, at least
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
    """

    def __init__(self, noise: float = 0.0, seed: int = 0, names: Collection[str] | None = None) -> None:
        self._noise, self._names = noise, None if names is None else frozenset(names)
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

    def on_change(self, cluster: Cluster, change: ClusterChange) -> None:  # noqa: ARG002
        """Measure what running tasks have done since the last instant, after they had rescaled."""
        for task in change.tasks:
            seconds = change.elapsed_s - task.rescale_booked / task.ran if task.ran > 0 else 0.0
            if seconds < _LEAST_S or self._learner(task.number, task.ran_as) is None:
                continue
            work = task.ran * seconds
            if self._noise:
                # Of mean 1, and never negative.
                spread = self._noise * math.sqrt(NOISE_S / seconds)
                work *= math.exp(spread * self._rng.standard_normal() - spread**2 / 2.0)
            self.measured(task.number, task.ran_as, task.held, work, seconds)

    def measured(self, number: int, spec: TaskSpec, count: int, work: float, seconds: float) -> bool:
        """Take in what a task has done on a count of nodes; whether that changes what is believed."""
        learner = self._learner(number, spec)
        if learner is None:
            return False
        self.probes += count not in learner.seen and learner.worth(np.array([count])).item() > _PROBE
        news = learner.observe(count, work, seconds)
        if news:
            learner.shown = learner.believed(np.ones(1, dtype=np.int64))[0].item()
            for other, mate in self.learners.items():
                if mate is learner or (mate.mates is learner.mates and mate.asks_mates):
                    self._believed.pop(other, None)
        return news

    def _learner(self, number: int, spec: TaskSpec) -> CurveLearner | None:
        if self._names is not None and spec.name not in self._names:
            return None
        if number not in self.learners:
            mates = [] if spec.group is None else self._groups.setdefault(spec.group, [])
            self.learners[number] = CurveLearner(spec.max_nodes, self._noise, OPTIMISM, mates)
            mates.append(self.learners[number])
        return self.learners[number]

    def _expected_level(self, learner: CurveLearner) -> tuple[float, float]:
        """What a task of which nothing was seen yet may do on one node: as others of its group do, or all others."""
        known = [each.shown for each in learner.mates if each.seen]
        known = known or [each.shown for each in self.learners.values() if each.seen]
        mean = math.fsum(known) / max(1, len(known))
        if len(known) < _FEW:
            return mean, LEVEL_SD
        return mean, max(_PROBE, math.sqrt(math.fsum((each - mean) ** 2 for each in known) / (len(known) - 1)))

    def believe(self, cluster: Cluster) -> dict[int, ScalingCurve]:
        """Let decisions see active tasks as they are believed to be; return the curves that are believed anew."""
        changed = {}
        for task in cluster.active:
            number, spec = task.number, task.spec
            learner = self._learner(number, spec)
            if learner is None:
                continue
            if not learner.seen:
                level, level_sd = self._expected_level(learner)
                if max(abs(level - learner.level), abs(level_sd - learner.level_sd)) > _PROBE:
                    learner.level, learner.level_sd = level, level_sd
                    self._believed.pop(number, None)
            if number not in self._believed:
                changed[number] = learner.curve()
                self._believed[number] = replace(spec, scaling=changed[number])
                task.offers = {}
            task.believed = self._believed[number]
        return changed

    def figures(self, tasks: Sequence[TaskSpec]) -> dict[str, Any]:
        """What a summary says of learning: measured tasks, probes, and relative errors of the curves now.

        Of the errors one is the mean over all counts, and one weighted by how long tasks ran on each.
        """
        errors, used, ran_s = [], [], []
        for number, learner in self.learners.items():
            if learner.seen:
                counts = np.arange(tasks[number].min_nodes, tasks[number].max_nodes + 1)
                truth = tasks[number].rates[counts]
                error = np.abs(np.exp(learner.believed(counts)[0]) - truth) / np.where(truth > 0, truth, np.inf)
                errors.append(float(error.mean()))
                ran_s += [seconds for _, seconds in learner.seen.values()]
                used += [error.item(nodes - counts[0]) * seconds for nodes, (_, seconds) in learner.seen.items()]
        return {
            "learned_tasks": len(errors),
            "learned_probes": self.probes,
            "learned_error": math.fsum(errors) / len(errors) if errors else None,
            "learned_error_used": math.fsum(used) / math.fsum(ran_s) if ran_s else None,
        }
