"""Replay: the cluster's state, the allocator that decides, the loop that drives both, and its observers."""

from bftrainer.replay.allocator import Allocator
from bftrainer.replay.allocator_settings import Settings
from bftrainer.replay.cluster import Adoption, Cluster, ClusterChange, Observer
from bftrainer.replay.cluster_task import ClusterTask
from bftrainer.replay.loop import Stop, replay, stop_after, stop_at, stop_first, stop_when
from bftrainer.replay.power_draw import PowerMeter
from bftrainer.replay.recorder import Recorder

__all__ = [
    "Adoption",
    "Allocator",
    "Cluster",
    "ClusterChange",
    "ClusterTask",
    "Observer",
    "PowerMeter",
    "Recorder",
    "Settings",
    "Stop",
    "replay",
    "stop_after",
    "stop_at",
    "stop_first",
    "stop_when",
]
