"""Learn tasks' scaling curves from the work that they are seen to do, so that decisions need not be told them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError
from bftrainer.model import ScalingCurve, TaskSpec
from bftrainer.replay.cluster import Cluster, ClusterChange
from bftrainer.replay.cluster_task import ClusterTask

Floats = NDArray[np.float64]

NOISE_S = 60.0
"""Noise is the relative standard deviation of what is measured in so many seconds; more seconds average it out."""
# Beliefs about log throughput over log nodes before anything is seen: the slope on one node (a power law, concave as
# measured curves mostly are), and standard deviations of level, slope, and change of slope per e-fold of nodes.
_SLOPE, LEVEL_SD, _SLOPE_SD, _BEND_SD = 0.9, 1.0, 0.1, 0.2
# What tasks of a group have in common of the variance of slopes and their changes; a level is each one's own.
_KINSHIP = 0.95
# A task that was seen on fewer counts than this also goes by what was seen longest of so many of its mates.
_ENOUGH, _MATES, _ROWS = 8, 8, 60
# Seconds, as no clock tells less: what takes less time tells nothing.
_SHORTEST_S = 1e-9
# No measurement is nearer than this, which keeps the equations solvable.
_LEAST_SD = 1e-5
# Counts between which a curve is linear: each up to this, then steps of about this share.
_EACH, _STEP = 32, 0.08
OPTIMISM = 0.5
"""Standard deviations above what is believed, at which counts are valued that could still be learnt."""
_STREAM = 0xC0  # of random numbers, apart from those that others draw of the seed
_PROBE = 0.01  # share of throughput that matters: less is no probe, and no news of tasks that have not run yet
_FEW = 3  # tasks that tell how much levels differ, at least
_LEAST_S = 1.0  # shorter stretches of training are not measured


class CurveLearner:
    """What is believed of a task's throughput, given what was seen of it and of its group.

    Log throughput over log nodes is a Gaussian process: a level, a slope, and a slope that changes as a random walk
    does. So beliefs follow measurements where there are some and go on with the last slope beyond, concave here and
    convex there. The scale is open: before anything is seen it is `level`.

    Each further learner of `mates`, tasks of its group, is taken for similar; there may be more of them later. What is
    not known yet is valued `optimism` standard deviations above what is believed: the worth of a probe. Work measured
    over `NOISE_S` has `noise` as its relative standard deviation, `SettingsError` if that is negative or not finite.
    """

    def __init__(
        self, max_nodes: int, noise: float = 0.0, optimism: float = 0.0, mates: list[CurveLearner] | None = None
    ) -> None:
        if not 0 <= noise < math.inf:
            raise SettingsError(f"Expected noise of 0 or more, got {noise}.")
        self.max_nodes, self.noise, self.optimism = max_nodes, noise, optimism
        self.mates = [] if mates is None else mates
        self.measured: dict[int, tuple[float, float]] = {}  # by count: work, and the seconds that it took
        # The log of throughput on one node, and its standard deviation, before anything is measured; and believed now.
        self.level, self.level_sd, self.level_now = 0.0, LEVEL_SD, 0.0
        self._reported_s: dict[int, float] = {}

    @property
    def asks_mates(self) -> bool:
        """Whether what its mates have shown counts, as too little was seen of itself."""
        return len(self.measured) < _ENOUGH

    def observe(self, nodes: int, work: float, seconds: float) -> bool:
        """Take in work done on a count of nodes, and say whether it tells more; none, or in no time, tells nothing."""
        work_before, before_s = self.measured.get(nodes, (0.0, 0.0))
        total, total_s = work_before + work, before_s + seconds
        if not (0 < nodes <= self.max_nodes and work > 0 and seconds >= _SHORTEST_S and 0 < total / total_s < math.inf):
            return False
        # However alike the others are: from now on it shows its own level.
        self.measured[nodes], self.level_sd = (total, total_s), LEVEL_SD
        reported_s = self._reported_s.get(nodes, 0.0)
        is_news = not reported_s or (self.noise > 0 and total_s >= 2.0 * reported_s)
        if is_news:
            self._reported_s[nodes] = total_s
        return is_news

    def predict(self, counts: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Mean and standard deviation of log throughput at counts of at least 1."""
        at = np.log(counts)
        mean, variance = self.level + _SLOPE * at, self.level_sd**2 + np.diagonal(_shape(at, at))
        rows = [(0, self.level, *row) for row in self.measured.items()]
        if self.asks_mates:
            mates = [mate for mate in self.mates if mate is not self and mate.measured][-_MATES:]
            theirs = [(place, mate.level, *row) for place, mate in enumerate(mates, 1) for row in mate.measured.items()]
            rows += sorted(theirs, key=lambda row: -row[3][1])[:_ROWS]
        if not rows:
            return mean, np.sqrt(variance)
        task = np.array([row[0] for row in rows])
        x = np.log([row[2] for row in rows])
        gap = np.log([work / seconds for *_, (work, seconds) in rows]) - [row[1] for row in rows] - _SLOPE * x
        alike = np.equal.outer(task, task)
        covariance = np.where(alike, 1.0, _KINSHIP) * _shape(x, x) + self.level_sd**2 * alike
        covariance += np.diag(self.noise**2 * NOISE_S / np.array([row[3][1] for row in rows]) + _LEAST_SD**2)
        towards = np.where(task == 0, 1.0, _KINSHIP) * _shape(at, x) + self.level_sd**2 * (task == 0)
        solved = np.linalg.solve(covariance, towards.T)
        return mean + gap @ solved, np.sqrt(np.maximum(variance - np.einsum("ij,ji->i", towards, solved), 0.0))

    def worth(self, deviations: Floats) -> Floats:
        """What logs of throughput are raised by where they could be learnt, from their standard deviations."""
        worth: Floats = self.optimism * np.maximum(deviations - self.noise, 0.0)
        return worth

    def curve(self) -> ScalingCurve:
        """The curve to decide by: what is believed, raised by the worth of a probe where one could be."""
        # Points at small counts, then in steps, and where something was seen.
        steps = math.ceil(math.log(max(1.0, self.max_nodes / _EACH)) / _STEP)
        points = {*range(1, min(_EACH, self.max_nodes) + 1), self.max_nodes, *self.measured}
        points |= {round(_EACH * math.exp(step * _STEP)) for step in range(steps)}
        counts = np.array(sorted(point for point in points if point <= self.max_nodes), dtype=np.int64)
        mean, deviations = self.predict(counts)
        # Kept within what products with times can hold.
        rates = np.exp(np.clip(mean + self.worth(deviations), -200.0, 200.0))
        return ScalingCurve((0, *counts.tolist()), (0.0, *rates.tolist()))


