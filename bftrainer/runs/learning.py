"""Learned curves of a run: which tasks' curves decisions do not know, and how well they were learnt."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from bftrainer.errors import InvalidTaskError, SettingsError, UnusedOptionsError
from bftrainer.model import TaskSpec
from bftrainer.model.columns import Table
from bftrainer.replay.learning import BeliefRecord, BeliefRecorder, LearnedCurves
from bftrainer.runs.config import OPTIONS, ReplayConfig


@dataclass(frozen=True, slots=True, eq=False)
class LearnedRun:
    """What decisions of a run believed, and how near that was to the curves in the end.

    Parameters
    ----------
    beliefs : Table of BeliefRecord
    tasks : int
        Tasks of which something was measured.
    probes : int
        Times that a decision gave a task a count in order to learn.
    error : float or None
        Mean relative error of the learnt throughput, over all counts and these tasks; None without any.
    error_used : float or None
        The same, weighted by how long they ran on each count.
    """

    beliefs: Table[BeliefRecord]
    tasks: int
    probes: int
    error: float | None
    error_used: float | None

    @classmethod
    def of(cls, learning: LearnedCurves, recorder: BeliefRecorder, tasks: Sequence[TaskSpec]) -> LearnedRun:
        """Compare what was learnt with the tasks' curves."""
        found = [(learner, tasks[number]) for number, learner in learning.learners.items() if learner.seen]
        errors, used, ran_s = [], [], []
        for learner, task in found:
            counts = np.arange(task.min_nodes, task.max_nodes + 1)
            truth = task.rates[counts]
            error = np.abs(np.exp(learner.believed(counts)[0]) / np.where(truth > 0, truth, 1.0) - 1.0)
            errors.append(float(error[truth > 0].mean()))
            for nodes, (_, seconds) in learner.seen.items():
                used.append(seconds * float(error[nodes - task.min_nodes]))
                ran_s.append(seconds)
        mean = math.fsum(errors) / len(errors) if errors else None
        weighted = math.fsum(used) / math.fsum(ran_s) if used else None
        return cls(recorder.tables[0].table(), len(found), learning.probes, mean, weighted)

    def figures(self) -> dict[str, object]:
        """What the summary holds of it."""
        return {f"learned_{name}": value for name, value in asdict(self).items() if name != "beliefs"}


def check_learned(config: ReplayConfig, tasks: Sequence[TaskSpec], learned: Collection[str]) -> None:
    """Check whether the curves of these tasks can be learnt in this configuration.

    Raises
    ------
    InvalidTaskError
        If one of them is tuned.
    SettingsError
        If foresight would tell what they are.
    UnusedOptionsError
        If noise is given and nothing is learnt.
    """
    for task in tasks:
        if task.name in learned and task.tuning is not None:
            raise InvalidTaskError(f"Expected a curve of a tuned task, which its settings scale (task {task.name}).")
    if learned and config.foresight != "none" and "order" in config.foresight_use.split(","):
        raise SettingsError("Expected --foresight-use value or pool: order goes by curves, which are learned here.")
    if not learned and config.profile_noise != OPTIONS["profile_noise"].default:
        raise UnusedOptionsError({"--profile-noise": "no curve is learned"})
