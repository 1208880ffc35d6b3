"""Replay: the cluster's state, the allocator that decides, the loop that drives both, and its observers."""

from bftrainer.replay.allocator import Adoption, Allocator
from bftrainer.replay.allocator_settings import Settings
from bftrainer.replay.cluster import Cluster, ClusterChange, ClusterTask, Moves
from bftrainer.replay.loop import Observer, Row, replay
from bftrainer.replay.meter import PowerMeter
from bftrainer.replay.recorder import Recorder

__all__ = [
    "Adoption",
    "Allocator",
    "Cluster",
    "ClusterChange",
    "ClusterTask",
    "Moves",
    "Observer",
    "PowerMeter",
    "Recorder",
    "Row",
    "Settings",
    "replay",
]
