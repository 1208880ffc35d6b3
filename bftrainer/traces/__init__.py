"""Node logs and task sets: from files of any supported form to the model's nouns, and back.

Importing this package imports neither pandas nor pyarrow nor pydantic: each is loaded by the form that needs it.
"""

from bftrainer.traces.store import read_node_log, read_task_set, write_node_log, write_task_set
from bftrainer.traces.task_set import AssumedScaling, ScalingModel, TaskSet, parse_scaling_model

__all__ = [
    "AssumedScaling",
    "ScalingModel",
    "TaskSet",
    "parse_scaling_model",
    "read_node_log",
    "read_task_set",
    "write_node_log",
    "write_task_set",
]
