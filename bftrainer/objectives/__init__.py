"""What a decision maximises: one metric a file, each a callable ``credit(task_state, counts, now_s)``."""

from bftrainer.objectives.as_given import as_given
from bftrainer.objectives.deadline import deadline
from bftrainer.objectives.energy import energy
from bftrainer.objectives.energy_delay import energy_delay
from bftrainer.objectives.fair_share import FairShare
from bftrainer.objectives.modifier import Constraint, Modifier, ModifierKind
from bftrainer.objectives.priority import Priority
from bftrainer.objectives.quota import Quota
from bftrainer.objectives.registry import get_objective, name_of_objective, objective_names
from bftrainer.objectives.scaling_efficiency import scaling_efficiency
from bftrainer.objectives.throughput import throughput

__all__ = [
    "Constraint",
    "FairShare",
    "Modifier",
    "ModifierKind",
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
