"""What a decision maximises: one metric a file, each a callable ``credit(task_state, counts, now_s)``."""

from bftrainer.objectives.as_given import as_given
from bftrainer.objectives.priority import priority
from bftrainer.objectives.registry import get_objective, objective_names
from bftrainer.objectives.scaling_efficiency import scaling_efficiency
from bftrainer.objectives.throughput import throughput

__all__ = ["as_given", "get_objective", "objective_names", "priority", "scaling_efficiency", "throughput"]
