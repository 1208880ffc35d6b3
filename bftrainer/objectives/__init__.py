"""Objectives, which decisions maximise: callables ``credit(task_state, counts, now_s)``."""

from bftrainer.objectives.credits import as_given, deadline, energy, energy_delay, scaling_efficiency, throughput
from bftrainer.objectives.modifiers import (
    FairShare,
    Modifier,
    Priority,
    Quota,
    get_objective,
    name_of_objective,
    objective_names,
)

__all__ = [
    "FairShare",
    "Modifier",
    "Priority",
    "Quota",
    "as_given",
    "deadline",
    "energy",
    "energy_delay",
    "get_objective",
    "name_of_objective",
    "objective_names",
    "scaling_efficiency",
    "throughput",
]
