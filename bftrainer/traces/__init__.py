"""Former name of `bftrainer.nodelogs` and `bftrainer.tasksets`."""

import warnings

from bftrainer.nodelogs import read_node_log, write_node_log
from bftrainer.tasksets import AssumedScaling, ScalingModel, TaskSet, parse_scaling_model, read_task_set, write_task_set

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

warnings.warn("bftrainer.traces is now bftrainer.nodelogs and bftrainer.tasksets.", DeprecationWarning, stacklevel=2)
