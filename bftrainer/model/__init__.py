"""The nouns: frozen, slotted dataclasses, validated when made."""

from bftrainer.model.decision import Decision
from bftrainer.model.event import Event, EventKind
from bftrainer.model.instants import instant_ns, iso
from bftrainer.model.node_log import NodeLog
from bftrainer.model.objective import Objective, is_static, static
from bftrainer.model.task import NS_PER_S, ScalingCurve, TaskSpec, TaskState

__all__ = [
    "NS_PER_S",
    "Decision",
    "Event",
    "EventKind",
    "NodeLog",
    "Objective",
    "ScalingCurve",
    "TaskSpec",
    "TaskState",
    "instant_ns",
    "is_static",
    "iso",
    "static",
]
