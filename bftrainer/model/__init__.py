"""The nouns: frozen, slotted dataclasses, validated when made."""

from bftrainer.model.event import Event, EventKind
from bftrainer.model.node_log import NodeLog
from bftrainer.model.task import ScalingCurve, TaskSpec

__all__ = ["Event", "EventKind", "NodeLog", "ScalingCurve", "TaskSpec"]
