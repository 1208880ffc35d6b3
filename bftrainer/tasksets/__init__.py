"""Task sets: read them from files of any supported form, and write them.

Importing this package imports neither pandas nor pyarrow nor pydantic: each is loaded by the form that needs it.
"""

from bftrainer.tasksets.task_files import AssumedScaling, ScalingModel, TaskSet, read_task_set, write_task_set

__all__ = ["AssumedScaling", "ScalingModel", "TaskSet", "read_task_set", "write_task_set"]
