"""The data model: frozen, slotted dataclasses, validated when made."""

from bftrainer.model.decision import Decision, Event, EventKind, Objective, is_static, static
from bftrainer.model.instants import NS_PER_S, instant_ns, instants_ns, iso, rounding_s
from bftrainer.model.node_log import Instant, NodeLog
from bftrainer.model.task import NodePoints, ScalingCurve, TaskSpec, TaskState, TunedRun, Tuner, TuningSpec

__all__ = [
    "NS_PER_S",
    "Decision",
    "Event",
    "EventKind",
    "Instant",
    "NodeLog",
    "NodePoints",
    "Objective",
    "ScalingCurve",
    "TaskSpec",
    "TaskState",
    "TunedRun",
    "Tuner",
    "TuningSpec",
    "instant_ns",
    "instants_ns",
    "is_static",
    "iso",
    "rounding_s",
    "static",
]