def _shape(a: Floats, b: Floats) -> Floats:
    """Prior covariance of slope and bends between log counts, arrays of shapes (A,) and (B,), as (A, B)."""
    low, high = np.minimum(a[:, None], b[None]), np.maximum(a[:, None], b[None])
    covariance: Floats = _SLOPE_SD**2 * low * high + _BEND_SD**2 * low**2 * (3.0 * high - low) / 6.0
    return covariance


class LearnedCurves:
    """Keeps a learner for each task whose curve decisions do not know, and measures for them in the simulator.

    Work measured in a minute has `noise` as its relative standard deviation. With `names`, only these tasks' curves are
    learnt.
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
        fields = copy.deepcopy({name: value for name, value in vars(self).items() if name != "_believed"})
        return lambda: vars(self).update(fields | {"_believed": believed})

    def update(self, cluster: Cluster, change: ClusterChange) -> None:  # noqa: ARG002
        """Measure what running tasks have done since the last instant, after they had rescaled."""
        for task in change.tasks:
            seconds = change.elapsed_s - task.rescale_booked / task.span_rate if task.span_rate > 0 else 0.0
            if seconds < _LEAST_S or self._learner(task.number, task.span_spec) is None:
                continue
            work = task.span_rate * seconds
            if self._noise:
                # Of mean 1, and never negative.
                spread = self._noise * math.sqrt(NOISE_S / seconds)
                work *= math.exp(spread * self._rng.standard_normal() - spread**2 / 2.0)
            self.observe(task.number, task.span_spec, task.span_nodes, work, seconds)

    def observe(self, number: int, spec: TaskSpec, count: int, work: float, seconds: float) -> None:
        """Take in what a task has done on a count of nodes; beliefs that this changes are out of date."""
        learner = self._learner(number, spec)
        if learner is None:
            return
        deviation = learner.predict(np.array([count]))[1]
        self.probes += count not in learner.measured and learner.worth(deviation).item() > _PROBE
        if learner.observe(count, work, seconds):
            learner.level_now = learner.predict(np.ones(1, dtype=np.int64))[0].item()
            for other, mate in self.learners.items():
                if mate is learner or (mate.mates is learner.mates and mate.asks_mates):
                    self._believed.pop(other, None)

    def _learner(self, number: int, spec: TaskSpec) -> CurveLearner | None:
        if self._names is not None and spec.name not in self._names:
            return None
        if number not in self.learners:
            mates = [] if spec.group is None else self._groups.setdefault(spec.group, [])
            self.learners[number] = CurveLearner(spec.max_nodes, self._noise, OPTIMISM, mates)
            mates.append(self.learners[number])
        return self.learners[number]

    def _expect_level(self, learner: CurveLearner) -> bool:
        """Expect a task not measured yet to be like others of its group, or all others; whether that is news."""
        levels = [mate.level_now for mate in learner.mates if mate.measured]
        levels = levels or [other.level_now for other in self.learners.values() if other.measured]
        level, level_sd = math.fsum(levels) / max(1, len(levels)), LEVEL_SD
        if len(levels) >= _FEW:
            variance = math.fsum((other - level) ** 2 for other in levels) / (len(levels) - 1)
            level_sd = max(_PROBE, math.sqrt(variance))
        if max(abs(level - learner.level), abs(level_sd - learner.level_sd)) <= _PROBE:
            return False
        learner.level, learner.level_sd = level, level_sd
        return True

    def believe(self, cluster: Cluster) -> dict[ClusterTask, ScalingCurve]:
        """Let decisions see active tasks as they are believed to be; return the curves that are believed anew."""
        changed: dict[ClusterTask, ScalingCurve] = {}
        for task in cluster.active:
            number, spec = task.number, task.spec
            learner = self._learner(number, spec)
            if learner is None:
                continue
            if not learner.measured and self._expect_level(learner):
                self._believed.pop(number, None)
            if number not in self._believed:
                changed[task] = learner.curve()
                self._believed[number] = replace(spec, scaling=changed[task])
                task.forget_offers()
            task.believed = self._believed[number]
        return changed

    def figures(self, tasks: Sequence[TaskSpec]) -> dict[str, Any]:
        """What a summary says of learning: measured tasks, probes, and relative errors of the curves now.

        Of the errors one is the mean over all counts, and one weighted by how long tasks ran on each.
        """
        errors, used, ran_s = [], [], []
        for number, learner in self.learners.items():
            if learner.measured:
                counts = np.arange(tasks[number].min_nodes, tasks[number].max_nodes + 1)
                truth = tasks[number].rates[counts]
                error = np.abs(np.exp(learner.predict(counts)[0]) - truth) / np.where(truth > 0, truth, np.inf)
                errors.append(float(error.mean()))
                ran_s += [seconds for _, seconds in learner.measured.values()]
                used += [error.item(nodes - counts[0]) * seconds for nodes, (_, seconds) in learner.measured.items()]
        return {
            "learned_tasks": len(errors),
            "learned_probes": self.probes,
            "learned_error": math.fsum(errors) / len(errors) if errors else None,
            "learned_error_used": math.fsum(used) / math.fsum(ran_s) if ran_s else None,
        }
